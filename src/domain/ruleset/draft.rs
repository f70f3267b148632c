//! A ruleset as written: elements and attributes with their places in the file, believed by no one yet.

use std::cell::RefCell;

use crate::domain::limit::{PROBLEMS_MAX, TEXT_BYTES_MAX};

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
pub struct Written {
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
pub struct Element {
    /// Its name.
    pub name: Box<str>,
    /// Where the name stands in the opening tag.
    pub span: Span,
    /// Attributes, in file order; each name once.
    pub attributes: Vec<Written>,
    /// Elements inside, in file order.
    pub children: Vec<Element>,
    /// Where the first text other than white space stands, if there is any.
    pub text: Option<Span>,
}

/// Something wrong in a file, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where.
    pub span: Span,
    /// What is wrong: a clause without a full stop.
    pub what: String,
    /// What would be right: a clause without a full stop.
    pub right: String,
}

/// The mistakes found so far; readers share it, so that one pass over a file finds them all.
#[derive(Debug, Default)]
pub struct Mistakes(RefCell<Vec<Mistake>>);

impl Element {
    /// The first child called `name`.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| &*child.name == name)
    }

    /// The attribute called `name`.
    pub fn attribute(&self, name: &str) -> Option<&Written> {
        self.attributes.iter().find(|attribute| &*attribute.name == name)
    }
}

impl Mistakes {
    /// Notes one mistake. Beyond `limit::PROBLEMS_MAX` they are no longer kept: nobody reads that far.
    pub fn add(&self, span: Span, what: impl Into<String>, right: impl Into<String>) {
        let mut found = self.0.borrow_mut();
        if found.len() < PROBLEMS_MAX {
            found.push(Mistake { span, what: what.into(), right: right.into() });
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
    pub fn room(&self) -> usize {
        PROBLEMS_MAX.saturating_sub(self.0.borrow().len())
    }

    /// All of them, in file order.
    pub fn into_sorted(self) -> Vec<Mistake> {
        let mut found = self.0.into_inner();
        found.sort_by_key(|mistake| mistake.span);
        found
    }
}

/// `text` in back quotes, cut to a readable length, with nothing in it that could break a line of a log.
pub fn quoted(text: &str) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut shown: String = text.chars().take(TEXT_BYTES_MAX).map(clean).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("`{shown}`")
}
