//! Ruleset diagnostics for people: one line for logs, and a marked source snippet for the terminal.

use std::fmt;
use std::sync::Arc;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::domain::ruleset::raw::{Diagnostic, Span};

/// Problem in a ruleset file. As text: `file:line:column: problem; fix`.
#[derive(Clone, Debug, PartialEq)]
pub struct FileDiagnostic {
    /// File, or the directory for problems without a file.
    pub file: String,
    /// Line, from 1; 0 for problems with the whole file.
    pub line: u32,
    /// Character in the line, from 1; 0 for problems with the whole file.
    pub column: u32,
    /// Problem.
    pub problem: String,
    /// Fix.
    pub fix: String,
    source: Option<(Arc<str>, Span)>,
}

impl FileDiagnostic {
    /// Problem with a whole file.
    pub fn for_file(file: &str, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0, problem: problem.into(), fix: fix.into(), source: None }
    }

    /// Problem in `text`, the content of `file`.
    pub fn at_span(file: &str, text: &str, diagnostic: Diagnostic) -> Self {
        Self::at_span_of_shared_text(file, &text.into(), diagnostic)
    }

    /// As `at_span`, for text that is already shared.
    pub(super) fn at_span_of_shared_text(file: &str, text: &Arc<str>, diagnostic: Diagnostic) -> Self {
        let Diagnostic { span, problem, fix } = diagnostic;
        let (line, column) = line_and_column(text, span.start);
        Self { file: file.into(), line, column, problem, fix, source: Some((text.clone(), span)) }
    }

    /// Problem and fix, without the position.
    pub fn message(&self) -> String {
        format!("{}; {}", self.problem, self.fix)
    }

    /// Problem with its source line, marked; without colors.
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

    /// Marked source lines, each with a line end, for printing below the problem's own line. Empty for a problem with the
    /// whole file.
    pub fn render_marked_lines(&self) -> String {
        match self.source {
            None => String::new(),
            Some(_) => {
                source_lines_of_snippet(&self.render_snippet()).into_iter().flat_map(|line| [line, "\n"]).collect()
            }
        }
    }
}

/// Lines of `snippet` that show the source: those with a line number or a bar, without a bare bar at the end.
fn source_lines_of_snippet(snippet: &str) -> Vec<&str> {
    let is_number = |mark: char| mark == ' ' || mark.is_ascii_digit();
    let is_source = |line: &&str| line.trim_start_matches(is_number).starts_with('|');
    let mut lines: Vec<&str> = snippet.lines().map(str::trim_end).filter(is_source).collect();
    lines.pop_if(|line| line.trim_start() == "|");
    lines
}

impl fmt::Display for FileDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message()),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message()),
        }
    }
}

/// Line and character, both from 1, of the byte at `offset`. A byte order mark is not a character.
fn line_and_column(text: &str, offset: usize) -> (u32, u32) {
    let before = text.get(..offset).unwrap_or(text);
    let before = before.strip_prefix('\u{feff}').unwrap_or(before);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    let last = &before[before.rfind('\n').map_or(0, |newline| newline + 1)..];
    (line as u32 + 1, last.chars().count() as u32 + 1)
}
