//! Ruleset settings for the lifecycle of a match, and the retention of ended matches.

use crate::ruleset::Ruleset;
use crate::ruleset::queue::AvoidTarget;
use crate::ruleset::teams::{AllocatorOfferSpec, GameServerOrder, HostingMode, HostingSpec, PlayerDataForHost};

/// Minimum retention of an ended match, milliseconds: one hour. Clients that missed the end can still read it.
pub const ENDED_MATCH_RETENTION_MS: u64 = 60 * 60 * 1000;

/// Settings for the stages of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LifecycleRules {
    /// Time to respond to the ready check, milliseconds. `None` without a ready check.
    pub ready_check_ms: Option<u32>,
    /// Hosting of the match.
    pub hosting: HostingSpec,
    /// Whether a host must confirm a match before play starts, and be heard during play.
    pub hosts_confirm: bool,
    /// Retention after the start of a match that was played, milliseconds. It covers the longest avoidance rule, and the time for
    /// which the values that it chose count.
    pub past_match_retention_ms: u64,
}

impl LifecycleRules {
    /// Settings for ending a match whose ruleset is unavailable. No other event may be applied with them.
    pub fn for_ending_without_ruleset() -> Self {
        let hosting = HostingSpec {
            mode: HostingMode::None,
            allocation_timeout_ms: 0,
            max_match_ms: 0,
            confirm_ms: 0,
            host_loss_ms: 0,
            report_window_ms: 0,
            game_server_order: GameServerOrder::BestScore,
            max_round_trip_ms: None,
            allocator_offers: AllocatorOfferSpec::NO_OFFERS,
            host_data: PlayerDataForHost::default(),
        };
        Self { ready_check_ms: None, hosting, hosts_confirm: false, past_match_retention_ms: 0 }
    }

    /// Reads the settings from `ruleset`.
    pub fn from_ruleset(ruleset: &Ruleset) -> Self {
        let of_queue = ruleset.queue.iter().flat_map(|queue| &queue.avoid);
        let avoided = of_queue.chain(&ruleset.avoid).map(|avoid| match avoid.whom {
            AvoidTarget::Blocked => 0,
            AvoidTarget::RecentOpponents { recent_ms } | AvoidTarget::RecentTeammates { recent_ms } => recent_ms,
        });
        Self {
            ready_check_ms: ruleset.ready_check.as_ref().map(|check| check.timeout_ms),
            hosting: ruleset.hosting,
            hosts_confirm: true,
            past_match_retention_ms: avoided.chain(ruleset.played_values_recent_ms()).max().unwrap_or(0),
        }
    }
}
