//! Who is frustrated, as far as it shows in what is kept of a user (S1-97).

use crate::match_result;
use crate::ruleset::queue::SatisfactionSpec;

impl SatisfactionSpec {
    /// Whether a queue looks after somebody with this streak, so many matches that count in the rating, and these signs of
    /// content: one sign is enough.
    pub fn is_frustrated(&self, streak: i32, matches: u32, shown: &match_result::SatisfactionStats) -> bool {
        let loses = |least: u32| streak < 0 && least <= streak.unsigned_abs();
        let leaves = |percent: f64| {
            let enough = 0 < matches && self.min_matches <= matches;
            enough && percent * f64::from(matches) <= 100.0 * f64::from(shown.abandoned_matches)
        };
        let dislikes =
            |below: f64| self.min_matches <= shown.feedback_count && shown.mean_feedback().is_some_and(|it| it < below);
        self.losing_streak.is_some_and(loses)
            || self.abandoned_percent.is_some_and(leaves)
            || self.score_below.is_some_and(dislikes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfaction_stats(abandoned: u32, scores: u32, score_sum: u32) -> match_result::SatisfactionStats {
        match_result::SatisfactionStats {
            abandoned_matches: abandoned,
            feedback_count: scores,
            feedback_sum: score_sum,
        }
    }

    /// S1-97: each sign by itself, up to the very number that the ruleset names.
    #[test]
    fn frustration_needs_one_sign_and_the_minimum_number_of_matches() {
        let nobody = SatisfactionSpec { min_matches: 4, ..SatisfactionSpec::default() };
        let lost = SatisfactionSpec { losing_streak: Some(3), ..nobody };
        let left = SatisfactionSpec { abandoned_percent: Some(25.0), ..nobody };
        let scored = SatisfactionSpec { score_below: Some(2.5), ..nobody };
        let unhappy = satisfaction_stats(9, 9, 9);
        for (rule, streak, matches, shown, wanted) in [
            (lost, -3, 3, satisfaction_stats(0, 0, 0), true),
            (lost, -2, 99, unhappy, false),
            (lost, 3, 99, unhappy, false),
            (left, 0, 4, satisfaction_stats(1, 0, 0), true),
            (left, 0, 5, satisfaction_stats(1, 0, 0), false),
            (left, 0, 3, satisfaction_stats(3, 0, 0), false),
            (left, -9, 99, satisfaction_stats(24, 9, 9), false),
            // Matches that are not rated for having been left may be more than those that are.
            (left, 0, 4, satisfaction_stats(9, 0, 0), true),
            (scored, 0, 0, satisfaction_stats(0, 4, 9), true),
            (scored, 0, 0, satisfaction_stats(0, 4, 10), false),
            (scored, 0, 0, satisfaction_stats(0, 3, 3), false),
            (scored, -9, 99, satisfaction_stats(99, 0, 0), false),
            (nobody, -99, 99, unhappy, false),
        ] {
            assert_eq!(rule.is_frustrated(streak, matches, &shown), wanted, "{rule:?} {streak} {matches} {shown:?}");
        }
        let all = SatisfactionSpec { losing_streak: Some(3), abandoned_percent: Some(25.0), ..scored };
        assert!(
            all.is_frustrated(-3, 0, &satisfaction_stats(0, 0, 0))
                && all.is_frustrated(1, 4, &satisfaction_stats(1, 0, 0))
        );
        assert!(
            all.is_frustrated(1, 0, &satisfaction_stats(0, 4, 4))
                && !all.is_frustrated(1, 4, &satisfaction_stats(0, 4, 20))
        );
    }

    /// Without a least number of matches nobody is frustrated by matches that were never played.
    #[test]
    fn frustration_is_never_derived_from_zero_matches() {
        let rule = SatisfactionSpec {
            abandoned_percent: Some(1.0),
            score_below: Some(5.0),
            min_matches: 0,
            ..SatisfactionSpec::default()
        };
        assert!(!rule.is_frustrated(0, 0, &satisfaction_stats(0, 0, 0)));
    }
}
