//! Persistence traits: advertisements, reservations and, in `queues`, tickets, matches and ratings. Not called on the
//! search path.
//!
//! The store does not apply time limits by itself. An advertisement stays until [`AdvertWrite::Expire`],
//! [`AdvertWrite::Delete`] or [`Store::load_advertisements`] removes it, even after its expiry. A hold past its
//! deadline frees its seats at once, but stays `Held` until [`AdvertWrite::EndReservation`]. So writes can arrive late
//! after an outage.

mod apply_writes;
pub mod memory;
pub mod metered;
mod migration_error;
pub mod mutant;
pub mod postgres;
pub mod queues;
mod rows;
pub mod sqlite;
mod touched_keys;
mod unknown_rows;
pub mod writer_version;

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::queues::QueueStore;

/// Retention of a reservation that ended because its party joined: 24 hours, in milliseconds. A retried `Reserve` is
/// recognized for that long, as for every idempotency key. Removing an advertisement removes its reservations earlier.
pub const ENDED_RESERVATION_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;

/// Seats held in an advertisement for a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Reservation id, derived from the caller and the idempotency key.
    pub id: ReservationId,
    /// Advertisement that the seats are in.
    pub advertisement_id: AdvertisementId,
    /// Number of seats.
    pub seats: u16,
    /// Users the seats are held for, sorted.
    pub users: Vec<UserKey>,
    /// Digest of the request; detects reuse of an idempotency key for another request.
    pub request_digest: [u8; 16],
    /// State.
    pub state: ReservationState,
    /// `Held`: expiry of the hold. `Ended`: when the row may be purged. `Confirmed`: not used.
    pub deadline: UnixMs,
}

/// State of a reservation. Held and confirmed seats are not open. Ended reservations are kept to recognize retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationState {
    /// Held until a deadline.
    Held,
    /// Confirmed by the host: the party is joining. No deadline.
    Confirmed,
    /// Ended: released, joined or expired.
    Ended,
}

/// Version of an advertisement with its reservations, in a store that several servers share. Versions can only be
/// compared for equality. Zero if there is no advertisement, and always zero in a store that serves one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdvertVersion(pub i64);

/// Advertisement as loaded at startup or read from the change feed.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAdvertisement {
    /// Advertisement as published.
    pub advertisement: Arc<Advertisement>,
    /// Expiry; never earlier than the expiry that was acknowledged.
    pub expires_at: UnixMs,
    /// Reservations, including ended ones.
    pub reservations: Vec<Reservation>,
    /// Version of the advertisement and its reservations.
    pub version: AdvertVersion,
    /// Whether this server, since it started, received the last heartbeat. Always false in a store that serves one
    /// server.
    pub is_heartbeat_owner: bool,
}

