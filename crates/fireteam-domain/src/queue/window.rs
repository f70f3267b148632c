//! Buckets of ratings, and how far a ticket may look by now (S0-4 to S0-16).
//!
//! | waited (width 1, start 0, step 1 per 20 s, at most 10) | range          |
//! |---------------------------------------------------------|----------------|
//! | 0–20 s                                                  | its own bucket |
//! | 20–40 s                                                 | 1 either side  |
//! | 200 s +                                                 | 10 either side |

use crate::ruleset::queue::{BucketRounding, RatingWindow, WindowBoundChoice, WindowClock, WindowMatchRule};
use crate::time::UnixMs;

/// The bucket of a rating (S0-13). Halves are rounded away from zero: 2.5 is in 3, -0.5 in -1.
pub fn bucket_of(window: &RatingWindow, rating: f64) -> i64 {
    let buckets = rating / window.bucket_width;
    let whole = match window.rounding {
        BucketRounding::Round => buckets.round(),
        BucketRounding::Floor => buckets.floor(),
        BucketRounding::Ceiling => buckets.ceil(),
    };
    whole as i64
}

/// How many buckets to either side a ticket of this rating may ever look (S0-15); `None` for any number.
pub fn max_range_of(window: &RatingWindow, rating: f64) -> Option<u32> {
    let share = window.max_percent.map(|percent| (rating.abs() * percent / 100.0 / window.bucket_width).floor() as u32);
    match (window.max, share) {
        (Some(max), Some(share)) => Some(match window.combine {
            WindowBoundChoice::Smaller => max.min(share),
            WindowBoundChoice::Larger => max.max(share),
        }),
        (max, share) => max.or(share),
    }
}

/// How many buckets to either side a ticket looks at `now` (S0-14). A bound below `start` rules from the beginning.
pub fn range_at(window: &RatingWindow, rating: f64, entered: UnixMs, now: UnixMs) -> u32 {
    let steps = u32::try_from(elapsed_steps(window, entered, now)).unwrap_or(u32::MAX);
    let grown = window.start.saturating_add(window.step.saturating_mul(steps));
    max_range_of(window, rating).map_or(grown, |bound| grown.min(bound))
}

/// A range made `factor` times as wide, to the nearest bucket: of a ticket that is looked after (S1-97). One that looks into no other
/// bucket yet does not begin to.
pub fn scale_range(range: u32, factor: f64) -> u32 {
    (f64::from(range) * factor).round() as u32
}

/// When a ticket's range next grows; `None` when it is as wide as it gets.
pub fn next_growth_at(window: &RatingWindow, rating: f64, entered: UnixMs, now: UnixMs) -> Option<UnixMs> {
    let (every_ms, range) = (window.step_every_ms.max(1), range_at(window, rating, entered, now));
    let as_wide_as_it_gets = window.step == 0 || range == u32::MAX || max_range_of(window, rating) == Some(range);
    if as_wide_as_it_gets {
        return None;
    }
    Some(match window.clock {
        WindowClock::Queue => UnixMs((now.0 / every_ms).saturating_add(1).saturating_mul(every_ms)),
        WindowClock::Ticket => entered.plus_ms((elapsed_steps(window, entered, now) + 1).saturating_mul(every_ms)),
    })
}

/// Steps since a ticket entered, by the clock that counts (B-4).
fn elapsed_steps(window: &RatingWindow, entered: UnixMs, now: UnixMs) -> u64 {
    let every_ms = window.step_every_ms.max(1);
    match window.clock {
        WindowClock::Queue => (now.0 / every_ms).saturating_sub(entered.0 / every_ms),
        WindowClock::Ticket => now.ms_since(entered) / every_ms,
    }
}

/// Where a ticket stands, and where it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketRange {
    /// Its own bucket: where others find it.
    pub bucket: i64,
    /// The bucket around which it looks: its own, or one further down where it is looked after (S1-97).
    pub center: i64,
    /// How many buckets to either side of that it looks.
    pub range: u32,
}

impl BucketRange {
    /// How far from its own bucket it looks, to the side on which that is further.
    pub fn max_distance(self) -> u32 {
        let moved = u32::try_from(self.bucket.abs_diff(self.center)).unwrap_or(u32::MAX);
        self.range.saturating_add(moved)
    }
}

/// Whether somebody who looks `range` buckets far may play another at `distance` buckets who looks `theirs` far, as far as
/// the asking side goes: `distance <= range`, and the other's range covers its share (S0-16, B-6).
pub fn range_accepts(window: &RatingWindow, range: u32, theirs: u32, distance: u64) -> bool {
    match window.rule {
        WindowMatchRule::Contain => contains_reciprocally(window, (range, distance), (theirs, distance)),
        WindowMatchRule::Overlap => distance <= u64::from(range) + u64::from(theirs),
    }
}

/// The same where the two need not be as far from each other's middle: the asking side looks `range` far and has the other at
/// `distance`; the other looks `theirs` far and has the asking side at `back`.
fn contains_reciprocally(window: &RatingWindow, (range, distance): (u32, u64), (theirs, back): (u32, u64)) -> bool {
    distance <= u64::from(range) && window.reciprocal_percent * back as f64 <= 100.0 * f64::from(theirs)
}

/// Whether two may meet: either of them accepts the other. With full reciprocity that is both. Each judges by its own middle, so
/// that whoever is sought by somebody stronger is asked about that distance.
pub fn windows_may_meet(window: &RatingWindow, one: BucketRange, other: BucketRange) -> bool {
    match window.rule {
        WindowMatchRule::Contain => {
            let here = (one.range, one.center.abs_diff(other.bucket));
            let there = (other.range, other.center.abs_diff(one.bucket));
            contains_reciprocally(window, here, there) || contains_reciprocally(window, there, here)
        }
        WindowMatchRule::Overlap => one.center.abs_diff(other.center) <= u64::from(one.range) + u64::from(other.range),
    }
}

/// How far from its own bucket a ticket that looks `own` far from there need look at all, when nobody else looks further than
/// `widest` from theirs; see [`Look::reach`].
pub fn reach(window: &RatingWindow, own: u32, widest: u32) -> u64 {
    match window.rule {
        WindowMatchRule::Contain if 100.0 <= window.reciprocal_percent => u64::from(own),
        WindowMatchRule::Contain => u64::from(own.max(widest)),
        WindowMatchRule::Overlap => u64::from(own) + u64::from(widest),
    }
}
