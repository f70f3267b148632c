//! Labels of what happens in a matchmaking set: its number, states of tickets, matches and advertisements, and reasons of ends.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::{
    EncodeLabel as _, EncodeLabelSet, EncodeLabelValue, LabelSetEncoder, LabelValueEncoder,
};

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::id::SetId;
use crate::domain::lifecycle::{MatchEndReason, MatchStage};
use crate::domain::queue::ticket::TicketEndReason;

/// Sets that metrics tell apart; further ones have the label `other`.
const SETS_MAX: usize = 256;

/// Number of a matchmaking set; `other` for sets beyond the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetLabel(Option<SetId>);

impl SetLabel {
    /// Name of the label.
    pub const KEY: &'static str = "set";
}

impl EncodeLabelSet for SetLabel {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        match self.0 {
            Some(set_id) => (Self::KEY, set_id.0).encode(encoder.encode_label()),
            None => (Self::KEY, "other").encode(encoder.encode_label()),
        }
    }
}

/// Sets that the metrics of one server tell apart: the first 256 of which anything was recorded.
#[derive(Debug, Default)]
pub struct KnownSets(Mutex<SetNumbers>);

#[derive(Debug, Default)]
struct SetNumbers {
    known: BTreeSet<SetId>,
    has_others: bool,
}

impl KnownSets {
    /// Label of a set. A set keeps its label until the server stops.
    pub fn label(&self, set_id: SetId) -> SetLabel {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sets.known.contains(&set_id) || (sets.known.len() < SETS_MAX && sets.known.insert(set_id)) {
            return SetLabel(Some(set_id));
        }
        sets.has_others = true;
        SetLabel(None)
    }

    /// All labels returned so far.
    pub fn labels(&self) -> Vec<SetLabel> {
        let sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = sets.has_others.then_some(SetLabel(None));
        sets.known.iter().map(|set_id| SetLabel(Some(*set_id))).chain(others).collect()
    }
}

label! {
    /// State of a ticket that has not ended.
    TicketStateLabel, "state",
    /// It waits for a match.
    Waiting = "waiting",
    /// It is in a match that has not ended.
    InMatch = "in_match",
}

label! {
    /// Stage of a match that has not ended.
    MatchStageLabel, "stage",
    /// Its players are asked to accept.
    ReadyCheck = "ready_check",
    /// It waits for a game server or a host.
    Placing = "placing",
    /// Its host must confirm.
    Confirming = "confirming",
    /// It is played.
    Playing = "playing",
}

impl MatchStageLabel {
    /// Label of a stage; `None` if the match has ended.
    pub fn from_stage(stage: &MatchStage) -> Option<Self> {
        match stage {
            MatchStage::ReadyCheck { .. } => Some(Self::ReadyCheck),
            MatchStage::Placing { .. } => Some(Self::Placing),
            MatchStage::Confirming { .. } => Some(Self::Confirming),
            MatchStage::Playing { .. } => Some(Self::Playing),
            MatchStage::Ended { .. } => None,
        }
    }
}

label! {
    /// Event in the life of a match; an end is named by its reason.
    MatchEventLabel, "event",
    /// Proposed to its players, or started by the host of a session.
    Proposed = "proposed",
    /// Play began.
    Began = "began",
    /// Ended: it was played.
    Played = "played",
    /// Ended: it was played, without a report of its end.
    TimedOut = "timed_out",
    /// Ended: a player declined, or left before play.
    Declined = "declined",
    /// Ended: a player did not answer the ready check in time.
    NotAcceptedInTime = "not_accepted_in_time",
    /// Ended: no game server was found in time.
    NoServer = "no_server",
    /// Ended: the game server failed, or gave it up.
    ServerFailed = "server_failed",
    /// Ended: cancelled by an operator.
    Cancelled = "cancelled",
    /// Ended: the host was not heard for too long.
    HostLost = "host_lost",
    /// Ended: all players left during play.
    Abandoned = "abandoned",
}

