//! Advertisement writer: the only task that changes advertisements. Commits queued commands in one transaction, applies
//! them to memory in the same order, and answers. Clients cannot cancel a command.

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::rating_refresh::RatingRefresh;
use crate::engine::adverts::replicated_writer::ReplicatedWriter;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::store::{AdvertWrite, StoreError};

/// Maximum commands per transaction: enough to amortize a commit, few enough to keep its latency low.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// Processes commands until stopped, and then the rest of the inbox.
pub(crate) async fn run_advert_writer(
    state: Arc<AdvertState>,
    mut inbox: mpsc::Receiver<AdvertWriterCommand>,
    shutdown: CancellationToken,
) {
    let mut commands = Vec::with_capacity(BATCH_COMMANDS_MAX);
    let mut replicated_writer = state.replication.clone().map(ReplicatedWriter::new);
    let mut rating_refresh = RatingRefresh::new(&state);
    loop {
        let received = tokio::select! {
            biased;
            received = inbox.recv_many(&mut commands, BATCH_COMMANDS_MAX) => received,
            () = shutdown.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
            () = rating_refresh.wait_until_refresh_due(), if !inbox.is_closed() => {
                rating_refresh.refresh(&state).await;
                continue;
            }
        };
        if received == 0 {
            return;
        }
        let mut batch = AdvertBatch::default();
        for command in commands.drain(..) {
            if batch.must_commit_before(&command) {
                batch.commit_batch(&state, replicated_writer.as_mut()).await;
            }
            match command {
                AdvertWriterCommand::SetRulesets(rulesets, reply) => {
                    let state = Arc::clone(&state);
                    let build = move || state.advert_sets.set_indexed_rulesets(rulesets);
                    if let Err(error) = tokio::task::spawn_blocking(build).await
                        && let Ok(panic) = error.try_into_panic()
                    {
                        // The sets may be half changed, so this task must not continue.
                        resume_unwind(panic);
                    }
                    let _ = reply.send(());
                }
                AdvertWriterCommand::Flush(reply) => {
                    rating_refresh.refresh(&state).await;
                    // The receiver may be gone.
                    let _ = reply.send(());
                }
                AdvertWriterCommand::ApplyFeed(feed_batch, as_of_batch) => {
                    if let Some(replicated_writer) = &mut replicated_writer {
                        replicated_writer.apply_feed(&state, *feed_batch, as_of_batch);
                        replicated_writer.write_unwritten_adverts(&state).await;
                    }
                }
                command => {
                    #[cfg(feature = "failpoints")]
                    crate::engine::fail_points::fail_in_advert_writer();
                    batch.add_command(&state, command);
                }
            }
        }
        batch.commit_batch(&state, replicated_writer.as_mut()).await;
    }
}

/// Commands of one transaction, with their writes.
#[derive(Default)]
struct AdvertBatch {
    commands: Vec<AdvertWriterCommand>,
    writes: Vec<AdvertWrite>,
    changed_adverts: HashSet<AdvertisementId, BuildIdHasher>,
}

impl AdvertBatch {
    /// Whether this batch must be committed before `command` is prepared, because the command reads what the batch
    /// changes.
    fn must_commit_before(&self, command: &AdvertWriterCommand) -> bool {
        match command {
            AdvertWriterCommand::Publish(..) | AdvertWriterCommand::Delete(..) | AdvertWriterCommand::EraseUser(..) => {
                false
            }
            AdvertWriterCommand::ExtendTtl(extend, ..) => self.changed_adverts.contains(&extend.id),
            AdvertWriterCommand::ReserveSeats(reserve, ..) => self.changed_adverts.contains(&reserve.advertisement_id),
            AdvertWriterCommand::ReleaseReservation(_, id, ..)
            | AdvertWriterCommand::ReleaseSeat(_, _, id, ..)
            | AdvertWriterCommand::ExpireHold(_, id, _)
            | AdvertWriterCommand::ExpireAdvert(id, ..) => self.changed_adverts.contains(id),
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => !self.commands.is_empty(),
        }
    }

    /// Adds a command, unless it was answered from memory.
    fn add_command(&mut self, state: &AdvertState, command: AdvertWriterCommand) {
        let now = state.common.clock.now();
        if let Some((command, write)) = state.prepare_write_or_answer(command, now) {
            self.changed_adverts.insert(write.advertisement_id());
            self.commands.push(command);
            self.writes.push(write);
        }
    }

    async fn commit_batch(&mut self, state: &AdvertState, replicated_writer: Option<&mut ReplicatedWriter>) {
        if self.commands.is_empty() {
            return;
        }
        let (commands, writes) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.writes));
        self.changed_adverts.clear();
        if let Some(replicated_writer) = replicated_writer {
            return replicated_writer.commit_or_handle_without_store(state, commands, &writes).await;
        }
        let result = state.common.store.commit_adverts(&writes).await;
        state.common.record_commit(&result);
        match result {
            Ok(result) => state.apply_committed_batch(commands, &writes, result.outcomes),
            Err(error) => fail_batch(state, commands, &error, state.common.clock.now()),
        }
    }
}

/// Rejects a batch whose commit failed. Clients may retry, and the next sweep repeats its own commands.
fn fail_batch(state: &AdvertState, commands: Vec<AdvertWriterCommand>, error: &StoreError, now: UnixMs) {
    tracing::error!(%error, commands = commands.len(), at_ms = now.0, "batch commit failed");
    commands.into_iter().for_each(|command| state.answer_store_unavailable(command));
}
