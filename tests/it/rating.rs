//! Ratings: results, leaderboards, import and export, reference values.

pub(crate) mod access;
pub(crate) mod backtest_command;
pub(crate) mod categories;
pub(crate) mod conservative_matching;
pub(crate) mod import_export;
pub(crate) mod predictions;
pub(crate) mod rating_defaults;
pub(crate) mod results_and_leaderboards;
pub(crate) mod scale_changes;
pub(crate) mod searches;
pub(crate) mod side_reports;
pub(crate) mod vector_files;
pub(crate) mod vectors;
pub(crate) mod wider_limits;
