//! A store that does as it is told: it is away for advertisements, and has batches of queues wait at a gate. An engine over it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use fireteam::api::response_encoder::encode_static_candidate_fields;
use fireteam::auth::issuing_key::IssuingKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::token::TokenSigner;
use fireteam::clock::Clock as _;
use fireteam::domain::id::{AdvertisementId, MatchId, SetId, UserKey};
use fireteam::domain::lifecycle::Match;
use fireteam::domain::match_result::{MatchResult, RatingHistoryEntry};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::time::UnixMs;
use fireteam::engine::settings::EngineSettings;
use fireteam::engine::{Engine, EngineDeps};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::RulesetCatalog;
use fireteam::store::memory::MemoryStore;
use fireteam::store::queues::{FinishedMatch, QueueOutcome, QueueStore, QueueWrite, StoredQueueData};
use fireteam::store::{AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement};
use fireteam::telemetry::Metrics;
use tokio::sync::watch;

use crate::harness::HandClock;

/// Memory behind it.
pub(crate) struct Faulty {
    pub(crate) inner: MemoryStore,
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
        Self { inner: MemoryStore::new(), away: AtomicBool::new(false), came, may_pass }
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
    let catalog = Arc::new(RulesetCatalog::default());
    catalog.replace_all(rules, clock.now(), 0);
    let nowhere = LocatorSettings::default();
    let parts = EngineDeps {
        clock: clock.clone(),
        store: store.clone(),
        rulesets: catalog,
        geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), nowhere)),
        token_signer: Arc::new(TokenSigner::new([1; 32], None)),
        match_credential_keys: Arc::new(MatchCredentialKeys::new(IssuingKey::from_seed(&[2; 32]).unwrap(), None)),
        metrics: Arc::new(Metrics::new()),
        settings: EngineSettings::default(),
        served_silos: None,
        encode_advert: encode_static_candidate_fields,
    };
    Engine::start(parts).await.expect("an engine")
}

#[async_trait]
impl QueueStore for Faulty {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.inner.load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let number = *self.came.borrow() + 1;
        self.came.send_replace(number);
        self.may_pass.subscribe().wait_for(|may_pass| number <= *may_pass).await.expect("the sender is here");
        self.inner.commit_queues(batch).await
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.inner.read_match(id).await
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        self.inner.read_match_result(id).await
    }

    async fn read_rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        self.inner.read_rating_changes(user, set_id).await
    }

    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        self.inner.list_finished_matches(after, most).await
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge_queues(now).await
    }
}

#[async_trait]
impl Store for Faulty {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.load_advertisements(now).await
    }
    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("away".into()));
        }
        self.inner.commit(batch).await
    }
    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge(now).await
    }
    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.read_advertisements(ids).await
    }
    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.list_advertisement_ids(first, most).await
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}
