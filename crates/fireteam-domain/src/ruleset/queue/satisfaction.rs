//! Satisfaction rule: decides whether a user counts as frustrated, from losses, abandoned matches and feedback.

use crate::match_result;
use crate::ruleset::queue::FrustratedPlayerSpec;

impl FrustratedPlayerSpec {
    /// Whether a user with this losing streak, number of rated matches and statistics is frustrated. One sign is
    /// enough.
    pub fn is_frustrated(
        &self,
        streak: i32,
        rated_matches: u32,
        stats: &match_result::UserSatisfactionStatistics,
    ) -> bool {
        let on_losing_streak = |minimum: u32| streak < 0 && minimum <= streak.unsigned_abs();
        let abandons_matches = |percent: f64| {
            let enough_matches = rated_matches > 0 && self.min_matches <= rated_matches;
            enough_matches && percent * f64::from(rated_matches) <= 100.0 * f64::from(stats.abandoned_matches)
        };
        let gives_low_feedback = |below: f64| {
            self.min_matches <= stats.given_feedback_count && stats.mean_feedback().is_some_and(|it| it < below)
        };
        self.losing_streak.is_some_and(on_losing_streak)
            || self.abandoned_percent.is_some_and(abandons_matches)
            || self.feedback_below.is_some_and(gives_low_feedback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn satisfaction_stats(abandoned: u32, scores: u32, score_sum: u32) -> match_result::UserSatisfactionStatistics {
        match_result::UserSatisfactionStatistics {
            abandoned_matches: abandoned,
            disputed_matches: 0,
            given_feedback_count: scores,
            given_feedback_sum: score_sum,
        }
    }

    /// S1-97: each sign by itself, at its exact threshold.
    #[test]
    fn frustration_needs_one_sign_and_the_minimum_number_of_matches() {
        let no_sign = FrustratedPlayerSpec { min_matches: 4, ..FrustratedPlayerSpec::default() };
        let by_losses = FrustratedPlayerSpec { losing_streak: Some(3), ..no_sign };
        let by_abandonment = FrustratedPlayerSpec { abandoned_percent: Some(25.0), ..no_sign };
        let by_feedback = FrustratedPlayerSpec { feedback_below: Some(2.5), ..no_sign };
        let bad_stats = satisfaction_stats(9, 9, 9);
        for (rule, streak, matches, stats, expected) in [
            (by_losses, -3, 3, satisfaction_stats(0, 0, 0), true),
            (by_losses, -2, 99, bad_stats, false),
            (by_losses, 3, 99, bad_stats, false),
            (by_abandonment, 0, 4, satisfaction_stats(1, 0, 0), true),
            (by_abandonment, 0, 5, satisfaction_stats(1, 0, 0), false),
            (by_abandonment, 0, 3, satisfaction_stats(3, 0, 0), false),
            (by_abandonment, -9, 99, satisfaction_stats(24, 9, 9), false),
            // Abandoned matches are not always rated, so they may outnumber the rated matches.
            (by_abandonment, 0, 4, satisfaction_stats(9, 0, 0), true),
            (by_feedback, 0, 0, satisfaction_stats(0, 4, 9), true),
            (by_feedback, 0, 0, satisfaction_stats(0, 4, 10), false),
            (by_feedback, 0, 0, satisfaction_stats(0, 3, 3), false),
            (by_feedback, -9, 99, satisfaction_stats(99, 0, 0), false),
            (no_sign, -99, 99, bad_stats, false),
        ] {
            assert_eq!(rule.is_frustrated(streak, matches, &stats), expected, "{rule:?} {streak} {matches} {stats:?}");
        }
        let all = FrustratedPlayerSpec { losing_streak: Some(3), abandoned_percent: Some(25.0), ..by_feedback };
        assert!(
            all.is_frustrated(-3, 0, &satisfaction_stats(0, 0, 0))
                && all.is_frustrated(1, 4, &satisfaction_stats(1, 0, 0))
        );
        assert!(
            all.is_frustrated(1, 0, &satisfaction_stats(0, 4, 4))
                && !all.is_frustrated(1, 4, &satisfaction_stats(0, 4, 20))
        );
    }

    /// With a minimum of 0 matches, a user without matches is not frustrated.
    #[test]
    fn frustration_is_never_derived_from_zero_matches() {
        let rule = FrustratedPlayerSpec {
            abandoned_percent: Some(1.0),
            feedback_below: Some(5.0),
            min_matches: 0,
            ..FrustratedPlayerSpec::default()
        };
        assert!(!rule.is_frustrated(0, 0, &satisfaction_stats(0, 0, 0)));
    }
}
