//! Ratings: results, leaderboards, import and export, reference values.

pub(crate) mod access;
pub(crate) mod backtest_command;
pub(crate) mod import_export;
pub(crate) mod results_and_leaderboards;
pub(crate) mod scale_changes;
pub(crate) mod searches;
pub(crate) mod side_reports;
pub(crate) mod vectors;
