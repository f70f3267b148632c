//! The batches that nearly all are, publications and heartbeats alone, each of another advertisement: one statement that
//! locks, decides, writes, leaves word and commits, so that there is one answer to wait for.
//!
//! What is decided here in SQL is what `decide.rs` decides: what is there keeps its since, a heartbeat shortens nothing. A
//! name that was deleted is a matter for `decide.rs` itself. The same tests judge both.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::store::postgres::commit::{CommitAttempt, CommitError};
use crate::store::postgres::connection::{ask, to_store_error};
use crate::store::postgres::{OPERATION_TIMEOUT, WriteSession, statements as sql};
use crate::store::rows::{AdvertisementRow, from_ms, to_ms};
use crate::store::{AdvertVersion, AdvertWrite, CommitResult, StoreError, VersionStep, WriteOutcome};

/// A batch that can be written so, in the order of ids.
#[derive(Default)]
pub(super) struct FastPathBatch<'a> {
    publications: Vec<(AdvertisementId, &'a Advertisement, UnixMs)>,
    ttl_extensions: Vec<(AdvertisementId, UnixMs)>,
}

/// What became of the advertisements that the database has changed.
#[derive(Default)]
struct FastPathResult {
    version: AdvertVersion,
    /// Since when each is advertised, and its version before.
    previous_states: HashMap<AdvertisementId, (UnixMs, AdvertVersion), BuildIdHasher>,
}

impl<'a> FastPathBatch<'a> {
    /// The same batch, if that is what it is.
    pub(super) fn from_batch(batch: &'a [AdvertWrite]) -> Option<Self> {
        let mut plain = Self::default();
        for write in batch {
            match write {
                AdvertWrite::Publish {
                    advertisement,
                    expires_at: expires,
                    confirmed_reservations: confirmed,
                    joined_reservations: settled,
                    ..
                } if confirmed.is_empty() && settled.is_empty() => {
                    plain.publications.push((advertisement.id, advertisement, *expires));
                }
                AdvertWrite::ExtendTtl {
                    advertisement_id: id,
                    expires_at: expires,
                    confirmed_reservations: confirmed,
                    joined_reservations: settled,
                    ..
                } if confirmed.is_empty() && settled.is_empty() => {
                    plain.ttl_extensions.push((*id, *expires));
                }
                _ => return None,
            }
        }
        plain.publications.sort_unstable_by_key(|(id, ..)| *id);
        plain.ttl_extensions.sort_unstable_by_key(|(id, _)| *id);
        let mut ids: Vec<AdvertisementId> = batch.iter().map(AdvertWrite::advertisement_id).collect();
        ids.sort_unstable();
        ids.array_windows().all(|[one, next]| one != next).then_some(plain)
    }

    /// Makes it, durably when it answers. `Trouble::NotPlain` when one of the names was deleted: nothing has happened then.
    pub(super) async fn write(
        &self,
        batch: &[AdvertWrite],
        attempt: &CommitAttempt,
        connection: &mut PgConnection,
    ) -> Result<CommitResult, CommitError> {
        let rows: Vec<AdvertisementRow<'_>> = self
            .publications
            .iter()
            .map(|(_, advertisement, expires)| AdvertisementRow::encode(advertisement, *expires))
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
            .bind(self.ttl_extensions.iter().map(|(id, _)| Uuid::from_bytes(*id.as_bytes())).collect::<Vec<_>>())
            .bind(self.ttl_extensions.iter().map(|(_, expires)| to_ms(*expires)).collect::<Vec<i64>>())
            .bind(attempt.batch_id)
            .bind(attempt.notify);
        // To the end, not to the first row: rows are sent before the commit, and its failure after them.
        let answer = query.fetch_all(connection).await.map_err(CommitError::from_single_statement)?;
        let done = answer
            .first()
            .map(FastPathResult::from_row)
            .transpose()
            .map_err(|error| CommitError::OutcomeUnknown(error.to_string()))?;
        Ok(done.unwrap_or_default().to_commit_result(batch))
    }
}

/// The same answer, asked for once more: the batch has been committed, and the answer was lost. What has been changed again
/// since has a version before that nobody knows.
pub(super) async fn read_committed_result(
    desk: &mut WriteSession,
    batch_id: Uuid,
    batch: &[AdvertWrite],
) -> Result<CommitResult, StoreError> {
    let answer: Vec<PgRow> =
        ask!(desk.connection, OPERATION_TIMEOUT, "asking for a batch again", |connection| sqlx::query(
            sql::READ_COMMITTED_BATCH
        )
        .bind(batch_id)
        .fetch_all(&mut *connection))?;
    let done = answer.first().map(FastPathResult::from_row).transpose().map_err(to_store_error)?;
    Ok(done.unwrap_or_default().to_commit_result(batch))
}

impl FastPathResult {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (ids, since): (Vec<Uuid>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let before: Vec<i64> = row.try_get(3)?;
        let name = |id: Uuid| AdvertisementId::from_bytes(id.into_bytes());
        let known = since.into_iter().map(from_ms).zip(before.into_iter().map(AdvertVersion));
        Ok(Self {
            version: AdvertVersion(row.try_get(0)?),
            previous_states: ids.into_iter().map(name).zip(known).collect(),
        })
    }

    fn to_commit_result(&self, batch: &[AdvertWrite]) -> CommitResult {
        let tell = |write: &AdvertWrite| match (write, self.previous_states.get(&write.advertisement_id())) {
            (AdvertWrite::Publish { .. }, Some(&(since, before))) => {
                let created = before == AdvertVersion::default();
                (
                    WriteOutcome::Published { created, advertised_since: since },
                    VersionStep { before, after: self.version },
                )
            }
            (_, Some(&(_, before))) => (WriteOutcome::Applied, VersionStep { before, after: self.version }),
            (_, None) => (
                WriteOutcome::NotFound,
                VersionStep { before: AdvertVersion::default(), after: AdvertVersion::default() },
            ),
        };
        let (outcomes, steps) = batch.iter().map(tell).unzip();
        CommitResult { outcomes, version_steps: steps }
    }
}
