//! Records of the change feed: advertisements that another replica has changed replace those in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use fireteam::api::response_encoder::encode_static_candidate_fields;
use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::id::{AdvertisementId, MatchId, RulesetHash, SetId, UserKey};
use fireteam::domain::lifecycle::Match;
use fireteam::domain::match_result::{MatchResult, RatingHistoryEntry};
use fireteam::domain::time::UnixMs;
use fireteam::store::memory::MemoryStore;
use fireteam::store::queues::{FinishedMatch, QueueOutcome, QueueStore, QueueWrite, StoredQueueData};
use fireteam::store::{
    AdvertFeed, AdvertVersion, AdvertWrite, CommitResult, FeedBatch, Store, StoreError, StoredAdvertisement,
};
use tokio::sync::Mutex;
use tokio::sync::mpsc;

use crate::count;
use crate::population::{NOW, Rng, session};
use crate::server::InProcessServer;

/// Advertisements of the feed; each batch changes all of them.
const RECORDS: usize = 256;

/// Advertisements encoded so far. A changed record is encoded once, when it is applied.
static ENCODED: AtomicUsize = AtomicUsize::new(0);

fn counting_encoder(advertisement: &Advertisement) -> Arc<[u8]> {
    ENCODED.fetch_add(1, Ordering::Relaxed);
    encode_static_candidate_fields(advertisement)
}

/// Applies a changed record to memory and to the index.
pub(crate) fn record() {
    let (batches, receiver) = mpsc::channel(1);
    let store = FeedStore { inner: MemoryStore::new(), feed: Mutex::new(Some(ChannelFeed { receiver, next: None })) };
    // The first read of the feed must be available when the engine starts.
    batches.try_send(batch(0)).expect("room in the channel");
    let xml = r#"<Ruleset Name="gate" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
</Ruleset>"#;
    let server = InProcessServer::start_with_store(xml, Arc::new(store), counting_encoder);
    count(
        |section| Some(batch(1 + section as i64)),
        |batch| {
            let target = ENCODED.load(Ordering::Relaxed) + RECORDS;
            server.runtime.block_on(async {
                batches.send(batch.take().expect("a batch")).await.expect("an open feed");
                while ENCODED.load(Ordering::Relaxed) < target {
                    tokio::task::yield_now().await;
                }
                // The writer applies a batch without waiting, so that it is complete after one more turn.
                tokio::task::yield_now().await;
            });
            RECORDS
        },
    );
}

/// All advertisements, changed: their version and skill depend on `version`.
fn batch(version: i64) -> FeedBatch {
    let mut ids = Rng(5);
    let mut rng = Rng(100 + version.unsigned_abs());
    let stored = |_| {
        let advertisement = Advertisement {
            id: AdvertisementId::from_bytes(ids.id_bytes()),
            set_id: SetId(1),
            kind: AdvertisementKind::Session,
            publisher: None,
            advertised_since: UnixMs(NOW),
            ruleset_hash: RulesetHash(1),
            session: session(&mut rng, 1_500.0, 350.0),
            allowed_ranges: Vec::new(),
            connect_data: vec![0; 16],
        };
        StoredAdvertisement {
            advertisement: Arc::new(advertisement),
            expires_at: UnixMs(NOW + 600_000),
            reservations: Vec::new(),
            version: AdvertVersion(1 + version),
            is_heartbeat_owner: false,
        }
    };
    let changed = (0..RECORDS).map(stored).collect();
    FeedBatch { read_at: UnixMs(NOW), is_snapshot: version == 0, has_more: false, changed, removed: Vec::new() }
}

/// Feed that reads batches from a channel.
struct ChannelFeed {
    receiver: mpsc::Receiver<FeedBatch>,
    next: Option<FeedBatch>,
}

#[async_trait]
impl AdvertFeed for ChannelFeed {
    async fn wait_for_changes(&mut self) {
        if self.next.is_none() {
            self.next = self.receiver.recv().await;
        }
    }

    async fn read_batch(&mut self, _also: &[AdvertisementId]) -> Result<FeedBatch, StoreError> {
        let next = self.next.take().or_else(|| self.receiver.try_recv().ok());
        next.ok_or_else(|| StoreError::Unavailable("no batch was sent".into()))
    }
}

/// Memory store with a feed.
struct FeedStore {
    inner: MemoryStore,
    feed: Mutex<Option<ChannelFeed>>,
}

#[async_trait]
impl Store for FeedStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.load_advertisements(now).await
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
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
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.list_advertisement_ids(first, limit).await
    }

    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        self.feed.lock().await.take().map(|feed| Box::new(feed) as Box<dyn AdvertFeed>)
    }

    async fn close(&self) {}
}

#[async_trait]
impl QueueStore for FeedStore {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.inner.load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
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
