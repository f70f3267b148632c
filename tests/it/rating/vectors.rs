//! Vectors for the five rating systems: the thesis's tables, Glickman's examples, and results of two reference
//! libraries.

use std::cmp::Ordering;

use fireteam::domain::queue::ticket::PlayerRating;
use fireteam::domain::rating::{Side, Skill};
use fireteam::domain::ruleset::rating::{OpponentsPerRatedGame, PerformanceDistribution, RatingSpec, RatingSystem};
use fireteam::domain::time::UnixMs;

use crate::rating::vector_files::{
    DeviationGrowth, Draw, DuelCase, DuelVectors, EloRow, EloVectors, Expected, GFactor, Glicko2Case, Glicko2Vectors,
    GlickoRow, GlickoVectors, Interval, Period, TeamCase, TeamUpdate, TeamVectors,
};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Relative tolerance; sums in another order differ in the last digits.
const TOLERANCE: f64 = 1e-9;

/// Precision of the normal distribution in the TrueSkill implementation.
const TRUESKILL_TOLERANCE: f64 = 1e-6;

fn assert_close(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance * expected.abs().max(1e-3), "{what}: {found}, not {expected}");
}

fn elo(k: f64) -> RatingSpec {
    RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k, scale: 400.0 })
}

fn glicko(c: f64) -> RatingSpec {
    RatingSpec::with_defaults(RatingSystem::Glicko {
        initial: 1500.0,
        deviation: 350.0,
        min_deviation: 0.0,
        c,
        period_ms: DAY_MS,
    })
}

fn skill(rating: f64, deviation: f64, volatility: f64) -> Skill {
    Skill {
        estimate: PlayerRating { rating, deviation },
        volatility,
        match_count: 7,
        last_match_at: None,
        streak: 0,
        last_match_active_period: 0,
    }
}

/// Rates sides of players, each a rating and a deviation, with their ranks.
fn rate(spec: &RatingSpec, sides: &[Vec<[f64; 2]>], ranks: &[u32]) -> Vec<Vec<[f64; 2]>> {
    let side = |(players, rank): (&Vec<[f64; 2]>, &u32)| Side {
        players: players.iter().map(|[rating, deviation]| skill(*rating, *deviation, 0.0)).collect(),
        rank: *rank,
    };
    let sides: Vec<Side> = sides.iter().zip(ranks).map(side).collect();
    let after = spec.rate_match(&sides, UnixMs(DAY_MS)).expect("a valid match");
    let estimates = |skills: &Vec<Skill>| skills.iter().map(|it| [it.estimate.rating, it.estimate.deviation]).collect();
    after.iter().map(estimates).collect()
}

/// Ranks of two sides if the first scored `score`.
pub(crate) fn ranks(score: f64) -> [u32; 2] {
    match score.total_cmp(&0.5) {
        Ordering::Greater => [1, 2],
        Ordering::Equal => [1, 1],
        Ordering::Less => [2, 1],
    }
}

fn players(ratings: &[f64]) -> Vec<[f64; 2]> {
    ratings.iter().map(|rating| [*rating, 0.0]).collect()
}

fn assert_all_close(found: &[Vec<[f64; 2]>], expected: &[Vec<[f64; 2]>], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len(), "{what}");
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            assert_close(*found, *expected, tolerance, what);
        }
    }
}

/// S1-61, S1-66, B-17: the thesis's tables for Elo, with the exact values of its formula instead of the printed ones.
#[test]
fn elo_equals_the_thesis_tables() {
    let vectors = EloVectors::read();
    for EloRow { a, b, score_a, k, a_after, b_after } in vectors.tables {
        let after = rate(&elo(k), &[players(&[a]), players(&[b])], &ranks(score_a));
        assert_all_close(
            &after,
            &[players(&[a_after]), players(&[b_after])],
            TOLERANCE,
            &format!("{a} {b} {score_a} {k}"),
        );
    }
    for Draw { a, b, after } in vectors.draws_k16 {
        let found = rate(&elo(16.0), &[players(&[a]), players(&[b])], &[1, 1]);
        assert_all_close(&found, &after.map(|it| players(&[it])), TOLERANCE, &format!("a draw of {a} and {b}"));
    }
    for Expected { a, b, e } in vectors.expected {
        let found =
            elo(16.0).win_probabilities(&[vec![skill(a, 0.0, 0.0)], vec![skill(b, 0.0, 0.0)]]).expect("two sides");
        assert_close(found[0], e, TOLERANCE, &format!("{a} against {b}"));
        assert_close(found[0] + found[1], 1.0, TOLERANCE, "the sum of both probabilities");
    }
}

