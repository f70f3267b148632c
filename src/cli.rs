//! Command line: subcommands and the exit status of each.

pub mod backtest;
pub mod backup;
pub mod beacon;
pub mod check;
pub mod doctor;
mod error_text;
pub mod export_matches;
pub mod health;
pub mod import_ratings;
pub mod keygen;
pub mod operator_client;
pub mod serve;
pub mod simulate;
pub mod token;
mod unary_client;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::cli::error_text::error_text;
use crate::clock::{Clock as _, SystemClock};
use crate::config::raw::ServeFlags;
use crate::config::{ListenAddress, hide_words_that_may_be_urls};

/// Exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// 0: success.
    Success = 0,
    /// 1: failed; also if `check` found problems or `health` found the server not serving.
    Failed = 1,
    /// 2: invalid command line or configuration; nothing was started.
    UsageError = 2,
    /// 3: the store is in use by another server, damaged, or of an unknown version.
    StoreUnusable = 3,
}

/// Matchmaking server: advertised sessions, search, queues and ratings, with rulesets that reload at runtime.
#[derive(Debug, Parser)]
#[command(
    name = "fireteam",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 success; 1 failure, problems found or not serving; 2 invalid usage or configuration; \
                  3 store in use, damaged or of an unknown version."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server; the default without a subcommand.
    Serve(Box<ServeFlags>),
    /// Validate ruleset files and directories, and print every problem.
    Check {
        /// Ruleset files and directories; at least one.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        #[command(flatten)]
        options: check::CheckOptions,
    },
    /// Check that a running server is serving; exit status 1 if it is not.
    Health {
        /// Address of the server's client port.
        #[arg(long, env = "FIRETEAM_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
        address: ListenAddress,
        /// CA certificates for verifying the server's certificate, PEM file; enables TLS [default: plaintext].
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// Expected name in the server's certificate [default: the address].
        #[arg(long, value_name = "NAME", requires = "ca")]
        server_name: Option<String>,
    },
    /// Copy the database and key files of a server with a SQLite store, while it runs.
    #[command(mut_args(backup::hide_unused_settings))]
    Backup(Box<backup::BackupFlags>),
    /// Put a backup in the place of a SQLite store that no server uses.
    #[command(mut_args(backup::hide_unused_settings))]
    Restore(Box<backup::RestoreFlags>),
    /// Check configuration, files, store and clock, and say what to mend; changes nothing.
    Doctor(Box<doctor::DoctorFlags>),
    /// Generate a key pair for signing callers' tokens: private key, public key and JWKS.
    Keygen {
        /// Directory for the files, or prefix of their names.
        #[arg(long, value_name = "PATH")]
        out: PathBuf,
    },
    /// Import existing ratings of a set from a CSV file, through a running server's operator port.
    ImportRatings(Box<import_ratings::ImportRatingsFlags>),
    /// Export finished matches with predictions and results, from a running server's operator port.
    ExportMatches(Box<export_matches::ExportMatchesFlags>),
    /// Backtest a rating system on a file of matches: prediction quality and leaderboard.
    Backtest(backtest::BacktestFlags),
    /// Run a beacon: measures round trips to players, and announces itself to a server.
    Beacon(Box<beacon::BeaconFlags>),
    /// Write the key of one beacon, from the fleet key of the servers.
    BeaconKey(beacon::BeaconKeyCommandFlags),
    /// Simulate a queue with a generated population, and print its statistics.
    Simulate(Box<simulate::SimulateFlags>),
    /// Sign and print a token, for operators and for testing.
    Token(Box<token::TokenFlags>),
}

/// Runs the subcommand of the process's command line.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_usage(&error),
    };
    let status = match cli.command {
        None => serve::serve(cli.serve),
        Some(Command::Serve(flags)) => serve::serve(*flags),
        Some(Command::Check { paths, options }) => {
            let mut out = io::stdout().lock();
            let succeeded = check::check_rulesets_with(&paths, options, &mut out) && out.flush().is_ok();
            if succeeded { ExitStatus::Success } else { ExitStatus::Failed }
        }
        Some(Command::Health { address, ca, server_name }) => health::check_health(&address, ca, server_name),
        Some(Command::Backup(flags)) => backup::back_up(*flags, &mut io::stdout().lock()),
        Some(Command::Restore(flags)) => backup::restore(*flags, &mut io::stdout().lock()),
        Some(Command::Doctor(flags)) => doctor::diagnose(*flags, &mut io::stdout().lock()),
        Some(Command::Keygen { out }) => {
            report_result(keygen::generate_issuing_key(&out, &SystemClock::start(), &mut io::stdout().lock()))
        }
        Some(Command::ImportRatings(flags)) => import_ratings::import_ratings(&flags, &mut io::stdout().lock()),
        Some(Command::ExportMatches(flags)) => report_result(export_matches::export_matches(&flags)),
        Some(Command::Backtest(flags)) => report_result(backtest::backtest(&flags, &mut io::stdout().lock())),
        Some(Command::Beacon(flags)) => report_result(beacon::run_beacon(&flags)),
        Some(Command::BeaconKey(flags)) => report_result(beacon::write_beacon_key(&flags, &mut io::stdout().lock())),
        Some(Command::Simulate(flags)) => simulate::simulate(&flags),
        Some(Command::Token(flags)) => {
            let token = token::sign_token(*flags, SystemClock::start().now());
            report_result(token.and_then(|token| Ok(writeln!(io::stdout().lock(), "{token}")?)))
        }
    };
    ExitCode::from(status as u8)
}

/// Prints help and usage errors, which exit with status 2. An error that quotes a URL does so without its password.
fn print_usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.exit();
    }
    eprint!("{}", hide_words_that_may_be_urls(&error.to_string()));
    ExitCode::from(ExitStatus::UsageError as u8)
}

/// Prints the error of a failed command.
fn report_result(result: anyhow::Result<()>) -> ExitStatus {
    match result {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            eprintln!("fireteam: {}", error_text(&error));
            ExitStatus::Failed
        }
    }
}
