//! Element reader: reads the attributes and children of one XML element by name and reports unknown names.
//!
//! The names that were read are the grammar; suggestions for misspelt names come from them.

use crate::limit::{RULESET_ENTRIES_PER_KIND_MAX, STRING_BYTES_MAX};
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, Span, quoted_excerpt};
use crate::ruleset::spelling::{closest_name, suggestion};

/// Reads one element. `report_unread_and_missing` must be the last call.
pub(super) struct ElementReader<'a> {
    /// Element to read.
    pub(super) element: &'a RawElement,
    diagnostics: &'a Diagnostics,
    known_attributes: Vec<&'static str>,
    known_children: Vec<&'static str>,
    /// Missing required attributes, each with a clause that says what to add.
    missing_attributes: Vec<(&'static str, String)>,
}

impl<'a> ElementReader<'a> {
    /// Starts to read `element`.
    pub(super) fn new(element: &'a RawElement, diagnostics: &'a Diagnostics) -> Self {
        Self {
            element,
            diagnostics,
            known_attributes: Vec::new(),
            known_children: Vec::new(),
            missing_attributes: Vec::new(),
        }
    }

    /// Reports a problem at any position of the file.
    pub(super) fn report_at(&self, span: Span, problem: impl Into<String>, fix: impl Into<String>) {
        self.diagnostics.report(span, problem, fix);
    }

    /// Attribute `name`, if present.
    pub(super) fn attribute(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        if !self.known_attributes.contains(&name) {
            self.known_attributes.push(name);
        }
        self.element.attributes.iter().find(|attribute| &*attribute.name == name)
    }

    /// Attribute `name`; reports its absence.
    pub(super) fn required_attribute(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let attribute = self.attribute(name);
        if attribute.is_none() {
            self.missing_attributes.push((name, format!("add {name}=\"…\"")));
        }
        attribute
    }

