//! Rows that an advertisement batch finds: locked and read before the writes are applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Executor};

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::domain::time::UnixMs;
use crate::store::adverts::apply_writes::AdvertRows;
use crate::store::adverts::touched_keys::TouchedAdvertKeys;
use crate::store::adverts::{AdvertWrite, OwnerKey, Reservation, ReservedPartyKey, UserTraces};
use crate::store::postgres::adverts::decode::{self, LockedAdvertRow};
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::connection::commit::CommitError;
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Stored rows for the ids of a batch.
#[derive(Default)]
pub(super) struct AdvertRowsBefore {
    pub(super) advertisements: HashMap<AdvertisementId, LockedAdvertRow, BuildIdHasher>,
    pub(super) reservations: BTreeMap<ReservationId, Reservation>,
    /// Advertisements that only count for their owners, with their expiry.
    count_only_adverts: Vec<(OwnerKey, AdvertisementId, UnixMs)>,
    /// Advertisements to erase users from.
    adverts_naming_erased_users: HashMap<AdvertisementId, Arc<Advertisement>, BuildIdHasher>,
}

impl AdvertRowsBefore {
    /// Begins the transaction, locks the rows and reads them. Rows that only owners need are left out unless
    /// `reads_owners`.
    pub(super) async fn begin_lock_and_read(
        connection: &mut PgConnection,
        keys: &TouchedAdvertKeys,
        reads_owners: bool,
        unknown_rows: &UnknownRows,
    ) -> Result<Self, CommitError> {
        let mut before = Self::default();
        let mut locked = keys.locked_advertisements.clone();
        if reads_owners {
            before.begin_with_owner_locks(connection, keys, &mut locked).await?;
        } else {
            connection.execute("begin").await?;
        }
        let locked = to_uuids(locked.iter().map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::LOCK_ADVERTISEMENTS).bind(locked).fetch_all(&mut *connection).await? {
            let found = decode::decode_locked_advert_row(&row)?;
            before.advertisements.insert(found.id, found);
        }
        before.read_rows_naming_erased_users(connection, keys, unknown_rows).await?;
        if keys.reservations.is_empty() && keys.seat_counted_advertisements.is_empty() {
            return Ok(before);
        }
        let reservation_ids = to_uuids(keys.reservations.iter().map(ReservationId::as_bytes));
        let trust_memory = fail_point_trusts_memory_for_seats();
        let advertisement_ids =
            to_uuids(keys.seat_counted_advertisements.iter().filter(|_| !trust_memory).map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::READ_TOUCHED_RESERVATIONS)
            .bind(reservation_ids)
            .bind(advertisement_ids)
            .bind(account_range_starts(&keys.reservers))
            .bind(account_range_ends(&keys.reservers))
            .bind(to_uuids(keys.parties.iter().map(ReservedPartyKey::as_bytes)))
            .fetch_all(connection)
            .await?
        {
            let key = RowKey::Advertisement(decode::decode_advertisement_id(&row, 1)?);
            let reservation = unknown_rows.record_if_unknown(key, decode::decode_reservation(&row, 0))?;
            before.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
        }
        Ok(before)
    }

    /// Reads the advertisements to erase users from, and the reservations in them that name the users.
    async fn read_rows_naming_erased_users(
        &mut self,
        connection: &mut PgConnection,
        keys: &TouchedAdvertKeys,
        unknown_rows: &UnknownRows,
    ) -> Result<(), CommitError> {
        if keys.erased_users.is_empty() {
            return Ok(());
        }
        let ids = to_uuids(keys.erased_users.iter().map(|(id, _)| id.as_bytes()));
        let query = sqlx::query(sql::READ_ADVERTISEMENTS_WITH_IDS).bind(None::<Vec<i64>>).bind(ids);
        for row in query.fetch_all(&mut *connection).await? {
            let id = decode::decode_advertisement_id(&row, 0)?;
            let decoded = decode::decode_advertisement(&row, 0, 0);
            if let Some(stored) = unknown_rows.record_if_unknown(RowKey::Advertisement(id), decoded)? {
                self.adverts_naming_erased_users.insert(id, stored.advertisement);
            }
        }
        for (id, user) in &keys.erased_users {
            let traces = UserTraces::of_user(*user);
            let query = sqlx::query(sql::READ_RESERVATIONS_NAMING_USER)
                .bind(Uuid::from_bytes(*id.as_bytes()))
                .bind(user.as_bytes().to_vec())
                .bind(Uuid::from_bytes(*traces.reserver_range.0.as_bytes()))
                .bind(Uuid::from_bytes(*traces.reserver_range.1.as_bytes()))
                .bind(Uuid::from_bytes(*traces.solo_party.as_bytes()));
            for row in query.fetch_all(&mut *connection).await? {
                let decoded = decode::decode_reservation(&row, 0);
                let reservation = unknown_rows.record_if_unknown(RowKey::Advertisement(*id), decoded)?;
                self.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
            }
        }
        Ok(())
    }

