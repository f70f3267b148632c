//! The thesis's study of Elo and Glicko, held against its headlines and against what was recomputed.

use fireteam::domain::ruleset::rating::RatingSpec;
use fireteam::sim::study::{MATCHES, Outcome, Reading, run, systems};

fn outcomes(reading: Reading, seed: u64) -> [Outcome; 2] {
    systems().map(|(name, spec): (&'static str, RatingSpec)| {
        run((name, &spec), reading, seed, MATCHES, &mut |_| {}).unwrap()
    })
}

fn within(outcome: &Outcome, points: f64) -> f64 {
    outcome.within.iter().find(|(known, _)| *known == points).unwrap().1
}

/// S1-67, S1-68, B-18: with all against all, results drawn from true strengths and changes averaged, Elo has about 80 %
/// within 100 points and Glicko over 80 % within 50; vectors/seeds.json has 79.2 % and 94.9 %.
#[test]
fn all_against_all_gives_the_headlines() {
    for seed in [1, 2, 3] {
        let [elo, glicko] = outcomes(Reading::AllAgainstAll, seed);
        assert!((76.0..=84.0).contains(&within(&elo, 100.0)), "{elo:?}");
        assert!(80.0 < within(&glicko, 50.0), "{glicko:?}");
        // "Exactly 2 to 12" is 56 matches each on average.
        assert!((54.0..=58.0).contains(&elo.matches_mean), "{}", elo.matches_mean);
        let at =
            |outcome: &Outcome, matches: u32| *outcome.convergence.iter().find(|it| it.matches == matches).unwrap();
        assert!(at(&elo, 10).p50 > at(&glicko, 10).p50, "Glicko is nearer after ten matches");
        assert!(at(&elo, 24).p50 > at(&glicko, 24).p50, "and after 24");
    }
}

/// B-18: two teams, of which the truly better always wins, do not give Glicko's headline.
#[test]
fn two_teams_do_not() {
    let [_, glicko] = outcomes(Reading::TwoTeams, 1);
    assert!(within(&glicko, 50.0) < 80.0, "{glicko:?}");
}

/// S1-67: the same seed is the same study.
#[test]
fn the_same_seed_is_the_same_study() {
    assert_eq!(outcomes(Reading::OneOrder, 4), outcomes(Reading::OneOrder, 4));
}
