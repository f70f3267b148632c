//! Ruleset loading and catalog: parses ruleset files, loads a directory, swaps rulesets atomically, and keeps the last
//! valid version.

pub mod bundled;
pub mod catalog;
pub mod diagnostic;
pub mod edit;
pub mod load;
pub mod parse;
pub mod xml;

pub use catalog::RulesetCatalog;
pub use diagnostic::FileDiagnostic;
pub use load::load_directory;
pub use parse::{
    RulesetFile, parse_expansion_fragment, parse_ruleset, parse_ruleset_or_expansion_fragment, ruleset_text_from_bytes,
};
