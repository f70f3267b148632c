//! How good predictions were.

use serde::Serialize;

/// Chances are taken to be no surer than this, or one miss would outweigh all else.
const PROBABILITY_MIN: f64 = 1e-12;

/// Bins of a calibration.
const CALIBRATION_BINS: usize = 10;

/// A prediction, held against what came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ScoredPrediction {
    /// In natural units; 0 is certainty that came true.
    log_loss: f64,
    /// The squared error, 0 to 1.
    brier_score: f64,
    /// The likeliest side won; shared where several were equally likely. None for a draw.
    favorite_win_share: Option<f64>,
    /// The chance that one side had, and what came of it: 1, 0, or its share in a draw.
    calibration_point: (f64, f64),
}

impl ScoredPrediction {
    /// `chances` and ranks of the sides, and the side that stands for the match in the calibration. Whoever comes in first
    /// together shares the win.
    pub(super) fn from_result(chances: &[f64], ranks: &[u32], shown: usize) -> Self {
        let best = ranks.iter().min().copied().unwrap_or_default();
        let first = ranks.iter().filter(|rank| **rank == best).count() as f64;
        let came: Vec<f64> = ranks.iter().map(|rank| if *rank == best { 1.0 / first } else { 0.0 }).collect();
        let pairs = || chances.iter().zip(&came);
        let loss = pairs().filter(|(_, came)| 0.0 < **came).map(|(p, came)| -came * p.max(PROBABILITY_MIN).ln()).sum();
        // Of two sides both are off by the same: half the sum is the usual score.
        let brier = pairs().map(|(p, came)| (p - came).powi(2)).sum::<f64>() / 2.0;
        let likeliest = chances.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let likely = || pairs().filter(|(p, _)| **p == likeliest);
        let right = (first == 1.0).then(|| likely().map(|(_, came)| came).sum::<f64>() / likely().count() as f64);
        Self {
            log_loss: loss,
            brier_score: brier,
            favorite_win_share: right,
            calibration_point: (chances[shown], came[shown]),
        }
    }
}

/// All predictions of a stretch of matches together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct PredictionTally {
    pub(super) matches: usize,
    /// The mean of `-ln p` of what came; a coin scores 0.6931 between two sides. A draw counts as half a win of both.
    pub(super) log_loss: f64,
    /// The mean squared error of the chance; a coin scores 0.25 where there are no draws.
    pub(super) brier: f64,
    /// The share of matches whose likeliest side won, draws left out; none where all were draws.
    pub(super) accuracy: Option<f64>,
    pub(super) calibration: Vec<CalibrationBin>,
}

/// The matches whose side was given a chance within one tenth.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct CalibrationBin {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) matches: usize,
    /// The mean chance; none without matches.
    pub(super) predicted: Option<f64>,
    /// How much of the matches it won.
    pub(super) came: Option<f64>,
}

pub(super) fn tally_predictions(judged: &[ScoredPrediction]) -> PredictionTally {
    let mean = |of: fn(&ScoredPrediction) -> f64| judged.iter().map(of).sum::<f64>() / judged.len().max(1) as f64;
    let decided: Vec<f64> = judged.iter().filter_map(|it| it.favorite_win_share).collect();
    PredictionTally {
        matches: judged.len(),
        log_loss: mean(|it| it.log_loss),
        brier: mean(|it| it.brier_score),
        accuracy: (!decided.is_empty()).then(|| decided.iter().sum::<f64>() / decided.len() as f64),
        calibration: (0..CALIBRATION_BINS).map(|place| calibration_bin(place, judged)).collect(),
    }
}

fn calibration_bin(place: usize, judged: &[ScoredPrediction]) -> CalibrationBin {
    let tenths = CALIBRATION_BINS as f64;
    let inside = |p: f64| ((p * tenths) as usize).min(CALIBRATION_BINS - 1) == place;
    let shown: Vec<(f64, f64)> = judged.iter().map(|it| it.calibration_point).filter(|(p, _)| inside(*p)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| {
        (!shown.is_empty()).then(|| shown.iter().map(of).sum::<f64>() / shown.len() as f64)
    };
    CalibrationBin {
        from: place as f64 / tenths,
        to: (place + 1) as f64 / tenths,
        matches: shown.len(),
        predicted: mean(|it| it.0),
        came: mean(|it| it.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_tally_of_a_coin_has_the_known_log_loss_and_brier_score() {
        let coin: Vec<ScoredPrediction> =
            (0..10).map(|place| ScoredPrediction::from_result(&[0.5, 0.5], &[1, 2], place % 2)).collect();
        let PredictionTally { matches, log_loss, brier, accuracy, calibration } = tally_predictions(&coin);
        assert_eq!((matches, brier, accuracy), (10, 0.25, Some(0.5)));
        assert!((log_loss - std::f64::consts::LN_2).abs() < 1e-15);
        assert_eq!((calibration[5].matches, calibration[5].predicted, calibration[5].came), (10, Some(0.5), Some(0.5)));
    }

    /// A draw is half a win of both in log-loss, and no answer to who was likelier.
    #[test]
    fn prediction_tally_leaves_draws_out_of_accuracy() {
        let judged = [
            ScoredPrediction::from_result(&[0.8, 0.2], &[1, 1], 0),
            ScoredPrediction::from_result(&[0.8, 0.2], &[1, 2], 0),
        ];
        let of_draw = -(0.8_f64.ln() + 0.2_f64.ln()) / 2.0;
        assert!((judged[0].log_loss - of_draw).abs() < 1e-15 && (judged[0].brier_score - 0.09).abs() < 1e-15);
        assert_eq!(tally_predictions(&judged).accuracy, Some(1.0));
        assert_eq!(tally_predictions(&judged[..1]).accuracy, None);
        assert_eq!(tally_predictions(&judged).calibration[8].came, Some(0.75));
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
