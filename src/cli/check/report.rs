//! Report of `fireteam check`: text for people, or one JSON object for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::rules::FileDiagnostic;

/// Form of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CheckFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object.
    Json,
}

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Error,
    Warning,
}

/// A valid file.
#[derive(Clone, Debug)]
pub(super) struct CheckedFile {
    /// Content of the file, one fact in each line, the first with its path.
    pub(super) summary: String,
    /// Warnings with the names of their checks.
    pub(super) warnings: Vec<(&'static str, FileDiagnostic)>,
}

/// Result of checking all paths.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckReport {
    /// Valid files.
    pub(super) files: Vec<CheckedFile>,
    /// Problems of the others.
    pub(super) errors: Vec<FileDiagnostic>,
}

/// A problem as JSON.
#[derive(Serialize)]
struct JsonProblem<'a> {
    severity: Severity,
    /// Name of the check that warns; absent for an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'static str>,
    file: &'a str,
    /// From 1; 0 for a problem with the whole file.
    line: u32,
    column: u32,
    problem: &'a str,
    fix: &'a str,
}

/// The report as JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    valid_files: Vec<&'a str>,
    errors: usize,
    warnings: usize,
    problems: Vec<JsonProblem<'a>>,
}

impl CheckReport {
    /// Warnings of all files.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &(&'static str, FileDiagnostic)> {
        self.files.iter().flat_map(|file| &file.warnings)
    }

    /// Writes the report.
    pub(super) fn write(&self, format: CheckFormat, out: &mut dyn Write) -> io::Result<()> {
        match format {
            CheckFormat::Text => self.write_text(out),
            CheckFormat::Json => self.write_json(out),
        }
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        self.files.iter().try_for_each(|file| writeln!(out, "ok  {}", file.summary))?;
        for (check, warning) in self.warnings() {
            let FileDiagnostic { file, line, column, .. } = warning;
            writeln!(out, "{file}:{line}:{column}: warning: {} [{check}]", warning.message())?;
            writeln!(out, "{}", warning.render_marked_lines())?;
        }
        for error in &self.errors {
            // Editors and build logs link to this line.
            writeln!(out, "{error}")?;
            writeln!(out, "{}", error.render_marked_lines())?;
        }
        let warnings = match self.warnings().count() {
            0 => String::new(),
            count => format!(", with {}", format_count(count, "warning")),
        };
        match (self.errors.len(), self.files.len()) {
            (0, 1) => writeln!(out, "1 file is valid{warnings}"),
            (0, files) => writeln!(out, "{files} files are valid{warnings}"),
            (count, _) => writeln!(out, "{}", format_count(count, "problem")),
        }
    }

    fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let errors = self.errors.iter().map(|error| (Severity::Error, None, error));
        let warnings = self.warnings().map(|(check, warning)| (Severity::Warning, Some(*check), warning));
        let problems = errors.chain(warnings).map(|(severity, check, diagnostic)| JsonProblem {
            severity,
            check,
            file: &diagnostic.file,
            line: diagnostic.line,
            column: diagnostic.column,
            problem: &diagnostic.problem,
            fix: &diagnostic.fix,
        });
        let report = JsonReport {
            valid_files: self.files.iter().map(|file| file.summary.as_str()).collect(),
            errors: self.errors.len(),
            warnings: self.warnings().count(),
            problems: problems.collect(),
        };
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)
    }
}

/// `1 problem`, `2 problems`.
pub(super) fn format_count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
