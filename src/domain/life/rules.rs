//! What a ruleset says about the life of a match, and for how long one that is over is remembered.

use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::AvoidWhom;
use crate::domain::ruleset::teams::ServerSpec;

/// How long a match that is over is remembered at least: an hour, so that whoever missed its end still learns of it, milliseconds.
pub const REMEMBERED_MS: u64 = 60 * 60 * 1000;

/// What decides about the stages of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifeRules {
    /// How long players have to agree, milliseconds; `None` where nobody is asked.
    pub ready_check_ms: Option<u32>,
    /// Where it is played.
    pub server: ServerSpec,
    /// For how long after it began a match is remembered, because those who met are not to meet again, milliseconds.
    pub meetings_ms: u64,
}

impl LifeRules {
    /// What `ruleset` says.
    pub fn of(ruleset: &Ruleset) -> Self {
        let avoided = ruleset.queue.iter().flat_map(|queue| &queue.avoid).map(|avoid| match avoid.whom {
            AvoidWhom::Blocked => 0,
            AvoidWhom::RecentOpponents { for_ms } | AvoidWhom::RecentTeammates { for_ms } => for_ms,
        });
        Self {
            ready_check_ms: ruleset.ready_check.as_ref().map(|check| check.deadline_ms),
            server: ruleset.server,
            meetings_ms: avoided.max().unwrap_or(0),
        }
    }
}
