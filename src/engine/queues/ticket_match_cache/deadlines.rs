//! Deadlines in effect of cached tickets and matches: extended by outages.

use std::sync::Arc;

use crate::domain::available_time::OutageTimes;
use crate::domain::id::{MatchId, TicketId};
use crate::domain::lifecycle::deadline::{
    effective_deadline, effective_reports_due_at, is_start_delayed_too_long_by_outages,
};
use crate::domain::lifecycle::{Match, MatchTicket};
use crate::domain::time::UnixMs;
use crate::engine::queues::stored_ticket::queue_key_of;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::queues::ticket_match_cache::indexed_deadline_inputs::IndexedDeadlineInputs;
use crate::rules::RulesetCatalog;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

impl TicketMatchCache {
    /// Whether the deadlines in the indexes were computed with these outages.
    pub(crate) fn are_deadlines_computed_with(&self, outages: &Arc<OutageTimes>) -> bool {
        Arc::ptr_eq(&self.deadline_inputs.outages, outages) || *self.deadline_inputs.outages == **outages
    }

    /// Computes all deadlines again, with these outages.
    pub(crate) fn recompute_deadlines_with(&mut self, outages: &Arc<OutageTimes>, rulesets: &Arc<RulesetCatalog>) {
        for index in self.queues.values_mut() {
            index.ticket_expiries.clear();
        }
        self.deadline_inputs = IndexedDeadlineInputs::new(Arc::clone(outages), Arc::clone(rulesets));
        let waiting = self.tickets.values().filter(|stored| stored.state == TicketState::Waiting);
        let expiries: Vec<(QueueKey, UnixMs, TicketId)> = waiting
            .map(|stored| (queue_key_of(&stored.ticket), self.indexed_expiry_of(stored), stored.ticket.id))
            .collect();
        for (key, expires_at, id) in expiries {
            if let Some(index) = self.queues.get_mut(&key) {
                index.ticket_expiries.insert((expires_at, id));
            }
        }
        let deadlines: Vec<(QueueKey, MatchId, [Option<UnixMs>; 2])> = self
            .matches_by_id
            .values()
            .map(|match_| {
                let key = QueueKey { set_id: match_.set_id, silo: match_.silo };
                (key, match_.id, [self.next_timed_event_of_match(match_), self.report_window_ends_at(match_)])
            })
            .collect();
        for (key, id, [deadline, reports_due_at]) in deadlines {
            if let Some(index) = self.queues.get_mut(&key) {
                index.set_match_deadline(id, deadline);
                index.set_report_deadline(id, reports_due_at);
            }
        }
    }

    /// Time at which a ticket expires, with these outages.
    pub(crate) fn expiry_of(&self, stored: &StoredTicket, outages: &OutageTimes) -> UnixMs {
        self.deadline_inputs.expiry_of(stored, outages)
    }

    /// Earliest proposal of a match that has not ended or awaits reports, or expiry of a waiting ticket. No later deadline was set long before.
    pub(crate) fn oldest_deadline_start(&self) -> Option<UnixMs> {
        let tickets = self.queues.values().filter_map(|index| Some(index.ticket_expiries.first()?.0));
        let live = self.queues.values().flat_map(|index| index.live_matches().chain(index.matches_awaiting_reports()));
        let matches = live.filter_map(|id| Some(self.matches_by_id.get(&id)?.proposed_at));
        tickets.chain(matches).min()
    }

    /// Whether outages do not extend a ticket. An extended ticket is only matched after its next heartbeat, so that is a
    /// change of its queue.
    pub(super) fn is_expiry_unextended_by_outages(&self, stored: &StoredTicket) -> bool {
        self.indexed_expiry_of(stored) == stored.expires_at
    }

    /// Expiry of a ticket in the indexes.
    pub(super) fn indexed_expiry_of(&self, stored: &StoredTicket) -> UnixMs {
        self.expiry_of(stored, &self.deadline_inputs.outages)
    }

    /// Time at which the report window of a match ends, if no outcome is known.
    pub(super) fn report_window_ends_at(&self, match_: &Match) -> Option<UnixMs> {
        match_.reports_due_at()?;
        effective_reports_due_at(
            self.deadline_inputs.lifecycle_rules_if_loaded(match_).as_ref(),
            match_,
            &self.deadline_inputs.outages,
        )
    }

    /// Time of the next event of a match that needs no caller. Before play, that may be the expiry of a ticket.
    pub(super) fn next_timed_event_of_match(&self, match_: &Match) -> Option<UnixMs> {
        let outages = &self.deadline_inputs.outages;
        let expiry =
            |match_ticket: &MatchTicket| Some(self.indexed_expiry_of(self.tickets.get(&match_ticket.ticket_id)?));
        let first_expiry = match_.tickets.iter().filter_map(expiry).min().filter(|_| match_.stage.is_before_play());
        let stage_deadline = if outages.is_empty() {
            match_.stage.deadline()
        } else if is_start_delayed_too_long_by_outages(match_, outages, UnixMs(u64::MAX)) {
            // Held up for too long: it is cancelled at once.
            Some(match_.proposed_at)
        } else {
            effective_deadline(self.deadline_inputs.lifecycle_rules_if_loaded(match_).as_ref(), match_, outages)
        };
        [stage_deadline, first_expiry].into_iter().flatten().min()
    }
}
