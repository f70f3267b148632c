//! Tickets and cooldowns of a player, for the player's own client; others may have entered the tickets.

use crate::auth::token::{TicketClaim, TicketSeatClaim};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::queues::command::{OwnTicket, OwnTicketsAndCooldowns};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::StoredTicket;

/// Maximum number of ended tickets in one answer. A player has more only with matches of seconds.
const TICKETS_AWAITING_REPORT_MAX: usize = 16;

impl QueueEngine {
    /// Tickets of the caller's user that have not ended, those of matches that wait for the user's report, each with a token, and the
    /// user's cooldowns. For open tickets the store's rows decide, as they do for Enter, so each server gives the same answer.
    /// Callers without a user have neither.
    pub async fn own_tickets(&self, caller: &Caller) -> Result<OwnTicketsAndCooldowns, EngineError> {
        let Some(user) = caller.user else { return Ok(OwnTicketsAndCooldowns::default()) };
        let common = &self.shared.common;
        let stored = common.store.read_tickets_match_and_penalties(user).await.map_err(|error| {
            tracing::warn!(%error, "read of a user failed");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })?;
        let now = common.clock.now();
        let mut found = Vec::with_capacity(stored.tickets.len());
        for membership in &stored.tickets {
            // It may have ended and been forgotten since the read.
            found.extend(self.shared.find_ticket(membership.ticket_id).await?);
        }
        let is_new = |ended: &&StoredTicket| found.iter().all(|open| open.ticket.id != ended.ticket.id);
        let cache = self.shared.cache.read();
        let to_report: Vec<StoredTicket> =
            cache.reportable_tickets_of(user).filter(is_new).take(TICKETS_AWAITING_REPORT_MAX).cloned().collect();
        drop(cache);
        found.extend(to_report);
        let mut tickets = Vec::with_capacity(found.len());
        for found in found {
            let (ticket_id, set_id) = (found.ticket.id, found.ticket.set_id);
            let is_seat_token = found.ticket.subject != caller.subject;
            let ticket_token = match is_seat_token {
                true => common.token_signer.sign(&TicketSeatClaim { ticket_id, set_id, user }),
                false => common.token_signer.sign(&TicketClaim { ticket_id, set_id, subject: caller.subject }),
            };
            let holder = TicketTokenHolder { ticket_id, set_id, user: Some(user), is_seat_token };
            let status = self.shared.ticket_status_for(&holder, &found, now);
            tickets.push(OwnTicket { status, ticket_token, is_seat_token });
        }
        let cooldown_ms = |until: crate::domain::time::UnixMs| u32::try_from(until.ms_since(now)).unwrap_or(u32::MAX);
        let active = stored.penalties.iter().filter_map(|(set_id, penalty)| {
            penalty.active_cooldown_end(now).map(|until| (*set_id, cooldown_ms(until).max(1)))
        });
        Ok(OwnTicketsAndCooldowns { tickets, cooldowns: active.collect() })
    }
}
