//! `fireteam doctor`: checks configuration, files, store and clock before or beside a running server, and says what to mend. Changes
//! nothing.

mod file_checks;
mod finding;
mod store_checks;

use std::io::Write;
use std::path::Path;

use clap::{Args, ValueEnum};

use crate::cli::ExitStatus;
use crate::cli::doctor::finding::{Finding, Verdict};
use crate::clock::{Clock as _, SystemClock};
use crate::config::raw::ServeFlags;
use crate::config::{Config, StoreTarget};
use crate::store::erasure_log::read_erasures;
use crate::store::{postgres, sqlite};
use crate::telemetry::log;

/// Flags of `fireteam doctor`.
#[derive(Debug, Args)]
pub struct DoctorFlags {
    /// Format of the output.
    #[arg(long, value_enum, default_value = "text")]
    format: OutputFormat,
    #[command(flatten)]
    serve: ServeFlags,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    /// A line for each check, and its remedy.
    Text,
    /// A JSON array of objects with `check`, `verdict`, `found` and `remedy`.
    Json,
}

/// Runs all checks and prints them. Fails if one has failed, or if the output cannot be written.
pub(super) fn diagnose(flags: DoctorFlags, out: &mut dyn Write) -> ExitStatus {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let findings = match Config::load(flags.serve, variables) {
        Ok(config) => check_all(&config),
        Err(problems) => {
            let problem =
                |problem: crate::config::ConfigError| Finding::fail_with("configuration", &problem.to_string());
            problems.into_iter().map(problem).collect()
        }
    };
    let printed = match flags.format {
        OutputFormat::Text => finding::print_text(&findings, out),
        OutputFormat::Json => finding::print_json(&findings, out),
    };
    let has_failed = findings.iter().any(|finding| finding.verdict == Verdict::Fail);
    if printed.is_ok() && !has_failed { ExitStatus::Success } else { ExitStatus::Failed }
}

fn check_all(config: &Config) -> Vec<Finding> {
    let clock = SystemClock::start();
    let mut findings = vec![match log::check_level(&config.log_level) {
        Ok(()) => Finding::ok("configuration", "valid"),
        Err(error) => Finding::fail_with("configuration", &error.to_string()),
    }];
    findings.extend(file_checks::check_files(config, &clock));
    findings.push(check_erasure_log(config));
    match &config.store {
        StoreTarget::Memory => {
            let remedy = "name a file with --store sqlite:PATH, or a Postgres";
            findings.push(Finding::warn("store", "memory: all data is lost when the server stops", remedy));
        }
        StoreTarget::Sqlite(path) => findings.extend(check_sqlite(path)),
        StoreTarget::Postgres(url) => {
            let facts = block_on(postgres::diagnosis::inspect_database(&url.driver_url_with_password()));
            match facts {
                Ok(facts) => {
                    let host_ms = i64::try_from(clock.now().0).unwrap_or(i64::MAX);
                    findings.extend(store_checks::check_postgres(&facts, host_ms));
                }
                Err(error) => {
                    let remedy =
                        "check host, port, database, user and password; see docs/RUNBOOK.md#database-is-unreachable";
                    findings.push(Finding::fail("store", error.to_string(), remedy));
                }
            }
        }
    }
    findings.push(file_checks::check_clock_synchronization());
    findings
}

fn check_sqlite(path: &Path) -> Vec<Finding> {
    if !path.exists() {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let found = format!("{} does not exist", path.display());
        return vec![if folder.is_dir() {
            Finding::warn("store", found, "none for a new server, which creates it; otherwise name the right file")
        } else {
            Finding::fail("store", found, format!("create the folder {}, or name another file", folder.display()))
        }];
    }
    match block_on(sqlite::diagnosis::inspect_database(path)) {
        Ok(facts) => store_checks::check_sqlite(&facts),
        Err(error) => vec![Finding::fail_with("store", &error.to_string())],
    }
}

fn check_erasure_log(config: &Config) -> Finding {
    const CHECK: &str = "erasure log";
    let Some(path) = &config.erasure_log_file else {
        return match config.store {
            StoreTarget::Memory => Finding::ok(CHECK, "not needed: the store is memory"),
            _ => Finding::warn(
                CHECK,
                "none: a restored backup has users who were erased since",
                "set --erasure-log-file",
            ),
        };
    };
    match read_erasures(path) {
        Ok(Some(kept)) => Finding::ok(CHECK, format!("{}: {} erasures", path.display(), kept.erasures.len())),
        Ok(None) => Finding::ok(CHECK, format!("{}: the first start creates it", path.display())),
        Err(error) => Finding::fail_with(CHECK, &error.to_string()),
    }
}

fn block_on<T>(
    operation: impl Future<Output = Result<T, crate::store::StoreError>>,
) -> Result<T, crate::store::StoreError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| crate::store::StoreError::Unavailable(error.to_string()))?;
    runtime.block_on(operation)
}
