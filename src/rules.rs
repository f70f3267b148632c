//! The rulesets in memory: loaded whole, swapped whole, the last good ones kept when new ones are bad.

pub mod bundled;
pub mod catalog;
pub mod load;
pub mod report;
pub mod xml;

use std::sync::Arc;

use crate::domain::limit::RULESET_BYTES_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::draft::{Element, Mistake, Span};
use crate::domain::ruleset::validate::{self, Fragment};

pub use catalog::Catalog;
pub use load::load;
pub use report::Problem;

/// The name of the root of a fragment, which holds expansions and nothing else.
const FRAGMENT_ROOT: &str = "ExpansionConfigs";

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A whole ruleset.
    Ruleset(Box<Ruleset>),
    /// Expansions alone.
    Fragment(Fragment),
}

/// Reads one ruleset. Every mistake is in the answer, in file order; a syntax error alone, for nothing after it is sure.
/// `file` is what problems call the file.
pub fn parse(file: &str, text: &str) -> Result<Ruleset, Vec<Problem>> {
    let draft = draft(file, text)?;
    if &*draft.name == FRAGMENT_ROOT {
        let what = "the file holds expansions alone, which cannot rule a set";
        let right = "put them into a <Ruleset>, or keep the file out of the directory";
        let mistake = Mistake { span: draft.span, what: what.into(), right: right.into() };
        return Err(vec![Problem::at(file, text, mistake)]);
    }
    let xml: Arc<str> = text.into();
    validate::validate(&draft, xml).map_err(|mistakes| located(file, text, mistakes))
}

/// Reads expansions that stand alone, as the thesis prints them (S1-34).
pub fn parse_fragment(file: &str, text: &str) -> Result<Fragment, Vec<Problem>> {
    validate::validate_fragment(&draft(file, text)?).map_err(|mistakes| located(file, text, mistakes))
}

/// Reads whichever of the two the file is.
pub fn parse_document(file: &str, text: &str) -> Result<Document, Vec<Problem>> {
    if draft(file, text)?.name.as_ref() == FRAGMENT_ROOT {
        parse_fragment(file, text).map(Document::Fragment)
    } else {
        parse(file, text).map(|ruleset| Document::Ruleset(ruleset.into()))
    }
}

/// The text of a file that came as bytes, from a disk or a wire.
pub fn text_of<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, Vec<Problem>> {
    if RULESET_BYTES_MAX < bytes.len() {
        let what = format!("the file has more than {RULESET_BYTES_MAX} bytes");
        return Err(vec![Problem::of_file(file, what, "split it, or delete what is not needed")]);
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let sound = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
        let span = Span { start: sound.len(), end: sound.len() };
        let what = "what follows is not UTF-8".to_owned();
        let mistake = Mistake { span, what, right: "save the file as UTF-8".into() };
        vec![Problem::at(file, sound, mistake)]
    })
}

fn draft(file: &str, text: &str) -> Result<Element, Vec<Problem>> {
    xml::parse(text).map_err(|mistake| vec![Problem::at(file, text, mistake)])
}

fn located(file: &str, text: &str, mistakes: Vec<Mistake>) -> Vec<Problem> {
    let source: Arc<str> = text.into();
    mistakes.into_iter().map(|mistake| Problem::shared(file, &source, mistake)).collect()
}
