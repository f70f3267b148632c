//! `<Satisfaction>`: when players count as frustrated, and what changes for them. Within `<Queue>` it adjusts the rating window;
//! beside it, the limits of expansions, in searches and in the queue.

use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::FrustratedPlayerSpec;
use crate::ruleset::raw::{Diagnostics, RawElement};

/// Maximum length of the losing streak that makes a player frustrated.
const LOSING_STREAK_MAX: u64 = 1_000;

/// Share of abandoned matches that makes a player frustrated, percent.
const ABANDONED_PERCENT_BOUNDS: NumberBounds = NumberBounds::new_exclusive_min(0.0, 100.0);

/// Feedback threshold. Feedback is 1 to 5, so no mean is below 1.
const FEEDBACK_BELOW_BOUNDS: NumberBounds = NumberBounds::new_exclusive_min(1.0, 5.0);

/// Maximum of `MinMatches`.
const SATISFACTION_MIN_MATCHES_MAX: u64 = 1_000;

/// Factor that widens the window of frustrated players.
const WINDOW_WIDEN_FACTOR_BOUNDS: NumberBounds = NumberBounds::new_inclusive(1.0, 100.0);

/// Factor that widens the limits of frustrated players. 1 would change nothing.
const LIMIT_WIDEN_FACTOR_BOUNDS: NumberBounds = NumberBounds::new_exclusive_min(1.0, 100.0);

/// Reads the `<Satisfaction>` of `<Queue>`: at least one criterion and at least one adjustment of the window.
pub(super) fn read_queue_satisfaction(element: &RawElement, diagnostics: &Diagnostics) -> FrustratedPlayerSpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let criteria = read_criteria(&mut reader);
    let satisfaction = FrustratedPlayerSpec {
        window_widen_factor: reader.number_or("Widen", WINDOW_WIDEN_FACTOR_BOUNDS, criteria.window_widen_factor),
        window_shift_down_points: reader.number_or(
            "ShiftDown",
            NumberBounds::POSITIVE,
            criteria.window_shift_down_points,
        ),
        ..criteria
    };
    reader.require_any_attribute(&["Widen", "ShiftDown"]);
    reader.report_unread_and_missing();
    satisfaction
}

/// Reads the `<Satisfaction>` of the ruleset: at least one criterion, and the factor on limits.
pub(super) fn read_ruleset_satisfaction(element: &RawElement, diagnostics: &Diagnostics) -> FrustratedPlayerSpec {
    let mut reader = ElementReader::new(element, diagnostics);
    let criteria = read_criteria(&mut reader);
    let widen_limits = reader.required_number("WidenLimits", LIMIT_WIDEN_FACTOR_BOUNDS);
    reader.report_unread_and_missing();
    FrustratedPlayerSpec { limit_widen_factor: widen_limits.unwrap_or(criteria.limit_widen_factor), ..criteria }
}

/// Reads the criteria, of which there must be one.
fn read_criteria(reader: &mut ElementReader<'_>) -> FrustratedPlayerSpec {
    let defaults = FrustratedPlayerSpec::default();
    let criteria = FrustratedPlayerSpec {
        losing_streak: reader.optional_integer("LosingStreak", 1, LOSING_STREAK_MAX).map(|streak| streak as u32),
        abandoned_percent: reader.optional_number("AbandonedPercent", ABANDONED_PERCENT_BOUNDS),
        feedback_below: reader.optional_number("FeedbackBelow", FEEDBACK_BELOW_BOUNDS),
        min_matches: reader.integer_or("MinMatches", 1, SATISFACTION_MIN_MATCHES_MAX, defaults.min_matches.into())
            as u32,
        ..defaults
    };
    reader.require_any_attribute(&["LosingStreak", "AbandonedPercent", "FeedbackBelow"]);
    if reader.attribute("AbandonedPercent").is_none() && reader.attribute("FeedbackBelow").is_none() {
        reader.report_without_effect(&["MinMatches"], "it does not affect `LosingStreak`");
    }
    criteria
}
