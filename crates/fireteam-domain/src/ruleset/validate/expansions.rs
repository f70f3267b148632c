//! `<ExpansionConfigs>`: limits that relax with time waited, in the thesis's grammar.

use std::cell::RefCell;

use crate::attribute::ValueType;
use crate::expansion::{Expansion, ExpansionStep};
use crate::limit::{NUMBER_MAGNITUDE_MAX, RULESET_DURATION_MS_MAX, RULESET_ENTRIES_PER_KIND_MAX};
use crate::measure::Measure;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, quoted_excerpt};
use crate::ruleset::spelling::{closest_name, suggestion};
use crate::ruleset::validate::StandaloneExpansions;
use crate::ruleset::validate::attributes::{DeclaredAttributes, SERVER_COMPUTED_MEASURE_NAMES};

/// Limits: non-negative numbers.
pub(super) const LIMIT_BOUNDS: NumberBounds = NumberBounds::new_inclusive(0.0, NUMBER_MAGNITUDE_MAX);

/// Expansions of a ruleset. An invalid one is kept by name, so that references to it are not reported too.
#[derive(Default)]
pub(super) struct DeclaredExpansions {
    names: Vec<Box<str>>,
    expansions: Vec<Option<Expansion>>,
}

impl DeclaredExpansions {
    /// Index of the expansion that `raw` names, and its measure if it is valid. Reports an unknown name.
    pub(super) fn find(&self, reader: &ElementReader<'_>, raw: &RawAttribute) -> Option<(usize, Option<Measure>)> {
        let Some(index) = self.names.iter().position(|name| *name == raw.value) else {
            let problem = format!("no <ExpansionConfig> has the name {}", quoted_excerpt(&raw.value));
            reader.report_at(raw.value_span, problem, suggestion(&raw.value, self.names.iter().map(|name| &**name)));
            return None;
        };
        Some((index, self.expansions[index].as_ref().map(|expansion| expansion.measure)))
    }

    /// Adds a constant limit without an `<ExpansionConfig>`; returns its index. `None` if the name is in use.
    pub(super) fn add_constant(&mut self, name: &str, measure: Measure, limit: f64) -> Option<usize> {
        if self.names.iter().any(|used_name| &**used_name == name) {
            return None;
        }
        self.names.push(name.into());
        self.expansions.push(Expansion::constant(name, measure, limit));
        Some(self.names.len() - 1)
    }

    /// Valid expansions. Invalid ones are dropped; then no ruleset results.
    pub(super) fn into_expansions(self) -> Box<[Expansion]> {
        self.expansions.into_iter().flatten().collect()
    }
}

/// Reads the `<ExpansionConfigs>` of a ruleset.
pub(super) fn read_expansions(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    diagnostics: &Diagnostics,
) -> DeclaredExpansions {
    let Some(element) = element else { return DeclaredExpansions::default() };
    read_expansion_configs(element, diagnostics, |reader, raw| match &*raw.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        _ => {
            let (index, kind) = declared.find_with_extra_suggestions(reader, raw, &SERVER_COMPUTED_MEASURE_NAMES)?;
            if kind? != ValueType::Number {
                let problem = format!("{} is a {}", quoted_excerpt(&raw.value), kind?.as_str());
                reader.report_at(raw.value_span, problem, "a limit needs a number attribute, `latency` or `distance`");
                return None;
            }
            Some(Measure::AttributeDifference(index))
        }
    })
}

/// Reads an `<ExpansionConfigs>` outside a ruleset; it accepts any attribute name.
pub(super) fn read_standalone_expansions(element: &RawElement, diagnostics: &Diagnostics) -> StandaloneExpansions {
    let attributes: RefCell<Vec<Box<str>>> = RefCell::default();
    let expansions = read_expansion_configs(element, diagnostics, |reader, raw| match &*raw.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        "" => {
            reader.report_value(raw, "give an attribute's name, `latency` or `distance`");
            None
        }
        name => {
            let mut attributes = attributes.borrow_mut();
            let position = attributes.iter().position(|attribute| &**attribute == name);
            Some(Measure::AttributeDifference(position.unwrap_or_else(|| {
                attributes.push(name.into());
                attributes.len() - 1
            })))
        }
    });
    StandaloneExpansions { attribute_names: attributes.take().into(), expansions: expansions.into_expansions() }
}

