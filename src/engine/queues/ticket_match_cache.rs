//! In-memory copy of all tickets and matches, with indexes by queue and user, and ticket watchers.
//!
//! Updates come from this replica's own commits and from the feed, in no fixed order. Each ticket and match has a
//! version, and the higher version wins.

mod awaited_reports;
mod deadlines;
mod ended_match_counts;
mod indexed_deadline_inputs;
mod live_counts;
mod queue_index;
mod returned_tickets;
mod waiting_tickets;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::id::{BuildIdHasher, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::rules::ENDED_MATCH_RETENTION_MS;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::queue::past_match_log::PastMatchLog;
use crate::domain::time::UnixMs;
use crate::engine::open_silos::OpenSilos;
use crate::engine::past_match_logs::PastMatchLogs;
use crate::engine::queues::change_notifier::TicketChangeNotifier;
use crate::engine::queues::stored_ticket::queue_key_of;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};
use crate::telemetry::metric::set_gauges::QueueCounts;

use self::awaited_reports::AwaitedReports;
pub(crate) use self::ended_match_counts::EndedMatchCounts;
use self::indexed_deadline_inputs::IndexedDeadlineInputs;
use self::live_counts::LiveCounts;
pub(crate) use self::queue_index::QueueTicketsAndMatches;
use self::returned_tickets::LastUnplayedMatches;

/// Time for which an ended match stays in memory, milliseconds. After a restart it counts from the restart, because the
/// store has no time of the end.
const ENDED_MATCH_MAX_AGE_MS: u64 = ENDED_MATCH_RETENTION_MS;

/// Tickets and matches of all replicas that share the store.
#[derive(Debug, Default)]
pub(crate) struct TicketMatchCache {
    tickets: HashMap<TicketId, StoredTicket, BuildIdHasher>,
    matches_by_id: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Tickets per user that have not ended; a few at most.
    live_tickets_by_user: HashMap<UserKey, Vec<TicketId>, BuildIdHasher>,
    /// Match per user that has not ended.
    live_match_by_user: HashMap<UserKey, MatchId, BuildIdHasher>,
    queues: BTreeMap<QueueKey, QueueTicketsAndMatches>,
    /// Counts changes of all queues. It outlives a queue's removal, so a re-created queue never repeats a count.
    change_count: u64,
    /// Played matches of each queue, for avoidance rules. They stay when an ended match leaves this cache.
    past_matches: Arc<PastMatchLogs>,
    /// Time at which `remove_ended` first saw an ended match.
    end_first_seen_at: HashMap<MatchId, UnixMs, BuildIdHasher>,
    /// Matches after which tickets wait again.
    last_unplayed_matches: LastUnplayedMatches,
    awaited_reports: AwaitedReports,
    live_counts: LiveCounts,
    ended_match_counts: EndedMatchCounts,
    /// Outages that extend the deadlines in the indexes.
    deadline_inputs: IndexedDeadlineInputs,
    watchers: HashMap<TicketId, Vec<Arc<TicketChangeNotifier>>, BuildIdHasher>,
    /// Counts each queue as one use of its silo.
    open_silos: Arc<OpenSilos>,
}

impl TicketMatchCache {
    /// Cache without tickets, which keeps the silos of its queues open in `open_silos`, and logs played matches in
    /// `past_matches`.
    pub(crate) fn new(open_silos: Arc<OpenSilos>, past_matches: Arc<PastMatchLogs>) -> Self {
        Self { open_silos, past_matches, ..Self::default() }
    }

    pub(crate) fn ticket(&self, id: TicketId) -> Option<&StoredTicket> {
        self.tickets.get(&id)
    }

    pub(crate) fn match_by_id(&self, id: MatchId) -> Option<&Arc<Match>> {
        self.matches_by_id.get(&id)
    }

    /// All matches, in no order.
    pub(crate) fn matches(&self) -> impl Iterator<Item = &Arc<Match>> {
        self.matches_by_id.values()
    }

    /// Played matches of the queues of a set.
    pub(crate) fn past_match_logs_of_set(&self, set_id: SetId) -> Vec<Arc<Mutex<PastMatchLog>>> {
        self.past_matches.of_set(set_id)
    }

    /// Match that returned a waiting ticket to its queue, if it is not older than an hour.
    pub(crate) fn last_unplayed_match_of(&self, id: TicketId) -> Option<&Arc<Match>> {
        self.matches_by_id.get(&self.last_unplayed_matches.last_unplayed_match(id)?)
    }

