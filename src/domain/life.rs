//! The life of a match: proposed, agreed to, given a server, played, over. A state machine without hands.

pub mod event;
pub mod penalty;
pub mod rules;
pub mod step;

use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::queue::avoid::Meeting;
use crate::domain::queue::ticket::Ending;
use crate::domain::time::UnixMs;

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
    pub hash: RulesetHash,
    /// When it was proposed.
    pub proposed: UnixMs,
    /// Counts its changes: a change names the one that it is based on, and loses against another that was sooner.
    pub edition: u64,
    /// Where it stands.
    pub stage: Stage,
    /// Who plays.
    pub members: Vec<Member>,
    /// How good the pass thought it, higher is better.
    pub quality: f64,
    /// The region where all meet, if any.
    pub region: Option<Box<str>>,
    /// The session that is filled up, where no new one begins.
    pub backfills: Option<AdvertisementId>,
}

/// A ticket in a match.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Which.
    pub ticket: TicketId,
    /// Since when it had been waiting.
    pub entered: UnixMs,
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team: u16,
    /// Its players.
    pub players: Vec<Seat>,
}

/// A player in a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seat {
    /// The account.
    pub user: UserKey,
    /// The connected client.
    pub player: UserKey,
    /// What it plays: a place in `TeamsSpec::roles`, if there are any.
    pub role: Option<u16>,
    /// What it has said to the ready check.
    pub answer: Option<bool>,
}

/// Where a match stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
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
        place: Place,
        /// Since when.
        began: UnixMs,
        /// When it is over if nobody has said so.
        until: UnixMs,
    },
    /// It is over, or never came about; kept for a while, so that retries are answered and meetings remembered.
    Over {
        /// How it ended.
        outcome: Outcome,
        /// When it began, if it did.
        began: Option<UnixMs>,
        /// Where it was played, if it was: whoever hosted it may still say what came of it.
        place: Option<Place>,
        /// When it may be forgotten.
        forget_at: UnixMs,
    },
}

/// Where a match is played.
#[derive(Clone, Debug, PartialEq)]
pub enum Place {
    /// On a game server that had advertised itself.
    Server {
        /// Which.
        advertisement: AdvertisementId,
        /// The seats taken there.
        reservation: ReservationId,
        /// What it said about how to reach it; opaque.
        connect_data: Vec<u8>,
    },
    /// At one of the players.
    Peer {
        /// The host: the connected client, as [`Seat::player`] names it.
        host: UserKey,
    },
    /// Wherever the players agree.
    Nowhere,
}

impl Stage {
    /// Where it is played, while it is.
    pub fn place(&self) -> Option<&Place> {
        match self {
            Stage::Playing { place, .. } => Some(place),
            Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { .. } => None,
        }
    }
}

impl Stage {
    /// When play began, if it has.
    pub fn began(&self) -> Option<UnixMs> {
        match self {
            Stage::Playing { began, .. } => Some(*began),
            Stage::Over { began, .. } => *began,
            Stage::ReadyCheck { .. } | Stage::Placing { .. } => None,
        }
    }
}

impl Match {
    /// Who meets whom in it; nobody does before it begins.
    pub fn meetings(&self) -> Vec<Meeting> {
        let Some(began) = self.stage.began() else { return Vec::new() };
        let seats = self.members.iter().flat_map(|member| member.players.iter().map(|seat| (member.team, seat.user)));
        let seats: Vec<(u16, UserKey)> = seats.collect();
        let mut meetings = Vec::new();
        for (at, &(team, one)) in seats.iter().enumerate() {
            let meeting = |&(other_team, other)| Meeting { one, other, same_team: team == other_team, began };
            meetings.extend(seats[at + 1..].iter().map(meeting));
        }
        meetings
    }
}

impl Stage {
    /// Where it is played, or was.
    pub fn was_at(&self) -> Option<&Place> {
        match self {
            Stage::Playing { place, .. } | Stage::Over { place: Some(place), .. } => Some(place),
            Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Over { place: None, .. } => None,
        }
    }

    /// How it ended, if it has.
    pub fn outcome(&self) -> Option<Outcome> {
        match self {
            Stage::Over { outcome, .. } => Some(*outcome),
            Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Playing { .. } => None,
        }
    }
}

impl Place {
    /// Whether it is on the game server of that advertisement.
    pub fn is_at(&self, id: AdvertisementId) -> bool {
        matches!(self, Place::Server { advertisement, .. } if *advertisement == id)
    }
}

/// How a match ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was played, and its end reported.
    Played,
    /// It was played, and nobody said that it was over.
    Lapsed,
    /// Somebody declined, or left before it began.
    Declined,
    /// Somebody did not answer.
    Unanswered,
    /// No server was found in time.
    NoServer,
    /// The server gave it up before anybody played.
    ServerFailed,
    /// An operator cancelled it.
    Cancelled,
}

/// What becomes of a ticket when its match changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits again, as long as it had.
    Returns,
    /// It is over.
    Ends(Ending),
}
