//! A ruleset as written: elements and attributes with their places in the file, believed by no one yet.

use std::cell::RefCell;

use crate::limit::{REPORTED_RULESET_PROBLEMS_MAX, STRING_BYTES_MAX};

/// A part of a file: bytes from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// One attribute as written.
#[derive(Clone, Debug, PartialEq)]
pub struct RawAttribute {
    /// Its name.
    pub name: Box<str>,
    /// Where the name stands.
    pub name_span: Span,
    /// Its value, with references resolved.
    pub value: Box<str>,
    /// Where the value stands, without the quotes.
    pub value_span: Span,
}

/// One element as written.
#[derive(Clone, Debug, PartialEq)]
pub struct RawElement {
    /// Its name.
    pub name: Box<str>,
    /// Where the name stands in the opening tag.
    pub name_span: Span,
    /// Attributes, in file order; each name once.
    pub attributes: Vec<RawAttribute>,
    /// Elements inside, in file order.
    pub children: Vec<RawElement>,
    /// Where the first text other than white space stands, if there is any.
    pub text_span: Option<Span>,
}

/// Something wrong in a file, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub span: Span,
    /// What is wrong: a clause without a full stop.
    pub problem: String,
    /// What would be right: a clause without a full stop.
    pub fix: String,
}

/// The mistakes found so far; readers share it, so that one pass over a file finds them all.
#[derive(Debug, Default)]
pub struct Diagnostics(RefCell<Vec<Diagnostic>>);

impl RawElement {
    /// The first child called `name`.
    pub fn child(&self, name: &str) -> Option<&RawElement> {
        self.children.iter().find(|child| &*child.name == name)
    }

    /// The attribute called `name`.
    pub fn attribute(&self, name: &str) -> Option<&RawAttribute> {
        self.attributes.iter().find(|attribute| &*attribute.name == name)
    }
}

impl Diagnostics {
    /// Notes one mistake. Beyond `limit::PROBLEMS_MAX` they are no longer kept: nobody reads that far.
    pub fn report(&self, span: Span, what: impl Into<String>, right: impl Into<String>) {
        let mut found = self.0.borrow_mut();
        if found.len() < REPORTED_RULESET_PROBLEMS_MAX {
            found.push(Diagnostic { span, problem: what.into(), fix: right.into() });
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// How many are kept so far.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// How many more are kept.
    pub fn remaining_capacity(&self) -> usize {
        REPORTED_RULESET_PROBLEMS_MAX.saturating_sub(self.0.borrow().len())
    }

    /// All of them, in file order.
    pub fn into_sorted(self) -> Vec<Diagnostic> {
        let mut found = self.0.into_inner();
        found.sort_by_key(|mistake| mistake.span);
        found
    }
}

/// `text` in back quotes, cut to a readable length, with nothing in it that could break a line of a log.
pub fn quoted_excerpt(text: &str) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut shown: String = text.chars().take(STRING_BYTES_MAX).map(clean).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{shown}`")
}
