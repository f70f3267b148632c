//! Reference model of the queue store: lists and plain loops. Shares no code with a store.

mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fireteam::domain::block_list::BlockListChange;
use fireteam::domain::id::{ConsentId, MatchId, SetId, TicketId, UserKey};
use fireteam::domain::lifecycle::penalty::{Penalty, next_penalty};
use fireteam::domain::lifecycle::{Match, MatchStage, TicketFate};
use fireteam::domain::match_result::{MatchResult, RatingHistoryEntry};
use fireteam::domain::queue::seat_vectors::SeatBeaconVectors;
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::TicketState as State;
use fireteam::store::queues::{
    ConsentConsumer, GrantedConsent, QueueOutcome as Out, QueueWrite, RatingRow, ReadyCheckCooldowns, StoredBlockList,
    StoredQueueData, StoredTicket,
};

/// State of the queues. Nothing is stored twice: a user's place follows from the tickets and the pairs of players.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) tickets: Vec<StoredTicket>,
    pub(crate) matches: Vec<Arc<Match>>,
    pub(crate) players: Vec<(UserKey, MatchId)>,
    /// Players who left the match of a ticket.
    left: Vec<(UserKey, TicketId)>,
    penalties: Vec<(UserKey, SetId, Penalty)>,
    taken_consents: Vec<(ConsentId, ConsentConsumer)>,
    revoked_consents: BTreeSet<ConsentId>,
    /// Block lists, with the number of changes.
    block_lists: BTreeMap<UserKey, (BTreeSet<UserKey>, u64)>,
    ratings: Vec<RatingRow>,
    /// Matches with a stale transition in this batch.
    stale_matches: Vec<MatchId>,
    results: Vec<Arc<MatchResult>>,
    changes: Vec<RatingHistoryEntry>,
    scores: Vec<(MatchId, UserKey, u8)>,
}

impl Model {
    /// Starts a batch.
    pub(crate) fn begin(&mut self) {
        self.stale_matches.clear();
    }

