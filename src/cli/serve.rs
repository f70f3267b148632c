//! `fireteam serve`: starts a server from flags and converts its end to an exit status.

use std::io::{self, Write};
use std::time::Duration;

use crate::cli::ExitStatus;
use crate::cli::error_text::error_text;
use crate::clock::{Clock as _, SystemClock};
use crate::config::raw::ServeFlags;
use crate::config::{Config, LogFormat};
use crate::server::run;
use crate::store::StoreError;
use crate::telemetry::log;

/// Time for work on blocking threads to end after the shutdown.
const BLOCKING_WORK_GRACE: Duration = Duration::from_millis(500);

/// Runs the server until it is stopped. Reports all configuration errors before it opens any resource.
pub(super) fn serve(flags: ServeFlags) -> ExitStatus {
    let print_only = flags.print_config;
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let config = match Config::load(flags, variables) {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("fireteam: {problem}"));
            return ExitStatus::UsageError;
        }
    };
    if let Err(error) = log::check_level(&config.log_level) {
        eprintln!("fireteam: {error}");
        return ExitStatus::UsageError;
    }
    if print_only {
        return print_config(&config);
    }
    let log_bytes_max = u64::from(config.log_max_kib_per_minute) << 10;
    let clock = SystemClock::start();
    let is_json = config.log_format == LogFormat::Json;
    if let Err(error) = log::init_logging(is_json, &config.log_level, log_bytes_max, Box::new(move || clock.now())) {
        eprintln!("fireteam: {error}");
        return ExitStatus::Failed;
    }
    match run_server(config) {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            tracing::error!(error = error_text(&error), "server failed");
            exit_status_for(&error)
        }
    }
}

fn print_config(config: &Config) -> ExitStatus {
    let printed = config.to_toml().map_err(io::Error::other).and_then(|text| io::stdout().write_all(text.as_bytes()));
    match printed {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            eprintln!("fireteam: printing the configuration failed: {error}");
            ExitStatus::Failed
        }
    }
}

fn run_server(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(run::run_until_signal(config));
    // Work on a blocking thread, such as a pass, cannot be interrupted, and must not delay the exit.
    runtime.shutdown_timeout(BLOCKING_WORK_GRACE);
    result
}

/// Exit status for an error. A store that cannot be used needs the operator; a restart does not help.
pub(super) fn exit_status_for(error: &anyhow::Error) -> ExitStatus {
    match error.chain().find_map(|cause| cause.downcast_ref::<StoreError>()) {
        Some(
            StoreError::Locked(_)
            | StoreError::CorruptRow { .. }
            | StoreError::UnknownRow { .. }
            | StoreError::DamagedFile(_)
            | StoreError::Incompatible(_),
        ) => ExitStatus::StoreUnusable,
        Some(StoreError::Unavailable(_)) | None => ExitStatus::Failed,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    /// R17: a store in use has its own exit status, at any depth of the error chain.
    #[test]
    fn exit_code_separates_an_unusable_store_from_other_failures() {
        let check = |error: StoreError, expected| {
            let wrapped = Err::<(), _>(error).context("open store").context("serve").unwrap_err();
            assert_eq!(exit_status_for(&wrapped), expected);
        };
        check(StoreError::Locked("fireteam.db".into()), ExitStatus::StoreUnusable);
        check(StoreError::CorruptRow { table: "t", column: "c", reason: "w".into() }, ExitStatus::StoreUnusable);
        check(StoreError::Incompatible("from the future".into()), ExitStatus::StoreUnusable);
        check(StoreError::Unavailable("gone".into()), ExitStatus::Failed);
        assert_eq!(exit_status_for(&anyhow::anyhow!("something else")), ExitStatus::Failed);
    }
}
