//! Players who had the chance to answer a ready check: their client, or the one that may answer for them, received the
//! match, by a status on its stream or by the answer to its heartbeat.
//!
//! The store records it with the ticket, so that the server that applies the deadline knows it, also after a restart. It
//! is not recorded while the store is unavailable: then no one is at fault for silence.

use tokio::sync::oneshot;

use crate::domain::id::MatchId;
use crate::domain::lifecycle::MatchStage;
use crate::domain::lifecycle::deadline::effective_deadline;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::queues::writer_command::QueueWriterCommand;
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket, TicketState};

impl SharedState {
    /// Records that the holder heard of an open ready check, and returns the ticket as it is then.
    pub(crate) async fn acknowledge_ready_check(
        &self,
        stored: StoredTicket,
        holder: &TicketTokenHolder,
    ) -> StoredTicket {
        let Some(write) = self.acknowledgement(&stored, holder) else { return stored };
        match self.submit_write(write).await {
            Ok(QueueOutcome::CurrentTicket(current)) => current,
            // A player whose acknowledgement is not recorded is not at fault for silence.
            _ => stored,
        }
    }

    /// Records the same without waiting for the store.
    pub(crate) fn acknowledge_ready_check_in_background(&self, stored: &StoredTicket, holder: &TicketTokenHolder) {
        if let Some(write) = self.acknowledgement(stored, holder) {
            let (reply, _) = oneshot::channel();
            // As above, if the writer has too much to do.
            let _ = self.send_to_queue_writer(QueueWriterCommand::Write(Box::new(write), reply, None));
        }
    }

    /// Write that records it; `None` if there is nothing to record.
    fn acknowledgement(&self, stored: &StoredTicket, holder: &TicketTokenHolder) -> Option<QueueWrite> {
        let TicketState::InMatch(match_id) = stored.state else { return None };
        let acknowledged =
            self.unanswered_player_bits_of_ticket(stored, match_id)? & holder.player_bits(&stored.ticket);
        let is_new = acknowledged & !stored.ready_check_delivered_mask != 0;
        is_new.then_some(QueueWrite::RecordReadyCheckDelivery { ticket_id: stored.ticket.id, match_id, acknowledged })
    }

    /// Players of a ticket who can still answer a ready check, as bits.
    fn unanswered_player_bits_of_ticket(&self, stored: &StoredTicket, match_id: MatchId) -> Option<u64> {
        let match_ = self.cache.read().match_by_id(match_id).cloned()?;
        let deadline = match match_.stage {
            MatchStage::ReadyCheck { .. } => {
                effective_deadline(None, &match_, &self.common.server_outages.outages_extending_deadlines())?
            }
            _ => return None,
        };
        let match_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == stored.ticket.id)?;
        let players = match_ticket.players.iter().zip(0..u64::BITS).filter(|(player, _)| player.accepted.is_none());
        (self.common.clock.now() < deadline).then(|| players.fold(0, |bits, (_, index)| bits | 1 << index))
    }
}
