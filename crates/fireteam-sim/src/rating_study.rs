//! The thesis's study of Elo and Glicko (S1-67, S1-68): 1,000 players of known strength play 8,000 matches, and what
//! the systems make of them is held against the truth.
//!
//! The thesis does not say how outcomes are drawn, nor how a match of many is rated (B-18). Three readings are tried
//! here; one of them gives the thesis's headlines. Ratings lie around 0, as true strengths do.

use rand::Rng as _;
use rand::seq::index;
use rand_distr::StandardNormal;
use serde::Serialize;

use crate::ground_truth;
use crate::rng::{RngPurpose, SimRng, stream_rng};
use fireteam_domain::rating::{RatingError, Side, Skill};
use fireteam_domain::ruleset::rating::{RatingSpec, RatingSystem};
use fireteam_domain::time::UnixMs;

/// Players, as in the thesis.
pub const STUDY_PLAYERS: usize = 1_000;
/// Matches, as in the thesis.
pub const STUDY_MATCHES: usize = 8_000;
/// Players in a match, at most.
pub const STUDY_MATCH_PLAYERS_MAX: usize = 12;
/// Matches of a player after which convergence is looked at.
pub const CHECKPOINT_MATCHES: [u32; 4] = [10, 24, 100, 200];
/// Whose histories are kept: how many percent of players are truly weaker.
pub const TRACKED_PERCENTILES: [usize; 5] = [1, 25, 50, 75, 99];
/// The standard deviation of true strengths, points of Elo.
pub const TRUE_SKILL_SD: f64 = 180.0;
/// The scale's ends.
const TRUE_SKILL_MAX: f64 = 1_000.0;
/// Matches after which nearly everybody has played 200.
pub const EXTENDED_STUDY_MATCHES: usize = 40_000;
/// Players are told apart in histograms by so many points.
pub const HISTOGRAM_BIN_POINTS: f64 = 50.0;

/// How a match comes out, and how it is rated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StudyScheme {
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
pub struct StudyResult {
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
    pub convergence: Vec<ConvergencePoint>,
    /// Players by rating, in bins of `BIN` points from the scale's lower end: truly, and as rated.
    pub histogram: Vec<(f64, u32, u32)>,
    /// Distances from the truth, the percentiles 1 to 100, at each of `LOOKED_AT`.
    pub percentiles: Vec<Vec<f64>>,
    /// How the ratings of a few came about, the truly weakest first: one for each of `FOLLOWED`.
    pub histories: Vec<RatingHistory>,
}

/// What a system made of one player, match by match.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatingHistory {
    /// The true strength.
    pub truth: f64,
    /// The rating at first, and after each of the player's matches, those beyond the thesis's 8,000 included.
    pub ratings: Vec<f64>,
}

