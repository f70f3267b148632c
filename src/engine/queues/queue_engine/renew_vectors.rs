//! Renewal of a player's round trips to beacons, while its ticket waits or is in a match.

use crate::domain::queue::seat_vectors::SeatIndex;
use crate::domain::time::UnixMs;
use crate::engine::beacons::party_latency::published_caller_vector;
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::queues::command::TicketReference;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::store::queues::{QueueWrite, StoredTicket, TicketState};

/// Time that a vector still counts from which on it is not renewed, milliseconds: renewals write to the store.
const RENEW_BEFORE_EXPIRY_MS: u64 = 300_000;

impl QueueEngine {
    /// Renews the round trips of the caller's own player in these tickets by its latency token, if there is one.
    pub async fn renew_vectors(
        &self,
        caller: &Caller,
        tickets: &[TicketReference],
        latency_token: &[u8],
    ) -> Result<(), EngineError> {
        if latency_token.is_empty() {
            return Ok(());
        }
        let holders: Result<Vec<TicketTokenHolder>, EngineError> =
            tickets.iter().map(|ticket| self.verify_ticket_token(caller, ticket)).collect();
        self.renew_vectors_as(caller, &holders?, latency_token).await
    }

    /// As [`QueueEngine::renew_vectors`], for verified holders.
    pub(super) async fn renew_vectors_as(
        &self,
        caller: &Caller,
        holders: &[TicketTokenHolder],
        latency_token: &[u8],
    ) -> Result<(), EngineError> {
        if latency_token.is_empty() {
            return Ok(());
        }
        let (common, now) = (&self.shared.common, self.shared.common.clock.now());
        for holder in holders {
            // The call goes on without a renewal: a heartbeat may need no write.
            let Ok(Some(stored)) = self.shared.find_ticket(holder.ticket_id).await else { continue };
            let Some(seat) = own_seat(holder, &stored).filter(|seat| needs_renewal(&stored, *seat, now)) else {
                continue;
            };
            let Some(ruleset) = common.rulesets.ruleset_in_force(holder.set_id) else { continue };
            let Some(vector) = published_caller_vector(common, caller, &ruleset, latency_token, now) else { continue };
            let write = QueueWrite::RenewBeaconVector { ticket_id: holder.ticket_id, seat, vector };
            if let Err(error) = self.shared.submit_write(write).await {
                tracing::debug!(?error, ticket = %holder.ticket_id, "round trips not renewed");
            }
        }
        Ok(())
    }
}

/// Player of the ticket whose round trips a holder may renew: its own. A caller without a user renews those of the first.
fn own_seat(holder: &TicketTokenHolder, stored: &StoredTicket) -> Option<SeatIndex> {
    let index = match holder.user {
        Some(own) => stored.ticket.session.players.iter().position(|player| player.user == own)?,
        None => 0,
    };
    u8::try_from(index).ok().map(SeatIndex)
}

fn needs_renewal(stored: &StoredTicket, seat: SeatIndex, now: UnixMs) -> bool {
    let is_open = !matches!(stored.state, TicketState::Ended { .. });
    let lifetime_ms = stored.seat_vectors.of_seat(seat).map_or(0, |vector| vector.expires_at().ms_since(now));
    is_open && lifetime_ms <= RENEW_BEFORE_EXPIRY_MS
}
