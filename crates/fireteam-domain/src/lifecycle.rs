//! The life of a match: proposed, agreed to, given a server, played, over. A state machine without hands.

pub mod event;
pub mod penalty;
pub mod rules;
pub mod transition;

use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::queue::avoidance::PastMatch;
use crate::queue::ticket::TicketEndReason;
use crate::time::UnixMs;

/// A match, from the proposal on.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Its name.
    pub id: MatchId,
    /// The set that it is played under.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
    /// The ruleset that made it; it keeps it.
    pub ruleset_hash: RulesetHash,
    /// When it was proposed.
    pub proposed_at: UnixMs,
    /// Counts its changes: a change names the one that it is based on, and loses against another that was sooner.
    pub version: u64,
    /// Where it stands.
    pub stage: MatchStage,
    /// Who plays.
    pub tickets: Vec<MatchTicket>,
    /// How good the pass thought it, higher is better.
    pub quality: f64,
    /// The region where all meet, if any.
    pub region: Option<Box<str>>,
    /// The session that is filled up, where no new one begins.
    pub backfilled_session: Option<AdvertisementId>,
}

/// A ticket in a match.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchTicket {
    /// Which.
    pub ticket_id: TicketId,
    /// Since when it had been waiting.
    pub entered_at: UnixMs,
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team: u16,
    /// Its players.
    pub players: Vec<MatchPlayer>,
}

/// A player in a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchPlayer {
    /// The account.
    pub user: UserKey,
    /// The connected client.
    pub client: UserKey,
    /// What it plays: a place in `TeamsSpec::roles`, if there are any.
    pub role: Option<u16>,
    /// What it has said to the ready check.
    pub accepted: Option<bool>,
}

/// Where a match stands.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchStage {
    /// All must agree before the deadline.
    ReadyCheck {
        /// Until when.
        deadline: UnixMs,
    },
    /// All have agreed; a server is wanted.
    Placing {
        /// Until when.
        deadline: UnixMs,
    },
    /// It is played.
    Playing {
        /// Where.
        assignment: Assignment,
        /// Since when.
        started_at: UnixMs,
        /// When it is over if nobody has said so.
        times_out_at: UnixMs,
    },
    /// It is over, or never came about; kept for a while, so that retries are answered and meetings remembered.
    Ended {
        /// How it ended.
        end_reason: MatchEndReason,
        /// When it began, if it did.
        began: Option<UnixMs>,
        /// Where it was played, if it was: whoever hosted it may still say what came of it.
        place: Option<Assignment>,
        /// When it may be forgotten.
        purge_at: UnixMs,
    },
}

/// Where a match is played.
#[derive(Clone, Debug, PartialEq)]
pub enum Assignment {
    /// On a game server that had advertised itself.
    GameServer {
        /// Which.
        advertisement: AdvertisementId,
        /// The seats taken there.
        reservation: ReservationId,
        /// What it said about how to reach it; opaque.
        connect_data: Vec<u8>,
    },
    /// At one of the players.
    PeerHost {
        /// The host: the connected client, as [`Seat::player`] names it.
        host: UserKey,
    },
    /// Wherever the players agree.
    Unhosted,
}

impl MatchStage {
    /// Where it is played, while it is.
    pub fn assignment(&self) -> Option<&Assignment> {
        match self {
            MatchStage::Playing { assignment: place, .. } => Some(place),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => None,
        }
    }
}

impl MatchStage {
    /// When play began, if it has.
    pub fn started_at(&self) -> Option<UnixMs> {
        match self {
            MatchStage::Playing { started_at: began, .. } => Some(*began),
            MatchStage::Ended { began, .. } => *began,
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } => None,
        }
    }
}

impl Match {
    /// Who meets whom in it; nobody does before it begins.
    pub fn past_matches(&self) -> Vec<PastMatch> {
        let Some(began) = self.stage.started_at() else { return Vec::new() };
        let seats = self.tickets.iter().flat_map(|member| member.players.iter().map(|seat| (member.team, seat.user)));
        let seats: Vec<(u16, UserKey)> = seats.collect();
        let mut meetings = Vec::new();
        for (at, &(team, one)) in seats.iter().enumerate() {
            let meeting = |&(other_team, other)| PastMatch {
                user: one,
                other_user: other,
                same_team: team == other_team,
                started_at: began,
            };
            meetings.extend(seats[at + 1..].iter().map(meeting));
        }
        meetings
    }
}

impl MatchStage {
    /// Where it is played, or was.
    pub fn last_assignment(&self) -> Option<&Assignment> {
        match self {
            MatchStage::Playing { assignment: place, .. } | MatchStage::Ended { place: Some(place), .. } => Some(place),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { place: None, .. } => None,
        }
    }

    /// How it ended, if it has.
    pub fn end_reason(&self) -> Option<MatchEndReason> {
        match self {
            MatchStage::Ended { end_reason: outcome, .. } => Some(*outcome),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Playing { .. } => None,
        }
    }
}

impl Assignment {
    /// Whether it is on the game server of that advertisement.
    pub fn is_on_game_server(&self, id: AdvertisementId) -> bool {
        matches!(self, Assignment::GameServer { advertisement, .. } if *advertisement == id)
    }
}

/// How a match ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchEndReason {
    /// It was played, and its end reported.
    Played,
    /// It was played, and nobody said that it was over.
    TimedOut,
    /// Somebody declined, or left before it began.
    Declined,
    /// Somebody did not answer.
    NotAcceptedInTime,
    /// No server was found in time.
    NoServer,
    /// The server gave it up before anybody played.
    ServerFailed,
    /// An operator cancelled it.
    Cancelled,
}

/// What becomes of a ticket when its match changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketFate {
    /// It waits again, as long as it had.
    Requeued,
    /// It is over.
    Ended(TicketEndReason),
}
