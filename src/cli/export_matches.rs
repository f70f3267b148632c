//! `fireteam export-matches`: what was wanted of finished matches and what came of them, as lines of JSON or as CSV, for whoever
//! learns from it which rules matter (S1-98).

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::api::pb;
use crate::cli::operator_connection::{OperatorConnectionFlags, connect_to_operator_port};

/// Matches asked for at a time.
const PAGE_SIZE: u32 = 200;

/// What `export-matches` takes.
#[derive(Clone, Debug, Args)]
pub struct ExportMatchesFlags {
    /// Where to write; not there: standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// One JSON object a line, or one row a match with its sides in cells, `;` between sides and `+` between players, as `fireteam
    /// rate` reads them.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    pub format: Format,
    /// Only those of this matchmaking set.
    #[arg(long, value_name = "ID")]
    pub set: Option<u32>,
    /// Which server, and what to show it.
    #[command(flatten)]
    pub operator: OperatorConnectionFlags,
}

/// How matches are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines of JSON.
    Json,
    /// CSV with a head.
    Csv,
}

/// Exports all there is.
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
    let mut asking = connect_to_operator_port(&flags.operator).await?;
    let mut exported = 0;
    if flags.format == Format::Csv {
        write_csv_row(out, &CSV_COLUMNS.map(str::to_owned))?;
    }
    let mut request = pb::ExportMatchesRequest { page_token: Vec::new(), page_size: Some(PAGE_SIZE) };
    loop {
        let page = asking.export_matches(request.clone()).await.context("ask for finished matches")?;
        let wanted = |it: &&pb::FinishedMatch| flags.set.is_none_or(|set| set == it.matchmaking_set_id);
        for finished in page.matches.iter().filter(wanted) {
            exported += 1;
            match flags.format {
                Format::Json => writeln!(out, "{}", match_to_json(finished))?,
                Format::Csv => write_csv_row(out, &csv_cells(finished))?,
            }
        }
        if !page.has_more {
            out.flush()?;
            return Ok(exported);
        }
        request.page_token = page.next_page_token;
    }
}

/// The first four are what `fireteam rate` reads.
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

fn csv_cells(it: &pb::FinishedMatch) -> [String; 18] {
    let sides = |of: &dyn Fn(&pb::FinishedSide) -> String| it.sides.iter().map(of).collect::<Vec<_>>().join(";");
    let players =
        |side: &pb::FinishedSide| side.players.iter().map(|player| &*player.user_key).collect::<Vec<_>>().join("+");
    let parties = |of: &dyn Fn(&pb::FinishedParty) -> String| it.parties.iter().map(of).collect::<Vec<_>>().join(";");
    let or_nothing = |number: Option<String>| number.unwrap_or_default();
    [
        it.match_id.clone(),
        (it.reported_at_unix_ms / 1_000).to_string(),
        sides(&players),
        sides(&|side| side.rank.to_string()),
        it.matchmaking_set_id.to_string(),
        it.silo_id.to_string(),
        it.service_configuration_hash.to_string(),
        sides(&|side| or_nothing(side.win_probability.map(|chance| chance.to_string()))),
        it.quality.to_string(),
        it.rating_gap.to_string(),
        parties(&|party| party.waited_ms.to_string()),
        parties(&|party| or_nothing(party.round_trip_ms.map(|ms| ms.to_string()))),
        it.region.clone(),
        or_nothing(it.duration_ms.map(|ms| ms.to_string())),
        it.disconnected_user_keys.join("+"),
        unrated_reason_text(it).to_owned(),
        it.feedback_count.to_string(),
        or_nothing(it.mean_feedback.map(|score| score.to_string())),
    ]
}

fn unrated_reason_text(it: &pb::FinishedMatch) -> &'static str {
    match it.unrated() {
        pb::UnratedReason::Unspecified => "",
        pb::UnratedReason::NoRatingSystem => "no_system",
        pb::UnratedReason::OneSide => "one_side",
        pb::UnratedReason::Disconnected => "disconnected",
    }
}

fn write_csv_row(out: &mut dyn Write, cells: &[String]) -> anyhow::Result<()> {
    let mut row = csv::Writer::from_writer(Vec::new());
    row.write_record(cells)?;
    out.write_all(&row.into_inner().map_err(csv::IntoInnerError::into_error)?)?;
    Ok(())
}

fn match_to_json(it: &pb::FinishedMatch) -> Value {
    let value = |it: &Option<pb::RatingValue>| it.as_ref().map(|it| json!([it.rating, it.deviation]));
    let player = |it: &pb::FinishedPlayer| json!({ "user_key": it.user_key, "before": value(&it.before), "after": value(&it.after) });
    let side = |it: &pb::FinishedSide| {
        let players: Vec<Value> = it.players.iter().map(player).collect();
        json!({ "team": it.team, "rank": it.rank, "chance": it.win_probability, "players": players })
    };
    let party = |it: &pb::FinishedParty| json!({ "waited_ms": it.waited_ms, "round_trip_ms": it.round_trip_ms });
    json!({
        "match_id": it.match_id,
        "set": it.matchmaking_set_id,
        "silo": it.silo_id,
        "ruleset": it.service_configuration_hash,
        "began_at_unix_ms": it.started_at_unix_ms,
        "reported_at_unix_ms": it.reported_at_unix_ms,
        "duration_ms": it.duration_ms,
        "sides": it.sides.iter().map(side).collect::<Vec<_>>(),
        "quality": it.quality,
        "rating_gap": it.rating_gap,
        "parties": it.parties.iter().map(party).collect::<Vec<_>>(),
        "region": it.region,
        "disconnected": it.disconnected_user_keys,
        "unrated": unrated_reason_text(it),
        "scores": it.feedback_count,
        "mean_score": it.mean_feedback,
    })
}
