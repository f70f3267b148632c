//! Row encoding and decoding between columns and domain values; detects corrupt rows.
//!
//! Columns that SQL or an operator queries are separate. The rest of an advertisement is one JSON text, `body`;
//! `adverts/row_body.rs` documents its keys.

use std::borrow::Cow;
use std::num::NonZeroU32;

use sha2::{Digest, Sha256};
use sqlx::sqlite::SqliteRow;

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::id::{AdvertisementId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::latency::published_vector::PublishedVector;
use crate::domain::time::UnixMs;
use crate::store::adverts::row_body;
use crate::store::adverts::{OwnerKey, Reservation, ReservationOwner, ReservationState, ReservedPartyKey};
use crate::store::column_reader::ColumnReader;
use crate::store::error::StoreError;

/// Row of `advertisement`, without `n`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdvertisementRow<'a> {
    pub(super) id: [u8; 16],
    pub(super) silo_id: i64,
    pub(super) set_id: i64,
    pub(super) kind: i64,
    pub(super) since_ms: i64,
    pub(super) expires_ms: i64,
    pub(super) join_seats: i64,
    /// Not covered by the checksum: version 0.2.0 leaves it as it is when it writes the row again.
    pub(super) ttl_ms: Option<i64>,
    /// Published beacon vector. Not covered by the checksum: older versions leave it as it is.
    pub(super) beacon_vector: Option<Vec<u8>>,
    pub(super) body: Cow<'a, str>,
    pub(super) connect_data: Cow<'a, [u8]>,
}

impl<'a> AdvertisementRow<'a> {
    pub(super) fn encode(advertisement: &'a Advertisement, expires_at: UnixMs) -> Self {
        Self {
            id: *advertisement.id.as_bytes(),
            silo_id: advertisement.session.silo.0.cast_signed(),
            set_id: i64::from(advertisement.set_id.0),
            kind: match advertisement.kind {
                AdvertisementKind::Session => 0,
                AdvertisementKind::GameServer => 1,
            },
            since_ms: to_ms(advertisement.advertised_since),
            expires_ms: to_ms(expires_at),
            join_seats: i64::from(advertisement.session.offered_seats),
            ttl_ms: advertisement.ttl_ms.map(|ttl_ms| i64::from(ttl_ms.get())),
            beacon_vector: advertisement.session.published_beacon_vector().map(|it| blob_with_checksum(it.encode())),
            body: row_body::encode_advertisement(advertisement).into(),
            connect_data: (&*advertisement.connect_data).into(),
        }
    }

    /// Expiry at publication; a heartbeat may have extended it since.
    pub(super) fn expiry_at_publication(&self) -> UnixMs {
        from_ms(self.expires_ms)
    }

    /// First 8 bytes of a SHA-256 over all columns but `ttl_ms` and `beacon_vector`: numbers big-endian, each text and blob after its length.
    pub(super) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        let numbers = [self.silo_id, self.set_id, self.kind, self.since_ms, self.expires_ms, self.join_seats];
        numbers.into_iter().for_each(|number| sum.add_number(number));
        sum.add_bytes(self.body.as_bytes());
        sum.add_bytes(&self.connect_data);
        sum.finish()
    }

    /// Decodes the advertisement. The caller determines the expiry, because a heartbeat row may have extended it.
    pub(super) fn decode(self) -> Result<Advertisement, StoreError> {
        let corrupt = |column, reason| StoreError::CorruptRow { table: "advertisement", column, reason };
        let kind = match self.kind {
            0 => AdvertisementKind::Session,
            1 => AdvertisementKind::GameServer,
            other => return Err(unknown_row_error("advertisement", "kind", format!("unknown kind {other}"))),
        };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let join_seats = u16::try_from(self.join_seats).map_err(|error| corrupt("join_seats", error.to_string()))?;
        let to_ttl = |ttl_ms: i64| u32::try_from(ttl_ms).and_then(NonZeroU32::try_from);
        let ttl_ms = self.ttl_ms.map(to_ttl).transpose().map_err(|error| corrupt("ttl_ms", error.to_string()))?;
        let mut advertisement =
            row_body::decode_advertisement(&self.body).map_err(|error| body_error("advertisement", &error))?;
        advertisement.id = AdvertisementId::from_bytes(self.id);
        advertisement.set_id = SetId(set_id);
        advertisement.kind = kind;
        advertisement.advertised_since = from_ms(self.since_ms);
        advertisement.session.silo = SiloId(self.silo_id.cast_unsigned());
        advertisement.session.offered_seats = join_seats;
        advertisement.ttl_ms = ttl_ms;
        let vector =
            self.beacon_vector.as_deref().map(|blob| verify_and_strip_checksum("advertisement", "beacon_vector", blob));
        // One of a newer version counts as none, as an expired one does.
        let vector = vector.transpose()?.and_then(PublishedVector::decode);
        advertisement.session.set_published_beacon_vector(vector);
        advertisement.connect_data = self.connect_data.into();
        Ok(advertisement)
    }
}

