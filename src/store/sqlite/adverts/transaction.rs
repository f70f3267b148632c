//! Transaction of an advertisement batch: read the touched rows, apply the writes in code, store the difference.
//!
//! One statement writes all rows of a kind, for any mix of writes. An id that occurs several times is written once, in
//! its final state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::adverts::apply_writes::{AdvertRowState, AdvertRows};
use crate::store::adverts::touched_keys::TouchedAdvertKeys;
use crate::store::adverts::{
    AdvertVersion, AdvertWrite, OwnerKey, Reservation, ReservedPartyKey, UserTraces, WriteOutcome,
};
use crate::store::error::StoreError;
use crate::store::rows::{self, AdvertRowForWrites, AdvertisementRow, ReservationRow};
use crate::store::sqlite::adverts::page_decode::AdvertPage;
use crate::store::sqlite::adverts::statements as sql;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::hex_json_array::hex_json_array;
use crate::store::sqlite::connection::sql_script::{BindValues, SqlScript};
use crate::store::sqlite::connection::wal::WalLength;
use crate::store::sqlite::connection::write_batch::{BatchableWrite, decode_wal_length};
use crate::store::unknown_rows::{RowKey, UnknownRows};

impl BatchableWrite for AdvertWrite {
    type Output = WriteOutcome;

    async fn commit_batch(
        connection: &mut SqliteConnection,
        batch: &[Self],
        unknown_rows: &UnknownRows,
    ) -> Result<(Vec<Self::Output>, WalLength), StoreError> {
        let keys = TouchedAdvertKeys::of_batch(batch);
        // Polled in this order: SQLite's thread gets the query first, then the bodies are encoded here.
        let (before, encoded) = tokio::join!(biased; AdvertRowsBefore::begin_and_read(connection, &keys, unknown_rows), async { EncodedAdverts::encode_batch(batch) });
        let mut before = before?;
        before.read_owned_adverts(connection, batch).await?;
        before.read_rows_naming_erased_users(connection, &keys, unknown_rows).await?;
        before.read_create_digests(connection, batch).await?;
        let mut after = before.to_advert_rows();
        let outcomes = batch.iter().map(|write| after.apply_write(write)).collect();
        let script = AdvertRowChanges::between(&before, &after, encoded).to_script();
        let row = script.execute_and_commit(connection).await.map_err(to_store_error)?;
        Ok((outcomes, decode_wal_length(&row)?))
    }
}

/// Stored rows for the ids of a batch.
#[derive(Default)]
struct AdvertRowsBefore {
    advertisements: HashMap<AdvertisementId, AdvertRowForWrites>,
    reservations: BTreeMap<ReservationId, Reservation>,
    tombstones: HashMap<AdvertisementId, UnixMs, BuildIdHasher>,
    /// Owners of the advertisements of the owners who publish a new one.
    owner_by_advertisement: HashMap<AdvertisementId, OwnerKey, BuildIdHasher>,
    /// Advertisements to erase users from.
    adverts_naming_erased_users: HashMap<AdvertisementId, Arc<Advertisement>, BuildIdHasher>,
    /// Digests of the requests that created advertisements which the batch creates again, or erases a user from.
    create_digests: HashMap<AdvertisementId, [u8; 16], BuildIdHasher>,
}

