//! Match of a game server, or of a session that it fills, as its host sees it.

use crate::domain::attribute::{AttributeValue, ShortString};
use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, UserKey};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::time::UnixMs;

/// State of a match for its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostedMatchState {
    /// The host must confirm it until this time.
    AwaitingHostConfirmation(UnixMs),
    /// It is being played.
    Playing,
    /// It has ended.
    Ended,
    /// The host does not host it, or no longer.
    NotHosted,
}

/// Match of a game server, or of a session that it fills.
#[derive(Clone, Debug, PartialEq)]
pub struct HostedMatch {
    /// Match.
    pub id: MatchId,
    /// State for the host.
    pub state: HostedMatchState,
    /// Milliseconds left to confirm, when this was read.
    pub confirm_in_ms: Option<u64>,
    /// Seats and players; `None` unless the host must confirm the match or plays it.
    pub details: Option<HostedMatchDetails>,
}

/// Seats and players of a match.
#[derive(Clone, Debug, PartialEq)]
pub struct HostedMatchDetails {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Ruleset that made the match.
    pub ruleset_hash: RulesetHash,
    /// Advertisement whose seats the match has taken.
    pub advertisement_id: AdvertisementId,
    /// Reservation of the seats. `None` for a match of a session: its parties have reservations of their own.
    pub reservation_id: Option<ReservationId>,
    /// Region that the players agreed on.
    pub region: Option<Box<str>>,
    /// Entries of string lists chosen for its players.
    pub chosen_values: Box<[ChosenValue]>,
    /// Bots of each team. Empty if there are none.
    pub bots_by_team: Box<[u16]>,
    /// Whether the match fills an existing session.
    pub is_backfill: bool,
    /// Parties.
    pub parties: Vec<HostedParty>,
}

/// Party of a match.
#[derive(Clone, Debug, PartialEq)]
pub struct HostedParty {
    /// Team.
    pub team: u16,
    /// Reservation of the party in the session whose match it is. `None` for the host's own party, and in matches of queues.
    pub reservation_id: Option<ReservationId>,
    /// Players.
    pub players: Vec<HostedPlayer>,
    /// Attributes, as far as the ruleset lets the host have them.
    pub attributes: Vec<(ShortString, AttributeValue)>,
}

/// Player of a match.
#[derive(Clone, Debug, PartialEq)]
pub struct HostedPlayer {
    /// Key of the player in this match.
    pub player_key: UserKey,
    /// Role in the team.
    pub team_role: Option<Box<str>>,
    /// Whether the player left during play.
    pub has_left: bool,
    /// Rating at queue entry, if the ruleset lets the host have it.
    pub rating: Option<PlayerRating>,
    /// Attributes, as far as the ruleset lets the host have them.
    pub attributes: Vec<(ShortString, AttributeValue)>,
}

impl HostedMatch {
    /// Match without seats and players, in state `state`.
    pub(crate) fn new_without_details(id: MatchId, state: HostedMatchState) -> Self {
        Self { id, state, confirm_in_ms: None, details: None }
    }

    /// The match, with the time left at `now`.
    pub(crate) fn with_time_left_at(&self, now: UnixMs) -> Self {
        let confirm_in_ms = match self.state {
            HostedMatchState::AwaitingHostConfirmation(confirm_by) => Some(confirm_by.ms_since(now)),
            HostedMatchState::Playing | HostedMatchState::Ended | HostedMatchState::NotHosted => None,
        };
        Self { confirm_in_ms, ..self.clone() }
    }
}
