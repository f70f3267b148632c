//! One batch of changes, in one transaction: read what it touches, decide in plain code, write the difference.
//!
//! Each kind of row is written by one statement for all of them, whatever mix of changes the batch is, and an id that
//! comes up many times is written once, as it ends up.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::apply_writes::{AdvertRowState, AdvertRows};
use crate::store::rows::{self, AdvertLookup, AdvertisementRow, ReservationRow};
use crate::store::sqlite::statements::{self as sql, SqlScript};
use crate::store::sqlite::to_store_error;
use crate::store::sqlite::wal::WalLength;
use crate::store::touched_keys::TouchedAdvertKeys;
use crate::store::{AdvertVersion, AdvertWrite, Reservation, StoreError, WriteOutcome};

/// Makes all changes and answers each, and says how long the log has become. On an error none has happened, and the
/// connection may be within a transaction: nothing but closing it is safe.
pub(super) async fn commit_batch(
    connection: &mut SqliteConnection,
    batch: &[AdvertWrite],
) -> Result<(Vec<WriteOutcome>, WalLength), StoreError> {
    let touched = TouchedAdvertKeys::of_batch(batch);
    // Polled in this order: the question is on its way to SQLite's thread when the texts are made here.
    let (before, encoded) = tokio::join!(biased; AdvertRowsBefore::begin_and_read(connection, &touched), async { EncodedAdverts::encode_batch(batch) });
    let before = before?;
    let mut after = before.to_advert_rows();
    let outcomes = batch.iter().map(|write| after.apply_write(write)).collect();
    let script = AdvertRowChanges::between(&before, &after, encoded).to_script();
    let row = script.execute_and_commit(connection).await.map_err(to_store_error)?;
    let number = |index| row.try_get::<i64, _>(index).map_err(to_store_error);
    Ok((outcomes, WalLength { pages: number(1)?, checkpointed_pages: number(2)? }))
}

/// What the database says about the ids that a batch names.
#[derive(Default)]
struct AdvertRowsBefore {
    advertisements: HashMap<AdvertisementId, AdvertLookup>,
    reservations: BTreeMap<ReservationId, Reservation>,
    tombstones: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
}

impl AdvertRowsBefore {
    /// Begins the transaction and reads.
    async fn begin_and_read(
        connection: &mut SqliteConnection,
        touched: &TouchedAdvertKeys,
    ) -> Result<Self, StoreError> {
        let mut before = Self::default();
        let query = sqlx::query(sql::BEGIN_AND_READ)
            .bind(hex_json_array(touched.advertisements.iter().map(|it| it.as_bytes())));
        let query = query.bind(hex_json_array(touched.reservations.iter().map(|it| it.as_bytes())));
        let query = query.bind(hex_json_array(touched.seat_checked.iter().map(|it| it.as_bytes())));
        let rows = query.fetch_all(connection).await.map_err(to_store_error)?;
        let (first, reservations) = rows.split_first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let asked: Vec<AdvertisementId> = touched.advertisements.iter().copied().collect();
        for found in rows::decode_lookup_results(first.try_get(0).map_err(to_store_error)?)? {
            let Some(&id) = asked.get(found.key_index) else { continue };
            before.advertisements.extend(found.advertisement.map(|held| (id, held)));
            before.tombstones.extend(found.tombstone_until.map(|until| (id, until)));
        }
        for row in reservations {
            let reservation = rows::decode_reservation(row)?;
            before.reservations.insert(reservation.id, reservation);
        }
        Ok(before)
    }

    /// The same, for the changes to be made in.
    fn to_advert_rows(&self) -> AdvertRows {
        let mut picture = AdvertRows { tombstones: self.tombstones.clone(), ..AdvertRows::default() };
        for (id, held) in &self.advertisements {
            picture.add_advertisement(
                *id,
                (held.advertised_since, held.expires_at),
                held.join_seats,
                AdvertVersion::default(),
            );
        }
        self.reservations.values().for_each(|it| picture.add_reservation(it.clone()));
        picture
    }
}

/// What a batch publishes as rows, made while the database is being asked. What comes of the batch may differ in what
/// the store knows better: since when it is advertised, until when it is believed.
#[derive(Default)]
struct EncodedAdverts<'a>(HashMap<AdvertisementId, (&'a Arc<Advertisement>, AdvertPublication<'a>)>);

impl<'a> EncodedAdverts<'a> {
    fn encode_batch(batch: &'a [AdvertWrite]) -> Self {
        let mut encoded = Self::default();
        // The last of an id is the one that most likely stands.
        for write in batch.iter().rev() {
            if let AdvertWrite::Publish { advertisement, expires_at: expires, .. } = write {
                encoded
                    .0
                    .entry(advertisement.id)
                    .or_insert_with(|| (advertisement, AdvertPublication::encode(advertisement, *expires)));
            }
        }
        encoded
    }

    fn take_row(
        &mut self,
        advertisement: &'a Arc<Advertisement>,
        standing: &AdvertRowState,
        n: Option<i64>,
    ) -> AdvertPublication<'a> {
        let made = self.0.remove(&advertisement.id).filter(|(of, _)| Arc::ptr_eq(of, advertisement));
        let made = made.map_or_else(|| AdvertPublication::encode(advertisement, standing.expires_at), |(_, made)| made);
        made.with_row_state(n, standing)
    }
}

/// A row to be published, and its checksum.
struct AdvertPublication<'a> {
    /// Its number in the database; none for a new one.
    row_number: Option<i64>,
    row: AdvertisementRow<'a>,
    checksum: i64,
}

impl<'a> AdvertPublication<'a> {
    fn encode(advertisement: &'a Advertisement, expires: UnixMs) -> Self {
        let row = AdvertisementRow::encode(advertisement, expires);
        Self { row_number: None, checksum: row.checksum(), row }
    }

