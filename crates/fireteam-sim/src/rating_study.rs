//! The thesis's study of Elo and Glicko: 1,000 players of known true skill play 8,000 matches, and ratings are compared
//! with true skill.
//!
//! The thesis does not say how results are drawn, nor how a match of many players is rated. Three schemes are
//! implemented; one of them reproduces the thesis's results. Ratings and true skills are centered on 0.

use rand::Rng as _;
use rand::seq::index;
use rand_distr::StandardNormal;
use serde::Serialize;

use crate::ground_truth;
use crate::rng::{RngPurpose, SimRng, stream_rng};
use fireteam_domain::rating::{RatingError, Side, Skill};
use fireteam_domain::ruleset::rating::{RatingSpec, RatingSystem};
use fireteam_domain::time::UnixMs;

/// Number of players, as in the thesis.
pub const STUDY_PLAYERS: usize = 1_000;
/// Number of matches, as in the thesis.
pub const STUDY_MATCHES: usize = 8_000;
/// Maximum number of players in a match.
pub const STUDY_MATCH_PLAYERS_MAX: usize = 12;
/// Numbers of matches of a player at which convergence is measured.
pub const CHECKPOINT_MATCHES: [u32; 4] = [10, 24, 100, 200];
/// Players whose history is kept, as percentiles of true skill.
pub const TRACKED_PERCENTILES: [usize; 5] = [1, 25, 50, 75, 99];
/// Standard deviation of true skill, in Elo points.
pub const TRUE_SKILL_SD: f64 = 180.0;
/// True skills are clamped to plus or minus this value.
const TRUE_SKILL_MAX: f64 = 1_000.0;
/// Number of matches after which nearly all players have played 200.
pub const EXTENDED_STUDY_TOTAL_MATCHES: usize = 40_000;
/// Width of a histogram bin in points.
pub const HISTOGRAM_BIN_POINTS: f64 = 50.0;

/// Scheme by which match results are drawn and rated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StudyScheme {
    /// 2 to 12 players. Each pair has its own result, drawn with Elo's probability for their true skills. A player's
    /// changes are averaged over the opponents.
    AllAgainstAll,
    /// 2 to 12 players in one ranking, drawn by Plackett-Luce. Each pair has the same probabilities as above, but their
    /// results are correlated.
    OneOrder,
    /// Two teams of 1 to 6. The team with the higher mean true skill wins.
    TwoTeams,
}

/// Result of the study for one rating system.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StudyResult {
    /// Name of the rating system.
    pub system: &'static str,
    /// Mean number of matches per player after the thesis's 8,000.
    pub matches_mean: f64,
    /// Percentages of players within 25, 50, 100 and 200 points of their true skill, as `(points, percent)`.
    pub within: [(f64, f64); 4],
    /// Mean distance from the true skill.
    pub distance_mean: f64,
    /// Maximum distance.
    pub distance_max: f64,
    /// Standard deviation of the ratings.
    pub rating_sd: f64,
    /// Convergence at each of `CHECKPOINT_MATCHES`.
    pub convergence: Vec<ConvergencePoint>,
    /// Histogram in bins of `HISTOGRAM_BIN_POINTS`, from the lowest: lower end, players by true skill, players by
    /// rating.
    pub histogram: Vec<(f64, u32, u32)>,
    /// Percentiles 1 to 100 of the distance from the true skill, at each of `CHECKPOINT_MATCHES`.
    pub percentiles: Vec<Vec<f64>>,
    /// Histories of the players at `TRACKED_PERCENTILES`, weakest first.
    pub histories: Vec<RatingHistory>,
}

/// Ratings of one player, match by match.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RatingHistory {
    /// True skill.
    pub truth: f64,
    /// Initial rating, then the rating after each match of the player, including those beyond 8,000.
    pub ratings: Vec<f64>,
}

/// Distance from the true skill after a number of matches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConvergencePoint {
    /// Number of matches of the player.
    pub matches: u32,
    /// Number of players with at least that number of matches.
    pub players: usize,
    /// Percentage of them within 50 points.
    pub within_50: f64,
    /// Percentage of them within 100 points.
    pub within_100: f64,
    /// Median distance.
    pub p50: f64,
    /// 90th percentile of the distance.
    pub p90: f64,
    /// Maximum distance.
    pub max: f64,
}

