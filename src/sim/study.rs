//! The thesis's study of Elo and Glicko (S1-67, S1-68): 1,000 players of known strength play 8,000 matches, and what
//! the systems make of them is held against the truth.
//!
//! The thesis does not say how outcomes are drawn, nor how a match of many is rated (B-18). Three readings are tried
//! here; one of them gives the thesis's headlines. Ratings lie around 0, as true strengths do.

use rand::Rng as _;
use rand::seq::index;
use rand_distr::StandardNormal;
use serde::Serialize;

use crate::domain::rating::{RateError, Side, Skill};
use crate::domain::ruleset::rating::{RatingSpec, RatingSystem};
use crate::domain::time::UnixMs;
use crate::sim::dice::{About, Dice, dice};
use crate::sim::truth;

/// Players, as in the thesis.
pub const PLAYERS: usize = 1_000;
/// Matches, as in the thesis.
pub const MATCHES: usize = 8_000;
/// Players in a match, at most.
pub const MATCH_MAX: usize = 12;
/// Matches of a player after which convergence is looked at.
pub const LOOKED_AT: [u32; 4] = [10, 24, 100, 200];
/// Whose histories are kept: how many percent of players are truly weaker.
pub const FOLLOWED: [usize; 5] = [1, 25, 50, 75, 99];
/// The standard deviation of true strengths, points of Elo.
pub const SD: f64 = 180.0;
/// The scale's ends.
const ENDS: f64 = 1_000.0;
/// Matches after which nearly everybody has played 200.
pub const MATCHES_LATER: usize = 40_000;
/// Players are told apart in histograms by so many points.
pub const BIN: f64 = 50.0;

/// How a match comes out, and how it is rated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// 2 to 12 players; every two of them have a result of their own, drawn with the chance that Elo gives it between
    /// their true strengths; each player's changes are averaged over the opponents.
    AllAgainstAll,
    /// 2 to 12 players come in in one order, drawn after Plackett and Luce; any two have the same chances as above, but
    /// their results hang together.
    OneOrder,
    /// Two teams of 1 to 6; the team whose mean true strength is greater wins.
    TwoTeams,
}

/// What one system made of the study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The system.
    pub system: &'static str,
    /// Matches that a player has played, mean, at the end of the thesis's 8,000.
    pub matches_mean: f64,
    /// Players within so many points of the truth, percent: 25, 50, 100, 200.
    pub within: [(f64, f64); 4],
    /// The mean distance from the truth.
    pub distance_mean: f64,
    /// The greatest.
    pub distance_max: f64,
    /// The standard deviation of ratings.
    pub rating_sd: f64,
    /// After so many matches of a player.
    pub convergence: Vec<Convergence>,
    /// Players by rating, in bins of `BIN` points from the scale's lower end: truly, and as rated.
    pub histogram: Vec<(f64, u32, u32)>,
    /// Distances from the truth, the percentiles 1 to 100, at each of `LOOKED_AT`.
    pub percentiles: Vec<Vec<f64>>,
    /// How the ratings of a few came about, the truly weakest first: one for each of `FOLLOWED`.
    pub histories: Vec<History>,
}

/// What a system made of one player, match by match.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// The true strength.
    pub truth: f64,
    /// The rating at first, and after each of the player's matches, those beyond the thesis's 8,000 included.
    pub ratings: Vec<f64>,
}

/// How near ratings are after so many matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Convergence {
    /// Matches of the player.
    pub matches: u32,
    /// Players who have played as many.
    pub players: usize,
    /// Of those, within 50 points, percent.
    pub within_50: f64,
    /// Within 100.
    pub within_100: f64,
    /// Half are no farther.
    pub p50: f64,
    /// Nine in ten are no farther.
    pub p90: f64,
    /// The farthest.
    pub max: f64,
}

