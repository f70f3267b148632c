//! What queues keep, or as much of it as a batch can touch: the rows that changes are made in.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::queue::ticket::Ticket;
use crate::domain::rating::SetActivity;
use crate::domain::time::UnixMs;
use crate::store::queues::{QueueKey, RESULT_RETENTION_MS, RatingRow, StoredTicket, TicketState};

/// Rows by what they are found by.
#[derive(Clone, Debug, Default)]
pub(in crate::store) struct QueueRows {
    pub(in crate::store) tickets: HashMap<TicketId, StoredTicket, BuildIdHasher>,
    pub(in crate::store) matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// The tickets of each user that are not over. A user without any has no entry.
    pub(in crate::store) ticket_users: BTreeMap<UserKey, Vec<TicketUser>>,
    /// The match of each user who is in one that is not over.
    pub(in crate::store) match_by_user: BTreeMap<UserKey, MatchId>,
    /// The same the other way about. A match without any has no entry.
    pub(in crate::store) users_by_match: HashMap<MatchId, BTreeSet<UserKey>, BuildIdHasher>,
    pub(in crate::store) penalties: BTreeMap<(UserKey, SetId), Penalty>,
    pub(in crate::store) ratings: BTreeMap<(UserKey, SetId), RatingRow>,
    /// How far sets have been played by those whose ratings are not here, where the picture is a part and a batch asks for it.
    pub(in crate::store) periods_played_by_others: BTreeMap<SetId, SetActivity>,
    /// What came of matches; of those that a batch is about, where the picture is a part.
    pub(in crate::store) results: HashMap<MatchId, Arc<MatchResult>, BuildIdHasher>,
    /// The latest changes of each user's ratings, by the place that each has among them; where the picture is a part, those
    /// that a batch makes.
    pub(in crate::store) rating_changes: BTreeMap<(UserKey, SetId, u32), RatingHistoryEntry>,
    /// What players thought of matches, and when they said so.
    pub(in crate::store) feedback: BTreeMap<(MatchId, UserKey), (u8, UnixMs)>,
}

/// A ticket that is not over, as one of its users sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct TicketUser {
    /// The queue that it is in.
    pub(in crate::store) queue: QueueKey,
    /// Which.
    pub(in crate::store) ticket: TicketId,
    /// It waits beside no other.
    pub(in crate::store) exclusive: bool,
}

impl QueueRows {
    /// Adds a user's ticket.
    pub(in crate::store) fn add_ticket_user(&mut self, user: UserKey, spot: TicketUser) {
        self.ticket_users.entry(user).or_default().push(spot);
    }

    /// Adds a user to a match.
    pub(in crate::store) fn add_match_user(&mut self, user: UserKey, to: MatchId) {
        self.match_by_user.insert(user, to);
        self.users_by_match.entry(to).or_default().insert(user);
    }

    /// Takes a user out of the match, if that is the one that it is in.
    pub(in crate::store) fn remove_match_user(&mut self, user: UserKey, from: MatchId) {
        if let Some(players) = self.users_by_match.get_mut(&from)
            && players.remove(&user)
        {
            self.match_by_user.remove(&user);
            if players.is_empty() {
                self.users_by_match.remove(&from);
            }
        }
    }

    /// Takes the users of a ticket that is over out of its queue.
    pub(in crate::store) fn remove_ticket_users(&mut self, ticket: &Ticket) {
        for user in ticket.session.sorted_users() {
            if let Some(spots) = self.ticket_users.get_mut(&user) {
                spots.retain(|spot| spot.ticket != ticket.id);
                if spots.is_empty() {
                    self.ticket_users.remove(&user);
                }
            }
        }
    }

    /// Takes out what is due to be forgotten by `now`.
    pub(in crate::store) fn purge(&mut self, now: UnixMs) {
        self.tickets.retain(|_, it| it.purge_at().is_none_or(|at| now < at));
        self.matches.retain(|_, it| forget_at(it).is_none_or(|at| now < at));
        self.penalties.retain(|_, it| now < it.expires_at());
        self.results.retain(|_, it| now < it.reported_at.plus_ms(RESULT_RETENTION_MS));
        self.feedback.retain(|_, (_, at)| now < at.plus_ms(RESULT_RETENTION_MS));
    }
}

impl StoredTicket {
    /// Whether it waits or plays.
    pub(in crate::store) fn is_open(&self) -> bool {
        !matches!(self.state, TicketState::Ended { .. })
    }

    /// When it may be forgotten, if it is over.
    pub(in crate::store) fn purge_at(&self) -> Option<UnixMs> {
        match self.state {
            TicketState::Ended { purge_at: forget_at, .. } => Some(forget_at),
            TicketState::Waiting | TicketState::InMatch(_) => None,
        }
    }
}

/// When a match may be forgotten, if it is over.
pub(in crate::store) fn forget_at(of: &Match) -> Option<UnixMs> {
    match of.stage {
        MatchStage::Ended { purge_at: forget_at, .. } => Some(forget_at),
        MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Playing { .. } => None,
    }
}

/// The queue that a ticket is in.
pub(in crate::store) fn queue_key(ticket: &Ticket) -> QueueKey {
    QueueKey { set_id: ticket.set_id, silo: ticket.session.silo }
}

/// Everybody in a match, sorted, each once.
pub(in crate::store) fn match_users(of: &Match) -> BTreeSet<UserKey> {
    of.tickets.iter().flat_map(|member| &member.players).map(|seat| seat.user).collect()
}