/// Stored advertisement, as far as writes depend on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdvertRowForWrites {
    /// Value of `n`, the key in table `heartbeat`.
    pub(super) row_number: i64,
    pub(super) advertised_since: UnixMs,
    pub(super) expires_at: UnixMs,
    pub(super) join_seats: u16,
    /// Whether `heartbeat` has a row for it: a heartbeat extended its expiry after the publication.
    pub(super) has_heartbeat: bool,
}

/// Element of the first row of `statements::BEGIN_WRITE_AND_READ_ADVERTS`: index of the id asked for; `n`, `since_ms`, `expires_ms`
/// and `join_seats` of the advertisement; `expires_ms` of the heartbeat; `until_ms` of the tombstone.
type AdvertLookupRow = (usize, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// Advertisement or tombstone found for an id.
pub(super) struct AdvertOrTombstone {
    /// Index of the id in the query.
    pub(super) key_index: usize,
    pub(super) advertisement: Option<AdvertRowForWrites>,
    pub(super) tombstone_until: Option<UnixMs>,
}

/// Decodes the first row of `statements::BEGIN_WRITE_AND_READ_ADVERTS`.
pub(super) fn decode_adverts_and_tombstones(json: &str) -> Result<Vec<AdvertOrTombstone>, StoreError> {
    let corrupt = |column, reason| StoreError::CorruptRow { table: "advertisement", column, reason };
    let rows: Vec<AdvertLookupRow> = serde_json::from_str(json).map_err(|error| corrupt("n", error.to_string()))?;
    rows.into_iter().map(decode_advert_lookup).collect()
}

fn decode_advert_lookup(
    (key_index, n, since, expires, seats, heartbeat, until): AdvertLookupRow,
) -> Result<AdvertOrTombstone, StoreError> {
    let corrupt = |column, reason| StoreError::CorruptRow { table: "advertisement", column, reason };
    let advertisement = match (n, since, expires, seats) {
        (Some(row_number), Some(since), Some(expires), Some(seats)) => Some(AdvertRowForWrites {
            row_number,
            advertised_since: from_ms(since),
            expires_at: from_ms(heartbeat.unwrap_or(expires)),
            join_seats: u16::try_from(seats).map_err(|error| corrupt("join_seats", error.to_string()))?,
            has_heartbeat: heartbeat.is_some(),
        }),
        _ => None,
    };
    Ok(AdvertOrTombstone { key_index, advertisement, tombstone_until: until.map(from_ms) })
}

/// Decodes the row of `statements::READ_OWNED_ADVERTISEMENTS`: id, owner and row of each advertisement.
pub(super) fn decode_owned_adverts(
    json: &str,
) -> Result<Vec<(AdvertisementId, OwnerKey, AdvertOrTombstone)>, StoreError> {
    let corrupt = |column, reason| StoreError::CorruptRow { table: "advertisement", column, reason };
    let rows: Vec<(AdvertLookupRow, &str, &str)> =
        serde_json::from_str(json).map_err(|error| corrupt("owner", error.to_string()))?;
    let decode = |(row, id, owner): (AdvertLookupRow, &str, &str)| {
        let id = AdvertisementId::parse(id).ok_or_else(|| corrupt("advertisement_id", "length is not 16".into()))?;
        let owner = UserKey::parse(owner).ok_or_else(|| corrupt("owner", "length is not 16".into()))?;
        Ok((id, OwnerKey::from_bytes(*owner.as_bytes()), decode_advert_lookup(row)?))
    };
    rows.into_iter().map(decode).collect()
}

/// Row of `reservation`.
pub(super) struct ReservationRow {
    pub(super) id: [u8; 16],
    pub(super) advertisement_id: [u8; 16],
    pub(super) seats: i64,
    pub(super) users: Vec<u8>,
    pub(super) request_digest: [u8; 16],
    pub(super) state: i64,
    pub(super) deadline_ms: i64,
    /// Not covered by the checksum, and `party` neither: version 0.2.0 leaves them as they are.
    pub(super) owner: Option<[u8; 16]>,
    pub(super) party: Option<[u8; 16]>,
    /// Not covered by the checksum: version 0.2.0 leaves it as it is.
    pub(super) joined: bool,
}

impl ReservationRow {
    pub(super) fn encode(reservation: &Reservation) -> Self {
        Self {
            id: *reservation.id.as_bytes(),
            advertisement_id: *reservation.advertisement_id.as_bytes(),
            seats: i64::from(reservation.seats),
            users: reservation.users.iter().flat_map(|user| *user.as_bytes()).collect(),
            request_digest: reservation.request_digest,
            state: match reservation.state {
                ReservationState::Held => 0,
                ReservationState::Confirmed => 1,
                ReservationState::Ended => 2,
            },
            deadline_ms: to_ms(reservation.expires_or_purge_at),
            owner: reservation.owner.map(|owner| *owner.client.as_bytes()),
            party: reservation.owner.map(|owner| *owner.party.as_bytes()),
            joined: reservation.has_joined,
        }
    }

    pub(super) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        sum.add_bytes(&self.advertisement_id);
        sum.add_bytes(&self.users);
        sum.add_bytes(&self.request_digest);
        [self.seats, self.state, self.deadline_ms].into_iter().for_each(|number| sum.add_number(number));
        sum.finish()
    }
}

