//! Raw ruleset: XML elements and attributes with their positions in the file, not yet validated; and diagnostics about
//! them.

use std::cell::RefCell;

use crate::limit::{REPORTED_RULESET_PROBLEMS_MAX, STRING_BYTES_MAX};

/// Byte range in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// Attribute as written.
#[derive(Clone, Debug, PartialEq)]
pub struct RawAttribute {
    /// Name.
    pub name: Box<str>,
    /// Position of the name.
    pub name_span: Span,
    /// Value with references resolved.
    pub value: Box<str>,
    /// Position of the value without quotes.
    pub value_span: Span,
}

/// Element as written.
#[derive(Clone, Debug, PartialEq)]
pub struct RawElement {
    /// Name.
    pub name: Box<str>,
    /// Position of the name in the opening tag.
    pub name_span: Span,
    /// Attributes in file order; names are unique.
    pub attributes: Vec<RawAttribute>,
    /// Child elements in file order.
    pub children: Vec<RawElement>,
    /// Position of the first text that is not white space, if any.
    pub text_span: Option<Span>,
}

/// Problem in a file, its position and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Position.
    pub span: Span,
    /// Problem: a clause without a full stop.
    pub problem: String,
    /// Fix: a clause without a full stop.
    pub fix: String,
}

/// Diagnostics collected so far. Shared by all readers, so that one pass over a file reports all problems.
#[derive(Debug, Default)]
pub struct Diagnostics(RefCell<Vec<Diagnostic>>);

impl RawElement {
    /// First child with `name`.
    pub fn child(&self, name: &str) -> Option<&RawElement> {
        self.children.iter().find(|child| &*child.name == name)
    }

    /// Attribute with `name`.
    pub fn attribute(&self, name: &str) -> Option<&RawAttribute> {
        self.attributes.iter().find(|attribute| &*attribute.name == name)
    }
}

impl Diagnostics {
    /// Adds a diagnostic. Drops it if `limit::REPORTED_RULESET_PROBLEMS_MAX` diagnostics are already stored.
    pub fn report(&self, span: Span, problem: impl Into<String>, fix: impl Into<String>) {
        let mut diagnostics = self.0.borrow_mut();
        if diagnostics.len() < REPORTED_RULESET_PROBLEMS_MAX {
            diagnostics.push(Diagnostic { span, problem: problem.into(), fix: fix.into() });
        }
    }

    /// Whether there are no diagnostics.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Number of stored diagnostics.
    pub fn count(&self) -> usize {
        self.0.borrow().len()
    }

    /// Number of diagnostics that can still be stored.
    pub fn remaining_capacity(&self) -> usize {
        REPORTED_RULESET_PROBLEMS_MAX.saturating_sub(self.0.borrow().len())
    }

    /// All diagnostics in file order.
    pub fn into_sorted(self) -> Vec<Diagnostic> {
        let mut diagnostics = self.0.into_inner();
        diagnostics.sort_by_key(|diagnostic| diagnostic.span);
        diagnostics
    }
}

/// `text` in back quotes, truncated, with control characters replaced by spaces so that it fits on one log line.
pub fn quoted_excerpt(text: &str) -> String {
    let without_control = |character: char| if character.is_control() { ' ' } else { character };
    let mut excerpt: String = text.chars().take(STRING_BYTES_MAX).map(without_control).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    format!("`{excerpt}`")
}
