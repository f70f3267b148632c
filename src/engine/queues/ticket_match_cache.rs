//! In-memory copy of all tickets and matches, with indexes by queue and user, and ticket watchers.
//!
//! Updates come from this replica's own commits and from the feed, in no fixed order. Each ticket and match has a
//! version, and the higher version wins.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::change_notifier::ChangeNotifier;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// Highest reported queue position; tickets further back report this one.
const REPORTED_POSITION_MAX: u32 = 10_000;

/// Tickets and matches of all replicas that share the store.
#[derive(Debug, Default)]
pub(crate) struct TicketMatchCache {
    tickets: HashMap<TicketId, StoredTicket, BuildIdHasher>,
    matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Tickets per user that have not ended; a few at most.
    live_tickets_by_user: HashMap<UserKey, Vec<TicketId>, BuildIdHasher>,
    /// Match per user that has not ended.
    running_match_by_user: HashMap<UserKey, MatchId, BuildIdHasher>,
    queues: BTreeMap<QueueKey, QueueTicketsAndMatches>,
    /// Counts changes of all queues. It outlives a queue's removal, so a re-created queue never repeats a count.
    change_count: u64,
    /// Counts matches that started or were removed.
    past_match_version: u64,
    watchers: HashMap<TicketId, Vec<Arc<ChangeNotifier>>, BuildIdHasher>,
}

/// Tickets and matches of one queue, in the orders that passes and deadlines need.
#[derive(Debug, Default)]
pub(crate) struct QueueTicketsAndMatches {
    /// Waiting tickets, longest wait first.
    waiting_tickets: BTreeSet<(UnixMs, TicketId)>,
    /// Waiting tickets by expiry.
    ticket_expiries: BTreeSet<(UnixMs, TicketId)>,
    /// Players in waiting tickets.
    waiting_player_count: u32,
    /// Matches that have not ended, by deadline.
    match_deadlines: BTreeSet<(UnixMs, MatchId)>,
    /// Matches that need a game server.
    placing_matches: BTreeSet<MatchId>,
    /// Value of the cache's change counter at the queue's last change.
    pub(crate) change_count: u64,
}

