//! Rows to domain and back; the only place that can find a corrupt one.
//!
//! What SQL decides by, and what an operator would ask for, are columns of their own; the rest of an advertisement is
//! one JSON text, `body`, whose keys `rows/body.rs` documents.

pub(super) mod advert_page;
mod body;
pub(super) mod queue;
mod queue_body;
pub(super) mod queue_checksums;
pub(super) mod result;
mod result_body;

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::id::{AdvertisementId, ReservationId, SetId, SiloId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::{Reservation, ReservationState, StoreError};

/// A row of `advertisement`, but for `n`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdvertisementRow<'a> {
    pub(super) id: [u8; 16],
    pub(super) silo_id: i64,
    pub(super) set_id: i64,
    pub(super) kind: i64,
    pub(super) since_ms: i64,
    pub(super) expires_ms: i64,
    pub(super) join_seats: i64,
    pub(super) body: Cow<'a, str>,
    pub(super) connect_data: Cow<'a, [u8]>,
}

impl<'a> AdvertisementRow<'a> {
    pub(super) fn encode(advertisement: &'a Advertisement, expires: UnixMs) -> Self {
        Self {
            id: *advertisement.id.as_bytes(),
            silo_id: advertisement.session.silo.0.cast_signed(),
            set_id: i64::from(advertisement.set_id.0),
            kind: match advertisement.kind {
                AdvertisementKind::Session => 0,
                AdvertisementKind::GameServer => 1,
            },
            since_ms: to_ms(advertisement.advertised_since),
            expires_ms: to_ms(expires),
            join_seats: i64::from(advertisement.session.join_seats),
            body: body::encode_advertisement(advertisement).into(),
            connect_data: advertisement.connect_data.as_slice().into(),
        }
    }

    /// Until when it was believed as of its publishing.
    pub(super) fn published_expiry(&self) -> UnixMs {
        from_ms(self.expires_ms)
    }

    /// The first 8 bytes of a SHA-256 over all columns: numbers big-endian, each text and blob after its length.
    pub(super) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        let numbers = [self.silo_id, self.set_id, self.kind, self.since_ms, self.expires_ms, self.join_seats];
        numbers.into_iter().for_each(|number| sum.add_number(number));
        sum.add_bytes(self.body.as_bytes());
        sum.add_bytes(&self.connect_data);
        sum.finish()
    }

    /// The advertisement. Its expiry may have been moved by a lease, and is the caller's to find.
    pub(super) fn decode(self) -> Result<Advertisement, StoreError> {
        let corrupt = |column, what| StoreError::CorruptRow { table: "advertisement", column, reason: what };
        let kind = match self.kind {
            0 => AdvertisementKind::Session,
            1 => AdvertisementKind::GameServer,
            other => return Err(corrupt("kind", format!("{other} is no kind"))),
        };
        let set_id = u32::try_from(self.set_id).map_err(|error| corrupt("set_id", error.to_string()))?;
        let join_seats = u16::try_from(self.join_seats).map_err(|error| corrupt("join_seats", error.to_string()))?;
        let mut advertisement =
            body::decode_advertisement(&self.body).map_err(|error| corrupt("body", error.to_string()))?;
        advertisement.id = AdvertisementId::from_bytes(self.id);
        advertisement.set_id = SetId(set_id);
        advertisement.kind = kind;
        advertisement.advertised_since = from_ms(self.since_ms);
        advertisement.session.silo = SiloId(self.silo_id.cast_unsigned());
        advertisement.session.join_seats = join_seats;
        advertisement.connect_data = self.connect_data.into_owned();
        Ok(advertisement)
    }
}

/// What a change asks about an advertisement in the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdvertLookup {
    /// Its number, which is its name in `lease`.
    pub(super) row_number: i64,
    pub(super) advertised_since: UnixMs,
    pub(super) expires_at: UnixMs,
    pub(super) join_seats: u16,
    /// A heartbeat has moved its expiry since it was published.
    pub(super) has_heartbeat_lease: bool,
}

