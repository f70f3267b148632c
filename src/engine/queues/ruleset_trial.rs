//! Trial of a ruleset on the tickets that wait now, in domain types.

use std::sync::Arc;

use crate::domain::id::{SiloId, TicketId};
use crate::domain::queue::trial::RulesetTrial;
use crate::domain::ruleset::Ruleset;

/// Maximum number of tickets that a trial reads: half a million pairs.
pub const TRIED_TICKETS_MAX: usize = 1_000;

/// Result of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct RulesetTrialAnswer {
    /// Silo of the queue.
    pub silo: SiloId,
    /// Tickets that were read, with their waits in milliseconds, the longest first.
    pub tickets: Vec<(TicketId, u64)>,
    /// More tickets wait.
    pub is_truncated: bool,
    /// The current ruleset, and its effect.
    pub current: (Arc<Ruleset>, RulesetTrial),
    /// The tried ruleset, and its effect.
    pub tried: (Arc<Ruleset>, RulesetTrial),
}
