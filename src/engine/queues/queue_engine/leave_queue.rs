//! Leave command: takes a party, or some of its players, out of the queue or out of its match, in every stage.

use crate::domain::id::{TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::event::{EventResult, MatchEvent};
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::command::{LeaveQueueAnswer, LeaveQueueCommand};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::shared_state::FoundMatch;
use crate::engine::queues::stored_ticket::is_ticket_ended;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketState};

/// Maximum attempts while the ticket changes between waiting and its match.
const ATTEMPTS_MAX: usize = 16;

impl QueueEngine {
    /// Ends a waiting ticket, or takes players out of its match. Idempotent.
    pub async fn leave_queue(
        &self,
        caller: &Caller,
        command: &LeaveQueueCommand,
    ) -> Result<LeaveQueueAnswer, EngineError> {
        let holder = self.verify_ticket_token(caller, &command.ticket)?;
        let ticket = self.find_ticket(holder.ticket_id).await?.ticket;
        check_players(&ticket, &command.users)?;
        let mut users = holder.named_or_all_users(&ticket, &command.users)?;
        if users.len() == ticket.session.players.len() {
            // All of them, also those who have left before.
            users.clear();
        }
        let stored = self.end_ticket_or_leave_match(holder.ticket_id, &users, holder.user).await?;
        Ok(self.leave_answer(&holder, &stored))
    }

    /// Ends a waiting ticket, or takes `users`, by default all, out of its match, for `left_by`. Returns the ticket afterwards.
    pub(super) async fn end_ticket_or_leave_match(
        &self,
        ticket_id: TicketId,
        users: &[UserKey],
        left_by: Option<UserKey>,
    ) -> Result<StoredTicket, EngineError> {
        for _ in 0..ATTEMPTS_MAX {
            let now = self.shared.common.clock.now();
            let purge_at = now.plus_ms(self.shared.common.settings.ended_ticket_retention_ms);
            let write = QueueWrite::EndTicket { ticket_id, end_reason: TicketEndReason::Left, purge_at, now };
            let QueueOutcome::CurrentTicket(stored) = self.shared.submit_write(write).await? else {
                return Err(EngineError::TicketNotFound);
            };
            let TicketState::InMatch(match_id) = stored.state else { return Ok(stored) };
            match self.shared.find_match(match_id).await? {
                Some(FoundMatch::Cached(_)) => {}
                // It has just ended: the ticket has ended too, or waits again.
                Some(FoundMatch::EndedInStore(_)) => continue,
                None => return Err(EngineError::MatchNotFound),
            }
            let event = MatchEvent::PlayersLeft { ticket_id, users: users.to_vec(), left_by };
            let outcome = self.shared.apply_match_event(match_id, event).await?;
            match outcome.result {
                EventResult::Changed | EventResult::AlreadyApplied => {
                    self.release_session_seats(&outcome.match_after, ticket_id);
                    return self.find_ticket(ticket_id).await;
                }
                // The match has just ended: the ticket has ended too, or waits again.
                EventResult::WrongStage | EventResult::TooEarly | EventResult::TooLate => {}
                EventResult::UnknownParticipant => return Err(EngineError::Internal),
            }
        }
        Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Releases the seats of the players of a ticket who have left a session's match: its host cannot name them again unless they
    /// come back with a new reservation.
    fn release_session_seats(&self, match_: &Match, ticket_id: TicketId) {
        let Some(start) = &match_.session_match_start_by_host else { return };
        let tickets = match_.tickets.iter().zip(&start.reservations);
        let Some((match_ticket, Some(reservation))) = tickets.into_iter().find(|(own, _)| own.ticket_id == ticket_id)
        else {
            return;
        };
        for player in match_ticket.players.iter().filter(|player| player.left_at.is_some()) {
            let session = (start.advertisement, match_.set_id);
            self.shared.adverts.release_seat_of(player.user, session, *reservation);
        }
    }

    fn leave_answer(&self, holder: &TicketTokenHolder, stored: &StoredTicket) -> LeaveQueueAnswer {
        let status = self.shared.ticket_status_for(holder, stored, self.shared.common.clock.now());
        if is_ticket_ended(stored) { LeaveQueueAnswer::Ended(status) } else { LeaveQueueAnswer::StillMatched(status) }
    }
}

/// Checks that all `users` are players of the ticket.
fn check_players(ticket: &Ticket, users: &[UserKey]) -> Result<(), EngineError> {
    let is_player = |user: &UserKey| ticket.session.players.iter().any(|player| player.user == *user);
    if users.iter().all(is_player) {
        return Ok(());
    }
    Err(field_error("user_ids", "must be players of the ticket; name none for the whole party"))
}
