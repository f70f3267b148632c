//! Persistence of advertisements and reservations: writes, their outcomes, and the feed of other servers' changes.
//!
//! Every backend decides outcomes with the same code (`apply_writes.rs`).

pub(super) mod apply_writes;
mod erase_user;
pub(super) mod owned_rows;
mod owner;
pub(super) mod row_body;
pub(super) mod touched_keys;
mod wish_json;

use std::sync::Arc;

use async_trait::async_trait;

pub(in crate::store) use self::owner::UserTraces;
pub use self::owner::{
    AdvertLimitPolicy, AdvertOwner, LimitPerClientAndAccount, OwnerKey, ReservationLimit, ReservationOwner,
    ReservedPartyKey,
};

use crate::domain::advertisement::Advertisement;
use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Retention of a reservation that ended because its party joined: 24 hours, in milliseconds. A retried `Reserve` is
/// recognized for that long, as for every idempotency key. Removing an advertisement removes its reservations earlier.
pub const JOINED_RESERVATION_RETENTION_MS: u64 = 24 * 60 * 60 * 1_000;

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
    /// Whether it ended because its party joined the session. Its users may play the session's matches until the row is purged.
    pub has_joined: bool,
    /// `Held`: expiry of the hold. `Ended`: when the row may be purged. `Confirmed`: not used.
    pub expires_or_purge_at: UnixMs,
    /// Owner; `None` if no limit applies to the caller, and in rows of version 0.2.0.
    pub owner: Option<ReservationOwner>,
}

impl Reservation {
    /// Whether a user's client made it, for the user or for others.
    pub fn is_made_by(&self, user: UserKey) -> bool {
        self.owner.is_some_and(|owner| UserTraces::of_user(user).includes_reserver(owner.client))
    }

    /// Whether its users may play matches of the session: the host confirmed it, or its party joined.
    pub fn is_confirmed_or_joined(&self) -> bool {
        self.state == ReservationState::Confirmed || self.has_joined
    }

    /// Releases the seat of one user; the reservation ends with its last seat. A party that has joined loses the user, and no
    /// seat becomes open: the host takes the player from its session. Returns whether the user had a seat.
    pub(crate) fn release_seat(&mut self, user: UserKey, purge_at: UnixMs) -> bool {
        let Ok(index) = self.users.binary_search(&user) else { return false };
        if self.state == ReservationState::Ended && !self.has_joined {
            return false;
        }
        self.users.remove(index);
        self.seats = self.seats.saturating_sub(1);
        self.has_joined &= !self.users.is_empty();
        if self.state != ReservationState::Ended && (self.users.is_empty() || self.seats == 0) {
            self.state = ReservationState::Ended;
            self.expires_or_purge_at = purge_at;
        }
        true
    }
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
        /// Reservations of this advertisement that end with this write; kept for [`JOINED_RESERVATION_RETENTION_MS`].
        joined_reservations: Vec<ReservationId>,
        /// Owner of the advertisement if it is new; `None` if no limit applies to the caller.
        owner: Option<AdvertOwner>,
        /// Digest of a request that creates it; `None` for updates, and without an idempotency key. Refused if the advertisement
        /// exists and was created by another request.
        create_digest: Option<[u8; 16]>,
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
        /// Reservations of this advertisement that end with this write; kept for [`JOINED_RESERVATION_RETENTION_MS`].
        joined_reservations: Vec<ReservationId>,
        /// Digest of a repeated request to create it; as in `Publish`.
        create_digest: Option<[u8; 16]>,
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
    /// Reserves seats: all or none, once per reservation id. Open seats are `offered_seats` less the seats of the
    /// advertisement's live reservations: confirmed ones, and ones held past `now`. At most `limit::RESERVATIONS_PER_ADVERTISEMENT_MAX`
    /// can be live at a time. Reservations whose place it takes end with it, or not at all.
    ReserveSeats {
        /// Reservation to store, in state `Held`.
        reservation: Reservation,
        /// Limit on the reservations of its owner; `None` if it has none.
        limit: Option<ReservationLimit>,
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
    /// Releases the seat of one user in a reservation that has not ended. The reservation ends with its last seat.
    ReleaseSeat {
        /// Reservation id.
        reservation_id: ReservationId,
        /// Advertisement that the reservation is in.
        advertisement_id: AdvertisementId,
        /// User.
        user: UserKey,
        /// When the row may be purged if the reservation ends.
        purge_at: UnixMs,
    },
    /// Erases a user from an advertisement and its reservations. The seat of a reservation that has not ended is released.
    /// Elsewhere, a random key takes the user's place, as for the owner, the party and the digest of a reservation's
    /// request. The caller who published the advertisement stays.
    EraseUser {
        /// Advertisement that names the user, or whose reservations do.
        advertisement_id: AdvertisementId,
        /// User to erase.
        user: UserKey,
        /// Random bytes that the keys are made of, the same for one call.
        seed: [u8; 16],
        /// When a row may be purged whose reservation ends.
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
            | AdvertWrite::EndReservation { advertisement_id, .. }
            | AdvertWrite::ReleaseSeat { advertisement_id, .. }
            | AdvertWrite::EraseUser { advertisement_id, .. } => *advertisement_id,
        }
    }

