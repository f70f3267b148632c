//! Durable block list of a user: changed by the user's own client, or by a game server for the user.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::limit;
use crate::engine::command::{Caller, UpdateBlockListCommand};
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::writer_inbox::PendingAnswer;
use crate::store::queues::{QueueOutcome, QueueWrite};

impl QueueEngine {
    /// Changes a block list. The answer is its length, once the change is durable. It cannot be cancelled.
    pub(crate) fn update_block_list(
        &self,
        caller: &Caller,
        update: UpdateBlockListCommand,
    ) -> Result<PendingAnswer<usize>, EngineError> {
        let UpdateBlockListCommand { user, change } = update;
        let user = match (caller.user, user) {
            (Some(own), Some(named)) if own != named => return Err(EngineError::NotOwner),
            (own, named) => named.or(own).ok_or_else(|| {
                field_error("user_id", "is missing; callers without a user name the user whose list it is")
            })?,
        };
        if let Some(index) = change.add.iter().position(|added| *added == user) {
            return Err(field_error(format!("add_user_ids[{index}]"), "is the user whose list it is; leave it out"));
        }
        let (shared, (reply, answer)) = (Arc::clone(&self.shared), oneshot::channel());
        tokio::spawn(async move {
            let updated = match shared.submit_write(QueueWrite::UpdateBlockList { user, change }).await {
                Ok(QueueOutcome::BlockListUpdated(list)) => Ok(list.blocked.len()),
                Ok(QueueOutcome::BlockListFull) => {
                    Err(EngineError::BlockListFull { limit: limit::BLOCKED_USERS_PER_LIST_MAX })
                }
                Ok(_) => Err(EngineError::Internal),
                Err(error) => Err(error),
            };
            let _ = reply.send(updated);
        });
        Ok(PendingAnswer::Pending(answer))
    }
}
