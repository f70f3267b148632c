//! One counted event.

use std::sync::Arc;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::statistic::{PartySizeClass, StatisticKind};
use crate::domain::time::UnixMs;

/// Value of a quantity, and what it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) kind: StatisticKind,
    pub(crate) set_id: SetId,
    /// Region that the ruleset lists; `None` for others.
    pub(crate) region: Option<Arc<str>>,
    pub(crate) party_size: PartySizeClass,
    pub(crate) ruleset_hash: Option<RulesetHash>,
    /// Refusing rule, for refusals.
    pub(crate) rule: Option<Arc<str>>,
    pub(crate) value: f64,
    /// Number of events with this value.
    pub(crate) count: u64,
    pub(crate) at: UnixMs,
}

impl Sample {
    /// One event of a set, for all regions and party sizes.
    pub(crate) fn new(kind: StatisticKind, set_id: SetId, value: f64, at: UnixMs) -> Self {
        Self {
            kind,
            set_id,
            region: None,
            party_size: PartySizeClass::All,
            ruleset_hash: None,
            rule: None,
            value,
            count: 1,
            at,
        }
    }

    /// The sample of a party with this number of players.
    pub(crate) fn with_party_size(self, players: usize) -> Self {
        Self { party_size: PartySizeClass::from_player_count(players), ..self }
    }
}
