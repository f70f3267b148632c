//! `fireteam serve`: from flags to a running server, and from its end to an exit code.

use std::io::{self, Write};

use crate::cli::Exit;
use crate::config::raw::Flags;
use crate::config::{Config, LogFormat};
use crate::server;
use crate::store::StoreError;
use crate::telemetry::log;

/// Serves until told to stop. Everything that is wrong with the configuration is said before anything is opened.
pub(super) fn serve(flags: Flags) -> Exit {
    let print = flags.print_config;
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let config = match Config::load(flags, variables) {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("fireteam: {problem}"));
            return Exit::Misused;
        }
    };
    if let Err(why) = log::check_level(&config.log_level) {
        eprintln!("fireteam: {why}");
        return Exit::Misused;
    }
    if print {
        return print_config(&config);
    }
    if let Err(why) = log::init(config.log_format == LogFormat::Json, &config.log_level) {
        eprintln!("fireteam: {why}");
        return Exit::Failed;
    }
    match run(config) {
        Ok(()) => Exit::Well,
        Err(why) => {
            tracing::error!("{why:#}");
            exit_for(&why)
        }
    }
}

fn print_config(config: &Config) -> Exit {
    let printed = config.to_toml().map_err(io::Error::other).and_then(|text| io::stdout().write_all(text.as_bytes()));
    match printed {
        Ok(()) => Exit::Well,
        Err(why) => {
            eprintln!("fireteam: the configuration cannot be printed: {why}");
            Exit::Failed
        }
    }
}

fn run(config: Config) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(server::run(config))
}

/// A store that will not open is a matter for the operator, and restarting does not help.
fn exit_for(why: &anyhow::Error) -> Exit {
    match why.chain().find_map(|cause| cause.downcast_ref::<StoreError>()) {
        Some(StoreError::Locked(_) | StoreError::Corrupt { .. } | StoreError::Damaged(_) | StoreError::Version(_)) => {
            Exit::StoreRefused
        }
        Some(StoreError::Unavailable(_)) | None => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    /// R17: a store in use has an exit code of its own, however deep the error lies.
    #[test]
    fn the_exit_code_tells_a_refused_store_from_any_other_failure() {
        let check = |error: StoreError, expected| {
            let wrapped = Err::<(), _>(error).context("open store").context("serve").unwrap_err();
            assert_eq!(exit_for(&wrapped), expected);
        };
        check(StoreError::Locked("fireteam.db".into()), Exit::StoreRefused);
        check(StoreError::Corrupt { table: "t", column: "c", what: "w".into() }, Exit::StoreRefused);
        check(StoreError::Version("from the future".into()), Exit::StoreRefused);
        check(StoreError::Unavailable("gone".into()), Exit::Failed);
        assert_eq!(exit_for(&anyhow::anyhow!("something else")), Exit::Failed);
    }
}
