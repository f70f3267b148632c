//! What must survive a restart, as a handful of verbs; never asked while searching.
//!
//! Rows are judged as they stand: an advertisement is there until [`Write::Expire`], [`Write::Delete`] or [`Store::load`]
//! removes it, however late it is, and a hold past its deadline frees its seats at once but stays `Held` until
//! [`Write::End`]. So a store that was out of reach for a while can be told late what memory knew all along.

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

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::queues::QueueStore;

/// How long a settled reservation is remembered, so that a retried `Reserve` is still recognised: 24 hours, as R5 asks
/// of every idempotency key. An advertisement that goes takes its reservations with it, so few last so long.
pub const ENDED_RESERVATION_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;

/// Seats held in an advertisement for a party.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// Its name; derived from the caller and the idempotency key.
    pub id: ReservationId,
    /// Where the seats are.
    pub advertisement_id: AdvertisementId,
    /// How many.
    pub seats: u16,
    /// The users who will sit in them, sorted.
    pub users: Vec<UserKey>,
    /// A digest of what was asked, so that a key used for something else is noticed.
    pub request_digest: [u8; 16],
    /// How it stands.
    pub state: ReservationState,
    /// For `Held`: when it lapses. For `Ended`: when it is forgotten. For `Confirmed`: meaningless.
    pub deadline: UnixMs,
}

/// How a reservation stands. Held and confirmed seats are not open; ended ones are kept a while to recognise retries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationState {
    /// Taken until a deadline.
    Held,
    /// The host has seen the party coming: no deadline.
    Confirmed,
    /// Released, settled or lapsed.
    Ended,
}

/// The state that an advertisement is in, seats included, where several servers share a store: equal means the same, and
/// no more. Zero where nothing is there, and always zero in a store that serves one server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdvertVersion(pub i64);

/// An advertisement as a server finds it that starts, or that hears of another server's change.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAdvertisement {
    /// As published.
    pub advertisement: Arc<Advertisement>,
    /// Until when it is believed: never before what was acknowledged.
    pub expires_at: UnixMs,
    /// Its reservations, ended ones included.
    pub reservations: Vec<Reservation>,
    /// The state that all this is.
    pub version: AdvertVersion,
    /// Whether this very server, since it started, took its last heartbeat. Always false in a store that serves one.
    pub is_heartbeat_owner: bool,
}

/// One change. `now` is the moment of the decision, by the server's clock.
#[derive(Clone, Debug)]
pub enum AdvertWrite {
    /// Publishes an advertisement whole, whether it was there or not; what is there keeps its `since` and its
    /// reservations. It may offer fewer seats than are held: the host decides, and no seat is open then.
    Publish {
        /// What to publish.
        advertisement: Arc<Advertisement>,
        /// The expiry to keep.
        expires_at: UnixMs,
        /// Reservations of this advertisement that now have no deadline, if they are held and have not lapsed by `now`.
        confirmed_reservations: Vec<ReservationId>,
        /// Reservations of this advertisement that end with this change, remembered for [`SETTLED_KEPT_MS`].
        joined_reservations: Vec<ReservationId>,
        /// The moment.
        now: UnixMs,
    },
    /// Extends an advertisement's expiry, never shortens it, and confirms or settles reservations.
    ExtendTtl {
        /// Which.
        advertisement_id: AdvertisementId,
        /// The expiry to keep.
        expires_at: UnixMs,
        /// Reservations of this advertisement that now have no deadline, if they are held and have not lapsed by `now`.
        confirmed_reservations: Vec<ReservationId>,
        /// Reservations of this advertisement that end with this change, remembered for [`SETTLED_KEPT_MS`].
        joined_reservations: Vec<ReservationId>,
        /// The moment.
        now: UnixMs,
    },
    /// Removes an advertisement with its reservations; it stays deleted until `tombstone_until`, or until whichever is
    /// later of two deletes. Also deletes what is not there: the store may have forgotten it, a late update has not.
    Delete {
        /// Which.
        advertisement_id: AdvertisementId,
        /// How long a late update must not bring it back.
        tombstone_until: UnixMs,
    },
    /// Removes an advertisement that has expired by `now`, with its reservations; leaves no tombstone.
    Expire {
        /// Which.
        advertisement_id: AdvertisementId,
        /// The moment.
        now: UnixMs,
        /// Only if nobody has changed it since.
        expected_version: Option<AdvertVersion>,
    },
    /// Takes seats: all or none, once per reservation id. Open are those of `join_seats` that no reservation of the same
    /// advertisement has, confirmed or held past `now`; at most `limit::RESERVATIONS_MAX` such reservations at a time.
    ReserveSeats {
        /// What to take, in state `Held`.
        reservation: Reservation,
        /// The moment.
        now: UnixMs,
    },
    /// Ends a reservation: released, or lapsed. Remembered until `forget_at`. One that has ended stays as it is.
    EndReservation {
        /// Which.
        reservation_id: ReservationId,
        /// The advertisement that it is in.
        advertisement_id: AdvertisementId,
        /// When the row may go.
        purge_at: UnixMs,
    },
}

impl AdvertWrite {
    /// Which advertisement it is about.
    pub fn advertisement_id(&self) -> AdvertisementId {
        match self {
            AdvertWrite::Publish { advertisement, .. } => advertisement.id,
            AdvertWrite::ExtendTtl { advertisement_id: id, .. }
            | AdvertWrite::Delete { advertisement_id: id, .. }
            | AdvertWrite::Expire { advertisement_id: id, .. } => *id,
            AdvertWrite::ReserveSeats { reservation, .. } => reservation.advertisement_id,
            AdvertWrite::EndReservation { advertisement_id, .. } => *advertisement_id,
        }
    }

