//! One batch of changes, in one transaction: read what it touches, decide in plain code, write the difference.
//!
//! Each kind of row is written by one statement for all of them, whatever mix of changes the batch is, and an id that
//! comes up many times is written once, as it ends up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, IdState, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::decide::{Picture, Standing};
use crate::store::rows::{self, AdvertisementRow, Held, ReservationRow};
use crate::store::sqlite::log::Length;
use crate::store::sqlite::statements::{self as sql, Script};
use crate::store::sqlite::unavailable;
use crate::store::touched::Touched;
use crate::store::{Outcome, Reservation, StoreError, Version, Write};

/// Makes all changes and answers each, and says how long the log has become. On an error none has happened, and the
/// connection may be within a transaction: nothing but closing it is safe.
pub(super) async fn commit(
    connection: &mut SqliteConnection,
    batch: &[Write],
) -> Result<(Vec<Outcome>, Length), StoreError> {
    let touched = Touched::by(batch);
    // Polled in this order: the question is on its way to SQLite's thread when the texts are made here.
    let (before, encoded) = tokio::join!(biased; Before::read(connection, &touched), async { Encoded::of(batch) });
    let before = before?;
    let mut after = before.picture();
    let outcomes = batch.iter().map(|write| after.apply(write)).collect();
    let script = Difference::between(&before, &after, encoded).script();
    let row = script.run_and_commit(connection).await.map_err(unavailable)?;
    let number = |index| row.try_get::<i64, _>(index).map_err(unavailable);
    Ok((outcomes, Length { pages: number(1)?, moved: number(2)? }))
}

/// What the database says about the ids that a batch names.
#[derive(Default)]
struct Before {
    advertisements: HashMap<AdvertisementId, Held>,
    reservations: BTreeMap<ReservationId, Reservation>,
    tombstones: HashMap<AdvertisementId, UnixMs, IdState>,
}

impl Before {
    /// Begins the transaction and reads.
    async fn read(connection: &mut SqliteConnection, touched: &Touched) -> Result<Self, StoreError> {
        let mut before = Self::default();
        let query =
            sqlx::query(sql::BEGIN_AND_READ).bind(json_array(touched.advertisements.iter().map(|it| it.as_bytes())));
        let query = query.bind(json_array(touched.reservations.iter().map(|it| it.as_bytes())));
        let query = query.bind(json_array(touched.counted.iter().map(|it| it.as_bytes())));
        let rows = query.fetch_all(connection).await.map_err(unavailable)?;
        let (first, reservations) = rows.split_first().ok_or_else(|| unavailable(sqlx::Error::RowNotFound))?;
        let asked: Vec<AdvertisementId> = touched.advertisements.iter().copied().collect();
        for found in rows::findings(first.try_get(0).map_err(unavailable)?)? {
            let Some(&id) = asked.get(found.at) else { continue };
            before.advertisements.extend(found.held.map(|held| (id, held)));
            before.tombstones.extend(found.tombstone.map(|until| (id, until)));
        }
        for row in reservations {
            let reservation = rows::reservation(row)?;
            before.reservations.insert(reservation.id, reservation);
        }
        Ok(before)
    }

    /// The same, for the changes to be made in.
    fn picture(&self) -> Picture {
        let mut picture = Picture { tombstones: self.tombstones.clone(), ..Picture::default() };
        for (id, held) in &self.advertisements {
            picture.add_standing(*id, (held.since, held.expires), held.join_seats, Version::default());
        }
        self.reservations.values().for_each(|it| picture.add_reservation(it.clone()));
        picture
    }
}

/// What a batch publishes as rows, made while the database is being asked. What comes of the batch may differ in what
/// the store knows better: since when it is advertised, until when it is believed.
#[derive(Default)]
struct Encoded<'a>(HashMap<AdvertisementId, (&'a Arc<Advertisement>, Publication<'a>)>);

impl<'a> Encoded<'a> {
    fn of(batch: &'a [Write]) -> Self {
        let mut encoded = Self::default();
        // The last of an id is the one that most likely stands.
        for write in batch.iter().rev() {
            if let Write::Put { advertisement, expires, .. } = write {
                encoded
                    .0
                    .entry(advertisement.id)
                    .or_insert_with(|| (advertisement, Publication::of(advertisement, *expires)));
            }
        }
        encoded
    }

