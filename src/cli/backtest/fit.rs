//! Choice of a rating system's constants on the first half of a file. The second half judges the choice.
//!
//! The search changes one constant at a time by a factor and keeps each change that lowers the log-loss of the first half.
//! It uses nothing of the second.

use serde::Serialize;

use crate::cli::backtest::match_rows::{RejectedMatchRow, ReplayMatch};
use crate::cli::backtest::prediction_tally::{PredictionTally, ScoredPrediction, summarize_predictions};
use crate::cli::backtest::replay::RatingReplay;
use crate::domain::ruleset::rating::{RatingSpec, RatingSystem};

/// Maximum number of matches of a fit. Each is replayed up to `REPLAYS_MAX` times.
pub(super) const FIT_MATCHES_MAX: usize = 1_000_000;

/// Factors by which one constant changes in one step.
const STEP_FACTORS: [f64; 6] = [0.5, 0.8, 0.95, 1.05, 1.25, 2.0];

/// Maximum number of replays of the first half.
const REPLAYS_MAX: usize = 200;

/// Minimum decrease of the log-loss for which a constant changes. Less is within the noise of any file.
const GAIN_MIN: f64 = 1e-4;

/// Bounds of fitted constants, within those of rulesets.
const CONSTANT_BOUNDS: std::ops::RangeInclusive<f64> = 1e-6..=1e5;

/// Result of a fit: the chosen constants, and the second half of the matches by them, by the constants before and by a coin.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FitReport {
    /// Number of matches that the constants were chosen on.
    pub(super) first_half_matches: usize,
    /// Chosen constants, as attributes of `<Rating>`.
    pub(super) attributes: String,
    /// Second half by the chosen constants.
    pub(super) fitted: PredictionTally,
    /// Second half by the constants before.
    pub(super) before: PredictionTally,
    /// Second half by a coin.
    pub(super) coin: PredictionTally,
}

/// Replay of `matches` by constants that are chosen on their first half, and the report of the choice. The matches are
/// those that a replay by `spec` accepts.
pub(super) fn fit_and_replay(
    spec: RatingSpec,
    matches: &[ReplayMatch],
) -> Result<(RatingReplay, FitReport), RejectedMatchRow> {
    let half = matches.len() / 2;
    let fitted_spec = fit_constants(spec, &matches[..half])?;
    let fitted = replay_all(fitted_spec, matches)?;
    let before = replay_all(spec, matches)?;
    let coin: Vec<ScoredPrediction> = matches[half..].iter().map(ScoredPrediction::of_a_coin).collect();
    let report = FitReport {
        first_half_matches: half,
        attributes: format_attributes(&fitted_spec),
        fitted: summarize_predictions(&fitted.predictions[half..]),
        before: summarize_predictions(&before.predictions[half..]),
        coin: summarize_predictions(&coin),
    };
    Ok((fitted, report))
}

/// Constants of a system that a fit may change. The others only place the scale.
fn fittable_constant_names(system: &RatingSystem) -> &'static [&'static str] {
    match system {
        RatingSystem::Elo { .. } => &["K"],
        RatingSystem::Glicko { .. } => &["Deviation", "MinDeviation", "C"],
        RatingSystem::Glicko2 { .. } => &["Deviation", "Volatility", "Tau"],
        RatingSystem::TrueSkill { .. } | RatingSystem::PlackettLuce { .. } => &["Beta", "Tau"],
    }
}

/// Constants with the lowest log-loss of `matches` that the search finds, from those of `spec`.
fn fit_constants(spec: RatingSpec, matches: &[ReplayMatch]) -> Result<RatingSpec, RejectedMatchRow> {
    let mut fitted = spec;
    let mut lowest = log_loss(fitted, matches)?;
    let mut replays = 1;
    loop {
        let before = lowest;
        for name in fittable_constant_names(&spec.system) {
            for factor in STEP_FACTORS {
                let Some(changed) = with_factor(fitted, name, factor) else { continue };
                if replays == REPLAYS_MAX {
                    return Ok(fitted);
                }
                replays += 1;
                let loss = log_loss(changed, matches)?;
                if loss < lowest - GAIN_MIN {
                    (lowest, fitted) = (loss, changed);
                }
            }
        }
        if lowest == before {
            return Ok(fitted);
        }
    }
}

