//! Tests of passes: scenarios, explanations, and comparison with the reference implementation.

mod explain_reports;
pub(super) mod fixture;
mod oracle_comparison;
mod scenarios;