/// How near ratings are after so many matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConvergencePoint {
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
pub fn studied_systems() -> [(&'static str, RatingSpec); 2] {
    let elo = RatingSystem::Elo { initial: 0.0, k: 16.0, scale: 400.0 };
    let glicko =
        RatingSystem::Glicko { initial: 0.0, deviation: 350.0, min_deviation: 0.0, c: 0.0, period_ms: 86_400_000 };
    [("elo", RatingSpec::with_defaults(elo)), ("glicko", RatingSpec::with_defaults(glicko))]
}

/// Plays the study with one system: `matches`, at least the thesis's, for convergence beyond them. The same seed has
/// the same players and the same matches whatever the system.
pub fn run_study(
    (system, spec): (&'static str, &RatingSpec),
    reading: StudyScheme,
    seed: u64,
    matches: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<StudyResult, RatingError> {
    let matches = matches.max(STUDY_MATCHES);
    let truths = draw_true_skills(seed);
    let mut skills = vec![spec.initial_skill(); STUDY_PLAYERS];
    // Distances at each of `LOOKED_AT`, one for each player that has come so far.
    let mut looked: Vec<Vec<f64>> = vec![Vec::new(); CHECKPOINT_MATCHES.len()];
    let mut at_the_end = Vec::new();
    let (followed, mut histories) = tracked_players(&truths, spec.initial_skill().estimate.rating);
    for number in 0..matches {
        let mut dice = stream_rng(seed, RngPurpose::Study, number as u64 + 1, 0);
        let players = draw_players(reading, &mut dice);
        let after = match reading {
            StudyScheme::AllAgainstAll => rate_all_against_all(spec, &truths, &skills, &players, &mut dice)?,
            StudyScheme::OneOrder => rate_one_order(spec, &truths, &skills, &players, &mut dice)?,
            StudyScheme::TwoTeams => rate_two_teams(spec, &truths, &skills, &players)?,
        };
        for (&player, skill) in players.iter().zip(after) {
            skills[player] = skill;
            if let Some(at) = CHECKPOINT_MATCHES.iter().position(|matches| *matches == skill.match_count) {
                looked[at].push((skill.estimate.rating - truths[player]).abs());
            }
            if let Some(at) = followed.iter().position(|it| *it == player) {
                histories[at].ratings.push(skill.estimate.rating);
            }
        }
        if number + 1 == STUDY_MATCHES {
            at_the_end.clone_from(&skills);
        }
        if number.is_multiple_of(500) {
            progress(number as f64 / matches as f64);
        }
    }
    Ok(StudyResult { histories, ..summarize_study(system, &truths, &at_the_end, &looked) })
}

/// Who is followed, and their histories before the first match.
fn tracked_players(truths: &[f64], rating: f64) -> (Vec<usize>, Vec<RatingHistory>) {
    let mut order: Vec<usize> = (0..truths.len()).collect();
    order.sort_by(|&one, &other| truths[one].total_cmp(&truths[other]));
    let players: Vec<usize> = TRACKED_PERCENTILES.iter().map(|percent| order[truths.len() * percent / 100]).collect();
    let histories =
        players.iter().map(|&player| RatingHistory { truth: truths[player], ratings: vec![rating] }).collect();
    (players, histories)
}

/// True strengths: normal, none beyond the ends of the scale.
fn draw_true_skills(seed: u64) -> Vec<f64> {
    let mut dice = stream_rng(seed, RngPurpose::Study, 0, 0);
    let truth = |_| {
        let normal: f64 = dice.sample(StandardNormal);
        (TRUE_SKILL_SD * normal).clamp(-TRUE_SKILL_MAX, TRUE_SKILL_MAX)
    };
    (0..STUDY_PLAYERS).map(truth).collect()
}

fn draw_players(reading: StudyScheme, dice: &mut SimRng) -> Vec<usize> {
    let count = match reading {
        StudyScheme::AllAgainstAll | StudyScheme::OneOrder => dice.random_range(2..=STUDY_MATCH_PLAYERS_MAX),
        StudyScheme::TwoTeams => 2 * dice.random_range(1..=STUDY_MATCH_PLAYERS_MAX / 2),
    };
    index::sample(dice, STUDY_PLAYERS, count).into_vec()
}

/// Each player is rated as one against those that it beat and those that beat it: in the eyes of the system, a
/// free-for-all in which the player came in between the two. All are rated from what they had before the match.
fn rate_all_against_all(
    spec: &RatingSpec,
    truths: &[f64],
    skills: &[Skill],
    players: &[usize],
    dice: &mut SimRng,
) -> Result<Vec<Skill>, RatingError> {
    let count = players.len();
    let mut won = vec![false; count * count];
    for one in 0..count {
        for other in one + 1..count {
            let wins =
                dice.random_bool(ground_truth::pair_win_probability(truths[players[one]], truths[players[other]]));
            (won[one * count + other], won[other * count + one]) = (wins, !wins);
        }
    }
    let side = |player: usize, rank| Side { players: vec![skills[player]], rank };
    let rated = |one: usize| {
        let others = (0..count).filter(|other| *other != one);
        let others = others.map(|other| side(players[other], if won[one * count + other] { 3 } else { 1 }));
        let sides: Vec<Side> = std::iter::once(side(players[one], 2)).chain(others).collect();
        Ok(spec.rate_match(&sides, UnixMs(0))?[0][0])
    };
    (0..count).map(rated).collect()
}

fn rate_one_order(
    spec: &RatingSpec,
    truths: &[f64],
    skills: &[Skill],
    players: &[usize],
    dice: &mut SimRng,
) -> Result<Vec<Skill>, RatingError> {
    let strengths: Vec<f64> = players.iter().map(|&player| truths[player]).collect();
    let ranks = ground_truth::draw_ranks(&strengths, dice);
    let side = |(&player, rank): (&usize, u32)| Side { players: vec![skills[player]], rank };
    let sides: Vec<Side> = players.iter().zip(ranks).map(side).collect();
    Ok(spec.rate_match(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn rate_two_teams(
    spec: &RatingSpec,
    truths: &[f64],
    skills: &[Skill],
    players: &[usize],
) -> Result<Vec<Skill>, RatingError> {
    let halves = [&players[..players.len() / 2], &players[players.len() / 2..]];
    let strength = |team: &[usize]| team.iter().map(|&player| truths[player]).sum::<f64>();
    let first_wins = strength(halves[1]) <= strength(halves[0]);
    let side = |team: &[usize], won: bool| Side {
        players: team.iter().map(|&player| skills[player]).collect(),
        rank: if won { 1 } else { 2 },
    };
    let sides = [side(halves[0], first_wins), side(halves[1], !first_wins)];
    Ok(spec.rate_match(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn summarize_study(system: &'static str, truths: &[f64], skills: &[Skill], looked: &[Vec<f64>]) -> StudyResult {
    let count = skills.len() as f64;
    let distances: Vec<f64> =
        skills.iter().zip(truths).map(|(skill, truth)| (skill.estimate.rating - truth).abs()).collect();
    let mean = skills.iter().map(|skill| skill.estimate.rating).sum::<f64>() / count;
    let variance = skills.iter().map(|skill| (skill.estimate.rating - mean).powi(2)).sum::<f64>() / count;
    let bins = (2.0 * TRUE_SKILL_MAX / HISTOGRAM_BIN_POINTS) as usize;
    let mut histogram: Vec<(f64, u32, u32)> =
        (0..bins).map(|bin| (HISTOGRAM_BIN_POINTS * bin as f64 - TRUE_SKILL_MAX, 0, 0)).collect();
    let bin = |value: f64| (((value + TRUE_SKILL_MAX) / HISTOGRAM_BIN_POINTS).max(0.0) as usize).min(bins - 1);
    for (skill, truth) in skills.iter().zip(truths) {
        histogram[bin(*truth)].1 += 1;
        histogram[bin(skill.estimate.rating)].2 += 1;
    }
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let looked: Vec<Vec<f64>> = looked.iter().map(|values| sorted(values)).collect();
    let convergence = CHECKPOINT_MATCHES.iter().zip(&looked).map(|(&matches, values)| ConvergencePoint {
        matches,
        players: values.len(),
        within_50: percent_within(values, 50.0),
        within_100: percent_within(values, 100.0),
        p50: nearest_rank(values, 50),
        p90: nearest_rank(values, 90),
        max: nearest_rank(values, 100),
    });
    StudyResult {
        system,
        matches_mean: skills.iter().map(|skill| f64::from(skill.match_count)).sum::<f64>() / count,
        within: [25.0, 50.0, 100.0, 200.0].map(|points| (points, percent_within(&distances, points))),
        distance_mean: distances.iter().sum::<f64>() / count,
        distance_max: distances.iter().copied().fold(0.0, f64::max),
        rating_sd: variance.sqrt(),
        convergence: convergence.collect(),
        histogram,
        percentiles: looked
            .iter()
            .map(|values| (1..=100).map(|percent| nearest_rank(values, percent)).collect())
            .collect(),
        histories: Vec::new(),
    }
}

/// How many of the distances are within so many points, percent.
fn percent_within(distances: &[f64], points: f64) -> f64 {
    100.0 * distances.iter().filter(|distance| **distance <= points).count() as f64 / distances.len().max(1) as f64
}

/// The nearest rank of sorted values; 0 where there are none.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(at).copied().unwrap_or(0.0)
}
