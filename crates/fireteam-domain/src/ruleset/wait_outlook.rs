//! What a queue's numbers come to for somebody who waits: when its limits stop growing, and how wide they are then.

use crate::ruleset::queue::{QualitySpec, QueueSpec, RatingWindow, RegionMode, WindowBoundChoice};
use crate::ruleset::{HardRule, Ruleset, SoftFilter};

/// What waiting comes to in one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitOutlook {
    /// After how much waiting no limit grows any more, milliseconds; `None` when one grows for ever, or by each party's own
    /// rating.
    pub limits_final_after_ms: Option<u64>,
    /// The limits that stay, in the order in which a pass asks them. Empty when anybody may meet.
    pub final_limits: Vec<FinalLimit>,
    /// When the worst match is good enough.
    pub quality_reached: QualityReached,
}

/// When any match that the limits allow is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QualityReached {
    /// From the first moment on.
    Immediately,
    /// After so much waiting of its parties together, milliseconds.
    AfterCombinedWaitMs(u64),
    /// Never: waiting does not help.
    Never,
}

/// A limit at its widest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FinalLimit {
    /// A hard filter's expansion: its place in `Ruleset::expansions`, and the last value.
    Expansion {
        /// The place.
        expansion: usize,
        /// The value, in the measure's unit.
        value: f64,
    },
    /// So many groups further.
    RatingGroups {
        /// How many.
        extra_groups: u16,
    },
    /// Players' regions are the same.
    SameRegion,
    /// A region in common within so many milliseconds.
    CommonRegion {
        /// The round trip.
        max_round_trip_ms: f64,
    },
    /// Ratings this many points apart, give or take what rounding to buckets does.
    RatingWindow {
        /// The points; `None` when the window has no bound of its own.
        max_points: Option<f64>,
        /// The share of a party's own rating, percent, if that bounds it too.
        max_percent: Option<f64>,
    },
}

/// What `queue`, which is the ruleset's, comes to.
pub fn wait_outlook(ruleset: &Ruleset, queue: &QueueSpec) -> WaitOutlook {
    let mut limits = Vec::new();
    let mut settled_ms = Some(0);
    let mut settles = |at: Option<u64>| settled_ms = settled_ms.zip(at).map(|(one, other): (u64, u64)| one.max(other));
    let widest = |index: usize| {
        let steps = ruleset.expansions[index].steps();
        let value = steps.last().map_or(0.0, |step| step.limit);
        (steps.iter().find(|step| step.limit == value).map_or(0, |step| step.start_ms), value)
    };
    for filter in &ruleset.hard_filters {
        if let HardRule::Within { expansion, .. } = filter.rule {
            let (at, value) = widest(expansion);
            limits.push(FinalLimit::Expansion { expansion, value });
            settles(Some(at));
        }
    }
    match queue.regions {
        Some(RegionMode::Separate { .. }) => limits.push(FinalLimit::SameRegion),
        Some(RegionMode::Stage { expansion }) => {
            let (at, within_ms) = widest(expansion);
            limits.push(FinalLimit::CommonRegion { max_round_trip_ms: within_ms });
            settles(Some(at));
        }
        Some(RegionMode::Quality { .. }) | None => {}
    }
    if let Some(groups) = &queue.groups {
        let most = (groups.groups.len() as u16).saturating_sub(1);
        let further = groups.neighbour_every_ms.map_or(0, |_| groups.max_neighbours.min(most));
        if further < most {
            limits.push(FinalLimit::RatingGroups { extra_groups: further });
        }
        settles(Some(groups.neighbour_every_ms.unwrap_or(0).saturating_mul(further.into())));
    }
    if let Some(window) = &queue.window {
        let points = window.max.map(|max| f64::from(max) * window.bucket_width);
        let points = if window.step == 0 { Some(f64::from(window.start) * window.bucket_width) } else { points };
        if points.is_some() || window.max_percent.is_some() {
            limits.push(FinalLimit::RatingWindow { max_points: points, max_percent: window.max_percent });
        }
        settles(window_final_after_ms(window));
    }
    WaitOutlook {
        limits_final_after_ms: settled_ms,
        final_limits: limits,
        quality_reached: quality_reached(ruleset, queue),
    }
}

/// When a range is at its maximum, by a clock of the ticket's own; by the queue's it is one step sooner at most.
fn window_final_after_ms(window: &RatingWindow) -> Option<u64> {
    if window.step == 0 {
        return Some(0);
    }
    if window.max_percent.is_some() && (window.max.is_none() || window.combine == WindowBoundChoice::Larger) {
        return None;
    }
    let missing = window.max?.saturating_sub(window.start);
    Some(u64::from(missing.div_ceil(window.step)).saturating_mul(window.step_every_ms))
}

/// When the bonus alone clears the bar.
fn quality_reached(ruleset: &Ruleset, queue: &QueueSpec) -> QualityReached {
    let missing = match queue.quality {
        QualitySpec::Any => 0.0,
        QualitySpec::WinProbability { min_percent, max_percent } if min_percent <= 0.0 && 100.0 <= max_percent => 0.0,
        QualitySpec::WinProbability { .. } => return QualityReached::Never,
        QualitySpec::SoftScore { max_score } => max_soft_score(&ruleset.soft_filters) - max_score,
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => threshold,
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => required_percent / 100.0,
    };
    match queue.wait_bonus {
        _ if missing <= 0.0 => QualityReached::Immediately,
        None => QualityReached::Never,
        Some(bonus) => QualityReached::AfterCombinedWaitMs(
            ((bonus.free_minutes + missing / bonus.per_minute) * 60_000.0).round() as u64,
        ),
    }
}

fn max_soft_score(soft: &[SoftFilter]) -> f64 {
    soft.iter().map(|filter| filter.weight).sum()
}
