//! What a store should do with queues, in the most obvious way: lists, and a loop for every question. Knows no store.

use std::collections::BTreeSet;
use std::sync::Arc;

use fireteam::domain::id::{MatchId, SetId, TicketId, UserKey};
use fireteam::domain::lifecycle::penalty::{Penalty, next_penalty};
use fireteam::domain::lifecycle::{Match, MatchStage, TicketFate};
use fireteam::domain::limit::RATING_HISTORY_ENTRIES_MAX;
use fireteam::domain::match_result::{
    MatchResult, RatingHistoryEntry, RatingUpdate, ResultReport, SatisfactionStats, SideRank,
};
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::rating::{SetActivity, Side};
use fireteam::domain::ruleset::rating::RatingSpec;
use fireteam::domain::time::UnixMs;
use fireteam::store::queues::TicketState as State;
use fireteam::store::queues::{
    FinishedMatch, PenaltySchedule, QueueOutcome as Out, QueueWrite, RatingRow, StoredQueueData, StoredTicket,
};

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
    changes: Vec<RatingHistoryEntry>,
    scores: Vec<(MatchId, UserKey, u8)>,
}

impl Model {
    /// A batch begins.
    pub(crate) fn begin(&mut self) {
        self.late.clear();
    }

    pub(crate) fn forget(&mut self, now: UnixMs) {
        self.tickets.retain(|it| !matches!(it.state, State::Ended { purge_at: forget_at, .. } if forget_at <= now));
        self.matches
            .retain(|it| !matches!(it.stage, MatchStage::Ended { purge_at: forget_at, .. } if forget_at <= now));
        self.penalties.retain(|(_, _, it)| now < it.cooldown_until || now < it.resets_at);
    }

    pub(crate) fn load(&mut self, now: UnixMs) -> StoredQueueData {
        self.forget(now);
        self.tickets.sort_by_key(|it| it.ticket.id);
        self.matches.sort_by_key(|it| it.id);
        self.ratings.sort_by_key(|it| (it.user, it.set_id));
        StoredQueueData { tickets: self.tickets.clone(), matches: self.matches.clone(), ratings: self.ratings.clone() }
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
        ticket.version += 1;
        ticket.clone()
    }

