//! The store that forgets when the process ends: for the simulator, for tests and for quick trials.

mod queues;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use async_trait::async_trait;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::apply_writes::{AdvertRowState, AdvertRows};
use crate::store::queues::queue_rows::QueueRows as Queued;
use crate::store::{
    AdvertVersion, AdvertWrite, CommitResult, ReservationState, Store, StoreError, StoredAdvertisement,
};

/// Everything in memory, under one lock for advertisements and one for queues. Nothing waits while holding either.
#[derive(Debug, Default)]
pub struct MemoryStore {
    adverts: Mutex<AdvertRows>,
    queues: Mutex<Queued>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A change cannot fail half-way, so what a panicking thread leaves behind is whole.
    fn lock_adverts(&self) -> MutexGuard<'_, AdvertRows> {
        self.adverts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut picture = self.lock_adverts();
        let expired: Vec<_> =
            picture.advertisements.iter().filter(|(_, it)| it.expires_at <= now).map(|(id, _)| *id).collect();
        expired.into_iter().for_each(|id| picture.remove_advertisement(id));
        purge_rows(&mut picture, now);

        Ok(sort_by_id(
            picture.advertisements.values().filter_map(|standing| to_stored_advertisement(&picture, standing)),
        ))
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        let mut picture = self.lock_adverts();
        let outcomes = batch.iter().map(|write| picture.apply_write(write)).collect();
        Ok(CommitResult { outcomes, version_steps: Vec::new() })
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        purge_rows(&mut self.lock_adverts(), now);
        Ok(())
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let picture = self.lock_adverts();
        let there = ids.iter().filter_map(|id| picture.advertisements.get(id));
        Ok(sort_by_id(there.filter_map(|standing| to_stored_advertisement(&picture, standing))))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut names: Vec<_> = self.lock_adverts().advertisements.keys().copied().filter(|id| first <= *id).collect();
        names.sort_unstable();
        names.truncate(most);
        Ok(names)
    }

    async fn close(&self) {}
}

fn to_stored_advertisement(picture: &AdvertRows, standing: &AdvertRowState) -> Option<StoredAdvertisement> {
    let reservations = standing.reservation_ids.iter().filter_map(|id| picture.reservations.get(id));
    Some(StoredAdvertisement {
        advertisement: standing.advertisement_to_store()?,
        expires_at: standing.expires_at,
        reservations: reservations.cloned().collect(),
        version: AdvertVersion::default(),
        is_heartbeat_owner: false,
    })
}

fn sort_by_id(all: impl Iterator<Item = StoredAdvertisement>) -> Vec<StoredAdvertisement> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|stored| stored.advertisement.id);
    all
}

fn purge_rows(picture: &mut AdvertRows, now: UnixMs) {
    picture.tombstones.retain(|_, until| now < *until);
    let AdvertRows { advertisements, reservations, .. } = picture;
    reservations.retain(|id, reservation| {
        let keep = reservation.state != ReservationState::Ended || now < reservation.deadline;
        if !keep && let Some(standing) = advertisements.get_mut(&reservation.advertisement_id) {
            standing.reservation_ids.remove(id);
        }
        keep
    });
}
