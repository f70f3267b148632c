//! Rating windows: rating buckets, and the range of buckets a ticket accepts, which grows while it waits.
//!
//! | waited (width 1, start 0, step 1 per 20 s, max 10) | range          |
//! |----------------------------------------------------|----------------|
//! | 0–20 s                                             | its own bucket |
//! | 20–40 s                                            | 1 either side  |
//! | 200 s +                                            | 10 either side |

use crate::ruleset::queue::{BucketRounding, MaxRangeCombination, RatingWindow, WindowClock, WindowPairRule};
use crate::time::UnixMs;

/// Bucket of a rating, by the window's table or by its width. Half values round away from zero: 2.5 is in 3, -0.5 in -1.
pub fn bucket_of(window: &RatingWindow, rating: f64) -> i64 {
    if let Some(bounds) = &window.bucket_boundaries {
        return bounds.partition_point(|bound| *bound <= rating) as i64;
    }
    let buckets = rating / window.bucket_width;
    let whole = match window.rounding {
        BucketRounding::Round => buckets.round(),
        BucketRounding::Floor => buckets.floor(),
        BucketRounding::Ceiling => buckets.ceil(),
    };
    whole as i64
}

/// Maximum range of a ticket with this rating, in buckets to either side. `None` if unbounded.
pub fn max_range_of(window: &RatingWindow, rating: f64) -> Option<u32> {
    let percent_bound = window
        .max_percent_of_rating
        .map(|percent| (rating.abs() * percent / 100.0 / window.bucket_width).floor() as u32);
    match (window.max_half_width, percent_bound) {
        (Some(max), Some(percent_bound)) => Some(match window.combine {
            MaxRangeCombination::Smaller => max.min(percent_bound),
            MaxRangeCombination::Larger => max.max(percent_bound),
        }),
        (max, percent_bound) => max.or(percent_bound),
    }
}

/// Range of a ticket at `now`, in buckets to either side. A bound below `start` applies from the beginning.
pub fn range_at(window: &RatingWindow, rating: f64, entered_at: UnixMs, now: UnixMs) -> u32 {
    let steps = u32::try_from(elapsed_steps(window, entered_at, now)).unwrap_or(u32::MAX);
    let grown = window.initial_half_width.saturating_add(window.step.saturating_mul(steps));
    max_range_of(window, rating).map_or(grown, |bound| grown.min(bound))
}

/// Range multiplied by `factor`, rounded to the nearest bucket. A range of 0 stays 0.
pub fn scale_range(range: u32, factor: f64) -> u32 {
    (f64::from(range) * factor).round() as u32
}

/// Time at which a ticket's range grows next. `None` if it has reached its maximum.
pub fn next_growth_at(window: &RatingWindow, rating: f64, entered_at: UnixMs, now: UnixMs) -> Option<UnixMs> {
    let (every_ms, range) = (window.step_every_ms.max(1), range_at(window, rating, entered_at, now));
    let is_maximal = window.step == 0 || range == u32::MAX || max_range_of(window, rating) == Some(range);
    if is_maximal {
        return None;
    }
    Some(match window.clock {
        WindowClock::Queue => UnixMs((now.0 / every_ms).saturating_add(1).saturating_mul(every_ms)),
        WindowClock::Ticket => {
            entered_at.plus_ms((elapsed_steps(window, entered_at, now) + 1).saturating_mul(every_ms))
        }
    })
}

/// Number of steps since the ticket entered, by the clock of the window.
fn elapsed_steps(window: &RatingWindow, entered_at: UnixMs, now: UnixMs) -> u64 {
    let every_ms = window.step_every_ms.max(1);
    match window.clock {
        WindowClock::Queue => (now.0 / every_ms).saturating_sub(entered_at.0 / every_ms),
        WindowClock::Ticket => now.ms_since(entered_at) / every_ms,
    }
}

/// Window of a ticket, in buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRange {
    /// Bucket of the ticket's own rating.
    pub own_bucket: i64,
    /// Center of the window: its own bucket, or a lower one if the satisfaction rule applies.
    pub center: i64,
    /// Buckets to either side of the center.
    pub range: u32,
}

impl BucketRange {
    /// Distance from its own bucket to the farther end of the window.
    pub fn max_distance(self) -> u32 {
        let shift = u32::try_from(self.own_bucket.abs_diff(self.center)).unwrap_or(u32::MAX);
        self.range.saturating_add(shift)
    }
}

/// Whether a ticket with `range` accepts one with range `theirs` at `distance` buckets. The distance must be within
/// `range`, and the other range must cover the reciprocal share.
pub fn range_accepts(window: &RatingWindow, range: u32, theirs: u32, distance: u64) -> bool {
    match window.rule {
        WindowPairRule::Contain => contains_with_reciprocal_share(window, (range, distance), (theirs, distance)),
        WindowPairRule::Overlap => distance <= u64::from(range) + u64::from(theirs),
    }
}

/// The same for windows whose center differs from the bucket. `distance` is from the first center to the second bucket,
/// `back` from the second center to the first bucket.
fn contains_with_reciprocal_share(
    window: &RatingWindow,
    (range, distance): (u32, u64),
    (theirs, back): (u32, u64),
) -> bool {
    distance <= u64::from(range) && window.other_range_cover_percent * back as f64 <= 100.0 * f64::from(theirs)
}

/// Whether two tickets may meet: at least one accepts the other. With full reciprocity that means both. Each side
/// measures the distance from its own center.
pub fn windows_satisfy_pair_rule(window: &RatingWindow, one: BucketRange, other: BucketRange) -> bool {
    match window.rule {
        WindowPairRule::Contain => {
            let here = (one.range, one.center.abs_diff(other.own_bucket));
            let there = (other.range, other.center.abs_diff(one.own_bucket));
            contains_with_reciprocal_share(window, here, there) || contains_with_reciprocal_share(window, there, here)
        }
        WindowPairRule::Overlap => one.center.abs_diff(other.center) <= u64::from(one.range) + u64::from(other.range),
    }
}

/// Distance in buckets up to which a ticket with reach `own` must be compared. `widest` is the maximum
/// [`BucketRange::max_distance`] of all tickets.
pub fn max_bucket_distance_to_compare(window: &RatingWindow, own: u32, widest: u32) -> u64 {
    match window.rule {
        WindowPairRule::Contain if window.other_range_cover_percent >= 100.0 => u64::from(own),
        WindowPairRule::Contain => u64::from(own.max(widest)),
        WindowPairRule::Overlap => u64::from(own) + u64::from(widest),
    }
}
