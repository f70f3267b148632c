//! `fireteam import-ratings`: imports existing ratings of a set from a CSV file. Each row is imported or reported.

mod rows;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tonic::Code;

use crate::api::pb;
use crate::cli::ExitStatus;
use crate::cli::error_text::error_text;
use crate::cli::import_ratings::rows::{ImportRow, ImportRows};
use crate::cli::operator_client::{OperatorClient, OperatorConnectionFlags, connect_to_operator_port};
use crate::domain::limit::RATINGS_PER_TRANSACTION_MAX;

/// Maximum attempts to send a batch while the server is unavailable; the delay before the n-th retry is n times
/// `RETRY_DELAY`.
const SEND_ATTEMPTS_MAX: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Flags of `import-ratings`.
#[derive(Clone, Debug, Args)]
pub struct ImportRatingsFlags {
    /// CSV file with the columns user_id, rating and optionally deviation; with --percentile user_id, wins and losses.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Matchmaking set of the ratings.
    #[arg(long, value_name = "ID")]
    pub set: u32,
    /// Compute ratings, 0 to 2800, from the share of wins as a percentile; impossible records count as one win and one
    /// loss.
    #[arg(long = "percentile")]
    pub ratings_from_wins_and_losses: bool,
    /// Connection to the server.
    #[command(flatten)]
    pub operator: OperatorConnectionFlags,
}

/// Row counts of an import.
#[derive(Debug, Default)]
struct ImportTally {
    imported: u64,
    rejected: u64,
    impossible_records: u64,
}

/// Imports the file. Prints the number of imported rows to `out`, and each rejected or replaced row to standard error.
pub(super) fn import_ratings(flags: &ImportRatingsFlags, out: &mut dyn Write) -> ExitStatus {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from);
    let mut tally = ImportTally::default();
    let result = runtime.and_then(|runtime| runtime.block_on(import_file(flags, &mut tally)));
    let ImportTally { imported, rejected, impossible_records: replaced } = tally;
    let printed =
        writeln!(out, "{imported} imported, {replaced} of them as one win and one loss, {rejected} rows not imported");
    match result {
        Ok(()) if printed.is_ok() && rejected == 0 && replaced == 0 => ExitStatus::Success,
        Ok(()) => ExitStatus::Failed,
        Err(error) => {
            eprintln!("fireteam: {}", error_text(&error));
            ExitStatus::Failed
        }
    }
}

async fn import_file(flags: &ImportRatingsFlags, tally: &mut ImportTally) -> anyhow::Result<()> {
    let name = flags.file.display();
    let file = File::open(&flags.file).with_context(|| format!("open {name}"))?;
    let mut rows = ImportRows::open(BufReader::new(file), flags.ratings_from_wins_and_losses)
        .with_context(|| format!("read {name}"))?;
    let mut client = connect_to_operator_port(&flags.operator).await?;
    let progress = io::stderr().is_terminal();
    let mut batch: Vec<ImportRow> = Vec::with_capacity(RATINGS_PER_TRANSACTION_MAX);
    loop {
        let next = rows.next();
        let is_last = next.is_none();
        match next {
            Some(Ok(row)) => {
                if let Some(reason) = &row.replacement_reason {
                    tally.impossible_records += 1;
                    eprintln!("fireteam: {name}:{}: {reason}; taken as one win and one loss", row.line);
                }
                batch.push(row);
            }
            Some(Err(rejected_row)) => {
                tally.rejected += 1;
                eprintln!("fireteam: {name}:{}: {}; not imported", rejected_row.line, rejected_row.reason);
            }
            None => {}
        }
        if batch.len() == RATINGS_PER_TRANSACTION_MAX || (is_last && !batch.is_empty()) {
            let lines = batch.first().map_or(0, |row| row.line)..=batch.last().map_or(0, |row| row.line);
            let count = batch.len() as u64;
            if let Err(reason) = send_batch(&mut client, flags.set, batch.drain(..)).await {
                let (first, last_row_line) = lines.into_inner();
                let remaining = rows.count() as u64;
                tally.rejected += count + remaining;
                anyhow::bail!(
                    "{name}:{first}-{last_row_line}: {reason}; {count} rows not imported, nor the {remaining} after them"
                );
            }
            tally.imported += count;
            if progress {
                eprint!("\r{} imported", tally.imported);
            }
        }
        if is_last {
            break;
        }
    }
    if progress {
        eprintln!();
    }
    Ok(())
}

/// Sends one batch, with retries while the server is unavailable. A repeated import of the same ratings changes
/// nothing.
async fn send_batch(
    client: &mut OperatorClient,
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
    let mut attempts = 0;
    loop {
        attempts += 1;
        match client.import_ratings(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(status)
                if attempts < SEND_ATTEMPTS_MAX
                    && matches!(status.code(), Code::Unavailable | Code::ResourceExhausted) =>
            {
                tokio::time::sleep(RETRY_DELAY * attempts).await;
            }
            Err(status) => return Err(format!("{:?}: {}", status.code(), status.message())),
        }
    }
}