/// An element of what `statements::BEGIN_AND_READ` answers first: the place of the id that was asked for, then `n`,
/// `since_ms`, `expires_ms` and `join_seats` of the advertisement, the lease's `expires_ms`, the tombstone's `until_ms`.
type FoundRow = (usize, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

/// What was found under one of the ids that were asked for.
pub(super) struct LookupResult {
    /// The id's place in the question.
    pub(super) key_index: usize,
    /// The advertisement, if it is there.
    pub(super) advertisement: Option<AdvertLookup>,
    /// Until when it stays deleted, if it was.
    pub(super) tombstone_until: Option<UnixMs>,
}

/// Reads the answer to `the first question of `statements::BEGIN_AND_READ``.
pub(super) fn decode_lookup_results(answer: &str) -> Result<Vec<LookupResult>, StoreError> {
    let corrupt = |column, what| StoreError::CorruptRow { table: "advertisement", column, reason: what };
    let all: Vec<FoundRow> = serde_json::from_str(answer).map_err(|error| corrupt("n", error.to_string()))?;
    let read = |(at, n, since, expires, seats, lease, until): FoundRow| {
        let held = match (n, since, expires, seats) {
            (Some(n), Some(since), Some(expires), Some(seats)) => Some(AdvertLookup {
                row_number: n,
                advertised_since: from_ms(since),
                expires_at: from_ms(lease.unwrap_or(expires)),
                join_seats: u16::try_from(seats).map_err(|error| corrupt("join_seats", error.to_string()))?,
                has_heartbeat_lease: lease.is_some(),
            }),
            _ => None,
        };
        Ok(LookupResult { key_index: at, advertisement: held, tombstone_until: until.map(from_ms) })
    };
    all.into_iter().map(read).collect()
}

/// A row of `reservation`.
pub(super) struct ReservationRow {
    pub(super) id: [u8; 16],
    pub(super) advertisement_id: [u8; 16],
    pub(super) seats: i64,
    pub(super) users: Vec<u8>,
    pub(super) payload: [u8; 16],
    pub(super) state: i64,
    pub(super) until_ms: i64,
}

impl ReservationRow {
    pub(super) fn encode(reservation: &Reservation) -> Self {
        Self {
            id: *reservation.id.as_bytes(),
            advertisement_id: *reservation.advertisement_id.as_bytes(),
            seats: i64::from(reservation.seats),
            users: reservation.users.iter().flat_map(|user| *user.as_bytes()).collect(),
            payload: reservation.request_digest,
            state: match reservation.state {
                ReservationState::Held => 0,
                ReservationState::Confirmed => 1,
                ReservationState::Ended => 2,
            },
            until_ms: to_ms(reservation.deadline),
        }
    }

    pub(super) fn checksum(&self) -> i64 {
        let mut sum = RowChecksum::new();
        sum.add_bytes(&self.id);
        sum.add_bytes(&self.advertisement_id);
        sum.add_bytes(&self.users);
        sum.add_bytes(&self.payload);
        [self.seats, self.state, self.until_ms].into_iter().for_each(|number| sum.add_number(number));
        sum.finish()
    }
}

/// Reads a row whose columns are in the order of `statements::LOAD_RESERVATIONS`, and holds it against its checksum.
pub(super) fn decode_reservation(row: &SqliteRow) -> Result<Reservation, StoreError> {
    let at = ColumnReader { table: "reservation", row };
    let read = ReservationRow {
        id: at.id_bytes(0, "reservation_id")?,
        advertisement_id: at.id_bytes(1, "advertisement_id")?,
        seats: at.int64(2, "seats")?,
        users: at.read(3, "users")?,
        payload: at.id_bytes(4, "payload")?,
        state: at.int64(5, "state")?,
        until_ms: at.int64(6, "until_ms")?,
    };
    at.verify_checksum("checksum", at.int64(7, "checksum")?, read.checksum())?;
    let (users, rest) = read.users.as_chunks::<16>();
    if !rest.is_empty() {
        return Err(at.corrupt_row("users", format!("{} bytes are no whole number of users", read.users.len())));
    }
    Ok(Reservation {
        id: ReservationId::from_bytes(read.id),
        advertisement_id: AdvertisementId::from_bytes(read.advertisement_id),
        seats: u16::try_from(read.seats).map_err(|error| at.corrupt_row("seats", error.to_string()))?,
        users: users.iter().map(|user| UserKey::from_bytes(*user)).collect(),
        request_digest: read.payload,
        state: match read.state {
            0 => ReservationState::Held,
            1 => ReservationState::Confirmed,
            2 => ReservationState::Ended,
            other => return Err(at.corrupt_row("state", format!("{other} is no state"))),
        },
        deadline: from_ms(read.until_ms),
    })
}

/// A moment as a column keeps it. The 292 million years that a signed column cannot keep are cut off.
pub(super) fn to_ms(moment: UnixMs) -> i64 {
    i64::try_from(moment.0).unwrap_or(i64::MAX)
}

pub(super) fn from_ms(ms: i64) -> UnixMs {
    UnixMs(u64::try_from(ms).unwrap_or(0))
}

/// A row being read, and the table to name when it is corrupt.
pub(super) struct ColumnReader<'a> {
    pub(super) table: &'static str,
    pub(super) row: &'a SqliteRow,
}

