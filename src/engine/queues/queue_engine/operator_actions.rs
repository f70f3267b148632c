//! Actions of operators: cancel a match, dismiss a ticket.

use crate::domain::id::{MatchId, TicketId};
use crate::domain::lifecycle::MatchEndReason;
use crate::domain::lifecycle::event::{EventResult, MatchEvent};
use crate::domain::queue::ticket::TicketEndReason;
use crate::engine::error::EngineError;
use crate::engine::queues::operator_command::{CancelMatchAnswer, DismissTicketAnswer};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::shared_state::FoundMatch;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::{QueueOutcome, QueueWrite, TicketState};

/// Maximum attempts while the ticket changes between waiting and its match.
const DISMISS_ATTEMPTS_MAX: usize = 16;

impl QueueEngine {
    /// Cancels a match in any stage. Its tickets wait again, unless a player has left. Idempotent.
    pub async fn cancel_match(&self, id: MatchId) -> Result<CancelMatchAnswer, EngineError> {
        let known = self.shared.find_match(id).await?.ok_or(EngineError::MatchNotFound)?.into_match();
        if let Some(end_reason) = known.stage.end_reason() {
            return Ok(CancelMatchAnswer { end_reason, had_ended: true });
        }
        let outcome = self.shared.apply_match_event(id, MatchEvent::Cancelled).await?;
        let end_reason = outcome.match_after.stage.end_reason().ok_or(EngineError::Internal)?;
        let had_ended = outcome.result != EventResult::Changed || end_reason != MatchEndReason::Cancelled;
        Ok(CancelMatchAnswer { end_reason, had_ended })
    }

    /// Ends a ticket that waits or whose match is not being played yet; the match's other tickets wait again. Idempotent.
    pub async fn dismiss_ticket(&self, ticket_id: TicketId) -> Result<DismissTicketAnswer, EngineError> {
        let end_reason = TicketEndReason::EndedByServer;
        if let TicketState::Ended { end_reason, .. } = self.find_ticket(ticket_id).await?.state {
            return Ok(DismissTicketAnswer { end_reason, had_ended: true });
        }
        for _ in 0..DISMISS_ATTEMPTS_MAX {
            let now = self.shared.common.clock.now();
            let purge_at = now.plus_ms(self.shared.common.settings.ended_ticket_retention_ms);
            let write = QueueWrite::EndTicket { ticket_id, end_reason, purge_at, now };
            let QueueOutcome::CurrentTicket(stored) = self.shared.submit_write(write).await? else {
                return Err(EngineError::TicketNotFound);
            };
            let match_id = match stored.state {
                TicketState::Ended { end_reason, .. } => {
                    return Ok(DismissTicketAnswer { end_reason, had_ended: false });
                }
                TicketState::InMatch(match_id) => match_id,
                TicketState::Waiting => return Err(EngineError::Internal),
            };
            match self.shared.find_match(match_id).await? {
                Some(FoundMatch::Cached(_)) => {}
                // It has just ended: the ticket has ended too, or waits again.
                Some(FoundMatch::EndedInStore(_)) => continue,
                None => return Err(EngineError::MatchNotFound),
            }
            let event = MatchEvent::TicketWithdrawn { ticket_id, reason: end_reason };
            let outcome = self.shared.apply_match_event(match_id, event).await?;
            match outcome.result {
                EventResult::Changed => return Ok(DismissTicketAnswer { end_reason, had_ended: false }),
                EventResult::WrongStage if outcome.match_after.stage.end_reason().is_none() => {
                    return Err(EngineError::TicketInPlay { match_id });
                }
                // The match has just ended: the ticket has ended too, or waits again.
                EventResult::WrongStage | EventResult::AlreadyApplied => {}
                EventResult::TooEarly | EventResult::TooLate | EventResult::UnknownParticipant => {
                    return Err(EngineError::Internal);
                }
            }
        }
        Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }
}