/// Rating systems of the study: Elo with K 16, and Glicko with an unrated player's values, both centered on 0.
pub fn studied_systems() -> [(&'static str, RatingSpec); 2] {
    let elo = RatingSystem::Elo { initial: 0.0, k: 16.0, scale: 400.0 };
    let glicko =
        RatingSystem::Glicko { initial: 0.0, deviation: 350.0, min_deviation: 0.0, c: 0.0, period_ms: 86_400_000 };
    [("elo", RatingSpec::with_defaults(elo)), ("glicko", RatingSpec::with_defaults(glicko))]
}

/// Runs the study for one system, over `matches` matches and at least the thesis's number. The same seed gives the same
/// players and matches for every system.
pub fn run_study(
    (system, spec): (&'static str, &RatingSpec),
    scheme: StudyScheme,
    seed: u64,
    matches: usize,
    progress: &mut dyn FnMut(f64),
) -> Result<StudyResult, RatingError> {
    let matches = matches.max(STUDY_MATCHES);
    let true_skills = draw_true_skills(seed);
    let mut skills = vec![spec.initial_skill(); STUDY_PLAYERS];
    // Distances at each of `CHECKPOINT_MATCHES`, one for each player that reached it.
    let mut distances: Vec<Vec<f64>> = vec![Vec::new(); CHECKPOINT_MATCHES.len()];
    let mut final_skills = Vec::new();
    let (tracked, mut histories) = tracked_players(&true_skills, spec.initial_skill().estimate.rating);
    for match_index in 0..matches {
        let mut rng = stream_rng(seed, RngPurpose::Study, match_index as u64 + 1, 0);
        let players = draw_players(scheme, &mut rng);
        let after = match scheme {
            StudyScheme::AllAgainstAll => rate_pairwise_results(spec, &true_skills, &skills, &players, &mut rng)?,
            StudyScheme::OneOrder => rate_one_finishing_order(spec, &true_skills, &skills, &players, &mut rng)?,
            StudyScheme::TwoTeams => rate_two_teams(spec, &true_skills, &skills, &players)?,
        };
        for (&player, skill) in players.iter().zip(after) {
            skills[player] = skill;
            if let Some(index) = CHECKPOINT_MATCHES.iter().position(|matches| *matches == skill.match_count) {
                distances[index].push((skill.estimate.rating - true_skills[player]).abs());
            }
            if let Some(index) = tracked.iter().position(|tracked_player| *tracked_player == player) {
                histories[index].ratings.push(skill.estimate.rating);
            }
        }
        if match_index + 1 == STUDY_MATCHES {
            final_skills.clone_from(&skills);
        }
        if match_index.is_multiple_of(500) {
            progress(match_index as f64 / matches as f64);
        }
    }
    Ok(StudyResult { histories, ..summarize_study(system, &true_skills, &final_skills, &distances) })
}

/// Tracked players, and their histories before the first match.
fn tracked_players(true_skills: &[f64], rating: f64) -> (Vec<usize>, Vec<RatingHistory>) {
    let mut order: Vec<usize> = (0..true_skills.len()).collect();
    order.sort_by(|&first, &second| true_skills[first].total_cmp(&true_skills[second]));
    let players: Vec<usize> =
        TRACKED_PERCENTILES.iter().map(|percent| order[true_skills.len() * percent / 100]).collect();
    let histories =
        players.iter().map(|&player| RatingHistory { truth: true_skills[player], ratings: vec![rating] }).collect();
    (players, histories)
}

/// True skills, normally distributed and clamped.
fn draw_true_skills(seed: u64) -> Vec<f64> {
    let mut rng = stream_rng(seed, RngPurpose::Study, 0, 0);
    let draw_true_skill = |_| {
        let normal: f64 = rng.sample(StandardNormal);
        (TRUE_SKILL_SD * normal).clamp(-TRUE_SKILL_MAX, TRUE_SKILL_MAX)
    };
    (0..STUDY_PLAYERS).map(draw_true_skill).collect()
}

fn draw_players(scheme: StudyScheme, rng: &mut SimRng) -> Vec<usize> {
    let count = match scheme {
        StudyScheme::AllAgainstAll | StudyScheme::OneOrder => rng.random_range(2..=STUDY_MATCH_PLAYERS_MAX),
        StudyScheme::TwoTeams => 2 * rng.random_range(1..=STUDY_MATCH_PLAYERS_MAX / 2),
    };
    index::sample(rng, STUDY_PLAYERS, count).into_vec()
}

/// Rates each player as one player between those it lost to and those it beat. The rating system sees a free-for-all
/// with the player in the middle. All are rated from their skills before the match.
fn rate_pairwise_results(
    spec: &RatingSpec,
    true_skills: &[f64],
    skills: &[Skill],
    players: &[usize],
    rng: &mut SimRng,
) -> Result<Vec<Skill>, RatingError> {
    let count = players.len();
    let mut won = vec![false; count * count];
    for first in 0..count {
        for second in first + 1..count {
            let first_wins = rng.random_bool(ground_truth::pair_win_probability(
                true_skills[players[first]],
                true_skills[players[second]],
            ));
            (won[first * count + second], won[second * count + first]) = (first_wins, !first_wins);
        }
    }
    let side = |player: usize, rank| Side { players: vec![skills[player]], rank };
    let rate_player = |first: usize| {
        let others = (0..count).filter(|second| *second != first);
        let others = others.map(|second| side(players[second], if won[first * count + second] { 3 } else { 1 }));
        let sides: Vec<Side> = std::iter::once(side(players[first], 2)).chain(others).collect();
        Ok(spec.rate_match(&sides, UnixMs(0))?[0][0])
    };
    (0..count).map(rate_player).collect()
}

fn rate_one_finishing_order(
    spec: &RatingSpec,
    true_skills: &[f64],
    skills: &[Skill],
    players: &[usize],
    rng: &mut SimRng,
) -> Result<Vec<Skill>, RatingError> {
    let strengths: Vec<f64> = players.iter().map(|&player| true_skills[player]).collect();
    let ranks = ground_truth::draw_ranks(&strengths, rng);
    let side = |(&player, rank): (&usize, u32)| Side { players: vec![skills[player]], rank };
    let sides: Vec<Side> = players.iter().zip(ranks).map(side).collect();
    Ok(spec.rate_match(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn rate_two_teams(
    spec: &RatingSpec,
    true_skills: &[f64],
    skills: &[Skill],
    players: &[usize],
) -> Result<Vec<Skill>, RatingError> {
    let halves = [&players[..players.len() / 2], &players[players.len() / 2..]];
    let total_skill = |team: &[usize]| team.iter().map(|&player| true_skills[player]).sum::<f64>();
    let first_wins = total_skill(halves[1]) <= total_skill(halves[0]);
    let side = |team: &[usize], won: bool| Side {
        players: team.iter().map(|&player| skills[player]).collect(),
        rank: if won { 1 } else { 2 },
    };
    let sides = [side(halves[0], first_wins), side(halves[1], !first_wins)];
    Ok(spec.rate_match(&sides, UnixMs(0))?.into_iter().flatten().collect())
}

fn summarize_study(
    system: &'static str,
    true_skills: &[f64],
    skills: &[Skill],
    distances_at_checkpoints: &[Vec<f64>],
) -> StudyResult {
    let count = skills.len() as f64;
    let distances: Vec<f64> =
        skills.iter().zip(true_skills).map(|(skill, true_skill)| (skill.estimate.rating - true_skill).abs()).collect();
    let mean = skills.iter().map(|skill| skill.estimate.rating).sum::<f64>() / count;
    let variance = skills.iter().map(|skill| (skill.estimate.rating - mean).powi(2)).sum::<f64>() / count;
    let bins = (2.0 * TRUE_SKILL_MAX / HISTOGRAM_BIN_POINTS) as usize;
    let mut histogram: Vec<(f64, u32, u32)> =
        (0..bins).map(|bin| (HISTOGRAM_BIN_POINTS * bin as f64 - TRUE_SKILL_MAX, 0, 0)).collect();
    let bin = |value: f64| (((value + TRUE_SKILL_MAX) / HISTOGRAM_BIN_POINTS).max(0.0) as usize).min(bins - 1);
    for (skill, true_skill) in skills.iter().zip(true_skills) {
        histogram[bin(*true_skill)].1 += 1;
        histogram[bin(skill.estimate.rating)].2 += 1;
    }
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.sort_unstable_by(f64::total_cmp);
        values
    };
    let distances_at_checkpoints: Vec<Vec<f64>> =
        distances_at_checkpoints.iter().map(|values| sorted(values)).collect();
    let convergence =
        CHECKPOINT_MATCHES.iter().zip(&distances_at_checkpoints).map(|(&matches, values)| ConvergencePoint {
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
        percentiles: distances_at_checkpoints
            .iter()
            .map(|values| (1..=100).map(|percent| nearest_rank(values, percent)).collect())
            .collect(),
        histories: Vec::new(),
    }
}

/// Percentage of the distances within `points`.
fn percent_within(distances: &[f64], points: f64) -> f64 {
    100.0 * distances.iter().filter(|distance| **distance <= points).count() as f64 / distances.len().max(1) as f64
}

/// Nearest rank of sorted values; 0 without values.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let index = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(index).copied().unwrap_or(0.0)
}
