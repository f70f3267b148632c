//! Fast path for batches of publications and heartbeats only, each of a different advertisement. One statement locks,
//! decides, writes, records the change and commits, so there is one round trip.
//!
//! The SQL decides as `apply_writes.rs` does: an existing advertisement keeps its start of advertising, and a heartbeat
//! never shortens the expiry. A batch with a deleted id, with a new advertisement of an owner, or with an advertisement that
//! another request created, is rejected and decided in code. The same tests check both paths.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::store::adverts::{AdvertVersion, AdvertWrite, CommitResult, OwnerKey, VersionStep, WriteOutcome};
use crate::store::error::StoreError;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::adverts::write_rows::{digests_to_column, owners_to_column};
use crate::store::postgres::connection::commit::{CommitAttempt, CommitError, WrittenBatch};
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within, to_store_error};
use crate::store::postgres::connection::write_session::WriteSession;
use crate::store::rows::{AdvertisementRow, from_ms, to_ms};

/// Batch for the fast path, in id order.
#[derive(Default)]
pub(super) struct FastPathBatch<'a> {
    publications: Vec<FastPublication<'a>>,
    ttl_extensions: Vec<(AdvertisementId, UnixMs)>,
}

struct FastPublication<'a> {
    advertisement: &'a Advertisement,
    expires_at: UnixMs,
    owner: Option<OwnerKey>,
    create_digest: Option<[u8; 16]>,
}

/// Previous states of the advertisements that the statement changed.
#[derive(Default)]
struct FastPathResult {
    version: AdvertVersion,
    /// Start of advertising, and version before the batch.
    previous_states: HashMap<AdvertisementId, (UnixMs, AdvertVersion), BuildIdHasher>,
}

impl<'a> FastPathBatch<'a> {
    /// Converts the batch, if it qualifies.
    pub(super) fn from_batch(batch: &'a [AdvertWrite]) -> Option<Self> {
        let mut fast_path = Self::default();
        for write in batch {
            match write {
                AdvertWrite::Publish {
                    advertisement,
                    expires_at,
                    confirmed_reservations,
                    joined_reservations,
                    owner,
                    create_digest,
                    ..
                } if confirmed_reservations.is_empty()
                    && joined_reservations.is_empty()
                    && owner.as_ref().is_none_or(|owner| !owner.is_new_advert) =>
                {
                    let owner = owner.as_ref().map(|owner| owner.key);
                    let (expires_at, create_digest) = (*expires_at, *create_digest);
                    fast_path.publications.push(FastPublication { advertisement, expires_at, owner, create_digest });
                }
                AdvertWrite::ExtendTtl {
                    advertisement_id,
                    expires_at,
                    confirmed_reservations,
                    joined_reservations,
                    create_digest: None,
                    ..
                } if confirmed_reservations.is_empty() && joined_reservations.is_empty() => {
                    fast_path.ttl_extensions.push((*advertisement_id, *expires_at));
                }
                _ => return None,
            }
        }
        fast_path.publications.sort_unstable_by_key(|publication| publication.advertisement.id);
        fast_path.ttl_extensions.sort_unstable_by_key(|(id, _)| *id);
        let mut ids: Vec<AdvertisementId> = batch.iter().map(AdvertWrite::advertisement_id).collect();
        ids.sort_unstable();
        ids.array_windows().all(|[id, next]| id != next).then_some(fast_path)
    }

