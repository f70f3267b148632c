//! From the database's rows to the store's values, as `statements.rs` lays the columns out.

use std::borrow::Cow;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{Decode, Row, Type};

use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::rows::{self, AdvertisementRow};
use crate::store::{AdvertVersion, Reservation, ReservationState, StoreError, StoredAdvertisement};

/// What is known of a name before a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLookup {
    pub(super) id: AdvertisementId,
    pub(super) version: AdvertVersion,
    pub(super) heartbeat_owner: i64,
    pub(super) advertised_since: UnixMs,
    pub(super) expires_at: UnixMs,
    pub(super) join_seats: u16,
    /// Something is advertised under it.
    pub(super) is_advertised: bool,
    /// It was deleted, and must not come back before this.
    pub(super) deleted_until: Option<UnixMs>,
}

/// A row of `LOCK`.
pub(super) fn decode_key_lookup(row: &PgRow) -> Result<KeyLookup, StoreError> {
    let at = ColumnReader { table: "advertisement", row };
    Ok(KeyLookup {
        id: AdvertisementId::from_bytes(at.id_bytes(0, "advertisement_id")?),
        version: AdvertVersion(at.read(1, "version")?),
        heartbeat_owner: at.read(2, "holder")?,
        advertised_since: rows::from_ms(at.read(3, "since_ms")?),
        expires_at: rows::from_ms(at.read(4, "expires_ms")?),
        join_seats: at.uint16(5, "join_seats")?,
        is_advertised: at.read(6, "body")?,
        deleted_until: at.read::<Option<i64>>(7, "deleted_until_ms")?.map(rows::from_ms),
    })
}

/// Columns that an advertisement has, its id first.
pub(super) const ADVERTISEMENT_COLUMN_COUNT: usize = 11;

/// The advertisement that begins at column `first`, none where there is only an id. `replica` is who asks.
pub(super) fn decode_advertisement(
    row: &PgRow,
    first: usize,
    replica: i64,
) -> Result<Option<StoredAdvertisement>, StoreError> {
    let at = ColumnReader { table: "advertisement", row };
    let Some(version) = at.read(first + 1, "version")? else { return Ok(None) };
    let held_here = at.read::<i64>(first + 2, "holder")? == replica;
    let row = AdvertisementRow {
        id: at.id_bytes(first, "advertisement_id")?,
        silo_id: at.read(first + 3, "silo_id")?,
        set_id: at.read(first + 4, "set_id")?,
        kind: i64::from(at.read::<i16>(first + 5, "kind")?),
        since_ms: at.read(first + 6, "since_ms")?,
        expires_ms: at.read(first + 7, "expires_ms")?,
        join_seats: i64::from(at.read::<i32>(first + 8, "join_seats")?),
        body: Cow::Borrowed(at.read(first + 9, "body")?),
        connect_data: Cow::Borrowed(at.read(first + 10, "connect_data")?),
    };
    let expires = row.published_expiry();
    let advertisement = row.decode()?.into();
    let version = AdvertVersion(version);
    Ok(Some(StoredAdvertisement {
        advertisement,
        expires_at: expires,
        reservations: Vec::new(),
        version,
        is_heartbeat_owner: held_here,
    }))
}

/// Whose row of `READ_CHANGES` it is.
pub(super) fn decode_advertisement_id(row: &PgRow, index: usize) -> Result<AdvertisementId, StoreError> {
    ColumnReader { table: "advertisement", row }.id_bytes(index, "advertisement_id").map(AdvertisementId::from_bytes)
}

/// The reservation that begins at column `first`; none where that is null.
pub(super) fn decode_reservation(row: &PgRow, first: usize) -> Result<Option<Reservation>, StoreError> {
    let at = ColumnReader { table: "reservation", row };
    let Some(id) = at.read::<Option<Uuid>>(first, "reservation_id")? else { return Ok(None) };
    let users: &[u8] = at.read(first + 3, "users")?;
    let (users, rest) = users.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(at.corrupt_row("users", "they are no whole number of users".into()));
    }
    let payload: &[u8] = at.read(first + 4, "payload")?;
    Ok(Some(Reservation {
        id: ReservationId::from_bytes(id.into_bytes()),
        advertisement_id: AdvertisementId::from_bytes(at.id_bytes(first + 1, "advertisement_id")?),
        seats: at.uint16(first + 2, "seats")?,
        users: users.iter().map(|user| UserKey::from_bytes(*user)).collect(),
        request_digest: payload
            .try_into()
            .map_err(|_| at.corrupt_row("payload", format!("{} bytes, not 16", payload.len())))?,
        state: match at.read::<i16>(first + 5, "state")? {
            0 => ReservationState::Held,
            1 => ReservationState::Confirmed,
            2 => ReservationState::Ended,
            other => return Err(at.corrupt_row("state", format!("{other} is no state"))),
        },
        deadline: rows::from_ms(at.read(first + 6, "until_ms")?),
    }))
}

/// A row being read, and the table to name when it is corrupt.
pub(super) struct ColumnReader<'r> {
    pub(super) table: &'static str,
    pub(super) row: &'r PgRow,
}

impl<'r> ColumnReader<'r> {
    pub(super) fn read<T>(&self, index: usize, column: &'static str) -> Result<T, StoreError>
    where
        T: Decode<'r, sqlx::Postgres> + Type<sqlx::Postgres>,
    {
        self.row.try_get(index).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    pub(super) fn id_bytes(&self, index: usize, column: &'static str) -> Result<[u8; 16], StoreError> {
        self.read::<Uuid>(index, column).map(Uuid::into_bytes)
    }

    /// A number without a sign, of 32 bits.
    pub(super) fn uint32(&self, index: usize, column: &'static str) -> Result<u32, StoreError> {
        u32::try_from(self.read::<i64>(index, column)?).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    fn uint16(&self, index: usize, column: &'static str) -> Result<u16, StoreError> {
        u16::try_from(self.read::<i32>(index, column)?).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    fn corrupt_row(&self, column: &'static str, what: String) -> StoreError {
        StoreError::CorruptRow { table: self.table, column, reason: what }
    }
}
