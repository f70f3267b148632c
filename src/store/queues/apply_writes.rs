//! What each change does to what queues keep: plain code over plain values, carried out by every store.
//!
//! A store shows this code the rows that a batch touches, lets it make the changes one by one, in order, and then carries
//! out the difference. So a batch means the same everywhere, however fast it is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{TicketId, UserKey};
use crate::domain::lifecycle::penalty::next_penalty;
use crate::domain::lifecycle::{Match, TicketFate};
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::domain::time::UnixMs;
use crate::store::mutant;
use crate::store::queues::queue_rows::{QueueRows, TicketUser, forget_at, match_users, queue_key};
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketState};

/// The edition of a ticket that was entered a moment ago.
const FIRST_VERSION: u64 = 1;

impl QueueRows {
    /// Makes the changes of one batch, in order, and says what each did.
    ///
    /// Moves of one match in a batch, and its end, are made one from the other. So when one comes too late, those after it do
    /// too: what they were made from never was, even where the number of their edition happens to be the next.
    pub(in crate::store) fn apply_batch(&mut self, batch: &[QueueWrite]) -> Vec<QueueOutcome> {
        let mut late = BTreeSet::new();
        let mut apply = |write: &QueueWrite| {
            let id = match write {
                QueueWrite::TransitionMatch { updated_match: next, .. } => next.id,
                QueueWrite::RecordResult { report, .. } if !self.results.contains_key(&report.match_id) => {
                    report.match_id
                }
                _ => return self.apply_write(write),
            };
            if late.contains(&id) {
                return QueueOutcome::StaleMatchVersion(self.matches.get(&id).cloned());
            }
            let outcome = self.apply_write(write);
            if matches!(outcome, QueueOutcome::StaleMatchVersion(Some(_))) {
                late.insert(id);
            }
            outcome
        };
        batch.iter().map(&mut apply).collect()
    }

    pub(super) fn apply_write(&mut self, write: &QueueWrite) -> QueueOutcome {
        match write {
            QueueWrite::EnterQueue { ticket, expires_at: expires, request_digest: payload, now } => {
                self.enter_queue(ticket, *expires, *payload, *now)
            }
            QueueWrite::Heartbeat { ticket_id: id, expires_at: expires, .. } => {
                let Some(stored) = self.tickets.get_mut(id) else { return QueueOutcome::TicketNotFound };
                if stored.state == TicketState::Waiting && stored.expires_at < *expires {
                    stored.expires_at = *expires;
                    stored.version += 1;
                }
                QueueOutcome::CurrentTicket(stored.clone())
            }
            QueueWrite::EndTicket { ticket_id: id, end_reason: how, purge_at: forget_at, now } => {
                let Some(stored) = self.tickets.get(id) else { return QueueOutcome::TicketNotFound };
                let due = *how != TicketEndReason::Expired || stored.expires_at <= *now;
                if stored.state == TicketState::Waiting && due {
                    let state = TicketState::Ended { end_reason: *how, match_id: None, purge_at: *forget_at };
                    return self
                        .set_ticket_state(*id, state, None)
                        .map_or(QueueOutcome::TicketNotFound, QueueOutcome::CurrentTicket);
                }
                QueueOutcome::CurrentTicket(stored.clone())
            }
            QueueWrite::ProposeMatch { proposed, now } => self.propose_match(proposed, *now),
            QueueWrite::TransitionMatch { .. } => self.transition_match(write),
            QueueWrite::ImportRatings { rows } => self.import_ratings(rows),
            QueueWrite::RecordResult { .. } => self.record_result(write),
            QueueWrite::RecordFeedback { match_id, set_id, user, stars: score, rating_spec: spec, now } => {
                self.record_feedback(*match_id, (*user, *set_id), *score, spec.as_ref(), *now)
            }
        }
    }

    fn enter_queue(&mut self, ticket: &Arc<Ticket>, expires: UnixMs, payload: [u8; 16], now: UnixMs) -> QueueOutcome {
        if let Some(stored) = self.tickets.get(&ticket.id) {
            return match stored.request_digest == payload {
                true => QueueOutcome::Entered { ticket: stored.clone(), is_replay: true },
                false => QueueOutcome::IdempotencyKeyReused,
            };
        }
        let (users, queue) = (ticket.session.sorted_users(), queue_key(ticket));
        if let Some(refusal) = self.entry_error(ticket, &users, now) {
            return refusal;
        }
        for user in users {
            self.add_ticket_user(user, TicketUser { queue, ticket: ticket.id, exclusive: ticket.exclusive });
        }
        let ticket = Arc::clone(ticket);
        let stored = StoredTicket {
            ticket,
            state: TicketState::Waiting,
            expires_at: expires,
            version: FIRST_VERSION,
            request_digest: payload,
        };
        self.tickets.insert(stored.ticket.id, stored.clone());
        QueueOutcome::Entered { ticket: stored, is_replay: false }
    }

    /// Why a party may not wait: first who plays, then who waits already, then who is barred; each in the order of users.
    fn entry_error(&self, ticket: &Ticket, users: &[UserKey], now: UnixMs) -> Option<QueueOutcome> {
        let playing = |user: &UserKey| {
            self.match_by_user.get(user).map(|by| QueueOutcome::AlreadyInMatch { user: *user, match_id: *by })
        };
        let queue = queue_key(ticket);
        let queued = |user: &UserKey| {
            let spots = self.ticket_users.get(user)?;
            let in_the_way = spots.iter().filter(|spot| spot.queue == queue || spot.exclusive || ticket.exclusive);
            // The least of several, so that every store names the same.
            in_the_way
                .map(|spot| spot.ticket)
                .min()
                .map(|ticket| QueueOutcome::AlreadyQueued { user: *user, other_ticket: ticket })
        };
        let barred = |user: &UserKey| {
            let until = self.penalties.get(&(*user, ticket.set_id))?.active_cooldown(now)?;
            Some(QueueOutcome::OnCooldown { user: *user, until })
        };
        let first = users.iter().find_map(playing).or_else(|| users.iter().find_map(queued));
        first.or_else(|| users.iter().find_map(barred))
    }

