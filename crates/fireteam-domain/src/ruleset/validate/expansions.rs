//! `<ExpansionConfigs>`: limits that relax with time waited, in the thesis's own grammar (S1-34, S1-35).

use std::cell::RefCell;

use crate::attribute::ValueType;
use crate::expansion::{Expansion, ExpansionStep};
use crate::limit::{NUMBER_MAGNITUDE_MAX, RULESET_DURATION_MS_MAX, RULESET_ENTRIES_PER_KIND_MAX};
use crate::measure::Measure;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, quoted_excerpt};
use crate::ruleset::spelling::{closest_name, suggestion};
use crate::ruleset::validate::ExpansionFragment;
use crate::ruleset::validate::attributes::{DeclaredAttributes, MEASURED_BY_SERVER};

/// A limit: no less than nothing.
pub(super) const LIMIT_BOUNDS: NumberBounds = NumberBounds::inclusive(0.0, NUMBER_MAGNITUDE_MAX);

/// The expansions of a ruleset. One that is broken is kept by name, so that what refers to it is not wrong as well.
#[derive(Default)]
pub(super) struct DeclaredExpansions {
    names: Vec<Box<str>>,
    expansions: Vec<Option<Expansion>>,
}

impl DeclaredExpansions {
    /// The expansion that `written` names: its place, and what it measures where it is sound. Notes an unknown name.
    pub(super) fn find(&self, at: &ElementReader<'_>, written: &RawAttribute) -> Option<(usize, Option<Measure>)> {
        let found = self.names.iter().position(|name| *name == written.value);
        let Some(index) = found else {
            let what = format!("no <ExpansionConfig> is called {}", quoted_excerpt(&written.value));
            at.report(written.value_span, what, suggestion(&written.value, self.names.iter().map(|name| &**name)));
            return None;
        };
        Some((index, self.expansions[index].as_ref().map(|expansion| expansion.measure)))
    }

    /// Adds a limit that does not change and has no `<ExpansionConfig>`; its place. `None` when the name is taken.
    pub(super) fn add_constant(&mut self, name: &str, measure: Measure, limit: f64) -> Option<usize> {
        if self.names.iter().any(|known| &**known == name) {
            return None;
        }
        self.names.push(name.into());
        self.expansions.push(Expansion::constant(name, measure, limit));
        Some(self.names.len() - 1)
    }

    /// The expansions; broken ones are left out, which only happens where no ruleset comes of it.
    pub(super) fn into_expansions(self) -> Box<[Expansion]> {
        self.expansions.into_iter().flatten().collect()
    }
}

/// Reads the section of a ruleset.
pub(super) fn read_expansions(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    mistakes: &Diagnostics,
) -> DeclaredExpansions {
    let Some(element) = element else { return DeclaredExpansions::default() };
    read_expansion_configs(element, mistakes, |at, written| match &*written.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        _ => {
            let (index, kind) = declared.find_with_suggestions(at, written, &MEASURED_BY_SERVER)?;
            if kind? != ValueType::Number {
                let what = format!("{} is a {}", quoted_excerpt(&written.value), kind?.as_str());
                at.report(written.value_span, what, "a limit needs a number attribute, `latency` or `distance`");
                return None;
            }
            Some(Measure::AttributeDifference(index))
        }
    })
}

/// Reads a section that stands alone: any name will do as an attribute.
pub(super) fn read_expansion_fragment(element: &RawElement, mistakes: &Diagnostics) -> ExpansionFragment {
    let attributes: RefCell<Vec<Box<str>>> = RefCell::default();
    let expansions = read_expansion_configs(element, mistakes, |at, written| match &*written.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        "" => {
            at.report_value(written, "give an attribute's name, `latency` or `distance`");
            None
        }
        name => {
            let mut attributes = attributes.borrow_mut();
            let known = attributes.iter().position(|attribute| &**attribute == name);
            Some(Measure::AttributeDifference(known.unwrap_or_else(|| {
                attributes.push(name.into());
                attributes.len() - 1
            })))
        }
    });
    ExpansionFragment { attribute_names: attributes.take().into(), expansions: expansions.into_expansions() }
}

