//! Reads one element's attributes and children by name, and notes whatever nobody asked for.
//!
//! The names that a reader asks for are the grammar: they are what misspelt ones are compared with.

use crate::domain::limit::{NUMBER_MAGNITUDE_MAX, RULES_MAX, TEXT_BYTES_MAX};
use crate::domain::ruleset::draft::{Element, Mistakes, Span, Written, quoted};
use crate::domain::ruleset::suggest::{instead, nearest};

/// Which numbers an attribute takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    min: f64,
    max: f64,
    /// `min` itself is refused.
    above: bool,
}

impl Bounds {
    /// From `min` to `max`, both included.
    pub(super) const fn within(min: f64, max: f64) -> Self {
        Self { min, max, above: false }
    }

    /// More than `min`, and at most `max`.
    pub(super) const fn above(min: f64, max: f64) -> Self {
        Self { min, max, above: true }
    }

    /// From 0 to 100.
    pub(super) const PERCENT: Self = Self::within(0.0, 100.0);

    fn admits(self, number: f64) -> bool {
        self.min <= number && number <= self.max && !(self.above && number == self.min)
    }

    fn in_words(self) -> String {
        match (self.above, self.min, self.max) {
            (true, min, max) => format!("give a number above {min} and at most {max}"),
            (false, min, NUMBER_MAGNITUDE_MAX) if min < 0.0 => "give a number, at most 1e12 away from 0".into(),
            (false, min, NUMBER_MAGNITUDE_MAX) => format!("give a number, {min} or more, at most 1e12"),
            (false, min, max) => format!("give a number from {min} to {max}"),
        }
    }
}

/// One element being read. `finish` must be the last call.
pub(super) struct Fields<'a> {
    /// The element.
    pub(super) element: &'a Element,
    mistakes: &'a Mistakes,
    attributes: Vec<&'static str>,
    children: Vec<&'static str>,
    /// Names that are required and absent, each with a clause that says what to add.
    missing: Vec<(&'static str, String)>,
}

impl<'a> Fields<'a> {
    /// Begins to read `element`.
    pub(super) fn of(element: &'a Element, mistakes: &'a Mistakes) -> Self {
        Self { element, mistakes, attributes: Vec::new(), children: Vec::new(), missing: Vec::new() }
    }

    /// Notes a mistake anywhere in the file.
    pub(super) fn wrong(&self, span: Span, what: impl Into<String>, right: impl Into<String>) {
        self.mistakes.add(span, what, right);
    }