impl AdvertRowsBefore {
    async fn begin_and_read(
        connection: &mut SqliteConnection,
        keys: &TouchedAdvertKeys,
        unknown_rows: &UnknownRows,
    ) -> Result<Self, StoreError> {
        let mut before = Self::default();
        let reads_owned = !keys.reservers.is_empty();
        let mut query = sqlx::query(if reads_owned {
            sql::BEGIN_WRITE_AND_READ_ADVERTS_WITH_OWNED_RESERVATIONS
        } else {
            sql::BEGIN_WRITE_AND_READ_ADVERTS
        })
        .bind(hex_json_array(keys.advertisements.iter().map(AdvertisementId::as_bytes)))
        .bind(hex_json_array(keys.reservations.iter().map(ReservationId::as_bytes)))
        .bind(hex_json_array(keys.seat_counted_advertisements.iter().map(AdvertisementId::as_bytes)));
        if reads_owned {
            query = query
                .bind(hex_json_array(keys.reservers.iter().map(OwnerKey::as_bytes)))
                .bind(hex_json_array(keys.parties.iter().map(ReservedPartyKey::as_bytes)));
        }
        let rows = query.fetch_all(connection).await.map_err(to_store_error)?;
        let (first, reservations) = rows.split_first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let ids: Vec<AdvertisementId> = keys.advertisements.iter().copied().collect();
        for found in rows::decode_adverts_and_tombstones(first.try_get(0).map_err(to_store_error)?)? {
            let Some(&id) = ids.get(found.key_index) else { continue };
            before.advertisements.extend(found.advertisement.map(|stored| (id, stored)));
            before.tombstones.extend(found.tombstone_until.map(|until| (id, until)));
        }
        for row in reservations {
            let id = RowKey::Advertisement(rows::decode_advertisement_id_of_reservation(row)?);
            let reservation = unknown_rows.record_if_unknown(id, rows::decode_reservation(row))?;
            before.reservations.insert(reservation.id, reservation);
        }
        Ok(before)
    }

    /// Reads the advertisements of the owners who publish one that is not in the store. Updates need none.
    async fn read_owned_adverts(
        &mut self,
        connection: &mut SqliteConnection,
        batch: &[AdvertWrite],
    ) -> Result<(), StoreError> {
        let is_new = |write: &&AdvertWrite| !self.advertisements.contains_key(&write.advertisement_id());
        // An advertisement that the batch removes and publishes again is new, too.
        let all = batch.iter().any(AdvertWrite::may_remove_advertisement);
        let publishing = batch.iter().filter(|write| all || is_new(write)).filter_map(AdvertWrite::advert_owner);
        let owners: BTreeSet<OwnerKey> = publishing.map(|owner| owner.key.account_range().0).collect();
        if owners.is_empty() {
            return Ok(());
        }
        let query = sqlx::query_scalar(sql::READ_OWNED_ADVERTISEMENTS)
            .bind(hex_json_array(owners.iter().map(OwnerKey::as_bytes)));
        let json: String = query.fetch_one(connection).await.map_err(to_store_error)?;
        for (id, owner, found) in rows::decode_owned_adverts(&json)? {
            self.owner_by_advertisement.insert(id, owner);
            self.advertisements.extend(found.advertisement.map(|stored| (id, stored)));
            self.tombstones.extend(found.tombstone_until.map(|until| (id, until)));
        }
        Ok(())
    }

    /// Reads the advertisements to erase users from, and the reservations in them that name the users.
    async fn read_rows_naming_erased_users(
        &mut self,
        connection: &mut SqliteConnection,
        keys: &TouchedAdvertKeys,
        unknown_rows: &UnknownRows,
    ) -> Result<(), StoreError> {
        if keys.erased_users.is_empty() {
            return Ok(());
        }
        let ids = hex_json_array(keys.erased_users.iter().map(|(id, _)| id.as_bytes()));
        let query = sqlx::query(sql::READ_ADVERTISEMENTS_WITH_IDS).bind(ids);
        let page = query.fetch_one(&mut *connection).await.map_err(to_store_error)?;
        let is_empty = page.try_get::<Option<&str>, _>(1).map_err(to_store_error)?.is_none();
        for row in if is_empty { None } else { Some(AdvertPage::from_row(&page)?) }.into_iter().flatten() {
            let (row, _) = row?;
            let id = AdvertisementId::from_bytes(row.id);
            let advertisement = unknown_rows.record_if_unknown(RowKey::Advertisement(id), row.decode())?;
            self.adverts_naming_erased_users.insert(id, Arc::new(advertisement));
        }
        for (id, user) in &keys.erased_users {
            let traces = UserTraces::of_user(*user);
            let query = sqlx::query(sql::READ_RESERVATIONS_NAMING_USER)
                .bind(id.as_bytes().to_vec())
                .bind(user.as_bytes().to_vec())
                .bind(traces.reserver_range.0.as_bytes().to_vec())
                .bind(traces.reserver_range.1.as_bytes().to_vec())
                .bind(traces.solo_party.as_bytes().to_vec());
            for row in query.fetch_all(&mut *connection).await.map_err(to_store_error)? {
                let decoded = rows::decode_reservation(&row);
                let reservation = unknown_rows.record_if_unknown(RowKey::Advertisement(*id), decoded)?;
                self.reservations.insert(reservation.id, reservation);
            }
        }
        Ok(())
    }

