//! Metrics, logs and the audit log of operators. Clients cannot add metric series or lengthen log lines.

pub mod audit;
pub mod label;
pub mod log;
pub mod metric;

pub use metric::Metrics;
