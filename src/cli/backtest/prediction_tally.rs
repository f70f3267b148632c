//! Quality of predictions: log-loss, Brier score, accuracy and calibration.

use serde::Serialize;

use crate::cli::backtest::match_rows::ReplayMatch;

/// Minimum probability used in the log-loss; otherwise one miss could outweigh all other matches.
const PROBABILITY_MIN: f64 = 1e-12;

/// Number of calibration bins.
const CALIBRATION_BINS: usize = 10;

/// Prediction of a match, scored by its result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoredPrediction {
    /// Log-loss in natural units; 0 for a certain and correct prediction.
    log_loss: f64,
    /// Squared error, 0 to 1.
    brier_score: f64,
    /// 1 if the favorite won, 0 if not, a share with several favorites; `None` for a draw.
    favorite_win_share: Option<f64>,
    /// Predicted probability of one side, and its result: 1, 0, or its share of a draw.
    calibration_point: (f64, f64),
}

impl ScoredPrediction {
    /// Scores equal probabilities of all sides.
    pub(super) fn of_a_coin(replay_match: &ReplayMatch) -> Self {
        let ranks: Vec<u32> = replay_match.sides.iter().map(|(_, rank)| *rank).collect();
        Self::from_result(&vec![1.0 / ranks.len() as f64; ranks.len()], &ranks, 0)
    }

    /// Scores the win probabilities of the sides against their ranks. `side_by_match_id_hash` is the side that counts in the
    /// calibration. Sides that tie for the first rank share the win.
    pub(super) fn from_result(probabilities: &[f64], ranks: &[u32], side_by_match_id_hash: usize) -> Self {
        let best = ranks.iter().min().copied().unwrap_or_default();
        let winners = ranks.iter().filter(|rank| **rank == best).count() as f64;
        let results: Vec<f64> = ranks.iter().map(|rank| if *rank == best { 1.0 / winners } else { 0.0 }).collect();
        let pairs = || probabilities.iter().zip(&results);
        let log_loss = pairs()
            .filter(|(_, result)| **result > 0.0)
            .map(|(probability, result)| -result * probability.max(PROBABILITY_MIN).ln())
            .sum();
        // Both of two sides have the same error, so half the sum is the usual Brier score.
        let brier_score = pairs().map(|(probability, result)| (probability - result).powi(2)).sum::<f64>() / 2.0;
        let highest = probabilities.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let favorites = || pairs().filter(|(probability, _)| **probability == highest);
        let favorite_win_share =
            (winners == 1.0).then(|| favorites().map(|(_, result)| result).sum::<f64>() / favorites().count() as f64);
        Self {
            log_loss,
            brier_score,
            favorite_win_share,
            calibration_point: (probabilities[side_by_match_id_hash], results[side_by_match_id_hash]),
        }
    }
}

/// Mean scores of a range of matches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PredictionTally {
    pub(super) matches: usize,
    /// Mean of `-ln p` of the result. A coin scores 0.6931 for two sides. A draw counts as half a win for both.
    pub(super) log_loss: f64,
    /// Mean squared error of the probabilities. A coin scores 0.25 without draws.
    pub(super) brier: f64,
    /// Share of matches won by the favorite, without draws; `None` if all are draws.
    pub(super) accuracy: Option<f64>,
    pub(super) calibration: Vec<CalibrationBin>,
}

/// Predictions with a probability in one tenth.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct CalibrationBin {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) matches: usize,
    /// Mean predicted probability; `None` without matches.
    pub(super) predicted: Option<f64>,
    /// Share of the matches that were won; `None` without matches.
    #[serde(rename = "came")]
    pub(super) actual_win_share: Option<f64>,
}

