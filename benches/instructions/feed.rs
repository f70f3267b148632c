//! Records of the change feed: advertisements that another replica has changed replace those in memory.

use std::sync::Arc;

use async_trait::async_trait;
use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::id::{AdvertisementId, RulesetHash, SetId};
use fireteam::domain::time::UnixMs;
use fireteam::store::{AdvertFeed, AdvertVersion, FeedBatch, StoreError, StoredAdvertisement};
use tokio::sync::mpsc;

use crate::count;
use crate::faulty_store::FaultyStore;
use crate::population::{NOW, id_bytes, session};
use crate::server::InProcessServer;
use crate::split_mix64::SplitMix64;

/// Advertisements of the feed; each batch changes all of them.
const RECORDS: usize = 256;

/// Owners of an applied advertisement: the record, the index, and the benchmark.
const OWNERS_WHEN_APPLIED: usize = 3;

/// Applies a changed record to memory and to the index.
pub(crate) fn record() {
    let (batches, receiver) = mpsc::channel(1);
    let feed: Box<dyn AdvertFeed> = Box::new(ChannelFeed { receiver, next: None });
    let store = FaultyStore::default();
    *store.feed.lock().expect("unpoisoned") = Some(feed);
    // The first read of the feed must be available when the engine starts.
    batches.try_send(batch(0)).expect("room in the channel");
    let xml = r#"<Ruleset Name="gate" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/></Attributes>
  <SoftFilters><SoftFilter Attribute="skill" Weight="1"/></SoftFilters>
</Ruleset>"#;
    let server = InProcessServer::start_with_store(xml, Arc::new(store));
    count(
        |section| Some(batch(1 + section as i64)),
        |batch| {
            let batch = batch.take().expect("a batch");
            let last = Arc::clone(&batch.changed.last().expect("a changed advertisement").advertisement);
            server.runtime.block_on(async {
                batches.send(batch).await.expect("an open feed");
                while Arc::strong_count(&last) < OWNERS_WHEN_APPLIED {
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
    let mut ids = SplitMix64(5);
    let mut rng = SplitMix64(100 + version.unsigned_abs());
    let stored = |_| {
        let advertisement = Advertisement {
            id: AdvertisementId::from_bytes(id_bytes(&mut ids)),
            set_id: SetId(1),
            kind: AdvertisementKind::Session,
            publisher: None,
            advertised_since: UnixMs(NOW),
            ruleset_hash: RulesetHash(1),
            session: session(&mut rng, 1_500.0, 350.0),
            ttl_ms: None,
            allowed_ranges: Box::default(),
            connect_data: [0; 16].into(),
            probe: None,
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