    /// Reads the digests of the requests that created advertisements, for those that the batch creates again or erases a user
    /// from. Other writes need none.
    async fn read_create_digests(
        &mut self,
        connection: &mut SqliteConnection,
        batch: &[AdvertWrite],
    ) -> Result<(), StoreError> {
        let ids = batch.iter().filter(|write| write.needs_create_digest()).map(AdvertWrite::advertisement_id);
        let ids: BTreeSet<AdvertisementId> = ids.filter(|id| self.advertisements.contains_key(id)).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids = hex_json_array(ids.iter().map(AdvertisementId::as_bytes));
        let rows =
            sqlx::query(sql::READ_CREATE_DIGESTS).bind(ids).fetch_all(connection).await.map_err(to_store_error)?;
        for row in rows {
            let (id, digest) = rows::decode_create_digest(&row)?;
            self.create_digests.insert(id, digest);
        }
        Ok(())
    }

    /// The rows that the writes are applied to.
    fn to_advert_rows(&self) -> AdvertRows {
        let mut advert_rows = AdvertRows { tombstones: self.tombstones.clone(), ..AdvertRows::default() };
        for (id, stored) in &self.advertisements {
            advert_rows.add_stored_advertisement(
                *id,
                (stored.advertised_since, stored.expires_at),
                stored.join_seats,
                AdvertVersion::default(),
                self.owner_by_advertisement.get(id).copied(),
            );
        }
        for (id, advertisement) in &self.adverts_naming_erased_users {
            if let Some(row) = advert_rows.advertisements.get_mut(id) {
                row.stored_advertisement = Some(Arc::clone(advertisement));
            }
        }
        for (id, digest) in &self.create_digests {
            if let Some(row) = advert_rows.advertisements.get_mut(id) {
                row.create_digest = Some(*digest);
            }
        }
        self.reservations.values().for_each(|reservation| advert_rows.add_reservation(reservation.clone()));
        advert_rows
    }
}

/// Encoded advertisements of a batch, prepared while the database reads. The final row can differ in its start of
/// advertising and its expiry.
#[derive(Default)]
struct EncodedAdverts<'a>(HashMap<AdvertisementId, (&'a Arc<Advertisement>, AdvertPublication<'a>)>);

impl<'a> EncodedAdverts<'a> {
    fn encode_batch(batch: &'a [AdvertWrite]) -> Self {
        let mut encoded = Self::default();
        // Of several publications of an id, the last one is most likely the one to store.
        for write in batch.iter().rev() {
            if let AdvertWrite::Publish { advertisement, expires_at, .. } = write {
                encoded
                    .0
                    .entry(advertisement.id)
                    .or_insert_with(|| (advertisement, AdvertPublication::encode(advertisement, *expires_at)));
            }
        }
        encoded
    }

    fn take_publication(
        &mut self,
        advertisement: &'a Arc<Advertisement>,
        row_state: &AdvertRowState,
        row_number: Option<i64>,
    ) -> AdvertPublication<'a> {
        let prepared = self.0.remove(&advertisement.id).filter(|(source, _)| Arc::ptr_eq(source, advertisement));
        let publication = match prepared {
            Some((_, publication)) => publication,
            None => AdvertPublication::encode(advertisement, row_state.expires_at),
        };
        publication.with_row_state(row_number, row_state)
    }
}

