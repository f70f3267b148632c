//! Advertisement writer: the only task that changes advertisements. Commits queued commands in one transaction, applies
//! them to memory in the same order, and answers. Clients cannot cancel a command.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::engine::adverts::publish_batch::PublishBatch;
use crate::engine::adverts::replicated_writer::ReplicatedWriter;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, StoreError, WriteOutcome};

/// Inbox capacity. Further commands are rejected with a retry delay.
pub(in crate::engine) const WRITER_INBOX_CAPACITY: usize = 16_384;

/// Maximum commands per transaction: enough to amortize a commit, few enough to keep its latency low.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// Retry delay when the inbox is full or the store is unavailable, milliseconds.
pub(in crate::engine) const RETRY_AFTER_MS: u32 = 500;

/// Processes commands until stopped, and then the rest of the inbox.
pub(in crate::engine) async fn run_advert_writer(
    core: Arc<Core>,
    mut inbox: mpsc::Receiver<AdvertWriterCommand>,
    shutdown: CancellationToken,
) {
    let mut commands = Vec::with_capacity(BATCH_COMMANDS_MAX);
    let mut replicated_writer = core.replication.clone().map(ReplicatedWriter::new);
    loop {
        let received = tokio::select! {
            biased;
            received = inbox.recv_many(&mut commands, BATCH_COMMANDS_MAX) => received,
            () = shutdown.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if received == 0 {
            return;
        }
        let mut batch = AdvertBatch::default();
        for command in commands.drain(..) {
            if batch.must_commit_before(&command) {
                batch.commit_batch(&core, replicated_writer.as_mut()).await;
            }
            match command {
                AdvertWriterCommand::SetRulesets(rulesets, reply) => {
                    let core = Arc::clone(&core);
                    let built =
                        tokio::task::spawn_blocking(move || core.advert_sets.set_indexed_rulesets(rulesets)).await;
                    if built.is_ok() {
                        let _ = reply.send(());
                    }
                }
                AdvertWriterCommand::Flush(reply) => {
                    // The receiver may be gone.
                    let _ = reply.send(());
                }
                AdvertWriterCommand::ApplyFeed(feed_batch, as_of) => {
                    if let Some(replicated_writer) = &mut replicated_writer {
                        replicated_writer.apply_feed(&core, *feed_batch, as_of);
                        replicated_writer.write_unwritten_adverts(&core).await;
                    }
                }
                command => batch.add_command(&core, command),
            }
        }
        batch.commit_batch(&core, replicated_writer.as_mut()).await;
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
            AdvertWriterCommand::Publish(..) | AdvertWriterCommand::Delete(..) => false,
            AdvertWriterCommand::ExtendTtl(extend, ..) => self.changed_adverts.contains(&extend.id),
            AdvertWriterCommand::ReserveSeats(reserve, ..) => self.changed_adverts.contains(&reserve.advertisement_id),
            AdvertWriterCommand::ReleaseReservation(_, id, ..)
            | AdvertWriterCommand::ExpireHold(_, id, _)
            | AdvertWriterCommand::ExpireAdvert(id, ..) => self.changed_adverts.contains(id),
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => !self.commands.is_empty(),
        }
    }

    /// Adds a command, unless it was answered from memory.
    fn add_command(&mut self, core: &Core, command: AdvertWriterCommand) {
        let now = core.clock.now();
        if let Some((command, write)) = core.prepare_write(command, now) {
            self.changed_adverts.insert(write.advertisement_id());
            self.commands.push(command);
            self.writes.push(write);
        }
    }

    async fn commit_batch(&mut self, core: &Arc<Core>, replicated_writer: Option<&mut ReplicatedWriter>) {
        if self.commands.is_empty() {
            return;
        }
        let (commands, writes) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.writes));
        self.changed_adverts.clear();
        if let Some(replicated_writer) = replicated_writer {
            return replicated_writer.commit(core, commands, &writes).await;
        }
        match core.store.commit(&writes).await {
            Ok(result) => apply_committed_batch(core, commands, &writes, result.outcomes),
            Err(error) => fail_batch(core, commands, &error, core.clock.now()),
        }
    }
}

/// Applies a committed batch to memory and answers its commands.
pub(in crate::engine) fn apply_committed_batch(
    core: &Core,
    commands: Vec<AdvertWriterCommand>,
    writes: &[AdvertWrite],
    outcomes: Vec<WriteOutcome>,
) {
    let now = core.clock.now();
    let mut publish_batch = PublishBatch::default();
    for ((command, write), outcome) in commands.into_iter().zip(writes).zip(outcomes) {
        core.apply_commit(&mut publish_batch, command, write, outcome, now);
    }
    core.apply_publish_batch(&mut publish_batch, now);
}

/// Rejects a batch whose commit failed. Clients may retry, and the next sweep repeats its own commands.
fn fail_batch(core: &Core, commands: Vec<AdvertWriterCommand>, error: &StoreError, now: UnixMs) {
    tracing::error!(%error, commands = commands.len(), at_ms = now.0, "batch commit failed");
    commands.into_iter().for_each(|command| refuse_command(core, command));
}

/// Answers a command whose write was not applied with [`EngineError::StoreUnavailable`].
pub(in crate::engine) fn refuse_command(core: &Core, command: AdvertWriterCommand) {
    let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    match command {
        AdvertWriterCommand::Publish(_, reply, in_flight) => core.send_answer(reply, in_flight, Err(unavailable())),
        AdvertWriterCommand::ExtendTtl(_, reply, in_flight) => core.send_answer(reply, in_flight, Err(unavailable())),
        AdvertWriterCommand::Delete(_, _, reply, in_flight) => core.send_answer(reply, in_flight, Err(unavailable())),
        AdvertWriterCommand::ReserveSeats(_, reply, in_flight) => {
            core.send_answer(reply, in_flight, Err(unavailable()))
        }
        AdvertWriterCommand::ReleaseReservation(_, _, _, reply, in_flight) => {
            core.send_answer(reply, in_flight, Err(unavailable()))
        }
        AdvertWriterCommand::ExpireAdvert(_, set_id, Some(record)) => core.restore_expired(set_id, *record),
        AdvertWriterCommand::ExpireHold(..)
        | AdvertWriterCommand::ExpireAdvert(_, _, None)
        | AdvertWriterCommand::ApplyFeed(..)
        | AdvertWriterCommand::SetRulesets(..)
        | AdvertWriterCommand::Flush(_) => {}
    }
}