    /// Makes the next change of the batch.
    #[expect(clippy::too_many_lines, reason = "one case after another")]
    pub(crate) fn one(&mut self, write: QueueWrite) -> Out {
        match write {
            QueueWrite::EnterQueue { ticket, expires_at: expires, request_digest: payload, now } => {
                self.enter(ticket, expires, payload, now)
            }
            QueueWrite::Heartbeat { ticket_id: id, expires_at: expires, .. } => match self.ticket(id) {
                None => Out::TicketNotFound,
                Some(ticket) => {
                    if ticket.state == State::Waiting && ticket.expires_at < expires {
                        (ticket.expires_at, ticket.version) = (expires, ticket.version + 1);
                    }
                    Out::CurrentTicket(ticket.clone())
                }
            },
            QueueWrite::EndTicket { ticket_id: id, end_reason: how, purge_at: forget_at, now } => match self
                .ticket(id)
                .cloned()
            {
                None => Out::TicketNotFound,
                Some(it) if it.state != State::Waiting || (how == TicketEndReason::Expired && now < it.expires_at) => {
                    Out::CurrentTicket(it)
                }
                Some(_) => Out::CurrentTicket(
                    self.turn(id, State::Ended { end_reason: how, match_id: None, purge_at: forget_at }),
                ),
            },
            QueueWrite::ProposeMatch { proposed, now } => self.propose(proposed, now),
            QueueWrite::TransitionMatch {
                updated_match: next,
                ticket_fates: fates,
                other_tickets: elsewhere,
                penalized_users: punished,
                penalty_schedule: ladder,
                purge_at: forget_at,
                now,
            } => {
                let known = self.matches.iter().position(|it| it.id == next.id);
                let Some(at) = known else { return Out::StaleMatchVersion(None) };
                if self.late.contains(&next.id) || self.matches[at].version + 1 != next.version {
                    self.late.push(next.id);
                    return Out::StaleMatchVersion(Some(Arc::clone(&self.matches[at])));
                }
                self.matches[at] = Arc::clone(&next);
                let mut tickets = self.fates(&next, &fates, &elsewhere, forget_at);
                tickets.sort_by_key(|it| it.ticket.id);
                let over = matches!(next.stage, MatchStage::Ended { .. });
                let member = |user| next.tickets.iter().flat_map(|it| &it.players).any(|seat| seat.user == user);
                self.players.retain(|(user, play)| *play != next.id || (!over && member(*user)));
                let punished: BTreeSet<UserKey> = punished.into_iter().collect();
                punished.into_iter().for_each(|user| self.punish(user, next.set_id, &ladder, now));
                Out::MatchWritten { tickets }
            }
            QueueWrite::ImportRatings { rows } => {
                for mut row in rows {
                    if let Some(known) = self.rating(row.user, row.set_id) {
                        (row.streak, row.satisfaction) = (known.streak, known.satisfaction);
                    }
                    self.set_rating(row);
                }
                Out::RatingsImported
            }
            QueueWrite::RecordResult {
                report,
                report_digest: payload,
                match_version: edition,
                end_transition: ends,
                rating_spec: spec,
                now,
            } => {
                if let Some(known) = self.results.iter().find(|it| it.report.match_id == report.match_id) {
                    let (result, replayed) = (Arc::clone(known), true);
                    return match known.report_digest == payload {
                        true => Out::ResultRecorded { result, is_replay: replayed, tickets: vec![], ratings: vec![] },
                        false => Out::ConflictingResult(result),
                    };
                }
                let play = self.matches.iter().find(|it| it.id == report.match_id).cloned();
                let late = self.late.contains(&report.match_id);
                if play.as_ref().is_none_or(|play| late || play.version != edition) {
                    self.late.extend(play.as_ref().map(|play| play.id));
                    return Out::StaleMatchVersion(play);
                }
                self.conclude(&report, payload, ends, spec, now)
            }
            QueueWrite::RecordFeedback { match_id, set_id, user, stars: score, rating_spec: spec, now } => {
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
            return Out::FeedbackAlreadyGiven { stars: *score };
        }
        self.scores.push((match_id, user, score));
        let row = self.rating(user, set_id).or(spec.map(|spec| newcomer(&spec, user, set_id, now)));
        let Some(mut row) = row else { return Out::FeedbackRecorded(None) };
        row.satisfaction.feedback_count += 1;
        row.satisfaction.feedback_sum += u32::from(score);
        self.set_rating(row);
        Out::FeedbackRecorded(Some(row))
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
        report: &ResultReport,
        payload: [u8; 16],
        ends: Option<Box<QueueWrite>>,
        spec: Option<RatingSpec>,
        now: UnixMs,
    ) -> Out {
        let tickets = match ends.map(|ends| self.one(*ends)) {
            None => vec![],
            Some(Out::MatchWritten { tickets }) => tickets,
            Some(other) => panic!("a match at its edition moves on: {other:?}"),
        };
        let unrated = report.unrated_reason(spec.as_ref());
        let (mut changes, mut touched) = (Vec::new(), BTreeSet::new());
        if let Some(spec) = spec.filter(|_| unrated.is_none()) {
            let known =
                |user: &UserKey| self.rating(*user, report.set_id).map_or(spec.initial_skill(), |row| row.skill());
            let side = |side: &SideRank| Side { players: side.users.iter().map(known).collect(), rank: side.rank };
            let before: Vec<Side> = report.sides.iter().map(side).collect();
            let of_set = self.ratings.iter().filter(|row| row.set_id == report.set_id);
            let played = of_set.fold(SetActivity::default(), |played, row| played.including_skill(&row.skill()));
            let after = spec.rate_match_with_activity(&before, now, played).expect("sound skills");
            for ((side, before), after) in report.sides.iter().zip(&before).zip(&after) {
                for ((user, was), is) in side.users.iter().zip(&before.players).zip(after) {
                    changes.push(RatingUpdate { user: *user, before: was.estimate, after: is.estimate });
                    touched.insert(*user);
                    let row = self.rating(*user, report.set_id);
                    self.set_rating(RatingRow {
                        user: *user,
                        set_id: report.set_id,
                        rating: is.estimate,
                        volatility: is.volatility,
                        match_count: is.match_count,
                        last_match_at: is.last_match_at.unwrap_or(now),
                        streak: is.streak,
                        satisfaction: row.map(|row| row.satisfaction).unwrap_or_default(),
                        active_periods: is.active_periods,
                    });
                    self.changes.push(RatingHistoryEntry {
                        user: *user,
                        set_id: report.set_id,
                        rated_match_number: is.match_count,
                        match_id: report.match_id,
                        reported_at: now,
                        rank: side.rank,
                        side_count: report.sides.len() as u32,
                        before: was.estimate,
                        after: is.estimate,
                    });
                }
            }
        }
        for user in report.left_early.iter().filter(|_| spec.is_some()) {
            let new = newcomer(&spec.expect("it is there"), *user, report.set_id, now);
            let mut row = self.rating(*user, report.set_id).unwrap_or(new);
            row.satisfaction.abandoned_matches += 1;
            self.set_rating(row);
            touched.insert(*user);
        }
        let ratings = touched.into_iter().filter_map(|user| self.rating(user, report.set_id)).collect();
        let result = Arc::new(MatchResult {
            report: report.clone(),
            report_digest: payload,
            reported_at: now,
            rating_updates: changes,
            unrated_reason: unrated,
        });
        self.results.push(Arc::clone(&result));
        Out::ResultRecorded { result, is_replay: false, tickets, ratings }
    }

    /// What came of matches, as it is exported.
    pub(crate) fn finished(&self) -> Vec<FinishedMatch> {
        let mut all: Vec<&Arc<MatchResult>> = self.results.iter().collect();
        all.sort_by_key(|it| (it.reported_at, it.report.match_id));
        let of = |result: &&Arc<MatchResult>| {
            let of = self.scores.iter().filter(|(id, ..)| *id == result.report.match_id);
            let scores: Vec<u32> = of.map(|(.., score)| u32::from(*score)).collect();
            FinishedMatch {
                result: Arc::clone(result),
                feedback_count: scores.len() as u32,
                feedback_sum: scores.iter().sum(),
            }
        };
        all.iter().map(of).collect()
    }

    /// What is remembered of a user's changes, latest first: of those whose numbers share a place, the last that was made.
    pub(crate) fn rating_changes(&self, user: UserKey, set_id: SetId) -> Vec<RatingHistoryEntry> {
        let mut kept: Vec<RatingHistoryEntry> = Vec::new();
        for change in self.changes.iter().filter(|it| (it.user, it.set_id) == (user, set_id)) {
            kept.retain(|it| {
                it.rated_match_number % RATING_HISTORY_ENTRIES_MAX
                    != change.rated_match_number % RATING_HISTORY_ENTRIES_MAX
            });
            kept.push(*change);
        }
        kept.sort_by_key(|it| std::cmp::Reverse((it.reported_at, it.rated_match_number)));
        kept
    }

    fn enter(&mut self, ticket: Arc<Ticket>, expires: UnixMs, payload: [u8; 16], now: UnixMs) -> Out {
        if let Some(stored) = self.ticket(ticket.id) {
            let same = stored.request_digest == payload;
            return if same {
                Out::Entered { ticket: stored.clone(), is_replay: true }
            } else {
                Out::IdempotencyKeyReused
            };
        }
        let users = ticket.session.sorted_users();
        for user in &users {
            if let Some((_, by)) = self.players.iter().find(|(player, _)| player == user) {
                return Out::AlreadyInMatch { user: *user, match_id: *by };
            }
        }
        for user in &users {
            let here =
                |it: &&StoredTicket| it.ticket.set_id == ticket.set_id && it.ticket.session.silo == ticket.session.silo;
            let open = self.tickets.iter().filter(|it| !matches!(it.state, State::Ended { .. }));
            let theirs = open.filter(|it| it.ticket.session.sorted_users().contains(user));
            let barring = theirs.filter(|it| here(it) || it.ticket.exclusive || ticket.exclusive);
            if let Some(other) = barring.map(|it| it.ticket.id).min() {
                return Out::AlreadyQueued { user: *user, other_ticket: other };
            }
        }
        for user in &users {
            let theirs = self.penalties.iter().find(|(who, set_id, _)| who == user && *set_id == ticket.set_id);
            if let Some((_, _, Penalty { cooldown_until: until, .. })) =
                theirs.filter(|(_, _, it)| now < it.cooldown_until)
            {
                return Out::OnCooldown { user: *user, until: *until };
            }
        }
        let stored =
            StoredTicket { ticket, state: State::Waiting, expires_at: expires, version: 1, request_digest: payload };
        self.tickets.push(stored.clone());
        Out::Entered { ticket: stored, is_replay: false }
    }

    fn propose(&mut self, proposed: Arc<Match>, now: UnixMs) -> Out {
        let known = self.matches.iter().any(|it| it.id == proposed.id);
        let mut taken = BTreeSet::new();
        for (at, member) in proposed.tickets.iter().enumerate() {
            let free =
                self.waits(member.ticket_id) && self.ticket(member.ticket_id).is_some_and(|it| now < it.expires_at);
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
            proposed.tickets.iter().map(|it| self.turn(it.ticket_id, State::InMatch(proposed.id))).collect();
        tickets.sort_by_key(|it| it.ticket.id);
        let players = proposed.tickets.iter().flat_map(|it| &it.players);
        self.players.extend(players.map(|seat| (seat.user, proposed.id)));
        self.matches.push(proposed);
        Out::MatchWritten { tickets }
    }

    fn fates(
        &mut self,
        next: &Match,
        fates: &[(TicketId, TicketFate, UnixMs)],
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
                TicketFate::Ended(how) => {
                    self.turn(*id, State::Ended { end_reason: how, match_id: by, purge_at: forget_at })
                }
                TicketFate::Requeued => {
                    self.ticket(*id).expect("it is in the match").expires_at = *expires;
                    let stored = self.turn(*id, State::Waiting);
                    let leaves = |user: &UserKey| stored.ticket.session.sorted_users().contains(user);
                    self.players.retain(|(user, play)| *play != next.id || !leaves(user));
                    stored
                }
            });
        }
        for id in elsewhere {
            if self.waits(*id) {
                changed.retain(|it| it.ticket.id != *id);
                changed.push(self.turn(
                    *id,
                    State::Ended { end_reason: TicketEndReason::MatchedElsewhere, match_id: by, purge_at: forget_at },
                ));
            }
        }
        changed
    }

    fn punish(&mut self, user: UserKey, set_id: SetId, ladder: &PenaltySchedule, now: UnixMs) {
        let known = self.penalties.iter().position(|(who, set, _)| *who == user && *set == set_id);
        let before = known.map(|at| self.penalties.remove(at).2);
        self.penalties.push((user, set_id, next_penalty(&ladder.cooldowns_ms, ladder.reset_after_ms, before, now)));
    }
}

/// Somebody of whom there is no rating yet.
fn newcomer(spec: &RatingSpec, user: UserKey, set_id: SetId, now: UnixMs) -> RatingRow {
    let new = spec.initial_skill();
    RatingRow {
        user,
        set_id,
        rating: new.estimate,
        volatility: new.volatility,
        match_count: 0,
        last_match_at: now,
        streak: 0,
        satisfaction: SatisfactionStats::default(),
        active_periods: 0,
    }
}
