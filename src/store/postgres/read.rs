//! From the database's rows to the store's values, as `statements.rs` lays the columns out.

use std::borrow::Cow;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{Decode, Row, Type};

use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::rows::{self, AdvertisementRow};
use crate::store::{Reservation, ReservationState, StoreError, StoredAdvertisement, Version};

/// What is known of a name before a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: AdvertisementId,
    pub(super) version: Version,
    pub(super) holder: i64,
    pub(super) since: UnixMs,
    pub(super) expires: UnixMs,
    pub(super) join_seats: u16,
    /// Something is advertised under it.
    pub(super) stands: bool,
    /// It was deleted, and must not come back before this.
    pub(super) deleted_until: Option<UnixMs>,
}

/// A row of `LOCK`.
pub(super) fn found(row: &PgRow) -> Result<Found, StoreError> {
    let at = Place { table: "advertisement", row };
    Ok(Found {
        id: AdvertisementId::from_bytes(at.name(0, "advertisement_id")?),
        version: Version(at.get(1, "version")?),
        holder: at.get(2, "holder")?,
        since: rows::from_ms(at.get(3, "since_ms")?),
        expires: rows::from_ms(at.get(4, "expires_ms")?),
        join_seats: at.small(5, "join_seats")?,
        stands: at.get(6, "body")?,
        deleted_until: at.get::<Option<i64>>(7, "deleted_until_ms")?.map(rows::from_ms),
    })
}

/// Columns that an advertisement has, its id first.
pub(super) const ADVERTISEMENT_COLUMNS: usize = 11;

/// The advertisement that begins at column `first`, none where there is only an id. `replica` is who asks.
pub(super) fn stored(row: &PgRow, first: usize, replica: i64) -> Result<Option<StoredAdvertisement>, StoreError> {
    let at = Place { table: "advertisement", row };
    let Some(version) = at.get(first + 1, "version")? else { return Ok(None) };
    let held_here = at.get::<i64>(first + 2, "holder")? == replica;
    let row = AdvertisementRow {
        id: at.name(first, "advertisement_id")?,
        silo_id: at.get(first + 3, "silo_id")?,
        set_id: at.get(first + 4, "set_id")?,
        kind: i64::from(at.get::<i16>(first + 5, "kind")?),
        since_ms: at.get(first + 6, "since_ms")?,
        expires_ms: at.get(first + 7, "expires_ms")?,
        join_seats: i64::from(at.get::<i32>(first + 8, "join_seats")?),
        body: Cow::Borrowed(at.get(first + 9, "body")?),
        connect_data: Cow::Borrowed(at.get(first + 10, "connect_data")?),
    };
    let expires = row.expires();
    let advertisement = row.advertisement()?.into();
    let version = Version(version);
    Ok(Some(StoredAdvertisement { advertisement, expires, reservations: Vec::new(), version, held_here }))
}

/// Whose row of `READ_CHANGES` it is.
pub(super) fn advertisement_id(row: &PgRow, index: usize) -> Result<AdvertisementId, StoreError> {
    Place { table: "advertisement", row }.name(index, "advertisement_id").map(AdvertisementId::from_bytes)
}

/// The reservation that begins at column `first`; none where that is null.
pub(super) fn reservation(row: &PgRow, first: usize) -> Result<Option<Reservation>, StoreError> {
    let at = Place { table: "reservation", row };
    let Some(id) = at.get::<Option<Uuid>>(first, "reservation_id")? else { return Ok(None) };
    let users: &[u8] = at.get(first + 3, "users")?;
    let (users, rest) = users.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(at.corrupt("users", "they are no whole number of users".into()));
    }
    let payload: &[u8] = at.get(first + 4, "payload")?;
    Ok(Some(Reservation {
        id: ReservationId::from_bytes(id.into_bytes()),
        advertisement_id: AdvertisementId::from_bytes(at.name(first + 1, "advertisement_id")?),
        seats: at.small(first + 2, "seats")?,
        users: users.iter().map(|user| UserKey::from_bytes(*user)).collect(),
        payload: payload.try_into().map_err(|_| at.corrupt("payload", format!("{} bytes, not 16", payload.len())))?,
        state: match at.get::<i16>(first + 5, "state")? {
            0 => ReservationState::Held,
            1 => ReservationState::Confirmed,
            2 => ReservationState::Ended,
            other => return Err(at.corrupt("state", format!("{other} is no state"))),
        },
        until: rows::from_ms(at.get(first + 6, "until_ms")?),
    }))
}

/// A row being read, and the table to name when it is corrupt.
pub(super) struct Place<'r> {
    pub(super) table: &'static str,
    pub(super) row: &'r PgRow,
}

impl<'r> Place<'r> {
    pub(super) fn get<T>(&self, index: usize, column: &'static str) -> Result<T, StoreError>
    where
        T: Decode<'r, sqlx::Postgres> + Type<sqlx::Postgres>,
    {
        self.row.try_get(index).map_err(|error| self.corrupt(column, error.to_string()))
    }

    pub(super) fn name(&self, index: usize, column: &'static str) -> Result<[u8; 16], StoreError> {
        self.get::<Uuid>(index, column).map(Uuid::into_bytes)
    }

    /// A number without a sign, of 32 bits.
    pub(super) fn count(&self, index: usize, column: &'static str) -> Result<u32, StoreError> {
        u32::try_from(self.get::<i64>(index, column)?).map_err(|error| self.corrupt(column, error.to_string()))
    }

    fn small(&self, index: usize, column: &'static str) -> Result<u16, StoreError> {
        u16::try_from(self.get::<i32>(index, column)?).map_err(|error| self.corrupt(column, error.to_string()))
    }

    fn corrupt(&self, column: &'static str, what: String) -> StoreError {
        StoreError::Corrupt { table: self.table, column, what }
    }
}
