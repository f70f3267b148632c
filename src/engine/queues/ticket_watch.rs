//! Subscription of a client to its tickets: sends each changed status once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::domain::id::TicketId;
use crate::domain::lifecycle::MatchStage;
use crate::engine::queues::change_notifier::TicketChangeNotifier;
use crate::engine::queues::command::TicketStatus;
use crate::engine::queues::shared_state::heartbeat::REPORTED_TTL_WITHOUT_QUEUE_MS;
use crate::engine::queues::shared_state::{REPLICATION_DELAY_MAX, SharedState};
use crate::engine::queues::stored_ticket::is_ticket_ended;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::ratings::command::ReportState;

/// Subscription to tickets; ends when dropped.
#[derive(Debug)]
pub struct TicketWatch {
    shared: Arc<SharedState>,
    notifier: Arc<TicketChangeNotifier>,
    /// Ticket version and match version last sent, per ticket.
    sent_versions: BTreeMap<TicketId, Option<(u64, u64)>>,
    /// Holder that watches each ticket.
    holders: BTreeMap<TicketId, TicketTokenHolder>,
    /// Tickets with unsent changes.
    changed_tickets: BTreeSet<TicketId>,
    /// Time from which the store is asked for tickets that the feed has not brought.
    next_unfed_check_at: Instant,
}

impl TicketWatch {
    /// Watch of the tickets in `sent_versions`, which holds the versions that the client has.
    pub(crate) fn new(
        shared: Arc<SharedState>,
        sent_versions: BTreeMap<TicketId, Option<(u64, u64)>>,
        holders: BTreeMap<TicketId, TicketTokenHolder>,
    ) -> Self {
        let notifier = Arc::new(TicketChangeNotifier::default());
        let mut cache = shared.cache.write();
        sent_versions.keys().for_each(|id| cache.subscribe(*id, &notifier));
        drop(cache);
        let changed_tickets = sent_versions.keys().copied().collect();
        let next_unfed_check_at =
            Instant::now() + if shared.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        Self { shared, notifier, sent_versions, holders, changed_tickets, next_unfed_check_at }
    }

    /// Next changed status of any ticket; `None` when all have ended, no result is awaited, and the last status was sent. It may be
    /// dropped and called again.
    pub async fn next_status(&mut self) -> Option<TicketStatus> {
        loop {
            while let Some(id) = self.changed_tickets.pop_first() {
                if let Some(status) = self.status_if_changed(id) {
                    self.confirm_peer_host(&status).await;
                    return Some(status);
                }
            }
            if self.sent_versions.is_empty() {
                return None;
            }
            let unfed = self.unfed_tickets();
            if unfed.is_empty() {
                self.changed_tickets = self.notifier.wait_for_changes().await;
                continue;
            }
            match timeout_at(self.next_unfed_check_at, self.notifier.wait_for_changes()).await {
                Ok(changed_tickets) => self.changed_tickets = changed_tickets,
                Err(_) => self.stop_watching_absent(unfed).await,
            }
        }
    }

    /// Watched tickets that the feed has not brought, or that were purged.
    fn unfed_tickets(&self) -> Vec<TicketId> {
        let cache = self.shared.cache.read();
        self.sent_versions.keys().copied().filter(|id| cache.ticket(*id).is_none()).collect()
    }

    /// Ends the subscription to those of the tickets that the store has not. The others may still arrive.
    async fn stop_watching_absent(&mut self, unfed: Vec<TicketId>) {
        for id in unfed {
            let is_absent = matches!(self.shared.read_unfed_ticket(id).await, Ok(None));
            if is_absent && self.shared.cache.read().ticket(id).is_none() {
                self.stop_watching(id);
            }
        }
        self.next_unfed_check_at = Instant::now() + REPLICATION_DELAY_MAX;
    }

    /// The watch of the player who was named as host confirms the match.
    async fn confirm_peer_host(&self, status: &TicketStatus) {
        let Some(view) = &status.match_view else { return };
        if matches!(view.found_match.stage, MatchStage::Confirming { .. }) {
            self.shared
                .keep_peer_hosted_match_alive(view.found_match.id, status.id, self.shared.common.clock.now())
                .await;
        }
    }

    /// Extends all watched tickets; returns the interval until the next heartbeat, milliseconds.
    pub async fn heartbeat_tickets(&self) -> u32 {
        let watched = self.holders.values().filter(|holder| self.sent_versions.contains_key(&holder.ticket_id));
        let (seats, tickets): (Vec<&TicketTokenHolder>, Vec<&TicketTokenHolder>) =
            watched.partition(|holder| holder.is_seat_token);
        let mut extended = join_all(tickets.iter().map(|holder| self.shared.heartbeat_ticket(holder.ticket_id))).await;
        extended.extend(join_all(seats.iter().map(|holder| self.shared.record_seat_heartbeat(holder.ticket_id))).await);
        let ttls_ms = extended.into_iter().flatten().flatten().map(|(_, ttl_ms)| ttl_ms);
        ttls_ms.min().unwrap_or(REPORTED_TTL_WITHOUT_QUEUE_MS) / 3
    }

    /// Status of a ticket, if it differs from the last one sent.
    fn status_if_changed(&mut self, id: TicketId) -> Option<TicketStatus> {
        let stored = self.shared.cache.read().ticket(id).cloned();
        // `None`: the ticket was purged, or has not arrived from another replica yet.
        let stored = stored?;
        let holder = *self.holders.get(&id)?;
        let progress = self.shared.ticket_progress(&stored);
        let versions = Some((progress.resume_claim.ticket_version, progress.resume_claim.match_version));
        let has_ended = is_ticket_ended(&stored);
        if self.sent_versions.get(&id).is_none_or(|sent| *sent == versions && !has_ended) {
            return None;
        }
        let now = self.shared.common.clock.now();
        let status = self.shared.ticket_status_at_progress(&holder, &stored, progress, now);
        // While the players report the result, the ticket of an ended match has more to tell.
        let reports = status.match_view.as_ref().and_then(|view| view.report_state);
        let is_final = has_ended && !matches!(reports, Some(ReportState::Waiting { .. }));
        let sent_versions = self.sent_versions.get_mut(&id)?;
        if *sent_versions == versions && !is_final {
            return None;
        }
        *sent_versions = versions;
        // The status tells of a ready check.
        self.shared.acknowledge_ready_check_in_background(&stored, &holder);
        if is_final {
            self.stop_watching(id);
        }
        Some(status)
    }

    /// Ends the subscription to a ticket.
    fn stop_watching(&mut self, id: TicketId) {
        self.sent_versions.remove(&id);
        self.shared.cache.write().unsubscribe(id, &self.notifier);
    }
}

impl Drop for TicketWatch {
    fn drop(&mut self) {
        let mut cache = self.shared.cache.write();
        self.sent_versions.keys().for_each(|id| cache.unsubscribe(*id, &self.notifier));
    }
}
