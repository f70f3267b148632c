//! What a replay came to, for people and for programs.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::cli::backtest::match_rows::RejectedMatchRow;
use crate::cli::backtest::prediction_tally::{CalibrationBin, PredictionTally, tally_predictions};
use crate::cli::backtest::replay::RatingReplay;
use crate::domain::rating::Skill;

/// Everything there is to say.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BacktestReport {
    file: String,
    system: &'static str,
    players: usize,
    /// Rows that were skipped; the first of them are in `bad_rows`.
    skipped: u64,
    bad_rows: Vec<RejectedMatchRow>,
    /// Matches that are older than one before them.
    unordered: u64,
    all: PredictionTally,
    second_half: PredictionTally,
    leaderboard: Vec<LeaderboardRow>,
}

/// One place of the leaderboard, as it stands after the last match.
#[derive(Clone, Debug, Serialize)]
struct LeaderboardRow {
    place: usize,
    player: String,
    score: f64,
    rating: f64,
    deviation: f64,
    low: f64,
    high: f64,
    matches: u32,
    provisional: bool,
}

/// The report of a replay, with the best `top` players.
pub(super) fn build_report(
    file: &Path,
    replay: RatingReplay,
    top: usize,
    skipped: u64,
    bad_rows: Vec<RejectedMatchRow>,
) -> BacktestReport {
    let RatingReplay {
        rating_spec: spec,
        skills_by_player: skills,
        predictions: judged,
        latest_match_at: latest,
        out_of_order_matches: unordered,
        set_activity: played,
        ..
    } = replay;
    let players = skills.len();
    let stands = |(name, skill)| (name, spec.skill_at_with_activity(skill, latest, played));
    let mut order: Vec<(String, Skill)> = skills.into_iter().map(stands).collect();
    order.sort_unstable_by(|one, other| {
        spec.conservative_rating(other.1.estimate)
            .total_cmp(&spec.conservative_rating(one.1.estimate))
            .then_with(|| one.0.cmp(&other.0))
    });
    let place = |(place, (player, skill)): (usize, (String, Skill))| {
        let (low, high) = spec.confidence_interval_95(skill.estimate);
        LeaderboardRow {
            place: place + 1,
            player,
            score: spec.conservative_rating(skill.estimate),
            rating: skill.estimate.rating,
            deviation: skill.estimate.deviation,
            low,
            high,
            matches: skill.match_count,
            provisional: spec.is_provisional(&skill),
        }
    };
    BacktestReport {
        file: file.display().to_string(),
        system: spec.system.as_str(),
        players,
        skipped,
        bad_rows,
        unordered,
        all: tally_predictions(&judged),
        second_half: tally_predictions(&judged[judged.len() / 2..]),
        leaderboard: order.into_iter().take(top).enumerate().map(place).collect(),
    }
}

impl BacktestReport {
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        writeln!(out)
    }

    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { file, system, players, skipped, unordered, all, second_half, .. } = self;
        writeln!(out, "{file} by {system}: {} matches of {players} players", all.matches)?;
        if *skipped != 0 {
            writeln!(out, "{skipped} rows were wrong and skipped")?;
        }
        if *unordered != 0 {
            writeln!(out, "{unordered} matches are older than one before them; played in the file's order")?;
        }
        writeln!(out, "\n{:<12}{:>9}{:>10}{:>9}{:>10}", "", "matches", "log-loss", "Brier", "accuracy")?;
        for (name, tally) in [("all", all), ("second half", second_half)] {
            let PredictionTally { matches, log_loss, brier, accuracy, .. } = tally;
            writeln!(out, "{name:<12}{matches:>9}{log_loss:>10.4}{brier:>9.4}{:>10}", format_percent(*accuracy))?;
        }
        writeln!(out, "\nof sides that were given a chance, so many won")?;
        writeln!(
            out,
            "{:<12}{:>9}{:>10}{:>9} |{:>9}{:>10}{:>9}",
            "", "all", "given", "won", "2nd half", "given", "won"
        )?;
        for (one, other) in all.calibration.iter().zip(&second_half.calibration) {
            let name = format!("{:.0} - {:.0} %", 100.0 * one.from, 100.0 * one.to);
            writeln!(out, "{name:<12}{} |{}", format_bin(one), format_bin(other))?;
        }
        self.write_leaderboard(out)
    }

    fn write_leaderboard(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.leaderboard.is_empty() {
            return Ok(());
        }
        let heads = ["score", "rating", "deviation", "95 % from", "to", "matches"];
        let [score, rating, deviation, low, high, matches] = heads;
        writeln!(
            out,
            "\n{:>5} {score:>10}{rating:>10}{deviation:>10}{low:>10}{high:>10}{matches:>9}  player",
            "place"
        )?;
        for LeaderboardRow { place, player, score, rating, deviation, low, high, matches, provisional } in
            &self.leaderboard
        {
            let note = if *provisional { " (provisional)" } else { "" };
            writeln!(
                out,
                "{place:>5} {score:>10.2}{rating:>10.2}{deviation:>10.2}{low:>10.2}{high:>10.2}{matches:>9}  {player}{note}"
            )?;
        }
        Ok(())
    }
}

fn format_bin(bin: &CalibrationBin) -> String {
    format!("{:>9}{:>10}{:>9}", bin.matches, format_percent(bin.predicted), format_percent(bin.came))
}

fn format_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}