    fn take(&mut self, advertisement: &'a Arc<Advertisement>, standing: &Standing, n: Option<i64>) -> Publication<'a> {
        let made = self.0.remove(&advertisement.id).filter(|(of, _)| Arc::ptr_eq(of, advertisement));
        let made = made.map_or_else(|| Publication::of(advertisement, standing.expires), |(_, made)| made);
        made.restated(n, standing)
    }
}

/// A row to be published, and its checksum.
struct Publication<'a> {
    /// Its number in the database; none for a new one.
    n: Option<i64>,
    row: AdvertisementRow<'a>,
    checksum: i64,
}

impl<'a> Publication<'a> {
    fn of(advertisement: &'a Advertisement, expires: UnixMs) -> Self {
        let row = AdvertisementRow::of(advertisement, expires);
        Self { n: None, checksum: row.checksum(), row }
    }

    fn restated(mut self, n: Option<i64>, standing: &Standing) -> Self {
        let (since_ms, expires_ms) = (rows::to_ms(standing.since), rows::to_ms(standing.expires));
        if (since_ms, expires_ms) != (self.row.since_ms, self.row.expires_ms) {
            (self.row.since_ms, self.row.expires_ms) = (since_ms, expires_ms);
            self.checksum = self.row.checksum();
        }
        Self { n, ..self }
    }
}

/// What to write so that the database says what the changes came to.
#[derive(Default)]
struct Difference<'a> {
    /// Gone, or gone and made anew.
    removed: Vec<AdvertisementId>,
    published: Vec<Publication<'a>>,
    /// Leases that publishing has overtaken.
    unleased: Vec<i64>,
    leased: Vec<(i64, UnixMs)>,
    reservations: Vec<&'a Reservation>,
    tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl<'a> Difference<'a> {
    fn between(before: &Before, after: &'a Picture, mut encoded: Encoded<'a>) -> Self {
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
        for (id, standing) in &after.advertisements {
            if let Some(advertisement) = &standing.published {
                let n = before.advertisements.get(id).filter(|_| !standing.fresh).map(|held| held.n);
                difference.published.push(encoded.take(advertisement, standing, n));
            }
        }
        // In the order of the file, new ones last: neighbours are found together.
        difference.published.sort_unstable_by_key(|it| it.n.unwrap_or(i64::MAX));
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
    fn script(&self) -> Script {
        let mut script = Script::default();
        script.add(&sql::REMOVE_ADVERTISEMENTS, &self.removed, bind_id);
        script.add(&sql::PUT_ADVERTISEMENTS, &self.published, bind_advertisement);
        script.add(&sql::REMOVE_LEASES, &self.unleased, bind_number);
        script.add(&sql::PUT_LEASES, &self.leased, bind_lease);
        script.add(&sql::PUT_RESERVATIONS, &self.reservations, bind_reservation);
        script.add(&sql::PUT_TOMBSTONES, &self.tombstones, bind_tombstone);
        script
    }
}

/// Removes advertisements by id, with their leases and reservations.
pub(super) async fn remove(connection: &mut SqliteConnection, ids: &[AdvertisementId]) -> Result<(), sqlx::Error> {
    let mut script = Script::default();
    script.add(&sql::REMOVE_ADVERTISEMENTS, ids, bind_id);
    script.run(connection).await
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

fn bind_advertisement(Publication { n, row, checksum }: &Publication<'_>, to: &mut sql::Binds) {
    to.add(*n).add(row.id.as_slice()).add(row.silo_id).add(row.set_id).add(row.kind).add(row.since_ms);
    to.add(row.expires_ms).add(row.join_seats).add(&*row.body).add(&*row.connect_data).add(*checksum);
}

fn bind_reservation(reservation: &&Reservation, to: &mut sql::Binds) {
    let row = ReservationRow::of(reservation);
    to.add(row.id.as_slice()).add(row.advertisement_id.as_slice()).add(row.seats).add(row.users.as_slice());
    to.add(row.payload.as_slice()).add(row.state).add(row.until_ms).add(row.checksum());
}

/// `["0123…", "4567…"]`: names of 16 bytes as hexadecimal digits.
pub(super) fn json_array<'a>(names: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 + 35 * names.len());
    text.push('[');
    for (index, name) in names.enumerate() {
        text.push_str(if index == 0 { "\"" } else { ",\"" });
        let digits = name.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        text.extend(digits.map(|digit| char::from(DIGITS[usize::from(digit)])));
        text.push('"');
    }
    text.push(']');
    text
}