    /// What kind of change it is, in a word for operators.
    fn operation_label(&self) -> &'static str {
        match self {
            AdvertWrite::Publish { .. } => "publish",
            AdvertWrite::ExtendTtl { .. } => "extend",
            AdvertWrite::Delete { .. } => "delete",
            AdvertWrite::Expire { .. } => "expire",
            AdvertWrite::ReserveSeats { .. } => "reserve",
            AdvertWrite::EndReservation { .. } => "end",
        }
    }
}

/// What operators know a transaction of these changes by: the word of their kind, `several` if there is more than one kind.
pub fn transaction_label(batch: &[AdvertWrite]) -> &'static str {
    let Some(first) = batch.first().map(AdvertWrite::operation_label) else { return "several" };
    if batch.iter().all(|write| write.operation_label() == first) { first } else { "several" }
}

/// What one change did.
#[derive(Clone, Debug, PartialEq)]
pub enum WriteOutcome {
    /// `Put` happened.
    Published {
        /// Nothing was there before.
        created: bool,
        /// Since when it has been advertised.
        advertised_since: UnixMs,
    },
    /// `Put` did not happen, nor what it would have confirmed and settled: the advertisement was deleted.
    Tombstoned,
    /// `Extend`, `Delete`, `Expire` or `End` happened, or was no longer needed.
    Applied,
    /// `Extend`, `Reserve` or `End`: there is no such advertisement or reservation.
    NotFound,
    /// `Reserve` happened now, or had happened before: the reservation as it stands, be it `Ended`, or `Held` with a
    /// deadline that has passed.
    SeatsReserved {
        /// As stored.
        reservation: Reservation,
        /// An earlier call had made it.
        is_replay: bool,
    },
    /// `Reserve` did not happen: the id stands for another payload or advertisement.
    IdempotencyKeyReused,
    /// `Reserve` did not happen: fewer seats are open.
    NotEnoughSeats {
        /// Seats open now.
        open_seats: u16,
    },
    /// `Reserve` did not happen: the advertisement has as many live reservations as it may.
    TooManyReservations,
}

/// What a batch did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CommitResult {
    /// One for each change, in order.
    pub outcomes: Vec<WriteOutcome>,
    /// Likewise, of the advertisement that the change is about. Empty in a store that serves one server.
    pub version_steps: Vec<VersionStep>,
}

/// How a whole batch moved one advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionStep {
    /// The state that the batch found.
    pub before: AdvertVersion,
    /// The state that it left.
    pub after: AdvertVersion,
}

/// Why the store could not do what was asked. The world's fault, never the client's.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It could not be reached, or gave up; nothing of the batch happened, or nobody knows.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// Another server holds it.
    #[error("{0} is in use by another server")]
    Locked(String),
    /// A row cannot be what it is.
    #[error("corrupt row in {table}, column {column}: {reason}")]
    CorruptRow {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The file, or the database library, is of a version that this server does not know. The text says what to do.
    #[error("{0}")]
    Incompatible(String),
    /// The file is no sound database. The text says what to do.
    #[error("{0}")]
    DamagedFile(String),
}

/// Where advertisements are kept, and queues beside them.
#[async_trait]
pub trait Store: QueueStore {
    /// Everything in it that has not expired by `now`, in the order of ids, for a start. What has expired is removed,
    /// ended reservations and tombstones that are due are forgotten on the way.
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// Makes all changes, in order, in one transaction, and answers each. Durable when it returns. On an error none has
    /// happened, or, when a database that servers share could not be asked what became of the commit, nobody knows yet:
    /// the feed will tell. A caller that stops waiting changes nothing about that (R4): the batch happens, or does not,
    /// whole.
    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError>;

    /// Forgets tombstones and ended reservations that are due, at most a thousand rows in one transaction.
    async fn purge(&self, now: UnixMs) -> Result<(), StoreError>;

    /// Those of `ids` that are there, expired or not, with their reservations, in the order of ids and all as of one moment.
    /// For whoever compares: it changes nothing and holds no change up.
    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// The first `most` names of advertisements, from `first` on, in order. Likewise.
    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError>;

    /// What other servers change here; `None` where there can be no others. Asked for once.
    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        None
    }

    /// Flushes and lets go. No verb may follow.
    async fn close(&self);
}

/// What other servers change, read again and again.
#[async_trait]
pub trait AdvertFeed: Send {
    /// Waits until there may be something to read: a moment at most.
    async fn wait_for_changes(&mut self);

    /// Reads what has changed since the last time, and `also`, whether changed or not. The first time, and whenever it
    /// cannot be sure to know what it has missed, it reads everything.
    ///
    /// Nothing that was committed is missed, however late; what is read is as it stood after this call began, and may be
    /// read again. On an error nothing was read, and the next call makes up for it.
    async fn read_batch(&mut self, also: &[AdvertisementId]) -> Result<FeedBatch, StoreError>;
}

/// What a feed has read.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedBatch {
    /// When, by the store's own clock.
    pub read_at: UnixMs,
    /// This is all there is: what is not in it is not there.
    pub is_snapshot: bool,
    /// There is more to read at once.
    pub has_more: bool,
    /// As they now are.
    pub changed: Vec<StoredAdvertisement>,
    /// No longer there. Empty where `whole`.
    pub removed: Vec<AdvertisementId>,
}
