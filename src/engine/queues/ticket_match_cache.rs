//! Every ticket and match in memory, and who hears when one changes.
//!
//! What the store says comes in by two ways, the answers to this server's own changes and the feed of other servers', and in no
//! order. Each ticket and match counts its changes, so the later picture wins whichever comes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::queues::change_notifier::ChangeNotifier;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// The last position that is told; who is further back is told this one.
const REPORTED_POSITION_MAX: u32 = 10_000;

/// Tickets and matches of one server, or of all servers that share a store.
#[derive(Debug, Default)]
pub(super) struct TicketMatchCache {
    tickets: HashMap<TicketId, StoredTicket, BuildIdHasher>,
    matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Live tickets of each user; a few at most.
    live_tickets_by_user: HashMap<UserKey, Vec<TicketId>, BuildIdHasher>,
    /// Who is in a match that is not over.
    running_match_by_user: HashMap<UserKey, MatchId, BuildIdHasher>,
    queues: BTreeMap<QueueKey, QueueIndex>,
    /// Counts changes of all queues: a room that was gone for a while does not begin anew.
    change_count: u64,
    /// Counts matches that have begun to be played, and those that were forgotten.
    past_match_version: u64,
    watchers: HashMap<TicketId, Vec<Arc<ChangeNotifier>>, BuildIdHasher>,
}

/// One queue.
#[derive(Debug, Default)]
pub(super) struct QueueIndex {
    /// Tickets that wait, longest first.
    waiting_tickets: BTreeSet<(UnixMs, TicketId)>,
    /// Those tickets by when they lapse.
    ticket_expiries: BTreeSet<(UnixMs, TicketId)>,
    /// Players of theirs.
    waiting_player_count: u32,
    /// Matches that are not over, by when something is due.
    match_deadlines: BTreeSet<(UnixMs, MatchId)>,
    /// Matches that wait for a server.
    placing_matches: BTreeSet<MatchId>,
    /// Counts changes, for whoever asks whether anything is new.
    pub(super) change_count: u64,
}

impl QueueIndex {
    /// Tickets that wait, longest first.
    pub(super) fn waiting_tickets(&self) -> impl Iterator<Item = (UnixMs, TicketId)> + '_ {
        self.waiting_tickets.iter().copied()
    }

    /// How many began to wait before this one; beyond `POSITION_MAX` nobody counts.
    pub(super) fn position_of(&self, entered: UnixMs, id: TicketId) -> u32 {
        self.waiting_tickets.range(..(entered, id)).zip(0..REPORTED_POSITION_MAX).count() as u32
    }

    /// How many wait.
    pub(super) fn waiting_ticket_count(&self) -> usize {
        self.waiting_tickets.len()
    }

    /// Players who wait.
    pub(super) fn waiting_player_count(&self) -> u32 {
        self.waiting_player_count
    }

    /// Matches that are not over.
    pub(super) fn running_match_count(&self) -> usize {
        self.match_deadlines.len()
    }

    /// Matches that wait for a server.
    pub(super) fn placing_matches(&self) -> Vec<MatchId> {
        self.placing_matches.iter().copied().collect()
    }

    /// Matches of which something is due at `now`, `most` at most.
    pub(super) fn due_matches(&self, now: UnixMs, most: usize) -> Vec<MatchId> {
        self.match_deadlines.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, id)| *id).collect()
    }

    /// Tickets that have lapsed by `now`, `most` at most.
    pub(super) fn expired_tickets(&self, now: UnixMs, most: usize) -> Vec<TicketId> {
        self.ticket_expiries.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, id)| *id).collect()
    }

    /// When something is next due.
    pub(super) fn next_deadline(&self) -> Option<UnixMs> {
        let firsts = [self.match_deadlines.first().map(|(at, _)| *at), self.ticket_expiries.first().map(|(at, _)| *at)];
        firsts.into_iter().flatten().min()
    }

    fn is_empty(&self) -> bool {
        self.waiting_tickets.is_empty() && self.match_deadlines.is_empty()
    }
}

impl TicketMatchCache {
    /// A ticket, if it is known.
    pub(super) fn ticket(&self, id: TicketId) -> Option<&StoredTicket> {
        self.tickets.get(&id)
    }

    /// A match, if it is known.
    pub(super) fn match_by_id(&self, id: MatchId) -> Option<&Arc<Match>> {
        self.matches.get(&id)
    }

    /// Every match, in no order.
    pub(super) fn all_matches(&self) -> impl Iterator<Item = &Arc<Match>> {
        self.matches.values()
    }

    /// Counts what has begun to be played or was forgotten: while it stands, nobody has met anybody new.
    pub(super) fn past_match_version(&self) -> u64 {
        self.past_match_version
    }

    /// Every queue with anything in it.
    pub(super) fn queues(&self) -> impl Iterator<Item = (QueueKey, &QueueIndex)> {
        self.queues.iter().map(|(key, room)| (*key, room))
    }

    /// One queue.
    pub(super) fn queue_index(&self, key: QueueKey) -> Option<&QueueIndex> {
        self.queues.get(&key)
    }

