//! `fireteam import-ratings`: gives a set the ratings that a game has already, from a CSV file. Every row is imported or told of.

mod rows;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tonic::Code;

use crate::api::asking::OperatorClient;
use crate::api::pb;
use crate::cli::ExitStatus;
use crate::cli::import_ratings::rows::{ImportRow, ImportRows};
use crate::cli::operator_connection::{OperatorConnectionFlags, connect_to_operator_port};
use crate::domain::limit::RATINGS_PER_TRANSACTION_MAX;

/// How often a batch is sent that the server could not take just now, and how long it waits before each time.
const SEND_ATTEMPTS_MAX: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// What `import-ratings` takes.
#[derive(Clone, Debug, Args)]
pub struct ImportRatingsFlags {
    /// CSV with the columns user_id, rating and, if there is one, deviation; or with --percentile user_id, wins and losses.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The matchmaking set whose ratings these are.
    #[arg(long, value_name = "ID")]
    pub set: u32,
    /// The rating is the share of wins, taken as a percentile among the players of a large federation: 0 to 2800. A record that
    /// cannot be counts as one win and one loss, and is told of.
    #[arg(long)]
    pub percentile: bool,
    /// Which server, and what to show it.
    #[command(flatten)]
    pub operator: OperatorConnectionFlags,
}

/// What has become of the rows.
#[derive(Debug, Default)]
struct ImportTally {
    imported: u64,
    rejected: u64,
    replaced: u64,
}

/// Imports the file. Says on `out` how many rows were imported, and on standard error what is wrong with which.
pub(super) fn import_ratings(flags: &ImportRatingsFlags, out: &mut dyn Write) -> ExitStatus {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from);
    let mut tally = ImportTally::default();
    let done = runtime.and_then(|runtime| runtime.block_on(import_file(flags, &mut tally)));
    let ImportTally { imported, rejected: bad, replaced: doubtful } = tally;
    let told =
        writeln!(out, "{imported} imported, {doubtful} of them as one win and one loss, {bad} rows not imported");
    match done {
        Ok(()) if told.is_ok() && bad == 0 && doubtful == 0 => ExitStatus::Success,
        Ok(()) => ExitStatus::Failed,
        Err(why) => {
            eprintln!("fireteam: {why:#}");
            ExitStatus::Failed
        }
    }
}

async fn import_file(flags: &ImportRatingsFlags, tally: &mut ImportTally) -> anyhow::Result<()> {
    let name = flags.file.display();
    let file = File::open(&flags.file).with_context(|| format!("open {name}"))?;
    let mut rows = ImportRows::open(BufReader::new(file), flags.percentile).with_context(|| format!("read {name}"))?;
    let mut asking = connect_to_operator_port(&flags.operator).await?;
    let progress = io::stderr().is_terminal();
    let mut batch: Vec<ImportRow> = Vec::with_capacity(RATINGS_PER_TRANSACTION_MAX);
    loop {
        let next = rows.next();
        let last = next.is_none();
        match next {
            Some(Ok(row)) => {
                if let Some(why) = &row.replacement_reason {
                    tally.replaced += 1;
                    eprintln!("fireteam: {name}:{}: {why}; taken as one win and one loss", row.line);
                }
                batch.push(row);
            }
            Some(Err(bad)) => {
                tally.rejected += 1;
                eprintln!("fireteam: {name}:{}: {}; not imported", bad.line, bad.reason);
            }
            None => {}
        }
        if batch.len() == RATINGS_PER_TRANSACTION_MAX || (last && !batch.is_empty()) {
            let lines = batch.first().map_or(0, |row| row.line)..=batch.last().map_or(0, |row| row.line);
            let count = batch.len() as u64;
            if let Err(why) = send_batch(&mut asking, flags.set, batch.drain(..)).await {
                let (first, last_line) = lines.into_inner();
                let rest = rows.count() as u64;
                tally.rejected += count + rest;
                anyhow::bail!(
                    "{name}:{first}-{last_line}: {why}; {count} rows not imported, nor the {rest} after them"
                );
            }
            tally.imported += count;
            if progress {
                eprint!("\r{} imported", tally.imported);
            }
        }
        if last {
            break;
        }
    }
    if progress {
        eprintln!();
    }
    Ok(())
}

/// Sends one batch, again if the server is out of reach for a moment: the same ratings twice are the same.
async fn send_batch(
    asking: &mut OperatorClient,
    set: u32,
    batch: impl Iterator<Item = ImportRow>,
) -> Result<(), String> {
    let ratings = batch.map(|row| pb::RatingRow {
        user_id: row.user_id,
        rating: Some(row.rating),
        deviation: row.deviation,
        volatility: None,
        matches: row.match_count,
    });
    let request = pb::ImportRatingsRequest { matchmaking_set_id: Some(set), ratings: ratings.collect() };
    let mut tried = 0;
    loop {
        tried += 1;
        match asking.import_ratings(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(status)
                if tried < SEND_ATTEMPTS_MAX
                    && matches!(status.code(), Code::Unavailable | Code::ResourceExhausted) =>
            {
                tokio::time::sleep(RETRY_DELAY * tried).await;
            }
            Err(status) => return Err(format!("{:?}: {}", status.code(), status.message())),
        }
    }
}
