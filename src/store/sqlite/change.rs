//! One batch of changes, in one transaction: read what it touches, decide in plain code, write the difference.
//!
//! Each kind of row is written by one statement for all of them, whatever mix of changes the batch is, and an id that
//! comes up many times is written once, as it ends up.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;

use crate::domain::id::{AdvertisementId, IdState, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::decide::{Picture, Standing};
use crate::store::rows::{self, AdvertisementRow, Held, ReservationRow};
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::unavailable;
use crate::store::{Outcome, Reservation, StoreError, Write};

/// Makes all changes and answers each; on an error, none has happened.
pub(super) async fn commit(connection: &mut SqliteConnection, batch: &[Write]) -> Result<Vec<Outcome>, StoreError> {
    // `immediate` takes the write lock now. A transaction that read first and wrote later could be refused half-way.
    let mut transaction = connection.begin_with("begin immediate").await.map_err(unavailable)?;
    let before = Before::read(&mut transaction, &Touched::by(batch)).await?;
    let mut after = before.picture();
    let outcomes = batch.iter().map(|write| after.apply(write)).collect();
    before.write_difference(&mut transaction, &after).await?;
    transaction.commit().await.map_err(unavailable)?;
    Ok(outcomes)
}

/// The ids that a batch names, each once.
#[derive(Default)]
struct Touched {
    advertisements: BTreeSet<AdvertisementId>,
    /// Those whose seats are counted.
    counted: BTreeSet<AdvertisementId>,
    reservations: BTreeSet<ReservationId>,
}

impl Touched {
    fn by(batch: &[Write]) -> Self {
        let mut touched = Self::default();
        for write in batch {
            match write {
                Write::Put { advertisement, confirmed, settled, .. } => {
                    touched.advertisements.insert(advertisement.id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                Write::Extend { id, confirmed, settled, .. } => {
                    touched.advertisements.insert(*id);
                    touched.reservations.extend(confirmed.iter().chain(settled));
                }
                Write::Delete { id, .. } | Write::Expire { id, .. } => {
                    touched.advertisements.insert(*id);
                }
                Write::Reserve { reservation, .. } => {
                    touched.advertisements.insert(reservation.advertisement_id);
                    touched.counted.insert(reservation.advertisement_id);
                    touched.reservations.insert(reservation.id);
                }
                Write::End { id, .. } => {
                    touched.reservations.insert(*id);
                }
            }
        }
        touched
    }
}

/// What the database says about the ids that a batch names.
#[derive(Default)]
struct Before {
    advertisements: HashMap<AdvertisementId, Held>,
    reservations: BTreeMap<ReservationId, Reservation>,
    tombstones: HashMap<AdvertisementId, UnixMs, IdState>,
}

impl Before {
    async fn read(connection: &mut SqliteConnection, touched: &Touched) -> Result<Self, StoreError> {
        let mut before = Self::default();
        if !touched.advertisements.is_empty() {
            let asked: Vec<AdvertisementId> = touched.advertisements.iter().copied().collect();
            let query = sqlx::query_scalar(sql::READ_ADVERTISEMENTS).bind(json_array(&touched.advertisements));
            let answer: String = query.fetch_one(&mut *connection).await.map_err(unavailable)?;
            for found in rows::findings(&answer)? {
                let id = asked[found.at];
                before.advertisements.extend(found.held.map(|held| (id, held)));
                before.tombstones.extend(found.tombstone.map(|until| (id, until)));
            }
        }
        if !touched.reservations.is_empty() {
            let (ids, counted) = (json_array(&touched.reservations), json_array(&touched.counted));
            let query = sqlx::query(sql::READ_RESERVATIONS).bind(ids).bind(counted);
            for row in query.fetch_all(connection).await.map_err(unavailable)? {
                let reservation = rows::reservation(&row)?;
                before.reservations.insert(reservation.id, reservation);
            }
        }
        Ok(before)
    }

    /// The same, for the changes to be made in.
    fn picture(&self) -> Picture {
        let mut picture = Picture { tombstones: self.tombstones.clone(), ..Picture::default() };
        for (id, held) in &self.advertisements {
            let Held { since, expires, join_seats, .. } = *held;
            let reservations = BTreeSet::new();
            let standing = Standing { since, expires, join_seats, published: None, fresh: false, reservations };
            picture.advertisements.insert(*id, standing);
        }
        self.reservations.values().for_each(|it| picture.add_reservation(it.clone()));
        picture
    }

    async fn write_difference(&self, connection: &mut SqliteConnection, after: &Picture) -> Result<(), StoreError> {
        let difference = Difference::between(self, after);
        difference.write(connection).await.map_err(unavailable)
    }
}

/// What to write so that the database says what the changes came to.
#[derive(Default)]
struct Difference<'a> {
    /// Gone, or gone and made anew.
    removed: Vec<AdvertisementId>,
    published: Vec<AdvertisementRow>,
    /// Leases that publishing has overtaken.
    unleased: Vec<i64>,
    leased: Vec<(i64, UnixMs)>,
    reservations: Vec<&'a Reservation>,
    tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl<'a> Difference<'a> {
    fn between(before: &Before, after: &'a Picture) -> Self {
        let mut difference = Self::default();
        let mut removed = BTreeSet::new();
        for (id, held) in &before.advertisements {
            match after.advertisements.get(id) {
                None => {
                    removed.insert(*id);
                }
                Some(standing) if standing.fresh => {
                    removed.insert(*id);
                }
                Some(standing) if standing.published.is_some() && held.leased => difference.unleased.push(held.n),
                Some(standing) if standing.published.is_none() && standing.expires != held.expires => {
                    difference.leased.push((held.n, standing.expires));
                }
                Some(_) => {}
            }
        }
        for standing in after.advertisements.values() {
            if let Some(advertisement) = &standing.published {
                difference.published.push(AdvertisementRow::of(advertisement, standing.expires));
            }
        }
        for reservation in after.reservations.values() {
            // One that goes with its advertisement and is then made anew looks unchanged, and has to be written.
            let kept = before.reservations.get(&reservation.id).filter(|it| !removed.contains(&it.advertisement_id));
            if kept != Some(reservation) {
                difference.reservations.push(reservation);
            }
        }
        let buried = after.tombstones.iter().filter(|(id, until)| before.tombstones.get(id) != Some(until));
        difference.tombstones.extend(buried.map(|(id, until)| (*id, *until)));
        difference.removed.extend(removed);
        difference
    }

    /// Removes first: what is made anew must not be taken away by its own removal.
    async fn write(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        sql::REMOVE_ADVERTISEMENTS.execute(connection, &self.removed, bind_id).await?;
        sql::PUT_ADVERTISEMENTS.execute(connection, &self.published, bind_advertisement).await?;
        sql::REMOVE_LEASES.execute(connection, &self.unleased, bind_number).await?;
        sql::PUT_LEASES.execute(connection, &self.leased, bind_lease).await?;
        sql::PUT_RESERVATIONS.execute(connection, &self.reservations, bind_reservation).await?;
        sql::PUT_TOMBSTONES.execute(connection, &self.tombstones, bind_tombstone).await
    }
}

/// Removes advertisements by id, with their leases and reservations.
pub(super) async fn remove(connection: &mut SqliteConnection, ids: &[AdvertisementId]) -> Result<(), sqlx::Error> {
    sql::REMOVE_ADVERTISEMENTS.execute(connection, ids, bind_id).await
}

fn bind_id(id: &AdvertisementId, to: &mut sql::Binds) {
    to.add(id.as_bytes().as_slice());
}

fn bind_number(n: &i64, to: &mut sql::Binds) {
    to.add(*n);
}

fn bind_lease((n, expires): &(i64, UnixMs), to: &mut sql::Binds) {
    to.add(*n).add(rows::to_ms(*expires));
}

fn bind_tombstone((id, until): &(AdvertisementId, UnixMs), to: &mut sql::Binds) {
    to.add(id.as_bytes().as_slice()).add(rows::to_ms(*until));
}

fn bind_advertisement(row: &AdvertisementRow, to: &mut sql::Binds) {
    to.add(row.id.as_slice()).add(row.silo_id).add(row.set_id).add(row.kind).add(row.since_ms).add(row.expires_ms);
    to.add(row.join_seats).add(row.body.as_str()).add(row.connect_data.as_slice()).add(row.checksum());
}

fn bind_reservation(reservation: &&Reservation, to: &mut sql::Binds) {
    let row = ReservationRow::of(reservation);
    to.add(row.id.as_slice()).add(row.advertisement_id.as_slice()).add(row.seats).add(row.users.as_slice());
    to.add(row.payload.as_slice()).add(row.state).add(row.until_ms).add(row.checksum());
}

/// `["0123…", "4567…"]`. Hexadecimal digits need no escapes.
fn json_array<T: std::fmt::Display>(names: &BTreeSet<T>) -> String {
    let mut text = String::with_capacity(2 + 35 * names.len());
    text.push('[');
    for (index, name) in names.iter().enumerate() {
        text.push_str(if index == 0 { "\"" } else { ",\"" });
        text.push_str(&name.to_string());
        text.push('"');
    }
    text.push(']');
    text
}
