//! Passes held against the obvious way, and what the documents say about them.

mod explain_reports;
pub(super) mod fixture;
mod oracle_comparison;
mod scenarios;
