//! Records of the queues that writes take and give: tickets with their state, ratings, cooldowns.

use std::sync::Arc;

use crate::domain::id::{MatchId, RatingKey, UserKey};
use crate::domain::match_result::UserSatisfactionStatistics;
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::{PlayerRating, Ticket, TicketEndReason};
use crate::domain::rating::Skill;
use crate::domain::time::UnixMs;

/// Ticket as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTicket {
    /// Ticket as entered.
    pub ticket: Arc<Ticket>,
    /// State.
    pub state: TicketState,
    /// Expiry without a heartbeat. A ticket in a match that is being played does not expire.
    pub expires_at: UnixMs,
    /// Number of changes to the ticket, counted from 1.
    pub version: u64,
    /// Digest of the request; detects reuse of an idempotency key for another request.
    pub request_digest: [u8; 16],
    /// Players who had the chance to answer the ready check of the ticket's match: bit `n` is player `n` of the session.
    pub ready_check_delivered_mask: u64,
    /// Round trips of its players to beacons. None once it has ended.
    pub seat_vectors: SeatBeaconVectors,
}

impl StoredTicket {
    /// Whether the ticket waits or is in a match.
    pub(in crate::store) fn is_open(&self) -> bool {
        !matches!(self.state, TicketState::Ended { .. })
    }

    /// When the ticket may be purged, if it has ended.
    pub(in crate::store) fn purge_at(&self) -> Option<UnixMs> {
        match self.state {
            TicketState::Ended { purge_at, .. } => Some(purge_at),
            TicketState::Waiting | TicketState::InMatch(_) => None,
        }
    }
}

/// State of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// Waiting. A pass skips it while one of its users is in a match by another ticket.
    Waiting,
    /// In a match that has not ended.
    InMatch(MatchId),
    /// Ended, and kept to answer retries.
    Ended {
        /// Reason.
        end_reason: TicketEndReason,
        /// Match that ended the ticket, if any.
        match_id: Option<MatchId>,
        /// When the row may be purged.
        purge_at: UnixMs,
    },
}

/// Cooldowns after failed ready checks, from the ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyCheckCooldowns {
    /// Cooldown after the first, second, ... failed check, milliseconds. The last one applies to all further checks.
    pub cooldowns_ms: Box<[u32]>,
    /// Time without a failed check after which the count starts again from zero, milliseconds.
    pub reset_after_ms: u64,
}

/// Rating of a user in one pool and on one scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingRow {
    /// User.
    pub user: UserKey,
    /// Pool and scale.
    pub key: RatingKey,
    /// Rating and deviation.
    pub rating: PlayerRating,
    /// Volatility of Glicko-2; 0 for other systems.
    pub volatility: f64,
    /// Number of rated matches.
    pub rated_match_count: u32,
    /// Time of the last rated match.
    pub last_match_at: UnixMs,
    /// Matches won in a row if positive, lost in a row if negative.
    pub streak: i32,
    /// Satisfaction statistics.
    pub satisfaction: UserSatisfactionStatistics,
    /// Active decay periods of the ratings with this key, up to the user's last match; as in [`Skill`].
    pub last_match_active_period: u32,
}

impl RatingRow {
    /// Input for a rating system.
    pub fn skill(&self) -> Skill {
        let Self {
            rating,
            volatility,
            rated_match_count: match_count,
            streak,
            last_match_active_period: active_periods,
            ..
        } = *self;
        // Without a rated match, there is no time of inactivity.
        Skill {
            estimate: rating,
            volatility,
            match_count,
            last_match_at: (match_count > 0).then_some(self.last_match_at),
            streak,
            last_match_active_period: active_periods,
        }
    }
}
