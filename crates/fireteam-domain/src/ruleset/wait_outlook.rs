//! Wait outlook of a queue: when its limits stop growing, how wide they are then, and when waiting makes any match good
//! enough.

use crate::ruleset::queue::{MaxRangeCombination, QualitySpec, QueueSpec, RatingWindow, RegionUse};
use crate::ruleset::{HardRule, Ruleset, SoftFilter};

/// Effect of waiting in one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitOutlook {
    /// Waiting time after which no limit grows, milliseconds. `None` if a limit grows forever, or depends on the
    /// party's own rating.
    pub limits_final_after_ms: Option<u64>,
    /// Limits at their widest, in the order in which a pass checks them. Empty if any two tickets may meet.
    pub final_limits: Vec<FinalLimit>,
    /// Time at which the worst allowed match is good enough.
    pub any_match_suffices_after: AnyMatchSufficesAfter,
}

/// Time at which any match within the limits is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyMatchSufficesAfter {
    /// Without waiting.
    Immediately,
    /// After this combined waiting time of its parties, milliseconds.
    AfterCombinedWaitMs(u64),
    /// Never: waiting does not help.
    Never,
}

/// Limit at its widest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FinalLimit {
    /// Expansion that a hard filter uses.
    Expansion {
        /// Index into `Ruleset::expansions`.
        expansion: usize,
        /// Last value, in the measure's unit.
        value: f64,
    },
    /// Rating groups beyond the ticket's own.
    RatingGroups {
        /// Number of groups in each direction.
        extra_groups: u16,
    },
    /// Equal region values.
    SameRegion,
    /// Region in common within a round trip.
    CommonRegion {
        /// Maximum round trip, milliseconds.
        max_round_trip_ms: f64,
    },
    /// Maximum distance in buckets of different widths.
    RatingBuckets {
        /// Buckets to either side.
        max: u32,
    },
    /// Maximum rating difference, apart from rounding to buckets.
    RatingWindow {
        /// Rating points; `None` if the window has no absolute bound.
        max_points: Option<f64>,
        /// Share of the party's own rating, percent; `None` if the window has no relative bound.
        max_percent: Option<f64>,
    },
}

/// Computes the outlook of `queue`, the queue of `ruleset`.
pub fn wait_outlook(ruleset: &Ruleset, queue: &QueueSpec) -> WaitOutlook {
    let mut final_limits = Vec::new();
    let mut limits_final_after_ms = Some(0);
    let mut final_after = |start_ms: Option<u64>| {
        limits_final_after_ms = limits_final_after_ms.zip(start_ms).map(|(left, right): (u64, u64)| left.max(right))
    };
    let widest = |index: usize| {
        let steps = ruleset.expansions[index].steps();
        let value = steps.last().map_or(0.0, |step| step.limit);
        (steps.iter().find(|step| step.limit == value).map_or(0, |step| step.start_ms), value)
    };
    for filter in &ruleset.hard_filters {
        if let HardRule::Within { expansion, .. } = filter.rule {
            let (start_ms, value) = widest(expansion);
            final_limits.push(FinalLimit::Expansion { expansion, value });
            final_after(Some(start_ms));
        }
    }
    match queue.regions {
        Some(RegionUse::Partition { .. }) => final_limits.push(FinalLimit::SameRegion),
        Some(RegionUse::Filter { expansion }) => {
            let (start_ms, max_round_trip_ms) = widest(expansion);
            final_limits.push(FinalLimit::CommonRegion { max_round_trip_ms });
            final_after(Some(start_ms));
        }
        Some(RegionUse::Quality { .. }) | None => {}
    }
    if let Some(groups) = &queue.groups {
        let all_other_groups = (groups.groups.len() as u16).saturating_sub(1);
        let extra_groups = groups.widen_every_ms.map_or(0, |_| groups.max_extra_groups.min(all_other_groups));
        if extra_groups < all_other_groups {
            final_limits.push(FinalLimit::RatingGroups { extra_groups });
        }
        final_after(Some(groups.widen_every_ms.unwrap_or(0).saturating_mul(extra_groups.into())));
    }
    if let Some(window) = &queue.window {
        let max = if window.step == 0 { Some(window.initial_half_width) } else { window.max_half_width };
        let max_points = max.map(|max| f64::from(max) * window.bucket_width);
        if window.bucket_boundaries.is_some() {
            final_limits.extend(max.map(|max| FinalLimit::RatingBuckets { max }));
        } else if max_points.is_some() || window.max_percent_of_rating.is_some() {
            final_limits.push(FinalLimit::RatingWindow { max_points, max_percent: window.max_percent_of_rating });
        }
        final_after(window_final_after_ms(window));
    }
    WaitOutlook {
        limits_final_after_ms,
        final_limits,
        any_match_suffices_after: any_match_suffices_after(ruleset, queue),
    }
}

/// Waiting time at which a window reaches its maximum, by the ticket's own clock. The queue's clock is at most one step
/// earlier.
fn window_final_after_ms(window: &RatingWindow) -> Option<u64> {
    if window.step == 0 {
        return Some(0);
    }
    if window.max_percent_of_rating.is_some()
        && (window.max_half_width.is_none() || window.combine == MaxRangeCombination::Larger)
    {
        return None;
    }
    let gap = window.max_half_width?.saturating_sub(window.initial_half_width);
    Some(u64::from(gap.div_ceil(window.step)).saturating_mul(window.step_every_ms))
}

/// Time at which the wait bonus alone reaches the quality threshold.
fn any_match_suffices_after(ruleset: &Ruleset, queue: &QueueSpec) -> AnyMatchSufficesAfter {
    let gap = match queue.quality {
        QualitySpec::Any => 0.0,
        QualitySpec::WinProbability { min_percent, max_percent } if min_percent <= 0.0 && max_percent >= 100.0 => 0.0,
        QualitySpec::WinProbability { .. } => return AnyMatchSufficesAfter::Never,
        QualitySpec::SoftScore { max_score } => max_soft_score(&ruleset.soft_filters) - max_score,
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => threshold,
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => required_percent / 100.0,
    };
    match queue.wait_bonus {
        _ if gap <= 0.0 => AnyMatchSufficesAfter::Immediately,
        None => AnyMatchSufficesAfter::Never,
        Some(bonus) => AnyMatchSufficesAfter::AfterCombinedWaitMs(
            ((bonus.free_combined_minutes + gap / bonus.per_combined_minute) * 60_000.0).round() as u64,
        ),
    }
}

fn max_soft_score(soft_filters: &[SoftFilter]) -> f64 {
    soft_filters.iter().map(|filter| filter.weight).sum()
}