/// The systems of the study: Elo with K 16, and Glicko as unrated players begin, both around 0.
pub fn systems() -> [(&'static str, RatingSpec); 2] {
    let elo = RatingSystem::Elo { initial: 0.0, k: 16.0, scale: 400.0 };
    let glicko =
        RatingSystem::Glicko { initial: 0.0, deviation: 350.0, min_deviation: 0.0, c: 0.0, period_ms: 86_400_000 };
    [("elo", RatingSpec::plain(elo)), ("glicko", RatingSpec::plain(glicko))]
}

/// Plays the study with one system: `matches`, at least the thesis's, for convergence beyond them. The same seed has
/// the same players and the same matches whatever the system.
pub fn run(
    (system, spec): (&'static str, &RatingSpec),
    reading: Reading,
    seed: u64,
    matches: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, RateError> {
    let matches = matches.max(MATCHES);
    let truths = truths(seed);
    let mut skills = vec![spec.newcomer(); PLAYERS];
    // Distances at each of `LOOKED_AT`, one for each player that has come so far.
    let mut looked: Vec<Vec<f64>> = vec![Vec::new(); LOOKED_AT.len()];
    let mut at_the_end = Vec::new();
    let (followed, mut histories) = followed(&truths, spec.newcomer().rated.rating);
    for number in 0..matches {
        let mut dice = dice(seed, About::Study, number as u64 + 1, 0);
        let players = draw(reading, &mut dice);
        let after = match reading {
            Reading::AllAgainstAll => all_against_all(spec, &truths, &skills, &players, &mut dice)?,
            Reading::OneOrder => one_order(spec, &truths, &skills, &players, &mut dice)?,
            Reading::TwoTeams => two_teams(spec, &truths, &skills, &players)?,
        };
        for (&player, skill) in players.iter().zip(after) {
            skills[player] = skill;
            if let Some(at) = LOOKED_AT.iter().position(|matches| *matches == skill.matches) {
                looked[at].push((skill.rated.rating - truths[player]).abs());
            }
            if let Some(at) = followed.iter().position(|it| *it == player) {
                histories[at].ratings.push(skill.rated.rating);
            }
        }
        if number + 1 == MATCHES {
            at_the_end.clone_from(&skills);
        }
        if number.is_multiple_of(500) {
            progress(number as f64 / matches as f64);
        }
    }
    Ok(Outcome { histories, ..outcome(system, &truths, &at_the_end, &looked) })
}

/// Who is followed, and their histories before the first match.
fn followed(truths: &[f64], rating: f64) -> (Vec<usize>, Vec<History>) {
    let mut order: Vec<usize> = (0..truths.len()).collect();
    order.sort_by(|&one, &other| truths[one].total_cmp(&truths[other]));
    let players: Vec<usize> = FOLLOWED.iter().map(|percent| order[truths.len() * percent / 100]).collect();
    let histories = players.iter().map(|&player| History { truth: truths[player], ratings: vec![rating] }).collect();
    (players, histories)
}

/// True strengths: normal, none beyond the ends of the scale.
fn truths(seed: u64) -> Vec<f64> {
    let mut dice = dice(seed, About::Study, 0, 0);
    let truth = |_| {
        let normal: f64 = dice.sample(StandardNormal);
        (SD * normal).clamp(-ENDS, ENDS)
    };
    (0..PLAYERS).map(truth).collect()
}

fn draw(reading: Reading, dice: &mut Dice) -> Vec<usize> {
    let count = match reading {
        Reading::AllAgainstAll | Reading::OneOrder => dice.random_range(2..=MATCH_MAX),
        Reading::TwoTeams => 2 * dice.random_range(1..=MATCH_MAX / 2),
    };
    index::sample(dice, PLAYERS, count).into_vec()
}

/// Each player is rated as one against those that it beat and those that beat it: in the eyes of the system, a
/// free-for-all in which the player came in between the two. All are rated from what they had before the match.
fn all_against_all(
    spec: &RatingSpec,
    truths: &[f64],
    skills: &[Skill],
    players: &[usize],
    dice: &mut Dice,
) -> Result<Vec<Skill>, RateError> {
    let count = players.len();
    let mut won = vec![false; count * count];
    for one in 0..count {
        for other in one + 1..count {
            let wins = dice.random_bool(truth::beats(truths[players[one]], truths[players[other]]));
            (won[one * count + other], won[other * count + one]) = (wins, !wins);
        }
    }
    let side = |player: usize, rank| Side { players: vec![skills[player]], rank };
    let rated = |one: usize| {
        let others = (0..count).filter(|other| *other != one);
        let others = others.map(|other| side(players[other], if won[one * count + other] { 3 } else { 1 }));
        let sides: Vec<Side> = std::iter::once(side(players[one], 2)).chain(others).collect();
        Ok(spec.rate(&sides, UnixMs(0))?[0][0])
    };
    (0..count).map(rated).collect()
}

fn one_order(
    spec: &RatingSpec,
    truths: &[f64],
    skills: &[Skill],
    players: &[usize],
    dice: &mut Dice,
) -> Result<Vec<Skill>, RateError> {
    let strengths: Vec<f64> = players.iter().map(|&player| truths[player]).collect();
    let ranks = truth::ranks(&strengths, dice);
    let side = |(&player, rank): (&usize, u32)| Side { players: vec![skills[player]], rank };
    let sides: Vec<Side> = players.iter().zip(ranks).map(side).collect();
    Ok(spec.rate(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn two_teams(spec: &RatingSpec, truths: &[f64], skills: &[Skill], players: &[usize]) -> Result<Vec<Skill>, RateError> {
    let halves = [&players[..players.len() / 2], &players[players.len() / 2..]];
    let strength = |team: &[usize]| team.iter().map(|&player| truths[player]).sum::<f64>();
    let first_wins = strength(halves[1]) <= strength(halves[0]);
    let side = |team: &[usize], won: bool| Side {
        players: team.iter().map(|&player| skills[player]).collect(),
        rank: if won { 1 } else { 2 },
    };
    let sides = [side(halves[0], first_wins), side(halves[1], !first_wins)];
    Ok(spec.rate(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn outcome(system: &'static str, truths: &[f64], skills: &[Skill], looked: &[Vec<f64>]) -> Outcome {
    let count = skills.len() as f64;
    let distances: Vec<f64> =
        skills.iter().zip(truths).map(|(skill, truth)| (skill.rated.rating - truth).abs()).collect();
    let mean = skills.iter().map(|skill| skill.rated.rating).sum::<f64>() / count;
    let variance = skills.iter().map(|skill| (skill.rated.rating - mean).powi(2)).sum::<f64>() / count;
    let bins = (2.0 * ENDS / BIN) as usize;
    let mut histogram: Vec<(f64, u32, u32)> = (0..bins).map(|bin| (BIN * bin as f64 - ENDS, 0, 0)).collect();
    let bin = |value: f64| (((value + ENDS) / BIN).max(0.0) as usize).min(bins - 1);
    for (skill, truth) in skills.iter().zip(truths) {
        histogram[bin(*truth)].1 += 1;
        histogram[bin(skill.rated.rating)].2 += 1;
    }
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let looked: Vec<Vec<f64>> = looked.iter().map(|values| sorted(values)).collect();
    let convergence = LOOKED_AT.iter().zip(&looked).map(|(&matches, values)| Convergence {
        matches,
        players: values.len(),
        within_50: within(values, 50.0),
        within_100: within(values, 100.0),
        p50: rank(values, 50),
        p90: rank(values, 90),
        max: rank(values, 100),
    });
    Outcome {
        system,
        matches_mean: skills.iter().map(|skill| f64::from(skill.matches)).sum::<f64>() / count,
        within: [25.0, 50.0, 100.0, 200.0].map(|points| (points, within(&distances, points))),
        distance_mean: distances.iter().sum::<f64>() / count,
        distance_max: distances.iter().copied().fold(0.0, f64::max),
        rating_sd: variance.sqrt(),
        convergence: convergence.collect(),
        histogram,
        percentiles: looked.iter().map(|values| (1..=100).map(|percent| rank(values, percent)).collect()).collect(),
        histories: Vec::new(),
    }
}

/// How many of the distances are within so many points, percent.
fn within(distances: &[f64], points: f64) -> f64 {
    100.0 * distances.iter().filter(|distance| **distance <= points).count() as f64 / distances.len().max(1) as f64
}

/// The nearest rank of sorted values; 0 where there are none.
fn rank(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}