/// Row to insert or update, with its checksum.
struct AdvertPublication<'a> {
    /// Row number in the database; `None` for a new row.
    row_number: Option<i64>,
    row: AdvertisementRow<'a>,
    checksum: i64,
    /// Stored with a new row, as the digest is.
    owner: Option<OwnerKey>,
    create_digest: Option<[u8; 16]>,
}

impl<'a> AdvertPublication<'a> {
    fn encode(advertisement: &'a Advertisement, expires_at: UnixMs) -> Self {
        let row = AdvertisementRow::encode(advertisement, expires_at);
        Self { row_number: None, checksum: row.checksum(), row, owner: None, create_digest: None }
    }

    fn with_row_state(mut self, row_number: Option<i64>, row_state: &AdvertRowState) -> Self {
        let (since_ms, expires_ms) = (rows::to_ms(row_state.advertised_since), rows::to_ms(row_state.expires_at));
        if (since_ms, expires_ms) != (self.row.since_ms, self.row.expires_ms) {
            (self.row.since_ms, self.row.expires_ms) = (since_ms, expires_ms);
            self.checksum = self.row.checksum();
        }
        Self { row_number, owner: row_state.owner, create_digest: row_state.create_digest, ..self }
    }
}

/// Rows to write for a batch.
#[derive(Default)]
struct AdvertRowChanges<'a> {
    /// Removed, or removed and published again.
    deleted: Vec<AdvertisementId>,
    published: Vec<AdvertPublication<'a>>,
    /// Digests in the place of those that an erased user was part of.
    replaced_digests: Vec<(AdvertisementId, [u8; 16])>,
    /// Heartbeats of advertisements that were published again.
    deleted_heartbeats: Vec<i64>,
    upserted_heartbeats: Vec<(i64, UnixMs)>,
    upserted_reservations: Vec<&'a Reservation>,
    /// Reservations from which a user was erased.
    rewritten_reservations: Vec<&'a Reservation>,
    upserted_tombstones: Vec<(AdvertisementId, UnixMs)>,
}

impl<'a> AdvertRowChanges<'a> {
    fn between(before: &AdvertRowsBefore, after: &'a AdvertRows, mut encoded: EncodedAdverts<'a>) -> Self {
        let mut changes = Self::default();
        let mut removed = BTreeSet::new();
        for (id, stored) in &before.advertisements {
            match after.advertisements.get(id) {
                None => {
                    removed.insert(*id);
                }
                Some(row_state) if row_state.created_in_batch => {
                    removed.insert(*id);
                }
                Some(row_state) if row_state.new_advertisement.is_some() && stored.has_heartbeat => {
                    changes.deleted_heartbeats.push(stored.row_number)
                }
                Some(row_state)
                    if row_state.new_advertisement.is_none() && row_state.expires_at != stored.expires_at =>
                {
                    changes.upserted_heartbeats.push((stored.row_number, row_state.expires_at));
                }
                Some(_) => {}
            }
        }
        for (id, row_state) in &after.advertisements {
            let stored_digest = before.create_digests.get(id).filter(|_| !row_state.created_in_batch);
            if let Some((digest, stored)) = row_state.create_digest.zip(stored_digest)
                && digest != *stored
            {
                changes.replaced_digests.push((*id, digest));
            }
            if let Some(advertisement) = &row_state.new_advertisement {
                let row_number = before
                    .advertisements
                    .get(id)
                    .filter(|_| !row_state.created_in_batch)
                    .map(|stored| stored.row_number);
                changes.published.push(encoded.take_publication(advertisement, row_state, row_number));
            }
        }
        // In the order of the file, new rows last: adjacent rows are on the same pages.
        changes.published.sort_unstable_by_key(|publication| publication.row_number.unwrap_or(i64::MAX));
        for reservation in after.reservations.values() {
            // A reservation that was removed with its advertisement and made again looks unchanged, but must be
            // written.
            let stored = before.reservations.get(&reservation.id);
            let remaining = stored.filter(|stored| !removed.contains(&stored.advertisement_id));
            match remaining {
                Some(stored) if stored == reservation => {}
                Some(stored) if stored.differs_in_erased_columns(reservation) => {
                    changes.rewritten_reservations.push(reservation)
                }
                _ => changes.upserted_reservations.push(reservation),
            }
        }
        let new_tombstones = after.tombstones.iter().filter(|(id, until)| before.tombstones.get(id) != Some(until));
        changes.upserted_tombstones.extend(new_tombstones.map(|(id, until)| (*id, *until)));
        changes.deleted.extend(removed);
        changes
    }

