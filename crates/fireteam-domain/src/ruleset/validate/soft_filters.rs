//! `<SoftFilters>`: weighted wishes (S1-18).

use crate::attribute::ValueType;
use crate::limit::SOFT_FILTER_WEIGHT_MAX;
use crate::measure::Measure;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::{DeclaredAttributes, MEASURED_BY_SERVER, read_min_and_max};
use crate::ruleset::{DistanceCurve, SoftFilter, SoftFilterMode, SoftMissingPolicy};

/// Round trips beyond this are all as bad: the thesis's range (S1-19), milliseconds.
const DEFAULT_LATENCY_RANGE_MS: (f64, f64) = (0.0, 300.0);

/// No two places are further apart: the diameter of the sphere (S1-26), miles.
const DEFAULT_DISTANCE_RANGE_MILES: (f64, f64) = (0.0, 8000.0);

/// How distance weighs.
pub(super) const DISTANCE_CURVE_KEYWORDS: [(&str, DistanceCurve); 3] = [
    ("linear", DistanceCurve::Linear),
    ("quadratic", DistanceCurve::Quadratic),
    ("square_root", DistanceCurve::SquareRoot),
];

const SOFT_FILTER_MODE_KEYWORDS: [(&str, SoftFilterMode); 2] =
    [("difference", SoftFilterMode::Difference), ("lower_is_better", SoftFilterMode::LowerIsBetter)];

const MISSING_POLICY_KEYWORDS: [(&str, SoftMissingPolicy); 2] =
    [("worst", SoftMissingPolicy::Worst), ("neutral", SoftMissingPolicy::Neutral)];

/// Reads `<SoftFilters>`; without one, all candidates score 0 and come in the order of their ids.
pub(super) fn read_soft_filters(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    mistakes: &Diagnostics,
) -> Vec<SoftFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut at = ElementReader::new(element, mistakes);
    let mut filters = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    for child in at.children_named(&["SoftFilter"]) {
        let mut at = ElementReader::new(child, mistakes);
        let filter = read_soft_filter(&mut at, declared);
        let written = at.optional_identifier("Name").or(at.attribute("Attribute"));
        if let Some(written) = written {
            if names.contains(&written.value) {
                let what = format!("a second soft filter is called {}", quoted_excerpt(&written.value));
                at.report(written.value_span, what, "give it a Name of its own, so that terms can be told apart");
            }
            names.push(written.value.clone());
            filters.extend(filter.map(|filter| SoftFilter { name: written.value.clone(), ..filter }));
        }
        at.report_unread();
    }
    at.report_unread();
    filters
}

/// One filter, still without a name.
fn read_soft_filter(at: &mut ElementReader<'_>, declared: &DeclaredAttributes) -> Option<SoftFilter> {
    let attribute = at.required_attribute("Attribute");
    let weight = read_weight(at);
    let mode_written = at.attribute("Mode");
    let mode = at.optional_keyword("Mode", &SOFT_FILTER_MODE_KEYWORDS);
    let curve = at.optional_keyword("Curve", &DISTANCE_CURVE_KEYWORDS).unwrap_or_default();
    let missing = at.optional_keyword("Missing", &MISSING_POLICY_KEYWORDS).unwrap_or_default();
    let has_range = at.attribute("Min").or(at.attribute("Max")).is_some();
    let own_range = read_min_and_max(at);
    let attribute = attribute?;
    let (measure, default_range, default_mode) = match &*attribute.value {
        "latency" => (Measure::Latency, Some(DEFAULT_LATENCY_RANGE_MS), SoftFilterMode::LowerIsBetter),
        "distance" => (Measure::Distance, Some(DEFAULT_DISTANCE_RANGE_MILES), SoftFilterMode::LowerIsBetter),
        _ => {
            let (index, kind) = declared.find_with_suggestions(at, attribute, &MEASURED_BY_SERVER)?;
            let kind = kind?;
            if kind != ValueType::Number {
                let what = format!("{} is a {}", quoted_excerpt(&attribute.value), kind.as_str());
                at.report(
                    attribute.value_span,
                    what,
                    "a soft filter needs a number attribute, `latency` or `distance`",
                );
                return None;
            }
            (Measure::AttributeDifference(index), declared.range(index), SoftFilterMode::Difference)
        }
    };
    if mode == Some(SoftFilterMode::Difference) && !matches!(measure, Measure::AttributeDifference(_)) {
        let what = format!("{} belongs to a pair, so two sides cannot differ in it", quoted_excerpt(&attribute.value));
        at.report(mode_written.unwrap_or(attribute).value_span, what, "write Mode=\"lower_is_better\"");
    }
    let (min, max) = own_range.or(default_range.filter(|_| !has_range)).or_else(|| {
        if !has_range {
            let what = format!("{} has no range to measure against", quoted_excerpt(&attribute.value));
            at.report(attribute.value_span, what, "give Min and Max, here or where it is declared");
        }
        None
    })?;
    let mode = mode.unwrap_or(default_mode);
    Some(SoftFilter { name: "".into(), weight: weight?, measure, mode, curve, missing, min, max })
}

/// A weight as a number or as a share: `0.4` and `40%` are the same.
fn read_weight(at: &mut ElementReader<'_>) -> Option<f64> {
    let written = at.required_attribute("Weight")?;
    let text = written.value.trim();
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().ok().map(|percent: f64| percent / 100.0),
        None => text.parse().ok(),
    };
    let sound = number.filter(|&weight| 0.0 < weight && weight <= SOFT_FILTER_WEIGHT_MAX);
    if sound.is_none() {
        at.report_value(
            written,
            format!("give a number above 0 and at most {SOFT_FILTER_WEIGHT_MAX}, or a share such as 40%"),
        );
    }
    sound
}
