//! Results of checks, and their output as text and JSON.

use std::io::{self, Write};

use serde::Serialize;

/// Result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Verdict {
    /// Nothing to do.
    Ok,
    /// The server works; something should be mended.
    Warn,
    /// The server does not start, or may lose data.
    Fail,
    /// The check was not possible here.
    Skip,
}

/// Result of one check, with what was found and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// Subject of the check.
    pub(super) check: &'static str,
    /// Result.
    pub(super) verdict: Verdict,
    /// State that was found.
    pub(super) found: String,
    /// Remedy; empty if there is nothing to do.
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), remedy: String::new() }
    }

    pub(super) fn warn(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warn, found: found.into(), remedy: remedy.into() }
    }

    pub(super) fn fail(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Fail, found: found.into(), remedy: remedy.into() }
    }

    pub(super) fn skip(check: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Skip, found: found.into(), remedy: remedy.into() }
    }

    /// Failure with an error text of the form `<what is wrong>; <what to do>`.
    pub(super) fn fail_with(check: &'static str, error: &str) -> Self {
        match error.rsplit_once("; ") {
            Some((found, remedy)) => Self::fail(check, found, remedy),
            None => Self::fail(check, error, "see docs/OPERATING.md"),
        }
    }
}

/// Prints one line for each finding, and a line for its remedy.
pub(super) fn print_text(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for Finding { check, verdict, found, remedy } in findings {
        let verdict = match verdict {
            Verdict::Ok => "OK",
            Verdict::Warn => "WARN",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "SKIP",
        };
        writeln!(out, "{verdict:<5} {check}: {found}")?;
        if !remedy.is_empty() {
            writeln!(out, "      remedy: {remedy}")?;
        }
    }
    Ok(())
}

/// Prints a JSON array of all findings.
pub(super) fn print_json(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, findings)?;
    writeln!(out)
}
