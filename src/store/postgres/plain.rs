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
use crate::domain::id::{AdvertisementId, IdState};
use crate::domain::time::UnixMs;
use crate::store::postgres::attempt::{Attempt, Trouble};
use crate::store::postgres::line::{ask, unavailable};
use crate::store::postgres::{Desk, VERB_WITHIN, statements as sql};
use crate::store::rows::{AdvertisementRow, from_ms, to_ms};
use crate::store::{Committed, Outcome, Step, StoreError, Version, Write};

/// A batch that can be written so, in the order of ids.
#[derive(Default)]
pub(super) struct Plain<'a> {
    puts: Vec<(AdvertisementId, &'a Advertisement, UnixMs)>,
    extends: Vec<(AdvertisementId, UnixMs)>,
}

/// What became of the advertisements that the database has changed.
#[derive(Default)]
struct Done {
    after: Version,
    /// Since when each is advertised, and its version before.
    each: HashMap<AdvertisementId, (UnixMs, Version), IdState>,
}

impl<'a> Plain<'a> {
    /// The same batch, if that is what it is.
    pub(super) fn of(batch: &'a [Write]) -> Option<Self> {
        let mut plain = Self::default();
        for write in batch {
            match write {
                Write::Put { advertisement, expires, confirmed, settled, .. }
                    if confirmed.is_empty() && settled.is_empty() =>
                {
                    plain.puts.push((advertisement.id, advertisement, *expires));
                }
                Write::Extend { id, expires, confirmed, settled, .. } if confirmed.is_empty() && settled.is_empty() => {
                    plain.extends.push((*id, *expires));
                }
                _ => return None,
            }
        }
        plain.puts.sort_unstable_by_key(|(id, ..)| *id);
        plain.extends.sort_unstable_by_key(|(id, _)| *id);
        let mut ids: Vec<AdvertisementId> = batch.iter().map(Write::advertisement_id).collect();
        ids.sort_unstable();
        ids.array_windows().all(|[one, next]| one != next).then_some(plain)
    }

    /// Makes it, durably when it answers. `Trouble::NotPlain` when one of the names was deleted: nothing has happened then.
    pub(super) async fn make(
        &self,
        batch: &[Write],
        attempt: &Attempt,
        connection: &mut PgConnection,
    ) -> Result<Committed, Trouble> {
        let rows: Vec<AdvertisementRow<'_>> =
            self.puts.iter().map(|(_, advertisement, expires)| AdvertisementRow::of(advertisement, *expires)).collect();
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let query = sqlx::query(sql::WRITE_PLAIN)
            .bind(attempt.replica)
            .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
            .bind(column(|row| row.silo_id))
            .bind(column(|row| row.set_id))
            .bind(rows.iter().map(|row| row.kind as i16).collect::<Vec<_>>())
            .bind(column(|row| row.since_ms))
            .bind(column(|row| row.expires_ms))
            .bind(rows.iter().map(|row| row.join_seats as i32).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| &*row.body).collect::<Vec<&str>>())
            .bind(rows.iter().map(|row| &*row.connect_data).collect::<Vec<&[u8]>>())
            .bind(self.extends.iter().map(|(id, _)| Uuid::from_bytes(*id.as_bytes())).collect::<Vec<_>>())
            .bind(self.extends.iter().map(|(_, expires)| to_ms(*expires)).collect::<Vec<i64>>())
            .bind(attempt.batch_id)
            .bind(attempt.ring);
        // To the end, not to the first row: rows are sent before the commit, and its failure after them.
        let answer = query.fetch_all(connection).await.map_err(Trouble::of_a_whole_transaction)?;
        let done =
            answer.first().map(Done::read).transpose().map_err(|error| Trouble::Unanswered(error.to_string()))?;
        Ok(done.unwrap_or_default().tell(batch))
    }
}

/// The same answer, asked for once more: the batch has been committed, and the answer was lost. What has been changed again
/// since has a version before that nobody knows.
pub(super) async fn what_became(desk: &mut Desk, batch_id: Uuid, batch: &[Write]) -> Result<Committed, StoreError> {
    let answer: Vec<PgRow> =
        ask!(desk.writes, VERB_WITHIN, "asking for a batch again", |connection| sqlx::query(sql::WHAT_BECAME)
            .bind(batch_id)
            .fetch_all(&mut *connection))?;
    let done = answer.first().map(Done::read).transpose().map_err(unavailable)?;
    Ok(done.unwrap_or_default().tell(batch))
}

impl Done {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let (ids, since): (Vec<Uuid>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let before: Vec<i64> = row.try_get(3)?;
        let name = |id: Uuid| AdvertisementId::from_bytes(id.into_bytes());
        let known = since.into_iter().map(from_ms).zip(before.into_iter().map(Version));
        Ok(Self { after: Version(row.try_get(0)?), each: ids.into_iter().map(name).zip(known).collect() })
    }

    fn tell(&self, batch: &[Write]) -> Committed {
        let tell = |write: &Write| match (write, self.each.get(&write.advertisement_id())) {
            (Write::Put { .. }, Some(&(since, before))) => {
                let created = before == Version::default();
                (Outcome::Put { created, since }, Step { before, after: self.after })
            }
            (_, Some(&(_, before))) => (Outcome::Done, Step { before, after: self.after }),
            (_, None) => (Outcome::Absent, Step { before: Version::default(), after: Version::default() }),
        };
        let (outcomes, steps) = batch.iter().map(tell).unzip();
        Committed { outcomes, steps }
    }
}