    fn with_row_state(mut self, n: Option<i64>, standing: &AdvertRowState) -> Self {
        let (since_ms, expires_ms) = (rows::to_ms(standing.advertised_since), rows::to_ms(standing.expires_at));
        if (since_ms, expires_ms) != (self.row.since_ms, self.row.expires_ms) {
            (self.row.since_ms, self.row.expires_ms) = (since_ms, expires_ms);
            self.checksum = self.row.checksum();
        }
        Self { row_number: n, ..self }
    }
}

/// What to write so that the database says what the changes came to.
#[derive(Default)]
struct AdvertRowChanges<'a> {
    /// Gone, or gone and made anew.
    deleted: Vec<AdvertisementId>,
    published: Vec<AdvertPublication<'a>>,
    /// Leases that publishing has overtaken.
    deleted_leases: Vec<i64>,
    upserted_leases: Vec<(i64, UnixMs)>,
    upserted_reservations: Vec<&'a Reservation>,
    upserted_tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl<'a> AdvertRowChanges<'a> {
    fn between(before: &AdvertRowsBefore, after: &'a AdvertRows, mut encoded: EncodedAdverts<'a>) -> Self {
        let mut difference = Self::default();
        let mut removed = BTreeSet::new();
        for (id, held) in &before.advertisements {
            match after.advertisements.get(id) {
                None => {
                    removed.insert(*id);
                }
                Some(standing) if standing.created_in_batch => {
                    removed.insert(*id);
                }
                Some(standing) if standing.new_advertisement.is_some() && held.has_heartbeat_lease => {
                    difference.deleted_leases.push(held.row_number)
                }
                Some(standing) if standing.new_advertisement.is_none() && standing.expires_at != held.expires_at => {
                    difference.upserted_leases.push((held.row_number, standing.expires_at));
                }
                Some(_) => {}
            }
        }
        for (id, standing) in &after.advertisements {
            if let Some(advertisement) = &standing.new_advertisement {
                let n =
                    before.advertisements.get(id).filter(|_| !standing.created_in_batch).map(|held| held.row_number);
                difference.published.push(encoded.take_row(advertisement, standing, n));
            }
        }
        // In the order of the file, new ones last: neighbours are found together.
        difference.published.sort_unstable_by_key(|it| it.row_number.unwrap_or(i64::MAX));
        for reservation in after.reservations.values() {
            // One that goes with its advertisement and is then made anew looks unchanged, and has to be written.
            let kept = before.reservations.get(&reservation.id).filter(|it| !removed.contains(&it.advertisement_id));
            if kept != Some(reservation) {
                difference.upserted_reservations.push(reservation);
            }
        }
        let buried = after.tombstones.iter().filter(|(id, until)| before.tombstones.get(id) != Some(until));
        difference.upserted_tombstones.extend(buried.map(|(id, until)| (*id, *until)));
        difference.deleted.extend(removed);
        difference
    }

    /// Removes first: what is made anew must not be taken away by its own removal.
    fn to_script(&self) -> SqlScript {
        let mut script = SqlScript::default();
        script.add_rows(&sql::DELETE_ADVERTISEMENTS, &self.deleted, bind_id);
        script.add_rows(&sql::UPSERT_ADVERTISEMENTS, &self.published, bind_advertisement);
        script.add_rows(&sql::DELETE_LEASES, &self.deleted_leases, bind_row_number);
        script.add_rows(&sql::UPSERT_LEASES, &self.upserted_leases, bind_lease);
        script.add_rows(&sql::UPSERT_RESERVATIONS, &self.upserted_reservations, bind_reservation);
        script.add_rows(&sql::UPSERT_TOMBSTONES, &self.upserted_tombstones, bind_tombstone);
        script
    }
}

/// Removes advertisements by id, with their leases and reservations.
pub(super) async fn delete_advertisements(
    connection: &mut SqliteConnection,
    ids: &[AdvertisementId],
) -> Result<(), sqlx::Error> {
    let mut script = SqlScript::default();
    script.add_rows(&sql::DELETE_ADVERTISEMENTS, ids, bind_id);
    script.execute(connection).await
}

fn bind_id(id: &AdvertisementId, to: &mut sql::BindValues) {
    to.push(id.as_bytes().as_slice());
}

fn bind_row_number(n: &i64, to: &mut sql::BindValues) {
    to.push(*n);
}

fn bind_lease((n, expires): &(i64, UnixMs), to: &mut sql::BindValues) {
    to.push(*n).push(rows::to_ms(*expires));
}

fn bind_tombstone((id, until): &(AdvertisementId, UnixMs), to: &mut sql::BindValues) {
    to.push(id.as_bytes().as_slice()).push(rows::to_ms(*until));
}

fn bind_advertisement(
    AdvertPublication { row_number: n, row, checksum }: &AdvertPublication<'_>,
    to: &mut sql::BindValues,
) {
    to.push(*n).push(row.id.as_slice()).push(row.silo_id).push(row.set_id).push(row.kind).push(row.since_ms);
    to.push(row.expires_ms).push(row.join_seats).push(&*row.body).push(&*row.connect_data).push(*checksum);
}

fn bind_reservation(reservation: &&Reservation, to: &mut sql::BindValues) {
    let row = ReservationRow::encode(reservation);
    to.push(row.id.as_slice()).push(row.advertisement_id.as_slice()).push(row.seats).push(row.users.as_slice());
    to.push(row.payload.as_slice()).push(row.state).push(row.until_ms).push(row.checksum());
}

/// `["0123…", "4567…"]`: names of 16 bytes as hexadecimal digits.
pub(super) fn hex_json_array<'a>(names: impl ExactSizeIterator<Item = &'a [u8; 16]>) -> String {
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