    /// Every queue that is not empty.
    pub(crate) fn queues(&self) -> impl Iterator<Item = (QueueKey, &QueueTicketsAndMatches)> {
        self.queues.iter().map(|(key, index)| (*key, index))
    }

    pub(crate) fn queue_index(&self, key: QueueKey) -> Option<&QueueTicketsAndMatches> {
        self.queues.get(&key)
    }

    /// Match of any of `users` that has not ended, if any.
    pub(crate) fn live_match_of(&self, users: impl IntoIterator<Item = UserKey>) -> Option<MatchId> {
        users.into_iter().find_map(|user| self.live_match_by_user.get(&user).copied())
    }

    /// Tickets of `user` that have not ended.
    pub(crate) fn live_tickets_of(&self, user: UserKey) -> impl Iterator<Item = &StoredTicket> {
        let ids = self.live_tickets_by_user.get(&user).into_iter().flatten();
        ids.filter_map(|id| self.tickets.get(id))
    }

    /// Tickets of ended matches by which `user` may still report a result.
    pub(crate) fn reportable_tickets_of(&self, user: UserKey) -> impl Iterator<Item = &StoredTicket> {
        self.awaited_reports.tickets_of(user).filter_map(|id| self.tickets.get(&id))
    }

    /// Waiting tickets of `user`.
    pub(crate) fn waiting_tickets_of(&self, user: UserKey) -> Vec<TicketId> {
        let is_waiting =
            |id: &&TicketId| self.tickets.get(*id).is_some_and(|stored| stored.state == TicketState::Waiting);
        self.live_tickets_by_user
            .get(&user)
            .map_or_else(Vec::new, |ids| ids.iter().filter(is_waiting).copied().collect())
    }

    /// Number of matches that ended, by set and reason.
    pub(crate) fn ended_match_counts(&self) -> &EndedMatchCounts {
        &self.ended_match_counts
    }

    /// Number of tickets and of matches.
    pub(crate) fn ticket_and_match_counts(&self) -> (usize, usize) {
        (self.tickets.len(), self.matches_by_id.len())
    }