impl MatchEventLabel {
    /// The end of a match for this reason.
    pub fn from_end_reason(reason: MatchEndReason) -> Self {
        match reason {
            MatchEndReason::Played => Self::Played,
            MatchEndReason::TimedOut => Self::TimedOut,
            MatchEndReason::Declined => Self::Declined,
            MatchEndReason::NotAcceptedInTime => Self::NotAcceptedInTime,
            MatchEndReason::NoServer => Self::NoServer,
            MatchEndReason::ServerFailed => Self::ServerFailed,
            MatchEndReason::Cancelled => Self::Cancelled,
            MatchEndReason::HostLost => Self::HostLost,
            MatchEndReason::Abandoned => Self::Abandoned,
        }
    }
}

label! {
    /// Reason why a ticket ended.
    TicketOutcomeLabel, "outcome",
    /// Play began, in one of its matches.
    Played = "played",
    /// The party left before play.
    Left = "left",
    /// No heartbeat arrived within its TTL.
    Expired = "expired",
    /// Another ticket of one of its users was in a match that began.
    MatchedElsewhere = "matched_elsewhere",
    /// One of its players declined a match.
    Declined = "declined",
    /// One of its players did not answer a ready check in time.
    NotAcceptedInTime = "not_accepted_in_time",
    /// Ended by an operator, or because its set has no queue any more.
    EndedByServer = "ended_by_server",
    /// Its set was retired.
    RulesetRetired = "ruleset_retired",
}

impl TicketOutcomeLabel {
    /// Label of a reason.
    pub fn from_end_reason(reason: TicketEndReason) -> Self {
        match reason {
            TicketEndReason::Played => Self::Played,
            TicketEndReason::Left => Self::Left,
            TicketEndReason::Expired => Self::Expired,
            TicketEndReason::MatchedElsewhere => Self::MatchedElsewhere,
            TicketEndReason::Declined => Self::Declined,
            TicketEndReason::NotAcceptedInTime => Self::NotAcceptedInTime,
            TicketEndReason::EndedByServer => Self::EndedByServer,
            TicketEndReason::RulesetRetired => Self::RulesetRetired,
        }
    }
}

label! {
    /// Outcome of a searching party's attempt to take seats in a session.
    SeatOutcomeLabel, "outcome",
    /// The host confirmed the reservation, or the party joined.
    Seated = "seated",
    /// The party released the reservation, or a newer one took its place.
    Released = "released",
    /// The host did not confirm the reservation in time.
    Expired = "expired",
    /// Refused: too few seats are open, or the session has its maximum of reservations.
    Full = "full",
    /// Refused: a rule of the set does not hold any more.
    RefusedByRule = "refused_by_rule",
    /// Refused: the host did not answer the party's probes, or the party has not measured it.
    NotMeasured = "not_measured",
    /// The session's advertisement ended, or does not exist for the party.
    SessionEnded = "session_ended",
}

label! {
    /// Kind of an advertisement.
    AdvertisementKindLabel, "kind",
    /// Session of players.
    Session = "session",
    /// Game server that waits for a match.
    GameServer = "game_server",
}

impl AdvertisementKindLabel {
    /// Label of a kind.
    pub fn from_kind(kind: AdvertisementKind) -> Self {
        match kind {
            AdvertisementKind::Session => Self::Session,
            AdvertisementKind::GameServer => Self::GameServer,
        }
    }
}

label! {
    /// State of an advertisement.
    SeatStateLabel, "state",
    /// It has open seats.
    Open = "open",
    /// All its seats are reserved, or it offers none.
    Full = "full",
}

label! {
    /// Feed by which a server learns of the changes of others.
    FeedLabel, "feed",
    /// Changes of advertisements.
    Advertisements = "advertisements",
    /// Changes of tickets and matches.
    Queues = "queues",
}