/// One write. `now` is the time of the decision by the server's clock.
#[derive(Clone, Debug)]
pub enum AdvertWrite {
    /// Publishes or replaces an advertisement. A replaced one keeps its start of advertising and its reservations. It
    /// may offer fewer seats than are held; then no seat is open.
    Publish {
        /// Advertisement to publish.
        advertisement: Arc<Advertisement>,
        /// Expiry to store.
        expires_at: UnixMs,
        /// Reservations of this advertisement to confirm, if they are held and have not expired by `now`.
        confirmed_reservations: Vec<ReservationId>,
        /// Reservations of this advertisement that end with this write; kept for [`ENDED_RESERVATION_RETENTION_MS`].
        joined_reservations: Vec<ReservationId>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Extends an advertisement's expiry, never shortens it, and confirms or ends reservations.
    ExtendTtl {
        /// Advertisement id.
        advertisement_id: AdvertisementId,
        /// Expiry to store.
        expires_at: UnixMs,
        /// Reservations of this advertisement to confirm, if they are held and have not expired by `now`.
        confirmed_reservations: Vec<ReservationId>,
        /// Reservations of this advertisement that end with this write; kept for [`ENDED_RESERVATION_RETENTION_MS`].
        joined_reservations: Vec<ReservationId>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Removes an advertisement with its reservations and leaves a tombstone until `tombstone_until`. Of two deletes,
    /// the later time counts. Also leaves a tombstone if there is no advertisement, because a late update can still
    /// arrive.
    Delete {
        /// Advertisement id.
        advertisement_id: AdvertisementId,
        /// Until this time, a late update cannot publish the advertisement again.
        tombstone_until: UnixMs,
    },
    /// Removes an advertisement that has expired by `now`, with its reservations. Leaves no tombstone.
    Expire {
        /// Advertisement id.
        advertisement_id: AdvertisementId,
        /// Time of the decision.
        now: UnixMs,
        /// Version that the advertisement must still have, if given.
        expected_version: Option<AdvertVersion>,
    },
    /// Reserves seats: all or none, once per reservation id. Open seats are `join_seats` less the seats of the
    /// advertisement's live reservations: confirmed ones, and ones held past `now`. At most `limit::RESERVATIONS_PER_ADVERTISEMENT_MAX`
    /// can be live at a time.
    ReserveSeats {
        /// Reservation to store, in state `Held`.
        reservation: Reservation,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Ends a reservation that was released or has expired. No effect if it has ended already.
    EndReservation {
        /// Reservation id.
        reservation_id: ReservationId,
        /// Advertisement that the reservation is in.
        advertisement_id: AdvertisementId,
        /// When the row may be purged.
        purge_at: UnixMs,
    },
}

impl AdvertWrite {
    /// Id of the advertisement that this writes.
    pub fn advertisement_id(&self) -> AdvertisementId {
        match self {
            AdvertWrite::Publish { advertisement, .. } => advertisement.id,
            AdvertWrite::ReserveSeats { reservation, .. } => reservation.advertisement_id,
            AdvertWrite::ExtendTtl { advertisement_id, .. }
            | AdvertWrite::Delete { advertisement_id, .. }
            | AdvertWrite::Expire { advertisement_id, .. }
            | AdvertWrite::EndReservation { advertisement_id, .. } => *advertisement_id,
        }
    }

    fn operation_label(&self) -> &'static str {
        match self {
            AdvertWrite::Publish { .. } => "publish",
            AdvertWrite::ExtendTtl { .. } => "extend",
            AdvertWrite::Delete { .. } => "delete",
            AdvertWrite::Expire { .. } => "expire",
            AdvertWrite::ReserveSeats { .. } => "reserve",
            AdvertWrite::EndReservation { .. } => "end_reservation",
        }
    }
}

/// Label of a transaction in logs and metrics: the kind of its writes, or one label for several kinds.
pub fn transaction_label(batch: &[AdvertWrite]) -> &'static str {
    let Some(first) = batch.first().map(AdvertWrite::operation_label) else { return "mixed" };
    if batch.iter().all(|write| write.operation_label() == first) { first } else { "mixed" }
}

/// Result of one [`AdvertWrite`].
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// `Publish` was applied.
    Published {
        /// Whether the advertisement is new.
        created: bool,
        /// Start of advertising.
        advertised_since: UnixMs,
    },
    /// `Publish` was not applied, nor its confirmed and joined reservations: the advertisement has a tombstone.
    Tombstoned,
    /// `ExtendTtl`, `Delete`, `Expire` or `EndReservation` was applied, or was no longer needed.
    Applied,
    /// `ExtendTtl`, `ReserveSeats` or `EndReservation`: the advertisement or reservation does not exist.
    NotFound,
    /// `ReserveSeats` was applied, now or by an earlier call. The stored reservation may have ended or expired since.
    SeatsReserved {
        /// Reservation as stored.
        reservation: Reservation,
        /// Whether an earlier call made the reservation.
        is_replay: bool,
    },
    /// `ReserveSeats` was not applied: the id is in use for another request or advertisement.
    IdempotencyKeyReused,
    /// `ReserveSeats` was not applied: fewer seats are open.
    NotEnoughSeats {
        /// Seats open now.
        open_seats: u16,
    },
    /// `ReserveSeats` was not applied: the advertisement has the maximum number of live reservations.
    TooManyReservations,
    /// Any write: not applied, because a newer server wrote the row and this server cannot decode it.
    UnknownRow,
}

