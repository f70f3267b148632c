//! What can happen to a match, and what follows from it.

use crate::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::lifecycle::{Assignment, Match, MatchPlayer, MatchTicket, TicketFate};
use crate::queue::ticket::{Ticket, TicketEndReason};

/// Something that happens to a match.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchEvent {
    /// Players answer the ready check.
    Responded {
        /// Their ticket.
        ticket_id: TicketId,
        /// Who of it; one who answers for a whole party names all of them.
        users: Vec<UserKey>,
        /// What they say.
        accepted: bool,
    },
    /// The moment has come that the stage names: a deadline, or when play is over at the latest.
    DeadlinePassed,
    /// Seats were taken for it there.
    ServerFound(Assignment),
    /// The server cannot be had after all, or has given the match up before anybody played.
    ServerFailed,
    /// It was played to its end.
    EndReported {
        /// Which of its users says so; `None` for whoever needs not be one, as the game server.
        reported_by: Option<UserKey>,
    },
    /// An operator ends it.
    Cancelled,
    /// A ticket is withdrawn from it.
    TicketWithdrawn {
        /// Which.
        ticket: TicketId,
        /// Why: `Left` is a failed check for its users, whatever they had answered; nothing else is.
        reason: TicketEndReason,
    },
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Transition {
    /// What to make of the event. `next` is there if, and only if, this is `Changed`.
    pub result: EventResult,
    /// The match as it is to be, at its next edition.
    pub next_match: Option<Match>,
    /// What becomes of its tickets: of every one when it is over, of none otherwise.
    pub ticket_fates: Vec<(TicketId, TicketFate)>,
    /// Users whose fault it is that the check failed, in the order of seats.
    pub penalized_users: Vec<UserKey>,
    /// What else is to be done. Telling the players how it stands goes without saying.
    pub effects: Vec<MatchEffect>,
}

/// How an event was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventResult {
    /// It changes the match.
    Changed,
    /// It had been said before, and is so.
    AlreadyApplied,
    /// It does not fit the stage.
    WrongStage,
    /// The moment that the stage names has not come.
    TooEarly,
    /// It has come: the answer is no longer wanted.
    TooLate,
    /// It names a ticket or user that is not in the match.
    UnknownParticipant,
}

impl Transition {
    /// Nothing changes.
    pub(super) fn unchanged(heard: EventResult) -> Self {
        Self {
            result: heard,
            next_match: None,
            ticket_fates: Vec::new(),
            penalized_users: Vec::new(),
            effects: Vec::new(),
        }
    }
}

/// What is to be done beyond keeping the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchEffect {
    /// Find a server, or take seats in the session that the match fills up, and say `ServerFound` or `ServerFailed`.
    FindServer,
    /// Play begins: end the other tickets of its users, and give every player a credential.
    StartPlay,
    /// Give back what is still held of these seats; all of it may be settled or gone already.
    ReleaseReservation {
        /// Where.
        advertisement: AdvertisementId,
        /// Which.
        reservation: ReservationId,
    },
}

/// What a match is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMatch {
    /// As in [`Match`].
    pub id: MatchId,
    /// As in [`Match`].
    pub set_id: SetId,
    /// As in [`Match`].
    pub silo: SiloId,
    /// As in [`Match`].
    pub ruleset_hash: RulesetHash,
    /// Who plays; [`Member::of`] makes them. Nobody has answered anything.
    pub tickets: Vec<MatchTicket>,
    /// As in [`Match`].
    pub quality: f64,
    /// As in [`Match`].
    pub region: Option<Box<str>>,
    /// As in [`Match`].
    pub backfilled_session: Option<AdvertisementId>,
}

impl MatchTicket {
    /// The ticket in a team, as a proposal places it: `roles` are those of its players in their order, or empty.
    pub fn from_ticket(ticket: &Ticket, team: u16, roles: &[u16]) -> Self {
        let roles = roles.iter().copied().map(Some).chain(std::iter::repeat(None));
        let players = ticket.session.players.iter().zip(roles);
        let seats =
            players.map(|(it, role)| MatchPlayer { user: it.user, client: it.client_key, role, accepted: None });
        Self { ticket_id: ticket.id, entered_at: ticket.entered_at, team, players: seats.collect() }
    }
}
