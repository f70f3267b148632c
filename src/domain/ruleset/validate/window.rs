//! `<Window>`: how far ratings may be apart, and how that grows.

use crate::domain::limit::DURATION_MS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::queue::{BucketRounding, CombineBounds, Window, WindowClock, WindowRule};
use crate::domain::ruleset::validate::queue::POSITIVE;

/// Buckets to either side; enough for any scale of ratings.
const BUCKETS_MAX: u64 = 1_000_000;

/// The widest bound by share of one's own rating, percent: ten times as good, and as bad.
const SHARE_PERCENT: Bounds = Bounds::within(0.0, 1_000.0);

/// Reads `<Window>`. The defaults are Teiserver's (S0-13 to S0-16).
pub(super) fn read(element: &Element, mistakes: &Mistakes) -> Window {
    let roundings =
        [("round", BucketRounding::Round), ("floor", BucketRounding::Floor), ("ceiling", BucketRounding::Ceiling)];
    let combines = [("smaller", CombineBounds::Smaller), ("larger", CombineBounds::Larger)];
    let clocks = [("queue", WindowClock::Queue), ("ticket", WindowClock::Ticket)];
    let rules = [("contain", WindowRule::Contain), ("overlap", WindowRule::Overlap)];
    let mut at = Fields::of(element, mistakes);
    let window = Window {
        bucket_width: at.number_or("BucketWidth", POSITIVE, 1.0),
        rounding: at.word("Rounding", &roundings).unwrap_or(BucketRounding::Round),
        start: at.whole_or("Start", 0, BUCKETS_MAX, 0) as u32,
        step: at.whole_or("Step", 0, BUCKETS_MAX, 1) as u32,
        step_every_ms: at.whole_or("StepEveryMs", 1, DURATION_MS_MAX, 20_000),
        max: at.whole("Max", 0, BUCKETS_MAX).map(|max| max as u32),
        max_percent: at.number("MaxPercent", SHARE_PERCENT),
        combine: at.word("Combine", &combines).unwrap_or(CombineBounds::Smaller),
        reciprocal_percent: at.number_or("ReciprocalPercent", Bounds::PERCENT, 100.0),
        clock: at.word("Clock", &clocks).unwrap_or(WindowClock::Queue),
        rule: at.word("Rule", &rules).unwrap_or(WindowRule::Contain),
    };
    if let (Some(written), Some(max)) = (at.written("Start"), window.max)
        && max < window.start
    {
        at.wrong_value(written, format!("give at most `Max`, which is {max}"));
    }
    if at.written("Max").is_none() || at.written("MaxPercent").is_none() {
        at.idle(&["Combine"], "there are no two bounds to combine");
    }
    if window.rule == WindowRule::Overlap {
        at.idle(&["ReciprocalPercent"], "ranges that overlap do so for both");
    }
    if window.step == 0 {
        at.idle(&["StepEveryMs", "Clock", "Max"], "a range that grows by 0 stays as it begins");
    } else if window.max == Some(window.start) {
        at.idle(&["Step", "StepEveryMs", "Clock"], "the range begins at its `Max`");
    }
    at.finish();
    window
}
