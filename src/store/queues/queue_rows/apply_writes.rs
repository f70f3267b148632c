//! Effect of each queue write on the stored rows; the same plain code for every backend.
//!
//! A backend passes in the rows that a batch touches and applies its writes here, in order. Then it stores the
//! difference. So a batch has the same result in every backend.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::lifecycle::penalty::next_penalty;
use crate::domain::lifecycle::{Match, TicketFate};
use crate::domain::queue::seat_vectors::SeatBeaconVectors;
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::domain::time::UnixMs;
use crate::store::queues::queue_rows::{QueueRows, match_purge_at, present_users, queue_key};
use crate::store::queues::{
    GrantedConsent, QueueKey, QueueOutcome, QueueWrite, ReadyCheckCooldowns, StoredTicket, TicketMembership,
    TicketState,
};

/// Version of a ticket that was just entered.
const FIRST_TICKET_VERSION: u64 = 1;

impl QueueRows {
    /// Applies a batch in order and returns one outcome per write.
    ///
    /// Transitions of one match in a batch, and its result, build on each other. After a stale one, the later ones are
    /// stale too: the version that they build on was never stored, even if their version number fits.
    pub(in crate::store) fn apply_batch(&mut self, batch: &[QueueWrite]) -> Vec<QueueOutcome> {
        let mut stale_matches = BTreeSet::new();
        let mut apply = |write: &QueueWrite| {
            let match_id = match write {
                QueueWrite::TransitionMatch { updated_match, .. } => updated_match.id,
                QueueWrite::RecordResult { report, .. } if !self.results.contains_key(&report.match_id) => {
                    report.match_id
                }
                _ => return self.apply_write(write),
            };
            if stale_matches.contains(&match_id) {
                return QueueOutcome::StaleMatchVersion(self.matches.get(&match_id).cloned());
            }
            let outcome = self.apply_write(write);
            if matches!(outcome, QueueOutcome::StaleMatchVersion(Some(_))) {
                stale_matches.insert(match_id);
            }
            outcome
        };
        batch.iter().map(&mut apply).collect()
    }

    pub(super) fn apply_write(&mut self, write: &QueueWrite) -> QueueOutcome {
        match write {
            QueueWrite::EnterQueue {
                ticket,
                seat_vectors,
                expires_at,
                request_digest,
                caller_user,
                consents,
                max_tickets_per_user,
                now,
            } => {
                let caller = (*caller_user, &**consents, *max_tickets_per_user);
                self.enter_queue((ticket, seat_vectors), (*expires_at, *request_digest), caller, *now)
            }
            QueueWrite::RecordReadyCheckDelivery { ticket_id, match_id, acknowledged } => {
                self.acknowledge(*ticket_id, *match_id, *acknowledged)
            }
            QueueWrite::TakeConsents { taken_by, consents } => match self.find_unavailable_consent(*taken_by, consents)
            {
                None => {
                    self.take_consents(*taken_by, consents);
                    QueueOutcome::ConsentsTaken
                }
                Some(spent) => QueueOutcome::ConsentUnavailable(spent),
            },
            QueueWrite::RevokeConsent { consent } => self.revoke_consent(*consent),
            QueueWrite::UpdateBlockList { user, change } => self.update_block_list(*user, change),
            QueueWrite::Heartbeat { ticket_id, expires_at, .. } => {
                let Some(stored) = self.tickets.get_mut(ticket_id) else { return QueueOutcome::TicketNotFound };
                if stored.is_open() && stored.expires_at < *expires_at {
                    stored.expires_at = *expires_at;
                    stored.version += 1;
                }
                QueueOutcome::CurrentTicket(stored.clone())
            }
            QueueWrite::RenewBeaconVector { ticket_id, seat, vector } => {
                let Some(stored) = self.tickets.get_mut(ticket_id) else { return QueueOutcome::TicketNotFound };
                if stored.is_open() && stored.seat_vectors.of_seat(*seat) != Some(vector) {
                    stored.seat_vectors = stored.seat_vectors.with(*seat, vector.clone());
                    stored.version += 1;
                }
                QueueOutcome::CurrentTicket(stored.clone())
            }
            QueueWrite::EndTicket { ticket_id, end_reason, purge_at, now } => {
                let Some(stored) = self.tickets.get(ticket_id) else { return QueueOutcome::TicketNotFound };
                let is_due = *end_reason != TicketEndReason::Expired || stored.expires_at <= *now;
                if stored.state == TicketState::Waiting && is_due {
                    let state = TicketState::Ended { end_reason: *end_reason, match_id: None, purge_at: *purge_at };
                    return self
                        .set_ticket_state(*ticket_id, state, None)
                        .map_or(QueueOutcome::TicketNotFound, QueueOutcome::CurrentTicket);
                }
                QueueOutcome::CurrentTicket(stored.clone())
            }
            QueueWrite::ProposeMatch { proposed, now } => self.propose_match(proposed, *now),
            QueueWrite::StartSessionMatch { .. } => self.start_session_match(write),
            QueueWrite::TransitionMatch { .. } => self.transition_match(write),
            QueueWrite::ImportRatings { rows } => self.import_ratings(rows),
            QueueWrite::RecordResult { .. } => self.record_result(write),
            QueueWrite::EraseUser(erasure) => self.erase_user(erasure),
            QueueWrite::RemoveInactiveRatings { ratings, last_match_before } => {
                self.remove_ratings_with_last_match_before(ratings, *last_match_before)
            }
            QueueWrite::RecordFeedback { match_id, user, stars, rating, now, .. } => {
                self.record_feedback(*match_id, *user, *stars, rating.as_ref(), *now)
            }
        }
    }

