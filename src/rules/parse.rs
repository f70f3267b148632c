//! Ruleset parser: text to a validated ruleset or expansion fragment, with all problems in file order.

use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::limit::RULESET_FILE_BYTES_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::raw::{Diagnostic, RawElement, Span};
use crate::domain::ruleset::validate::{self, StandaloneExpansions};
use crate::rules::diagnostic::FileDiagnostic;
use crate::rules::xml;

/// Root element of an expansion fragment.
const FRAGMENT_ROOT: &str = "ExpansionConfigs";

/// Parsed content of a ruleset file.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesetFile {
    /// Complete ruleset.
    Ruleset(Box<Ruleset>),
    /// Expansions only.
    StandaloneExpansions(StandaloneExpansions),
    /// `Retired="true"`: the file only says that its set is retired.
    RetiredSet(SetId),
}

/// Parsed content of a file in a ruleset directory.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesetOrRetirementMarker {
    /// Complete ruleset.
    Ruleset(Box<Ruleset>),
    /// `Retired="true"`: the file only says that its set is retired.
    RetiredSet(SetId),
}

/// Parses and validates one ruleset. Returns all problems, in file order; after a syntax error only that one. `file` is
/// the file name in problems.
pub fn parse_ruleset(file: &str, text: &str) -> Result<Ruleset, Vec<FileDiagnostic>> {
    let mut root = parse_xml(file, text)?;
    if take_retired_set_id(file, text, &mut root)?.is_some() {
        let problem = "the file says that its set is retired, and has no rules";
        let fix = "delete Retired=\"true\" to have the rules in force";
        let diagnostic = Diagnostic { span: root.name_span, problem: problem.into(), fix: fix.into() };
        return Err(vec![FileDiagnostic::at_span(file, text, diagnostic)]);
    }
    if &*root.name == FRAGMENT_ROOT {
        let problem = "the file has only expansions, which are no ruleset";
        let fix = "put them into a <Ruleset>, or move the file out of the directory";
        let diagnostic = Diagnostic { span: root.name_span, problem: problem.into(), fix: fix.into() };
        return Err(vec![FileDiagnostic::at_span(file, text, diagnostic)]);
    }
    let source_xml: Arc<str> = xml::delete_comments_and_their_lines(text).into();
    let file_xml = if *source_xml == *text { Arc::clone(&source_xml) } else { text.into() };
    match validate::validate_ruleset(&root, source_xml) {
        Ok(ruleset) => Ok(Ruleset { file_xml, ..ruleset }),
        Err(diagnostics) => Err(to_file_diagnostics(file, text, diagnostics)),
    }
}

/// Parses a file of a ruleset directory: a ruleset, or a set that is marked as retired.
pub fn parse_ruleset_or_retirement_marker(
    file: &str,
    text: &str,
) -> Result<RulesetOrRetirementMarker, Vec<FileDiagnostic>> {
    match take_retired_set_id(file, text, &mut parse_xml(file, text)?)? {
        Some(set_id) => Ok(RulesetOrRetirementMarker::RetiredSet(set_id)),
        None => parse_ruleset(file, text).map(|ruleset| RulesetOrRetirementMarker::Ruleset(ruleset.into())),
    }
}

/// Takes `Retired` from the root element. Returns the set if it is `true`; then nothing else of the file is read.
fn take_retired_set_id(file: &str, text: &str, root: &mut RawElement) -> Result<Option<SetId>, Vec<FileDiagnostic>> {
    let is_ruleset = &*root.name == "Ruleset";
    let Some(at) = root.attributes.iter().position(|attribute| is_ruleset && &*attribute.name == "Retired") else {
        return Ok(None);
    };
    let retired = root.attributes.remove(at);
    let problem = |span, problem: &str, fix: &str| {
        let diagnostic = Diagnostic { span, problem: problem.into(), fix: fix.into() };
        Err(vec![FileDiagnostic::at_span(file, text, diagnostic)])
    };
    match &*retired.value {
        "false" => return Ok(None),
        "true" => {}
        _ => return problem(retired.value_span, "`Retired` is neither true nor false", "write `true` or `false`"),
    }
    let Some(set_id) = root.attribute("SetId") else {
        return problem(root.name_span, "`SetId` is missing", "name the set that is retired");
    };
    match set_id.value.trim().parse() {
        Ok(id) => Ok(Some(SetId(id))),
        Err(_) => problem(set_id.value_span, "`SetId` is not a number", "use an integer from 0 to 4294967295"),
    }
}

/// Parses and validates an `<ExpansionConfigs>` outside a ruleset, as the thesis prints it.
pub fn parse_expansion_fragment(file: &str, text: &str) -> Result<StandaloneExpansions, Vec<FileDiagnostic>> {
    validate::validate_standalone_expansions(&parse_xml(file, text)?)
        .map_err(|diagnostics| to_file_diagnostics(file, text, diagnostics))
}

/// Parses and validates a ruleset or an expansion fragment.
pub fn parse_ruleset_or_expansion_fragment(file: &str, text: &str) -> Result<RulesetFile, Vec<FileDiagnostic>> {
    if parse_xml(file, text)?.name.as_ref() == FRAGMENT_ROOT {
        return parse_expansion_fragment(file, text).map(RulesetFile::StandaloneExpansions);
    }
    Ok(match parse_ruleset_or_retirement_marker(file, text)? {
        RulesetOrRetirementMarker::Ruleset(ruleset) => RulesetFile::Ruleset(ruleset),
        RulesetOrRetirementMarker::RetiredSet(set_id) => RulesetFile::RetiredSet(set_id),
    })
}

/// Text of a file from its bytes. Fails if it is too large or not UTF-8.
pub fn ruleset_text_from_bytes<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<FileDiagnostic>> {
    if bytes.len() > RULESET_FILE_BYTES_MAX {
        let problem = format!("the file has more than {RULESET_FILE_BYTES_MAX} bytes");
        return Err(vec![FileDiagnostic::for_file(file, problem, "split it, or shorten it")]);
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let valid_text = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let span = Span { start: valid_text.len(), end: valid_text.len() };
        let problem = "invalid UTF-8 starts here".to_owned();
        let diagnostic = Diagnostic { span, problem, fix: "save the file as UTF-8".into() };
        vec![FileDiagnostic::at_span(file, valid_text, diagnostic)]
    })
}

fn parse_xml(file: &str, text: &str) -> Result<RawElement, Vec<FileDiagnostic>> {
    xml::parse_document(text).map_err(|diagnostic| vec![FileDiagnostic::at_span(file, text, diagnostic)])
}

fn to_file_diagnostics(file: &str, text: &str, diagnostics: Vec<Diagnostic>) -> Vec<FileDiagnostic> {
    let source: Arc<str> = text.into();
    diagnostics
        .into_iter()
        .map(|diagnostic| FileDiagnostic::at_span_of_shared_text(file, &source, diagnostic))
        .collect()
}