/// `spec` with one constant multiplied, rounded to six digits so that it can be written into a ruleset. `None` if a ruleset
/// could not have it.
fn with_factor(spec: RatingSpec, name: &str, factor: f64) -> Option<RatingSpec> {
    let (_, current) = spec.system.constants().into_iter().find(|(known, _)| *known == name)?;
    let rounded: f64 = format!("{:.5e}", current * factor).parse().ok()?;
    let system = spec.system.with_constant(name, rounded);
    let is_valid = match system {
        RatingSystem::Glicko { deviation, min_deviation, .. } => min_deviation <= deviation,
        _ => true,
    };
    (is_valid && CONSTANT_BOUNDS.contains(&rounded)).then_some(RatingSpec { system, ..spec })
}

fn log_loss(spec: RatingSpec, matches: &[ReplayMatch]) -> Result<f64, RejectedMatchRow> {
    Ok(summarize_predictions(&replay_all(spec, matches)?.predictions).log_loss)
}

/// Replay of all matches, each predicted from those before it.
fn replay_all(spec: RatingSpec, matches: &[ReplayMatch]) -> Result<RatingReplay, RejectedMatchRow> {
    let mut replay = RatingReplay::new(spec);
    matches.iter().try_for_each(|replay_match| replay.predict_and_learn(replay_match))?;
    Ok(replay)
}

/// `Beta="6.25" Tau="0.0833333"`.
fn format_attributes(spec: &RatingSpec) -> String {
    let fitted = fittable_constant_names(&spec.system);
    let constants = spec.system.constants().into_iter().filter(|(name, _)| fitted.contains(name));
    constants.map(|(name, value)| format!("{name}=\"{value}\"")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::backtest::match_time::parse_match_time;

    /// Duels in which the stronger of two players wins `wins` of every ten matches.
    fn duels(count: u64, wins: u64) -> Vec<ReplayMatch> {
        let duel = |number: u64| ReplayMatch {
            line: number,
            match_id: number.to_string(),
            played_at: parse_match_time(&number.to_string()).unwrap(),
            sides: vec![
                (vec!["strong".into()], 1 + u32::from(number % 10 >= wins)),
                (vec!["weak".into()], 1 + u32::from(number % 10 < wins)),
            ],
        };
        (0..count).map(duel).collect()
    }

    const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 0.001, scale: 400.0 };

    #[test]
    fn fit_finds_constants_that_predict_the_second_half_better() {
        let (replay, report) = fit_and_replay(RatingSpec::with_defaults(ELO), &duels(400, 9)).unwrap();
        let RatingSystem::Elo { k, initial, scale } = replay.rating_spec.system else { panic!("another system") };
        assert!(k > 1.0 && (initial, scale) == (1500.0, 400.0), "{k}");
        assert_eq!(report.attributes, format!("K=\"{k}\""));
        assert!(report.fitted.log_loss < report.before.log_loss - 0.1, "{report:?}");
        assert_eq!((report.first_half_matches, report.fitted.matches, report.coin.matches), (200, 200, 200));
        assert!((report.coin.log_loss - std::f64::consts::LN_2).abs() < 1e-12);
    }

    /// A second half that contradicts the first does not change the choice.
    #[test]
    fn fit_uses_nothing_of_the_second_half() {
        let mut matches = duels(400, 9);
        let (first, first_report) = fit_and_replay(RatingSpec::with_defaults(ELO), &matches).unwrap();
        matches[200..].iter_mut().flat_map(|one| &mut one.sides).for_each(|(_, rank)| *rank = 3 - *rank);
        let (second, report) = fit_and_replay(RatingSpec::with_defaults(ELO), &matches).unwrap();
        assert_eq!(first.rating_spec, second.rating_spec);
        assert!(report.fitted.log_loss > first_report.fitted.log_loss, "the choice is judged as it is: {report:?}");
    }

    #[test]
    fn fit_keeps_constants_within_the_bounds_of_rulesets() {
        let glicko =
            RatingSystem::Glicko { initial: 1500.0, deviation: 40.0, min_deviation: 30.0, c: 63.2, period_ms: 1_000 };
        let spec = RatingSpec::with_defaults(glicko);
        assert!(with_factor(spec, "Deviation", 0.5).is_none());
        assert!(with_factor(spec, "MinDeviation", 2.0).is_none());
        assert!(with_factor(spec, "Deviation", 2.0).is_some());
        assert!(with_factor(spec, "C", 1e9).is_none());
    }
}