    fn enter_queue(
        &mut self,
        (ticket, seat_vectors): (&Arc<Ticket>, &SeatBeaconVectors),
        (expires_at, request_digest): (UnixMs, [u8; 16]),
        (caller_user, consents, max_tickets_per_user): (Option<UserKey>, &[GrantedConsent], Option<u32>),
        now: UnixMs,
    ) -> QueueOutcome {
        if let Some(stored) = self.tickets.get(&ticket.id) {
            let is_retry = stored.request_digest == request_digest;
            return if is_retry {
                QueueOutcome::Entered { ticket: stored.clone(), is_retry }
            } else {
                QueueOutcome::IdempotencyKeyReused
            };
        }
        let (users, queue) = (ticket.session.sorted_users(), queue_key(ticket));
        // A caller whose consents are spent learns nothing about the players.
        if let Some(spent) = self.find_unavailable_consent(ticket.id.into(), consents) {
            return QueueOutcome::ConsentUnavailable(spent);
        }
        let entry_error = |users: &[UserKey]| self.entry_error(ticket, users, max_tickets_per_user, now);
        let own_error = caller_user.filter(|own| users.contains(own)).and_then(|own| entry_error(&[own]));
        if let Some(error) = own_error.or_else(|| entry_error(&users)) {
            return error;
        }
        self.take_consents(ticket.id.into(), consents);
        for user in users {
            self.add_ticket_user(
                user,
                TicketMembership { queue, ticket_id: ticket.id, exclusive: ticket.excludes_other_tickets },
            );
        }
        let stored = StoredTicket {
            ticket: Arc::clone(ticket),
            state: TicketState::Waiting,
            expires_at,
            version: FIRST_TICKET_VERSION,
            request_digest,
            ready_check_delivered_mask: 0,
            seat_vectors: seat_vectors.clone(),
        };
        self.tickets.insert(stored.ticket.id, stored.clone());
        QueueOutcome::Entered { ticket: stored, is_retry: false }
    }

    /// Reason why a party cannot enter. Checks users in matches first, then other tickets, then their number, then
    /// cooldowns; each in user order.
    fn entry_error(
        &self,
        ticket: &Ticket,
        users: &[UserKey],
        max_tickets_per_user: Option<u32>,
        now: UnixMs,
    ) -> Option<QueueOutcome> {
        let in_match = |user: &UserKey| {
            let match_id = *self.match_by_user.get(user)?;
            Some(QueueOutcome::AlreadyInMatch { user: *user, match_id })
        };
        let queue = queue_key(ticket);
        let queued = |user: &UserKey| {
            let memberships = self.tickets_by_user.get(user)?;
            let conflicting = memberships.iter().filter(|membership| {
                membership.queue == queue || membership.exclusive || ticket.excludes_other_tickets
            });
            // The smallest id of several, so that every backend names the same ticket.
            let other_ticket = conflicting.map(|membership| membership.ticket_id).min()?;
            Some(QueueOutcome::AlreadyQueued { user: *user, other_ticket })
        };
        let on_cooldown = |user: &UserKey| {
            let until = self.penalties.get(&(*user, ticket.set_id))?.active_cooldown_end(now)?;
            Some(QueueOutcome::OnCooldown { user: *user, until })
        };
        let too_many = |user: &UserKey| {
            let count = self.tickets_by_user.get(user).map_or(0, Vec::len);
            max_tickets_per_user
                .is_some_and(|max| count >= max as usize)
                .then_some(QueueOutcome::TooManyTickets { user: *user })
        };
        let first = users.iter().find_map(in_match).or_else(|| users.iter().find_map(queued));
        let first = first.or_else(|| users.iter().find_map(too_many));
        first.or_else(|| users.iter().find_map(on_cooldown))
    }

