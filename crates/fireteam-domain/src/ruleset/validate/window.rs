//! `<Window>`: how far ratings may be apart, and how that grows.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::queue::{BucketRounding, RatingWindow, WindowBoundChoice, WindowClock, WindowMatchRule};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::queue::POSITIVE_NUMBER;

/// Buckets to either side; enough for any scale of ratings.
const WINDOW_BUCKETS_MAX: u64 = 1_000_000;

/// The widest bound by share of one's own rating, percent: ten times as good, and as bad.
const MAX_PERCENT_BOUNDS: NumberBounds = NumberBounds::inclusive(0.0, 1_000.0);

/// Reads `<Window>`. The defaults are Teiserver's (S0-13 to S0-16).
pub(super) fn read_rating_window(element: &RawElement, mistakes: &Diagnostics) -> RatingWindow {
    let roundings =
        [("round", BucketRounding::Round), ("floor", BucketRounding::Floor), ("ceiling", BucketRounding::Ceiling)];
    let combines = [("smaller", WindowBoundChoice::Smaller), ("larger", WindowBoundChoice::Larger)];
    let clocks = [("queue", WindowClock::Queue), ("ticket", WindowClock::Ticket)];
    let rules = [("contain", WindowMatchRule::Contain), ("overlap", WindowMatchRule::Overlap)];
    let mut at = ElementReader::new(element, mistakes);
    let window = RatingWindow {
        bucket_width: at.number_or("BucketWidth", POSITIVE_NUMBER, 1.0),
        rounding: at.optional_keyword("Rounding", &roundings).unwrap_or(BucketRounding::Round),
        start: at.integer_or("Start", 0, WINDOW_BUCKETS_MAX, 0) as u32,
        step: at.integer_or("Step", 0, WINDOW_BUCKETS_MAX, 1) as u32,
        step_every_ms: at.integer_or("StepEveryMs", 1, RULESET_DURATION_MS_MAX, 20_000),
        max: at.optional_integer("Max", 0, WINDOW_BUCKETS_MAX).map(|max| max as u32),
        max_percent: at.optional_number("MaxPercent", MAX_PERCENT_BOUNDS),
        combine: at.optional_keyword("Combine", &combines).unwrap_or(WindowBoundChoice::Smaller),
        reciprocal_percent: at.number_or("ReciprocalPercent", NumberBounds::PERCENT, 100.0),
        clock: at.optional_keyword("Clock", &clocks).unwrap_or(WindowClock::Queue),
        rule: at.optional_keyword("Rule", &rules).unwrap_or(WindowMatchRule::Contain),
    };
    if let (Some(written), Some(max)) = (at.attribute("Start"), window.max)
        && max < window.start
    {
        at.report_value(written, format!("give at most `Max`, which is {max}"));
    }
    if at.attribute("Max").is_none() || at.attribute("MaxPercent").is_none() {
        at.report_without_effect(&["Combine"], "there are no two bounds to combine");
    }
    if window.rule == WindowMatchRule::Overlap {
        at.report_without_effect(&["ReciprocalPercent"], "ranges that overlap do so for both");
    }
    if window.step == 0 {
        at.report_without_effect(&["StepEveryMs", "Clock", "Max"], "a range that grows by 0 stays as it begins");
    } else if window.max == Some(window.start) {
        at.report_without_effect(&["Step", "StepEveryMs", "Clock"], "the range begins at its `Max`");
    }
    at.report_unread();
    window
}