    /// Owner and limit of a publication.
    pub(in crate::store) fn advert_owner(&self) -> Option<&AdvertOwner> {
        match self {
            AdvertWrite::Publish { owner, .. } => owner.as_ref(),
            _ => None,
        }
    }

    /// Whether this compares or replaces the digest of the request that created the advertisement.
    pub(in crate::store) fn needs_create_digest(&self) -> bool {
        match self {
            AdvertWrite::Publish { create_digest, .. } | AdvertWrite::ExtendTtl { create_digest, .. } => {
                create_digest.is_some()
            }
            AdvertWrite::EraseUser { .. } => true,
            _ => false,
        }
    }

    /// Whether this can remove the advertisement.
    pub(in crate::store) fn may_remove_advertisement(&self) -> bool {
        matches!(self, AdvertWrite::Delete { .. } | AdvertWrite::Expire { .. })
    }

    fn operation_label(&self) -> &'static str {
        match self {
            AdvertWrite::Publish { .. } => "publish",
            AdvertWrite::ExtendTtl { .. } => "extend",
            AdvertWrite::Delete { .. } => "delete",
            AdvertWrite::Expire { .. } => "expire",
            AdvertWrite::ReserveSeats { .. } => "reserve",
            AdvertWrite::EndReservation { .. } | AdvertWrite::ReleaseSeat { .. } | AdvertWrite::EraseUser { .. } => {
                "end_reservation"
            }
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
        /// Advertisements of the same owner whose place it took, removed with this write.
        replaced: Vec<AdvertisementId>,
    },
    /// `Publish` was not applied, nor its confirmed and joined reservations: the advertisement has a tombstone, or was
    /// replaced by another of its owner.
    Tombstoned,
    /// `Publish` was not applied: its owner has the maximum number of live advertisements.
    TooManyAdvertisements,
    /// `ExtendTtl`, `Delete`, `Expire`, `EndReservation` or `ReleaseSeat` was applied, or was no longer needed.
    Applied,
    /// `ExtendTtl`, `ReserveSeats`, `EndReservation`, `ReleaseSeat` or `EraseUser`: the advertisement or reservation does
    /// not exist.
    NotFound,
    /// `EraseUser` was applied.
    EraseUserApplied {
        /// Whether the advertisement named the user.
        was_in_advertisement: bool,
        /// Reservations that named the user, as they are now, in id order.
        reservations: Vec<Reservation>,
    },
    /// `ReserveSeats` was applied, now or by an earlier call. The stored reservation may have ended or expired since.
    SeatsReserved {
        /// Reservation as stored.
        reservation: Reservation,
        /// Whether an earlier call made the reservation.
        is_retry: bool,
        /// Reservations whose place it took, ended with this write; each with its advertisement.
        replaced: Vec<(AdvertisementId, ReservationId)>,
    },
    /// `ReserveSeats` was not applied: the id is in use for another request or advertisement.
    IdempotencyKeyReused,
    /// `ReserveSeats` was not applied: fewer seats are open.
    NotEnoughSeats {
        /// Seats open now.
        open_seats: u16,
    },
    /// `ReserveSeats` was not applied: the advertisement has the maximum number of live reservations.
    TooManyReservationsInAdvert,
    /// Any write: not applied, because a newer server wrote the row and this server cannot decode it.
    UnknownRow,
}

impl WriteOutcome {
    /// Other advertisements that the write changed.
    pub fn other_advertisements(&self) -> impl Iterator<Item = AdvertisementId> {
        let (advertisements, reservations) = match self {
            WriteOutcome::Published { replaced, .. } => (replaced.as_slice(), [].as_slice()),
            WriteOutcome::SeatsReserved { replaced, .. } => ([].as_slice(), replaced.as_slice()),
            _ => ([].as_slice(), [].as_slice()),
        };
        advertisements.iter().copied().chain(reservations.iter().map(|(id, _)| *id))
    }
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
#[derive(Clone, Debug, Default, PartialEq)]
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
