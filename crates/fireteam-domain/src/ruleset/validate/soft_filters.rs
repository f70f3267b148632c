//! `<SoftFilters>`: weighted terms of a score.

use crate::attribute::ValueType;
use crate::limit::SOFT_FILTER_WEIGHT_MAX;
use crate::measure::Measure;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::{
    DELTA_PING, DeclaredAttributes, PROBED_MEASURE_NAMES, SERVER_COMPUTED_MEASURE_NAMES, read_min_and_max,
};
use crate::ruleset::{DistanceCurve, SoftFilter, SoftFilterObjective, SoftMissingPolicy};

/// Default range of latency, milliseconds: the thesis's range. Larger round trips count as the maximum.
const DEFAULT_LATENCY_RANGE_MS: (f64, f64) = (0.0, 300.0);

/// Default range of delta ping, milliseconds: as long as latency's, so that a millisecond of either weighs the same.
const DEFAULT_DELTA_PING_RANGE_MS: (f64, f64) = (0.0, 300.0);

/// Default range of distance, miles: 0 to the diameter of the Earth, because distance is the chord.
const DEFAULT_DISTANCE_RANGE_MILES: (f64, f64) = (0.0, 8000.0);

/// Default range of lost packets, percent: more is hardly playable.
const DEFAULT_PACKET_LOSS_RANGE_PERCENT: (f64, f64) = (0.0, 20.0);

/// Default range of jitter, milliseconds.
const DEFAULT_JITTER_RANGE_MS: (f64, f64) = (0.0, 100.0);

/// Curves of a normalized distance.
pub(super) const DISTANCE_CURVE_KEYWORDS: [(&str, DistanceCurve); 3] = [
    ("linear", DistanceCurve::Linear),
    ("quadratic", DistanceCurve::Quadratic),
    ("square_root", DistanceCurve::SquareRoot),
];

const SOFT_FILTER_OBJECTIVE_KEYWORDS: [(&str, SoftFilterObjective); 2] =
    [("difference", SoftFilterObjective::Difference), ("lower_is_better", SoftFilterObjective::LowerIsBetter)];

const MISSING_POLICY_KEYWORDS: [(&str, SoftMissingPolicy); 2] =
    [("worst", SoftMissingPolicy::Worst), ("neutral", SoftMissingPolicy::Neutral)];

/// Reads `<SoftFilters>`. Without it all candidates score 0 and are ordered by id.
pub(super) fn read_soft_filters(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    diagnostics: &Diagnostics,
) -> Vec<SoftFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut reader = ElementReader::new(element, diagnostics);
    let mut filters = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    for child in reader.children_named(&["SoftFilter"]) {
        let mut reader = ElementReader::new(child, diagnostics);
        let filter = read_soft_filter(&mut reader, declared);
        let raw = reader.optional_identifier("Name").or(reader.attribute("Attribute"));
        if let Some(raw) = raw {
            if names.contains(&raw.value) {
                let problem = format!("a second soft filter has the name {}", quoted_excerpt(&raw.value));
                reader.report_at(raw.value_span, problem, "give it a unique Name");
            }
            names.push(raw.value.clone());
            filters.extend(filter.map(|filter| SoftFilter { name: raw.value.clone(), ..filter }));
        }
        reader.report_unread_and_missing();
    }
    reader.report_unread_and_missing();
    filters
}

/// Reads one filter; the name is set by the caller.
fn read_soft_filter(reader: &mut ElementReader<'_>, declared: &DeclaredAttributes) -> Option<SoftFilter> {
    let attribute = reader.required_attribute("Attribute");
    let weight = read_weight(reader);
    let raw_mode = reader.attribute("Mode");
    let mode = reader.optional_keyword("Mode", &SOFT_FILTER_OBJECTIVE_KEYWORDS);
    let curve = reader.optional_keyword("Curve", &DISTANCE_CURVE_KEYWORDS).unwrap_or_default();
    let missing = reader.optional_keyword("Missing", &MISSING_POLICY_KEYWORDS).unwrap_or_default();
    let has_range = reader.attribute("Min").or(reader.attribute("Max")).is_some();
    let own_range = read_min_and_max(reader);
    let attribute = attribute?;
    let (measure, default_range, default_mode) = match &*attribute.value {
        "latency" => (Measure::Latency, Some(DEFAULT_LATENCY_RANGE_MS), SoftFilterObjective::LowerIsBetter),
        DELTA_PING => (Measure::DeltaPing, Some(DEFAULT_DELTA_PING_RANGE_MS), SoftFilterObjective::LowerIsBetter),
        "distance" => (Measure::Distance, Some(DEFAULT_DISTANCE_RANGE_MILES), SoftFilterObjective::LowerIsBetter),
        "packet_loss" => {
            (Measure::PacketLoss, Some(DEFAULT_PACKET_LOSS_RANGE_PERCENT), SoftFilterObjective::LowerIsBetter)
        }
        "jitter" => (Measure::Jitter, Some(DEFAULT_JITTER_RANGE_MS), SoftFilterObjective::LowerIsBetter),
        _ => {
            let measures = [&SERVER_COMPUTED_MEASURE_NAMES[..], &PROBED_MEASURE_NAMES, &[DELTA_PING]].concat();
            let (index, kind) = declared.find_with_extra_suggestions(reader, attribute, &measures)?;
            let kind = kind?;
            if kind != ValueType::Number {
                let problem = format!("{} is a {}", quoted_excerpt(&attribute.value), kind.as_str());
                reader.report_at(
                    attribute.value_span,
                    problem,
                    "a soft filter needs a number attribute, `latency` or `distance`",
                );
                return None;
            }
            (Measure::AttributeDifference(index), declared.range(index), SoftFilterObjective::Difference)
        }
    };
    if mode == Some(SoftFilterObjective::Difference) && !matches!(measure, Measure::AttributeDifference(_)) {
        let problem = format!(
            "{} is measured for a pair, so Mode=\"difference\" does not apply",
            quoted_excerpt(&attribute.value)
        );
        reader.report_at(raw_mode.unwrap_or(attribute).value_span, problem, "write Mode=\"lower_is_better\"");
    }
    let (min, max) = own_range.or(default_range.filter(|_| !has_range)).or_else(|| {
        if !has_range {
            let problem = format!("{} has no range", quoted_excerpt(&attribute.value));
            reader.report_at(attribute.value_span, problem, "give Min and Max, here or in its declaration");
        }
        None
    })?;
    let mode = mode.unwrap_or(default_mode);
    Some(SoftFilter { name: "".into(), weight: weight?, measure, mode, curve, missing, min, max })
}

/// Reads a weight as a number or as a percentage: `0.4` and `40%` are equal.
fn read_weight(reader: &mut ElementReader<'_>) -> Option<f64> {
    let raw = reader.required_attribute("Weight")?;
    let text = raw.value.trim();
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().ok().map(|percent: f64| percent / 100.0),
        None => text.parse().ok(),
    };
    let valid = number.filter(|&weight| weight > 0.0 && weight <= SOFT_FILTER_WEIGHT_MAX);
    if valid.is_none() {
        reader.report_value(
            raw,
            format!("give a number above 0 and at most {SOFT_FILTER_WEIGHT_MAX}, or a share such as 40%"),
        );
    }
    valid
}