impl<'a> ColumnReader<'a> {
    pub(super) fn read<T>(&self, index: usize, column: &'static str) -> Result<T, StoreError>
    where
        T: sqlx::Decode<'a, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        self.row.try_get(index).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    pub(super) fn int64(&self, index: usize, column: &'static str) -> Result<i64, StoreError> {
        self.read(index, column)
    }

    /// A number without a sign, of 32 bits.
    pub(super) fn uint32(&self, index: usize, column: &'static str) -> Result<u32, StoreError> {
        u32::try_from(self.int64(index, column)?).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    /// Holds a row against its checksum.
    pub(super) fn verify_checksum(&self, column: &'static str, kept: i64, reckoned: i64) -> Result<(), StoreError> {
        if kept == reckoned { Ok(()) } else { Err(self.corrupt_row(column, "it does not agree with the row".into())) }
    }

    /// Sixteen bytes, or nothing.
    pub(super) fn optional_id(&self, index: usize, column: &'static str) -> Result<Option<[u8; 16]>, StoreError> {
        let bytes: Option<&[u8]> = self.read(index, column)?;
        bytes.map(|_| self.id_bytes(index, column)).transpose()
    }

    /// Sixteen bytes.
    pub(super) fn id_bytes(&self, index: usize, column: &'static str) -> Result<[u8; 16], StoreError> {
        let bytes: &[u8] = self.read(index, column)?;
        bytes.try_into().map_err(|_| self.corrupt_row(column, format!("{} bytes, not 16", bytes.len())))
    }

    fn corrupt_row(&self, column: &'static str, what: String) -> StoreError {
        StoreError::CorruptRow { table: self.table, column, reason: what }
    }
}

/// Notices every flipped bit. No defence against someone who can write the file.
struct RowChecksum(Sha256);

impl RowChecksum {
    fn new() -> Self {
        Self(Sha256::new())
    }

    fn add_number(&mut self, number: i64) {
        self.0.update(number.to_be_bytes());
    }

    /// A number, or that there is none.
    fn add_optional_number(&mut self, number: Option<i64>) {
        self.0.update([u8::from(number.is_some())]);
        self.add_number(number.unwrap_or(0));
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn finish(self) -> i64 {
        let digest = self.0.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        i64::from_be_bytes(first)
    }
}

#[cfg(test)]
mod tests;
