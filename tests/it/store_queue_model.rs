//! What a store should do with queues, in the most obvious way: lists, and a loop for every question. Knows no store.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{MatchId, SetId, TicketId, UserKey};
use fireteam::domain::life::penalty::{Penalty, penalise};
use fireteam::domain::life::{Fate, Match, Stage};
use fireteam::domain::queue::ticket::{Ending, Ticket};
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::TicketState as State;
use fireteam::store::queues::{Ladder, QueueLoad, QueueOutcome as Out, QueueWrite, RatingRow, StoredTicket};

/// Nothing is kept twice: who is where is asked of the tickets, and of the pairs of players.
#[derive(Default)]
pub(crate) struct Model {
    pub(crate) tickets: Vec<StoredTicket>,
    pub(crate) matches: Vec<Arc<Match>>,
    pub(crate) players: Vec<(UserKey, MatchId)>,
    penalties: Vec<(UserKey, SetId, Penalty)>,
    ratings: Vec<RatingRow>,
    /// Matches of which a move in this batch came too late.
    late: Vec<MatchId>,
}

impl Model {
    /// A batch begins.
    pub(crate) fn begin(&mut self) {
        self.late.clear();
    }

    pub(crate) fn forget(&mut self, now: UnixMs) {
        self.tickets.retain(|it| !matches!(it.state, State::Ended { forget_at, .. } if forget_at <= now));
        self.matches.retain(|it| !matches!(it.stage, Stage::Over { forget_at, .. } if forget_at <= now));
        self.penalties.retain(|(_, _, it)| now < it.until || now < it.resets_at);
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> QueueLoad {
        self.forget(now);
        self.tickets.sort_by_key(|it| it.ticket.id);
        self.matches.sort_by_key(|it| it.id);
        self.ratings.sort_by_key(|it| (it.user, it.set_id));
        QueueLoad { tickets: self.tickets.clone(), matches: self.matches.clone(), ratings: self.ratings.clone() }
    }

    fn ticket(&mut self, id: TicketId) -> Option<&mut StoredTicket> {
        self.tickets.iter_mut().find(|it| it.ticket.id == id)
    }

    fn waits(&mut self, id: TicketId) -> bool {
        self.ticket(id).is_some_and(|it| it.state == State::Waiting)
    }

    /// Changes how a ticket stands.
    fn turn(&mut self, id: TicketId, state: State) -> StoredTicket {
        let ticket = self.ticket(id).expect("it was found a moment ago");
        ticket.state = state;
        ticket.edition += 1;
        ticket.clone()
    }

    /// Makes the next change of the batch.
    pub(crate) fn one(&mut self, write: QueueWrite) -> Out {
        match write {
            QueueWrite::Enter { ticket, expires, payload, now } => self.enter(ticket, expires, payload, now),
            QueueWrite::Beat { id, expires, .. } => match self.ticket(id) {
                None => Out::Absent,
                Some(ticket) => {
                    if ticket.state == State::Waiting && ticket.expires < expires {
                        (ticket.expires, ticket.edition) = (expires, ticket.edition + 1);
                    }
                    Out::Ticket(ticket.clone())
                }
            },
            QueueWrite::End { id, how, forget_at, now } => match self.ticket(id).cloned() {
                None => Out::Absent,
                Some(it) if it.state != State::Waiting || (how == Ending::Lapsed && now < it.expires) => {
                    Out::Ticket(it)
                }
                Some(_) => Out::Ticket(self.turn(id, State::Ended { how, by: None, forget_at })),
            },
            QueueWrite::Propose { proposed, now } => self.propose(proposed, now),
            QueueWrite::Move { next, fates, elsewhere, punished, ladder, forget_at, now } => {
                let known = self.matches.iter().position(|it| it.id == next.id);
                let Some(at) = known else { return Out::Stale(None) };
                if self.late.contains(&next.id) || self.matches[at].edition + 1 != next.edition {
                    self.late.push(next.id);
                    return Out::Stale(Some(Arc::clone(&self.matches[at])));
                }
                self.matches[at] = Arc::clone(&next);
                let mut tickets = self.fates(&next, &fates, &elsewhere, forget_at);
                tickets.sort_by_key(|it| it.ticket.id);
                let over = matches!(next.stage, Stage::Over { .. });
                let member = |user| next.members.iter().flat_map(|it| &it.players).any(|seat| seat.user == user);
                self.players.retain(|(user, play)| *play != next.id || (!over && member(*user)));
                let punished: BTreeSet<UserKey> = punished.into_iter().collect();
                punished.into_iter().for_each(|user| self.punish(user, next.set_id, &ladder, now));
                Out::Moved { tickets }
            }
            QueueWrite::Rate { rows } => {
                for row in rows {
                    self.ratings.retain(|it| (it.user, it.set_id) != (row.user, row.set_id));
                    self.ratings.push(row);
                }
                Out::Rated
            }
        }
    }

    fn enter(&mut self, ticket: Arc<Ticket>, expires: UnixMs, payload: [u8; 16], now: UnixMs) -> Out {
        if let Some(stored) = self.ticket(ticket.id) {
            let same = stored.payload == payload;
            return if same { Out::Entered { stored: stored.clone(), replayed: true } } else { Out::KeyReused };
        }
        let users = ticket.session.users();
        for user in &users {
            if let Some((_, by)) = self.players.iter().find(|(player, _)| player == user) {
                return Out::AlreadyPlaying { user: *user, by: *by };
            }
        }
        for user in &users {
            let here =
                |it: &&StoredTicket| it.ticket.set_id == ticket.set_id && it.ticket.session.silo == ticket.session.silo;
            let open = self.tickets.iter().filter(|it| !matches!(it.state, State::Ended { .. }));
            let theirs = open.filter(|it| it.ticket.session.users().contains(user));
            let barring = theirs.filter(|it| here(it) || it.ticket.alone || ticket.alone);
            if let Some(other) = barring.map(|it| it.ticket.id).min() {
                return Out::AlreadyQueued { user: *user, ticket: other };
            }
        }
        for user in &users {
            let theirs = self.penalties.iter().find(|(who, set_id, _)| who == user && *set_id == ticket.set_id);
            if let Some((_, _, Penalty { until, .. })) = theirs.filter(|(_, _, it)| now < it.until) {
                return Out::Barred { user: *user, until: *until };
            }
        }
        let stored = StoredTicket { ticket, state: State::Waiting, expires, edition: 1, payload };
        self.tickets.push(stored.clone());
        Out::Entered { stored, replayed: false }
    }

    fn propose(&mut self, proposed: Arc<Match>, now: UnixMs) -> Out {
        let known = self.matches.iter().any(|it| it.id == proposed.id);
        let mut taken = BTreeSet::new();
        for (at, member) in proposed.members.iter().enumerate() {
            let free = self.waits(member.ticket) && self.ticket(member.ticket).is_some_and(|it| now < it.expires);
            let plays = |user: UserKey| self.players.iter().any(|(player, _)| *player == user);
            let seated =
                |user: UserKey| proposed.members[..at].iter().flat_map(|it| &it.players).any(|it| it.user == user);
            let busy = member.players.iter().any(|seat| plays(seat.user) || seated(seat.user));
            if known || busy || !free {
                taken.insert(member.ticket);
            }
        }
        if !taken.is_empty() {
            return Out::Taken { tickets: taken.into_iter().collect() };
        }
        let mut tickets: Vec<_> =
            proposed.members.iter().map(|it| self.turn(it.ticket, State::InMatch(proposed.id))).collect();
        tickets.sort_by_key(|it| it.ticket.id);
        let players = proposed.members.iter().flat_map(|it| &it.players);
        self.players.extend(players.map(|seat| (seat.user, proposed.id)));
        self.matches.push(proposed);
        Out::Moved { tickets }
    }

    fn fates(
        &mut self,
        next: &Match,
        fates: &[(TicketId, Fate, UnixMs)],
        elsewhere: &[TicketId],
        forget_at: UnixMs,
    ) -> Vec<StoredTicket> {
        let by = Some(next.id);
        let mut changed: Vec<StoredTicket> = Vec::new();
        for (id, fate, expires) in fates {
            if self.ticket(*id).is_none_or(|it| it.state != State::InMatch(next.id)) {
                continue;
            }
            changed.push(match *fate {
                Fate::Ends(how) => self.turn(*id, State::Ended { how, by, forget_at }),
                Fate::Returns => {
                    self.ticket(*id).expect("it is in the match").expires = *expires;
                    let stored = self.turn(*id, State::Waiting);
                    let leaves = |user: &UserKey| stored.ticket.session.users().contains(user);
                    self.players.retain(|(user, play)| *play != next.id || !leaves(user));
                    stored
                }
            });
        }
        for id in elsewhere {
            if self.waits(*id) {
                changed.retain(|it| it.ticket.id != *id);
                changed.push(self.turn(*id, State::Ended { how: Ending::PlayedElsewhere, by, forget_at }));
            }
        }
        changed
    }

    fn punish(&mut self, user: UserKey, set_id: SetId, ladder: &Ladder, now: UnixMs) {
        let known = self.penalties.iter().position(|(who, set, _)| *who == user && *set == set_id);
        let before = known.map(|at| self.penalties.remove(at).2);
        self.penalties.push((user, set_id, penalise(&ladder.penalties_ms, ladder.reset_after_ms, before, now)));
    }
}