/// S4-14: a team member's change is the mean of the changes against each opponent alone.
#[test]
fn elo_of_teams_is_the_mean_of_the_pairs() {
    for TeamUpdate { team_a, team_b, a_wins, a_exact, b_exact } in EloVectors::read().team_update_k32 {
        let score = a_wins.map_or(0.5, |wins| if wins { 1.0 } else { 0.0 });
        let after = rate(&elo(32.0), &[players(&team_a), players(&team_b)], &ranks(score));
        assert_all_close(
            &after,
            &[players(&a_exact), players(&b_exact)],
            TOLERANCE,
            &format!("{team_a:?} {team_b:?} {score}"),
        );
    }
}

/// S1-62, S1-63, S1-64, S1-66, B-17: the thesis's tables for Glicko, growth of deviations, the interval, and Glickman's
/// example of three games in one period.
#[test]
fn glicko_equals_the_thesis_tables_and_the_example() {
    let vectors = GlickoVectors::read();
    for GlickoRow { a, b, score_a, a_after, b_after } in vectors.tables {
        let after = rate(&glicko(0.0), &[vec![a], vec![b]], &ranks(score_a));
        assert_all_close(&after, &[vec![a_after], vec![b_after]], TOLERANCE, &format!("{a:?} {b:?} {score_a}"));
    }
    for DeviationGrowth { rd, c, t, rd_after } in vectors.rd_growth {
        let idle = Skill { last_match_at: Some(UnixMs(DAY_MS)), ..skill(1500.0, rd, 0.0) };
        let found = glicko(c).skill_at(idle, UnixMs(DAY_MS * (t + 1)));
        assert_close(found.estimate.deviation, rd_after, TOLERANCE, &format!("{rd} after {t} periods of {c}"));
        assert_eq!(found.estimate.rating, 1500.0, "inactivity does not change ratings");
    }
    for GFactor { rd, g } in vectors.g {
        let probabilities =
            glicko(0.0).win_probabilities(&[vec![skill(1900.0, rd, 0.0)], vec![skill(1500.0, 0.0, 0.0)]]);
        let probabilities = probabilities.expect("two sides");
        assert_close((probabilities[0] / probabilities[1]).log10(), g, TOLERANCE, &format!("g of {rd}"));
    }
    for Interval { r, rd, low, high } in vectors.interval_2rd {
        assert_eq!(glicko(0.0).confidence_interval_95(PlayerRating { rating: r, deviation: rd }), (low, high));
    }
    for Period { player, opponents, after } in vectors.period {
        let scores: Vec<f64> = opponents.iter().map(|[_, _, score]| *score).collect();
        let sides: Vec<Vec<[f64; 2]>> =
            std::iter::once(vec![player]).chain(opponents.iter().map(|[rating, rd, _]| vec![[*rating, *rd]])).collect();
        let spec = RatingSpec { opponents_per_game: OpponentsPerRatedGame::Each, ..glicko(0.0) };
        let found = rate(&spec, &sides, &ranks_against(&scores));
        assert_all_close(&found[..1], &[vec![after]], TOLERANCE, "Glickman's example");
    }
}

/// Ranks of a player and of opponents against whom the player scored `scores`.
pub(crate) fn ranks_against(scores: &[f64]) -> Vec<u32> {
    let opponent = |score: &f64| match score.total_cmp(&0.5) {
        Ordering::Greater => 3,
        Ordering::Equal => 2,
        Ordering::Less => 1,
    };
    std::iter::once(2).chain(scores.iter().map(opponent)).collect()
}

/// S1-65: Glicko-2 equals its author's examples, with the volatility to full precision.
#[test]
fn glicko_2_equals_its_examples() {
    let vectors = Glicko2Vectors::read();
    for Glicko2Case { id, player: [rating, deviation, volatility], opponents, scores, tau, result } in vectors.cases {
        let system =
            RatingSystem::Glicko2 { initial: 1500.0, deviation: 350.0, volatility: 0.06, tau, period_ms: DAY_MS };
        let mut players = vec![skill(rating, deviation, volatility)];
        players.extend(opponents.iter().map(|[rating, deviation]| skill(*rating, *deviation, 0.06)));
        let side = |(player, rank)| Side { players: vec![player], rank };
        let sides: Vec<Side> = players.into_iter().zip(ranks_against(&scores)).map(side).collect();
        for games_per in [OpponentsPerRatedGame::All, OpponentsPerRatedGame::Each] {
            let spec = RatingSpec { opponents_per_game: games_per, ..RatingSpec::with_defaults(system) };
            let after = spec.rate_match(&sides, UnixMs(DAY_MS)).expect("a valid match")[0][0];
            let found = [after.estimate.rating, after.estimate.deviation, after.volatility];
            for (found, expected) in found.iter().zip(result) {
                assert_close(*found, expected, TOLERANCE, &id);
            }
        }
    }
}

