//! Ruleset parser: text to a validated ruleset or expansion fragment, with all problems in file order.

use std::sync::Arc;

use crate::domain::limit::RULESET_FILE_BYTES_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::raw::{Diagnostic, RawElement, Span};
use crate::domain::ruleset::validate::{self, ExpansionFragment};
use crate::rules::diagnostic::RenderedDiagnostic;
use crate::rules::xml;

/// Root element of an expansion fragment.
const FRAGMENT_ROOT: &str = "ExpansionConfigs";

/// Parsed content of a ruleset file.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesetFile {
    /// Complete ruleset.
    Ruleset(Box<Ruleset>),
    /// Expansions only.
    ExpansionFragment(ExpansionFragment),
}

/// Parses and validates one ruleset. Returns all problems, in file order; after a syntax error only that one. `file` is
/// the file name in problems.
pub fn parse_ruleset(file: &str, text: &str) -> Result<Ruleset, Vec<RenderedDiagnostic>> {
    let root = parse_xml(file, text)?;
    if &*root.name == FRAGMENT_ROOT {
        let problem = "the file has only expansions, which are no ruleset";
        let fix = "put them into a <Ruleset>, or move the file out of the directory";
        let diagnostic = Diagnostic { span: root.name_span, problem: problem.into(), fix: fix.into() };
        return Err(vec![RenderedDiagnostic::at_span(file, text, diagnostic)]);
    }
    let source_xml: Arc<str> = xml::delete_comments_and_their_lines(text).into();
    validate::validate_ruleset(&root, source_xml).map_err(|diagnostics| render_diagnostics(file, text, diagnostics))
}

/// Parses and validates an `<ExpansionConfigs>` outside a ruleset, as the thesis prints it.
pub fn parse_expansion_fragment(file: &str, text: &str) -> Result<ExpansionFragment, Vec<RenderedDiagnostic>> {
    validate::validate_expansion_fragment(&parse_xml(file, text)?)
        .map_err(|diagnostics| render_diagnostics(file, text, diagnostics))
}

/// Parses and validates a ruleset or an expansion fragment.
pub fn parse_ruleset_or_fragment(file: &str, text: &str) -> Result<RulesetFile, Vec<RenderedDiagnostic>> {
    if parse_xml(file, text)?.name.as_ref() == FRAGMENT_ROOT {
        parse_expansion_fragment(file, text).map(RulesetFile::ExpansionFragment)
    } else {
        parse_ruleset(file, text).map(|ruleset| RulesetFile::Ruleset(ruleset.into()))
    }
}

/// Text of a file from its bytes. Fails if it is too large or not UTF-8.
pub fn decode_utf8<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<RenderedDiagnostic>> {
    if bytes.len() > RULESET_FILE_BYTES_MAX {
        let problem = format!("the file has more than {RULESET_FILE_BYTES_MAX} bytes");
        return Err(vec![RenderedDiagnostic::for_file(file, problem, "split it, or shorten it")]);
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid_text = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let span = Span { start: valid_text.len(), end: valid_text.len() };
        let problem = "invalid UTF-8 starts here".to_owned();
        let diagnostic = Diagnostic { span, problem, fix: "save the file as UTF-8".into() };
        vec![RenderedDiagnostic::at_span(file, valid_text, diagnostic)]
    })
}

fn parse_xml(file: &str, text: &str) -> Result<RawElement, Vec<RenderedDiagnostic>> {
    xml::parse_document(text).map_err(|diagnostic| vec![RenderedDiagnostic::at_span(file, text, diagnostic)])
}

fn render_diagnostics(file: &str, text: &str, diagnostics: Vec<Diagnostic>) -> Vec<RenderedDiagnostic> {
    let source: Arc<str> = text.into();
    diagnostics
        .into_iter()
        .map(|diagnostic| RenderedDiagnostic::with_shared_source(file, &source, diagnostic))
        .collect()
}
