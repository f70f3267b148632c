//! The command line: what was asked for, and which exit code says how it went.

pub mod backtest;
pub mod check;
pub mod export_matches;
pub mod health;
pub mod import_ratings;
pub mod keygen;
pub mod operator_connection;
pub mod serve;
pub mod simulate;
pub mod token;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::clock::{Clock as _, SystemClock};
use crate::config::raw::ServeFlags;

/// How a command went, as the system is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// 0: all is well.
    Success = 0,
    /// 1: it failed, or `check` found problems, or `health` found no health.
    Failed = 1,
    /// 2: the command line or the configuration is wrong; nothing was started.
    UsageError = 2,
    /// 3: the store is held by another server, damaged, or of an unknown version.
    StoreUnusable = 3,
}

/// A server-side matchmaker: clients advertise sessions and search for them; designers swap the rules while it runs.
#[derive(Debug, Parser)]
#[command(
    name = "fireteam",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Exit codes: 0 well; 1 failed, problems found or not healthy; 2 wrong usage or configuration; \
                  3 the store is in use, damaged or of an unknown version."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: ServeFlags,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve. The same as no command at all.
    Serve(Box<ServeFlags>),
    /// Check ruleset files and directories, and show every problem.
    Check {
        /// Files and directories.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Ask a running server whether it serves.
    Health {
        /// Where it listens.
        #[arg(long, env = "FIRETEAM_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:50051")]
        address: SocketAddr,
        /// Certificates that sign the server's own, PEM; ask over TLS [default: plaintext].
        #[arg(long, value_name = "FILE")]
        ca: Option<PathBuf>,
        /// The name in the server's certificate [default: the address].
        #[arg(long, value_name = "NAME", requires = "ca")]
        server_name: Option<String>,
    },
    /// Make the key that signs callers' tokens: a private key, its public half, and that as a key set.
    Keygen {
        /// A directory, or what the files' names begin with.
        #[arg(long, value_name = "PATH")]
        out: PathBuf,
    },
    /// Give a set the ratings that a game has already, from a CSV file, through a running server's operator port.
    ImportRatings(Box<import_ratings::ImportRatingsFlags>),
    /// Write down what was wanted of finished matches and what came of them, from a running server's operator port.
    ExportMatches(Box<export_matches::ExportMatchesFlags>),
    /// Replay a file of matches through a rating system, and say how well it predicts and who is best.
    Rate(backtest::BacktestFlags),
    /// Play a population through a ruleset in invented time, and show what it is like.
    Simulate(Box<simulate::SimulateFlags>),
    /// Sign a token, for operators and for trying things out, and print it.
    Token(Box<token::TokenFlags>),
}

/// Does what the process's command line says.
pub fn run() -> ExitCode {
    // Prints help and usage errors itself; the latter end with code 2.
    let cli = Cli::parse();
    let exit = match cli.command {
        None => serve::serve(cli.serve),
        Some(Command::Serve(flags)) => serve::serve(*flags),
        Some(Command::Check { paths }) => {
            let mut out = io::stdout().lock();
            let good = check::check_rulesets(&paths, &mut out) && out.flush().is_ok();
            if good { ExitStatus::Success } else { ExitStatus::Failed }
        }
        Some(Command::Health { address, ca, server_name }) => health::check_health(address, ca, server_name),
        Some(Command::Keygen { out }) => {
            report_result(keygen::generate_issuing_key(&out, &SystemClock::start(), &mut io::stdout().lock()))
        }
        Some(Command::ImportRatings(flags)) => import_ratings::import_ratings(&flags, &mut io::stdout().lock()),
        Some(Command::ExportMatches(flags)) => report_result(export_matches::export_matches(&flags)),
        Some(Command::Rate(flags)) => report_result(backtest::backtest(&flags, &mut io::stdout().lock())),
        Some(Command::Simulate(flags)) => simulate::simulate(&flags),
        Some(Command::Token(flags)) => {
            let token = token::sign_token(*flags, SystemClock::start().now());
            report_result(token.and_then(|token| Ok(writeln!(io::stdout().lock(), "{token}")?)))
        }
    };
    ExitCode::from(exit as u8)
}

/// Says why a command failed.
fn report_result(outcome: anyhow::Result<()>) -> ExitStatus {
    match outcome {
        Ok(()) => ExitStatus::Success,
        Err(why) => {
            eprintln!("fireteam: {why:#}");
            ExitStatus::Failed
        }
    }
}