/// S1-65: TrueSkill equals the reference library: duels, teams, many sides, draws, and sides of unequal size.
#[test]
fn trueskill_equals_the_reference() {
    let vectors = TeamVectors::read_trueskill();
    for TeamCase { id, tau, draw_probability, teams, ranks, result } in vectors.cases {
        let beta = 25.0 / 6.0;
        let draw_percent = 100.0 * draw_probability;
        let spec =
            RatingSpec::with_defaults(RatingSystem::TrueSkill { mu: 25.0, sigma: 25.0 / 3.0, beta, tau, draw_percent });
        assert_all_close(&rate(&spec, &teams, &ranks), &result, TRUESKILL_TOLERANCE, &id);
    }
}

fn plackett_luce(tau: f64) -> RatingSpec {
    RatingSpec::with_defaults(RatingSystem::PlackettLuce {
        mu: 25.0,
        sigma: 25.0 / 3.0,
        beta: 25.0 / 6.0,
        kappa: 1e-4,
        tau,
    })
}

/// S2-1, S2-2, D-10: Plackett-Luce equals OpenSkill; a draw moves unequal ratings.
#[test]
fn plackett_luce_equals_the_reference() {
    for TeamCase { id, tau, teams, ranks, result, .. } in TeamVectors::read_plackett_luce().cases {
        assert_all_close(&rate(&plackett_luce(tau), &teams, &ranks), &result, TOLERANCE, &id);
    }
    for DuelCase { a, b, outcome_for_a, a_after, b_after } in DuelVectors::read().cases_1v1 {
        let after = rate(&plackett_luce(25.0 / 300.0), &[vec![a], vec![b]], &ranks(outcome_for_a));
        assert_all_close(&after, &[vec![a_after], vec![b_after]], TOLERANCE, &format!("{a:?} {b:?} {outcome_for_a}"));
    }
}

/// The probit form predicts duels as openskill.py 6.2.0 (`predict_win`) does. In teams it adds the luck of each player, where
/// that library adds it once per side, so the second value is computed from the formula of docs/RATINGS.md.
#[test]
fn plackett_luce_probit_equals_the_reference_for_two_sides() {
    let probit = RatingSpec { prediction: PerformanceDistribution::Probit, ..plackett_luce(0.0) };
    let mixed = vec![
        vec![[25.0, 8.333], [30.0, 4.0], [22.0, 6.5], [27.0, 3.0], [18.0, 7.0]],
        vec![[29.0, 5.0], [24.0, 8.0], [26.0, 2.0], [21.0, 4.5], [28.0, 6.0]],
    ];
    for (teams, expected) in [
        (vec![vec![[20.0, 3.0]], vec![[32.0, 2.5]]], 0.044_798_452_754_548_52),
        (mixed, 0.395_095_359_756_200_36),
        (vec![vec![[25.0, 25.0 / 3.0]; 2]; 2], 0.5),
    ] {
        let skill = |&[rating, deviation]: &[f64; 2]| Skill {
            estimate: PlayerRating { rating, deviation },
            ..probit.initial_skill()
        };
        let sides: Vec<Vec<Skill>> = teams.iter().map(|team| team.iter().map(skill).collect()).collect();
        let found = probit.win_probabilities(&sides).expect("valid sides");
        assert!((found[0] - expected).abs() < 1e-12 && (found[0] + found[1] - 1.0).abs() < 1e-15, "{found:?}");
        let logistic = plackett_luce(0.0).win_probabilities(&sides).expect("valid sides");
        let further = |chance: f64| (chance - 0.5).abs();
        assert!(expected == 0.5 || further(found[0]) > further(logistic[0]), "{found:?} {logistic:?}");
    }
}

/// S2-3, B-26: the conservative rating subtracts z deviations, by default one.
#[test]
fn conservative_rating_subtracts_z_deviations() {
    let rated = PlayerRating { rating: 25.0, deviation: 8.0 };
    assert_eq!(plackett_luce(0.0).conservative_rating(rated), 17.0);
    assert_eq!(RatingSpec { leaderboard_z: 3.0, ..plackett_luce(0.0) }.conservative_rating(rated), 1.0);
    assert_eq!(elo(16.0).conservative_rating(PlayerRating { rating: 1500.0, deviation: 0.0 }), 1500.0);
}
