//! Allocators: they connect, and answer offers with a place or a refusal.

use std::sync::Arc;

use crate::auth::token::AllocationOfferClaim;
use crate::domain::id::MatchId;
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::lifecycle::{Assignment, Match, MatchStage};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::engine::queues::allocator_stream::AllocatorStream;
use crate::engine::queues::command::{AllocatorRegistration, OfferAnswer};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::allocation_offers::{OfferWrite, StoredOffer};
use crate::telemetry::label::OfferEvent;

impl QueueEngine {
    /// Connects an allocator; `None` if too many are connected to this server.
    pub fn connect_allocator(&self, registration: AllocatorRegistration) -> Option<AllocatorStream> {
        AllocatorStream::connect(Arc::clone(&self.shared), registration)
    }

    /// Applies an answer to an offer. Returns whether it is accepted: a place is not if it came too late. Idempotent: a
    /// place that was accepted stays so while the match is on it.
    pub async fn answer_offer(&self, caller: &Caller, answer: OfferAnswer) -> Result<bool, EngineError> {
        let signer = &self.shared.common.token_signer;
        let claim = signer.verify::<AllocationOfferClaim>(&answer.offer_token).ok_or(EngineError::NotOwner)?;
        if claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        let was_open = self.shared.allocators.lock().close_offer(claim.match_id, claim.number);
        let (accepted, event) = match answer.connect_data {
            Some(connect_data) => match self.place_match(&claim, connect_data).await? {
                true => (true, OfferEvent::Placed),
                false => (false, OfferEvent::NotWanted),
            },
            None => {
                let AllocationOfferClaim { match_id, number, .. } = claim;
                let reason = answer.refusal_reason;
                tracing::debug!(%match_id, number, reason, "allocation offer refused");
                self.write_offer(OfferWrite::Close { match_id, number }).await?;
                (true, OfferEvent::Refused)
            }
        };
        // A repeated answer counts once.
        if was_open || event == OfferEvent::NotWanted {
            self.shared.common.metrics.allocation_offers.get_or_create(&event).inc();
        }
        self.shared.allocation_offer_wakeup.notify_one();
        Ok(accepted)
    }

    /// Places the match, if the offer is still open. Returns whether the match is on this place.
    async fn place_match(&self, claim: &AllocationOfferClaim, connect_data: Vec<u8>) -> Result<bool, EngineError> {
        let is_on_place = |match_: &Match| {
            let host = match_.stage.assignment_since_confirming();
            host.is_some_and(|host| host.is_on_game_server_with_id(claim.advertisement_id))
        };
        let Some(match_) = self.find_agreed_match(claim.match_id).await? else { return Ok(false) };
        let is_rejected = match_.servers_that_did_not_confirm.contains(&claim.advertisement_id);
        if is_on_place(&match_) || is_rejected || match_.stage.end_reason().is_some() {
            return Ok(is_on_place(&match_));
        }
        let stored = self.write_offer(OfferWrite::Read { match_id: claim.match_id }).await?;
        let now = self.shared.common.clock.now();
        if !stored.is_some_and(|offer| offer.number == claim.number && now < offer.answer_by) {
            // Another server may have accepted this place.
            let newer = self.shared.wait_for_newer_match(&match_).await?;
            return Ok(newer.is_some_and(|newer| is_on_place(&newer)));
        }
        let signer = &self.shared.common.token_signer;
        let found = Assignment::GameServer {
            advertisement: claim.advertisement_id,
            // There is no such reservation: releasing it has no effect.
            reservation: Some(signer.derive_reservation_id(None, claim.advertisement_id, &claim.match_id.to_string())),
            connect_data,
        };
        let outcome = self.shared.apply_match_event(claim.match_id, MatchEvent::ServerFound(found)).await?;
        Ok(is_on_place(&outcome.match_after))
    }

    /// Match that has no ready check, or whose players have passed it: offers are made after it. The feed of another server than the one that
    /// made the offer may be late; then the answer is to be repeated. `None` if the match does not exist, or its ready check runs.
    async fn find_agreed_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        let is_agreed = |match_: &&Arc<Match>| !matches!(match_.stage, MatchStage::ReadyCheck { .. });
        if let Some(agreed) =
            self.shared.wait_for_cached(|cache| cache.match_by_id(id).filter(is_agreed).cloned()).await
        {
            return Ok(Some(agreed));
        }
        let Some(found) = self.shared.find_match(id).await? else { return Ok(None) };
        let found = found.into_match();
        if is_agreed(&&found) {
            return Ok(Some(found));
        }
        Ok(self.shared.wait_for_newer_match(&found).await?.filter(|newer| is_agreed(&newer)))
    }

    async fn write_offer(&self, write: OfferWrite) -> Result<Option<StoredOffer>, EngineError> {
        let common = &self.shared.common;
        match common.store.apply_offer_writes(&[write], common.clock.now()).await {
            Ok(rows) => Ok(rows.into_iter().next().flatten()),
            Err(error) => {
                tracing::warn!(%error, "allocation offer write failed");
                Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })
            }
        }
    }
}
