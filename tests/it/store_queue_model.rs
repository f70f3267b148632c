//! What a store should do with queues, in the most obvious way: lists, and a loop for every question. Knows no store.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{MatchId, SetId, TicketId, UserKey};
use fireteam::domain::life::penalty::{Penalty, penalise};
use fireteam::domain::life::{Fate, Match, Stage};
use fireteam::domain::limit::RATING_CHANGES_MAX;
use fireteam::domain::queue::ticket::{Ending, Ticket};
use fireteam::domain::rating::{Played, Side};
use fireteam::domain::result::{Change, MatchResult, Placed, RatingChange, Report, Satisfaction};
use fireteam::domain::ruleset::rating::RatingSpec;
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::TicketState as State;
use fireteam::store::queues::{Finished, Ladder, QueueLoad, QueueOutcome as Out, QueueWrite, RatingRow, StoredTicket};

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
    results: Vec<Arc<MatchResult>>,
    changes: Vec<RatingChange>,
    scores: Vec<(MatchId, UserKey, u8)>,
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
                for mut row in rows {
                    if let Some(known) = self.rating(row.user, row.set_id) {
                        (row.streak, row.satisfaction) = (known.streak, known.satisfaction);
                    }
                    self.set_rating(row);
                }
                Out::Rated
            }
            QueueWrite::Conclude { report, payload, edition, ends, spec, now } => {
                if let Some(known) = self.results.iter().find(|it| it.report.match_id == report.match_id) {
                    let (result, replayed) = (Arc::clone(known), true);
                    return match known.payload == payload {
                        true => Out::Concluded { result, replayed, tickets: vec![], ratings: vec![] },
                        false => Out::Contradicted(result),
                    };
                }
                let play = self.matches.iter().find(|it| it.id == report.match_id).cloned();
                let late = self.late.contains(&report.match_id);
                if play.as_ref().is_none_or(|play| late || play.edition != edition) {
                    self.late.extend(play.as_ref().map(|play| play.id));
                    return Out::Stale(play);
                }
                self.conclude(&report, payload, ends, spec, now)
            }
            QueueWrite::Score { match_id, set_id, user, score, spec, now } => {
                self.score(match_id, (user, set_id), score, spec, now)
            }
        }
    }

    fn score(
        &mut self,
        match_id: MatchId,
        (user, set_id): (UserKey, SetId),
        score: u8,
        spec: Option<RatingSpec>,
        now: UnixMs,
    ) -> Out {
        if let Some((.., score)) = self.scores.iter().find(|it| (it.0, it.1) == (match_id, user)) {
            return Out::ScoredBefore { score: *score };
        }
        self.scores.push((match_id, user, score));
        let row = self.rating(user, set_id).or(spec.map(|spec| newcomer(&spec, user, set_id, now)));
        let Some(mut row) = row else { return Out::Scored(None) };
        row.satisfaction.scores += 1;
        row.satisfaction.score_sum += u32::from(score);
        self.set_rating(row);
        Out::Scored(Some(row))
    }

    fn rating(&self, user: UserKey, set_id: SetId) -> Option<RatingRow> {
        self.ratings.iter().find(|it| (it.user, it.set_id) == (user, set_id)).copied()
    }

    fn set_rating(&mut self, row: RatingRow) {
        self.ratings.retain(|it| (it.user, it.set_id) != (row.user, row.set_id));
        self.ratings.push(row);
    }

    /// The match ends first, then everybody's rating follows one by one, then those who left are blamed.
    fn conclude(
        &mut self,
        report: &Report,
        payload: [u8; 16],
        ends: Option<Box<QueueWrite>>,
        spec: Option<RatingSpec>,
        now: UnixMs,
    ) -> Out {
        let tickets = match ends.map(|ends| self.one(*ends)) {
            None => vec![],
            Some(Out::Moved { tickets }) => tickets,
            Some(other) => panic!("a match at its edition moves on: {other:?}"),
        };
        let unrated = report.unrated(spec.as_ref());
        let (mut changes, mut touched) = (Vec::new(), BTreeSet::new());
        if let Some(spec) = spec.filter(|_| unrated.is_none()) {
            let known = |user: &UserKey| self.rating(*user, report.set_id).map_or(spec.newcomer(), |row| row.skill());
            let side = |side: &Placed| Side { players: side.users.iter().map(known).collect(), rank: side.rank };
            let before: Vec<Side> = report.sides.iter().map(side).collect();
            let of_set = self.ratings.iter().filter(|row| row.set_id == report.set_id);
            let played = of_set.fold(Played::default(), |played, row| played.with(&row.skill()));
            let after = spec.rate_in(&before, now, played).expect("sound skills");
            for ((side, before), after) in report.sides.iter().zip(&before).zip(&after) {
                for ((user, was), is) in side.users.iter().zip(&before.players).zip(after) {
                    changes.push(Change { user: *user, before: was.rated, after: is.rated });
                    touched.insert(*user);
                    let row = self.rating(*user, report.set_id);
                    self.set_rating(RatingRow {
                        user: *user,
                        set_id: report.set_id,
                        rated: is.rated,
                        volatility: is.volatility,
                        matches: is.matches,
                        last: is.last.unwrap_or(now),
                        streak: is.streak,
                        satisfaction: row.map(|row| row.satisfaction).unwrap_or_default(),
                        played: is.played,
                    });
                    self.changes.push(RatingChange {
                        user: *user,
                        set_id: report.set_id,
                        number: is.matches,
                        match_id: report.match_id,
                        at: now,
                        rank: side.rank,
                        sides: report.sides.len() as u32,
                        before: was.rated,
                        after: is.rated,
                    });
                }
            }
        }
        for user in report.disconnected.iter().filter(|_| spec.is_some()) {
            let new = newcomer(&spec.expect("it is there"), *user, report.set_id, now);
            let mut row = self.rating(*user, report.set_id).unwrap_or(new);
            row.satisfaction.abandoned += 1;
            self.set_rating(row);
            touched.insert(*user);
        }
        let ratings = touched.into_iter().filter_map(|user| self.rating(user, report.set_id)).collect();
        let result = Arc::new(MatchResult { report: report.clone(), payload, reported: now, changes, unrated });
        self.results.push(Arc::clone(&result));
        Out::Concluded { result, replayed: false, tickets, ratings }
    }

    /// What came of matches, as it is exported.
    pub(crate) fn finished(&self) -> Vec<Finished> {
        let mut all: Vec<&Arc<MatchResult>> = self.results.iter().collect();
        all.sort_by_key(|it| (it.reported, it.report.match_id));
        let of = |result: &&Arc<MatchResult>| {
            let of = self.scores.iter().filter(|(id, ..)| *id == result.report.match_id);
            let scores: Vec<u32> = of.map(|(.., score)| u32::from(*score)).collect();
            Finished { result: Arc::clone(result), scores: scores.len() as u32, score_sum: scores.iter().sum() }
        };
        all.iter().map(of).collect()
    }

    /// What is remembered of a user's changes, latest first: of those whose numbers share a place, the last that was made.
    pub(crate) fn rating_changes(&self, user: UserKey, set_id: SetId) -> Vec<RatingChange> {
        let mut kept: Vec<RatingChange> = Vec::new();
        for change in self.changes.iter().filter(|it| (it.user, it.set_id) == (user, set_id)) {
            kept.retain(|it| it.number % RATING_CHANGES_MAX != change.number % RATING_CHANGES_MAX);
            kept.push(*change);
        }
        kept.sort_by_key(|it| std::cmp::Reverse((it.at, it.number)));
        kept
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

/// Somebody of whom there is no rating yet.
fn newcomer(spec: &RatingSpec, user: UserKey, set_id: SetId, now: UnixMs) -> RatingRow {
    let new = spec.newcomer();
    RatingRow {
        user,
        set_id,
        rated: new.rated,
        volatility: new.volatility,
        matches: 0,
        last: now,
        streak: 0,
        satisfaction: Satisfaction::default(),
        played: 0,
    }
}