pub(super) fn summarize_predictions(predictions: &[ScoredPrediction]) -> PredictionTally {
    let mean = |value_of: fn(&ScoredPrediction) -> f64| {
        predictions.iter().map(value_of).sum::<f64>() / predictions.len().max(1) as f64
    };
    let decided: Vec<f64> = predictions.iter().filter_map(|prediction| prediction.favorite_win_share).collect();
    PredictionTally {
        matches: predictions.len(),
        log_loss: mean(|prediction| prediction.log_loss),
        brier: mean(|prediction| prediction.brier_score),
        accuracy: (!decided.is_empty()).then(|| decided.iter().sum::<f64>() / decided.len() as f64),
        calibration: (0..CALIBRATION_BINS).map(|index| calibration_bin(index, predictions)).collect(),
    }
}

fn calibration_bin(index: usize, predictions: &[ScoredPrediction]) -> CalibrationBin {
    let tenths = CALIBRATION_BINS as f64;
    let is_in_bin = |probability: f64| ((probability * tenths) as usize).min(CALIBRATION_BINS - 1) == index;
    let points: Vec<(f64, f64)> = predictions
        .iter()
        .map(|prediction| prediction.calibration_point)
        .filter(|(probability, _)| is_in_bin(*probability))
        .collect();
    let mean = |value_of: fn(&(f64, f64)) -> f64| {
        (!points.is_empty()).then(|| points.iter().map(value_of).sum::<f64>() / points.len() as f64)
    };
    CalibrationBin {
        from: index as f64 / tenths,
        to: (index + 1) as f64 / tenths,
        matches: points.len(),
        predicted: mean(|point| point.0),
        actual_win_share: mean(|point| point.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_tally_of_a_coin_has_the_known_log_loss_and_brier_score() {
        let coin: Vec<ScoredPrediction> =
            (0..10).map(|place| ScoredPrediction::from_result(&[0.5, 0.5], &[1, 2], place % 2)).collect();
        let PredictionTally { matches, log_loss, brier, accuracy, calibration } = summarize_predictions(&coin);
        assert_eq!((matches, brier, accuracy), (10, 0.25, Some(0.5)));
        assert!((log_loss - std::f64::consts::LN_2).abs() < 1e-15);
        assert_eq!(
            (calibration[5].matches, calibration[5].predicted, calibration[5].actual_win_share),
            (10, Some(0.5), Some(0.5))
        );
    }

    /// A draw counts as half a win for both sides in the log-loss, and not in the accuracy.
    #[test]
    fn prediction_tally_leaves_draws_out_of_accuracy() {
        let judged = [
            ScoredPrediction::from_result(&[0.8, 0.2], &[1, 1], 0),
            ScoredPrediction::from_result(&[0.8, 0.2], &[1, 2], 0),
        ];
        let of_draw = -(0.8_f64.ln() + 0.2_f64.ln()) / 2.0;
        assert!((judged[0].log_loss - of_draw).abs() < 1e-15 && (judged[0].brier_score - 0.09).abs() < 1e-15);
        assert_eq!(summarize_predictions(&judged).accuracy, Some(1.0));
        assert_eq!(summarize_predictions(&judged[..1]).accuracy, None);
        assert_eq!(summarize_predictions(&judged).calibration[8].actual_win_share, Some(0.75));
    }

    #[test]
    fn prediction_of_several_sides_shares_the_win_between_tied_winners() {
        let of = |ranks: &[u32]| ScoredPrediction::from_result(&[0.5, 0.25, 0.25], ranks, 0);
        assert!(
            (of(&[1, 2, 3]).log_loss - 2.0_f64.ln()).abs() < 1e-15 && of(&[1, 2, 3]).favorite_win_share == Some(1.0)
        );
        assert!(
            (of(&[2, 1, 3]).log_loss - 4.0_f64.ln()).abs() < 1e-15 && of(&[2, 1, 3]).favorite_win_share == Some(0.0)
        );
        assert!(of(&[1, 2, 1]).favorite_win_share.is_none() && of(&[1, 2, 1]).calibration_point == (0.5, 0.5));
        assert!(
            ScoredPrediction::from_result(&[0.0, 1.0], &[1, 2], 0).log_loss < 28.0,
            "a miss that was thought impossible is bounded"
        );
    }
}