/// Result of a batch of [`AdvertWrite`]s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommitResult {
    /// One outcome per write, in order.
    pub outcomes: Vec<WriteOutcome>,
    /// One version step per write, in order. Empty in a store that serves one server.
    pub version_steps: Vec<VersionStep>,
}

/// Versions of one advertisement before and after a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionStep {
    /// Version before the batch.
    pub before: AdvertVersion,
    /// Version after the batch.
    pub after: AdvertVersion,
}

/// Store failure. Never caused by a client's request.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store cannot be reached, or timed out. The batch was not committed, or the outcome is unknown.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// Another server holds the lock on the database file.
    #[error("{0} is in use by another server; stop that server or use another file")]
    Locked(String),
    /// A row failed validation or its checksum.
    #[error("corrupt row in table {table}, column {column}: {reason}; restore a backup")]
    CorruptRow {
        /// Table name.
        table: &'static str,
        /// Column name.
        column: &'static str,
        /// Problem found.
        reason: String,
    },
    /// A newer server wrote values that this server does not know. The row itself is valid.
    #[error("row of a newer server in table {table}, column {column}: {reason}; upgrade this server")]
    UnknownRow {
        /// Table name.
        table: &'static str,
        /// Column name.
        column: &'static str,
        /// Unknown value.
        reason: String,
    },
    /// The schema, the database library or the database's settings do not suit this server. The text says what to do.
    #[error("{0}")]
    Incompatible(String),
    /// The file is corrupt or not a database. The text says what to do.
    #[error("{0}")]
    DamagedFile(String),
}

/// Store of advertisements and queues.
#[async_trait]
pub trait Store: QueueStore {
    /// Loads all advertisements that have not expired by `now`, in id order. Removes expired ones, and purges due
    /// reservations and tombstones.
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// Applies a batch in order, in one transaction, and returns one outcome per write. The batch is durable on return.
    ///
    /// On an error the batch was not committed, or the outcome of its commit is unknown; the feed then delivers it.
    /// Dropping the returned future does not split the batch: it is committed whole or not at all.
    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError>;

    /// Purges tombstones and ended reservations that are due, at most 1,000 rows per transaction.
    async fn purge(&self, now: UnixMs) -> Result<(), StoreError>;

    /// Reads the advertisements among `ids` that exist, expired or not, with their reservations, in id order. All come
    /// from one snapshot. For the consistency check: takes no locks and delays no write.
    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// Lists at most `limit` advertisement ids from `first` on, in order. For the consistency check.
    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError>;

    /// Opens the feed of other servers' changes; `None` if the store serves one server. Called once.
    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        None
    }

    /// Number of rows per table that a newer server wrote and this server cannot decode, as far as it has read them.
    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Whether the store accepts writes of this server's format version, as of the last lease renewal.
    fn is_writable(&self) -> bool {
        true
    }

    /// Flushes and closes. No other call may follow.
    async fn close(&self);
}

/// Feed of other servers' changes to advertisements.
#[async_trait]
pub trait AdvertFeed: Send {
    /// Waits until a change may be available, or for the poll interval.
    async fn wait_for_changes(&mut self);

    /// Reads the changes since the last read, and the current state of the ids in `also`. The first read, and a read
    /// after possibly missed changes, returns a full snapshot.
    ///
    /// Every committed change is delivered at least once, however late it commits. The rows are as of a time after this
    /// call began. On an error nothing was read, and the next call reads it again.
    async fn read_batch(&mut self, also: &[AdvertisementId]) -> Result<FeedBatch, StoreError>;
}

/// Batch of changes read from the feed.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedBatch {
    /// Time of the read, by the store's clock.
    pub read_at: UnixMs,
    /// Whether this is a full snapshot: an advertisement that is not in it does not exist.
    pub is_snapshot: bool,
    /// Whether more changes can be read at once.
    pub has_more: bool,
    /// Changed advertisements, in their current state.
    pub changed: Vec<StoredAdvertisement>,
    /// Ids of removed advertisements. Empty in a snapshot.
    pub removed: Vec<AdvertisementId>,
}
