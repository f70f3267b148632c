//! What operators see of the server: metrics and logs, neither of which a client can make grow.

pub mod label;
pub mod log;
pub mod metric;

pub use metric::Metrics;
