//! Command and result of a ruleset swap.

use std::sync::Arc;

use crate::domain::id::{RulesetHash, SetId};
use crate::engine::rulesets::report::ReloadReport;

/// Ruleset of a set, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesetSwap {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Hash of the ruleset in force, as the operator has seen it.
    pub expected_hash: RulesetHash,
    /// Replacement.
    pub replacement: RulesetReplacement,
}

/// Replacement of a ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesetReplacement {
    /// Text of a file.
    Text(Arc<str>),
    /// Hash of a former version of the same set that is still known.
    FormerVersion(RulesetHash),
}

/// Result of a swap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwapReport {
    /// Name of the set's file, without its directory.
    pub file_name: String,
    /// Changes, or problems. If there are any problems, nothing was written and nothing was loaded.
    pub load: ReloadReport,
}
