//! Advertisements of the in-memory store.

use async_trait::async_trait;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::apply_writes::{AdvertRowState, AdvertRows};
use crate::store::adverts::{AdvertVersion, AdvertWrite, CommitResult, ReservationState, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;

#[async_trait]
impl Store for MemoryStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut rows = self.lock_adverts();
        let expired: Vec<_> =
            rows.advertisements.iter().filter(|(_, row)| row.expires_at <= now).map(|(id, _)| *id).collect();
        expired.into_iter().for_each(|id| rows.remove_advertisement(id));
        purge_tombstones_and_ended_reservations(&mut rows, now);

        Ok(sort_by_id(rows.advertisements.values().filter_map(|row| to_stored_advertisement(&rows, row))))
    }

    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        let mut rows = self.lock_adverts();
        let outcomes = batch.iter().map(|write| rows.apply_write(write)).collect();
        Ok(CommitResult { outcomes, version_steps: Vec::new() })
    }

    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError> {
        purge_tombstones_and_ended_reservations(&mut self.lock_adverts(), now);
        Ok(())
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let rows = self.lock_adverts();
        let found = ids.iter().filter_map(|id| rows.advertisements.get(id));
        Ok(sort_by_id(found.filter_map(|row| to_stored_advertisement(&rows, row))))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut ids: Vec<_> = self.lock_adverts().advertisements.keys().copied().filter(|id| first <= *id).collect();
        ids.sort_unstable();
        ids.truncate(limit);
        Ok(ids)
    }

    async fn close(&self) {}
}

fn to_stored_advertisement(rows: &AdvertRows, row: &AdvertRowState) -> Option<StoredAdvertisement> {
    let reservations = row.reservation_ids.iter().filter_map(|id| rows.reservations.get(id));
    Some(StoredAdvertisement {
        advertisement: row.advertisement_to_store()?,
        expires_at: row.expires_at,
        reservations: reservations.cloned().collect(),
        version: AdvertVersion::default(),
        is_heartbeat_owner: false,
    })
}

fn sort_by_id(advertisements: impl Iterator<Item = StoredAdvertisement>) -> Vec<StoredAdvertisement> {
    let mut sorted: Vec<_> = advertisements.collect();
    sorted.sort_unstable_by_key(|stored| stored.advertisement.id);
    sorted
}

fn purge_tombstones_and_ended_reservations(rows: &mut AdvertRows, now: UnixMs) {
    rows.tombstones.retain(|_, until| now < *until);
    let AdvertRows { advertisements, reservations, .. } = rows;
    reservations.retain(|id, reservation| {
        let keep = reservation.state != ReservationState::Ended || now < reservation.expires_or_purge_at;
        if !keep && let Some(row) = advertisements.get_mut(&reservation.advertisement_id) {
            row.reservation_ids.remove(id);
        }
        keep
    });
}
