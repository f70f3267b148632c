//! What can happen to a match, and what follows from it.

use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, SiloId, TicketId, UserKey};
use crate::domain::life::{Fate, Match, Member, Place, Seat};
use crate::domain::queue::ticket::{Ending, Ticket};

/// Something that happens to a match.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Players answer the ready check.
    Answered {
        /// Their ticket.
        ticket: TicketId,
        /// Who of it; one who answers for a whole party names all of them.
        users: Vec<UserKey>,
        /// What they say.
        accept: bool,
    },
    /// The moment has come that the stage names: a deadline, or when play is over at the latest.
    DeadlinePassed,
    /// Seats were taken for it there.
    ServerFound(Place),
    /// The server cannot be had after all, or has given the match up before anybody played.
    ServerFailed,
    /// It was played to its end.
    Reported {
        /// Which of its users says so; `None` for whoever needs not be one, as the game server.
        by: Option<UserKey>,
    },
    /// An operator ends it.
    Cancelled,
    /// A ticket is withdrawn from it.
    Gone {
        /// Which.
        ticket: TicketId,
        /// Why: `Left` is a failed check for its users, whatever they had answered; nothing else is.
        how: Ending,
    },
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What to make of the event. `next` is there if, and only if, this is `Changed`.
    pub heard: Heard,
    /// The match as it is to be, at its next edition.
    pub next: Option<Match>,
    /// What becomes of its tickets: of every one when it is over, of none otherwise.
    pub fates: Vec<(TicketId, Fate)>,
    /// Users whose fault it is that the check failed, in the order of seats.
    pub punished: Vec<UserKey>,
    /// What else is to be done. Telling the players how it stands goes without saying.
    pub effects: Vec<Effect>,
}

/// How an event was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// It changes the match.
    Changed,
    /// It had been said before, and is so.
    Known,
    /// It does not fit the stage.
    NotNow,
    /// The moment that the stage names has not come.
    TooEarly,
    /// It has come: the answer is no longer wanted.
    TooLate,
    /// It names a ticket or user that is not in the match.
    Stranger,
}

impl Step {
    /// Nothing changes.
    pub(super) fn unchanged(heard: Heard) -> Self {
        Self { heard, next: None, fates: Vec::new(), punished: Vec::new(), effects: Vec::new() }
    }
}

/// What is to be done beyond keeping the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Find a server, or take seats in the session that the match fills up, and say `ServerFound` or `ServerFailed`.
    WantServer,
    /// Play begins: end the other tickets of its users, and give every player a credential.
    Begin,
    /// Give back what is still held of these seats; all of it may be settled or gone already.
    GiveBack {
        /// Where.
        advertisement: AdvertisementId,
        /// Which.
        reservation: ReservationId,
    },
}

/// What a match is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Fresh {
    /// As in [`Match`].
    pub id: MatchId,
    /// As in [`Match`].
    pub set_id: SetId,
    /// As in [`Match`].
    pub silo: SiloId,
    /// As in [`Match`].
    pub hash: RulesetHash,
    /// Who plays; [`Member::of`] makes them. Nobody has answered anything.
    pub members: Vec<Member>,
    /// As in [`Match`].
    pub quality: f64,
    /// As in [`Match`].
    pub region: Option<Box<str>>,
    /// As in [`Match`].
    pub backfills: Option<AdvertisementId>,
}

impl Member {
    /// The ticket in a team, as a proposal places it: `roles` are those of its players in their order, or empty.
    pub fn of(ticket: &Ticket, team: u16, roles: &[u16]) -> Self {
        let roles = roles.iter().copied().map(Some).chain(std::iter::repeat(None));
        let players = ticket.session.players.iter().zip(roles);
        let seats = players.map(|(it, role)| Seat { user: it.user, player: it.player, role, answer: None });
        Self { ticket: ticket.id, entered: ticket.entered, team, players: seats.collect() }
    }
}
