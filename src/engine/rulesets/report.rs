//! Results of ruleset administration: problems, changes and listings.

use std::path::Path;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::load::RulesetLoad;
use crate::rules;

/// Problem in a ruleset file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulesetProblem {
    /// Name of the file.
    pub file_name: String,
    /// Line, from 1; 0 if the problem concerns the whole file.
    pub line: u32,
    /// Column, from 1; 0 if the problem concerns the whole file.
    pub column: u32,
    /// Description of the problem and its remedy.
    pub message: String,
}

/// Result of a ruleset reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadReport {
    /// Sets whose ruleset changed: set, previous hash, current hash. A hash is `None` if the set had or has no ruleset.
    pub changes: Vec<(SetId, Option<RulesetHash>, Option<RulesetHash>)>,
    /// Effects on ratings, by set: how many begin again, come back or are set aside.
    pub rating_changes: Vec<(SetId, String)>,
    /// Problems found. If there are any, nothing was changed.
    pub problems: Vec<RulesetProblem>,
}

/// Valid ruleset that was checked, and not loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckRulesetAnswer {
    /// Hash of the ruleset's rules; `None` for a file that retires its set.
    pub hash: Option<RulesetHash>,
    /// Effect on ratings if it replaced the set's current ruleset; empty if the same ratings stay in use.
    pub rating_change: String,
}

/// Ratings of a ruleset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RatingListing {
    /// Scale, as in XML.
    pub scale: String,
    /// Name of the pool; empty if the ratings are the set's own.
    pub pool: String,
    /// Number of stored ratings.
    pub rating_count: u64,
}

/// Ruleset that searches can still use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesetListing {
    /// Name of the ruleset.
    pub name: String,
    /// Matchmaking set of the ruleset.
    pub set_id: SetId,
    /// Hash of the ruleset's rules.
    pub hash: RulesetHash,
    /// File from which it was loaded; empty for a retired ruleset.
    pub file_name: String,
    /// True for the current ruleset, false for a retired one.
    pub is_current: bool,
    /// When and by whom it was loaded; `None` if it was not recorded.
    pub load: Option<RulesetLoad>,
    /// Problems of the file when it was last read.
    pub problems: Vec<RulesetProblem>,
    /// Ratings that it uses, or would use again; `None` without a rating system.
    pub ratings: Option<RatingListing>,
    /// Time until the waiting tickets of the set end, milliseconds; `None` unless the set is being retired.
    pub retires_in_ms: Option<u64>,
    /// Waiting tickets of the set; 0 unless the ruleset is in force.
    pub live_tickets: u32,
    /// Matches under this ruleset that have not ended.
    pub live_matches: u32,
}

/// Result of retiring a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetiredSetCounts {
    /// Waiting tickets that ended.
    pub ended_tickets: u32,
    /// Matches of the set that have not ended; they continue.
    pub live_matches: u32,
}

/// Name of a file, without its directory.
pub(crate) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Problem as operators see it.
pub(crate) fn ruleset_problem(problem: &rules::FileDiagnostic) -> RulesetProblem {
    RulesetProblem {
        file_name: problem.file.clone(),
        line: problem.line,
        column: problem.column,
        message: problem.message(),
    }
}