fn read_expansion_configs(
    element: &RawElement,
    mistakes: &Diagnostics,
    measure_of: impl Fn(&ElementReader<'_>, &RawAttribute) -> Option<Measure>,
) -> DeclaredExpansions {
    let mut expansions = DeclaredExpansions::default();
    let mut at = ElementReader::new(element, mistakes);
    for config in at.children_named(&["ExpansionConfig"]) {
        let mut at = ElementReader::new(config, mistakes);
        let name = at.required_identifier("Name");
        let measure = at.required_attribute("Type").and_then(|written| measure_of(&at, written));
        let steps = read_expansion_steps(&mut at, mistakes);
        if let Some(name) = name {
            if expansions.names.contains(&name.value) {
                let what = format!("{} is here a second time", quoted_excerpt(&name.value));
                at.report(name.value_span, what, "give every <ExpansionConfig> a name of its own");
            }
            expansions.names.push(name.value.clone());
            expansions
                .expansions
                .push(measure.zip(steps).and_then(|(it, steps)| Expansion::new(&name.value, it, steps)));
        }
        at.report_unread();
    }
    at.report_unread();
    expansions
}

/// The steps of one config; `None` when a mistake among them is noted.
fn read_expansion_steps(at: &mut ElementReader<'_>, mistakes: &Diagnostics) -> Option<Vec<ExpansionStep>> {
    let children = at.children_named(&["Expansion"]);
    // A child whose name is a near miss is reported as such: that there is no step would be the same mistake again.
    let misspelt = at.element.children.iter().any(|child| closest_name(&child.name, ["Expansion"]).is_some());
    if children.is_empty() && !misspelt {
        let right = "add an <Expansion ExpansionDurationMs=\"-1\" Value=\"…\"/>";
        at.report(at.element.name_span, "<ExpansionConfig> has no step", right);
    }
    let last = children.len().saturating_sub(1);
    let mut steps: Vec<ExpansionStep> = Vec::new();
    let (mut start_ms, mut sound) = (0, !children.is_empty());
    for (index, child) in children.into_iter().enumerate() {
        let mut at = ElementReader::new(child, mistakes);
        let duration_ms = read_step_duration(&mut at, index == last);
        let value = at.required_number("Value", LIMIT_BOUNDS);
        if let (Some(value), Some(before)) = (value, steps.last())
            && value < before.limit
        {
            let what = format!("the limit shrinks from {} to {value}", before.limit);
            let span = at.attribute("Value").map_or(child.name_span, |written| written.value_span);
            at.report(span, what, format!("give {} or more: limits only relax while a player waits", before.limit));
            sound = false;
        }
        at.report_unread();
        sound &= value.is_some() && duration_ms.is_some();
        if let Some(value) = value {
            steps.push(ExpansionStep { start_ms, limit: value });
        }
        start_ms += duration_ms.unwrap_or(1);
    }
    sound.then_some(steps)
}

/// How long a step lasts; -1, for ever, only in the last place. `None` when it is missing or wrong and noted.
fn read_step_duration(at: &mut ElementReader<'_>, is_last: bool) -> Option<u64> {
    let written = at.required_attribute("ExpansionDurationMs")?;
    if written.value.trim() == "-1" {
        if !is_last {
            let right = format!("give it an end, from 1 to {RULESET_DURATION_MS_MAX} ms, or delete the steps after it");
            at.report(written.value_span, "a step that lasts for ever is not the last one", right);
        }
        return is_last.then_some(1);
    }
    let duration =
        written.value.trim().parse().ok().filter(|duration| (1..=RULESET_DURATION_MS_MAX).contains(duration));
    if duration.is_none() {
        at.report_value(
            written,
            format!("give whole milliseconds from 1 to {RULESET_DURATION_MS_MAX}, or -1 for ever"),
        );
    }
    duration
}

const _: () = assert!((RULESET_ENTRIES_PER_KIND_MAX as u64) < u64::MAX / RULESET_DURATION_MS_MAX);
