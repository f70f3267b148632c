//! Signs of life of the host of a match: they confirm the match, and keep it alive during play.

use std::sync::Arc;

use crate::domain::id::{MatchId, TicketId};
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::lifecycle::{Assignment, Match, MatchStage};
use crate::domain::time::UnixMs;
use crate::engine::error::EngineError;
use crate::engine::queues::shared_state::SharedState;
use crate::rules::catalog::MatchRulesetLookup;

impl SharedState {
    /// Applies a sign of life of the host at `now`. Writes only to confirm, and when less than two thirds are left of the time
    /// in which the host must be heard, so one who is heard each half of it is not lost. Returns the match as it is then.
    pub(crate) async fn apply_host_heartbeat(
        &self,
        match_: &Arc<Match>,
        now: UnixMs,
    ) -> Result<Arc<Match>, EngineError> {
        let MatchRulesetLookup::Known(ruleset) = self.common.ruleset_of_match(match_.set_id, match_.ruleset_hash)
        else {
            return Ok(Arc::clone(match_));
        };
        let host_loss_ms = u64::from(ruleset.hosting.host_loss_ms);
        let is_needed = match match_.stage {
            MatchStage::Confirming { .. } => true,
            MatchStage::Playing { host_lost_at: Some(lost_at), .. } => 3 * lost_at.ms_since(now) <= 2 * host_loss_ms,
            _ => false,
        };
        if !is_needed {
            return Ok(Arc::clone(match_));
        }
        let event = MatchEvent::HostHeard { lost_at: now.plus_ms(host_loss_ms) };
        Ok(self.apply_match_event(match_.id, event).await?.match_after)
    }

    /// Counts a heartbeat of a ticket as a sign of life of the match, if one of its players hosts it.
    pub(crate) async fn keep_peer_hosted_match_alive(&self, match_id: MatchId, ticket_id: TicketId, now: UnixMs) {
        let Some(match_) = self.cache.read().match_by_id(match_id).cloned() else { return };
        if is_hosted_by_ticket(&match_, ticket_id)
            && let Err(error) = self.apply_host_heartbeat(&match_, now).await
        {
            tracing::debug!(?error, %match_id, "heartbeat of a peer host not applied");
        }
    }
}

/// Whether a player of the ticket, who has not left, is the named host.
pub(crate) fn is_hosted_by_ticket(match_: &Match, ticket_id: TicketId) -> bool {
    let Some(Assignment::PeerHost { host }) = match_.stage.assignment_since_confirming() else { return false };
    let mut players = match_.present_players();
    players.any(|(match_ticket, player)| match_ticket.ticket_id == ticket_id && player.client == *host)
}