fn read_expansion_configs(
    element: &RawElement,
    diagnostics: &Diagnostics,
    measure_of: impl Fn(&ElementReader<'_>, &RawAttribute) -> Option<Measure>,
) -> DeclaredExpansions {
    let mut expansions = DeclaredExpansions::default();
    let mut reader = ElementReader::new(element, diagnostics);
    for config in reader.children_named(&["ExpansionConfig"]) {
        let mut reader = ElementReader::new(config, diagnostics);
        let name = reader.required_identifier("Name");
        let measure = reader.required_attribute("Type").and_then(|raw| measure_of(&reader, raw));
        let steps = read_expansion_steps(&mut reader, diagnostics);
        if let Some(name) = name {
            if expansions.names.contains(&name.value) {
                let problem = format!("{} appears a second time", quoted_excerpt(&name.value));
                reader.report_at(name.value_span, problem, "give each <ExpansionConfig> a unique Name");
            }
            expansions.names.push(name.value.clone());
            expansions
                .expansions
                .push(measure.zip(steps).and_then(|(measure, steps)| Expansion::new(&name.value, measure, steps)));
        }
        reader.report_unread_and_missing();
    }
    reader.report_unread_and_missing();
    expansions
}

/// Reads the steps of one config; `None` if a problem was reported.
fn read_expansion_steps(reader: &mut ElementReader<'_>, diagnostics: &Diagnostics) -> Option<Vec<ExpansionStep>> {
    let children = reader.children_named(&["Expansion"]);
    // A misspelt child is reported as such; do not report a missing step too.
    let has_misspelt_step =
        reader.element.children.iter().any(|child| closest_name(&child.name, ["Expansion"]).is_some());
    if children.is_empty() && !has_misspelt_step {
        let fix = "add an <Expansion ExpansionDurationMs=\"-1\" Value=\"…\"/>";
        reader.report_at(reader.element.name_span, "<ExpansionConfig> has no step", fix);
    }
    let last = children.len().saturating_sub(1);
    let mut steps: Vec<ExpansionStep> = Vec::new();
    let (mut start_ms, mut is_valid) = (0, !children.is_empty());
    for (index, child) in children.into_iter().enumerate() {
        let mut reader = ElementReader::new(child, diagnostics);
        let duration_ms = read_step_duration(&mut reader, index == last);
        let value = reader.required_number("Value", LIMIT_BOUNDS);
        if let (Some(value), Some(previous)) = (value, steps.last())
            && value < previous.limit
        {
            let problem = format!("the limit decreases from {} to {value}", previous.limit);
            let span = reader.attribute("Value").map_or(child.name_span, |raw| raw.value_span);
            reader.report_at(span, problem, format!("give {} or more: limits must not decrease", previous.limit));
            is_valid = false;
        }
        reader.report_unread_and_missing();
        is_valid &= value.is_some() && duration_ms.is_some();
        if let Some(value) = value {
            steps.push(ExpansionStep { start_ms, limit: value });
        }
        start_ms += duration_ms.unwrap_or(1);
    }
    is_valid.then_some(steps)
}

/// Reads the duration of a step, milliseconds. -1 means forever and is valid in the last step only. `None` if a problem
/// was reported.
fn read_step_duration(reader: &mut ElementReader<'_>, is_last: bool) -> Option<u64> {
    let raw = reader.required_attribute("ExpansionDurationMs")?;
    if raw.value.trim() == "-1" {
        if !is_last {
            let fix = format!("give a duration from 1 to {RULESET_DURATION_MS_MAX} ms, or delete the steps after it");
            reader.report_at(raw.value_span, "only the last step may last forever", fix);
        }
        return is_last.then_some(1);
    }
    let duration = raw.value.trim().parse().ok().filter(|duration| (1..=RULESET_DURATION_MS_MAX).contains(duration));
    if duration.is_none() {
        reader.report_value(
            raw,
            format!("give whole milliseconds from 1 to {RULESET_DURATION_MS_MAX}, or -1 for forever"),
        );
    }
    duration
}

const _: () = assert!((RULESET_ENTRIES_PER_KIND_MAX as u64) < u64::MAX / RULESET_DURATION_MS_MAX);
