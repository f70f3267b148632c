//! The one test binary; each module below is a chapter.

// `cfg(test)` says nothing new to the compiler; it tells clippy that the helpers here are tests too.
#[cfg(test)]
mod config_command;
#[cfg(test)]
mod geo_data;
#[cfg(test)]
mod geo_regret;
#[cfg(test)]
mod geo_tour;
#[cfg(test)]
mod geo_vectors;
#[cfg(test)]
mod shared_data;
#[cfg(test)]
mod token_key_file;