    /// Writes and commits the batch; durable on return. `CommitError::FastPathRejected` if one of the ids was deleted,
    /// is new and has an owner, or was created by another request; then nothing was committed.
    pub(super) async fn write_and_commit(
        &self,
        batch: &[AdvertWrite],
        attempt: &CommitAttempt,
        connection: &mut PgConnection,
    ) -> Result<WrittenBatch<CommitResult>, CommitError> {
        let rows: Vec<AdvertisementRow<'_>> = self
            .publications
            .iter()
            .map(|publication| AdvertisementRow::encode(publication.advertisement, publication.expires_at))
            .collect();
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let query = sqlx::query(sql::WRITE_FAST_PATH_BATCH)
            .bind(attempt.replica_id)
            .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
            .bind(column(|row| row.silo_id))
            .bind(column(|row| row.set_id))
            .bind(rows.iter().map(|row| row.kind as i16).collect::<Vec<_>>())
            .bind(column(|row| row.since_ms))
            .bind(column(|row| row.expires_ms))
            .bind(rows.iter().map(|row| row.join_seats as i32).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| &*row.body).collect::<Vec<&str>>())
            .bind(rows.iter().map(|row| &*row.connect_data).collect::<Vec<&[u8]>>())
            .bind(rows.iter().map(|row| row.ttl_ms.map(|ttl_ms| ttl_ms as i32)).collect::<Vec<_>>())
            .bind(self.ttl_extensions.iter().map(|(id, _)| Uuid::from_bytes(*id.as_bytes())).collect::<Vec<_>>())
            .bind(self.ttl_extensions.iter().map(|(_, expires_at)| to_ms(*expires_at)).collect::<Vec<i64>>())
            .bind(attempt.attempt_id)
            .bind(attempt.notifies_replicas)
            .bind(owners_to_column(self.publications.iter().map(|publication| publication.owner)))
            .bind(digests_to_column(self.publications.iter().map(|publication| publication.create_digest)))
            .bind(rows.iter().map(|row| row.beacon_vector.as_deref()).collect::<Vec<_>>());
        // Reads to the end of the stream: rows are sent before the commit, and its failure after them.
        let result_rows = query.fetch_all(connection).await.map_err(CommitError::from_single_statement)?;
        let result = result_rows
            .first()
            .map(FastPathResult::from_row)
            .transpose()
            .map_err(|error| CommitError::OutcomeUnknown(error.to_string()))?;
        let has_changes = result.is_some();
        Ok(WrittenBatch { output: result.unwrap_or_default().to_commit_result(batch), has_changes })
    }
}

/// Reads the result of a committed batch whose answer was lost. If an advertisement has changed again, its previous
/// version is unknown.
pub(super) async fn read_committed_result(
    session: &mut WriteSession,
    batch_id: Uuid,
    batch: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    let result_rows: Vec<PgRow> =
        query_within!(session.connection, OPERATION_TIMEOUT, "reading a batch result", |connection| {
            sqlx::query(sql::READ_FAST_PATH_RESULT).bind(batch_id).fetch_all(&mut *connection)
        })?;
    let result = result_rows.first().map(FastPathResult::from_row).transpose().map_err(to_store_error)?;
    Ok(result.unwrap_or_default().to_commit_result(batch))
}

impl FastPathResult {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (ids, since): (Vec<Uuid>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let before: Vec<i64> = row.try_get(3)?;
        let to_id = |id: Uuid| AdvertisementId::from_bytes(id.into_bytes());
        let states = since.into_iter().map(from_ms).zip(before.into_iter().map(AdvertVersion));
        Ok(Self {
            version: AdvertVersion(row.try_get(0)?),
            previous_states: ids.into_iter().map(to_id).zip(states).collect(),
        })
    }

    fn to_commit_result(&self, batch: &[AdvertWrite]) -> CommitResult {
        let outcome = |write: &AdvertWrite| match (write, self.previous_states.get(&write.advertisement_id())) {
            (AdvertWrite::Publish { .. }, Some(&(advertised_since, before))) => {
                let created = before == AdvertVersion::default();
                let outcome = WriteOutcome::Published { created, advertised_since, replaced: Vec::new() };
                (outcome, VersionStep { before, after: self.version })
            }
            (_, Some(&(_, before))) => (WriteOutcome::Applied, VersionStep { before, after: self.version }),
            (_, None) => (
                WriteOutcome::NotFound,
                VersionStep { before: AdvertVersion::default(), after: AdvertVersion::default() },
            ),
        };
        let (outcomes, version_steps) = batch.iter().map(outcome).unzip();
        CommitResult { outcomes, version_steps }
    }
}
