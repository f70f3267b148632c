//! Ticket heartbeats, answered from memory while the stored expiry is far enough away.

use std::sync::Arc;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::lifecycle::{Assignment, Match};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::{HostingMode, HostingSpec};
use crate::engine::error::EngineError;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::stored_ticket::{is_ticket_ended, queue_key_of};
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketState};

/// TTL that a heartbeat answer has for a ticket whose set has no queue any more, milliseconds. A watch derives its heartbeat
/// interval from it too.
pub(crate) const REPORTED_TTL_WITHOUT_QUEUE_MS: u32 = 60_000;

impl SharedState {
    /// Extends a ticket that has not ended, and keeps the match alive that its player hosts. Writes to the store only
    /// when less than two thirds of the TTL are left, so a caller that sends one per half of the TTL never comes too late. Returns
    /// the ticket and the time until it expires, milliseconds.
    pub(crate) async fn heartbeat_ticket(&self, id: TicketId) -> Result<Option<(StoredTicket, u32)>, EngineError> {
        let Some(stored) = self.find_ticket(id).await? else { return Ok(None) };
        let now = self.common.clock.now();
        if !is_ticket_ended(&stored) {
            let users: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
            self.connected_users.lock().record_connected(queue_key_of(&stored.ticket), users, now);
        }
        let ruleset = self.common.rulesets.ruleset_in_force(stored.ticket.set_id);
        // In a set without a queue, a ticket that does not wait is in a match of a session.
        let has_ttl = |ruleset: &&Arc<Ruleset>| ruleset.queue.is_some() || stored.state != TicketState::Waiting;
        let Some(ttl_ms) = ruleset.as_ref().filter(has_ttl).map(|ruleset| ruleset.ticket_ttl_ms()) else {
            return Ok(Some((stored, REPORTED_TTL_WITHOUT_QUEUE_MS)));
        };
        let reported_ttl_ms = self.reported_ttl_ms(&stored, ruleset.as_deref(), ttl_ms);
        let mut is_unheard_in_match = false;
        if let TicketState::InMatch(match_id) = stored.state {
            self.keep_peer_hosted_match_alive(match_id, id, now).await;
            is_unheard_in_match = self.is_unheard_since_match_start(match_id, &stored);
        }
        let is_ended = matches!(stored.state, TicketState::Ended { .. });
        if is_ended {
            return Ok(Some((stored, reported_ttl_ms)));
        }
        let left_ms = stored.expires_at.ms_since(now);
        if 3 * left_ms > 2 * u64::from(ttl_ms) && !is_unheard_in_match {
            let left_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
            return Ok(Some((stored, reported_ttl_ms.min(left_ms))));
        }
        let expires_at = now.plus_ms(u64::from(ttl_ms));
        match self.submit_write(QueueWrite::Heartbeat { ticket_id: id, expires_at, now }).await? {
            QueueOutcome::CurrentTicket(stored) => {
                self.wait_for_cached_match_end(&stored).await;
                Ok(Some((stored, reported_ttl_ms)))
            }
            _ => Ok(None),
        }
    }

    /// Waits until the match that has ended a ticket is in memory as it has ended.
    async fn wait_for_cached_match_end(&self, stored: &StoredTicket) {
        if let Some(known) = self.outdated_match_of_ended_ticket(stored) {
            // Without the match the status still says that the ticket has ended.
            let _ = self.wait_for_newer_match(&known).await;
        }
    }

    /// Match that has ended the ticket in the store and is running in memory: another server has ended it, and the store has
    /// answered before the feed. A status of the ticket would have no reason of the end, and its receiver looks no more.
    pub(super) fn outdated_match_of_ended_ticket(&self, stored: &StoredTicket) -> Option<Arc<Match>> {
        let TicketState::Ended { match_id: Some(id), .. } = stored.state else { return None };
        if !self.has_replicas {
            return None;
        }
        let known = self.cache.read().match_by_id(id).cloned();
        known.filter(|known| known.stage.end_reason().is_none())
    }

    /// Heartbeat of one player's client, in a ticket that another caller keeps alive. It counts as the ticket's heartbeat
    /// once a host is named, since the player may be the host.
    pub(crate) async fn record_seat_heartbeat(&self, id: TicketId) -> Result<Option<(StoredTicket, u32)>, EngineError> {
        let Some(stored) = self.find_ticket(id).await? else { return Ok(None) };
        let has_host = match stored.state {
            TicketState::InMatch(match_id) => self
                .cache
                .read()
                .match_by_id(match_id)
                .is_some_and(|found| found.stage.assignment_since_confirming().is_some()),
            TicketState::Waiting | TicketState::Ended { .. } => false,
        };
        if has_host {
            return self.heartbeat_ticket(id).await;
        }
        let ruleset = self.common.rulesets.ruleset_in_force(stored.ticket.set_id);
        let queue = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref());
        Ok(Some((stored, queue.map_or(REPORTED_TTL_WITHOUT_QUEUE_MS, |queue| queue.ticket_ttl_ms))))
    }

    /// Whether the match of a ticket is being played and the ticket was not heard since. What its players' reports are worth
    /// depends on that, so the first heartbeat is written.
    fn is_unheard_since_match_start(&self, match_id: MatchId, stored: &StoredTicket) -> bool {
        let cache = self.cache.read();
        cache.match_by_id(match_id).is_some_and(|match_| !self.was_ticket_heard_since_start(match_, stored))
    }

    /// TTL that a heartbeat reports: a ticket whose player may host a match is heard often enough to keep it.
    fn reported_ttl_ms(&self, stored: &StoredTicket, ruleset: Option<&Ruleset>, ttl_ms: u32) -> u32 {
        match (self.hosting_spec_if_player_may_host(stored, ruleset), stored.state) {
            (Some(hosting), TicketState::InMatch(_)) => ttl_ms.min(hosting.host_loss_ms),
            _ => ttl_ms,
        }
    }

    /// Hosting of a ticket of which a player may host a match: by the ruleset, or because a player hosts its session.
    pub(crate) fn hosting_spec_if_player_may_host(
        &self,
        stored: &StoredTicket,
        ruleset: Option<&Ruleset>,
    ) -> Option<HostingSpec> {
        let hosting = ruleset?.hosting;
        let is_hosted_by_player = || {
            let TicketState::InMatch(id) = stored.state else { return false };
            let cache = self.cache.read();
            let host = cache.match_by_id(id).and_then(|match_| match_.stage.assignment_since_confirming());
            matches!(host, Some(Assignment::PeerHost { .. }))
        };
        (hosting.mode == HostingMode::Peer || is_hosted_by_player()).then_some(hosting)
    }
}
