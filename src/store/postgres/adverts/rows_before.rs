//! Rows that an advertisement batch finds: locked and read before the writes are applied.

use std::collections::{BTreeMap, HashMap};

use sqlx::postgres::PgConnection;

use crate::domain::id::{AdvertisementId, BuildIdHasher, ReservationId};
use crate::store::adverts::Reservation;
use crate::store::adverts::apply_writes::AdvertRows;
use crate::store::adverts::touched_keys::TouchedAdvertKeys;
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
}

impl AdvertRowsBefore {
    pub(super) async fn lock_and_read(
        connection: &mut PgConnection,
        keys: &TouchedAdvertKeys,
        unknown_rows: &UnknownRows,
    ) -> Result<Self, CommitError> {
        let mut before = Self::default();
        let locked = to_uuids(keys.locked_advertisements.iter().map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::LOCK_ADVERTISEMENTS).bind(locked).fetch_all(&mut *connection).await? {
            let found = decode::decode_locked_advert_row(&row)?;
            before.advertisements.insert(found.id, found);
        }
        if keys.reservations.is_empty() && keys.seat_counted_advertisements.is_empty() {
            return Ok(before);
        }
        let reservation_ids = to_uuids(keys.reservations.iter().map(ReservationId::as_bytes));
        let trust_memory = trusts_memory_for_seats();
        let advertisement_ids =
            to_uuids(keys.seat_counted_advertisements.iter().filter(|_| !trust_memory).map(AdvertisementId::as_bytes));
        for row in sqlx::query(sql::READ_RESERVATIONS)
            .bind(reservation_ids)
            .bind(advertisement_ids)
            .fetch_all(connection)
            .await?
        {
            let key = RowKey::Advertisement(decode::decode_advertisement_id(&row, 1)?);
            let reservation = unknown_rows.require(key, decode::decode_reservation(&row, 0))?;
            before.reservations.extend(reservation.map(|reservation| (reservation.id, reservation)));
        }
        Ok(before)
    }

    /// The rows that the writes are applied to.
    pub(super) fn to_advert_rows(&self) -> AdvertRows {
        let mut rows = AdvertRows::default();
        for (id, found) in &self.advertisements {
            rows.tombstones.extend(found.deleted_until.map(|until| (*id, until)));
            if found.is_advertised {
                rows.add_advertisement(
                    *id,
                    (found.advertised_since, found.expires_at),
                    found.join_seats,
                    found.version,
                );
            }
        }
        self.reservations.values().for_each(|reservation| rows.add_reservation(reservation.clone()));
        rows
    }
}

/// Whether the fail point is on that skips reading the reservations of advertisements.
fn trusts_memory_for_seats() -> bool {
    fail::fail_point!("trust_memory_for_seats", |_| true);
    false
}