/// Advertisement id in a row with the columns of `statements::LOAD_ALL_RESERVATIONS`.
pub(super) fn decode_advertisement_id_of_reservation(row: &SqliteRow) -> Result<AdvertisementId, StoreError> {
    ColumnReader { table: "reservation", row }.id_bytes(1, "advertisement_id").map(AdvertisementId::from_bytes)
}

/// Decodes a row of `statements::READ_CREATE_DIGESTS`.
pub(super) fn decode_create_digest(row: &SqliteRow) -> Result<(AdvertisementId, [u8; 16]), StoreError> {
    let columns = ColumnReader { table: "advertisement", row };
    let id = columns.id_bytes(0, "advertisement_id").map(AdvertisementId::from_bytes)?;
    Ok((id, columns.id_bytes(1, "create_digest")?))
}

/// Decodes a row with the columns of `statements::LOAD_ALL_RESERVATIONS` and verifies its checksum.
pub(super) fn decode_reservation(row: &SqliteRow) -> Result<Reservation, StoreError> {
    let columns = ColumnReader { table: "reservation", row };
    let encoded = ReservationRow {
        id: columns.id_bytes(0, "reservation_id")?,
        advertisement_id: columns.id_bytes(1, "advertisement_id")?,
        seats: columns.int64(2, "seats")?,
        users: columns.read(3, "users")?,
        request_digest: columns.id_bytes(4, "request_digest")?,
        state: columns.int64(5, "state")?,
        deadline_ms: columns.int64(6, "deadline_ms")?,
        owner: columns.optional_id(8, "owner")?,
        party: columns.optional_id(9, "party")?,
        joined: columns.int64(10, "joined")? != 0,
    };
    columns.verify_checksum("checksum", columns.int64(7, "checksum")?, encoded.checksum())?;
    let (users, rest) = encoded.users.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(columns.corrupt_row("users", format!("length {} is not a multiple of 16", encoded.users.len())));
    }
    Ok(Reservation {
        id: ReservationId::from_bytes(encoded.id),
        advertisement_id: AdvertisementId::from_bytes(encoded.advertisement_id),
        seats: u16::try_from(encoded.seats).map_err(|error| columns.corrupt_row("seats", error.to_string()))?,
        users: users.iter().map(|user| UserKey::from_bytes(*user)).collect(),
        request_digest: encoded.request_digest,
        state: match encoded.state {
            0 => ReservationState::Held,
            1 => ReservationState::Confirmed,
            2 => ReservationState::Ended,
            other => return Err(unknown_row_error("reservation", "state", format!("unknown state {other}"))),
        },
        has_joined: encoded.joined,
        expires_or_purge_at: from_ms(encoded.deadline_ms),
        owner: decode_reservation_owner(encoded.owner, encoded.party),
    })
}

