//! A server whose queue feed is late while the store cannot be read: its answers ask players to repeat their calls, watches stay open, and
//! when the store is back, everything that another server has acknowledged is there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fireteam::clock::Clock as _;
use fireteam::engine::Engine;
use fireteam::rules::parse_ruleset;
use fireteam::server::RunningServer;
use fireteam::store::StoreError;
use fireteam::store::queues::{QueueFeed, QueueFeedBatch, QueueStore as _};
use fireteam_client::{Client, Code, Error, RetryPolicy, Ticket, pb};
use pb::TicketState;
use pb::queue_service_client::QueueServiceClient;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tonic::transport::Endpoint;

use crate::support::faulty_engine::{serve, start_engine};
use crate::support::faulty_store::FaultyStore;
use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request};
use crate::support::server_process::TEST_TIMEOUT;
use crate::support::test_server::TestClock;

/// Interval at which the feed is read once it may arrive.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Queue feed that brings nothing until it may arrive, and then all that is stored.
struct HeldFeed {
    store: Arc<FaultyStore>,
    clock: Arc<TestClock>,
    may_arrive: watch::Receiver<bool>,
    has_started: bool,
}

#[tonic::async_trait]
impl QueueFeed for HeldFeed {
    async fn wait_for_changes(&mut self) {
        // A sender that is gone: the test has ended.
        let _ = self.may_arrive.wait_for(|may_arrive| *may_arrive).await;
        tokio::time::sleep(POLL_INTERVAL).await;
    }

    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError> {
        if !std::mem::replace(&mut self.has_started, true) {
            return Ok(QueueFeedBatch {
                is_snapshot: true,
                has_all_ratings_and_block_lists: true,
                ..QueueFeedBatch::default()
            });
        }
        Ok(self.store.inner.purge_and_load_queues(self.clock.now()).await?.into())
    }
}

/// Two servers on one store; the queue feed of the second one is held back.
struct Site {
    store: Arc<FaultyStore>,
    feed: watch::Sender<bool>,
    servers: [RunningServer; 2],
    _engines: [Arc<Engine>; 2],
}

impl Site {
    async fn start() -> Self {
        let (store, clock) = (Arc::new(FaultyStore::default()), Arc::new(TestClock::new()));
        let ruleset = duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#);
        let ruleset = Arc::new(parse_ruleset("duel.xml", &ruleset).expect("a ruleset"));
        let rulesets = || vec![("duel.xml".into(), Arc::clone(&ruleset))];
        let one = Arc::new(start_engine(&store, rulesets(), &clock).await);
        let (feed, may_arrive) = watch::channel(false);
        let held = HeldFeed { store: store.clone(), clock: clock.clone(), may_arrive, has_started: false };
        *store.queue_feed.lock().unwrap() = Some(Box::new(held));
        let two = Arc::new(start_engine(&store, rulesets(), &clock).await);
        let servers = [serve(&one, &clock).await, serve(&two, &clock).await];
        Self { store, feed, servers, _engines: [one, two] }
    }

    /// Client without retries of a server.
    async fn client(&self, server: usize) -> Client {
        let client = Client::connect(format!("http://{}", self.servers[server].address)).await.expect("connect");
        client.with_retry_policy(RetryPolicy::NEVER)
    }

    /// Ticket of a player, entered at the first server.
    async fn enter(&self, name: &str, skill: f64) -> Ticket {
        self.client(0).await.enter_queue(enter_request(SET_ID, &[(name, skill)])).await.expect("entered")
    }

    /// Watch of a ticket at the second server. Its first status has not arrived.
    async fn watch_at_late_server(&self, ticket: &Ticket) -> tonic::Streaming<pb::QueueWatchResponse> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.servers[1].address)).expect("an address");
        let mut stub = QueueServiceClient::new(endpoint.connect_lazy());
        let request = pb::QueueWatchRequest { tickets: vec![ticket.reference()], ..Default::default() };
        stub.watch(request).await.expect("a watch").into_inner()
    }

    fn set_outage(&self, is_unavailable: bool) {
        self.store.queues_unavailable.store(is_unavailable, Ordering::SeqCst);
    }
}

fn heartbeat(ticket: &Ticket) -> pb::QueueHeartbeatRequest {
    pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() }
}

fn leave(ticket: &Ticket) -> pb::QueueLeaveRequest {
    let pb::TicketReference { ticket_id, ticket_token, .. } = ticket.reference();
    pb::QueueLeaveRequest { ticket_id, ticket_token, ..Default::default() }
}

