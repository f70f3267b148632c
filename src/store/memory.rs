//! The store that forgets when the process ends: for the simulator, for tests and for quick trials.

mod queues;

use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

use async_trait::async_trait;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::decide::{Picture, Standing};
use crate::store::queues::picture::Picture as Queued;
use crate::store::{Committed, ReservationState, Store, StoreError, StoredAdvertisement, Version, Write};

/// Everything in memory, under one lock for advertisements and one for queues. Nothing waits while holding either.
#[derive(Debug, Default)]
pub struct Memory {
    picture: Mutex<Picture>,
    queues: Mutex<Queued>,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// A change cannot fail half-way, so what a panicking thread leaves behind is whole.
    fn picture(&self) -> MutexGuard<'_, Picture> {
        self.picture.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut picture = self.picture();
        let expired: Vec<_> =
            picture.advertisements.iter().filter(|(_, it)| it.expires <= now).map(|(id, _)| *id).collect();
        expired.into_iter().for_each(|id| picture.remove(id));
        forget(&mut picture, now);

        Ok(in_order(picture.advertisements.values().filter_map(|standing| stored(&picture, standing))))
    }

    async fn commit(&self, batch: &[Write]) -> Result<Committed, StoreError> {
        let mut picture = self.picture();
        let outcomes = batch.iter().map(|write| picture.apply(write)).collect();
        Ok(Committed { outcomes, steps: Vec::new() })
    }

    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        forget(&mut self.picture(), now);
        Ok(())
    }

    async fn look(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let picture = self.picture();
        let there = ids.iter().filter_map(|id| picture.advertisements.get(id));
        Ok(in_order(there.filter_map(|standing| stored(&picture, standing))))
    }

    async fn names(&self, first: AdvertisementId, most: usize) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut names: Vec<_> = self.picture().advertisements.keys().copied().filter(|id| first <= *id).collect();
        names.sort_unstable();
        names.truncate(most);
        Ok(names)
    }

    async fn close(&self) {}
}

fn stored(picture: &Picture, standing: &Standing) -> Option<StoredAdvertisement> {
    let reservations = standing.reservations.iter().filter_map(|id| picture.reservations.get(id));
    Some(StoredAdvertisement {
        advertisement: standing.advertisement()?,
        expires: standing.expires,
        reservations: reservations.cloned().collect(),
        version: Version::default(),
        held_here: false,
    })
}

fn in_order(all: impl Iterator<Item = StoredAdvertisement>) -> Vec<StoredAdvertisement> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|stored| stored.advertisement.id);
    all
}

fn forget(picture: &mut Picture, now: UnixMs) {
    picture.tombstones.retain(|_, until| now < *until);
    let Picture { advertisements, reservations, .. } = picture;
    reservations.retain(|id, reservation| {
        let keep = reservation.state != ReservationState::Ended || now < reservation.until;
        if !keep && let Some(standing) = advertisements.get_mut(&reservation.advertisement_id) {
            standing.reservations.remove(id);
        }
        keep
    });
}
