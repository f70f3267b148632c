//! What each change does to what queues keep: plain code over plain values, carried out by every store.
//!
//! A store shows this code the rows that a batch touches, lets it make the changes one by one, in order, and then carries
//! out the difference. So a batch means the same everywhere, however fast it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{TicketId, UserKey};
use crate::domain::life::penalty::penalise;
use crate::domain::life::{Fate, Match};
use crate::domain::queue::ticket::{Ending, Ticket};
use crate::domain::time::UnixMs;
use crate::store::mutant;
use crate::store::queues::picture::{Picture, Spot, forget_at, queue_of, users_of};
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketState};

/// The edition of a ticket that was entered a moment ago.
const FIRST: u64 = 1;

impl Picture {
    /// Makes the changes of one batch, in order, and says what each did.
    ///
    /// Moves of one match in a batch, and its end, are made one from the other. So when one comes too late, those after it do
    /// too: what they were made from never was, even where the number of their edition happens to be the next.
    pub(in crate::store) fn apply_all(&mut self, batch: &[QueueWrite]) -> Vec<QueueOutcome> {
        let mut late = BTreeSet::new();
        let mut apply = |write: &QueueWrite| {
            let id = match write {
                QueueWrite::Move { next, .. } => next.id,
                QueueWrite::Conclude { report, .. } if !self.results.contains_key(&report.match_id) => report.match_id,
                _ => return self.apply(write),
            };
            if late.contains(&id) {
                return QueueOutcome::Stale(self.matches.get(&id).cloned());
            }
            let outcome = self.apply(write);
            if matches!(outcome, QueueOutcome::Stale(Some(_))) {
                late.insert(id);
            }
            outcome
        };
        batch.iter().map(&mut apply).collect()
    }

    pub(super) fn apply(&mut self, write: &QueueWrite) -> QueueOutcome {
        match write {
            QueueWrite::Enter { ticket, expires, payload, now } => self.enter(ticket, *expires, *payload, *now),
            QueueWrite::Beat { id, expires, .. } => {
                let Some(stored) = self.tickets.get_mut(id) else { return QueueOutcome::Absent };
                if stored.state == TicketState::Waiting && stored.expires < *expires {
                    stored.expires = *expires;
                    stored.edition += 1;
                }
                QueueOutcome::Ticket(stored.clone())
            }
            QueueWrite::End { id, how, forget_at, now } => {
                let Some(stored) = self.tickets.get(id) else { return QueueOutcome::Absent };
                let due = *how != Ending::Lapsed || stored.expires <= *now;
                if stored.state == TicketState::Waiting && due {
                    let state = TicketState::Ended { how: *how, by: None, forget_at: *forget_at };
                    return self.set_state(*id, state, None).map_or(QueueOutcome::Absent, QueueOutcome::Ticket);
                }
                QueueOutcome::Ticket(stored.clone())
            }
            QueueWrite::Propose { proposed, now } => self.propose(proposed, *now),
            QueueWrite::Move { .. } => self.move_on(write),
            QueueWrite::Rate { rows } => self.rate(rows),
            QueueWrite::Conclude { .. } => self.conclude(write),
            QueueWrite::Score { match_id, set_id, user, score, spec, now } => {
                self.score(*match_id, (*user, *set_id), *score, spec.as_ref(), *now)
            }
        }
    }

    fn enter(&mut self, ticket: &Arc<Ticket>, expires: UnixMs, payload: [u8; 16], now: UnixMs) -> QueueOutcome {
        if let Some(stored) = self.tickets.get(&ticket.id) {
            return match stored.payload == payload {
                true => QueueOutcome::Entered { stored: stored.clone(), replayed: true },
                false => QueueOutcome::KeyReused,
            };
        }
        let (users, queue) = (ticket.session.users(), queue_of(ticket));
        if let Some(refusal) = self.refusal(ticket, &users, now) {
            return refusal;
        }
        for user in users {
            self.add_spot(user, Spot { queue, ticket: ticket.id, alone: ticket.alone });
        }
        let ticket = Arc::clone(ticket);
        let stored = StoredTicket { ticket, state: TicketState::Waiting, expires, edition: FIRST, payload };
        self.tickets.insert(stored.ticket.id, stored.clone());
        QueueOutcome::Entered { stored, replayed: false }
    }

    /// Why a party may not wait: first who plays, then who waits already, then who is barred; each in the order of users.
    fn refusal(&self, ticket: &Ticket, users: &[UserKey], now: UnixMs) -> Option<QueueOutcome> {
        let playing =
            |user: &UserKey| self.playing.get(user).map(|by| QueueOutcome::AlreadyPlaying { user: *user, by: *by });
        let queue = queue_of(ticket);
        let queued = |user: &UserKey| {
            let spots = self.spots.get(user)?;
            let in_the_way = spots.iter().filter(|spot| spot.queue == queue || spot.alone || ticket.alone);
            // The least of several, so that every store names the same.
            in_the_way.map(|spot| spot.ticket).min().map(|ticket| QueueOutcome::AlreadyQueued { user: *user, ticket })
        };
        let barred = |user: &UserKey| {
            let until = self.penalties.get(&(*user, ticket.set_id))?.bars(now)?;
            Some(QueueOutcome::Barred { user: *user, until })
        };
        let first = users.iter().find_map(playing).or_else(|| users.iter().find_map(queued));
        first.or_else(|| users.iter().find_map(barred))
    }

