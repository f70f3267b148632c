//! An expired advertisement that the store could not be told of is told of again: memory forgets nothing on its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fireteam::api::answer::encode_static;
use fireteam::auth::credential::MatchKeys;
use fireteam::auth::issuing::IssuingKey;
use fireteam::auth::token::Signer;
use fireteam::clock::Clock as _;
use fireteam::domain::id::{AdvertisementId, MatchId, SetId};
use fireteam::domain::life::Match;
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{Caller, Update};
use fireteam::engine::settings::Settings;
use fireteam::engine::{Engine, Parts};
use fireteam::geo::{LocatorHandle, LocatorSettings};
use fireteam::rules::{Catalog, bundled};
use fireteam::store::memory::Memory;
use fireteam::store::queues::{QueueLoad, QueueOutcome, QueueWrite, Queues};
use fireteam::store::{Committed, Store, StoreError, StoredAdvertisement, Write};
use fireteam::telemetry::Metrics;

use crate::harness::HandClock;

/// A store that is out of reach while `away` says so.
struct Shaky {
    inner: Memory,
    away: AtomicBool,
}

#[async_trait]
impl Queues for Shaky {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        self.inner.load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        self.inner.commit_queues(batch).await
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.inner.look_match(id).await
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.forget_queues(now).await
    }
}

#[async_trait]
impl Store for Shaky {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.load(now).await
    }
    async fn commit(&self, batch: &[Write]) -> Result<Committed, StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".into()));
        }
        self.inner.commit(batch).await
    }
    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.forget(now).await
    }
    async fn look(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.look(ids).await
    }
    async fn names(&self, first: AdvertisementId, most: usize) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.names(first, most).await
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}

/// R10: what has expired leaves the store too, even if the store was away when its time came.
#[tokio::test]
async fn an_expiry_that_the_store_missed_is_told_again() {
    let clock = Arc::new(HandClock::new());
    let store = Arc::new(Shaky { inner: Memory::new(), away: AtomicBool::new(false) });
    let catalog = Arc::new(Catalog::default());
    catalog.adopt(bundled::load().unwrap(), clock.now(), 0);
    let nowhere = LocatorSettings { cell_degrees: 1.0, max_accuracy_radius_km: 500.0 };
    let engine = Engine::start(Parts {
        clock: clock.clone(),
        store: store.clone(),
        catalog,
        locator: Arc::new(LocatorHandle::new(Vec::new(), nowhere)),
        signer: Arc::new(Signer::new([1; 32], None)),
        match_keys: Arc::new(MatchKeys::new(IssuingKey::of_seed(&[2; 32]).unwrap(), None)),
        metrics: Arc::new(Metrics::new()),
        settings: Settings::default(),
        silos: None,
        encode: encode_static,
    })
    .await
    .unwrap();
    let session = Session { party_sizes: vec![1], join_seats: 3, ..Session::default() };
    let update = Update { set_id: Some(SetId(1)), session: Some(session), ..Update::default() };
    engine.update(&Caller::default(), update).unwrap().settle().await.unwrap();

    clock.turn(90_000);
    store.away.store(true, Ordering::SeqCst);
    engine.sweep().await;
    assert_eq!(store.load(clock.now()).await.unwrap().len(), 1, "the store was away");
    store.away.store(false, Ordering::SeqCst);
    engine.sweep().await;
    assert!(store.load(clock.now()).await.unwrap().is_empty(), "told again");
}