    /// The match that one of `users` is in, if any.
    pub(super) fn running_match_of(&self, users: impl IntoIterator<Item = UserKey>) -> Option<MatchId> {
        users.into_iter().find_map(|user| self.running_match_by_user.get(&user).copied())
    }

    /// Tickets of `user` that wait.
    pub(super) fn waiting_tickets_of(&self, user: UserKey) -> Vec<TicketId> {
        let waits = |id: &&TicketId| self.tickets.get(*id).is_some_and(|it| it.state == TicketState::Waiting);
        self.live_tickets_by_user.get(&user).map_or_else(Vec::new, |ids| ids.iter().filter(waits).copied().collect())
    }

    /// How many tickets and matches there are.
    pub(super) fn ticket_and_match_counts(&self) -> (usize, usize) {
        (self.tickets.len(), self.matches.len())
    }

    /// Takes a ticket as the store has it, unless something later is known. Says which queue has changed.
    pub(super) fn upsert_ticket(&mut self, stored: StoredTicket) -> Option<QueueKey> {
        let id = stored.ticket.id;
        if self.tickets.get(&id).is_some_and(|known| stored.version <= known.version) {
            return None;
        }
        let key = queue_key_of(&stored);
        let before = self.tickets.insert(id, stored);
        if let Some(before) = before {
            self.unindex_ticket(&before);
        }
        self.index_ticket(id);
        self.notify_watchers(id);
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// Takes a match as the store has it, unless something later is known. Says which queue has changed.
    pub(super) fn upsert_match(&mut self, play: Arc<Match>) -> Option<QueueKey> {
        let before = self.matches.get(&play.id);
        if before.is_some_and(|known| play.version <= known.version) {
            return None;
        }
        let key = QueueKey { set_id: play.set_id, silo: play.silo };
        self.past_match_version += u64::from(
            play.stage.started_at().is_some() && before.is_none_or(|known| known.stage.started_at().is_none()),
        );
        if let Some(before) = self.matches.insert(play.id, Arc::clone(&play)) {
            let room = self.queues.entry(key).or_default();
            match_deadline(&before).map(|at| room.match_deadlines.remove(&(at, play.id)));
            room.placing_matches.remove(&play.id);
        }
        self.change_count += 1;
        let room = self.queues.entry(key).or_default();
        room.change_count = self.change_count;
        match_deadline(&play).map(|at| room.match_deadlines.insert((at, play.id)));
        if matches!(play.stage, MatchStage::Placing { .. }) {
            room.placing_matches.insert(play.id);
        }
        let over = matches!(play.stage, MatchStage::Ended { .. });
        for user in play.tickets.iter().flat_map(|member| &member.players).map(|seat| seat.user) {
            match over {
                false => drop(self.running_match_by_user.insert(user, play.id)),
                true if self.running_match_by_user.get(&user) == Some(&play.id) => {
                    drop(self.running_match_by_user.remove(&user))
                }
                true => {}
            }
            // Tickets of theirs in other queues are paused, or go on.
            for other in self.live_tickets_by_user.get(&user).cloned().unwrap_or_default() {
                self.mark_ticket_changed(other);
            }
        }
        for member in &play.tickets {
            self.notify_watchers(member.ticket_id);
        }
        self.remove_queue_if_empty(key);
        Some(key)
    }

    /// A ticket that the store no longer has.
    pub(super) fn remove_ticket(&mut self, id: TicketId) {
        if let Some(before) = self.tickets.remove(&id) {
            self.unindex_ticket(&before);
            self.notify_watchers(id);
            self.remove_queue_if_empty(queue_key_of(&before));
        }
    }

    /// A match that the store no longer has.
    pub(super) fn remove_match(&mut self, id: MatchId) {
        let Some(before) = self.matches.remove(&id) else { return };
        self.past_match_version += 1;
        let key = QueueKey { set_id: before.set_id, silo: before.silo };
        if let Some(room) = self.queues.get_mut(&key) {
            match_deadline(&before).map(|at| room.match_deadlines.remove(&(at, id)));
            room.placing_matches.remove(&id);
        }
        for user in before.tickets.iter().flat_map(|member| &member.players).map(|seat| seat.user) {
            if self.running_match_by_user.get(&user) == Some(&id) {
                self.running_match_by_user.remove(&user);
            }
        }
        self.remove_queue_if_empty(key);
    }

    /// Forgets tickets and matches that are over and that the store may forget before `before`.
    pub(super) fn remove_ended(&mut self, before: UnixMs) {
        let over = |stored: &StoredTicket| matches!(stored.state, TicketState::Ended { purge_at: forget_at, .. } if forget_at <= before);
        let gone: Vec<TicketId> = self.tickets.values().filter(|it| over(it)).map(|it| it.ticket.id).collect();
        gone.into_iter().for_each(|id| self.remove_ticket(id));
        let over =
            |play: &Match| matches!(play.stage, MatchStage::Ended { purge_at: forget_at, .. } if forget_at <= before);
        let gone: Vec<MatchId> = self.matches.values().filter(|it| over(it)).map(|it| it.id).collect();
        gone.into_iter().for_each(|id| self.remove_match(id));
    }

    /// Of what is from before `young`, what is not among these is no longer there.
    pub(super) fn remove_unlisted(&mut self, tickets: &BTreeSet<TicketId>, matches: &BTreeSet<MatchId>, young: UnixMs) {
        let old = self.tickets.values().map(|it| &it.ticket).filter(|it| it.entered_at < young);
        let gone: Vec<TicketId> = old.map(|it| it.id).filter(|id| !tickets.contains(id)).collect();
        gone.into_iter().for_each(|id| self.remove_ticket(id));
        let old = self.matches.values().filter(|it| it.proposed_at < young);
        let gone: Vec<MatchId> = old.map(|it| it.id).filter(|id| !matches.contains(id)).collect();
        gone.into_iter().for_each(|id| self.remove_match(id));
    }

    /// Rings `bell` whenever `id` changes.
    pub(super) fn subscribe(&mut self, id: TicketId, bell: &Arc<ChangeNotifier>) {
        let bells = self.watchers.entry(id).or_default();
        if !bells.iter().any(|known| Arc::ptr_eq(known, bell)) {
            bells.push(Arc::clone(bell));
        }
    }

    /// Rings `bell` for `id` no more.
    pub(super) fn unsubscribe(&mut self, id: TicketId, bell: &Arc<ChangeNotifier>) {
        let Some(bells) = self.watchers.get_mut(&id) else { return };
        bells.retain(|known| !Arc::ptr_eq(known, bell));
        if bells.is_empty() {
            self.watchers.remove(&id);
        }
    }

    /// Enters a ticket in the lists that it belongs in.
    fn index_ticket(&mut self, id: TicketId) {
        let Some(stored) = self.tickets.get(&id) else { return };
        if matches!(stored.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &stored.ticket.session.players {
            self.live_tickets_by_user.entry(player.user).or_default().push(id);
        }
        self.change_count += 1;
        let room = self.queues.entry(queue_key_of(stored)).or_default();
        room.change_count = self.change_count;
        if stored.state == TicketState::Waiting {
            room.waiting_tickets.insert((stored.ticket.entered_at, id));
            room.ticket_expiries.insert((stored.expires_at, id));
            room.waiting_player_count += u32::from(stored.ticket.session.player_count());
        }
    }

    /// Takes it out of them.
    fn unindex_ticket(&mut self, before: &StoredTicket) {
        let id = before.ticket.id;
        if matches!(before.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &before.ticket.session.players {
            if let Some(ids) = self.live_tickets_by_user.get_mut(&player.user) {
                ids.retain(|known| *known != id);
                if ids.is_empty() {
                    self.live_tickets_by_user.remove(&player.user);
                }
            }
        }
        let key = queue_key_of(before);
        if let Some(room) = self.queues.get_mut(&key) {
            self.change_count += 1;
            room.change_count = self.change_count;
            room.waiting_tickets.remove(&(before.ticket.entered_at, id));
            room.ticket_expiries.remove(&(before.expires_at, id));
            if before.state == TicketState::Waiting {
                room.waiting_player_count -= u32::from(before.ticket.session.player_count());
            }
        }
    }

    /// What is kept of a user in a set has changed: the queues of the set where the user waits are worth another look. Says which.
    pub(super) fn mark_user_queues_changed(&mut self, user: UserKey, set_id: SetId) -> Vec<QueueKey> {
        let mut stirred = Vec::new();
        for id in self.waiting_tickets_of(user) {
            let Some(key) = self.tickets.get(&id).map(queue_key_of).filter(|key| key.set_id == set_id) else {
                continue;
            };
            if let Some(room) = self.queues.get_mut(&key) {
                self.change_count += 1;
                room.change_count = self.change_count;
                stirred.push(key);
            }
        }
        stirred
    }

    /// Something about a ticket has changed that is not written in it.
    fn mark_ticket_changed(&mut self, id: TicketId) {
        if let Some(key) = self.tickets.get(&id).map(queue_key_of)
            && let Some(room) = self.queues.get_mut(&key)
        {
            self.change_count += 1;
            room.change_count = self.change_count;
        }
        self.notify_watchers(id);
    }

    fn notify_watchers(&self, id: TicketId) {
        self.watchers.get(&id).into_iter().flatten().for_each(|bell| bell.notify_changed(id));
    }

    fn remove_queue_if_empty(&mut self, key: QueueKey) {
        if self.queues.get(&key).is_some_and(QueueIndex::is_empty) {
            self.queues.remove(&key);
        }
    }
}

fn queue_key_of(stored: &StoredTicket) -> QueueKey {
    QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo }
}

/// When something is due in a match that is not over.
fn match_deadline(play: &Match) -> Option<UnixMs> {
    match &play.stage {
        MatchStage::ReadyCheck { deadline } | MatchStage::Placing { deadline } => Some(*deadline),
        MatchStage::Playing { times_out_at: until, .. } => Some(*until),
        MatchStage::Ended { .. } => None,
    }
}