    /// A new state, and a new expiry where one is given: the ticket as it then stands.
    fn set_ticket_state(&mut self, id: TicketId, state: TicketState, expires: Option<UnixMs>) -> Option<StoredTicket> {
        let stored = self.tickets.get_mut(&id)?;
        stored.state = state;
        stored.expires_at = expires.unwrap_or(stored.expires_at);
        stored.version += 1;
        let stored = stored.clone();
        if !stored.is_open() {
            self.remove_ticket_users(&stored.ticket);
        }
        Some(stored)
    }

    fn propose_match(&mut self, proposed: &Arc<Match>, now: UnixMs) -> QueueOutcome {
        let all: BTreeSet<TicketId> = proposed.tickets.iter().map(|member| member.ticket_id).collect();
        // A name that is in use proposes nothing new.
        let taken = match self.matches.contains_key(&proposed.id) {
            true => all.clone(),
            false if mutant::is("trust_the_lease") => BTreeSet::new(),
            false => self.unavailable_tickets(proposed, now),
        };
        let partial = mutant::is("accept_partial_matches") && taken.len() < all.len();
        if all.is_empty() || (!taken.is_empty() && !partial) {
            return QueueOutcome::TicketsUnavailable { tickets: taken.into_iter().collect() };
        }
        let mut tickets = Vec::with_capacity(all.len());
        for member in proposed.tickets.iter().filter(|member| !taken.contains(&member.ticket_id)) {
            tickets.extend(self.set_ticket_state(member.ticket_id, TicketState::InMatch(proposed.id), None));
            member.players.iter().for_each(|seat| self.add_match_user(seat.user, proposed.id));
        }
        tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.matches.insert(proposed.id, Arc::clone(proposed));
        QueueOutcome::MatchWritten { tickets }
    }

    /// Tickets that a proposal may not have: they do not wait, are not believed any more, have a user who plays or who is in
    /// another of them, or other users than the proposal says.
    fn unavailable_tickets(&self, proposed: &Match, now: UnixMs) -> BTreeSet<TicketId> {
        let mut seated = BTreeSet::new();
        let mut taken = BTreeSet::new();
        for member in &proposed.tickets {
            let users: BTreeSet<UserKey> = member.players.iter().map(|seat| seat.user).collect();
            let free = self.tickets.get(&member.ticket_id).is_some_and(|stored| {
                stored.state == TicketState::Waiting
                    && now < stored.expires_at
                    && stored.ticket.session.sorted_users().iter().eq(&users)
                    && users.iter().all(|user| !self.match_by_user.contains_key(user) && !seated.contains(user))
            });
            seated.extend(users);
            if !free {
                taken.insert(member.ticket_id);
            }
        }
        taken
    }

    fn transition_match(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::TransitionMatch {
            updated_match: next,
            ticket_fates: fates,
            other_tickets: elsewhere,
            penalized_users: punished,
            penalty_schedule: ladder,
            purge_at: forget,
            now,
        } = write
        else {
            return QueueOutcome::StaleMatchVersion(None);
        };
        let Some(stored) = self.matches.get(&next.id) else { return QueueOutcome::StaleMatchVersion(None) };
        if stored.version.checked_add(1) != Some(next.version) {
            return QueueOutcome::StaleMatchVersion(Some(Arc::clone(stored)));
        }
        let mut changed = BTreeMap::new();
        let mut leaving = BTreeSet::new();
        let dropped = mutant::is("forget_requeue");
        for (id, fate, expires) in fates {
            let Some(stored) = self.tickets.get(id) else { continue };
            if stored.state != TicketState::InMatch(next.id) || (dropped && *fate == TicketFate::Requeued) {
                continue;
            }
            let (state, expires) = match fate {
                TicketFate::Requeued => {
                    leaving.extend(stored.ticket.session.sorted_users());
                    (TicketState::Waiting, Some(*expires))
                }
                TicketFate::Ended(how) => {
                    (TicketState::Ended { end_reason: *how, match_id: Some(next.id), purge_at: *forget }, None)
                }
            };
            changed.extend(self.set_ticket_state(*id, state, expires).map(|stored| (*id, stored)));
        }
        for id in elsewhere {
            if self.tickets.get(id).is_some_and(|stored| stored.state == TicketState::Waiting) {
                let how = TicketEndReason::MatchedElsewhere;
                let state = TicketState::Ended { end_reason: how, match_id: Some(next.id), purge_at: *forget };
                changed.extend(self.set_ticket_state(*id, state, None).map(|stored| (*id, stored)));
            }
        }
        // Nobody plays in a match that is over, nor whose ticket has come back, nor who is no longer among its members.
        let staying = if forget_at(next).is_some() { BTreeSet::new() } else { match_users(next) };
        let players = self.users_by_match.get(&next.id).cloned().unwrap_or_default();
        for user in players.into_iter().filter(|user| !staying.contains(user) || leaving.contains(user)) {
            self.remove_match_user(user, next.id);
        }
        for user in punished.iter().copied().collect::<BTreeSet<_>>() {
            let key = (user, next.set_id);
            let before = self.penalties.get(&key).copied();
            self.penalties.insert(key, next_penalty(&ladder.cooldowns_ms, ladder.reset_after_ms, before, *now));
        }
        self.matches.insert(next.id, Arc::clone(next));
        QueueOutcome::MatchWritten { tickets: changed.into_values().collect() }
    }
}