impl QueueTicketsAndMatches {
    /// Waiting tickets, longest wait first.
    pub(crate) fn waiting_tickets(&self) -> impl Iterator<Item = (UnixMs, TicketId)> + '_ {
        self.waiting_tickets.iter().copied()
    }

    /// Number of tickets ahead, at most `REPORTED_POSITION_MAX`.
    pub(crate) fn position_of(&self, entered_at: UnixMs, id: TicketId) -> u32 {
        self.waiting_tickets.range(..(entered_at, id)).zip(0..REPORTED_POSITION_MAX).count() as u32
    }

    pub(crate) fn waiting_ticket_count(&self) -> usize {
        self.waiting_tickets.len()
    }

    pub(crate) fn waiting_player_count(&self) -> u32 {
        self.waiting_player_count
    }

    pub(crate) fn running_match_count(&self) -> usize {
        self.match_deadlines.len()
    }

    pub(crate) fn placing_matches(&self) -> Vec<MatchId> {
        self.placing_matches.iter().copied().collect()
    }

    /// Matches that have not ended, earliest deadline first.
    pub(crate) fn live_matches(&self) -> impl Iterator<Item = MatchId> + '_ {
        self.match_deadlines.iter().map(|(_, id)| *id)
    }

    /// Matches whose deadline is at or before `now`, at most `max`.
    pub(crate) fn due_matches(&self, now: UnixMs, max: usize) -> Vec<MatchId> {
        self.match_deadlines.iter().take_while(|(deadline, _)| *deadline <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Tickets that have expired at `now`, at most `max`.
    pub(crate) fn expired_tickets(&self, now: UnixMs, max: usize) -> Vec<TicketId> {
        self.ticket_expiries.iter().take_while(|(deadline, _)| *deadline <= now).take(max).map(|(_, id)| *id).collect()
    }

    /// Earliest deadline or expiry.
    pub(crate) fn next_deadline(&self) -> Option<UnixMs> {
        let earliest = [
            self.match_deadlines.first().map(|(deadline, _)| *deadline),
            self.ticket_expiries.first().map(|(deadline, _)| *deadline),
        ];
        earliest.into_iter().flatten().min()
    }

    fn is_empty(&self) -> bool {
        self.waiting_tickets.is_empty() && self.match_deadlines.is_empty()
    }
}

impl TicketMatchCache {
    pub(crate) fn ticket(&self, id: TicketId) -> Option<&StoredTicket> {
        self.tickets.get(&id)
    }

    pub(crate) fn match_by_id(&self, id: MatchId) -> Option<&Arc<Match>> {
        self.matches.get(&id)
    }

    /// All matches, in no order.
    pub(crate) fn all_matches(&self) -> impl Iterator<Item = &Arc<Match>> {
        self.matches.values()
    }

    /// Version of the past matches. While it is unchanged, no match has started or was removed.
    pub(crate) fn past_match_version(&self) -> u64 {
        self.past_match_version
    }

    /// Every queue that is not empty.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (QueueKey, &QueueTicketsAndMatches)> {
        self.queues.iter().map(|(key, index)| (*key, index))
    }

    pub(crate) fn queue_index(&self, key: QueueKey) -> Option<&QueueTicketsAndMatches> {
        self.queues.get(&key)
    }

    /// Match of any of `users` that has not ended, if any.
    pub(crate) fn running_match_of(&self, users: impl IntoIterator<Item = UserKey>) -> Option<MatchId> {
        users.into_iter().find_map(|user| self.running_match_by_user.get(&user).copied())
    }

    /// Waiting tickets of `user`.
    pub(crate) fn waiting_tickets_of(&self, user: UserKey) -> Vec<TicketId> {
        let is_waiting =
            |id: &&TicketId| self.tickets.get(*id).is_some_and(|stored| stored.state == TicketState::Waiting);
        self.live_tickets_by_user
            .get(&user)
            .map_or_else(Vec::new, |ids| ids.iter().filter(is_waiting).copied().collect())
    }

    /// Number of tickets and of matches.
    pub(crate) fn ticket_and_match_counts(&self) -> (usize, usize) {
        (self.tickets.len(), self.matches.len())
    }

    /// Stores a ticket unless a newer version is cached. Returns the changed queue.
    pub(crate) fn upsert_ticket(&mut self, stored: StoredTicket) -> Option<QueueKey> {
        let id = stored.ticket.id;
        if self.tickets.get(&id).is_some_and(|existing| stored.version <= existing.version) {
            return None;
        }
        let key = queue_key_of(&stored);
        let previous = self.tickets.insert(id, stored);
        if let Some(previous) = previous {
            self.unindex_ticket(&previous);
        }
        self.index_ticket(id);
        self.notify_watchers(id);
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Stores a match unless a newer version is cached. Returns the changed queue.
    pub(crate) fn upsert_match(&mut self, match_: Arc<Match>) -> Option<QueueKey> {
        let previous = self.matches.get(&match_.id);
        if previous.is_some_and(|existing| match_.version <= existing.version) {
            return None;
        }
        let key = QueueKey { set_id: match_.set_id, silo: match_.silo };
        self.past_match_version += u64::from(
            match_.stage.started_at().is_some()
                && previous.is_none_or(|existing| existing.stage.started_at().is_none()),
        );
        if let Some(previous) = self.matches.insert(match_.id, Arc::clone(&match_)) {
            let index = self.queues.entry(key).or_default();
            match_deadline(&previous).map(|deadline| index.match_deadlines.remove(&(deadline, match_.id)));
            index.placing_matches.remove(&match_.id);
        }
        self.change_count += 1;
        let index = self.queues.entry(key).or_default();
        index.change_count = self.change_count;
        match_deadline(&match_).map(|deadline| index.match_deadlines.insert((deadline, match_.id)));
        if matches!(match_.stage, MatchStage::Placing { .. }) {
            index.placing_matches.insert(match_.id);
        }
        let is_ended = matches!(match_.stage, MatchStage::Ended { .. });
        for user in match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user) {
            if !is_ended {
                self.running_match_by_user.insert(user, match_.id);
            } else if self.running_match_by_user.get(&user) == Some(&match_.id) {
                self.running_match_by_user.remove(&user);
            }
            // Their tickets in other queues are paused or resumed.
            for other in self.live_tickets_by_user.get(&user).cloned().unwrap_or_default() {
                self.mark_ticket_changed(other);
            }
        }
        for match_ticket in &match_.tickets {
            self.notify_watchers(match_ticket.ticket_id);
        }
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Removes a ticket that is no longer in the store.
    pub(crate) fn remove_ticket(&mut self, id: TicketId) {
        if let Some(previous) = self.tickets.remove(&id) {
            self.unindex_ticket(&previous);
            self.notify_watchers(id);
            self.remove_queue_if_empty(queue_key_of(&previous));
        }
    }

    /// Removes a match that is no longer in the store.
    pub(crate) fn remove_match(&mut self, id: MatchId) {
        let Some(previous) = self.matches.remove(&id) else { return };
        self.past_match_version += 1;
        let key = QueueKey { set_id: previous.set_id, silo: previous.silo };
        if let Some(index) = self.queues.get_mut(&key) {
            match_deadline(&previous).map(|deadline| index.match_deadlines.remove(&(deadline, id)));
            index.placing_matches.remove(&id);
        }
        for user in previous.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user) {
            if self.running_match_by_user.get(&user) == Some(&id) {
                self.running_match_by_user.remove(&user);
            }
        }
        self.remove_queue_if_empty(key);
    }

    /// Removes ended tickets and matches that may be purged at `before`.
    pub(crate) fn remove_ended(&mut self, before: UnixMs) {
        let is_ended =
            |stored: &StoredTicket| matches!(stored.state, TicketState::Ended { purge_at, .. } if purge_at <= before);
        let ids: Vec<TicketId> =
            self.tickets.values().filter(|stored| is_ended(stored)).map(|stored| stored.ticket.id).collect();
        ids.into_iter().for_each(|id| self.remove_ticket(id));
        let is_ended =
            |match_: &Match| matches!(match_.stage, MatchStage::Ended { purge_at, .. } if purge_at <= before);
        let ids: Vec<MatchId> =
            self.matches.values().filter(|match_| is_ended(match_)).map(|match_| match_.id).collect();
        ids.into_iter().for_each(|id| self.remove_match(id));
    }

    /// Removes tickets and matches that are older than `newer_than` and not listed.
    pub(crate) fn remove_unlisted(
        &mut self,
        tickets: &BTreeSet<TicketId>,
        matches: &BTreeSet<MatchId>,
        newer_than: UnixMs,
    ) {
        let older = self.tickets.values().map(|stored| &stored.ticket).filter(|ticket| ticket.entered_at < newer_than);
        let ids: Vec<TicketId> = older.map(|ticket| ticket.id).filter(|id| !tickets.contains(id)).collect();
        ids.into_iter().for_each(|id| self.remove_ticket(id));
        let older = self.matches.values().filter(|match_| match_.proposed_at < newer_than);
        let ids: Vec<MatchId> = older.map(|match_| match_.id).filter(|id| !matches.contains(id)).collect();
        ids.into_iter().for_each(|id| self.remove_match(id));
    }

    /// Notifies `notifier` whenever `id` changes.
    pub(crate) fn subscribe(&mut self, id: TicketId, notifier: &Arc<ChangeNotifier>) {
        let notifiers = self.watchers.entry(id).or_default();
        if !notifiers.iter().any(|existing| Arc::ptr_eq(existing, notifier)) {
            notifiers.push(Arc::clone(notifier));
        }
    }

    /// Ends the notifications of `id` to `notifier`.
    pub(crate) fn unsubscribe(&mut self, id: TicketId, notifier: &Arc<ChangeNotifier>) {
        let Some(notifiers) = self.watchers.get_mut(&id) else { return };
        notifiers.retain(|existing| !Arc::ptr_eq(existing, notifier));
        if notifiers.is_empty() {
            self.watchers.remove(&id);
        }
    }

    /// Adds a ticket to the indexes.
    fn index_ticket(&mut self, id: TicketId) {
        let Some(stored) = self.tickets.get(&id) else { return };
        if matches!(stored.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &stored.ticket.session.players {
            self.live_tickets_by_user.entry(player.user).or_default().push(id);
        }
        self.change_count += 1;
        let index = self.queues.entry(queue_key_of(stored)).or_default();
        index.change_count = self.change_count;
        if stored.state == TicketState::Waiting {
            index.waiting_tickets.insert((stored.ticket.entered_at, id));
            index.ticket_expiries.insert((stored.expires_at, id));
            index.waiting_player_count += u32::from(stored.ticket.session.player_count());
        }
    }

    /// Removes a ticket from the indexes.
    fn unindex_ticket(&mut self, previous: &StoredTicket) {
        let id = previous.ticket.id;
        if matches!(previous.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &previous.ticket.session.players {
            if let Some(ids) = self.live_tickets_by_user.get_mut(&player.user) {
                ids.retain(|existing| *existing != id);
                if ids.is_empty() {
                    self.live_tickets_by_user.remove(&player.user);
                }
            }
        }
        let key = queue_key_of(previous);
        if let Some(index) = self.queues.get_mut(&key) {
            self.change_count += 1;
            index.change_count = self.change_count;
            index.waiting_tickets.remove(&(previous.ticket.entered_at, id));
            index.ticket_expiries.remove(&(previous.expires_at, id));
            if previous.state == TicketState::Waiting {
                index.waiting_player_count -= u32::from(previous.ticket.session.player_count());
            }
        }
    }

    /// Marks the set's queues in which the user waits as changed, after a rating change. Returns them.
    pub(crate) fn mark_user_queues_changed(&mut self, user: UserKey, set_id: SetId) -> Vec<QueueKey> {
        let mut changed = Vec::new();
        for id in self.waiting_tickets_of(user) {
            let Some(key) = self.tickets.get(&id).map(queue_key_of).filter(|key| key.set_id == set_id) else {
                continue;
            };
            if let Some(index) = self.queues.get_mut(&key) {
                self.change_count += 1;
                index.change_count = self.change_count;
                changed.push(key);
            }
        }
        changed
    }

    /// Marks a ticket's queue as changed and notifies its watchers, after a change outside the ticket.
    fn mark_ticket_changed(&mut self, id: TicketId) {
        if let Some(key) = self.tickets.get(&id).map(queue_key_of)
            && let Some(index) = self.queues.get_mut(&key)
        {
            self.change_count += 1;
            index.change_count = self.change_count;
        }
        self.notify_watchers(id);
    }

    fn notify_watchers(&self, id: TicketId) {
        self.watchers.get(&id).into_iter().flatten().for_each(|notifier| notifier.notify_changed(id));
    }

    fn remove_queue_if_empty(&mut self, key: QueueKey) {
        if self.queues.get(&key).is_some_and(QueueTicketsAndMatches::is_empty) {
            self.queues.remove(&key);
        }
    }
}

fn queue_key_of(stored: &StoredTicket) -> QueueKey {
    QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo }
}

/// Deadline of a match that has not ended.
fn match_deadline(match_: &Match) -> Option<UnixMs> {
    match &match_.stage {
        MatchStage::ReadyCheck { deadline } | MatchStage::Placing { deadline } => Some(*deadline),
        MatchStage::Playing { times_out_at, .. } => Some(*times_out_at),
        MatchStage::Ended { .. } => None,
    }
}
