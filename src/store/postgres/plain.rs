//! The batches that nearly all are, publications and heartbeats alone, each of another advertisement: one statement for
//! each kind that locks, decides and writes at once.
//!
//! What is decided here in SQL is what `decide.rs` decides: what is there keeps its since, a heartbeat shortens nothing. A
//! name that was deleted is a matter for `decide.rs` itself. The same tests judge both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, IdState};
use crate::domain::time::UnixMs;
use crate::store::postgres::change::Trouble;
use crate::store::postgres::statements as sql;
use crate::store::rows::{AdvertisementRow, from_ms, to_ms};
use crate::store::{Committed, Outcome, Step, Version, Write};

/// A batch that can be written so, in the order of ids.
#[derive(Default)]
pub(super) struct Plain<'a> {
    puts: BTreeMap<AdvertisementId, (&'a Advertisement, UnixMs)>,
    extends: BTreeMap<AdvertisementId, UnixMs>,
}

/// What became of one advertisement.
struct Done {
    since: UnixMs,
    before: Version,
    after: Version,
}

impl<'a> Plain<'a> {
    /// The same batch, if that is what it is.
    pub(super) fn of(batch: &'a [Write]) -> Option<Self> {
        let mut plain = Self::default();
        let mut ids = BTreeSet::new();
        for write in batch {
            match write {
                Write::Put { advertisement, expires, confirmed, settled, .. }
                    if confirmed.is_empty() && settled.is_empty() =>
                {
                    plain.puts.insert(advertisement.id, (advertisement, *expires));
                }
                Write::Extend { id, expires, confirmed, settled, .. } if confirmed.is_empty() && settled.is_empty() => {
                    plain.extends.insert(*id, *expires);
                }
                _ => return None,
            }
            if !ids.insert(write.advertisement_id()) {
                return None;
            }
        }
        Some(plain)
    }

    /// Writes it within the transaction that is open. Says what became of each change of `batch`, and which
    /// advertisements have changed; `None` when one of the names was deleted, and all this must be undone.
    pub(super) async fn write(
        &self,
        batch: &[Write],
        replica: i64,
        to: &mut PgConnection,
    ) -> Result<Option<(Committed, Vec<AdvertisementId>)>, Trouble> {
        let mut done: HashMap<AdvertisementId, Done, IdState> = HashMap::default();
        if !self.puts.is_empty() {
            let rows = self.put(replica, &mut *to).await?;
            if rows.len() < self.puts.len() {
                return Ok(None);
            }
            read(&rows, &mut done)?;
        }
        if !self.extends.is_empty() {
            let ids: Vec<Uuid> = self.extends.keys().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
            let expires: Vec<i64> = self.extends.values().map(|expires| to_ms(*expires)).collect();
            let query = sqlx::query(sql::EXTEND_PLAIN).bind(ids).bind(expires).bind(replica);
            read(&query.fetch_all(to).await?, &mut done)?;
        }
        let mut committed = Committed::default();
        for write in batch {
            let done = done.get(&write.advertisement_id());
            committed.outcomes.push(match (write, done) {
                (Write::Put { .. }, Some(done)) => {
                    Outcome::Put { created: done.before == Version::default(), since: done.since }
                }
                (_, Some(_)) => Outcome::Done,
                (_, None) => Outcome::Absent,
            });
            let (before, after) = done.map(|done| (done.before, done.after)).unwrap_or_default();
            committed.steps.push(Step { before, after });
        }
        Ok(Some((committed, done.into_keys().collect())))
    }

    async fn put(&self, replica: i64, to: &mut PgConnection) -> Result<Vec<PgRow>, Trouble> {
        let rows: Vec<AdvertisementRow<'_>> =
            self.puts.values().map(|(advertisement, expires)| AdvertisementRow::of(advertisement, *expires)).collect();
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let query = sqlx::query(sql::PUT_PLAIN)
            .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
            .bind(replica)
            .bind(column(|row| row.silo_id))
            .bind(column(|row| row.set_id))
            .bind(rows.iter().map(|row| row.kind as i16).collect::<Vec<_>>())
            .bind(column(|row| row.since_ms))
            .bind(column(|row| row.expires_ms))
            .bind(rows.iter().map(|row| row.join_seats as i32).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| &*row.body).collect::<Vec<&str>>())
            .bind(rows.iter().map(|row| &*row.connect_data).collect::<Vec<&[u8]>>());
        Ok(query.fetch_all(to).await?)
    }
}

/// Rows of id, since, version before and version after.
fn read(rows: &[PgRow], done: &mut HashMap<AdvertisementId, Done, IdState>) -> Result<(), Trouble> {
    for row in rows {
        let id: Uuid = row.try_get(0)?;
        let one =
            Done { since: from_ms(row.try_get(1)?), before: Version(row.try_get(2)?), after: Version(row.try_get(3)?) };
        done.insert(AdvertisementId::from_bytes(id.into_bytes()), one);
    }
    Ok(())
}