fn accept(ticket: &Ticket, match_id: &str) -> pb::QueueRespondRequest {
    let pb::TicketReference { ticket_id, ticket_token, .. } = ticket.reference();
    pb::QueueRespondRequest {
        ticket_id,
        ticket_token,
        match_id: match_id.to_owned(),
        accept: true,
        ..Default::default()
    }
}

/// The call is to be repeated: neither has it been applied, nor is the ticket said to be unknown.
#[track_caller]
fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("the store cannot be read");
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
}

/// Next status of a watch that is in this state.
async fn wait_for_status(statuses: &mut tonic::Streaming<pb::QueueWatchResponse>, state: TicketState) {
    let has_arrived = async {
        loop {
            let update = statuses.next().await.expect("the stream is open").expect("a status");
            if update.status.expect("a ticket").state() == state {
                return;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, has_arrived).await.expect("in time");
}

/// R9: a server that neither the feed nor the store tells of a waiting ticket says that the call is to be repeated. Its watch stays open,
/// however often the store fails. When the store is back, the same ticket waits, and leaves; the watch tells it when the feed arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_behind_a_late_queue_feed_refuses_no_ticket_as_unknown() {
    let site = Site::start().await;
    let (late, ann) = (site.client(1).await, site.enter("ann", 20.0).await);
    let ben = site.enter("ben", 50.0).await;
    site.set_outage(true);
    let [mut statuses, mut bens] = [site.watch_at_late_server(&ann).await, site.watch_at_late_server(&ben).await];
    assert_unavailable(late.heartbeat_tickets(heartbeat(&ann)).await);
    assert_unavailable(late.leave_queue(leave(&ann)).await);
    assert_unavailable(late.respond_to_ready_check(accept(&ann, &"0".repeat(32))).await);
    // Both watches have asked for their tickets, and ask again.
    for _ in 0..2 {
        site.store.wait_for_failed_ticket_reads(2).await;
    }

    site.set_outage(false);
    let beaten = late.heartbeat_tickets(heartbeat(&ann)).await.expect("a heartbeat").statuses;
    assert_eq!((&*beaten[0].ticket_id, beaten[0].state()), (ann.id(), TicketState::Waiting));
    let left = late.leave_queue(leave(&ann)).await.expect("left");
    assert!(matches!(left.result, Some(pb::queue_leave_response::Result::Ended(_))), "{left:?}");
    site.feed.send_replace(true);
    wait_for_status(&mut statuses, TicketState::Ended).await;
    wait_for_status(&mut bens, TicketState::Waiting).await;
}

/// R9: the same for a proposed match. An answer to its ready check is to be repeated, and is counted once the store and the feed are back:
/// the match is the same, and begins when the other player has accepted, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_behind_a_late_queue_feed_loses_no_match() {
    let site = Site::start().await;
    let late = site.client(1).await;
    let (mut ann, bob) = (site.enter("ann", 20.0).await, site.enter("bob", 20.0).await);
    let mut proposals = ann.watch();
    let match_id = loop {
        let status = proposals.next().await.expect("a stream").expect("a status");
        if let Some(found) = status.found_match {
            break found.match_id;
        }
    };
    site.set_outage(true);
    let mut statuses = site.watch_at_late_server(&ann).await;
    assert_unavailable(late.respond_to_ready_check(accept(&ann, &match_id)).await);
    assert_unavailable(late.leave_queue(leave(&ann)).await);
    assert_unavailable(late.heartbeat_tickets(heartbeat(&ann)).await);
    site.set_outage(false);
    assert_unavailable(late.respond_to_ready_check(accept(&ann, &match_id)).await);
    let proposed = late.heartbeat_tickets(heartbeat(&ann)).await.expect("a heartbeat").statuses;
    assert_eq!(proposed[0].state(), TicketState::Proposed);
    assert_eq!(ann.heartbeat().await.expect("a heartbeat").state(), TicketState::Proposed);

    site.feed.send_replace(true);
    wait_for_status(&mut statuses, TicketState::Proposed).await;
    let accepted = late.respond_to_ready_check(accept(&ann, &match_id)).await.expect("accepted").status;
    let found = accepted.and_then(|status| status.found_match).expect("a match");
    assert_eq!((&found.match_id, found.accepted_count), (&match_id, 1));
    late.respond_to_ready_check(accept(&bob, &match_id)).await.expect("accepted");
    wait_for_status(&mut statuses, TicketState::Matched).await;
}