    pub(crate) fn purge(&mut self, now: UnixMs) {
        self.tickets.retain(|it| !matches!(it.state, State::Ended { purge_at, .. } if purge_at <= now));
        self.matches.retain(|it| !matches!(it.stage, MatchStage::Ended { purge_at, .. } if purge_at <= now));
        self.penalties.retain(|(_, _, it)| now < it.cooldown_until || now < it.resets_at);
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> StoredQueueData {
        self.purge(now);
        self.tickets.sort_by_key(|it| it.ticket.id);
        self.matches.sort_by_key(|it| it.id);
        self.ratings.sort_by_key(|it| (it.user, it.key));
        StoredQueueData {
            tickets: self.tickets.clone(),
            matches: self.matches.clone(),
            ratings: self.ratings.clone(),
            block_lists: self.block_lists.keys().map(|user| self.block_list(*user)).collect(),
        }
    }

    fn ticket(&mut self, id: TicketId) -> Option<&mut StoredTicket> {
        self.tickets.iter_mut().find(|it| it.ticket.id == id)
    }

    fn is_waiting(&mut self, id: TicketId) -> bool {
        self.ticket(id).is_some_and(|it| it.state == State::Waiting)
    }

    /// Sets a ticket's state.
    fn set_state(&mut self, id: TicketId, state: State) -> StoredTicket {
        let ticket = self.ticket(id).expect("the ticket exists");
        (ticket.state, ticket.ready_check_delivered_mask) = (state, 0);
        ticket.version += 1;
        if let State::Ended { .. } = state {
            ticket.seat_vectors = SeatBeaconVectors::default();
        }
        ticket.clone()
    }

    /// Applies the next write of the batch.
    #[expect(clippy::too_many_lines, reason = "one case after another")]
    pub(crate) fn apply(&mut self, write: QueueWrite) -> Out {
        match write {
            QueueWrite::EnterQueue {
                ticket,
                seat_vectors,
                expires_at: expires,
                request_digest: digest,
                caller_user,
                consents,
                max_tickets_per_user: max,
                now,
            } => self.enter((ticket, seat_vectors), (expires, digest), (caller_user, &consents, max), now),
            QueueWrite::RecordReadyCheckDelivery { ticket_id: id, match_id, acknowledged } => match self.ticket(id) {
                None => Out::TicketNotFound,
                Some(ticket) => {
                    for bit in (0..64).map(|index| 1 << index).filter(|bit| acknowledged & bit != 0) {
                        if ticket.state == State::InMatch(match_id) && ticket.ready_check_delivered_mask & bit == 0 {
                            (ticket.ready_check_delivered_mask, ticket.version) =
                                (ticket.ready_check_delivered_mask + bit, ticket.version + 1);
                        }
                    }
                    Out::CurrentTicket(ticket.clone())
                }
            },
            QueueWrite::TakeConsents { taken_by, consents } => match self.spent_consent(taken_by, &consents) {
                Some(spent) => Out::ConsentUnavailable(spent),
                None => {
                    self.take_consents(taken_by, &consents);
                    Out::ConsentsTaken
                }
            },
            QueueWrite::RevokeConsent { consent } => {
                let was_taken = self.taken_consents.iter().any(|(id, _)| *id == consent.id);
                self.revoked_consents.insert(consent.id);
                Out::ConsentRevoked { was_taken }
            }
            QueueWrite::UpdateBlockList { user, change } => self.update_block_list(user, &change),
            QueueWrite::Heartbeat { ticket_id: id, expires_at: expires, .. } => match self.ticket(id) {
                None => Out::TicketNotFound,
                Some(ticket) => {
                    if !matches!(ticket.state, State::Ended { .. }) && ticket.expires_at < expires {
                        (ticket.expires_at, ticket.version) = (expires, ticket.version + 1);
                    }
                    Out::CurrentTicket(ticket.clone())
                }
            },
            QueueWrite::RenewBeaconVector { ticket_id: id, seat, vector } => match self.ticket(id) {
                None => Out::TicketNotFound,
                Some(ticket) => {
                    let mut vectors = ticket.seat_vectors.vectors().to_vec();
                    let is_new = !vectors.contains(&(seat, vector.clone()));
                    if !matches!(ticket.state, State::Ended { .. }) && is_new {
                        vectors.retain(|(own, _)| *own != seat);
                        vectors.push((seat, vector));
                        (ticket.seat_vectors, ticket.version) = (SeatBeaconVectors::new(vectors), ticket.version + 1);
                    }
                    Out::CurrentTicket(ticket.clone())
                }
            },
            QueueWrite::EndTicket { ticket_id: id, end_reason: how, purge_at, now } => match self.ticket(id).cloned() {
                None => Out::TicketNotFound,
                Some(it) if it.state != State::Waiting || (how == TicketEndReason::Expired && now < it.expires_at) => {
                    Out::CurrentTicket(it)
                }
                Some(_) => {
                    Out::CurrentTicket(self.set_state(id, State::Ended { end_reason: how, match_id: None, purge_at }))
                }
            },
            QueueWrite::EraseUser(_) | QueueWrite::RemoveInactiveRatings { .. } => {
                panic!("not drawn: tests/it/security/erasure.rs has its own search")
            }
            QueueWrite::ProposeMatch { proposed, now } => self.propose(proposed, now),
            QueueWrite::StartSessionMatch { started, tickets, other_tickets, consents, expires_at, purge_at } => {
                self.start(started, tickets, (&other_tickets, &consents), (expires_at, purge_at))
            }
            QueueWrite::TransitionMatch {
                updated_match: next,
                ticket_fates: fates,
                other_tickets: elsewhere,
                penalized_users: penalized,
                penalty_schedule: schedule,
                leaver_rating,
                purge_at,
                now,
            } => {
                let known = self.matches.iter().position(|it| it.id == next.id);
                let Some(at) = known else { return Out::StaleMatchVersion(None) };
                if self.stale_matches.contains(&next.id) || self.matches[at].version + 1 != next.version {
                    self.stale_matches.push(next.id);
                    return Out::StaleMatchVersion(Some(Arc::clone(&self.matches[at])));
                }
                let gone = self.gone_from(next.id);
                self.matches[at] = Arc::clone(&next);
                let mut tickets = self.apply_fates(&next, &fates, &elsewhere, purge_at);
                tickets.sort_by_key(|it| it.ticket.id);
                let over = matches!(next.stage, MatchStage::Ended { .. });
                let seats = || next.tickets.iter().flat_map(|it| &it.players);
                let leavers: BTreeSet<UserKey> = seats()
                    .filter(|seat| seat.left_at.is_some() && !gone.contains(&seat.user))
                    .map(|seat| seat.user)
                    .collect();
                let leavers: Vec<UserKey> = leavers.into_iter().collect();
                let ratings =
                    leaver_rating.map_or_else(Vec::new, |rating| self.count_abandoned(&leavers, &rating, now));
                for member in &next.tickets {
                    let left = member.players.iter().filter(|seat| seat.left_at.is_some());
                    self.left.extend(left.map(|seat| (seat.user, member.ticket_id)));
                }
                let member = |user| seats().any(|seat| seat.user == user && seat.left_at.is_none());
                self.players.retain(|(user, match_id)| *match_id != next.id || (!over && member(*user)));
                let penalized: BTreeSet<UserKey> = penalized.into_iter().collect();
                penalized.into_iter().for_each(|user| self.penalize(user, next.set_id, &schedule, now));
                Out::MatchWritten { tickets, ratings }
            }
            QueueWrite::ImportRatings { rows } => {
                for mut row in rows {
                    if let Some(known) = self.rating(row.user, row.key) {
                        (row.streak, row.satisfaction) = (known.streak, known.satisfaction);
                    }
                    self.set_rating(row);
                }
                Out::RatingsImported
            }
            QueueWrite::RecordResult {
                report,
                report_digest: digest,
                match_version,
                end_transition: ends,
                rating,
                now,
            } => {
                if let Some(known) = self.results.iter().find(|it| it.report.match_id == report.match_id) {
                    let (result, replayed) = (Arc::clone(known), true);
                    return match known.report_digest == digest {
                        true => Out::ResultOnRecord {
                            result,
                            is_repeated_report: replayed,
                            tickets: vec![],
                            ratings: vec![],
                        },
                        false => Out::ConflictingResult(result),
                    };
                }
                let found = self.matches.iter().find(|it| it.id == report.match_id).cloned();
                let is_stale = self.stale_matches.contains(&report.match_id);
                if found.as_ref().is_none_or(|known| is_stale || known.version != match_version) {
                    self.stale_matches.extend(found.as_ref().map(|known| known.id));
                    return Out::StaleMatchVersion(found);
                }
                self.record_result(&report, digest, ends, rating, now)
            }
            QueueWrite::RecordFeedback { match_id, user, stars: score, rating, now, .. } => {
                self.record_feedback(match_id, user, score, rating, now)
            }
        }
    }

    fn spent_consent(&self, taken_by: ConsentConsumer, consents: &[GrantedConsent]) -> Option<ConsentId> {
        let is_spent = |id: &ConsentId| {
            self.revoked_consents.contains(id)
                || self.taken_consents.iter().any(|(taken, by)| taken == id && *by != taken_by)
        };
        consents.iter().map(|consent| consent.id).find(is_spent)
    }

    fn take_consents(&mut self, taken_by: ConsentConsumer, consents: &[GrantedConsent]) {
        self.taken_consents.extend(consents.iter().map(|consent| (consent.id, taken_by)));
    }

    fn enter(
        &mut self,
        (ticket, seat_vectors): (Arc<Ticket>, SeatBeaconVectors),
        (expires, digest): (UnixMs, [u8; 16]),
        (caller_user, consents, max): (Option<UserKey>, &[GrantedConsent], Option<u32>),
        now: UnixMs,
    ) -> Out {
        if let Some(stored) = self.ticket(ticket.id) {
            let same = stored.request_digest == digest;
            return if same {
                Out::Entered { ticket: stored.clone(), is_retry: true }
            } else {
                Out::IdempotencyKeyReused
            };
        }
        if let Some(spent) = self.spent_consent(ticket.id.into(), consents) {
            return Out::ConsentUnavailable(spent);
        }
        let users = ticket.session.sorted_users();
        let own: Vec<UserKey> = users.iter().copied().filter(|user| Some(*user) == caller_user).collect();
        let obstacle = |users: &[UserKey]| self.obstacle(&ticket, users, max, now);
        if let Some(refusal) = obstacle(&own).or_else(|| obstacle(&users)) {
            return refusal;
        }
        self.take_consents(ticket.id.into(), consents);
        // The sequences use ids again after their tickets were purged.
        self.left.retain(|(_, id)| *id != ticket.id);
        let (state, expires_at, request_digest) = (State::Waiting, expires, digest);
        let stored = StoredTicket {
            ticket,
            state,
            expires_at,
            version: 1,
            request_digest,
            ready_check_delivered_mask: 0,
            seat_vectors,
        };
        self.tickets.push(stored.clone());
        Out::Entered { ticket: stored, is_retry: false }
    }

    /// Obstacle that keeps one of `users` from entering: of all of them a match first, then a ticket, then too many, then a cooldown.
    fn obstacle(&self, ticket: &Ticket, users: &[UserKey], max: Option<u32>, now: UnixMs) -> Option<Out> {
        for user in users {
            if let Some((_, by)) = self.players.iter().find(|(player, _)| player == user) {
                return Some(Out::AlreadyInMatch { user: *user, match_id: *by });
            }
        }
        for user in users {
            let here =
                |it: &&StoredTicket| it.ticket.set_id == ticket.set_id && it.ticket.session.silo == ticket.session.silo;
            let open = self.tickets.iter().filter(|it| !matches!(it.state, State::Ended { .. }));
            let theirs = open.filter(|it| self.is_in_ticket(*user, &it.ticket));
            let barring =
                theirs.filter(|it| here(it) || it.ticket.excludes_other_tickets || ticket.excludes_other_tickets);
            if let Some(other) = barring.map(|it| it.ticket.id).min() {
                return Some(Out::AlreadyQueued { user: *user, other_ticket: other });
            }
        }
        for user in users {
            let open = self.tickets.iter().filter(|it| !matches!(it.state, State::Ended { .. }));
            let count = open.filter(|it| self.is_in_ticket(*user, &it.ticket)).count();
            if max.is_some_and(|max| max as usize <= count) {
                return Some(Out::TooManyTickets { user: *user });
            }
        }
        for user in users {
            let theirs = self.penalties.iter().find(|(player, set_id, _)| player == user && *set_id == ticket.set_id);
            if let Some((_, _, Penalty { cooldown_until: until, .. })) =
                theirs.filter(|(_, _, it)| now < it.cooldown_until)
            {
                return Some(Out::OnCooldown { user: *user, until: *until });
            }
        }
        None
    }

    /// Whether a user is in a ticket and has not left it during play.
    pub(crate) fn is_in_ticket(&self, user: UserKey, ticket: &Ticket) -> bool {
        ticket.session.sorted_users().contains(&user) && !self.left.contains(&(user, ticket.id))
    }

    fn block_list(&self, user: UserKey) -> StoredBlockList {
        let (blocked, version) = &self.block_lists[&user];
        StoredBlockList { user, blocked: blocked.iter().copied().collect(), version: *version }
    }

    fn update_block_list(&mut self, user: UserKey, change: &BlockListChange) -> Out {
        let before = self.block_lists.get(&user).cloned();
        let (mut blocked, version) = before.clone().unwrap_or_default();
        if change.clear_first {
            blocked.clear();
        }
        blocked.extend(&change.add);
        change.remove.iter().for_each(|removed| _ = blocked.remove(removed));
        if blocked.len() > 1_000 {
            return Out::BlockListFull;
        }
        if before.is_none_or(|(before, _)| before != blocked) {
            self.block_lists.insert(user, (blocked, version + 1));
        }
        Out::BlockListUpdated(self.block_list(user))
    }

    fn propose(&mut self, proposed: Arc<Match>, now: UnixMs) -> Out {
        let known = self.matches.iter().any(|it| it.id == proposed.id);
        let mut taken = BTreeSet::new();
        for (at, member) in proposed.tickets.iter().enumerate() {
            let of_this_queue = |it: &Ticket| (it.set_id, it.session.silo) == (proposed.set_id, proposed.silo);
            let free = self.is_waiting(member.ticket_id)
                && self.ticket(member.ticket_id).is_some_and(|it| now < it.expires_at && of_this_queue(&it.ticket));
            let plays = |user: UserKey| self.players.iter().any(|(player, _)| *player == user);
            let seated =
                |user: UserKey| proposed.tickets[..at].iter().flat_map(|it| &it.players).any(|it| it.user == user);
            let busy = member.players.iter().any(|seat| plays(seat.user) || seated(seat.user));
            if known || busy || !free {
                taken.insert(member.ticket_id);
            }
        }
        if !taken.is_empty() {
            return Out::TicketsUnavailable { tickets: taken.into_iter().collect() };
        }
        let mut tickets: Vec<_> =
            proposed.tickets.iter().map(|it| self.set_state(it.ticket_id, State::InMatch(proposed.id))).collect();
        tickets.sort_by_key(|it| it.ticket.id);
        let players = proposed.tickets.iter().flat_map(|it| &it.players);
        self.players.extend(players.map(|seat| (seat.user, proposed.id)));
        self.matches.push(proposed);
        Out::MatchWritten { tickets, ratings: vec![] }
    }

    fn start(
        &mut self,
        started: Arc<Match>,
        new: Vec<Arc<Ticket>>,
        (elsewhere, consents): (&[TicketId], &[GrantedConsent]),
        (expires_at, purge_at): (UnixMs, UnixMs),
    ) -> Out {
        if let Some(known) = self.matches.iter().find(|it| it.id == started.id) {
            return Out::MatchStarted { started: Arc::clone(known), tickets: vec![] };
        }
        if let Some(spent) = self.spent_consent(started.id.into(), consents) {
            return Out::ConsentUnavailable(spent);
        }
        let seats: BTreeSet<UserKey> =
            started.tickets.iter().flat_map(|it| &it.players).map(|seat| seat.user).collect();
        let busy = seats.iter().copied().filter(|user| self.players.iter().any(|(player, _)| player == user));
        let busy: Vec<UserKey> = busy.collect();
        if !busy.is_empty() {
            return Out::UsersInMatch { users: busy };
        }
        let mut in_the_way = BTreeSet::new();
        for it in &self.tickets {
            let is_new = new.iter().any(|ticket| ticket.id == it.ticket.id);
            let queue = |of: &Ticket| (of.set_id, of.session.silo);
            let bars = it.ticket.excludes_other_tickets || new.iter().any(|ticket| queue(ticket) == queue(&it.ticket));
            let is_theirs = seats.iter().any(|user| self.is_in_ticket(*user, &it.ticket));
            let is_open = !matches!(it.state, State::Ended { .. });
            let ends = it.state == State::Waiting && elsewhere.contains(&it.ticket.id);
            if is_new || (bars && is_theirs && is_open && !ends) {
                in_the_way.insert(it.ticket.id);
            }
        }
        if !in_the_way.is_empty() {
            return Out::TicketsUnavailable { tickets: in_the_way.into_iter().collect() };
        }
        self.take_consents(started.id.into(), consents);
        let mut changed = self.apply_fates(&started, &[], elsewhere, purge_at);
        for ticket in new {
            self.left.retain(|(_, id)| *id != ticket.id);
            let (state, request_digest) = (State::InMatch(started.id), [7; 16]);
            let stored = StoredTicket {
                ticket,
                state,
                expires_at,
                version: 1,
                request_digest,
                ready_check_delivered_mask: 0,
                seat_vectors: SeatBeaconVectors::default(),
            };
            self.tickets.push(stored.clone());
            changed.push(stored);
        }
        changed.sort_by_key(|it| it.ticket.id);
        self.players.extend(seats.into_iter().map(|user| (user, started.id)));
        self.matches.push(Arc::clone(&started));
        Out::MatchStarted { started, tickets: changed }
    }

    fn apply_fates(
        &mut self,
        next: &Match,
        fates: &[(TicketId, TicketFate, UnixMs)],
        elsewhere: &[TicketId],
        purge_at: UnixMs,
    ) -> Vec<StoredTicket> {
        let by = Some(next.id);
        let mut changed: Vec<StoredTicket> = Vec::new();
        for (id, fate, expires) in fates {
            if self.ticket(*id).is_none_or(|it| it.state != State::InMatch(next.id)) {
                continue;
            }
            changed.push(match *fate {
                TicketFate::Ended(how) => self.set_state(*id, State::Ended { end_reason: how, match_id: by, purge_at }),
                TicketFate::Requeued => {
                    self.ticket(*id).expect("the ticket is in the match").expires_at = *expires;
                    let stored = self.set_state(*id, State::Waiting);
                    let leaves = |user: &UserKey| stored.ticket.session.sorted_users().contains(user);
                    self.players.retain(|(user, match_id)| *match_id != next.id || !leaves(user));
                    stored
                }
            });
        }
        for id in elsewhere {
            if self.is_waiting(*id) {
                changed.retain(|it| it.ticket.id != *id);
                changed.push(self.set_state(
                    *id,
                    State::Ended { end_reason: TicketEndReason::MatchedElsewhere, match_id: by, purge_at },
                ));
            }
        }
        changed
    }

    fn penalize(&mut self, user: UserKey, set_id: SetId, schedule: &ReadyCheckCooldowns, now: UnixMs) {
        let known = self.penalties.iter().position(|(player, set, _)| *player == user && *set == set_id);
        let before = known.map(|at| self.penalties.remove(at).2);
        self.penalties.push((user, set_id, next_penalty(&schedule.cooldowns_ms, schedule.reset_after_ms, before, now)));
    }
}
