//! Transaction of an advertisement batch: lock the touched rows, apply the writes in code, store the difference. Most
//! batches use one statement instead (`fast_path.rs`).
//!
//! If another server inserts a row of a new id first, the batch is retried and finds the row (`commit.rs`).

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::store::adverts::touched_keys::{self, TouchedAdvertKeys};
use crate::store::adverts::{AdvertVersion, AdvertWrite, CommitResult, VersionStep, WriteOutcome, transaction_label};
use crate::store::error::StoreError;
use crate::store::postgres::adverts::fast_path::{self, FastPathBatch};
use crate::store::postgres::adverts::rows_before::AdvertRowsBefore;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::adverts::write_rows::AdvertRowChanges;
use crate::store::postgres::connection::commit::{
    self, CommitAttempt, CommitError, RetryableTransaction, WrittenBatch,
};
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::postgres::connection::write_session::WriteSession;
use crate::store::unknown_rows::UnknownRows;

/// Commits a batch and returns its result. On an error it was not committed, or the outcome is unknown.
pub(super) async fn commit_batch(
    session: &mut WriteSession,
    batch: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    let fast_path = FastPathBatch::from_batch(batch).filter(|_| !commit::fail_point_acknowledges_early());
    let unknown_rows = &*Arc::clone(&session.unknown_rows);
    let reads_owners = touched_keys::adds_owned_rows(batch);
    commit::commit_with_retries(session, AdvertTransaction { batch, fast_path, reads_owners, unknown_rows }).await
}

/// Batch, and its fast path form if it qualifies.
struct AdvertTransaction<'a> {
    batch: &'a [AdvertWrite],
    fast_path: Option<FastPathBatch<'a>>,
    /// Whether the rows of the owners are read too. Updates of advertisements that exist do not need them.
    reads_owners: bool,
    unknown_rows: &'a UnknownRows,
}

impl RetryableTransaction for AdvertTransaction<'_> {
    type Output = CommitResult;

    fn transaction_label(&self) -> &'static str {
        transaction_label(self.batch)
    }

    fn write_count(&self) -> usize {
        self.batch.len()
    }

    fn is_single_statement(&self) -> bool {
        self.fast_path.is_some()
    }

    fn disable_fast_path(&mut self) {
        self.fast_path = None;
        self.reads_owners = true;
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        attempt: &CommitAttempt,
    ) -> Result<WrittenBatch<CommitResult>, CommitError> {
        match &self.fast_path {
            Some(fast_path) => fast_path.write_and_commit(self.batch, attempt, connection).await,
            None => self.write_batch(connection, attempt).await,
        }
    }

    async fn read_committed_result(
        &self,
        session: &mut WriteSession,
        batch_id: Uuid,
    ) -> Result<CommitResult, StoreError> {
        fast_path::read_committed_result(session, batch_id, self.batch).await
    }
}

impl AdvertTransaction<'_> {
    /// Locks the rows, applies the batch and writes the difference, without committing it.
    async fn write_batch(
        &self,
        connection: &mut PgConnection,
        attempt: &CommitAttempt,
    ) -> Result<WrittenBatch<CommitResult>, CommitError> {
        let batch = self.batch;
        let keys = TouchedAdvertKeys::of_batch(batch);
        let before =
            AdvertRowsBefore::begin_lock_and_read(connection, &keys, self.reads_owners, self.unknown_rows).await?;
        if !self.reads_owners && batch.iter().any(|write| before.is_new_and_owned(write)) {
            return Err(CommitError::FastPathRejected);
        }
        let mut after = before.to_advert_rows();
        let outcomes: Vec<WriteOutcome> = batch.iter().map(|write| after.apply_write(write)).collect();
        let row_changes =
            AdvertRowChanges::between(&before, &after, &extended_ids(batch, &outcomes), attempt.replica_id);
        row_changes.write(connection).await?;
        let changed_ids = row_changes.changed_ids();
        let version = record_change(changed_ids.iter(), &mut *connection, attempt).await?;
        let step = |write: &AdvertWrite| {
            let id = write.advertisement_id();
            let stored = before.advertisements.get(&id).filter(|stored| stored.is_advertised);
            let before = stored.map_or(AdvertVersion::default(), |stored| stored.version);
            let exists = after.advertisements.contains_key(&id);
            let after = if changed_ids.contains(&id) { version } else { before };
            VersionStep { before, after: if exists { after } else { AdvertVersion::default() } }
        };
        let output = CommitResult { version_steps: batch.iter().map(step).collect(), outcomes };
        Ok(WrittenBatch { output, has_changes: !changed_ids.is_empty() })
    }
}

/// Records the changed ids for the other servers, if there are any. Returns the transaction's id as version.
async fn record_change(
    changed_ids: impl ExactSizeIterator<Item = &AdvertisementId>,
    connection: &mut PgConnection,
    attempt: &CommitAttempt,
) -> Result<AdvertVersion, CommitError> {
    if changed_ids.len() == 0 {
        return Ok(AdvertVersion::default());
    }
    let ids = to_uuids(changed_ids.map(AdvertisementId::as_bytes));
    let query = sqlx::query_scalar(sql::INSERT_CHANGE).bind(attempt.attempt_id).bind(attempt.replica_id).bind(ids);
    Ok(AdvertVersion(query.bind(attempt.notifies_replicas).fetch_one(connection).await?))
}

/// Advertisements whose heartbeats were applied.
fn extended_ids(batch: &[AdvertWrite], outcomes: &[WriteOutcome]) -> BTreeSet<AdvertisementId> {
    let applied = batch.iter().zip(outcomes).filter(|(_, outcome)| **outcome == WriteOutcome::Applied);
    applied
        .filter(|(write, _)| matches!(write, AdvertWrite::ExtendTtl { .. }))
        .map(|(write, _)| write.advertisement_id())
        .collect()
}
