//! Every ticket and match in memory, and who hears when one changes.
//!
//! What the store says comes in by two ways, the answers to this server's own changes and the feed of other servers', and in no
//! order. Each ticket and match counts its changes, so the later picture wins whichever comes first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{IdState, MatchId, SetId, TicketId, UserKey};
use crate::domain::life::{Match, Stage};
use crate::domain::time::UnixMs;
use crate::engine::queues::bell::Bell;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// The last position that is told; who is further back is told this one.
const POSITION_MAX: u32 = 10_000;

/// Tickets and matches of one server, or of all servers that share a store.
#[derive(Debug, Default)]
pub(super) struct Roster {
    tickets: HashMap<TicketId, StoredTicket, IdState>,
    matches: HashMap<MatchId, Arc<Match>, IdState>,
    /// Live tickets of each user; a few at most.
    of_user: HashMap<UserKey, Vec<TicketId>, IdState>,
    /// Who is in a match that is not over.
    playing: HashMap<UserKey, MatchId, IdState>,
    queues: BTreeMap<QueueKey, Room>,
    /// Counts changes of all queues: a room that was gone for a while does not begin anew.
    changes: u64,
    /// Counts matches that have begun to be played, and those that were forgotten.
    begun: u64,
    bells: HashMap<TicketId, Vec<Arc<Bell>>, IdState>,
}

/// One queue.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Tickets that wait, longest first.
    waiting: BTreeSet<(UnixMs, TicketId)>,
    /// Those tickets by when they lapse.
    lapses: BTreeSet<(UnixMs, TicketId)>,
    /// Players of theirs.
    players: u32,
    /// Matches that are not over, by when something is due.
    due: BTreeSet<(UnixMs, MatchId)>,
    /// Matches that wait for a server.
    placing: BTreeSet<MatchId>,
    /// Counts changes, for whoever asks whether anything is new.
    pub(super) changes: u64,
}

impl Room {
    /// Tickets that wait, longest first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (UnixMs, TicketId)> + '_ {
        self.waiting.iter().copied()
    }

    /// How many began to wait before this one; beyond `POSITION_MAX` nobody counts.
    pub(super) fn before(&self, entered: UnixMs, id: TicketId) -> u32 {
        self.waiting.range(..(entered, id)).zip(0..POSITION_MAX).count() as u32
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Players who wait.
    pub(super) fn players(&self) -> u32 {
        self.players
    }

    /// Matches that are not over.
    pub(super) fn matches(&self) -> usize {
        self.due.len()
    }

    /// Matches that wait for a server.
    pub(super) fn placing(&self) -> Vec<MatchId> {
        self.placing.iter().copied().collect()
    }

    /// Matches of which something is due at `now`, `most` at most.
    pub(super) fn due(&self, now: UnixMs, most: usize) -> Vec<MatchId> {
        self.due.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, id)| *id).collect()
    }

    /// Tickets that have lapsed by `now`, `most` at most.
    pub(super) fn lapsed(&self, now: UnixMs, most: usize) -> Vec<TicketId> {
        self.lapses.iter().take_while(|(at, _)| *at <= now).take(most).map(|(_, id)| *id).collect()
    }

    /// When something is next due.
    pub(super) fn next_due(&self) -> Option<UnixMs> {
        let firsts = [self.due.first().map(|(at, _)| *at), self.lapses.first().map(|(at, _)| *at)];
        firsts.into_iter().flatten().min()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.due.is_empty()
    }
}

impl Roster {
    /// A ticket, if it is known.
    pub(super) fn ticket(&self, id: TicketId) -> Option<&StoredTicket> {
        self.tickets.get(&id)
    }

    /// A match, if it is known.
    pub(super) fn play(&self, id: MatchId) -> Option<&Arc<Match>> {
        self.matches.get(&id)
    }

    /// Every match, in no order.
    pub(super) fn plays(&self) -> impl Iterator<Item = &Arc<Match>> {
        self.matches.values()
    }

    /// Counts what has begun to be played or was forgotten: while it stands, nobody has met anybody new.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Every queue with anything in it.
    pub(super) fn queues(&self) -> impl Iterator<Item = (QueueKey, &Room)> {
        self.queues.iter().map(|(key, room)| (*key, room))
    }

    /// One queue.
    pub(super) fn room(&self, key: QueueKey) -> Option<&Room> {
        self.queues.get(&key)
    }

    /// The match that one of `users` is in, if any.
    pub(super) fn match_of(&self, users: impl IntoIterator<Item = UserKey>) -> Option<MatchId> {
        users.into_iter().find_map(|user| self.playing.get(&user).copied())
    }