    /// Adds one version per player who is new, so that the versions of a ticket tell apart what its players are shown.
    fn acknowledge(&mut self, id: TicketId, match_id: MatchId, acknowledged: u64) -> QueueOutcome {
        let Some(stored) = self.tickets.get_mut(&id) else { return QueueOutcome::TicketNotFound };
        if stored.state == TicketState::InMatch(match_id) {
            let new_players = acknowledged & !stored.ready_check_delivered_mask;
            stored.ready_check_delivered_mask |= new_players;
            stored.version += u64::from(new_players.count_ones());
        }
        QueueOutcome::CurrentTicket(stored.clone())
    }

    /// Sets the state and, if given, the expiry. Returns the ticket as it is then.
    pub(super) fn set_ticket_state(
        &mut self,
        id: TicketId,
        state: TicketState,
        expires_at: Option<UnixMs>,
    ) -> Option<StoredTicket> {
        let stored = self.tickets.get_mut(&id)?;
        stored.state = state;
        stored.expires_at = expires_at.unwrap_or(stored.expires_at);
        stored.ready_check_delivered_mask = 0;
        stored.version += 1;
        if !stored.is_open() {
            stored.seat_vectors = SeatBeaconVectors::default();
        }
        let stored = stored.clone();
        if !stored.is_open() {
            self.remove_ticket_users(&stored.ticket);
        }
        Some(stored)
    }

    fn propose_match(&mut self, proposed: &Arc<Match>, now: UnixMs) -> QueueOutcome {
        let all: BTreeSet<TicketId> = proposed.tickets.iter().map(|match_ticket| match_ticket.ticket_id).collect();
        // An id in use cannot be proposed again.
        let unavailable =
            if self.matches.contains_key(&proposed.id) { all.clone() } else { self.unavailable_tickets(proposed, now) };
        let partial = fail_point_accepts_partial_matches() && unavailable.len() < all.len();
        if all.is_empty() || (!unavailable.is_empty() && !partial) {
            return QueueOutcome::TicketsUnavailable { tickets: unavailable.into_iter().collect() };
        }
        let mut tickets = Vec::with_capacity(all.len());
        for match_ticket in
            proposed.tickets.iter().filter(|match_ticket| !unavailable.contains(&match_ticket.ticket_id))
        {
            tickets.extend(self.set_ticket_state(match_ticket.ticket_id, TicketState::InMatch(proposed.id), None));
            match_ticket.players.iter().for_each(|player| self.add_match_user(player.user, proposed.id));
        }
        tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        self.matches.insert(proposed.id, Arc::clone(proposed));
        QueueOutcome::MatchWritten { tickets, ratings: Vec::new() }
    }

    /// Tickets that a proposal cannot take. Such a ticket does not wait, has expired, is in another queue than the match,
    /// or has other users than the proposal says. Or one of its users is in a match or in another of the tickets.
    fn unavailable_tickets(&self, proposed: &Match, now: UnixMs) -> BTreeSet<TicketId> {
        fail::fail_point!("skip_ticket_check", |_| BTreeSet::new());
        let queue = QueueKey { set_id: proposed.set_id, silo: proposed.silo };
        let mut proposed_users = BTreeSet::new();
        let mut unavailable = BTreeSet::new();
        for match_ticket in &proposed.tickets {
            let users: BTreeSet<UserKey> = match_ticket.players.iter().map(|player| player.user).collect();
            let is_available = self.tickets.get(&match_ticket.ticket_id).is_some_and(|stored| {
                stored.state == TicketState::Waiting
                    && now < stored.expires_at
                    && queue_key(&stored.ticket) == queue
                    && stored.ticket.session.sorted_users().iter().eq(&users)
                    && users.iter().all(|user| !self.match_by_user.contains_key(user) && !proposed_users.contains(user))
            });
            proposed_users.extend(users);
            if !is_available {
                unavailable.insert(match_ticket.ticket_id);
            }
        }
        unavailable
    }