    /// Deletes run first; otherwise they would remove the new rows.
    fn to_script(&self) -> SqlScript {
        let mut script = SqlScript::default();
        script.add_rows(&sql::DELETE_ADVERTISEMENTS, &self.deleted, bind_id);
        script.add_rows(&sql::UPSERT_ADVERTISEMENTS, &self.published, bind_advertisement);
        script.add_rows(&sql::REPLACE_CREATE_DIGEST, &self.replaced_digests, bind_create_digest);
        script.add_rows(&sql::DELETE_HEARTBEATS, &self.deleted_heartbeats, bind_row_number);
        script.add_rows(&sql::UPSERT_HEARTBEATS, &self.upserted_heartbeats, bind_heartbeat);
        script.add_rows(&sql::UPSERT_RESERVATIONS, &self.upserted_reservations, bind_reservation);
        script.add_rows(&sql::REWRITE_RESERVATIONS, &self.rewritten_reservations, bind_reservation);
        script.add_rows(&sql::UPSERT_TOMBSTONES, &self.upserted_tombstones, bind_tombstone);
        script
    }
}

/// Deletes advertisements, with their heartbeats and reservations.
pub(super) async fn delete_advertisements(
    connection: &mut SqliteConnection,
    ids: &[AdvertisementId],
) -> Result<(), sqlx::Error> {
    let mut script = SqlScript::default();
    script.add_rows(&sql::DELETE_ADVERTISEMENTS, ids, bind_id);
    script.execute(connection).await
}

fn bind_id(id: &AdvertisementId, values: &mut BindValues) {
    values.push(id.as_bytes().as_slice());
}

fn bind_row_number(row_number: &i64, values: &mut BindValues) {
    values.push(*row_number);
}

fn bind_heartbeat((row_number, expires_at): &(i64, UnixMs), values: &mut BindValues) {
    values.push(*row_number).push(rows::to_ms(*expires_at));
}

fn bind_tombstone((id, until): &(AdvertisementId, UnixMs), values: &mut BindValues) {
    values.push(id.as_bytes().as_slice()).push(rows::to_ms(*until));
}

fn bind_advertisement(
    AdvertPublication { row_number, row, checksum, owner, create_digest }: &AdvertPublication<'_>,
    values: &mut BindValues,
) {
    values
        .push(*row_number)
        .push(row.id.as_slice())
        .push(row.silo_id)
        .push(row.set_id)
        .push(row.kind)
        .push(row.since_ms);
    values
        .push(row.expires_ms)
        .push(row.join_seats)
        .push(row.ttl_ms)
        .push(row.beacon_vector.as_deref())
        .push(&*row.body)
        .push(&*row.connect_data)
        .push(*checksum)
        .push(owner.as_ref().map(|owner| owner.as_bytes().as_slice()))
        .push(create_digest.as_ref().map(<[u8; 16]>::as_slice));
}

fn bind_create_digest((id, digest): &(AdvertisementId, [u8; 16]), values: &mut BindValues) {
    values.push(id.as_bytes().as_slice()).push(digest.as_slice());
}

fn bind_reservation(reservation: &&Reservation, values: &mut BindValues) {
    let row = ReservationRow::encode(reservation);
    values.push(row.id.as_slice()).push(row.advertisement_id.as_slice()).push(row.seats).push(row.users.as_slice());
    values.push(row.request_digest.as_slice()).push(row.state).push(row.deadline_ms).push(row.checksum());
    values.push(row.owner.as_ref().map(<[u8; 16]>::as_slice)).push(row.party.as_ref().map(<[u8; 16]>::as_slice));
    values.push(i64::from(row.joined));
}
