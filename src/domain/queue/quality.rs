//! How good a match is, and whether that is good enough: soft score, leaderboard distance, similarity or chances to win,
//! plus what waiting adds, minus what regions and grudges take.

mod chances;
mod similarity;

pub use chances::{chance_to_draw, chances_to_win};
pub use similarity::{average_similarity, category_of, category_similarity};

use crate::domain::filter::Seen;
use crate::domain::queue::ticket::Rated;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{Quality, WaitBonus};
use crate::domain::score::score_between;

/// One party of a match, as far as quality goes.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// As soft filters see it.
    pub seen: Seen<'a>,
    /// Its players' ratings; those that are no numbers have been made 0.
    pub ratings: &'a [f64],
    /// The same with their deviations.
    pub rated: &'a [Rated],
    /// Its place on the leaderboard, if known.
    pub place: Option<f64>,
    /// How long it has waited, milliseconds.
    pub waited_ms: u64,
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team: u16,
}

/// How good a match is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worth {
    /// By the ruleset's quality, bonus and costs included; higher is better.
    pub quality: f64,
    /// It is good enough.
    pub passes: bool,
    /// How much of quality is missing; 0 when it passes. What no bonus can make good is infinite.
    pub short_by: f64,
}

/// What a quality must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The least that passes.
    pub least: f64,
    /// Even that does not; only more does.
    pub exclusive: bool,
}

/// `scale * exp(-d² / (2 sigma²))` over a distance in leaderboard positions (S2-9).
pub fn gauss(sigma: f64, scale: f64, distance: f64) -> f64 {
    scale * (-distance * distance / (2.0 * sigma * sigma)).exp()
}

/// What waiting adds: `max(0, combined minutes - free minutes) * per_minute`, unbounded (S2-11).
pub fn bonus(rule: &WaitBonus, combined_ms: u64) -> f64 {
    (combined_ms as f64 / 60_000.0 - rule.free_minutes).max(0.0) * rule.per_minute
}

/// What a quality must reach; `None` for `Any`, and for `WinProbability`, whose band is no matter of more or less.
pub fn bar(quality: &Quality) -> Option<Bar> {
    match *quality {
        Quality::Any | Quality::WinProbability { .. } => None,
        Quality::SoftScore { max_score } => Some(Bar { least: -max_score, exclusive: false }),
        Quality::LeaderboardGauss { threshold, .. } | Quality::DrawProbability { threshold } => {
            Some(Bar { least: threshold, exclusive: false })
        }
        Quality::AverageSimilarity { required_percent, .. } | Quality::CategorySimilarity { required_percent, .. } => {
            Some(Bar { least: required_percent / 100.0, exclusive: true })
        }
    }
}

/// The quality of a match before bonus and costs; higher is better.
pub fn base<'m>(ruleset: &Ruleset, quality: &Quality, members: &[Member<'m>]) -> f64 {
    match *quality {
        Quality::Any => 0.0,
        Quality::SoftScore { .. } => -worst_score(ruleset, members),
        Quality::LeaderboardGauss { sigma, scale, .. } => by_places(sigma, scale, members.iter().map(|it| it.place)),
        Quality::AverageSimilarity { rating_span, .. } => average_similarity(rating_span, all_ratings(members)),
        Quality::CategorySimilarity { categories, category_width, divisor, curve, .. } => {
            let category = |rating| category_of(categories, category_width, rating);
            category_similarity(divisor, curve, all_ratings(members).map(category))
        }
        Quality::DrawProbability { .. } => chance_to_draw(ruleset.rating.as_ref(), members),
        Quality::WinProbability { .. } => {
            let (least, greatest) = spread(&chances_to_win(ruleset.rating.as_ref(), members));
            1.0 - (greatest - least)
        }
    }
}

/// Judges a match whose costs, of regions and grudges, are known.
pub fn judge(
    ruleset: &Ruleset,
    quality: &Quality,
    wait_bonus: Option<&WaitBonus>,
    members: &[Member<'_>],
    costs: f64,
) -> Worth {
    let combined_ms = members.iter().fold(0_u64, |sum, it| sum.saturating_add(it.waited_ms));
    if let Quality::WinProbability { min_percent, max_percent } = *quality {
        let added = wait_bonus.map_or(0.0, |rule| bonus(rule, combined_ms)) - costs;
        let (least, greatest) = spread(&chances_to_win(ruleset.rating.as_ref(), members));
        let passes = min_percent / 100.0 <= least && greatest <= max_percent / 100.0;
        let short_by = if passes { 0.0 } else { f64::INFINITY };
        return Worth { quality: 1.0 - (greatest - least) + added, passes, short_by };
    }
    settle(quality, wait_bonus, base(ruleset, quality, members), combined_ms, costs)
}

/// Judges a match whose `base` is known too. Not for `WinProbability`, whose band its base does not tell.
pub fn settle(quality: &Quality, wait_bonus: Option<&WaitBonus>, base: f64, combined_ms: u64, costs: f64) -> Worth {
    let quality_reached = base + (wait_bonus.map_or(0.0, |rule| bonus(rule, combined_ms)) - costs);
    let Some(bar) = bar(quality) else { return Worth { quality: quality_reached, passes: true, short_by: 0.0 } };
    let passes = if bar.exclusive { bar.least < quality_reached } else { bar.least <= quality_reached };
    Worth { quality: quality_reached, passes, short_by: if passes { 0.0 } else { bar.least - quality_reached } }
}

/// What a quality counts when matches compete: never negative, so that a match that may be made is always worth making.
/// Soft scores count by how far they stay below the greatest that passes.
pub fn weight(quality: &Quality, reached: f64) -> f64 {
    match *quality {
        Quality::SoftScore { max_score } => (max_score + reached).max(0.0),
        _ => reached.max(0.0),
    }
}

fn worst_score(ruleset: &Ruleset, members: &[Member<'_>]) -> f64 {
    let mut worst: f64 = 0.0;
    for (place, one) in members.iter().enumerate() {
        for other in &members[place + 1..] {
            worst = worst.max(score_between(ruleset, &one.seen, &other.seen));
        }
    }
    worst
}

/// By the best and the worst place of a match (S2-9). Whoever has no place is infinitely far from everybody: nothing but
/// waiting brings him in.
pub fn by_places(sigma: f64, scale: f64, places: impl IntoIterator<Item = Option<f64>>) -> f64 {
    let (mut best, mut worst) = (f64::INFINITY, f64::NEG_INFINITY);
    for place in places {
        let Some(place) = place else { return 0.0 };
        (best, worst) = (best.min(place), worst.max(place));
    }
    gauss(sigma, scale, (worst - best).max(0.0))
}

fn all_ratings<'m>(members: &[Member<'m>]) -> impl Iterator<Item = f64> + Clone {
    members.iter().flat_map(|it| it.ratings.iter().copied())
}

fn spread(chances: &[f64]) -> (f64, f64) {
    let least = chances.iter().copied().fold(f64::INFINITY, f64::min);
    (least, chances.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
