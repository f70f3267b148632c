//! Vectors for the five rating systems: the thesis's tables, Glickman's examples, and results of two reference
//! libraries.

use std::cmp::Ordering;

use serde::Deserialize;

use fireteam::domain::queue::ticket::PlayerRating;
use fireteam::domain::rating::{Side, Skill};
use fireteam::domain::ruleset::rating::{RatedGameUnit, RatingSpec, RatingSystem};
use fireteam::domain::time::UnixMs;

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
        active_periods: 0,
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
fn ranks(score: f64) -> [u32; 2] {
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

#[derive(Deserialize)]
struct EloVectors {
    tables: Vec<EloRow>,
    expected: Vec<Expected>,
    draws_k16: Vec<Draw>,
    team_update_k32: Vec<TeamUpdate>,
}

#[derive(Deserialize)]
struct EloRow {
    a: f64,
    b: f64,
    score_a: f64,
    k: f64,
    a_after: f64,
    b_after: f64,
}

#[derive(Deserialize)]
struct Expected {
    a: f64,
    b: f64,
    e: f64,
}

#[derive(Deserialize)]
struct Draw {
    a: f64,
    b: f64,
    after: [f64; 2],
}

#[derive(Deserialize)]
struct TeamUpdate {
    team_a: Vec<f64>,
    team_b: Vec<f64>,
    a_wins: Option<bool>,
    a_exact: Vec<f64>,
    b_exact: Vec<f64>,
}

fn elo_vectors() -> EloVectors {
    serde_json::from_str(include_str!("../../vectors/elo.json")).expect("the vectors of Elo")
}

/// S1-61, S1-66, B-17: the thesis's tables for Elo, with the exact values of its formula instead of the printed ones.
#[test]
fn elo_equals_the_thesis_tables() {
    let vectors = elo_vectors();
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
    for TeamUpdate { team_a, team_b, a_wins, a_exact, b_exact } in elo_vectors().team_update_k32 {
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

#[derive(Deserialize)]
struct GlickoVectors {
    tables: Vec<GlickoRow>,
    rd_growth: Vec<DeviationGrowth>,
    g: Vec<GFactor>,
    interval_2rd: Vec<Interval>,
    period: Vec<Period>,
}

#[derive(Deserialize)]
struct GlickoRow {
    a: [f64; 2],
    b: [f64; 2],
    score_a: f64,
    a_after: [f64; 2],
    b_after: [f64; 2],
}

#[derive(Deserialize)]
struct DeviationGrowth {
    rd: f64,
    c: f64,
    t: u64,
    rd_after: f64,
}

#[derive(Deserialize)]
struct GFactor {
    rd: f64,
    g: f64,
}

#[derive(Deserialize)]
struct Interval {
    r: f64,
    rd: f64,
    low: f64,
    high: f64,
}

#[derive(Deserialize)]
struct Period {
    player: [f64; 2],
    opponents: Vec<[f64; 3]>,
    after: [f64; 2],
}

/// S1-62, S1-63, S1-64, S1-66, B-17: the thesis's tables for Glicko, growth of deviations, the interval, and Glickman's
/// example of three games in one period.
#[test]
fn glicko_equals_the_thesis_tables_and_the_example() {
    let vectors: GlickoVectors =
        serde_json::from_str(include_str!("../../vectors/glicko.json")).expect("the vectors of Glicko");
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
        let spec = RatingSpec { games_per: RatedGameUnit::Opponent, ..glicko(0.0) };
        let found = rate(&spec, &sides, &ranks_against(&scores));
        assert_all_close(&found[..1], &[vec![after]], TOLERANCE, "Glickman's example");
    }
}

/// Ranks of a player and of opponents against whom the player scored `scores`.
fn ranks_against(scores: &[f64]) -> Vec<u32> {
    let opponent = |score: &f64| match score.total_cmp(&0.5) {
        Ordering::Greater => 3,
        Ordering::Equal => 2,
        Ordering::Less => 1,
    };
    std::iter::once(2).chain(scores.iter().map(opponent)).collect()
}

#[derive(Deserialize)]
struct Glicko2Vectors {
    cases: Vec<Glicko2Case>,
}

#[derive(Deserialize)]
struct Glicko2Case {
    id: String,
    player: [f64; 3],
    opponents: Vec<[f64; 2]>,
    scores: Vec<f64>,
    tau: f64,
    result: [f64; 3],
}

/// S1-65: Glicko-2 equals its author's examples, with the volatility to full precision.
#[test]
fn glicko_2_equals_its_examples() {
    let vectors: Glicko2Vectors =
        serde_json::from_str(include_str!("../../vectors/glicko2.json")).expect("the vectors of Glicko-2");
    for Glicko2Case { id, player: [rating, deviation, volatility], opponents, scores, tau, result } in vectors.cases {
        let system =
            RatingSystem::Glicko2 { initial: 1500.0, deviation: 350.0, volatility: 0.06, tau, period_ms: DAY_MS };
        let mut players = vec![skill(rating, deviation, volatility)];
        players.extend(opponents.iter().map(|[rating, deviation]| skill(*rating, *deviation, 0.06)));
        let side = |(player, rank)| Side { players: vec![player], rank };
        let sides: Vec<Side> = players.into_iter().zip(ranks_against(&scores)).map(side).collect();
        for games_per in [RatedGameUnit::Match, RatedGameUnit::Opponent] {
            let spec = RatingSpec { games_per, ..RatingSpec::with_defaults(system) };
            let after = spec.rate_match(&sides, UnixMs(DAY_MS)).expect("a valid match")[0][0];
            let found = [after.estimate.rating, after.estimate.deviation, after.volatility];
            for (found, expected) in found.iter().zip(result) {
                assert_close(*found, expected, TOLERANCE, &id);
            }
        }
    }
}

#[derive(Deserialize)]
struct Cases {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    id: String,
    tau: f64,
    #[serde(default)]
    draw_probability: f64,
    teams: Vec<Vec<[f64; 2]>>,
    ranks: Vec<u32>,
    result: Vec<Vec<[f64; 2]>>,
}

/// S1-65: TrueSkill equals the reference library: duels, teams, many sides, draws, and sides of unequal size.
#[test]
fn trueskill_equals_the_reference() {
    let vectors: Cases =
        serde_json::from_str(include_str!("../../vectors/trueskill.json")).expect("vectors of TrueSkill");
    for Case { id, tau, draw_probability, teams, ranks, result } in vectors.cases {
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

#[derive(Deserialize)]
struct Duels {
    cases_1v1: Vec<Duel>,
}

#[derive(Deserialize)]
struct Duel {
    a: [f64; 2],
    b: [f64; 2],
    outcome_for_a: f64,
    a_after: [f64; 2],
    b_after: [f64; 2],
}

/// S2-1, S2-2, D-10: Plackett-Luce equals OpenSkill; a draw moves unequal ratings.
#[test]
fn plackett_luce_equals_the_reference() {
    let text = include_str!("../../vectors/plackett_luce.json");
    let vectors: Cases = serde_json::from_str(text).expect("the vectors of Plackett-Luce");
    for Case { id, tau, teams, ranks, result, .. } in vectors.cases {
        assert_all_close(&rate(&plackett_luce(tau), &teams, &ranks), &result, TOLERANCE, &id);
    }
    let duels: Duels = serde_json::from_str(text).expect("the vectors of Plackett-Luce");
    for Duel { a, b, outcome_for_a, a_after, b_after } in duels.cases_1v1 {
        let after = rate(&plackett_luce(25.0 / 300.0), &[vec![a], vec![b]], &ranks(outcome_for_a));
        assert_all_close(&after, &[vec![a_after], vec![b_after]], TOLERANCE, &format!("{a:?} {b:?} {outcome_for_a}"));
    }
}

/// S2-3, B-26: the conservative rating subtracts z deviations, by default one.
#[test]
fn conservative_rating_subtracts_z_deviations() {
    let rated = PlayerRating { rating: 25.0, deviation: 8.0 };
    assert_eq!(plackett_luce(0.0).conservative_rating(rated), 17.0);
    assert_eq!(RatingSpec { z: 3.0, ..plackett_luce(0.0) }.conservative_rating(rated), 1.0);
    assert_eq!(elo(16.0).conservative_rating(PlayerRating { rating: 1500.0, deviation: 0.0 }), 1500.0);
}
