//! Lists of waiting tickets and of matches, and the matches that were proposed for a ticket.

use std::sync::Arc;

use crate::domain::id::TicketId;
use crate::domain::lifecycle::Match;
use crate::engine::queues::listing::{
    LISTED_TICKETS_READ_MAX, ListedTicket, MatchList, MatchListQuery, TicketList, TicketListQuery,
};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::store::queues::QueueKey;

/// Maximum number of matches that are listed for one ticket, the latest of them.
const PROPOSED_MATCHES_MAX: usize = 32;

impl QueueEngine {
    /// Waiting tickets of a set, the longest wait first.
    pub fn list_tickets(&self, query: &TicketListQuery) -> TicketList {
        let now = self.shared.common.clock.now();
        let (cache, pass_reports) = (self.shared.cache.read(), self.shared.pass_reports.lock());
        let mut waiting: Vec<(u64, QueueKey, TicketId)> = Vec::new();
        let mut is_truncated = false;
        for (key, index) in cache.queues().filter(|(key, _)| key.set_id == query.set_id) {
            if query.silo.is_some_and(|silo| silo != key.silo) {
                continue;
            }
            is_truncated |= LISTED_TICKETS_READ_MAX < index.waiting_ticket_count();
            let longest = index.waiting_tickets().take(LISTED_TICKETS_READ_MAX);
            waiting.extend(longest.map(|(entered_at, id)| (entered_at.0, key, id)));
        }
        waiting.sort_unstable();
        is_truncated |= LISTED_TICKETS_READ_MAX < waiting.len();
        let mut list = TicketList::default();
        for (_, key, id) in waiting.into_iter().take(LISTED_TICKETS_READ_MAX) {
            list.read_count += 1;
            let Some(stored) = cache.ticket(id) else { continue };
            let session = &stored.ticket.session;
            let nearest = session.region_latencies.iter();
            let nearest = nearest.min_by(|one, other| one.round_trip_ms.total_cmp(&other.round_trip_ms));
            let blocking_rule = pass_reports.blocking_rule(key, id);
            let is_listed = (query.region.is_empty() || nearest.is_some_and(|it| *it.region == *query.region))
                && (query.blocking_rule.is_empty() || blocking_rule.as_deref() == Some(query.blocking_rule.as_str()));
            if !is_listed {
                continue;
            }
            if list.tickets.len() == query.max {
                is_truncated = true;
                break;
            }
            list.tickets.push(ListedTicket {
                id,
                silo: key.silo,
                waited_ms: now.ms_since(stored.ticket.entered_at),
                player_count: session.player_count(),
                nearest_region: nearest.map(|it| it.region.clone()),
                blocking_rule,
            });
        }
        TicketList { is_truncated, ..list }
    }

    /// Matches in memory, the latest proposal first.
    pub fn list_matches(&self, query: MatchListQuery) -> MatchList {
        let cache = self.shared.cache.read();
        let is_listed = |found: &&Arc<Match>| {
            query.set_id.is_none_or(|set_id| set_id == found.set_id)
                && !(query.only_live && found.stage.end_reason().is_some())
        };
        let mut matches: Vec<Arc<Match>> = cache.matches().filter(is_listed).cloned().collect();
        drop(cache);
        matches.sort_unstable_by_key(|found| std::cmp::Reverse((found.proposed_at, found.id)));
        let is_truncated = query.max < matches.len();
        matches.truncate(query.max);
        MatchList { matches, is_truncated }
    }

    /// Matches in memory that were proposed for a ticket, the earliest first.
    pub(super) fn matches_proposed_for(&self, id: TicketId) -> Vec<Arc<Match>> {
        // Searched without the lock, for which calls would wait.
        let mut matches: Vec<Arc<Match>> = self.shared.cache.read().matches().cloned().collect();
        matches.retain(|found| found.tickets.iter().any(|ticket| ticket.ticket_id == id));
        matches.sort_unstable_by_key(|found| (found.proposed_at, found.id));
        matches.split_off(matches.len().saturating_sub(PROPOSED_MATCHES_MAX))
    }
}
