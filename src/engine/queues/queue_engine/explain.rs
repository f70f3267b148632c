//! Operator explanations of waiting tickets and searches, and rating import.

use std::sync::Arc;

use crate::domain::id::{SetId, TicketId};
use crate::domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use crate::domain::match_result::UserSatisfactionStatistics;
use crate::domain::queue::explain::{ExplainQuery, Explanation, explain_ticket};
use crate::domain::queue::ticket::PlayerRating;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::engine::beacons::party_latency::caller_described_by_operator;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::command::{ExplainSearchAnswer, ExplainSearchCommand, ExplainTicketAnswer, ImportedRating};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::snapshot::{PreparedTicketCache, QueueSnapshot};
use crate::engine::searching_party::SearchingParty;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, RatingRow, TicketState};

impl QueueEngine {
    /// Explains a waiting ticket under the current ruleset. Runs on a blocking thread: it may check as many pairs as a
    /// pass.
    pub async fn explain_ticket(
        &self,
        id: TicketId,
        max_near_misses: usize,
    ) -> Result<ExplainTicketAnswer, EngineError> {
        let shared = &self.shared;
        let stored = shared.cache.read().ticket(id).cloned().ok_or(EngineError::TicketNotFound)?;
        if stored.state != TicketState::Waiting {
            return Err(EngineError::TicketNotWaiting);
        }
        let key = QueueKey { set_id: stored.ticket.set_id, silo: stored.ticket.session.silo };
        let ruleset = shared.common.current_or_cached_ruleset(key.set_id, None)?;
        if ruleset.queue.is_none() {
            return Err(EngineError::NoQueue(key.set_id));
        }
        let (shared, snapshot_ruleset) = (Arc::clone(shared), Arc::clone(&ruleset));
        let read_at = shared.common.clock.now();
        let query = ExplainQuery { ticket_id: id, max_near_misses, max_pair_checks: PAIR_CHECKS_PER_PASS_MAX };
        let result = tokio::task::spawn_blocking(move || {
            let queue = snapshot_ruleset.queue.as_ref()?;
            let snapshot = QueueSnapshot::take(
                &shared,
                key,
                &snapshot_ruleset,
                queue,
                &mut PreparedTicketCache::default(),
                read_at,
            );
            snapshot.with_pass_input(|input| explain_ticket(input, &query))
        });
        let explanation: Option<Explanation> = result.await.map_err(|_| EngineError::Internal)?.flatten();
        // A ticket missing from the snapshot is paused: one of its players is in a match.
        let explanation = explanation.ok_or(EngineError::TicketNotWaiting)?;
        let (entered_at, proposed_matches) = (stored.ticket.entered_at, self.matches_proposed_for(id));
        Ok(ExplainTicketAnswer { set_id: key.set_id, ruleset, explanation, entered_at, proposed_matches, read_at })
    }

    /// Explains the results of a search, judged as the party's own would be.
    ///
    /// Evaluates every advertisement of the set and silo, on a blocking thread.
    pub async fn explain_search_results(
        &self,
        explain: ExplainSearchCommand,
    ) -> Result<ExplainSearchAnswer, EngineError> {
        let ExplainSearchCommand { set_id, session, latency_tokens, caller_address, searching_for_ms, max_listed } =
            explain;
        let common = &self.shared.common;
        let now = common.clock.now();
        let ruleset = common.current_or_cached_ruleset(set_id, None)?;
        let caller = caller_described_by_operator(common, &session, &latency_tokens, caller_address);
        let party = SearchingParty::new(common, &caller, &ruleset, session, &latency_tokens, now)?;
        let adverts = self.shared.adverts.clone();
        let result = tokio::task::spawn_blocking(move || {
            let explanation = adverts.explain_search_results(&ruleset, &party, searching_for_ms, max_listed);
            let SearchingParty { checked, .. } = party;
            let limit_factor = checked.attribute_values.limit_factor();
            ExplainSearchAnswer {
                ruleset,
                explanation,
                frustration_limit_factor: limit_factor,
                ignored_fields: checked.ignored_fields,
            }
        });
        result.await.map_err(|_| EngineError::Internal)
    }

    /// Sets users' ratings in a set; durable when it returns.
    pub async fn import_ratings(&self, set_id: SetId, imported: Vec<ImportedRating>) -> Result<u32, EngineError> {
        let ruleset = self.shared.common.current_or_cached_ruleset(set_id, None)?;
        let Some(KeyedRatingSpec { key, spec }) = self.shared.ratings.lock().keyed_spec_of_ruleset(&ruleset) else {
            let problem = format!("ruleset `{}` has no rating system; add a <Rating> element", ruleset.name);
            return Err(field_error("matchmaking_set_id", problem));
        };
        let newcomer = spec.initial_skill();
        let now = self.shared.common.clock.now();
        let active_periods = self.shared.ratings.lock().match_activity_of_all_users(key).active_periods();
        let to_row = |imported: &ImportedRating| RatingRow {
            user: imported.user,
            key,
            rating: PlayerRating {
                rating: imported.rating,
                deviation: imported.deviation.unwrap_or(newcomer.estimate.deviation),
            },
            volatility: imported.volatility.unwrap_or(newcomer.volatility),
            rated_match_count: imported.matches,
            last_match_at: now,
            streak: 0,
            satisfaction: UserSatisfactionStatistics::default(),
            // An import counts as activity in the current period.
            last_match_active_period: active_periods,
        };
        let rows: Vec<RatingRow> = imported.iter().map(to_row).collect();
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        match self.shared.submit_write(QueueWrite::ImportRatings { rows }).await? {
            QueueOutcome::RatingsImported => Ok(count),
            _ => Err(EngineError::Internal),
        }
    }
}
