//! Report of a backtest, as text and as JSON.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::cli::backtest::fit::FitReport;
use crate::cli::backtest::match_rows::RejectedMatchRow;
use crate::cli::backtest::prediction_tally::{CalibrationBin, PredictionTally, summarize_predictions};
use crate::cli::backtest::replay::RatingReplay;
use crate::domain::rating::Skill;

/// Report of a backtest.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BacktestReport {
    file: String,
    system: &'static str,
    players: usize,
    /// Number of rejected rows; the first ones are in `bad_rows`.
    skipped: u64,
    bad_rows: Vec<RejectedMatchRow>,
    /// Number of matches that are older than one before them.
    unordered: u64,
    all: PredictionTally,
    second_half: PredictionTally,
    /// With --fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    fit: Option<FitReport>,
    leaderboard: Vec<LeaderboardRow>,
}

/// Row of the leaderboard after the last match.
#[derive(Clone, Debug, Serialize)]
struct LeaderboardRow {
    place: usize,
    player: String,
    score: f64,
    rating: f64,
    deviation: f64,
    interval_95_low: f64,
    interval_95_high: f64,
    matches: u32,
    provisional: bool,
}

/// Report of a replay, with the best `top` players. With `fit`, the replay is by the chosen constants.
pub(super) fn build_report(
    file: &Path,
    replay: RatingReplay,
    fit: Option<FitReport>,
    top: usize,
    skipped: u64,
    bad_rows: Vec<RejectedMatchRow>,
) -> BacktestReport {
    let RatingReplay {
        rating_spec,
        skills_by_player,
        predictions,
        latest_match_at,
        out_of_order_matches,
        set_activity,
        ..
    } = replay;
    let players = skills_by_player.len();
    let with_inactivity =
        |(name, skill)| (name, rating_spec.skill_at_with_activity(skill, latest_match_at, set_activity));
    let mut order: Vec<(String, Skill)> = skills_by_player.into_iter().map(with_inactivity).collect();
    order.sort_unstable_by(|first, second| {
        rating_spec
            .conservative_rating(second.1.estimate)
            .total_cmp(&rating_spec.conservative_rating(first.1.estimate))
            .then_with(|| first.0.cmp(&second.0))
    });
    let leaderboard_row = |(index, (player, skill)): (usize, (String, Skill))| {
        let (low, high) = rating_spec.confidence_interval_95(skill.estimate);
        LeaderboardRow {
            place: index + 1,
            player,
            score: rating_spec.conservative_rating(skill.estimate),
            rating: skill.estimate.rating,
            deviation: skill.estimate.deviation,
            interval_95_low: low,
            interval_95_high: high,
            matches: skill.match_count,
            provisional: rating_spec.is_provisional(&skill),
        }
    };
    BacktestReport {
        file: file.display().to_string(),
        system: rating_spec.system.as_str(),
        players,
        skipped,
        bad_rows,
        unordered: out_of_order_matches,
        all: summarize_predictions(&predictions),
        second_half: summarize_predictions(&predictions[predictions.len() / 2..]),
        fit,
        leaderboard: order.into_iter().take(top).enumerate().map(leaderboard_row).collect(),
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
            writeln!(out, "{skipped} invalid rows were skipped")?;
        }
        if *unordered != 0 {
            writeln!(out, "{unordered} matches are older than one before them; rated in the order of the file")?;
        }
        writeln!(out, "\n{:<12}{:>9}{:>10}{:>9}{:>10}", "", "matches", "log-loss", "Brier", "accuracy")?;
        for (name, tally) in [("all", all), ("second half", second_half)] {
            let PredictionTally { matches, log_loss, brier, accuracy, .. } = tally;
            writeln!(out, "{name:<12}{matches:>9}{log_loss:>10.4}{brier:>9.4}{:>10}", format_percent(*accuracy))?;
        }
        if let Some(fit) = &self.fit {
            write_fit(out, fit)?;
        }
        writeln!(out, "\ncalibration: predicted probability and share of wins")?;
        writeln!(
            out,
            "{:<12}{:>9}{:>10}{:>9} |{:>9}{:>10}{:>9}",
            "", "all", "given", "won", "2nd half", "given", "won"
        )?;
        for (all_bin, second_half_bin) in all.calibration.iter().zip(&second_half.calibration) {
            let name = format!("{:.0} - {:.0} %", 100.0 * all_bin.from, 100.0 * all_bin.to);
            writeln!(out, "{name:<12}{} |{}", format_bin(all_bin), format_bin(second_half_bin))?;
        }
        self.write_leaderboard(out)
    }

    fn write_leaderboard(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.leaderboard.is_empty() {
            return Ok(());
        }
        let headings = ["score", "rating", "deviation", "95 % from", "to", "matches"];
        let [score, rating, deviation, low, high, matches] = headings;
        writeln!(
            out,
            "\n{:>5} {score:>10}{rating:>10}{deviation:>10}{low:>10}{high:>10}{matches:>9}  player",
            "place"
        )?;
        for LeaderboardRow {
            place,
            player,
            score,
            rating,
            deviation,
            interval_95_low: low,
            interval_95_high: high,
            matches,
            provisional,
        } in &self.leaderboard
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

fn write_fit(out: &mut dyn Write, fit: &FitReport) -> io::Result<()> {
    let FitReport { first_half_matches, attributes, fitted, before, coin } = fit;
    writeln!(out, "\nconstants chosen on the first {first_half_matches} matches: {attributes}")?;
    writeln!(out, "{:<12}{:>9}{:>10}{:>9}{:>10}", "second half", "matches", "log-loss", "Brier", "accuracy")?;
    for (name, tally) in [("chosen", fitted), ("before", before), ("a coin", coin)] {
        let PredictionTally { matches, log_loss, brier, accuracy, .. } = tally;
        writeln!(out, "{name:<12}{matches:>9}{log_loss:>10.4}{brier:>9.4}{:>10}", format_percent(*accuracy))?;
    }
    Ok(())
}

fn format_bin(bin: &CalibrationBin) -> String {
    format!("{:>9}{:>10}{:>9}", bin.matches, format_percent(bin.predicted), format_percent(bin.actual_win_share))
}

fn format_percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".into(), |share| format!("{:.1} %", 100.0 * share))
}
