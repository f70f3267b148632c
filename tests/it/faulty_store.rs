//! A store that does as it is told: it is away for advertisements, and has batches of queues wait at a gate. An engine over it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fireteam::api::answer::encode_static;
use fireteam::auth::credential::MatchKeys;
use fireteam::auth::issuing::IssuingKey;
use fireteam::auth::token::Signer;
use fireteam::clock::Clock as _;
use fireteam::domain::id::{AdvertisementId, MatchId, SetId, UserKey};
use fireteam::domain::life::Match;
use fireteam::domain::result::{MatchResult, RatingChange};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::time::UnixMs;
use fireteam::engine::settings::Settings;
use fireteam::engine::{Engine, Parts};
use fireteam::geo::{LocatorHandle, LocatorSettings};
use fireteam::rules::Catalog;
use fireteam::store::memory::Memory;
use fireteam::store::queues::{Finished, QueueLoad, QueueOutcome, QueueWrite, Queues};
use fireteam::store::{Committed, Store, StoreError, StoredAdvertisement, Write};
use fireteam::telemetry::Metrics;
use tokio::sync::watch;

use crate::harness::HandClock;

/// Memory behind it.
pub(crate) struct Faulty {
    pub(crate) inner: Memory,
    /// Nothing about advertisements is written while it says so.
    pub(crate) away: AtomicBool,
    /// How many batches of queues have come.
    came: watch::Sender<u64>,
    /// How many of them may pass.
    may_pass: watch::Sender<u64>,
}

impl Default for Faulty {
    fn default() -> Self {
        let (came, may_pass) = (watch::Sender::new(0), watch::Sender::new(u64::MAX));
        Self { inner: Memory::new(), away: AtomicBool::new(false), came, may_pass }
    }
}

impl Faulty {
    /// Lets no batch of queues pass from now on.
    pub(crate) fn shut(&self) {
        self.may_pass.send_replace(*self.came.borrow());
    }

    /// Lets all pass.
    pub(crate) fn open(&self) {
        self.may_pass.send_replace(u64::MAX);
    }

    /// Waits until a batch stands at the gate.
    pub(crate) async fn has_one(&self) {
        let passed = *self.may_pass.borrow();
        self.came.subscribe().wait_for(|came| passed < *came).await.expect("the sender is here");
    }

    /// Lets the batch pass that stands at the gate, and waits for the next.
    pub(crate) async fn next(&self) {
        self.may_pass.send_modify(|may_pass| *may_pass += 1);
        self.has_one().await;
    }
}

/// An engine over `store` that goes by these rules.
pub(crate) async fn engine(store: &Arc<Faulty>, rules: Vec<(PathBuf, Arc<Ruleset>)>, clock: &Arc<HandClock>) -> Engine {
    let catalog = Arc::new(Catalog::default());
    catalog.adopt(rules, clock.now(), 0);
    let nowhere = LocatorSettings::default();
    let parts = Parts {
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
    };
    Engine::start(parts).await.expect("an engine")
}

#[async_trait]
impl Queues for Faulty {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        self.inner.load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let number = *self.came.borrow() + 1;
        self.came.send_replace(number);
        self.may_pass.subscribe().wait_for(|may_pass| number <= *may_pass).await.expect("the sender is here");
        self.inner.commit_queues(batch).await
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.inner.look_match(id).await
    }

    async fn look_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        self.inner.look_result(id).await
    }

    async fn rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingChange>, StoreError> {
        self.inner.rating_changes(user, set_id).await
    }

    async fn finished(&self, after: (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, StoreError> {
        self.inner.finished(after, most).await
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.forget_queues(now).await
    }
}

#[async_trait]
impl Store for Faulty {
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
