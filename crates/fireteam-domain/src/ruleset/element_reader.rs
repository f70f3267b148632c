//! Reads one element's attributes and children by name, and notes whatever nobody asked for.
//!
//! The names that a reader asks for are the grammar: they are what misspelt ones are compared with.

use crate::limit::{NUMBER_MAGNITUDE_MAX, RULESET_ENTRIES_PER_KIND_MAX, STRING_BYTES_MAX};
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, Span, quoted_excerpt};
use crate::ruleset::spelling::{closest_name, suggestion};

/// Which numbers an attribute takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberBounds {
    min: f64,
    max: f64,
    /// `min` itself is refused.
    min_is_exclusive: bool,
}

impl NumberBounds {
    /// From `min` to `max`, both included.
    pub(super) const fn inclusive(min: f64, max: f64) -> Self {
        Self { min, max, min_is_exclusive: false }
    }

    /// More than `min`, and at most `max`.
    pub(super) const fn greater_than(min: f64, max: f64) -> Self {
        Self { min, max, min_is_exclusive: true }
    }

    /// From 0 to 100.
    pub(super) const PERCENT: Self = Self::inclusive(0.0, 100.0);

    fn contains(self, number: f64) -> bool {
        self.min <= number && number <= self.max && !(self.min_is_exclusive && number == self.min)
    }

    fn fix_message(self) -> String {
        match (self.min_is_exclusive, self.min, self.max) {
            (true, min, max) => format!("give a number above {min} and at most {max}"),
            (false, min, NUMBER_MAGNITUDE_MAX) if min < 0.0 => "give a number, at most 1e12 away from 0".into(),
            (false, min, NUMBER_MAGNITUDE_MAX) => format!("give a number, {min} or more, at most 1e12"),
            (false, min, max) => format!("give a number from {min} to {max}"),
        }
    }
}

/// One element being read. `finish` must be the last call.
pub(super) struct ElementReader<'a> {
    /// The element.
    pub(super) element: &'a RawElement,
    diagnostics: &'a Diagnostics,
    known_attributes: Vec<&'static str>,
    known_children: Vec<&'static str>,
    /// Names that are required and absent, each with a clause that says what to add.
    missing_attributes: Vec<(&'static str, String)>,
}

impl<'a> ElementReader<'a> {
    /// Begins to read `element`.
    pub(super) fn new(element: &'a RawElement, mistakes: &'a Diagnostics) -> Self {
        Self {
            element,
            diagnostics: mistakes,
            known_attributes: Vec::new(),
            known_children: Vec::new(),
            missing_attributes: Vec::new(),
        }
    }

    /// Notes a mistake anywhere in the file.
    pub(super) fn report(&self, span: Span, what: impl Into<String>, right: impl Into<String>) {
        self.diagnostics.report(span, what, right);
    }

    /// The attribute `name` as written, if it is there.
    pub(super) fn attribute(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        if !self.known_attributes.contains(&name) {
            self.known_attributes.push(name);
        }
        self.element.attributes.iter().find(|attribute| &*attribute.name == name)
    }

    /// The attribute `name` as written; its absence is a mistake.
    pub(super) fn required_attribute(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let written = self.attribute(name);
        if written.is_none() {
            self.missing_attributes.push((name, format!("add {name}=\"…\"")));
        }
        written
    }

    /// Of several attributes at least one must be there; a misspelt one is.
    pub(super) fn require_any_attribute(&mut self, names: &[&'static str]) {
        let meant = |written: &RawAttribute| closest_name(&written.name, names.iter().copied()).is_some();
        let Some(&first) = names.first() else { return };
        if !self.element.attributes.iter().any(meant) {
            let all: Vec<String> = names.iter().map(|name| format!("{name}=\"…\"")).collect();
            self.missing_attributes.push((first, format!("add {}", all.join(" or "))));
        }
    }

    /// Notes that an attribute's value is wrong.
    pub(super) fn report_value(&self, written: &RawAttribute, right: impl Into<String>) {
        self.report(written.value_span, format!("`{}` is {}", written.name, quoted_excerpt(&written.value)), right);
    }

    /// Notes that the attributes called `names`, where they are written, change nothing; `why` is a clause.
    pub(super) fn report_without_effect(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            if let Some(written) = self.attribute(name) {
                self.report(
                    written.name_span,
                    format!("`{name}` changes nothing here"),
                    format!("leave it out: {why}"),
                );
            }
        }
    }