    /// Tickets of `user` that wait.
    pub(super) fn waiting_of(&self, user: UserKey) -> Vec<TicketId> {
        let waits = |id: &&TicketId| self.tickets.get(*id).is_some_and(|it| it.state == TicketState::Waiting);
        self.of_user.get(&user).map_or_else(Vec::new, |ids| ids.iter().filter(waits).copied().collect())
    }

    /// How many tickets and matches there are.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.tickets.len(), self.matches.len())
    }

    /// Takes a ticket as the store has it, unless something later is known. Says which queue has changed.
    pub(super) fn put_ticket(&mut self, stored: StoredTicket) -> Option<QueueKey> {
        let id = stored.ticket.id;
        if self.tickets.get(&id).is_some_and(|known| stored.edition <= known.edition) {
            return None;
        }
        let key = key_of(&stored);
        let before = self.tickets.insert(id, stored);
        if let Some(before) = before {
            self.unlist(&before);
        }
        self.list(id);
        self.ring(id);
        self.drop_if_empty(key);
        Some(key)
    }

    /// Takes a match as the store has it, unless something later is known. Says which queue has changed.
    pub(super) fn put_match(&mut self, play: Arc<Match>) -> Option<QueueKey> {
        let before = self.matches.get(&play.id);
        if before.is_some_and(|known| play.edition <= known.edition) {
            return None;
        }
        let key = QueueKey { set_id: play.set_id, silo: play.silo };
        self.begun +=
            u64::from(play.stage.began().is_some() && before.is_none_or(|known| known.stage.began().is_none()));
        if let Some(before) = self.matches.insert(play.id, Arc::clone(&play)) {
            let room = self.queues.entry(key).or_default();
            due_of(&before).map(|at| room.due.remove(&(at, play.id)));
            room.placing.remove(&play.id);
        }
        self.changes += 1;
        let room = self.queues.entry(key).or_default();
        room.changes = self.changes;
        due_of(&play).map(|at| room.due.insert((at, play.id)));
        if matches!(play.stage, Stage::Placing { .. }) {
            room.placing.insert(play.id);
        }
        let over = matches!(play.stage, Stage::Over { .. });
        for user in play.members.iter().flat_map(|member| &member.players).map(|seat| seat.user) {
            match over {
                false => drop(self.playing.insert(user, play.id)),
                true if self.playing.get(&user) == Some(&play.id) => drop(self.playing.remove(&user)),
                true => {}
            }
            // Tickets of theirs in other queues are paused, or go on.
            for other in self.of_user.get(&user).cloned().unwrap_or_default() {
                self.touch(other);
            }
        }
        for member in &play.members {
            self.ring(member.ticket);
        }
        self.drop_if_empty(key);
        Some(key)
    }

    /// A ticket that the store no longer has.
    pub(super) fn forget_ticket(&mut self, id: TicketId) {
        if let Some(before) = self.tickets.remove(&id) {
            self.unlist(&before);
            self.ring(id);
            self.drop_if_empty(key_of(&before));
        }
    }

    /// A match that the store no longer has.
    pub(super) fn forget_match(&mut self, id: MatchId) {
        let Some(before) = self.matches.remove(&id) else { return };
        self.begun += 1;
        let key = QueueKey { set_id: before.set_id, silo: before.silo };
        if let Some(room) = self.queues.get_mut(&key) {
            due_of(&before).map(|at| room.due.remove(&(at, id)));
            room.placing.remove(&id);
        }
        for user in before.members.iter().flat_map(|member| &member.players).map(|seat| seat.user) {
            if self.playing.get(&user) == Some(&id) {
                self.playing.remove(&user);
            }
        }
        self.drop_if_empty(key);
    }

    /// Forgets tickets and matches that are over and that the store may forget before `before`.
    pub(super) fn forget_ended(&mut self, before: UnixMs) {
        let over =
            |stored: &StoredTicket| matches!(stored.state, TicketState::Ended { forget_at, .. } if forget_at <= before);
        let gone: Vec<TicketId> = self.tickets.values().filter(|it| over(it)).map(|it| it.ticket.id).collect();
        gone.into_iter().for_each(|id| self.forget_ticket(id));
        let over = |play: &Match| matches!(play.stage, Stage::Over { forget_at, .. } if forget_at <= before);
        let gone: Vec<MatchId> = self.matches.values().filter(|it| over(it)).map(|it| it.id).collect();
        gone.into_iter().for_each(|id| self.forget_match(id));
    }

    /// Of what is from before `young`, what is not among these is no longer there.
    pub(super) fn keep_only(&mut self, tickets: &BTreeSet<TicketId>, matches: &BTreeSet<MatchId>, young: UnixMs) {
        let old = self.tickets.values().map(|it| &it.ticket).filter(|it| it.entered < young);
        let gone: Vec<TicketId> = old.map(|it| it.id).filter(|id| !tickets.contains(id)).collect();
        gone.into_iter().for_each(|id| self.forget_ticket(id));
        let old = self.matches.values().filter(|it| it.proposed < young);
        let gone: Vec<MatchId> = old.map(|it| it.id).filter(|id| !matches.contains(id)).collect();
        gone.into_iter().for_each(|id| self.forget_match(id));
    }

    /// Rings `bell` whenever `id` changes.
    pub(super) fn listen(&mut self, id: TicketId, bell: &Arc<Bell>) {
        let bells = self.bells.entry(id).or_default();
        if !bells.iter().any(|known| Arc::ptr_eq(known, bell)) {
            bells.push(Arc::clone(bell));
        }
    }

    /// Rings `bell` for `id` no more.
    pub(super) fn unlisten(&mut self, id: TicketId, bell: &Arc<Bell>) {
        let Some(bells) = self.bells.get_mut(&id) else { return };
        bells.retain(|known| !Arc::ptr_eq(known, bell));
        if bells.is_empty() {
            self.bells.remove(&id);
        }
    }

    /// Enters a ticket in the lists that it belongs in.
    fn list(&mut self, id: TicketId) {
        let Some(stored) = self.tickets.get(&id) else { return };
        if matches!(stored.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &stored.ticket.session.players {
            self.of_user.entry(player.user).or_default().push(id);
        }
        self.changes += 1;
        let room = self.queues.entry(key_of(stored)).or_default();
        room.changes = self.changes;
        if stored.state == TicketState::Waiting {
            room.waiting.insert((stored.ticket.entered, id));
            room.lapses.insert((stored.expires, id));
            room.players += u32::from(stored.ticket.session.player_count());
        }
    }

    /// Takes it out of them.
    fn unlist(&mut self, before: &StoredTicket) {
        let id = before.ticket.id;
        if matches!(before.state, TicketState::Ended { .. }) {
            return;
        }
        for player in &before.ticket.session.players {
            if let Some(ids) = self.of_user.get_mut(&player.user) {
                ids.retain(|known| *known != id);
                if ids.is_empty() {
                    self.of_user.remove(&player.user);
                }
            }
        }
        let key = key_of(before);
        if let Some(room) = self.queues.get_mut(&key) {
            self.changes += 1;
            room.changes = self.changes;
            room.waiting.remove(&(before.ticket.entered, id));
            room.lapses.remove(&(before.expires, id));
            if before.state == TicketState::Waiting {
                room.players -= u32::from(before.ticket.session.player_count());
            }
        }
    }

    /// What is kept of a user in a set has changed: the queues of the set where the user waits are worth another look. Says which.
    pub(super) fn stir(&mut self, user: UserKey, set_id: SetId) -> Vec<QueueKey> {
        let mut stirred = Vec::new();
        for id in self.waiting_of(user) {
            let Some(key) = self.tickets.get(&id).map(key_of).filter(|key| key.set_id == set_id) else { continue };
            if let Some(room) = self.queues.get_mut(&key) {
                self.changes += 1;
                room.changes = self.changes;
                stirred.push(key);
            }
        }
        stirred
    }

    /// Something about a ticket has changed that is not written in it.
    fn touch(&mut self, id: TicketId) {
        if let Some(key) = self.tickets.get(&id).map(key_of)
            && let Some(room) = self.queues.get_mut(&key)
        {
            self.changes += 1;
            room.changes = self.changes;
        }
        self.ring(id);
    }

    fn ring(&self, id: TicketId) {
        self.bells.get(&id).into_iter().flatten().for_each(|bell| bell.ring(id));
    }

    fn drop_if_empty(&mut self, key: QueueKey) {
        if self.queues.get(&key).is_some_and(Room::is_empty) {
            self.queues.remove(&key);
        }
    }
}

fn key_of(stored: &StoredTicket) -> QueueKey {
    QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo }
}

/// When something is due in a match that is not over.
fn due_of(play: &Match) -> Option<UnixMs> {
    match &play.stage {
        Stage::ReadyCheck { deadline } | Stage::Placing { deadline } => Some(*deadline),
        Stage::Playing { until, .. } => Some(*until),
        Stage::Over { .. } => None,
    }
}
