//! One batch of changes, in one transaction: lock what it touches, decide in plain code, write the difference. Most are
//! plainer than that, and one statement (`plain.rs`).
//!
//! Where another server was quicker with a name that nobody had, the batch begins again and finds the name there
//! (`attempt.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

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
use crate::store::{
    AdvertVersion, AdvertWrite, CommitResult, Reservation, StoreError, VersionStep, WriteOutcome, transaction_label,
};

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit_batch(desk: &mut WriteSession, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
    let plain = FastPathBatch::from_batch(batch).filter(|_| !mutant::is("acknowledge_before_commit"));
    commit::commit_with_retries(desk, AdvertTransaction { batch, fast_path: plain }).await
}

/// A batch, and how it can be written in one statement, if it can.
struct AdvertTransaction<'a> {
    batch: &'a [AdvertWrite],
    fast_path: Option<FastPathBatch<'a>>,
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
            Some(plain) => plain.write(self.batch, attempt, connection).await,
            None => attempt.write_batch(connection, self.batch).await,
        }
    }

    async fn read_committed_result(&self, desk: &mut WriteSession, batch_id: Uuid) -> Result<CommitResult, StoreError> {
        fast_path::read_committed_result(desk, batch_id, self.batch).await
    }
}

impl CommitAttempt {
    /// Leaves word of what has changed, if anything has. Says which transaction it is.
    async fn record_change(
        &self,
        connection: &mut PgConnection,
        changed: impl ExactSizeIterator<Item = &AdvertisementId>,
    ) -> Result<AdvertVersion, CommitError> {
        if changed.len() == 0 {
            return Ok(AdvertVersion::default());
        }
        let ids = to_uuids(changed.map(AdvertisementId::as_bytes));
        let noted = sqlx::query_scalar(sql::INSERT_CHANGE).bind(self.batch_id).bind(self.replica_id).bind(ids);
        Ok(AdvertVersion(noted.bind(self.notify).fetch_one(connection).await?))
    }

    /// Everything but `commit`.
    async fn write_batch(
        &self,
        connection: &mut PgConnection,
        batch: &[AdvertWrite],
    ) -> Result<CommitResult, CommitError> {
        connection.execute("begin").await?;
        let before = AdvertRowsBefore::lock_and_read(connection, &TouchedAdvertKeys::of_batch(batch)).await?;
        let mut after = before.to_advert_rows();
        let outcomes: Vec<WriteOutcome> = batch.iter().map(|write| after.apply_write(write)).collect();
        let difference = AdvertRowChanges::between(&before, &after, &extended_ids(batch, &outcomes), self.replica_id);
        difference.write(connection).await?;
        let changed = difference.changed_ids();
        let version = self.record_change(&mut *connection, changed.iter()).await?;
        let step = |write: &AdvertWrite| {
            let id = write.advertisement_id();
            let found = before.advertisements.get(&id).filter(|found| found.is_advertised);
            let before = found.map_or(AdvertVersion::default(), |found| found.version);
            let stands = after.advertisements.contains_key(&id);
            let after = if changed.contains(&id) { version } else { before };
            VersionStep { before, after: if stands { after } else { AdvertVersion::default() } }
        };
        Ok(CommitResult { version_steps: batch.iter().map(step).collect(), outcomes })
    }
}

/// Whose heartbeats were taken.
fn extended_ids(batch: &[AdvertWrite], outcomes: &[WriteOutcome]) -> BTreeSet<AdvertisementId> {
    let done = batch.iter().zip(outcomes).filter(|(_, outcome)| **outcome == WriteOutcome::Applied);
    done.filter(|(write, _)| matches!(write, AdvertWrite::ExtendTtl { .. }))
        .map(|(write, _)| write.advertisement_id())
        .collect()
}

/// What the database says about the ids that a batch names.
#[derive(Default)]
pub(super) struct AdvertRowsBefore {
    pub(super) advertisements: HashMap<AdvertisementId, KeyLookup, BuildIdHasher>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
}

impl AdvertRowsBefore {
    /// Locks and reads.
    async fn lock_and_read(connection: &mut PgConnection, touched: &TouchedAdvertKeys) -> Result<Self, CommitError> {
        let mut before = Self::default();
        let locked = to_uuids(touched.locked_advertisements.iter().map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::LOCK_ADVERTISEMENTS).bind(locked).fetch_all(&mut *connection).await? {
            let found = decode::decode_key_lookup(&row)?;
            before.advertisements.insert(found.id, found);
        }
        if touched.reservations.is_empty() && touched.seat_checked.is_empty() {
            return Ok(before);
        }
        let asked = to_uuids(touched.reservations.iter().map(ReservationId::as_bytes));
        let trusting = mutant::is("trust_the_index");
        let counted = to_uuids(touched.seat_checked.iter().filter(|_| !trusting).map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::READ_RESERVATIONS).bind(asked).bind(counted).fetch_all(connection).await? {
            let reservation = decode::decode_reservation(&row, 0)?;
            before.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
        }
        Ok(before)
    }

    /// The same, for the changes to be made in.
    fn to_advert_rows(&self) -> AdvertRows {
        let mut picture = AdvertRows::default();
        for (id, found) in &self.advertisements {
            picture.tombstones.extend(found.deleted_until.map(|until| (*id, until)));
            if found.is_advertised {
                picture.add_advertisement(
                    *id,
                    (found.advertised_since, found.expires_at),
                    found.join_seats,
                    found.version,
                );
            }
        }
        self.reservations.values().for_each(|it| picture.add_reservation(it.clone()));
        picture
    }
}

pub(super) fn to_uuids<'a>(ids: impl Iterator<Item = &'a [u8; 16]>) -> Vec<Uuid> {
    ids.map(|id| Uuid::from_bytes(*id)).collect()
}