    /// A name that other places refer to: required, of letters, digits, `_`, `-` and `.`.
    pub(super) fn required_identifier(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let written = self.required_attribute(name)?;
        self.check_identifier(written).then_some(written)
    }

    /// The same, when it may be left out.
    pub(super) fn optional_identifier(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let written = self.attribute(name)?;
        self.check_identifier(written).then_some(written)
    }

    fn check_identifier(&self, written: &RawAttribute) -> bool {
        let fits = (1..=STRING_BYTES_MAX).contains(&written.value.len());
        let plain = written.value.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
        if !fits || !plain {
            self.report_value(written, format!("give 1 to {STRING_BYTES_MAX} letters, digits, `_`, `-` or `.`"));
        }
        fits && plain
    }

    /// A text for people, at most `limit::TEXT_BYTES_MAX` bytes; empty when absent.
    pub(super) fn display_text(&mut self, name: &'static str) -> Box<str> {
        let Some(written) = self.attribute(name) else { return "".into() };
        if STRING_BYTES_MAX < written.value.len() {
            self.report_value(written, format!("give at most {STRING_BYTES_MAX} bytes"));
        }
        written.value.clone()
    }

    /// A number within bounds; `None` when it is absent, or wrong and noted.
    pub(super) fn optional_number(&mut self, name: &'static str, bounds: NumberBounds) -> Option<f64> {
        let written = self.attribute(name)?;
        self.parse_number(written, bounds)
    }

    /// A number that must be there; `None` when the mistake is noted.
    pub(super) fn required_number(&mut self, name: &'static str, bounds: NumberBounds) -> Option<f64> {
        let written = self.required_attribute(name)?;
        self.parse_number(written, bounds)
    }

    /// A number, or `default` when it is absent.
    pub(super) fn number_or(&mut self, name: &'static str, bounds: NumberBounds, default: f64) -> f64 {
        self.optional_number(name, bounds).unwrap_or(default)
    }

    fn parse_number(&self, written: &RawAttribute, bounds: NumberBounds) -> Option<f64> {
        let number = written.value.trim().parse().ok().filter(|&number: &f64| bounds.contains(number));
        if number.is_none() {
            self.report_value(written, bounds.fix_message());
        }
        // Adding zero turns -0 into 0, which is the same limit and must be the same hash.
        number.map(|number| number + 0.0)
    }

    /// A whole number from `min` to `max`; `None` when it is absent, or wrong and noted.
    pub(super) fn optional_integer(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let written = self.attribute(name)?;
        self.parse_integer(written, min, max)
    }

    /// A whole number that must be there.
    pub(super) fn required_integer(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let written = self.required_attribute(name)?;
        self.parse_integer(written, min, max)
    }

    /// A whole number, or `default` when it is absent.
    pub(super) fn integer_or(&mut self, name: &'static str, min: u64, max: u64, default: u64) -> u64 {
        self.optional_integer(name, min, max).unwrap_or(default)
    }

    /// A value, already found, as a whole number from `min` to `max`.
    pub(super) fn parse_integer(&self, written: &RawAttribute, min: u64, max: u64) -> Option<u64> {
        let number = written.value.trim().parse().ok().filter(|number| min <= *number && *number <= max);
        if number.is_none() {
            self.report_value(written, format!("give a whole number from {min} to {max}"));
        }
        number
    }

