//! A problem with its place, for people: one line for logs, and a picture of the line for the terminal.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::domain::ruleset::raw::{Diagnostic, Span};

/// Something wrong with a ruleset file. As text: `file:line:column: what, and what would be right`.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderedDiagnostic {
    /// The file, or the directory when there is none.
    pub file: String,
    /// The line, from 1; 0 when the problem is with the file as a whole.
    pub line: u32,
    /// The character in the line, from 1; 0 when the problem is with the file as a whole.
    pub column: u32,
    /// What is wrong.
    pub problem: String,
    /// What would be right.
    pub fix: String,
    source: Option<(Arc<str>, Span)>,
}

impl RenderedDiagnostic {
    /// A problem with the file as a whole.
    pub fn for_file(file: &str, what: impl Into<String>, right: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0, problem: what.into(), fix: right.into(), source: None }
    }

    /// A mistake in `text`, the content of `file`.
    pub fn at_span(file: &str, text: &str, mistake: Diagnostic) -> Self {
        Self::with_shared_source(file, &text.into(), mistake)
    }

    /// The same, where the text is already shared.
    pub(super) fn with_shared_source(file: &str, text: &Arc<str>, mistake: Diagnostic) -> Self {
        let Diagnostic { span, problem: what, fix: right } = mistake;
        let (line, column) = line_and_column(text, span.start);
        Self { file: file.into(), line, column, problem: what, fix: right, source: Some((text.clone(), span)) }
    }

    /// What is wrong and what would be right, without the place.
    pub fn message(&self) -> String {
        format!("{}; {}", self.problem, self.fix)
    }

    /// The problem with the line it is in, marked; no colours.
    pub fn render_snippet(&self) -> String {
        let title = Level::ERROR.primary_title(self.problem.as_str());
        let help = Level::HELP.message(self.fix.as_str());
        let group = match &self.source {
            None => title.element(annotate_snippets::Origin::path(self.file.as_str())).element(help),
            Some((text, span)) => {
                let start = text.floor_char_boundary(span.start);
                let end = text.ceil_char_boundary(span.end).max(start);
                let mark = AnnotationKind::Primary.span(start..end);
                title.element(Snippet::source(&**text).path(self.file.as_str()).annotation(mark)).element(help)
            }
        };
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for RenderedDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message()),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message()),
        }
    }
}

/// The line and the character in it, both from 1, of the byte at `offset`. A byte order mark is not a character.
fn line_and_column(text: &str, offset: usize) -> (u32, u32) {
    let before = text.get(..offset).unwrap_or(text);
    let before = before.strip_prefix('\u{feff}').unwrap_or(before);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let last = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
    (line as u32 + 1, last.chars().count() as u32 + 1)
}
