//! Load of a ruleset version: when and by whom it was brought into force.

use std::sync::Arc;

use crate::limit::LOADED_BY_BYTES_MAX;
use crate::time::UnixMs;

/// Loader of the rulesets that a server finds when it starts.
pub const LOADED_BY_START: &str = "start";

/// Loader of a file that was changed in the rulesets directory.
pub const LOADED_BY_FOLDER: &str = "folder";

/// When and by whom a version of a set's ruleset was loaded. A version is a set and a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesetLoad {
    /// Time of loading.
    pub at: UnixMs,
    /// `LOADED_BY_START`, `LOADED_BY_FOLDER`, or the operator of a call. At most `LOADED_BY_BYTES_MAX` bytes.
    pub by: Arc<str>,
}

impl RulesetLoad {
    /// A load; `by` is cut to its limit.
    pub fn new(at: UnixMs, by: &str) -> Self {
        Self { at, by: by[..by.floor_char_boundary(LOADED_BY_BYTES_MAX)].into() }
    }

    /// Whether a version whose load was recorded before is loaded again by `self`. A restart brings nothing into force.
    pub fn replaces(&self, recorded: Option<&Self>) -> bool {
        recorded.is_none_or(|recorded| recorded.at < self.at && &*self.by != LOADED_BY_START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ruleset_load_cuts_a_long_name_between_characters() {
        let long = "ü".repeat(LOADED_BY_BYTES_MAX);
        assert_eq!(RulesetLoad::new(UnixMs(1), &long).by.len(), LOADED_BY_BYTES_MAX);
        assert_eq!(RulesetLoad::new(UnixMs(1), &format!("a{long}")).by.len(), LOADED_BY_BYTES_MAX - 1);
        assert_eq!(&*RulesetLoad::new(UnixMs(1), LOADED_BY_START).by, "start");
    }

    #[test]
    fn ruleset_load_replaces_an_earlier_one_unless_the_server_only_starts() {
        let load = |at, by| RulesetLoad::new(UnixMs(at), by);
        assert!(load(2, LOADED_BY_FOLDER).replaces(Some(&load(1, "operator"))));
        assert!(!load(1, LOADED_BY_FOLDER).replaces(Some(&load(1, "operator"))));
        assert!(!load(2, LOADED_BY_START).replaces(Some(&load(1, "operator"))));
        assert!(load(2, LOADED_BY_START).replaces(None));
    }
}