    /// Reports if none of `names` is present. A misspelt name counts as present.
    pub(super) fn require_any_attribute(&mut self, names: &[&'static str]) {
        let intended = |attribute: &RawAttribute| closest_name(&attribute.name, names.iter().copied()).is_some();
        let Some(&first) = names.first() else { return };
        if !self.element.attributes.iter().any(intended) {
            let all: Vec<String> = names.iter().map(|name| format!("{name}=\"…\"")).collect();
            self.missing_attributes.push((first, format!("add {}", all.join(" or "))));
        }
    }

    /// Reports an invalid attribute value.
    pub(super) fn report_value(&self, attribute: &RawAttribute, fix: impl Into<String>) {
        self.report_at(
            attribute.value_span,
            format!("`{}` is {}", attribute.name, quoted_excerpt(&attribute.value)),
            fix,
        );
    }

    /// Reports each present attribute of `names` as having no effect. `reason` is a clause.
    pub(super) fn report_without_effect(&mut self, names: &[&'static str], reason: &str) {
        for name in names {
            if let Some(attribute) = self.attribute(name) {
                self.report_at(
                    attribute.name_span,
                    format!("`{name}` has no effect here"),
                    format!("remove it: {reason}"),
                );
            }
        }
    }

    /// Required name that other elements refer to: ASCII letters, digits, `_`, `-` and `.`.
    pub(super) fn required_identifier(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let attribute = self.required_attribute(name)?;
        self.check_identifier(attribute).then_some(attribute)
    }

    /// Optional name that other elements refer to: ASCII letters, digits, `_`, `-` and `.`.
    pub(super) fn optional_identifier(&mut self, name: &'static str) -> Option<&'a RawAttribute> {
        let attribute = self.attribute(name)?;
        self.check_identifier(attribute).then_some(attribute)
    }

    fn check_identifier(&self, attribute: &RawAttribute) -> bool {
        let length_is_valid = (1..=STRING_BYTES_MAX).contains(&attribute.value.len());
        let characters_are_valid =
            attribute.value.chars().all(|character| character.is_ascii_alphanumeric() || "_-.".contains(character));
        if !length_is_valid || !characters_are_valid {
            self.report_value(attribute, format!("give 1 to {STRING_BYTES_MAX} letters, digits, `_`, `-` or `.`"));
        }
        length_is_valid && characters_are_valid
    }

    /// Text for people, at most `limit::STRING_BYTES_MAX` bytes; empty if absent.
    pub(super) fn display_text(&mut self, name: &'static str) -> Box<str> {
        let Some(attribute) = self.attribute(name) else { return "".into() };
        if attribute.value.len() > STRING_BYTES_MAX {
            self.report_value(attribute, format!("give at most {STRING_BYTES_MAX} bytes"));
        }
        attribute.value.clone()
    }

    /// Number within `bounds`. `None` if absent, or if invalid and reported.
    pub(super) fn optional_number(&mut self, name: &'static str, bounds: NumberBounds) -> Option<f64> {
        let attribute = self.attribute(name)?;
        self.parse_number(attribute, bounds)
    }

    /// Required number within `bounds`. `None` if a problem was reported.
    pub(super) fn required_number(&mut self, name: &'static str, bounds: NumberBounds) -> Option<f64> {
        let attribute = self.required_attribute(name)?;
        self.parse_number(attribute, bounds)
    }

    /// Number within `bounds`, or `default` if absent or invalid.
    pub(super) fn number_or(&mut self, name: &'static str, bounds: NumberBounds, default: f64) -> f64 {
        self.optional_number(name, bounds).unwrap_or(default)
    }

    fn parse_number(&self, attribute: &RawAttribute, bounds: NumberBounds) -> Option<f64> {
        let number = attribute.value.trim().parse().ok().filter(|&number: &f64| bounds.contains(number));
        if number.is_none() {
            self.report_value(attribute, bounds.fix_message());
        }
        // Adding 0 turns -0 into 0: both are the same limit and must have the same hash.
        number.map(|number| number + 0.0)
    }

    /// Integer from `min` to `max`. `None` if absent, or if invalid and reported.
    pub(super) fn optional_integer(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let attribute = self.attribute(name)?;
        self.parse_integer(attribute, min, max)
    }

    /// Required integer from `min` to `max`. `None` if a problem was reported.
    pub(super) fn required_integer(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let attribute = self.required_attribute(name)?;
        self.parse_integer(attribute, min, max)
    }

    /// Integer from `min` to `max`, or `default` if absent or invalid.
    pub(super) fn integer_or(&mut self, name: &'static str, min: u64, max: u64, default: u64) -> u64 {
        self.optional_integer(name, min, max).unwrap_or(default)
    }

    /// Parses the value of `attribute` as an integer from `min` to `max`.
    pub(super) fn parse_integer(&self, attribute: &RawAttribute, min: u64, max: u64) -> Option<u64> {
        let number = attribute.value.trim().parse().ok().filter(|number| min <= *number && *number <= max);
        if number.is_none() {
            self.report_value(attribute, format!("give a whole number from {min} to {max}"));
        }
        number
    }

    /// One of `keywords`. `None` if absent, or if invalid and reported.
    pub(super) fn optional_keyword<T: Copy>(
        &mut self,
        name: &'static str,
        keywords: &[(&'static str, T)],
    ) -> Option<T> {
        let attribute = self.attribute(name)?;
        self.parse_keyword(attribute, keywords)
    }

    /// Required; one of `keywords`. `None` if a problem was reported.
    pub(super) fn required_keyword<T: Copy>(
        &mut self,
        name: &'static str,
        keywords: &[(&'static str, T)],
    ) -> Option<T> {
        let Some(attribute) = self.required_attribute(name) else {
            let known: Vec<&str> = keywords.iter().map(|(keyword, _)| *keyword).collect();
            if let Some((_, fix)) = self.missing_attributes.last_mut() {
                fix.push_str(&format!(" with one of {}", known.join(", ")));
            }
            return None;
        };
        self.parse_keyword(attribute, keywords)
    }

    fn parse_keyword<T: Copy>(&self, attribute: &RawAttribute, keywords: &[(&'static str, T)]) -> Option<T> {
        let matched = keywords.iter().find(|(keyword, _)| *keyword == &*attribute.value);
        if matched.is_none() {
            self.report_value(attribute, suggestion(&attribute.value, keywords.iter().map(|(keyword, _)| *keyword)));
        }
        matched.map(|(_, value)| *value)
    }

    /// `true` or `false`; `default` if absent.
    pub(super) fn bool_or(&mut self, name: &'static str, default: bool) -> bool {
        self.optional_keyword(name, &[("true", true), ("false", false)]).unwrap_or(default)
    }

    /// Child `name`, if present; reports a second one.
    pub(super) fn single_child(&mut self, name: &'static str) -> Option<&'a RawElement> {
        self.known_children.push(name);
        let mut named = self.element.children.iter().filter(|child| &*child.name == name);
        let first = named.next();
        for duplicate in named {
            self.report_at(duplicate.name_span, format!("<{name}> appears a second time"), "merge it into the first");
        }
        first
    }

    /// Children with one of `names`, in file order. Reports more than `limit::RULESET_ENTRIES_PER_KIND_MAX` and drops
    /// the rest.
    pub(super) fn children_named(&mut self, names: &[&'static str]) -> Vec<&'a RawElement> {
        self.known_children.extend(names);
        let mut matched: Vec<&RawElement> =
            self.element.children.iter().filter(|child| names.contains(&&*child.name)).collect();
        if let Some(excess) = matched.get(RULESET_ENTRIES_PER_KIND_MAX) {
            let problem = format!("<{}> has {} child elements", self.element.name, matched.len());
            self.report_at(excess.name_span, problem, format!("keep at most {RULESET_ENTRIES_PER_KIND_MAX}"));
        }
        matched.truncate(RULESET_ENTRIES_PER_KIND_MAX);
        matched
    }

    /// Reports the attributes, elements and text that were not read, and missing attributes.
    pub(super) fn report_unread_and_missing(mut self) {
        let element = self.element;
        let tag = &element.name;
        // Suggestions take time. Compute them only for problems that will be reported.
        let unknown = element.attributes.iter().filter(|attribute| !self.known_attributes.contains(&&*attribute.name));
        for attribute in unknown.take(self.diagnostics.remaining_capacity()) {
            // A misspelt attribute is one problem: do not report the intended name as missing too.
            let intended = closest_name(&attribute.name, self.known_attributes.iter().copied());
            self.missing_attributes.retain(|(missing, _)| Some(*missing) != intended);
            let fix = match self.known_attributes.as_slice() {
                [] => "remove it".into(),
                known => suggestion(&attribute.name, known.iter().copied()),
            };
            self.report_at(
                attribute.name_span,
                format!("<{tag}> has no attribute {}", quoted_excerpt(&attribute.name)),
                fix,
            );
        }
        let unknown = element.children.iter().filter(|child| !self.known_children.contains(&&*child.name));
        for child in unknown.take(self.diagnostics.remaining_capacity()) {
            let fix = match self.known_children.as_slice() {
                [] => "remove it".into(),
                known => suggestion(&child.name, known.iter().copied()),
            };
            self.report_at(
                child.name_span,
                format!("<{tag}> has no child element {}", quoted_excerpt(&child.name)),
                fix,
            );
        }
        if let Some(text) = element.text_span {
            self.report_at(text, format!("<{tag}> contains text"), "use an attribute or a <!-- comment -->");
        }
        for (name, fix) in &self.missing_attributes {
            self.report_at(element.name_span, format!("<{tag}> has no `{name}`"), fix.as_str());
        }
    }
}