    /// One of a few words; `None` when it is absent, or wrong and noted.
    pub(super) fn optional_keyword<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let written = self.attribute(name)?;
        self.parse_keyword(written, words)
    }

    /// One of a few words, which must be there.
    pub(super) fn required_keyword<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let Some(written) = self.required_attribute(name) else {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            if let Some((_, right)) = self.missing_attributes.last_mut() {
                right.push_str(&format!(" with one of {}", known.join(", ")));
            }
            return None;
        };
        self.parse_keyword(written, words)
    }

    fn parse_keyword<T: Copy>(&self, written: &RawAttribute, words: &[(&'static str, T)]) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == &*written.value);
        if found.is_none() {
            self.report_value(written, suggestion(&written.value, words.iter().map(|(word, _)| *word)));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// `true` or `false`, or `default` when it is absent.
    pub(super) fn bool_or(&mut self, name: &'static str, default: bool) -> bool {
        self.optional_keyword(name, &[("true", true), ("false", false)]).unwrap_or(default)
    }

    /// The only child called `name`, if it is there; a second one is a mistake.
    pub(super) fn single_child(&mut self, name: &'static str) -> Option<&'a RawElement> {
        self.known_children.push(name);
        let mut named = self.element.children.iter().filter(|child| &*child.name == name);
        let first = named.next();
        for again in named {
            self.report(again.name_span, format!("<{name}> is here a second time"), "put all of it into the first");
        }
        first
    }

    /// All children with one of `names`, in file order; more than `limit::RULES_MAX` is a mistake.
    pub(super) fn children_named(&mut self, names: &[&'static str]) -> Vec<&'a RawElement> {
        self.known_children.extend(names);
        let mut found: Vec<&RawElement> =
            self.element.children.iter().filter(|child| names.contains(&&*child.name)).collect();
        if let Some(excess) = found.get(RULESET_ENTRIES_PER_KIND_MAX) {
            let what = format!("<{}> holds {} elements", self.element.name, found.len());
            self.report(excess.name_span, what, format!("keep at most {RULESET_ENTRIES_PER_KIND_MAX}"));
        }
        found.truncate(RULESET_ENTRIES_PER_KIND_MAX);
        found
    }

    /// Notes what is left: attributes, elements and text that nobody asked for, and what is missing.
    pub(super) fn report_unread(mut self) {
        let element = self.element;
        let tag = &element.name;
        // Suggestions take time; beyond what is reported at all, nobody would see them.
        let strangers = element.attributes.iter().filter(|written| !self.known_attributes.contains(&&*written.name));
        for written in strangers.take(self.diagnostics.remaining_capacity()) {
            // A misspelt attribute is one mistake, not two: what it was meant to be is not missing as well.
            let meant = closest_name(&written.name, self.known_attributes.iter().copied());
            self.missing_attributes.retain(|(missing, _)| Some(*missing) != meant);
            let right = match self.known_attributes.as_slice() {
                [] => "leave it out".into(),
                known => suggestion(&written.name, known.iter().copied()),
            };
            self.report(
                written.name_span,
                format!("<{tag}> has no attribute {}", quoted_excerpt(&written.name)),
                right,
            );
        }
        let strangers = element.children.iter().filter(|child| !self.known_children.contains(&&*child.name));
        for child in strangers.take(self.diagnostics.remaining_capacity()) {
            let right = match self.known_children.as_slice() {
                [] => "leave it out".into(),
                known => suggestion(&child.name, known.iter().copied()),
            };
            self.report(child.name_span, format!("<{tag}> takes no element {}", quoted_excerpt(&child.name)), right);
        }
        if let Some(text) = element.text_span {
            self.report(text, format!("<{tag}> holds text"), "say it in an attribute, or in a <!-- comment -->");
        }
        for (name, right) in &self.missing_attributes {
            self.report(element.name_span, format!("<{tag}> lacks `{name}`"), right.as_str());
        }
    }
}
