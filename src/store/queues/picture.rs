//! What queues keep, or as much of it as a batch can touch: the rows that changes are made in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{IdState, MatchId, SetId, TicketId, UserKey};
use crate::domain::life::penalty::Penalty;
use crate::domain::life::{Match, Stage};
use crate::domain::queue::ticket::Ticket;
use crate::domain::rating::Played;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::queues::{QueueKey, RESULTS_KEPT_MS, RatingRow, StoredTicket, TicketState};

/// Rows by what they are found by.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct Picture {
    pub(in crate::store) tickets: HashMap<TicketId, StoredTicket, IdState>,
    pub(in crate::store) matches: HashMap<MatchId, Arc<Match>, IdState>,
    /// The tickets of each user that are not over. A user without any has no entry.
    pub(in crate::store) spots: BTreeMap<UserKey, Vec<Spot>>,
    /// The match of each user who is in one that is not over.
    pub(in crate::store) playing: BTreeMap<UserKey, MatchId>,
    /// The same the other way about. A match without any has no entry.
    pub(in crate::store) players: HashMap<MatchId, BTreeSet<UserKey>, IdState>,
    pub(in crate::store) penalties: BTreeMap<(UserKey, SetId), Penalty>,
    pub(in crate::store) ratings: BTreeMap<(UserKey, SetId), RatingRow>,
    /// How far sets have been played by those whose ratings are not here, where the picture is a part and a batch asks for it.
    pub(in crate::store) played_elsewhere: BTreeMap<SetId, Played>,
    /// What came of matches; of those that a batch is about, where the picture is a part.
    pub(in crate::store) results: HashMap<MatchId, Arc<MatchResult>, IdState>,
    /// The latest changes of each user's ratings, by the place that each has among them; where the picture is a part, those
    /// that a batch makes.
    pub(in crate::store) changes: BTreeMap<(UserKey, SetId, u32), RatingChange>,
    /// What players thought of matches, and when they said so.
    pub(in crate::store) scores: BTreeMap<(MatchId, UserKey), (u8, UnixMs)>,
}

/// A ticket that is not over, as one of its users sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Spot {
    /// The queue that it is in.
    pub(in crate::store) queue: QueueKey,
    /// Which.
    pub(in crate::store) ticket: TicketId,
    /// It waits beside no other.
    pub(in crate::store) alone: bool,
}

impl Picture {
    /// Adds a user's ticket.
    pub(in crate::store) fn add_spot(&mut self, user: UserKey, spot: Spot) {
        self.spots.entry(user).or_default().push(spot);
    }

    /// Adds a user to a match.
    pub(in crate::store) fn add_player(&mut self, user: UserKey, to: MatchId) {
        self.playing.insert(user, to);
        self.players.entry(to).or_default().insert(user);
    }

    /// Takes a user out of the match, if that is the one that it is in.
    pub(in crate::store) fn remove_player(&mut self, user: UserKey, from: MatchId) {
        if let Some(players) = self.players.get_mut(&from)
            && players.remove(&user)
        {
            self.playing.remove(&user);
            if players.is_empty() {
                self.players.remove(&from);
            }
        }
    }

    /// Takes the users of a ticket that is over out of its queue.
    pub(in crate::store) fn remove_spots(&mut self, ticket: &Ticket) {
        for user in ticket.session.users() {
            if let Some(spots) = self.spots.get_mut(&user) {
                spots.retain(|spot| spot.ticket != ticket.id);
                if spots.is_empty() {
                    self.spots.remove(&user);
                }
            }
        }
    }

    /// Takes out what is due to be forgotten by `now`.
    pub(in crate::store) fn forget(&mut self, now: UnixMs) {
        self.tickets.retain(|_, it| it.forget_at().is_none_or(|at| now < at));
        self.matches.retain(|_, it| forget_at(it).is_none_or(|at| now < at));
        self.penalties.retain(|_, it| now < it.spent_at());
        self.results.retain(|_, it| now < it.reported.after(RESULTS_KEPT_MS));
        self.scores.retain(|_, (_, at)| now < at.after(RESULTS_KEPT_MS));
    }
}

impl StoredTicket {
    /// Whether it waits or plays.
    pub(in crate::store) fn is_open(&self) -> bool {
        !matches!(self.state, TicketState::Ended { .. })
    }

    /// When it may be forgotten, if it is over.
    pub(in crate::store) fn forget_at(&self) -> Option<UnixMs> {
        match self.state {
            TicketState::Ended { forget_at, .. } => Some(forget_at),
            TicketState::Waiting | TicketState::InMatch(_) => None,
        }
    }
}

/// When a match may be forgotten, if it is over.
pub(in crate::store) fn forget_at(of: &Match) -> Option<UnixMs> {
    match of.stage {
        Stage::Over { forget_at, .. } => Some(forget_at),
        Stage::ReadyCheck { .. } | Stage::Placing { .. } | Stage::Playing { .. } => None,
    }
}

/// The queue that a ticket is in.
pub(in crate::store) fn queue_of(ticket: &Ticket) -> QueueKey {
    QueueKey { set_id: ticket.set_id, silo: ticket.session.silo }
}

/// Everybody in a match, sorted, each once.
pub(in crate::store) fn users_of(of: &Match) -> BTreeSet<UserKey> {
    of.members.iter().flat_map(|member| &member.players).map(|seat| seat.user).collect()
}
