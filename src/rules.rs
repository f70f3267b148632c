//! The rulesets in memory: loaded whole, swapped whole, the last good ones kept when new ones are bad.

pub mod bundled;
pub mod catalog;
pub mod diagnostic;
pub mod load;
pub mod xml;

use std::sync::Arc;

use crate::domain::limit::RULESET_FILE_BYTES_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::raw::{Diagnostic, RawElement, Span};
use crate::domain::ruleset::validate::{self, ExpansionFragment};

pub use catalog::RulesetCatalog;
pub use diagnostic::RenderedDiagnostic;
pub use load::load_directory;

/// The name of the root of a fragment, which holds expansions and nothing else.
const FRAGMENT_ROOT: &str = "ExpansionConfigs";

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesetFile {
    /// A whole ruleset.
    Ruleset(Box<Ruleset>),
    /// Expansions alone.
    ExpansionFragment(ExpansionFragment),
}

/// Reads one ruleset. Every mistake is in the answer, in file order; a syntax error alone, for nothing after it is sure.
/// `file` is what problems call the file.
pub fn parse_ruleset(file: &str, text: &str) -> Result<Ruleset, Vec<RenderedDiagnostic>> {
    let draft = parse_xml(file, text)?;
    if &*draft.name == FRAGMENT_ROOT {
        let what = "the file holds expansions alone, which cannot rule a set";
        let right = "put them into a <Ruleset>, or keep the file out of the directory";
        let mistake = Diagnostic { span: draft.name_span, problem: what.into(), fix: right.into() };
        return Err(vec![RenderedDiagnostic::at_span(file, text, mistake)]);
    }
    let xml: Arc<str> = text.into();
    validate::validate_ruleset(&draft, xml).map_err(|mistakes| render_diagnostics(file, text, mistakes))
}

/// Reads expansions that stand alone, as the thesis prints them (S1-34).
pub fn parse_expansion_fragment(file: &str, text: &str) -> Result<ExpansionFragment, Vec<RenderedDiagnostic>> {
    validate::validate_expansion_fragment(&parse_xml(file, text)?)
        .map_err(|mistakes| render_diagnostics(file, text, mistakes))
}

/// Reads whichever of the two the file is.
pub fn parse_ruleset_file(file: &str, text: &str) -> Result<RulesetFile, Vec<RenderedDiagnostic>> {
    if parse_xml(file, text)?.name.as_ref() == FRAGMENT_ROOT {
        parse_expansion_fragment(file, text).map(RulesetFile::ExpansionFragment)
    } else {
        parse_ruleset(file, text).map(|ruleset| RulesetFile::Ruleset(ruleset.into()))
    }
}

/// The text of a file that came as bytes, from a disk or a wire.
pub fn decode_utf8<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<RenderedDiagnostic>> {
    if RULESET_FILE_BYTES_MAX < bytes.len() {
        let what = format!("the file has more than {RULESET_FILE_BYTES_MAX} bytes");
        return Err(vec![RenderedDiagnostic::for_file(file, what, "split it, or delete what is not needed")]);
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let sound = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let span = Span { start: sound.len(), end: sound.len() };
        let what = "what follows is not UTF-8".to_owned();
        let mistake = Diagnostic { span, problem: what, fix: "save the file as UTF-8".into() };
        vec![RenderedDiagnostic::at_span(file, sound, mistake)]
    })
}

fn parse_xml(file: &str, text: &str) -> Result<RawElement, Vec<RenderedDiagnostic>> {
    xml::parse_document(text).map_err(|mistake| vec![RenderedDiagnostic::at_span(file, text, mistake)])
}

fn render_diagnostics(file: &str, text: &str, mistakes: Vec<Diagnostic>) -> Vec<RenderedDiagnostic> {
    let source: Arc<str> = text.into();
    mistakes.into_iter().map(|mistake| RenderedDiagnostic::with_shared_source(file, &source, mistake)).collect()
}