    /// Tickets and matches that have not ended, by set.
    pub(crate) fn live_counts_by_set(&self) -> impl Iterator<Item = (SetId, QueueCounts)> + '_ {
        self.live_counts.by_set()
    }

    /// Stores a ticket unless a newer version is cached. Returns the changed queue.
    pub(crate) fn upsert_ticket(&mut self, stored: StoredTicket) -> Option<QueueKey> {
        let id = stored.ticket.id;
        let previous = self.tickets.get(&id);
        if previous.is_some_and(|existing| stored.version <= existing.version) {
            return None;
        }
        if previous
            .is_some_and(|existing| is_extension(existing, &stored) && self.is_expiry_unextended_by_outages(existing))
        {
            self.extend_ticket(stored);
            return None;
        }
        if previous.is_some_and(|existing| is_acknowledgement(existing, &stored)) {
            // No pass and no status depends on it.
            self.tickets.insert(id, stored);
            return None;
        }
        let key = queue_key_of(&stored.ticket);
        self.live_counts.replace_ticket(previous, Some(&stored));
        let previous = self.tickets.insert(id, stored);
        if let Some(previous) = previous {
            self.unindex_ticket(&previous);
        }
        self.index_ticket(id);
        self.update_match_deadline_of_ticket(id);
        self.notify_watchers(id);
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Updates the deadline of the match that a ticket is in, after its expiry has changed.
    fn update_match_deadline_of_ticket(&mut self, id: TicketId) {
        let Some(TicketState::InMatch(match_id)) = self.tickets.get(&id).map(|stored| stored.state) else { return };
        let Some(match_) = self.matches_by_id.get(&match_id).cloned().filter(|match_| match_.stage.is_before_play())
        else {
            return;
        };
        let deadline = self.next_timed_event_of_match(&match_);
        let key = QueueKey { set_id: match_.set_id, silo: match_.silo };
        self.queue_or_new(key, None).set_match_deadline(match_id, deadline);
    }

    /// Replaces a waiting ticket by one that only expires later. No pass depends on that, so the queue has not changed.
    fn extend_ticket(&mut self, stored: StoredTicket) {
        let (id, expires_at) = (stored.ticket.id, self.indexed_expiry_of(&stored));
        let key = queue_key_of(&stored.ticket);
        if let Some(previous) = self.tickets.insert(id, stored)
            && let Some(index) = self.queues.get_mut(&key)
        {
            index.ticket_expiries.remove(&(previous.expires_at, id));
            index.ticket_expiries.insert((expires_at, id));
        }
        self.notify_watchers(id);
    }

    /// Stores a match unless a newer version is cached. Returns the changed queues: its own, and those in which its
    /// players have other tickets.
    pub(crate) fn upsert_match(&mut self, match_: Arc<Match>) -> BTreeSet<QueueKey> {
        let previous = self.matches_by_id.get(&match_.id);
        if previous.is_some_and(|existing| match_.version <= existing.version) {
            return BTreeSet::new();
        }
        self.live_counts.replace_match(previous.map(|before| &**before), Some(&match_));
        let key = QueueKey { set_id: match_.set_id, silo: match_.silo };
        if match_.stage.started_at().is_some() || previous.is_some_and(|before| before.stage.started_at().is_some()) {
            self.past_matches.record(key, &match_);
        }
        self.ended_match_counts.record(previous.map(|before| &**before), &match_);
        let mut changed_queues = BTreeSet::from([key]);
        self.last_unplayed_matches.record(&match_);
        self.awaited_reports.record(&match_);
        self.matches_by_id.insert(match_.id, Arc::clone(&match_));
        let (deadline, reports_due_at) = (self.next_timed_event_of_match(&match_), self.report_window_ends_at(&match_));
        self.change_count += 1;
        let change_count = self.change_count;
        let index = self.queue_or_new(key, None);
        index.change_count_at_last_change = change_count;
        index.set_match_deadline(match_.id, deadline);
        index.set_report_deadline(match_.id, reports_due_at);
        if matches!(match_.stage, MatchStage::Placing { .. }) {
            index.placing_matches.insert(match_.id);
        } else {
            index.placing_matches.remove(&match_.id);
        }
        let is_ended = matches!(match_.stage, MatchStage::Ended { .. });
        if let Some(session) = match_.backfilled_session {
            let backfill = (session, match_.id);
            if is_ended {
                index.backfill_matches.remove(&backfill)
            } else {
                index.backfill_matches.insert(backfill)
            };
        }
        for match_ticket in &match_.tickets {
            for player in match_ticket.players.iter().filter(|player| player.left_at.is_some()) {
                self.remove_live_ticket(player.user, match_ticket.ticket_id);
            }
        }
        for player in match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players) {
            let user = player.user;
            if !is_ended && player.left_at.is_none() {
                self.live_match_by_user.insert(user, match_.id);
            } else if self.live_match_by_user.get(&user) == Some(&match_.id) {
                self.live_match_by_user.remove(&user);
            }
            // Their tickets in other queues are paused or resumed.
            for other in self.live_tickets_by_user.get(&user).cloned().unwrap_or_default() {
                changed_queues.extend(self.mark_queue_changed_and_notify_watchers(other));
            }
        }
        for match_ticket in &match_.tickets {
            self.notify_watchers(match_ticket.ticket_id);
        }
        self.remove_queue_if_empty(key);
        changed_queues
    }

    /// Removes a ticket that is no longer in the store. Returns its queue.
    pub(crate) fn remove_ticket(&mut self, id: TicketId) -> Option<QueueKey> {
        let previous = self.tickets.remove(&id)?;
        self.live_counts.replace_ticket(Some(&previous), None);
        self.last_unplayed_matches.forget_ticket(id);
        let key = queue_key_of(&previous.ticket);
        self.unindex_ticket(&previous);
        self.notify_watchers(id);
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Removes a match that is no longer in the store. Returns its queue.
    pub(crate) fn remove_match(&mut self, id: MatchId) -> Option<QueueKey> {
        self.past_matches.remove_match(id);
        self.remove_match_keeping_past_match(id)
    }

    /// Removes a match from this cache, and not from the past matches. Returns its queue.
    fn remove_match_keeping_past_match(&mut self, id: MatchId) -> Option<QueueKey> {
        self.end_first_seen_at.remove(&id);
        self.awaited_reports.forget(id);
        let previous = self.matches_by_id.remove(&id)?;
        self.live_counts.replace_match(Some(&previous), None);
        self.last_unplayed_matches.forget_match(&previous);
        let key = QueueKey { set_id: previous.set_id, silo: previous.silo };
        if let Some(index) = self.queues.get_mut(&key) {
            index.set_match_deadline(id, None);
            index.set_report_deadline(id, None);
            index.placing_matches.remove(&id);
            previous.backfilled_session.map(|session| index.backfill_matches.remove(&(session, id)));
        }
        for user in previous.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user) {
            if self.live_match_by_user.get(&user) == Some(&id) {
                self.live_match_by_user.remove(&user);
            }
        }
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Removes ended tickets and matches that may be purged at `before`, and matches that ended `ENDED_MATCH_MAX_AGE_MS`
    /// before `now`; not those whose result may still be reported. Avoidance rules may apply to matches for longer; the past
    /// matches keep what the rules need.
    pub(crate) fn remove_ended(&mut self, before: UnixMs, now: UnixMs) {
        let is_ended =
            |stored: &StoredTicket| matches!(stored.state, TicketState::Ended { purge_at, .. } if purge_at <= before);
        let awaited = self.awaited_reports.tickets();
        let ended = self.tickets.values().filter(|stored| is_ended(stored)).map(|stored| stored.ticket.id);
        let ids: Vec<TicketId> = ended.filter(|id| !awaited.contains(id)).collect();
        for id in ids {
            self.remove_ticket(id);
        }
        let mut ids = Vec::new();
        for match_ in self.matches_by_id.values().filter(|match_| match_.reports_due_at().is_none()) {
            let MatchStage::Ended { purge_at, .. } = match_.stage else { continue };
            let ended_at = *self.end_first_seen_at.entry(match_.id).or_insert(now);
            if purge_at <= before || now.ms_since(ended_at) >= ENDED_MATCH_MAX_AGE_MS {
                ids.push(match_.id);
            }
        }
        for id in ids {
            self.remove_match_keeping_past_match(id);
        }
        self.past_matches.remove_matches_due_for_purge(before);
    }

    /// Removes tickets and matches that are older than `newer_than` and not listed. Returns their queues.
    pub(crate) fn remove_unlisted_older_than(
        &mut self,
        tickets: &BTreeSet<TicketId>,
        matches: &BTreeSet<MatchId>,
        newer_than: UnixMs,
    ) -> BTreeSet<QueueKey> {
        let older = self.tickets.values().map(|stored| &stored.ticket).filter(|ticket| ticket.entered_at < newer_than);
        let ids: Vec<TicketId> = older.map(|ticket| ticket.id).filter(|id| !tickets.contains(id)).collect();
        let mut changed_queues: BTreeSet<QueueKey> = ids.into_iter().filter_map(|id| self.remove_ticket(id)).collect();
        let older = self.matches_by_id.values().filter(|match_| match_.proposed_at < newer_than);
        let ids: Vec<MatchId> = older.map(|match_| match_.id).filter(|id| !matches.contains(id)).collect();
        changed_queues.extend(ids.into_iter().filter_map(|id| self.remove_match(id)));
        self.past_matches.remove_unlisted_older_than(matches, newer_than);
        changed_queues
    }

    /// Notifies `notifier` whenever `id` changes.
    pub(crate) fn subscribe(&mut self, id: TicketId, notifier: &Arc<TicketChangeNotifier>) {
        let notifiers = self.watchers.entry(id).or_default();
        if !notifiers.iter().any(|existing| Arc::ptr_eq(existing, notifier)) {
            notifiers.push(Arc::clone(notifier));
        }
    }

    /// Ends the notifications of `id` to `notifier`.
    pub(crate) fn unsubscribe(&mut self, id: TicketId, notifier: &Arc<TicketChangeNotifier>) {
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
        let (ticket, state, expires_at) = (Arc::clone(&stored.ticket), stored.state, self.indexed_expiry_of(stored));
        let change_count = self.change_count;
        let index = self.queue_or_new(queue_key_of(&ticket), ticket.subject);
        index.change_count_at_last_change = change_count;
        if state == TicketState::Waiting {
            index.waiting_tickets.insert((ticket.entered_at, id));
            index.ticket_expiries.insert((expires_at, id));
            index.waiting_player_count += u32::from(ticket.session.player_count());
        }
    }

    fn remove_live_ticket(&mut self, user: UserKey, id: TicketId) {
        if let Some(ids) = self.live_tickets_by_user.get_mut(&user) {
            ids.retain(|existing| *existing != id);
            if ids.is_empty() {
                self.live_tickets_by_user.remove(&user);
            }
        }
    }

    /// Removes a ticket from the indexes.
    fn unindex_ticket(&mut self, previous: &StoredTicket) {
        let id = previous.ticket.id;
        if matches!(previous.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &previous.ticket.session.players {
            self.remove_live_ticket(player.user, id);
        }
        let (key, expires_at) = (queue_key_of(&previous.ticket), self.indexed_expiry_of(previous));
        if let Some(index) = self.queues.get_mut(&key) {
            self.change_count += 1;
            index.change_count_at_last_change = self.change_count;
            index.waiting_tickets.remove(&(previous.ticket.entered_at, id));
            index.ticket_expiries.remove(&(expires_at, id));
            if previous.state == TicketState::Waiting {
                index.waiting_player_count -= u32::from(previous.ticket.session.player_count());
            }
        }
    }

    /// Marks all queues in which the user waits as changed, after a rating change. Returns them. A rating can belong to
    /// several sets.
    pub(crate) fn mark_user_queues_changed(&mut self, user: UserKey) -> Vec<QueueKey> {
        let mut changed = Vec::new();
        for id in self.waiting_tickets_of(user) {
            let Some(key) = self.tickets.get(&id).map(|stored| queue_key_of(&stored.ticket)) else { continue };
            if let Some(index) = self.queues.get_mut(&key) {
                self.change_count += 1;
                index.change_count_at_last_change = self.change_count;
                changed.push(key);
            }
        }
        changed
    }

    /// Marks a queue as changed if tickets wait in it. Returns whether they do.
    pub(crate) fn mark_queue_changed_if_tickets_wait(&mut self, key: QueueKey) -> bool {
        let Some(index) = self.queues.get_mut(&key).filter(|index| !index.waiting_tickets.is_empty()) else {
            return false;
        };
        self.change_count += 1;
        index.change_count_at_last_change = self.change_count;
        true
    }

    /// Marks a ticket's queue as changed and notifies its watchers, after a change outside the ticket. Returns the queue.
    fn mark_queue_changed_and_notify_watchers(&mut self, id: TicketId) -> Option<QueueKey> {
        self.notify_watchers(id);
        let key = self.tickets.get(&id).map(|stored| queue_key_of(&stored.ticket))?;
        let index = self.queues.get_mut(&key)?;
        self.change_count += 1;
        index.change_count_at_last_change = self.change_count;
        Some(key)
    }

    fn notify_watchers(&self, id: TicketId) {
        self.watchers.get(&id).into_iter().flatten().for_each(|notifier| notifier.notify_changed(id));
    }

    /// Index of a queue. A new queue is a use of its silo, which `opener` opens if it is the first.
    fn queue_or_new(&mut self, key: QueueKey, opener: Option<UserKey>) -> &mut QueueTicketsAndMatches {
        self.queues.entry(key).or_insert_with(|| {
            self.open_silos.add_unlimited_use(key.silo, opener);
            QueueTicketsAndMatches::default()
        })
    }

    fn remove_queue_if_empty(&mut self, key: QueueKey) {
        if self.queues.get(&key).is_some_and(QueueTicketsAndMatches::is_empty) {
            self.queues.remove(&key);
            self.open_silos.remove_use(key.silo);
        }
    }
}

/// Whether `next` is the same ticket in the same match as `previous`, and only more of its players were told of it.
fn is_acknowledgement(previous: &StoredTicket, next: &StoredTicket) -> bool {
    let new_players = u64::from((next.ready_check_delivered_mask & !previous.ready_check_delivered_mask).count_ones());
    let is_in_match = matches!(next.state, TicketState::InMatch(_)) && previous.state == next.state;
    is_in_match && previous.expires_at == next.expires_at && previous.version + new_players == next.version
}

/// Whether `next` is the same waiting ticket as `previous`, with another expiry: the result of a heartbeat. With other round trips it
/// may be matched otherwise.
fn is_extension(previous: &StoredTicket, next: &StoredTicket) -> bool {
    let is_waiting = previous.state == TicketState::Waiting && next.state == TicketState::Waiting;
    let is_same_ticket = Arc::ptr_eq(&previous.ticket, &next.ticket) || previous.ticket == next.ticket;
    is_waiting && is_same_ticket && previous.seat_vectors == next.seat_vectors
}
