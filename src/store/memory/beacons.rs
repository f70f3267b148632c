//! Beacons of the in-memory store.

use std::sync::PoisonError;

use async_trait::async_trait;

use crate::store::beacons::{BeaconAnnouncement, BeaconStore, StoredBeacon, is_new_or_at_same_place};
use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;

#[async_trait]
impl BeaconStore for MemoryStore {
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError> {
        let mut beacons = self.beacons.lock().unwrap_or_else(PoisonError::into_inner);
        let BeaconAnnouncement { beacon, purge_before } = announcement;
        beacons.retain(|_, stored| *purge_before <= stored.announced_at);
        if is_new_or_at_same_place(beacons.get(&beacon.id), beacon) {
            beacons.insert(beacon.id, beacon.clone());
        }
        Ok(beacons.values().cloned().collect())
    }

    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError> {
        let beacons = self.beacons.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(beacons.values().cloned().collect())
    }
}
