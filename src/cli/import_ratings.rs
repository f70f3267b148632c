//! `fireteam import-ratings`: gives a set the ratings that a game has already, from a CSV file. Every row is imported or told of.

mod rows;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use tonic::Code;

use crate::api::asking::Asking;
use crate::api::pb;
use crate::cli::Exit;
use crate::cli::import_ratings::rows::{Row, Rows};
use crate::cli::operator::{OperatorFlags, connect};
use crate::domain::limit::RATINGS_BATCH_MAX;

/// How often a batch is sent that the server could not take just now, and how long it waits before each time.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(500);

/// What `import-ratings` takes.
#[derive(Clone, Debug, Args)]
pub struct ImportFlags {
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
    pub at: OperatorFlags,
}

/// What has become of the rows.
#[derive(Debug, Default)]
struct Tally {
    imported: u64,
    bad: u64,
    doubtful: u64,
}

/// Imports the file. Says on `out` how many rows were imported, and on standard error what is wrong with which.
pub(super) fn import_ratings(flags: &ImportFlags, out: &mut dyn Write) -> Exit {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(anyhow::Error::from);
    let mut tally = Tally::default();
    let done = runtime.and_then(|runtime| runtime.block_on(import(flags, &mut tally)));
    let Tally { imported, bad, doubtful } = tally;
    let told =
        writeln!(out, "{imported} imported, {doubtful} of them as one win and one loss, {bad} rows not imported");
    match done {
        Ok(()) if told.is_ok() && bad == 0 && doubtful == 0 => Exit::Well,
        Ok(()) => Exit::Failed,
        Err(why) => {
            eprintln!("fireteam: {why:#}");
            Exit::Failed
        }
    }
}

async fn import(flags: &ImportFlags, tally: &mut Tally) -> anyhow::Result<()> {
    let name = flags.file.display();
    let file = File::open(&flags.file).with_context(|| format!("open {name}"))?;
    let mut rows = Rows::of(BufReader::new(file), flags.percentile).with_context(|| format!("read {name}"))?;
    let mut asking = connect(&flags.at).await?;
    let progress = io::stderr().is_terminal();
    let mut batch: Vec<Row> = Vec::with_capacity(RATINGS_BATCH_MAX);
    loop {
        let next = rows.next();
        let last = next.is_none();
        match next {
            Some(Ok(row)) => {
                if let Some(why) = &row.doubt {
                    tally.doubtful += 1;
                    eprintln!("fireteam: {name}:{}: {why}; taken as one win and one loss", row.line);
                }
                batch.push(row);
            }
            Some(Err(bad)) => {
                tally.bad += 1;
                eprintln!("fireteam: {name}:{}: {}; not imported", bad.line, bad.why);
            }
            None => {}
        }
        if batch.len() == RATINGS_BATCH_MAX || (last && !batch.is_empty()) {
            let lines = batch.first().map_or(0, |row| row.line)..=batch.last().map_or(0, |row| row.line);
            let count = batch.len() as u64;
            if let Err(why) = send(&mut asking, flags.set, batch.drain(..)).await {
                let (first, last_line) = lines.into_inner();
                let rest = rows.count() as u64;
                tally.bad += count + rest;
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
async fn send(asking: &mut Asking, set: u32, batch: impl Iterator<Item = Row>) -> Result<(), String> {
    let ratings = batch.map(|row| pb::RatingRow {
        user_id: row.user_id,
        rating: Some(row.rating),
        deviation: row.deviation,
        volatility: None,
        matches: row.matches,
    });
    let request = pb::ImportRatingsRequest { matchmaking_set_id: Some(set), ratings: ratings.collect() };
    let mut tried = 0;
    loop {
        tried += 1;
        match asking.import_ratings(request.clone()).await {
            Ok(_) => return Ok(()),
            Err(status) if tried < TRIES && matches!(status.code(), Code::Unavailable | Code::ResourceExhausted) => {
                tokio::time::sleep(WAIT * tried).await;
            }
            Err(status) => return Err(format!("{:?}: {}", status.code(), status.message())),
        }
    }
}
