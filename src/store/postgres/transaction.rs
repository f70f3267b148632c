//! Transaction of an advertisement batch: lock the touched rows, apply the writes in code, store the difference. Most
//! batches use one statement instead (`fast_path.rs`).
//!
//! If another server inserts a row of a new id first, the batch is retried and finds the row (`commit.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::store::apply_writes::AdvertRows;
use crate::store::mutant;
use crate::store::postgres::commit::{self, BatchWork, CommitAttempt, CommitError};
use crate::store::postgres::decode::{self, KeyLookup};
use crate::store::postgres::fast_path::{self, FastPathBatch};
use crate::store::postgres::write_rows::AdvertRowChanges;
use crate::store::postgres::{WriteSession, statements as sql};
use crate::store::touched_keys::TouchedAdvertKeys;
use crate::store::unknown_rows::{RowKey, UnknownRows};
use crate::store::{
    AdvertVersion, AdvertWrite, CommitResult, Reservation, StoreError, VersionStep, WriteOutcome, transaction_label,
};

/// Commits a batch and returns its result. On an error it was not committed, or the outcome is unknown.
pub(super) async fn commit_batch(
    session: &mut WriteSession,
    batch: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    let fast_path = FastPathBatch::from_batch(batch).filter(|_| !mutant::is("acknowledge_before_commit"));
    let unknown_rows = &*Arc::clone(&session.unknown_rows);
    commit::commit_with_retries(session, AdvertTransaction { batch, fast_path, unknown_rows }).await
}

/// Batch, and its fast path form if it qualifies.
struct AdvertTransaction<'a> {
    batch: &'a [AdvertWrite],
    fast_path: Option<FastPathBatch<'a>>,
    unknown_rows: &'a UnknownRows,
}

impl BatchWork for AdvertTransaction<'_> {
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
    }

    async fn write(&self, connection: &mut PgConnection, attempt: &CommitAttempt) -> Result<CommitResult, CommitError> {
        match &self.fast_path {
            Some(fast_path) => fast_path.write(self.batch, attempt, connection).await,
            None => attempt.write_batch(connection, self.batch, self.unknown_rows).await,
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

impl CommitAttempt {
    /// Records the changed ids for the other servers, if there are any. Returns the transaction's id as version.
    async fn record_change(
        &self,
        connection: &mut PgConnection,
        changed_ids: impl ExactSizeIterator<Item = &AdvertisementId>,
    ) -> Result<AdvertVersion, CommitError> {
        if changed_ids.len() == 0 {
            return Ok(AdvertVersion::default());
        }
        let ids = to_uuids(changed_ids.map(AdvertisementId::as_bytes));
        let query = sqlx::query_scalar(sql::INSERT_CHANGE).bind(self.batch_id).bind(self.replica_id).bind(ids);
        Ok(AdvertVersion(query.bind(self.notify).fetch_one(connection).await?))
    }

    /// Writes the batch without committing it.
    async fn write_batch(
        &self,
        connection: &mut PgConnection,
        batch: &[AdvertWrite],
        unknown_rows: &UnknownRows,
    ) -> Result<CommitResult, CommitError> {
        connection.execute("begin").await?;
        let before =
            AdvertRowsBefore::lock_and_read(connection, &TouchedAdvertKeys::of_batch(batch), unknown_rows).await?;
        let mut after = before.to_advert_rows();
        let outcomes: Vec<WriteOutcome> = batch.iter().map(|write| after.apply_write(write)).collect();
        let row_changes = AdvertRowChanges::between(&before, &after, &extended_ids(batch, &outcomes), self.replica_id);
        row_changes.write(connection).await?;
        let changed_ids = row_changes.changed_ids();
        let version = self.record_change(&mut *connection, changed_ids.iter()).await?;
        let step = |write: &AdvertWrite| {
            let id = write.advertisement_id();
            let stored = before.advertisements.get(&id).filter(|stored| stored.is_advertised);
            let before = stored.map_or(AdvertVersion::default(), |stored| stored.version);
            let exists = after.advertisements.contains_key(&id);
            let after = if changed_ids.contains(&id) { version } else { before };
            VersionStep { before, after: if exists { after } else { AdvertVersion::default() } }
        };
        Ok(CommitResult { version_steps: batch.iter().map(step).collect(), outcomes })
    }
}

/// Advertisements whose heartbeats were applied.
fn extended_ids(batch: &[AdvertWrite], outcomes: &[WriteOutcome]) -> BTreeSet<AdvertisementId> {
    let applied = batch.iter().zip(outcomes).filter(|(_, outcome)| **outcome == WriteOutcome::Applied);
    applied
        .filter(|(write, _)| matches!(write, AdvertWrite::ExtendTtl { .. }))
        .map(|(write, _)| write.advertisement_id())
        .collect()
}

/// Stored rows for the ids of a batch.
#[derive(Default)]
pub(super) struct AdvertRowsBefore {
    pub(super) advertisements: HashMap<AdvertisementId, KeyLookup, BuildIdHasher>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
}

impl AdvertRowsBefore {
    async fn lock_and_read(
        connection: &mut PgConnection,
        keys: &TouchedAdvertKeys,
        unknown_rows: &UnknownRows,
    ) -> Result<Self, CommitError> {
        let mut before = Self::default();
        let locked = to_uuids(keys.locked_advertisements.iter().map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::LOCK_ADVERTISEMENTS).bind(locked).fetch_all(&mut *connection).await? {
            let found = decode::decode_key_lookup(&row)?;
            before.advertisements.insert(found.id, found);
        }
        if keys.reservations.is_empty() && keys.seat_counted_advertisements.is_empty() {
            return Ok(before);
        }
        let reservation_ids = to_uuids(keys.reservations.iter().map(ReservationId::as_bytes));
        let trust_memory = mutant::is("trust_the_index");
        let advertisement_ids =
            to_uuids(keys.seat_counted_advertisements.iter().filter(|_| !trust_memory).map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::READ_RESERVATIONS)
            .bind(reservation_ids)
            .bind(advertisement_ids)
            .fetch_all(connection)
            .await?
        {
            let key = RowKey::Advertisement(decode::decode_advertisement_id(&row, 1)?);
            let reservation = unknown_rows.require(key, decode::decode_reservation(&row, 0))?;
            before.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
        }
        Ok(before)
    }

    /// The rows that the writes are applied to.
    fn to_advert_rows(&self) -> AdvertRows {
        let mut rows = AdvertRows::default();
        for (id, found) in &self.advertisements {
            rows.tombstones.extend(found.deleted_until.map(|until| (*id, until)));
            if found.is_advertised {
                rows.add_advertisement(
                    *id,
                    (found.advertised_since, found.expires_at),
                    found.join_seats,
                    found.version,
                );
            }
        }
        self.reservations.values().for_each(|reservation| rows.add_reservation(reservation.clone()));
        rows
    }
}

pub(super) fn to_uuids<'a>(ids: impl Iterator<Item = &'a [u8; 16]>) -> Vec<Uuid> {
    ids.map(|id| Uuid::from_bytes(*id)).collect()
}