/// Owner from its two columns; `None` unless both have a value.
pub(super) fn decode_reservation_owner(owner: Option<[u8; 16]>, party: Option<[u8; 16]>) -> Option<ReservationOwner> {
    Some(ReservationOwner { client: OwnerKey::from_bytes(owner?), party: ReservedPartyKey::from_bytes(party?) })
}

/// Error for a value that only a newer server writes.
pub(super) fn unknown_row_error(table: &'static str, column: &'static str, reason: String) -> StoreError {
    StoreError::UnknownRow { table, column, reason }
}

/// Error of decoding a `body`. Unknown keys and numbers are values of a newer server; their errors start with
/// `unknown`, here and in serde.
pub(super) fn body_error(table: &'static str, error: &serde_json::Error) -> StoreError {
    let reason = error.to_string();
    if reason.starts_with("unknown ") {
        unknown_row_error(table, "body", reason)
    } else {
        StoreError::CorruptRow { table, column: "body", reason }
    }
}

/// Time as column value. Values above `i64::MAX` are cut to it.
pub(super) fn to_ms(time: UnixMs) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

pub(super) fn from_ms(ms: i64) -> UnixMs {
    UnixMs(u64::try_from(ms).unwrap_or(0))
}

/// Bytes with their checksum at the end, for a column that the checksum of its row does not cover.
pub(super) fn blob_with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = blob_checksum(&bytes);
    bytes.extend(sum);
    bytes
}

/// Bytes of a column without the checksum at their end, which must match.
pub(super) fn verify_and_strip_checksum<'a>(
    table: &'static str,
    column: &'static str,
    blob: &'a [u8],
) -> Result<&'a [u8], StoreError> {
    let split = blob.split_last_chunk::<8>().filter(|(bytes, sum)| blob_checksum(bytes) == **sum);
    let reason = || "its checksum does not match".to_owned();
    split.map(|(bytes, _)| bytes).ok_or_else(|| StoreError::CorruptRow { table, column, reason: reason() })
}

fn blob_checksum(bytes: &[u8]) -> [u8; 8] {
    let mut sum = RowChecksum::new();
    sum.add_bytes(bytes);
    sum.finish().to_be_bytes()
}

/// Row checksum; detects disk corruption. No protection against deliberate changes of the file.
pub(super) struct RowChecksum(Sha256);

impl RowChecksum {
    pub(super) fn new() -> Self {
        Self(Sha256::new())
    }

    pub(super) fn add_number(&mut self, number: i64) {
        self.0.update(number.to_be_bytes());
    }

    pub(super) fn add_optional_number(&mut self, number: Option<i64>) {
        self.0.update([u8::from(number.is_some())]);
        self.add_number(number.unwrap_or(0));
    }

    pub(super) fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    pub(super) fn finish(self) -> i64 {
        let digest = self.0.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        i64::from_be_bytes(first)
    }
}

#[cfg(test)]
pub(super) mod tests;