    /// Begins the transaction, locks the owners of the batch, and adds the advertisements to `locked` that the batch can
    /// change because of them. Advertisements that are only counted stay unlocked: no server
    /// adds one without the lock of their owner.
    async fn begin_with_owner_locks(
        &mut self,
        connection: &mut PgConnection,
        keys: &TouchedAdvertKeys,
        locked: &mut BTreeSet<AdvertisementId>,
    ) -> Result<(), CommitError> {
        let owners = keys.advertisers.keys().chain(&keys.reservers).map(OwnerKey::as_bytes);
        let lock_numbers =
            owners.chain(keys.parties.iter().map(ReservedPartyKey::as_bytes)).map(|key| key[0]).collect();
        let begin = sql::begin_with_owner_locks_sql(&lock_numbers);
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
        let query = sqlx::query(sql::FIND_ADVERTISEMENTS_OF_OWNERS_OR_RESERVERS)
            .bind(account_range_starts(keys.advertisers.keys()))
            .bind(account_range_ends(keys.advertisers.keys()))
            .bind(account_range_starts(&keys.reservers))
            .bind(account_range_ends(&keys.reservers))
            .bind(to_uuids(keys.parties.iter().map(ReservedPartyKey::as_bytes)));
        let mut counted = Vec::new();
        for row in query.fetch_all(connection).await? {
            let (id, owner, expires_at) = decode::decode_advert_of_owner_or_reserver(&row)?;
            match owner {
                Some(owner) if keys.advertisers.get(&owner.account_range().0) == Some(&false) => {
                    counted.push((owner, id, expires_at));
                }
                _ => {
                    locked.insert(id);
                }
            }
        }
        self.count_only_adverts.extend(counted.into_iter().filter(|(_, id, _)| !locked.contains(id)));
        Ok(())
    }

    /// Whether `write` publishes an advertisement of an owner that is not in the store.
    pub(super) fn is_new_and_owned(&self, write: &AdvertWrite) -> bool {
        let stored = self.advertisements.get(&write.advertisement_id());
        write.advert_owner().is_some() && stored.is_none_or(|stored| !stored.is_advertised)
    }

    /// The rows that the writes are applied to.
    pub(super) fn to_advert_rows(&self) -> AdvertRows {
        let mut rows = AdvertRows::default();
        for (id, found) in &self.advertisements {
            rows.tombstones.extend(found.deleted_until.map(|until| (*id, until)));
            if found.is_advertised {
                rows.add_stored_advertisement(
                    *id,
                    (found.advertised_since, found.expires_at),
                    found.join_seats,
                    found.version,
                    found.owner,
                );
                if let Some(row) = rows.advertisements.get_mut(id) {
                    row.create_digest = found.create_digest;
                }
            }
        }
        for (id, advertisement) in &self.adverts_naming_erased_users {
            if let Some(row) = rows.advertisements.get_mut(id) {
                row.stored_advertisement = Some(Arc::clone(advertisement));
            }
        }
        for (owner, id, expires_at) in &self.count_only_adverts {
            rows.owned.add_count_only_advert(*owner, *id, *expires_at);
        }
        self.reservations.values().for_each(|reservation| rows.add_reservation(reservation.clone()));
        rows
    }
}

fn account_range_starts<'a>(accounts: impl IntoIterator<Item = &'a OwnerKey>) -> Vec<Uuid> {
    accounts.into_iter().map(|owner| Uuid::from_bytes(*owner.account_range().0.as_bytes())).collect()
}

fn account_range_ends<'a>(accounts: impl IntoIterator<Item = &'a OwnerKey>) -> Vec<Uuid> {
    accounts.into_iter().map(|owner| Uuid::from_bytes(*owner.account_range().1.as_bytes())).collect()
}

/// Whether the fail point is on that skips reading the reservations of advertisements.
fn fail_point_trusts_memory_for_seats() -> bool {
    fail::fail_point!("trust_memory_for_seats", |_| true);
    false
}
