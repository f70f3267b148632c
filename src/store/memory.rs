//! In-memory store without persistence: for tests, the simulator and trials.

mod adverts;
mod allocation_offers;
mod beacons;
mod outages;
mod queues;
mod ruleset_copies;
mod statistics;
mod user_data;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use crate::domain::id::MatchId;
use crate::store::adverts::apply_writes::AdvertRows;
use crate::store::allocation_offers::StoredOffer;
use crate::store::beacons::StoredBeacon;
use crate::store::outages::StoredOutages;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::ruleset_copies::RulesetCopyRows;
use crate::store::statistics::count_rows::StatisticRows;

/// In-memory store. One lock guards the advertisements and one the queues; no code waits while it holds either.
#[derive(Debug, Default)]
pub struct MemoryStore {
    adverts: Mutex<AdvertRows>,
    queues: Mutex<QueueRows>,
    beacons: Mutex<BTreeMap<u32, StoredBeacon>>,
    ruleset_copies: Mutex<RulesetCopyRows>,
    allocation_offers: Mutex<BTreeMap<MatchId, StoredOffer>>,
    outages: Mutex<StoredOutages>,
    statistics: Mutex<StatisticRows>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A write cannot fail halfway, so the rows are consistent even after a panic of another thread.
    fn lock_adverts(&self) -> MutexGuard<'_, AdvertRows> {
        self.adverts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
