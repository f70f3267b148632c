//! Panics of the engine's tasks: one is repaired, or stops the server; it never passes unnoticed.

use std::sync::Arc;

use fireteam::domain::id::SetId;
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;
use fireteam::engine::Engine;
use fireteam::engine::command::{Caller, PublishOrHeartbeatAdvertCommand};
use fireteam::rules::bundled;
use fireteam::store::{AdvertFeed, FeedBatch, StoreError};
use fireteam::supervisor::TaskFailure;
use fireteam::telemetry::label::TaskLabel;
use fireteam_client::pb::{QueueHeartbeatRequest, TicketState};
use tokio::sync::Notify;

use crate::security::match_credential::operator_page;
use crate::support::faulty_engine::start_engine;
use crate::support::faulty_store::FaultyStore;
use crate::support::queue_server::{QueuedParty, SET_ID, duel_ruleset, enter_request, start_queue_server, wait_until};
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::{TestClock, TestServer};

async fn start(store: &Arc<FaultyStore>) -> Engine {
    start_engine(store, bundled::load_bundled().unwrap(), &Arc::new(TestClock::new())).await
}

/// Submits an advertisement; the writer may panic before it answers.
async fn advertise(engine: &Engine) -> bool {
    let session = Session { party_sizes: [1].into(), offered_seats: 3, ..Session::default() };
    let update = PublishOrHeartbeatAdvertCommand {
        set_id: Some(SetId(1)),
        session: Some(session),
        ..PublishOrHeartbeatAdvertCommand::default()
    };
    let Ok(pending) = engine.update_advertisement(&Caller::default(), update) else { return false };
    tokio::time::timeout(TEST_TIMEOUT, pending.wait()).await.expect("an answer").is_ok()
}

/// R20: the writer is not restarted after a panic, because memory may be half changed. The server learns the reason.
#[tokio::test]
async fn panic_of_the_advert_writer_is_a_failure_of_the_server() {
    let store = Arc::new(FaultyStore::default());
    let engine = start(&store).await;
    assert!(advertise(&engine).await);
    assert_eq!(engine.supervisor().failure(), None);
    store.panic_in("commit", 1);
    assert!(!advertise(&engine).await);
    tokio::time::timeout(TEST_TIMEOUT, engine.supervisor().wait_for_failure()).await.expect("the failure is reported");
    let expected = TaskFailure { task: TaskLabel::AdvertWriter, reason: "planted panic in commit".into() };
    assert_eq!(engine.supervisor().failure(), Some(&expected));
    // The shutdown after a failure does not wait for the writer that is gone.
    tokio::time::timeout(TEST_TIMEOUT, engine.close()).await.expect("closed in time");
}

/// R20: the lease task is restarted after a panic.
#[tokio::test]
async fn panic_of_the_lease_task_is_repaired() {
    let store = Arc::new(FaultyStore::default());
    let engine = start(&store).await;
    store.panic_in("acquire_leases", 2);
    tokio::time::timeout(TEST_TIMEOUT, store.wait_for_lease_calls(4)).await.expect("leases are acquired again");
    assert_eq!(engine.supervisor().failure(), None);
    engine.close().await;
}

/// Feed whose reads after the first panic, if planted, and which notifies of its other reads.
struct PanickingFeed {
    panics: bool,
    reads: u32,
    read: Arc<Notify>,
}

#[tonic::async_trait]
impl AdvertFeed for PanickingFeed {
    async fn wait_for_changes(&mut self) {
        tokio::task::yield_now().await;
    }

    async fn read_batch(&mut self, _: &[fireteam::domain::id::AdvertisementId]) -> Result<FeedBatch, StoreError> {
        self.reads += 1;
        assert!(!self.panics || self.reads < 2, "planted panic in a feed");
        self.read.notify_one();
        tokio::task::yield_now().await;
        Ok(FeedBatch { is_snapshot: self.reads == 1, read_at: UnixMs(1_700_000_012_345), ..FeedBatch::default() })
    }
}

/// R20: after a panic, the feed is opened again.
#[tokio::test]
async fn panic_of_a_feed_reader_is_repaired() {
    let store = Arc::new(FaultyStore::default());
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    *store.feed.lock().unwrap() = Some(Box::new(PanickingFeed { panics: true, reads: 0, read: first }));
    let engine = start(&store).await;
    *store.feed.lock().unwrap() = Some(Box::new(PanickingFeed { panics: false, reads: 0, read: second.clone() }));
    tokio::time::timeout(TEST_TIMEOUT, second.notified()).await.expect("the feed is read again");
    assert_eq!(engine.supervisor().failure(), None);
    engine.close().await;
}

/// R20: a pass that panics costs the pass. The queue is run again, and the server stays healthy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_pass_delays_only_the_pass() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let panic_count = |task| server.app.metrics.task_panics.get_or_create(&task).get();
    // Connected before the fault is planted, because a new connection requests a random number as well.
    let client = server.client().await;
    client.heartbeat_tickets(QueueHeartbeatRequest::default()).await.expect("connected");
    server.clock.panic_in_random_numbers(1);
    let ann = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    wait_until("the pass panicked", async || panic_count(TaskLabel::Pass) == 1).await;
    assert!(operator_page(&server, "/readyz").await.0.starts_with("http/1.1 200"));
    let (_, metrics) = operator_page(&server, "/metrics").await;
    assert!(metrics.contains("fireteam_task_panics_total{task=\"pass\"} 1"), "{metrics}");
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    bob.wait_for_state(TicketState::Matched).await;
    assert_eq!((panic_count(TaskLabel::Pass), panic_count(TaskLabel::QueueRunner)), (1, 0));
    drop(ann);
    server.app.shutdown().await;
}

/// R20: a failure of a task makes the server unhealthy at once, on both ports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_failure_makes_the_server_unhealthy() {
    let server = TestServer::start().await;
    let statuses = async |path: &str| operator_page(&server, path).await.0[..12].to_owned();
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(statuses(path).await, "http/1.1 200", "{path}");
    }
    server.app.supervisor.spawn_critical(TaskLabel::QueueWriter, async { panic!("planted") }).await.unwrap();
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(statuses(path).await, "http/1.1 503", "{path}");
    }
    let address = server.app.server.address;
    wait_until("NOT_SERVING", async || {
        !fireteam::server::run::check_remote_health(address, None).await.expect("the port is open")
    })
    .await;
}

/// R20: panics unwind in every build. With `panic = "abort"`, one panic would end the process.
#[test]
fn panic_unwinds_in_every_profile() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    assert!(manifest.lines().all(|line| !line.trim_start().starts_with("panic")), "a profile sets `panic`");
}
