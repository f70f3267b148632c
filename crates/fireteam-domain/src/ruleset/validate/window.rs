//! `<RatingWindow>`: maximum rating difference and its growth.

use std::sync::Arc;

use crate::limit::{NUMBER_MAGNITUDE_MAX, RULESET_DURATION_MS_MAX, RULESET_ENTRIES_PER_KIND_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::{BucketRounding, MaxRangeCombination, RatingWindow, WindowClock, WindowPairRule};
use crate::ruleset::raw::{Diagnostics, RawElement};

/// Maximum half-width, buckets: enough for any rating scale.
const WINDOW_HALF_WIDTH_BUCKETS_MAX: u64 = 1_000_000;

/// Half-width as a share of the ticket's own rating, percent: at most ten times the rating.
const HALF_WIDTH_PERCENT_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, 1_000.0);

/// Reads the table of `Buckets`: the lowest rating of each bucket but the first. `None` if absent, or if a problem was reported.
fn read_bucket_boundaries(reader: &mut ElementReader<'_>) -> Option<Arc<[f64]>> {
    let raw = reader.attribute("Buckets")?;
    let is_rating = |bound: &f64| bound.abs() <= NUMBER_MAGNITUDE_MAX;
    let bounds: Option<Vec<f64>> =
        raw.value.split_whitespace().map(|text| text.parse().ok().filter(is_rating)).collect();
    let bounds = bounds.filter(|bounds| (1..=RULESET_ENTRIES_PER_KIND_MAX).contains(&bounds.len()));
    let is_ascending = |bounds: &Vec<f64>| bounds.is_sorted_by(|lower, higher| lower < higher);
    let Some(bounds) = bounds.filter(is_ascending) else {
        let fix = format!(
            "list 1 to {RULESET_ENTRIES_PER_KIND_MAX} ratings in ascending order, each the lowest of its bucket: \"800 1200 1500\""
        );
        reader.report_value(raw, fix);
        return None;
    };
    Some(bounds.into())
}

/// Reads `<RatingWindow>`. Defaults are those of Teiserver.
pub(super) fn read_rating_window(element: &RawElement, diagnostics: &Diagnostics) -> RatingWindow {
    let roundings =
        [("round", BucketRounding::Round), ("floor", BucketRounding::Floor), ("ceiling", BucketRounding::Ceiling)];
    let combines = [("smaller", MaxRangeCombination::Smaller), ("larger", MaxRangeCombination::Larger)];
    let clocks = [("queue", WindowClock::Queue), ("ticket", WindowClock::Ticket)];
    let rules = [("contain", WindowPairRule::Contain), ("overlap", WindowPairRule::Overlap)];
    let mut reader = ElementReader::new(element, diagnostics);
    let bucket_bounds = read_bucket_boundaries(&mut reader);
    let window = RatingWindow {
        bucket_boundaries: bucket_bounds,
        bucket_width: reader.number_or("BucketWidth", NumberBounds::POSITIVE, 1.0),
        rounding: reader.optional_keyword("Rounding", &roundings).unwrap_or(BucketRounding::Round),
        initial_half_width: reader.integer_or("Start", 0, WINDOW_HALF_WIDTH_BUCKETS_MAX, 0) as u32,
        step: reader.integer_or("Step", 0, WINDOW_HALF_WIDTH_BUCKETS_MAX, 1) as u32,
        step_every_ms: reader.integer_or("StepEveryMs", 1, RULESET_DURATION_MS_MAX, 20_000),
        max_half_width: reader.optional_integer("Max", 0, WINDOW_HALF_WIDTH_BUCKETS_MAX).map(|max| max as u32),
        max_percent_of_rating: reader.optional_number("MaxPercent", HALF_WIDTH_PERCENT_BOUNDS),
        combine: reader.optional_keyword("Combine", &combines).unwrap_or(MaxRangeCombination::Smaller),
        other_range_cover_percent: reader.number_or("ReciprocalPercent", NumberBounds::PERCENT, 100.0),
        clock: reader.optional_keyword("Clock", &clocks).unwrap_or(WindowClock::Queue),
        rule: reader.optional_keyword("Rule", &rules).unwrap_or(WindowPairRule::Contain),
    };
    if let (Some(raw), Some(max)) = (reader.attribute("Start"), window.max_half_width)
        && max < window.initial_half_width
    {
        reader.report_value(raw, format!("give at most `Max`, which is {max}"));
    }
    if reader.attribute("Max").is_none() || reader.attribute("MaxPercent").is_none() {
        reader.report_without_effect(&["Combine"], "it needs both `Max` and `MaxPercent`");
    }
    if window.bucket_boundaries.is_some() {
        let names = ["BucketWidth", "Rounding", "MaxPercent"];
        reader.report_without_effect(&names, "`Buckets` lists buckets of any width");
    }
    if window.rule == WindowPairRule::Overlap {
        reader.report_without_effect(&["ReciprocalPercent"], "overlap is symmetric");
    }
    if window.step == 0 {
        reader.report_without_effect(&["StepEveryMs", "Clock", "Max"], "with `Step` 0 the range does not grow");
    } else if window.max_half_width == Some(window.initial_half_width) {
        reader.report_without_effect(&["Step", "StepEveryMs", "Clock"], "the range starts at `Max`");
    }
    reader.report_unread_and_missing();
    window
}
