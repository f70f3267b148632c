//! Ratings: results, leaderboards, import and export, reference values.

pub(crate) mod backtest_command;
pub(crate) mod import_export;
pub(crate) mod ratings;
pub(crate) mod vectors;