    /// The attribute `name` as written, if it is there.
    pub(super) fn written(&mut self, name: &'static str) -> Option<&'a Written> {
        if !self.attributes.contains(&name) {
            self.attributes.push(name);
        }
        self.element.attributes.iter().find(|attribute| &*attribute.name == name)
    }

    /// The attribute `name` as written; its absence is a mistake.
    pub(super) fn required(&mut self, name: &'static str) -> Option<&'a Written> {
        let written = self.written(name);
        if written.is_none() {
            self.missing.push((name, format!("add {name}=\"…\"")));
        }
        written
    }

    /// Of several attributes at least one must be there; a misspelt one is.
    pub(super) fn required_any(&mut self, names: &[&'static str]) {
        let meant = |written: &Written| nearest(&written.name, names.iter().copied()).is_some();
        let Some(&first) = names.first() else { return };
        if !self.element.attributes.iter().any(meant) {
            let all: Vec<String> = names.iter().map(|name| format!("{name}=\"…\"")).collect();
            self.missing.push((first, format!("add {}", all.join(" or "))));
        }
    }

    /// Notes that an attribute's value is wrong.
    pub(super) fn wrong_value(&self, written: &Written, right: impl Into<String>) {
        self.wrong(written.value_span, format!("`{}` is {}", written.name, quoted(&written.value)), right);
    }

    /// Notes that the attributes called `names`, where they are written, change nothing; `why` is a clause.
    pub(super) fn idle(&mut self, names: &[&'static str], why: &str) {
        for name in names {
            if let Some(written) = self.written(name) {
                self.wrong(written.name_span, format!("`{name}` changes nothing here"), format!("leave it out: {why}"));
            }
        }
    }

    /// A name that other places refer to: required, of letters, digits, `_`, `-` and `.`.
    pub(super) fn handle(&mut self, name: &'static str) -> Option<&'a Written> {
        let written = self.required(name)?;
        self.is_handle(written).then_some(written)
    }

    /// The same, when it may be left out.
    pub(super) fn optional_handle(&mut self, name: &'static str) -> Option<&'a Written> {
        let written = self.written(name)?;
        self.is_handle(written).then_some(written)
    }

    fn is_handle(&self, written: &Written) -> bool {
        let fits = (1..=TEXT_BYTES_MAX).contains(&written.value.len());
        let plain = written.value.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-.".contains(letter));
        if !fits || !plain {
            self.wrong_value(written, format!("give 1 to {TEXT_BYTES_MAX} letters, digits, `_`, `-` or `.`"));
        }
        fits && plain
    }

    /// A text for people, at most `limit::TEXT_BYTES_MAX` bytes; empty when absent.
    pub(super) fn text(&mut self, name: &'static str) -> Box<str> {
        let Some(written) = self.written(name) else { return "".into() };
        if TEXT_BYTES_MAX < written.value.len() {
            self.wrong_value(written, format!("give at most {TEXT_BYTES_MAX} bytes"));
        }
        written.value.clone()
    }

    /// A number within bounds; `None` when it is absent, or wrong and noted.
    pub(super) fn number(&mut self, name: &'static str, bounds: Bounds) -> Option<f64> {
        let written = self.written(name)?;
        self.number_in(written, bounds)
    }

    /// A number that must be there; `None` when the mistake is noted.
    pub(super) fn required_number(&mut self, name: &'static str, bounds: Bounds) -> Option<f64> {
        let written = self.required(name)?;
        self.number_in(written, bounds)
    }

    /// A number, or `default` when it is absent.
    pub(super) fn number_or(&mut self, name: &'static str, bounds: Bounds, default: f64) -> f64 {
        self.number(name, bounds).unwrap_or(default)
    }

    fn number_in(&self, written: &Written, bounds: Bounds) -> Option<f64> {
        let number = written.value.trim().parse().ok().filter(|&number: &f64| bounds.admits(number));
        if number.is_none() {
            self.wrong_value(written, bounds.in_words());
        }
        // Adding zero turns -0 into 0, which is the same limit and must be the same hash.
        number.map(|number| number + 0.0)
    }

    /// A whole number from `min` to `max`; `None` when it is absent, or wrong and noted.
    pub(super) fn whole(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let written = self.written(name)?;
        self.whole_in(written, min, max)
    }

    /// A whole number that must be there.
    pub(super) fn required_whole(&mut self, name: &'static str, min: u64, max: u64) -> Option<u64> {
        let written = self.required(name)?;
        self.whole_in(written, min, max)
    }

    /// A whole number, or `default` when it is absent.
    pub(super) fn whole_or(&mut self, name: &'static str, min: u64, max: u64, default: u64) -> u64 {
        self.whole(name, min, max).unwrap_or(default)
    }

    /// A value, already found, as a whole number from `min` to `max`.
    pub(super) fn whole_in(&self, written: &Written, min: u64, max: u64) -> Option<u64> {
        let number = written.value.trim().parse().ok().filter(|number| min <= *number && *number <= max);
        if number.is_none() {
            self.wrong_value(written, format!("give a whole number from {min} to {max}"));
        }
        number
    }

    /// One of a few words; `None` when it is absent, or wrong and noted.
    pub(super) fn word<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let written = self.written(name)?;
        self.word_in(written, words)
    }

    /// One of a few words, which must be there.
    pub(super) fn required_word<T: Copy>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let Some(written) = self.required(name) else {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            if let Some((_, right)) = self.missing.last_mut() {
                right.push_str(&format!(" with one of {}", known.join(", ")));
            }
            return None;
        };
        self.word_in(written, words)
    }

    fn word_in<T: Copy>(&self, written: &Written, words: &[(&'static str, T)]) -> Option<T> {
        let found = words.iter().find(|(word, _)| *word == &*written.value);
        if found.is_none() {
            self.wrong_value(written, instead(&written.value, words.iter().map(|(word, _)| *word)));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// `true` or `false`, or `default` when it is absent.
    pub(super) fn flag_or(&mut self, name: &'static str, default: bool) -> bool {
        self.word(name, &[("true", true), ("false", false)]).unwrap_or(default)
    }

    /// The only child called `name`, if it is there; a second one is a mistake.
    pub(super) fn child(&mut self, name: &'static str) -> Option<&'a Element> {
        self.children.push(name);
        let mut named = self.element.children.iter().filter(|child| &*child.name == name);
        let first = named.next();
        for again in named {
            self.wrong(again.span, format!("<{name}> is here a second time"), "put all of it into the first");
        }
        first
    }

    /// All children with one of `names`, in file order; more than `limit::RULES_MAX` is a mistake.
    pub(super) fn children(&mut self, names: &[&'static str]) -> Vec<&'a Element> {
        self.children.extend(names);
        let mut found: Vec<&Element> =
            self.element.children.iter().filter(|child| names.contains(&&*child.name)).collect();
        if let Some(excess) = found.get(RULES_MAX) {
            let what = format!("<{}> holds {} elements", self.element.name, found.len());
            self.wrong(excess.span, what, format!("keep at most {RULES_MAX}"));
        }
        found.truncate(RULES_MAX);
        found
    }

    /// Notes what is left: attributes, elements and text that nobody asked for, and what is missing.
    pub(super) fn finish(mut self) {
        let element = self.element;
        let tag = &element.name;
        // Suggestions take time; beyond what is reported at all, nobody would see them.
        let strangers = element.attributes.iter().filter(|written| !self.attributes.contains(&&*written.name));
        for written in strangers.take(self.mistakes.room()) {
            // A misspelt attribute is one mistake, not two: what it was meant to be is not missing as well.
            let meant = nearest(&written.name, self.attributes.iter().copied());
            self.missing.retain(|(missing, _)| Some(*missing) != meant);
            let right = match self.attributes.as_slice() {
                [] => "leave it out".into(),
                known => instead(&written.name, known.iter().copied()),
            };
            self.wrong(written.name_span, format!("<{tag}> has no attribute {}", quoted(&written.name)), right);
        }
        let strangers = element.children.iter().filter(|child| !self.children.contains(&&*child.name));
        for child in strangers.take(self.mistakes.room()) {
            let right = match self.children.as_slice() {
                [] => "leave it out".into(),
                known => instead(&child.name, known.iter().copied()),
            };
            self.wrong(child.span, format!("<{tag}> takes no element {}", quoted(&child.name)), right);
        }
        if let Some(text) = element.text {
            self.wrong(text, format!("<{tag}> holds text"), "say it in an attribute, or in a <!-- comment -->");
        }
        for (name, right) in &self.missing {
            self.wrong(element.span, format!("<{tag}> lacks `{name}`"), right.as_str());
        }
    }
}