    fn transition_match(&mut self, write: &QueueWrite) -> QueueOutcome {
        let QueueWrite::TransitionMatch {
            updated_match,
            ticket_fates,
            other_tickets,
            penalized_users,
            penalty_schedule,
            leaver_rating,
            purge_at,
            now,
        } = write
        else {
            return QueueOutcome::StaleMatchVersion(None);
        };
        let Some(stored) = self.matches.get(&updated_match.id) else { return QueueOutcome::StaleMatchVersion(None) };
        if stored.version.checked_add(1) != Some(updated_match.version) {
            return QueueOutcome::StaleMatchVersion(Some(Arc::clone(stored)));
        }
        let ratings =
            self.increment_abandoned_matches(&Arc::clone(stored), updated_match, leaver_rating.as_ref(), *now);
        let mut changed = BTreeMap::new();
        let mut leaving = BTreeSet::new();
        let drop_requeued = fail_point_drops_requeued_tickets();
        let match_id = updated_match.id;
        for (id, fate, expires_at) in ticket_fates {
            let Some(stored) = self.tickets.get(id) else { continue };
            let is_dropped = drop_requeued && *fate == TicketFate::Requeued;
            if stored.state != TicketState::InMatch(match_id) || is_dropped {
                continue;
            }
            let (state, expires_at) = match fate {
                TicketFate::Requeued => {
                    leaving.extend(stored.ticket.session.sorted_users());
                    (TicketState::Waiting, Some(*expires_at))
                }
                TicketFate::Ended(end_reason) => {
                    let match_id = Some(match_id);
                    (TicketState::Ended { end_reason: *end_reason, match_id, purge_at: *purge_at }, None)
                }
            };
            changed.extend(self.set_ticket_state(*id, state, expires_at).map(|stored| (*id, stored)));
        }
        for id in other_tickets {
            if self.tickets.get(id).is_some_and(|stored| stored.state == TicketState::Waiting) {
                let end_reason = TicketEndReason::MatchedElsewhere;
                let state = TicketState::Ended { end_reason, match_id: Some(match_id), purge_at: *purge_at };
                changed.extend(self.set_ticket_state(*id, state, None).map(|stored| (*id, stored)));
            }
        }
        // A user leaves a match that has ended, a match whose ticket returned to the queue, and a match without that
        // user.
        let staying =
            if match_purge_at(updated_match).is_some() { BTreeSet::new() } else { present_users(updated_match) };
        let users = self.users_by_match.get(&updated_match.id).cloned().unwrap_or_default();
        for user in users.into_iter().filter(|user| !staying.contains(user) || leaving.contains(user)) {
            self.remove_match_user(user, updated_match.id);
        }
        for match_ticket in &updated_match.tickets {
            for player in match_ticket.players.iter().filter(|player| player.left_at.is_some()) {
                self.remove_ticket_user(player.user, match_ticket.ticket_id);
            }
        }
        for user in penalized_users.iter().copied().filter(|user| !user.is_erased()).collect::<BTreeSet<_>>() {
            let key = (user, updated_match.set_id);
            let previous = self.penalties.get(&key).copied();
            let ReadyCheckCooldowns { cooldowns_ms, reset_after_ms } = penalty_schedule;
            self.penalties.insert(key, next_penalty(cooldowns_ms, *reset_after_ms, previous, *now));
        }
        self.matches.insert(updated_match.id, Arc::clone(updated_match));
        QueueOutcome::MatchWritten { tickets: changed.into_values().collect(), ratings }
    }
}

/// Whether the fail point is on that accepts a match when some of its tickets are unavailable.
fn fail_point_accepts_partial_matches() -> bool {
    fail::fail_point!("accept_partial_matches", |_| true);
    false
}

/// Whether the fail point is on that does not return tickets to the queue.
fn fail_point_drops_requeued_tickets() -> bool {
    fail::fail_point!("drop_requeued_tickets", |_| true);
    false
}
