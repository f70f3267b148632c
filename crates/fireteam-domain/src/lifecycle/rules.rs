//! What a ruleset says about the life of a match, and for how long one that is over is remembered.

use crate::ruleset::Ruleset;
use crate::ruleset::queue::AvoidTarget;
use crate::ruleset::teams::HostingSpec;

/// How long a match that is over is remembered at least: an hour, so that whoever missed its end still learns of it,
/// milliseconds.
pub const ENDED_MATCH_RETENTION_MS: u64 = 60 * 60 * 1000;

/// What decides about the stages of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleRules {
    /// How long players have to agree, milliseconds; `None` where nobody is asked.
    pub ready_check_ms: Option<u32>,
    /// Where it is played.
    pub server: HostingSpec,
    /// For how long after it began a match is remembered, because those who met are not to meet again, milliseconds.
    pub past_match_retention_ms: u64,
}

impl LifecycleRules {
    /// What `ruleset` says.
    pub fn from_ruleset(ruleset: &Ruleset) -> Self {
        let avoided = ruleset.queue.iter().flat_map(|queue| &queue.avoid).map(|avoid| match avoid.whom {
            AvoidTarget::Blocked => 0,
            AvoidTarget::RecentOpponents { for_ms } | AvoidTarget::RecentTeammates { for_ms } => for_ms,
        });
        Self {
            ready_check_ms: ruleset.ready_check.as_ref().map(|check| check.deadline_ms),
            server: ruleset.server,
            past_match_retention_ms: avoided.max().unwrap_or(0),
        }
    }
}
