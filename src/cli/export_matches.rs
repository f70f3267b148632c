//! `fireteam export-matches`: exports predictions and results of finished matches as JSON lines or CSV, for learning
//! which rules matter.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::api::pb;
use crate::cli::operator_client::{OperatorConnectionFlags, connect_to_operator_port};

/// Number of matches per request.
const PAGE_SIZE: u32 = 200;

/// Flags of `export-matches`.
#[derive(Clone, Debug, Args)]
pub struct ExportMatchesFlags {
    /// File to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Output format: one JSON object per line, or one CSV row per match, as `fireteam backtest` reads it.
    #[arg(long, value_enum, default_value_t = ExportFormat::Json)]
    pub format: ExportFormat,
    /// Matchmaking set to export [default: all].
    #[arg(long, value_name = "ID")]
    pub set: Option<u32>,
    /// Connection to the server.
    #[command(flatten)]
    pub operator: OperatorConnectionFlags,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One JSON object per line.
    Json,
    /// CSV with a header; sides are separated by `;` and players by `+`.
    Csv,
}

/// Exports all finished matches.
pub(super) fn export_matches(flags: &ExportMatchesFlags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exported = match &flags.out {
        None => runtime.block_on(write_matches(flags, &mut BufWriter::new(io::stdout().lock())))?,
        Some(path) => {
            let file = std::fs::File::create(path).with_context(|| format!("create {}", path.display()))?;
            runtime.block_on(write_matches(flags, &mut BufWriter::new(file)))?
        }
    };
    eprintln!("{exported} matches exported");
    Ok(())
}

async fn write_matches(flags: &ExportMatchesFlags, out: &mut dyn Write) -> anyhow::Result<u64> {
    let mut client = connect_to_operator_port(&flags.operator).await?;
    let mut exported = 0;
    if flags.format == ExportFormat::Csv {
        write_csv_row(out, &CSV_COLUMNS.map(str::to_owned))?;
    }
    let mut request = pb::ExportMatchesRequest { page_token: Vec::new(), page_size: Some(PAGE_SIZE) };
    loop {
        let page = client.export_matches(request.clone()).await.context("request finished matches")?;
        let is_selected =
            |finished_match: &&pb::FinishedMatch| flags.set.is_none_or(|set| set == finished_match.matchmaking_set_id);
        for finished_match in page.matches.iter().filter(is_selected) {
            exported += 1;
            match flags.format {
                ExportFormat::Json => writeln!(out, "{}", match_to_json(finished_match))?,
                ExportFormat::Csv => write_csv_row(out, &csv_cells(finished_match))?,
            }
        }
        if !page.has_more {
            out.flush()?;
            return Ok(exported);
        }
        request.page_token = page.next_page_token;
    }
}

/// CSV columns. The first four are those that `fireteam backtest` reads.
const CSV_COLUMNS: [&str; 18] = [
    "match_id",
    "time",
    "teams",
    "ranks",
    "set",
    "silo",
    "ruleset",
    "chances",
    "quality",
    "rating_gap",
    "waits_ms",
    "round_trips_ms",
    "region",
    "duration_ms",
    "disconnected",
    "unrated",
    "scores",
    "mean_score",
];

fn csv_cells(finished: &pb::FinishedMatch) -> [String; 18] {
    let sides = |of: &dyn Fn(&pb::FinishedSide) -> String| finished.sides.iter().map(of).collect::<Vec<_>>().join(";");
    let players =
        |side: &pb::FinishedSide| side.players.iter().map(|player| &*player.user_key).collect::<Vec<_>>().join("+");
    let parties =
        |of: &dyn Fn(&pb::FinishedParty) -> String| finished.parties.iter().map(of).collect::<Vec<_>>().join(";");
    let or_empty = |number: Option<String>| number.unwrap_or_default();
    [
        finished.match_id.clone(),
        (finished.reported_at_unix_ms / 1_000).to_string(),
        sides(&players),
        sides(&|side| side.rank.to_string()),
        finished.matchmaking_set_id.to_string(),
        finished.silo_id.to_string(),
        finished.service_configuration_hash.to_string(),
        sides(&|side| or_empty(side.win_probability.map(|probability| probability.to_string()))),
        finished.quality.to_string(),
        finished.rating_gap.to_string(),
        parties(&|party| party.waited_ms.to_string()),
        parties(&|party| or_empty(party.round_trip_ms.map(|ms| ms.to_string()))),
        finished.region.clone(),
        or_empty(finished.duration_ms.map(|ms| ms.to_string())),
        finished.disconnected_user_keys.join("+"),
        unrated_reason_text(finished).to_owned(),
        finished.feedback_count.to_string(),
        or_empty(finished.mean_feedback.map(|feedback| feedback.to_string())),
    ]
}

fn unrated_reason_text(finished: &pb::FinishedMatch) -> &'static str {
    match finished.unrated() {
        pb::UnratedReason::Unspecified => "",
        pb::UnratedReason::NoRatingSystem => "no_system",
        pb::UnratedReason::OneSide => "one_side",
        pb::UnratedReason::Disconnected => "disconnected",
        pb::UnratedReason::Disputed => "disputed",
    }
}

fn write_csv_row(out: &mut dyn Write, cells: &[String]) -> anyhow::Result<()> {
    let mut row = csv::Writer::from_writer(Vec::new());
    row.write_record(cells)?;
    out.write_all(&row.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
    Ok(())
}

fn match_to_json(finished: &pb::FinishedMatch) -> Value {
    let value =
        |rating: &Option<pb::RatingValue>| rating.as_ref().map(|rating| json!([rating.rating, rating.deviation]));
    let player = |player: &pb::FinishedPlayer| json!({ "user_key": player.user_key, "before": value(&player.before), "after": value(&player.after) });
    let side = |side: &pb::FinishedSide| {
        let players: Vec<Value> = side.players.iter().map(player).collect();
        json!({ "team": side.team, "rank": side.rank, "chance": side.win_probability, "players": players })
    };
    let party =
        |party: &pb::FinishedParty| json!({ "waited_ms": party.waited_ms, "round_trip_ms": party.round_trip_ms });
    json!({
        "match_id": finished.match_id,
        "set": finished.matchmaking_set_id,
        "silo": finished.silo_id,
        "ruleset": finished.service_configuration_hash,
        "began_at_unix_ms": finished.started_at_unix_ms,
        "reported_at_unix_ms": finished.reported_at_unix_ms,
        "duration_ms": finished.duration_ms,
        "sides": finished.sides.iter().map(side).collect::<Vec<_>>(),
        "quality": finished.quality,
        "rating_gap": finished.rating_gap,
        "parties": finished.parties.iter().map(party).collect::<Vec<_>>(),
        "region": finished.region,
        "disconnected": finished.disconnected_user_keys,
        "unrated": unrated_reason_text(finished),
        "scores": finished.feedback_count,
        "mean_score": finished.mean_feedback,
    })
}
