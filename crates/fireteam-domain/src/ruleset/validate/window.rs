//! `<RatingWindow>`: maximum rating difference and its growth.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::{BucketRounding, RatingWindow, WindowBoundChoice, WindowClock, WindowMatchRule};
use crate::ruleset::raw::{Diagnostics, RawElement};

/// Maximum half-width, buckets: enough for any rating scale.
const WINDOW_BUCKETS_MAX: u64 = 1_000_000;

/// Half-width as a share of the ticket's own rating, percent: at most ten times the rating.
const MAX_PERCENT_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, 1_000.0);

/// Reads `<RatingWindow>`. Defaults are those of Teiserver.
pub(super) fn read_rating_window(element: &RawElement, diagnostics: &Diagnostics) -> RatingWindow {
    let roundings =
        [("round", BucketRounding::Round), ("floor", BucketRounding::Floor), ("ceiling", BucketRounding::Ceiling)];
    let combines = [("smaller", WindowBoundChoice::Smaller), ("larger", WindowBoundChoice::Larger)];
    let clocks = [("queue", WindowClock::Queue), ("ticket", WindowClock::Ticket)];
    let rules = [("contain", WindowMatchRule::Contain), ("overlap", WindowMatchRule::Overlap)];
    let mut reader = ElementReader::new(element, diagnostics);
    let window = RatingWindow {
        bucket_width: reader.number_or("BucketWidth", NumberBounds::POSITIVE, 1.0),
        rounding: reader.optional_keyword("Rounding", &roundings).unwrap_or(BucketRounding::Round),
        start: reader.integer_or("Start", 0, WINDOW_BUCKETS_MAX, 0) as u32,
        step: reader.integer_or("Step", 0, WINDOW_BUCKETS_MAX, 1) as u32,
        step_every_ms: reader.integer_or("StepEveryMs", 1, RULESET_DURATION_MS_MAX, 20_000),
        max: reader.optional_integer("Max", 0, WINDOW_BUCKETS_MAX).map(|max| max as u32),
        max_percent: reader.optional_number("MaxPercent", MAX_PERCENT_BOUNDS),
        combine: reader.optional_keyword("Combine", &combines).unwrap_or(WindowBoundChoice::Smaller),
        reciprocal_percent: reader.number_or("ReciprocalPercent", NumberBounds::PERCENT, 100.0),
        clock: reader.optional_keyword("Clock", &clocks).unwrap_or(WindowClock::Queue),
        rule: reader.optional_keyword("Rule", &rules).unwrap_or(WindowMatchRule::Contain),
    };
    if let (Some(raw), Some(max)) = (reader.attribute("Start"), window.max)
        && max < window.start
    {
        reader.report_value(raw, format!("give at most `Max`, which is {max}"));
    }
    if reader.attribute("Max").is_none() || reader.attribute("MaxPercent").is_none() {
        reader.report_without_effect(&["Combine"], "it needs both `Max` and `MaxPercent`");
    }
    if window.rule == WindowMatchRule::Overlap {
        reader.report_without_effect(&["ReciprocalPercent"], "overlap is symmetric");
    }
    if window.step == 0 {
        reader.report_without_effect(&["StepEveryMs", "Clock", "Max"], "with `Step` 0 the range does not grow");
    } else if window.max == Some(window.start) {
        reader.report_without_effect(&["Step", "StepEveryMs", "Clock"], "the range starts at `Max`");
    }
    reader.report_unread();
    window
}
