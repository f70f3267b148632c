//! The one test binary beside the units: what is seen from outside.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod config_command;
mod geo_data;
mod geo_regret;
mod geo_tour;
mod geo_vectors;
mod shared_data;
mod token_key_file;
