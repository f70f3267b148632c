//! Persistence traits: advertisements, reservations and, in `queues`, tickets, matches and ratings. Not called on the
//! search path.
//!
//! The store does not apply time limits by itself. An advertisement stays until [`AdvertWrite::Expire`],
//! [`AdvertWrite::Delete`] or [`Store::load_advertisements`] removes it, even after its expiry. A hold past its
//! deadline frees its seats at once, but stays `Held` until [`AdvertWrite::EndReservation`]. So writes can arrive late
//! after an outage.

mod adverts;
pub mod allocation_offers;
pub mod beacons;
mod column_reader;
pub mod erasure_log;
mod error;
pub mod memory;
pub mod metered;
mod migration_check;
mod migrations;
pub mod outages;
pub mod pass_failure;
pub mod postgres;
pub mod queues;
mod rows;
pub mod ruleset_copies;
pub mod sqlite;
pub mod statistics;
mod unknown_rows;
pub mod user_data;
pub mod writer_version;

use async_trait::async_trait;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::allocation_offers::OfferStore;
use crate::store::beacons::BeaconStore;
use crate::store::outages::OutageStore;
use crate::store::queues::QueueStore;
use crate::store::ruleset_copies::RulesetCopyStore;
use crate::store::statistics::StatisticsStore;
use crate::store::user_data::UserDataStore;

pub use crate::store::adverts::{
    AdvertFeed, AdvertLimitPolicy, AdvertOwner, AdvertVersion, AdvertWrite, CommitResult, FeedBatch,
    JOINED_RESERVATION_RETENTION_MS, LimitPerClientAndAccount, OwnerKey, Reservation, ReservationLimit,
    ReservationOwner, ReservationState, ReservedPartyKey, StoredAdvertisement, VersionStep, WriteOutcome,
    transaction_label,
};
pub use crate::store::error::StoreError;

/// Store of advertisements, queues, ruleset copies, offers to allocators, outages, data of users and statistics.
#[async_trait]
pub trait Store:
    QueueStore + RulesetCopyStore + OfferStore + OutageStore + UserDataStore + StatisticsStore + BeaconStore
{
    /// Loads all advertisements that have not expired by `now`, in id order. Removes expired ones, and purges due
    /// reservations and tombstones.
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// Applies a batch in order, in one transaction, and returns one outcome per write. The batch is durable on return.
    ///
    /// On an error the batch was not committed, or the outcome of its commit is unknown; the feed then delivers it.
    /// Dropping the returned future does not split the batch: it is committed whole or not at all.
    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError>;

    /// Purges tombstones and ended reservations that are due, at most 1,000 rows per transaction.
    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError>;

    /// Reads the advertisements among `ids` that exist, expired or not, with their reservations, in id order. All come
    /// from one snapshot. For the consistency check: takes no locks and delays no write.
    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError>;

    /// Lists at most `limit` advertisement ids from `first` on, in order. For the consistency check.
    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError>;

    /// Opens the feed of other servers' changes; `None` if the store serves one server. Called again if the reader of the
    /// former feed failed.
    async fn open_advert_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        None
    }

    /// Number of rows per table that a newer server wrote and this server cannot decode, as far as it has read them.
    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Whether the store accepts writes of this server's format version, as of the last lease renewal.
    fn is_format_writable(&self) -> bool {
        true
    }

    /// Flushes and closes. No other call may follow.
    async fn close(&self);
}
