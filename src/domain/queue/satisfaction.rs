//! Who is frustrated, as far as it shows in what is kept of a user (S1-97).

use crate::domain::result;
use crate::domain::ruleset::queue::Satisfaction;

impl Satisfaction {
    /// Whether a queue looks after somebody with this streak, so many matches that count in the rating, and these signs of
    /// content: one sign is enough.
    pub fn looks_after(&self, streak: i32, matches: u32, shown: &result::Satisfaction) -> bool {
        let loses = |least: u32| streak < 0 && least <= streak.unsigned_abs();
        let leaves = |percent: f64| {
            let enough = 0 < matches && self.min_matches <= matches;
            enough && percent * f64::from(matches) <= 100.0 * f64::from(shown.abandoned)
        };
        let dislikes = |below: f64| self.min_matches <= shown.scores && shown.mean_score().is_some_and(|it| it < below);
        self.losing_streak.is_some_and(loses)
            || self.abandoned_percent.is_some_and(leaves)
            || self.score_below.is_some_and(dislikes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(abandoned: u32, scores: u32, score_sum: u32) -> result::Satisfaction {
        result::Satisfaction { abandoned, scores, score_sum }
    }

    /// S1-97: each sign by itself, up to the very number that the ruleset names.
    #[test]
    fn one_sign_is_enough_and_nothing_is_read_into_few_matches() {
        let nobody = Satisfaction { min_matches: 4, ..Satisfaction::default() };
        let lost = Satisfaction { losing_streak: Some(3), ..nobody };
        let left = Satisfaction { abandoned_percent: Some(25.0), ..nobody };
        let scored = Satisfaction { score_below: Some(2.5), ..nobody };
        let unhappy = shown(9, 9, 9);
        for (rule, streak, matches, shown, wanted) in [
            (lost, -3, 3, shown(0, 0, 0), true),
            (lost, -2, 99, unhappy, false),
            (lost, 3, 99, unhappy, false),
            (left, 0, 4, shown(1, 0, 0), true),
            (left, 0, 5, shown(1, 0, 0), false),
            (left, 0, 3, shown(3, 0, 0), false),
            (left, -9, 99, shown(24, 9, 9), false),
            // Matches that are not rated for having been left may be more than those that are.
            (left, 0, 4, shown(9, 0, 0), true),
            (scored, 0, 0, shown(0, 4, 9), true),
            (scored, 0, 0, shown(0, 4, 10), false),
            (scored, 0, 0, shown(0, 3, 3), false),
            (scored, -9, 99, shown(99, 0, 0), false),
            (nobody, -99, 99, unhappy, false),
        ] {
            assert_eq!(rule.looks_after(streak, matches, &shown), wanted, "{rule:?} {streak} {matches} {shown:?}");
        }
        let all = Satisfaction { losing_streak: Some(3), abandoned_percent: Some(25.0), ..scored };
        assert!(all.looks_after(-3, 0, &shown(0, 0, 0)) && all.looks_after(1, 4, &shown(1, 0, 0)));
        assert!(all.looks_after(1, 0, &shown(0, 4, 4)) && !all.looks_after(1, 4, &shown(0, 4, 20)));
    }

    /// Without a least number of matches nobody is frustrated by matches that were never played.
    #[test]
    fn no_matches_are_no_reason() {
        let rule = Satisfaction {
            abandoned_percent: Some(1.0),
            score_below: Some(5.0),
            min_matches: 0,
            ..Satisfaction::default()
        };
        assert!(!rule.looks_after(0, 0, &shown(0, 0, 0)));
    }
}
