//! Server-side matchmaker. `domain` holds the matchmaking rules, `engine` the state and the tasks, `api` the gRPC services.

pub mod api;
pub mod auth;
pub mod beacon;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub use fireteam_domain as domain;
pub mod engine;
pub mod files;
pub mod geo;
pub mod rules;
pub mod server;
pub use fireteam_sim as sim;
pub mod store;
pub mod supervisor;
pub mod telemetry;
pub mod watch;
