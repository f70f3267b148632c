//! What operators see of the server: metrics and logs, neither of which a client can make grow; and what is written down
//! of operators themselves.

pub mod audit;
pub mod label;
pub mod log;
pub mod metric;

pub use metric::Metrics;
