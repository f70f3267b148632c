//! Metrics, logs and the audit log of operators. Clients cannot add metric series, lengthen log lines or fill a disk.

pub mod audit;
mod audit_file;
pub mod event_sampler;
pub mod label;
pub mod log;
mod log_budget;
pub mod metric;
pub mod trace;

pub use metric::Metrics;
