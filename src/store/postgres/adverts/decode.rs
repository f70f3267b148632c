//! Decoding of advertisement and reservation rows, with the columns of `statements.rs`.

use std::borrow::Cow;

use sqlx::postgres::PgRow;
use sqlx::types::Uuid;

use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::adverts::{AdvertVersion, OwnerKey, Reservation, ReservationState, StoredAdvertisement};
use crate::store::column_reader::ColumnReader;
use crate::store::error::StoreError;
use crate::store::rows::{self, AdvertisementRow};

/// Row of an id before a batch: an advertisement, a tombstone, or both.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockedAdvertRow {
    pub(super) id: AdvertisementId,
    pub(super) version: AdvertVersion,
    pub(super) heartbeat_owner: i64,
    pub(super) advertised_since: UnixMs,
    pub(super) expires_at: UnixMs,
    pub(super) join_seats: u16,
    /// Whether there is an advertisement.
    pub(super) is_advertised: bool,
    /// End of the tombstone, if there is one.
    pub(super) deleted_until: Option<UnixMs>,
    /// Owner, if it is counted.
    pub(super) owner: Option<OwnerKey>,
    /// Digest of the request that created it, if it is known.
    pub(super) create_digest: Option<[u8; 16]>,
}

/// Decodes a row of `LOCK_ADVERTISEMENTS`.
pub(super) fn decode_locked_advert_row(row: &PgRow) -> Result<LockedAdvertRow, StoreError> {
    let columns = ColumnReader { table: "advertisement", row };
    Ok(LockedAdvertRow {
        id: AdvertisementId::from_bytes(columns.id_bytes(0, "advertisement_id")?),
        version: AdvertVersion(columns.read(1, "version")?),
        heartbeat_owner: columns.read(2, "heartbeat_owner")?,
        advertised_since: rows::from_ms(columns.read(3, "since_ms")?),
        expires_at: rows::from_ms(columns.read(4, "expires_ms")?),
        join_seats: columns.uint16(5, "join_seats")?,
        is_advertised: columns.read(6, "body")?,
        deleted_until: columns.read::<Option<i64>>(7, "deleted_until_ms")?.map(rows::from_ms),
        owner: columns.read::<Option<Uuid>>(8, "owner")?.map(|owner| OwnerKey::from_bytes(owner.into_bytes())),
        create_digest: columns.read::<Option<Uuid>>(9, "create_digest")?.map(Uuid::into_bytes),
    })
}

/// Decodes a row of `FIND_ADVERTISEMENTS_OF_OWNERS_OR_RESERVERS`: id, and owner and expiry if it is there because of its own owner.
pub(super) fn decode_advert_of_owner_or_reserver(
    row: &PgRow,
) -> Result<(AdvertisementId, Option<OwnerKey>, UnixMs), StoreError> {
    let columns = ColumnReader { table: "advertisement", row };
    let id = AdvertisementId::from_bytes(columns.id_bytes(0, "advertisement_id")?);
    let owner: Option<Uuid> = columns.read(1, "owner")?;
    let expires_ms: Option<i64> = columns.read(2, "expires_ms")?;
    let owner = owner.map(|owner| OwnerKey::from_bytes(owner.into_bytes()));
    Ok((id, owner, rows::from_ms(expires_ms.unwrap_or(0))))
}

/// Number of columns of an advertisement, with its id first.
pub(super) const ADVERTISEMENT_COLUMN_COUNT: usize = 13;

/// Decodes the advertisement from column `first` on; `None` if there is only an id. `replica_id` is this server.
pub(super) fn decode_advertisement(
    row: &PgRow,
    first: usize,
    replica_id: i64,
) -> Result<Option<StoredAdvertisement>, StoreError> {
    let columns = ColumnReader { table: "advertisement", row };
    let Some(version) = columns.read(first + 1, "version")? else { return Ok(None) };
    let is_heartbeat_owner = columns.read::<i64>(first + 2, "heartbeat_owner")? == replica_id;
    let row = AdvertisementRow {
        id: columns.id_bytes(first, "advertisement_id")?,
        silo_id: columns.read(first + 3, "silo_id")?,
        set_id: columns.read(first + 4, "set_id")?,
        kind: i64::from(columns.read::<i16>(first + 5, "kind")?),
        since_ms: columns.read(first + 6, "since_ms")?,
        expires_ms: columns.read(first + 7, "expires_ms")?,
        join_seats: i64::from(columns.read::<i32>(first + 8, "join_seats")?),
        body: Cow::Borrowed(columns.read(first + 9, "body")?),
        connect_data: Cow::Borrowed(columns.read(first + 10, "connect_data")?),
        ttl_ms: columns.read::<Option<i32>>(first + 11, "ttl_ms")?.map(i64::from),
        beacon_vector: columns.read(first + 12, "beacon_vector")?,
    };
    let expires_at = row.expiry_at_publication();
    let advertisement = row.decode()?.into();
    let version = AdvertVersion(version);
    Ok(Some(StoredAdvertisement { advertisement, expires_at, reservations: Vec::new(), version, is_heartbeat_owner }))
}

/// Advertisement id in a row of `READ_CHANGES_WITH_CURRENT_ROWS`.
pub(super) fn decode_advertisement_id(row: &PgRow, index: usize) -> Result<AdvertisementId, StoreError> {
    ColumnReader { table: "advertisement", row }.id_bytes(index, "advertisement_id").map(AdvertisementId::from_bytes)
}

/// Decodes the reservation from column `first` on; `None` if that column is null.
pub(super) fn decode_reservation(row: &PgRow, first: usize) -> Result<Option<Reservation>, StoreError> {
    let columns = ColumnReader { table: "reservation", row };
    let Some(id) = columns.read::<Option<Uuid>>(first, "reservation_id")? else { return Ok(None) };
    let users: &[u8] = columns.read(first + 3, "users")?;
    let (users, rest) = users.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(columns.corrupt_row("users", "length is not a multiple of 16".into()));
    }
    let digest: &[u8] = columns.read(first + 4, "request_digest")?;
    Ok(Some(Reservation {
        id: ReservationId::from_bytes(id.into_bytes()),
        advertisement_id: AdvertisementId::from_bytes(columns.id_bytes(first + 1, "advertisement_id")?),
        seats: columns.uint16(first + 2, "seats")?,
        users: users.iter().map(|user| UserKey::from_bytes(*user)).collect(),
        request_digest: digest
            .try_into()
            .map_err(|_| columns.corrupt_row("request_digest", format!("length {} is not 16", digest.len())))?,
        state: match columns.read::<i16>(first + 5, "state")? {
            0 => ReservationState::Held,
            1 => ReservationState::Confirmed,
            2 => ReservationState::Ended,
            other => return Err(rows::unknown_row_error("reservation", "state", format!("unknown state {other}"))),
        },
        expires_or_purge_at: rows::from_ms(columns.read(first + 6, "deadline_ms")?),
        owner: rows::decode_reservation_owner(
            columns.read::<Option<Uuid>>(first + 7, "owner")?.map(Uuid::into_bytes),
            columns.read::<Option<Uuid>>(first + 8, "party")?.map(Uuid::into_bytes),
        ),
        has_joined: columns.read(first + 9, "joined")?,
    }))
}
