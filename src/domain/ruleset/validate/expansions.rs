//! `<ExpansionConfigs>`: limits that relax with time waited, in the thesis's own grammar (S1-34, S1-35).

use std::cell::RefCell;

use crate::domain::attribute::ValueKind;
use crate::domain::expansion::{Expansion, Step};
use crate::domain::limit::{DURATION_MS_MAX, NUMBER_MAGNITUDE_MAX, RULES_MAX};
use crate::domain::measure::Measure;
use crate::domain::ruleset::draft::{Element, Mistakes, Written, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::suggest::{instead, nearest};
use crate::domain::ruleset::validate::Fragment;
use crate::domain::ruleset::validate::attributes::{Declared, MEASURED};

/// A limit: no less than nothing.
pub(super) const LIMIT: Bounds = Bounds::within(0.0, NUMBER_MAGNITUDE_MAX);

/// The expansions of a ruleset. One that is broken is kept by name, so that what refers to it is not wrong as well.
#[derive(Default)]
pub(super) struct Expansions {
    names: Vec<Box<str>>,
    sound: Vec<Option<Expansion>>,
}

impl Expansions {
    /// The expansion that `written` names: its place, and what it measures where it is sound. Notes an unknown name.
    pub(super) fn find(&self, at: &Fields<'_>, written: &Written) -> Option<(usize, Option<Measure>)> {
        let found = self.names.iter().position(|name| *name == written.value);
        let Some(index) = found else {
            let what = format!("no <ExpansionConfig> is called {}", quoted(&written.value));
            at.wrong(written.value_span, what, instead(&written.value, self.names.iter().map(|name| &**name)));
            return None;
        };
        Some((index, self.sound[index].as_ref().map(|expansion| expansion.measure)))
    }

    /// Adds a limit that does not change and has no `<ExpansionConfig>`; its place. `None` when the name is taken.
    pub(super) fn add_constant(&mut self, name: &str, measure: Measure, limit: f64) -> Option<usize> {
        if self.names.iter().any(|known| &**known == name) {
            return None;
        }
        self.names.push(name.into());
        self.sound.push(Expansion::constant(name, measure, limit));
        Some(self.names.len() - 1)
    }

    /// The expansions; broken ones are left out, which only happens where no ruleset comes of it.
    pub(super) fn into_expansions(self) -> Box<[Expansion]> {
        self.sound.into_iter().flatten().collect()
    }
}

/// Reads the section of a ruleset.
pub(super) fn read(element: Option<&Element>, declared: &Declared, mistakes: &Mistakes) -> Expansions {
    let Some(element) = element else { return Expansions::default() };
    read_with(element, mistakes, |at, written| match &*written.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        _ => {
            let (index, kind) = declared.find_or(at, written, &MEASURED)?;
            if kind? != ValueKind::Number {
                let what = format!("{} is a {}", quoted(&written.value), kind?.as_str());
                at.wrong(written.value_span, what, "a limit needs a number attribute, `latency` or `distance`");
                return None;
            }
            Some(Measure::Attribute(index))
        }
    })
}

/// Reads a section that stands alone: any name will do as an attribute.
pub(super) fn read_fragment(element: &Element, mistakes: &Mistakes) -> Fragment {
    let attributes: RefCell<Vec<Box<str>>> = RefCell::default();
    let expansions = read_with(element, mistakes, |at, written| match &*written.value {
        "latency" => Some(Measure::Latency),
        "distance" => Some(Measure::Distance),
        "" => {
            at.wrong_value(written, "give an attribute's name, `latency` or `distance`");
            None
        }
        name => {
            let mut attributes = attributes.borrow_mut();
            let known = attributes.iter().position(|attribute| &**attribute == name);
            Some(Measure::Attribute(known.unwrap_or_else(|| {
                attributes.push(name.into());
                attributes.len() - 1
            })))
        }
    });
    Fragment { attributes: attributes.take().into(), expansions: expansions.into_expansions() }
}

fn read_with(
    element: &Element,
    mistakes: &Mistakes,
    measure_of: impl Fn(&Fields<'_>, &Written) -> Option<Measure>,
) -> Expansions {
    let mut expansions = Expansions::default();
    let mut at = Fields::of(element, mistakes);
    for config in at.children(&["ExpansionConfig"]) {
        let mut at = Fields::of(config, mistakes);
        let name = at.handle("Name");
        let measure = at.required("Type").and_then(|written| measure_of(&at, written));
        let steps = read_steps(&mut at, mistakes);
        if let Some(name) = name {
            if expansions.names.contains(&name.value) {
                let what = format!("{} is here a second time", quoted(&name.value));
                at.wrong(name.value_span, what, "give every <ExpansionConfig> a name of its own");
            }
            expansions.names.push(name.value.clone());
            expansions.sound.push(measure.zip(steps).and_then(|(it, steps)| Expansion::new(&name.value, it, steps)));
        }
        at.finish();
    }
    at.finish();
    expansions
}

/// The steps of one config; `None` when a mistake among them is noted.
fn read_steps(at: &mut Fields<'_>, mistakes: &Mistakes) -> Option<Vec<Step>> {
    let children = at.children(&["Expansion"]);
    // A child whose name is a near miss is reported as such: that there is no step would be the same mistake again.
    let misspelt = at.element.children.iter().any(|child| nearest(&child.name, ["Expansion"]).is_some());
    if children.is_empty() && !misspelt {
        let right = "add an <Expansion ExpansionDurationMs=\"-1\" Value=\"…\"/>";
        at.wrong(at.element.span, "<ExpansionConfig> has no step", right);
    }
    let last = children.len().saturating_sub(1);
    let mut steps: Vec<Step> = Vec::new();
    let (mut start_ms, mut sound) = (0, !children.is_empty());
    for (index, child) in children.into_iter().enumerate() {
        let mut at = Fields::of(child, mistakes);
        let duration_ms = read_duration(&mut at, index == last);
        let value = at.required_number("Value", LIMIT);
        if let (Some(value), Some(before)) = (value, steps.last())
            && value < before.value
        {
            let what = format!("the limit shrinks from {} to {value}", before.value);
            let span = at.written("Value").map_or(child.span, |written| written.value_span);
            at.wrong(span, what, format!("give {} or more: limits only relax while a player waits", before.value));
            sound = false;
        }
        at.finish();
        sound &= value.is_some() && duration_ms.is_some();
        if let Some(value) = value {
            steps.push(Step { start_ms, value });
        }
        start_ms += duration_ms.unwrap_or(1);
    }
    sound.then_some(steps)
}

/// How long a step lasts; -1, for ever, only in the last place. `None` when it is missing or wrong and noted.
fn read_duration(at: &mut Fields<'_>, is_last: bool) -> Option<u64> {
    let written = at.required("ExpansionDurationMs")?;
    if written.value.trim() == "-1" {
        if !is_last {
            let right = format!("give it an end, from 1 to {DURATION_MS_MAX} ms, or delete the steps after it");
            at.wrong(written.value_span, "a step that lasts for ever is not the last one", right);
        }
        return is_last.then_some(1);
    }
    let duration = written.value.trim().parse().ok().filter(|duration| (1..=DURATION_MS_MAX).contains(duration));
    if duration.is_none() {
        at.wrong_value(written, format!("give whole milliseconds from 1 to {DURATION_MS_MAX}, or -1 for ever"));
    }
    duration
}

const _: () = assert!((RULES_MAX as u64) < u64::MAX / DURATION_MS_MAX);
