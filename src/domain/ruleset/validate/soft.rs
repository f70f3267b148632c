//! `<SoftFilters>`: weighted wishes (S1-18).

use crate::domain::attribute::ValueKind;
use crate::domain::limit::WEIGHT_MAX;
use crate::domain::measure::Measure;
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::validate::attributes::{Declared, MEASURED, min_and_max};
use crate::domain::ruleset::{Curve, MissingSoft, SoftFilter, SoftMode};

/// Round trips beyond this are all as bad: the thesis's range (S1-19), milliseconds.
const LATENCY_RANGE_MS: (f64, f64) = (0.0, 300.0);

/// No two places are further apart: the diameter of the sphere (S1-26), miles.
const DISTANCE_RANGE_MILES: (f64, f64) = (0.0, 8000.0);

/// How distance weighs.
pub(super) const CURVES: [(&str, Curve); 3] =
    [("linear", Curve::Linear), ("quadratic", Curve::Quadratic), ("square_root", Curve::SquareRoot)];

const MODES: [(&str, SoftMode); 2] =
    [("difference", SoftMode::Difference), ("lower_is_better", SoftMode::LowerIsBetter)];

const MISSING: [(&str, MissingSoft); 2] = [("worst", MissingSoft::Worst), ("neutral", MissingSoft::Neutral)];

/// Reads `<SoftFilters>`; without one, all candidates score 0 and come in the order of their ids.
pub(super) fn read(element: Option<&Element>, declared: &Declared, mistakes: &Mistakes) -> Vec<SoftFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut at = Fields::of(element, mistakes);
    let mut filters = Vec::new();
    let mut names: Vec<Box<str>> = Vec::new();
    for child in at.children(&["SoftFilter"]) {
        let mut at = Fields::of(child, mistakes);
        let filter = read_one(&mut at, declared);
        let written = at.optional_handle("Name").or(at.written("Attribute"));
        if let Some(written) = written {
            if names.contains(&written.value) {
                let what = format!("a second soft filter is called {}", quoted(&written.value));
                at.wrong(written.value_span, what, "give it a Name of its own, so that terms can be told apart");
            }
            names.push(written.value.clone());
            filters.extend(filter.map(|filter| SoftFilter { name: written.value.clone(), ..filter }));
        }
        at.finish();
    }
    at.finish();
    filters
}

/// One filter, still without a name.
fn read_one(at: &mut Fields<'_>, declared: &Declared) -> Option<SoftFilter> {
    let attribute = at.required("Attribute");
    let weight = weight(at);
    let mode_written = at.written("Mode");
    let mode = at.word("Mode", &MODES);
    let curve = at.word("Curve", &CURVES).unwrap_or_default();
    let missing = at.word("Missing", &MISSING).unwrap_or_default();
    let has_range = at.written("Min").or(at.written("Max")).is_some();
    let own_range = min_and_max(at);
    let attribute = attribute?;
    let (measure, default_range, default_mode) = match &*attribute.value {
        "latency" => (Measure::Latency, Some(LATENCY_RANGE_MS), SoftMode::LowerIsBetter),
        "distance" => (Measure::Distance, Some(DISTANCE_RANGE_MILES), SoftMode::LowerIsBetter),
        _ => {
            let (index, kind) = declared.find_or(at, attribute, &MEASURED)?;
            let kind = kind?;
            if kind != ValueKind::Number {
                let what = format!("{} is a {}", quoted(&attribute.value), kind.as_str());
                at.wrong(attribute.value_span, what, "a soft filter needs a number attribute, `latency` or `distance`");
                return None;
            }
            (Measure::Attribute(index), declared.range(index), SoftMode::Difference)
        }
    };
    if mode == Some(SoftMode::Difference) && !matches!(measure, Measure::Attribute(_)) {
        let what = format!("{} belongs to a pair, so two sides cannot differ in it", quoted(&attribute.value));
        at.wrong(mode_written.unwrap_or(attribute).value_span, what, "write Mode=\"lower_is_better\"");
    }
    let (min, max) = own_range.or(default_range.filter(|_| !has_range)).or_else(|| {
        if !has_range {
            let what = format!("{} has no range to measure against", quoted(&attribute.value));
            at.wrong(attribute.value_span, what, "give Min and Max, here or where it is declared");
        }
        None
    })?;
    let mode = mode.unwrap_or(default_mode);
    Some(SoftFilter { name: "".into(), weight: weight?, measure, mode, curve, missing, min, max })
}

/// A weight as a number or as a share: `0.4` and `40%` are the same.
fn weight(at: &mut Fields<'_>) -> Option<f64> {
    let written = at.required("Weight")?;
    let text = written.value.trim();
    let number = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse().ok().map(|percent: f64| percent / 100.0),
        None => text.parse().ok(),
    };
    let sound = number.filter(|&weight| 0.0 < weight && weight <= WEIGHT_MAX);
    if sound.is_none() {
        at.wrong_value(written, format!("give a number above 0 and at most {WEIGHT_MAX}, or a share such as 40%"));
    }
    sound
}
