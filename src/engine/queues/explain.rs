//! Why a ticket still waits, for operators.

use std::sync::Arc;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::explain::{SearchExplanation, explain_search};
use crate::domain::id::{SetId, TicketId};
use crate::domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use crate::domain::match_result::SatisfactionStats;
use crate::domain::queue::explain::{ExplainQuery, Explanation, explain_ticket};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::session::Session;
use crate::engine::adverts::advert_set::{AdvertRecord, candidate_of_record};
use crate::engine::adverts::checked_session::{CheckedSession, field_error};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;
use crate::engine::queues::command::{ExplainSearchAnswer, ExplainTicketAnswer, ImportedRating};
use crate::engine::queues::snapshot::PreparedTicketCache;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, RatingRow, TicketState};

impl QueueEngine {
    /// Why a ticket still waits, by the rules in force. On a thread of its own: it may look at as many pairs as a pass.
    pub async fn explain_ticket(&self, id: TicketId, nearest: usize) -> Result<ExplainTicketAnswer, EngineError> {
        let hall = &self.shared;
        let stored = hall.cache.read().ticket(id).cloned().ok_or(EngineError::TicketNotFound)?;
        if stored.state != TicketState::Waiting {
            return Err(EngineError::TicketNotWaiting);
        }
        let key = QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo };
        let ruleset = hall.core.ruleset(key.set_id, None)?;
        if ruleset.queue.is_none() {
            return Err(EngineError::NoQueue(key.set_id));
        }
        let (hall, rules) = (Arc::clone(hall), Arc::clone(&ruleset));
        let question =
            ExplainQuery { ticket_id: id, max_near_misses: nearest, max_pair_checks: PAIR_CHECKS_PER_PASS_MAX };
        let explained = tokio::task::spawn_blocking(move || {
            let queue = rules.queue.as_ref()?;
            let picture =
                hall.take_snapshot(key, &rules, queue, &mut PreparedTicketCache::default(), hall.core.clock.now());
            picture.with_pass_input(|input| explain_ticket(input, &question))
        });
        let explanation: Option<Explanation> = explained.await.map_err(|_| EngineError::Internal)?.flatten();
        // Who is not in the picture is passed over: a player of it is in a match.
        let explanation = explanation.ok_or(EngineError::TicketNotWaiting)?;
        Ok(ExplainTicketAnswer { set_id: key.set_id, ruleset, explanation })
    }

    /// Why a search by `session`, after it has been going on for `searching_for_ms`, finds what it finds. It looks at every
    /// advertisement of the set and silo, on a thread of its own.
    pub async fn explain_search(
        &self,
        set_id: SetId,
        session: Session,
        searching_for_ms: u64,
        nearest: usize,
    ) -> Result<ExplainSearchAnswer, EngineError> {
        let core = Arc::clone(&self.shared.core);
        let ruleset = core.ruleset(set_id, None)?;
        let (session, ignored) = core.with_resolved_locality(&Caller::default(), session)?;
        let seeker = CheckedSession::new(&ruleset, &Caller::default(), session, ignored)?;
        let explained = tokio::task::spawn_blocking(move || {
            let now = core.clock.now();
            let searcher = seeker.searcher(&[], searching_for_ms);
            let Some(shelf) = core.advert_sets.get(set_id) else {
                return ExplainSearchAnswer { ruleset, explanation: SearchExplanation::default() };
            };
            // Copied out: nobody waits for a sweep over a million rows.
            let records: Vec<AdvertRecord> = {
                let shelf = shelf.read();
                let is_near = |record: &&AdvertRecord| {
                    let advertisement = &record.advertisement;
                    advertisement.kind == AdvertisementKind::Session
                        && advertisement.session.silo == seeker.session.silo
                };
                shelf.records().filter(is_near).cloned().collect()
            };
            let facts: Vec<AttributeValues> = records
                .iter()
                .map(|record| AttributeValues::from_session(&ruleset, &record.advertisement.session))
                .collect();
            let rows = records.iter().zip(&facts).map(|(record, facts)| candidate_of_record(record, facts));
            let explanation = explain_search(&ruleset, &searcher, rows, nearest, now);
            ExplainSearchAnswer { ruleset, explanation }
        });
        explained.await.map_err(|_| EngineError::Internal)
    }

    /// Sets users' ratings in a set; durable when it is answered.
    pub async fn import_ratings(&self, set_id: SetId, given: Vec<ImportedRating>) -> Result<u32, EngineError> {
        let ruleset = self.shared.core.ruleset(set_id, None)?;
        let Some(spec) = &ruleset.rating else {
            let what = format!("ruleset `{}` keeps no ratings: give it a <Rating>", ruleset.name);
            return Err(field_error("matchmaking_set_id", what));
        };
        let new = spec.initial_skill();
        let now = self.shared.core.clock.now();
        let played = self.shared.ratings.lock().set_activity(set_id).active_periods();
        let row = |given: &ImportedRating| RatingRow {
            user: given.user,
            set_id,
            rating: PlayerRating { rating: given.rating, deviation: given.deviation.unwrap_or(new.estimate.deviation) },
            volatility: given.volatility.unwrap_or(new.volatility),
            match_count: given.matches,
            last_match_at: now,
            streak: 0,
            satisfaction: SatisfactionStats::default(),
            // Nobody has been idle since an import.
            periods_played: played,
        };
        let rows: Vec<RatingRow> = given.iter().map(row).collect();
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        match self.shared.write(QueueWrite::ImportRatings { rows }).await? {
            QueueOutcome::RatingsImported => Ok(count),
            _ => Err(EngineError::Internal),
        }
    }
}