    /// A new state, and a new expiry where one is given: the ticket as it then stands.
    fn set_state(&mut self, id: TicketId, state: TicketState, expires: Option<UnixMs>) -> Option<StoredTicket> {
        let stored = self.tickets.get_mut(&id)?;
        stored.state = state;
        stored.expires = expires.unwrap_or(stored.expires);
        stored.edition += 1;
        let stored = stored.clone();
        if !stored.is_open() {
            self.remove_spots(&stored.ticket);
        }
        Some(stored)
    }

    fn propose(&mut self, proposed: &Arc<Match>, now: UnixMs) -> QueueOutcome {
        let all: BTreeSet<TicketId> = proposed.members.iter().map(|member| member.ticket).collect();
        // A name that is in use proposes nothing new.
        let taken = match self.matches.contains_key(&proposed.id) {
            true => all.clone(),
            false if mutant::is("trust_the_lease") => BTreeSet::new(),
            false => self.taken(proposed, now),
        };
        let partial = mutant::is("accept_partial_matches") && taken.len() < all.len();
        if all.is_empty() || (!taken.is_empty() && !partial) {
            return QueueOutcome::Taken { tickets: taken.into_iter().collect() };
        }
        let mut tickets = Vec::with_capacity(all.len());
        for member in proposed.members.iter().filter(|member| !taken.contains(&member.ticket)) {
            tickets.extend(self.set_state(member.ticket, TicketState::InMatch(proposed.id), None));
            member.players.iter().for_each(|seat| self.add_player(seat.user, proposed.id));
        }
        tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.matches.insert(proposed.id, Arc::clone(proposed));
        QueueOutcome::Moved { tickets }
    }

    /// Tickets that a proposal may not have: they do not wait, are not believed any more, have a user who plays or who is in
    /// another of them, or other users than the proposal says.
    fn taken(&self, proposed: &Match, now: UnixMs) -> BTreeSet<TicketId> {
        let mut seated = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for member in &proposed.members {
            let users: BTreeSet<UserKey> = member.players.iter().map(|seat| seat.user).collect();
            let free = self.tickets.get(&member.ticket).is_some_and(|stored| {
                stored.state == TicketState::Waiting
                    && now < stored.expires
                    && stored.ticket.session.users().iter().eq(&users)
                    && users.iter().all(|user| !self.playing.contains_key(user) && !seated.contains(user))
            });
            seated.extend(users);
            if !free {
                taken.insert(member.ticket);
            }
        }
        taken
    }

    fn move_on(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::Move { next, fates, elsewhere, punished, ladder, forget_at: forget, now } = write else {
            return QueueOutcome::Stale(None);
        };
        let Some(stored) = self.matches.get(&next.id) else { return QueueOutcome::Stale(None) };
        if stored.edition.checked_add(1) != Some(next.edition) {
            return QueueOutcome::Stale(Some(Arc::clone(stored)));
        }
        let mut changed = BTreeMap::new();
        let mut leaving = BTreeSet::new();
        let dropped = mutant::is("forget_requeue");
        for (id, fate, expires) in fates {
            let Some(stored) = self.tickets.get(id) else { continue };
            if stored.state != TicketState::InMatch(next.id) || (dropped && *fate == Fate::Returns) {
                continue;
            }
            let (state, expires) = match fate {
                Fate::Returns => {
                    leaving.extend(stored.ticket.session.users());
                    (TicketState::Waiting, Some(*expires))
                }
                Fate::Ends(how) => (TicketState::Ended { how: *how, by: Some(next.id), forget_at: *forget }, None),
            };
            changed.extend(self.set_state(*id, state, expires).map(|stored| (*id, stored)));
        }
        for id in elsewhere {
            if self.tickets.get(id).is_some_and(|stored| stored.state == TicketState::Waiting) {
                let how = Ending::PlayedElsewhere;
                let state = TicketState::Ended { how, by: Some(next.id), forget_at: *forget };
                changed.extend(self.set_state(*id, state, None).map(|stored| (*id, stored)));
            }
        }
        // Nobody plays in a match that is over, nor whose ticket has come back, nor who is no longer among its members.
        let staying = if forget_at(next).is_some() { BTreeSet::new() } else { users_of(next) };
        let players = self.players.get(&next.id).cloned().unwrap_or_default();
        for user in players.into_iter().filter(|user| !staying.contains(user) || leaving.contains(user)) {
            self.remove_player(user, next.id);
        }
        for user in punished.iter().copied().collect::<BTreeSet<_>>() {
            let key = (user, next.set_id);
            let before = self.penalties.get(&key).copied();
            self.penalties.insert(key, penalise(&ladder.penalties_ms, ladder.reset_after_ms, before, *now));
        }
        self.matches.insert(next.id, Arc::clone(next));
        QueueOutcome::Moved { tickets: changed.into_values().collect() }
    }
}
