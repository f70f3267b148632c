//! State of one match or one user, for operators: stage and time left, tickets, cooldowns, and what keeps a user from queuing.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId};
use crate::engine::error::EngineError;
use crate::engine::open_silos::SiloOverview;
use crate::engine::queues::operator_command::{
    EntryObstacle, MatchOverview, PlayerEntryQuery, PlayerOverview, PlayerTicket, SetEntryOverview,
};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::rules::catalog::CatalogState;
use crate::store::queues::{QueueKey, TicketState, UserTicketsMatchAndPenalties};

impl QueueEngine {
    /// State of a match. With several servers, any of them knows it.
    pub async fn match_overview(&self, id: MatchId) -> Result<MatchOverview, EngineError> {
        let known = match self.shared.wait_for_cached(|cache| cache.match_by_id(id).cloned()).await {
            Some(cached) => cached,
            None => self.shared.read_unfed_match(id).await?.ok_or(EngineError::MatchNotFound)?,
        };
        // Each server gives the same answer. Without the store, it is what this server knows.
        let newer = self.shared.wait_for_newer_match(&known).await.ok().flatten();
        let found_match = newer.unwrap_or(known);
        let blocking_rule = self.shared.placement_problem(id);
        let result = match found_match.stage.end_reason() {
            Some(_) => self.finished_match(id).await?,
            None => None,
        };
        let read_at = self.shared.common.clock.now();
        Ok(MatchOverview { found_match, placement_problem: blocking_rule, result, read_at })
    }

    /// State of a user. The store's rows decide, as they do for Enter, so each server gives the same answer.
    pub async fn player_overview(&self, query: PlayerEntryQuery) -> Result<PlayerOverview, EngineError> {
        let common = &self.shared.common;
        let stored = common.store.read_tickets_match_and_penalties(query.user).await.map_err(|error| {
            tracing::warn!(%error, "read of a user failed");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })?;
        let current_match = match stored.match_id {
            Some(id) => Some(self.match_overview(id).await?),
            None => None,
        };
        let mut tickets = Vec::with_capacity(stored.tickets.len());
        let mut account = None;
        for membership in &stored.tickets {
            // It may have ended and been forgotten since the read.
            let Some(found) = self.shared.find_ticket(membership.ticket_id).await? else { continue };
            account = account.or(found.ticket.subject);
            tickets.push(PlayerTicket {
                status: self.shared.ticket_status_without_credentials(&found, common.clock.now()),
                silo: found.ticket.session.silo,
                expires_at: found.expires_at,
                match_id: match found.state {
                    TicketState::InMatch(id) => Some(id),
                    TicketState::Ended { match_id, .. } => match_id,
                    TicketState::Waiting => None,
                },
            });
        }
        let silo = common.open_silos.silo_overview(query.silo, account);
        let catalog = common.rulesets.snapshot();
        let set_ids = match query.set_id {
            Some(set_id) => vec![set_id],
            None => {
                let mut all: Vec<SetId> = catalog.active.keys().chain(catalog.retiring.keys()).copied().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
        };
        let overview = |set_id| self.set_overview(&query, set_id, &catalog, &stored, &silo);
        Ok(PlayerOverview {
            user: query.user,
            log_name: self.existing_or_new_log_name(query.user).await?,
            sets: set_ids.into_iter().map(overview).collect(),
            penalties: stored.penalties.clone(),
            tickets,
            current_match,
            silo,
            read_at: common.clock.now(),
        })
    }

    fn set_overview(
        &self,
        query: &PlayerEntryQuery,
        set_id: SetId,
        catalog: &Arc<CatalogState>,
        stored: &UserTicketsMatchAndPenalties,
        silo: &SiloOverview,
    ) -> SetEntryOverview {
        let ruleset = catalog.ruleset_in_force(set_id);
        let queue = ruleset.and_then(|ruleset| ruleset.queue.as_ref());
        let retires_at = catalog.retiring.get(&set_id).map(|retiring| retiring.ends_at);
        let mut obstacles = Vec::new();
        match (ruleset, queue) {
            (None, _) => obstacles.push(EntryObstacle::UnknownSet),
            (Some(_), None) => obstacles.push(EntryObstacle::NoQueue),
            (Some(_), Some(_)) if retires_at.is_some() => obstacles.push(EntryObstacle::SetRetired),
            (Some(_), Some(queue)) => {
                let key = QueueKey { set_id, silo: query.silo };
                let in_match = stored.match_id.map(EntryObstacle::InMatch);
                let conflicting = stored
                    .tickets
                    .iter()
                    .filter(|membership| membership.queue == key || membership.exclusive || !queue.allow_other_queues);
                let queued = conflicting.map(|membership| EntryObstacle::Queued(membership.ticket_id));
                let now = self.shared.common.clock.now();
                let penalty = stored.penalties.iter().find(|(penalized_set, _)| *penalized_set == set_id);
                let cooldown = penalty.and_then(|(_, penalty)| penalty.active_cooldown_end(now));
                obstacles.extend(in_match.into_iter().chain(queued).chain(cooldown.map(EntryObstacle::Cooldown)));
            }
        }
        if self.shared.common.served_silos.as_ref().is_some_and(|silos| !silos.contains(&query.silo)) {
            obstacles.push(EntryObstacle::SiloNotServed);
        }
        let is_limit_reached = |limits: &crate::engine::open_silos::OpenSiloLimits| {
            silo.open_silos >= limits.max_silos || silo.opened_by_account >= limits.max_silos_per_user
        };
        if !silo.is_open && silo.limits.as_ref().is_some_and(is_limit_reached) {
            obstacles.push(EntryObstacle::TooManySilos);
        }
        SetEntryOverview {
            set_id,
            name: ruleset.map_or_else(|| "".into(), |ruleset| ruleset.name.clone()),
            has_queue: queue.is_some(),
            retires_at,
            obstacles,
        }
    }
}
