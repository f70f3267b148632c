//! A server whose queue feed is late: what another server has acknowledged is not refused. The fault is planted: the feed is held back
//! while a marker file exists.

use fireteam_client::{Code, RetryPolicy, Ticket, pb};
use pb::AnswerOutcome;
use pb::allocate_request::Message as AllocatorMessage;
use pb::allocate_response::Message as AllocatorResponse;
use tokio_stream::StreamExt as _;
use tonic::transport::Endpoint;

use crate::cluster::Cluster;
use crate::support::allocator::{TestAllocator, any_match};
use crate::support::database::create_test_database;
use crate::support::generated_client as wire;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::party::party_session;
use crate::support::server_process::TEST_TIMEOUT;

const RULESET: &str = r#"<Ruleset Name="Duel" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
  <ReadyCheck TimeoutMs="600000"/>
</Ruleset>"#;

/// Two servers; while the file exists that the result names, the feed of the second one is held back.
struct LateFeed {
    cluster: Cluster,
    folder: tempfile::TempDir,
}

impl LateFeed {
    /// The feed is held back from now on; the server has read its snapshot.
    fn start(database_url: &str) -> Self {
        let site = Self::start_in_time(database_url, RULESET);
        site.hold_feed();
        site
    }

    /// The feed is not held back yet.
    fn start_in_time(database_url: &str, ruleset: &str) -> Self {
        let cluster = Cluster::new_with_ruleset(database_url, 2, ruleset);
        let folder = tempfile::tempdir().expect("a folder");
        let fault = format!("hold_queue_feed=return({})", folder.path().join("hold").display());
        tokio::task::block_in_place(|| {
            cluster.fill(0, None, &[]);
            cluster.fill(1, None, &[("FAILPOINTS", &fault)]);
        });
        Self { cluster, folder }
    }

    fn hold_feed(&self) {
        std::fs::write(self.folder.path().join("hold"), "").expect("the marker");
    }

    async fn allocator(&self, server: usize) -> TestAllocator {
        TestAllocator::connect(self.cluster.address(server).expect("a server is running"), any_match(4)).await
    }

    fn client(&self, server: usize) -> fireteam_client::Client {
        self.cluster.client(server, 0).expect("a server is running").with_retry_policy(RetryPolicy::NEVER)
    }

    fn let_feed_arrive(&self) {
        std::fs::remove_file(self.folder.path().join("hold")).expect("the marker");
    }
}

async fn enter(site: &LateFeed, name: &str) -> Ticket {
    let request = pb::QueueEnterRequest {
        session_composition: Some(party_session(&[(name, 20.0)])),
        matchmaking_set_id: Some(11),
        ..Default::default()
    };
    site.client(0).enter_queue(request).await.expect("enter")
}

/// R9: a heartbeat, a watch and a leave of a ticket that another server has acknowledged work at a server that has not read it from
/// the feed. The watch goes on, and has the end of the ticket when the feed arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_is_served_by_a_server_whose_queue_feed_is_late() {
    let Some(database) = create_test_database("late_queue_feed").await else { return };
    let site = LateFeed::start(&database.url);
    let late = site.client(1);

    let ann = enter(&site, "ann").await.reference();
    let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ann.clone()], ..Default::default() };
    late.heartbeat_tickets(heartbeat).await.expect("a heartbeat");
    let watched = pb::QueueWatchRequest { tickets: vec![ann.clone()], ..Default::default() };
    let mut statuses = late.queue_stub().watch(watched).await.expect("a watch").into_inner();
    let leave = pb::QueueLeaveRequest {
        ticket_id: ann.ticket_id.clone(),
        ticket_token: ann.ticket_token.clone(),
        ..Default::default()
    };
    let left = late.leave_queue(leave).await.expect("left");
    assert!(matches!(left.result, Some(pb::queue_leave_response::Result::Ended(_))), "{left:?}");
    site.let_feed_arrive();
    let has_ended = async {
        loop {
            let status = statuses.next().await.expect("the stream is open").expect("a status");
            if status.status.expect("a ticket").state() == pb::TicketState::Ended {
                return;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, has_ended).await.expect("in time");
}

fn answer(ticket: &Ticket, match_id: &str) -> pb::QueueRespondRequest {
    pb::QueueRespondRequest {
        ticket_id: ticket.id().to_owned(),
        ticket_token: ticket.reference().ticket_token,
        match_id: match_id.to_owned(),
        accept: true,
        ..Default::default()
    }
}

/// R9: a match that the feed has not brought is not refused as unknown. An answer to its ready check is to be repeated, also one of a
/// leaving player; operators see the match. After its end the answer says that there is no ready check, and the ticket waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn match_is_known_to_a_server_whose_queue_feed_is_late() {
    let Some(database) = create_test_database("late_queue_feed_match").await else { return };
    let site = LateFeed::start(&database.url);
    let late = site.client(1);
    let (ann, mut bob) = (enter(&site, "ann").await, enter(&site, "bob").await);
    let mut statuses = ann.watch();
    let match_id = loop {
        let status = statuses.next().await.expect("a stream").expect("a status");
        if let Some(found) = status.found_match {
            break found.match_id;
        }
    };
    let unavailable = late.respond_to_ready_check(answer(&ann, &match_id)).await.expect_err("not applied yet");
    assert_eq!(unavailable.code(), Some(Code::Unavailable), "{unavailable}");
    let operator_address = site.cluster.with(1, |server| server.operator_address);
    let endpoint = Endpoint::from_shared(format!("http://{operator_address}")).expect("an address");
    let mut operator = OperatorServiceClient::new(endpoint.connect_lazy());
    let told = operator.get_match(wire::GetMatchRequest { match_id: match_id.clone() }).await.expect("a match");
    assert_eq!(told.into_inner().tickets.len(), 2);

    bob.respond_to_ready_check(&match_id, false).await.expect("decline");
    let ended = late.respond_to_ready_check(answer(&ann, &match_id)).await.expect_err("it has ended");
    assert_eq!(ended.code(), Some(Code::FailedPrecondition), "{ended}");
    let cancelled = operator.cancel_match(wire::CancelMatchRequest { match_id, reason: "test".into() }).await;
    assert!(cancelled.expect("an answer").into_inner().had_ended);
    let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ann.reference()], ..Default::default() };
    let statuses = late.heartbeat_tickets(heartbeat).await.expect("a heartbeat").statuses;
    assert_eq!(statuses[0].state(), pb::TicketState::Waiting);
}

/// Matches are placed by allocators, whose offers stay open.
const OFFERED: &str = r#"<Ruleset Name="Duel" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"/>
  <Hosting Mode="game_server" AllocationTimeoutMs="600000" ConfirmMs="60000" Allocate="always" OfferMs="60000"/>
</Ruleset>"#;

/// Answers an offer with a place at a server. `None`: the answer is to be repeated.
async fn answer_offer(site: &LateFeed, server: usize, offer: &pb::AllocationOffer) -> Option<AnswerOutcome> {
    let mut allocator = site.allocator(server).await;
    let answer = pb::PlaceAnswer { offer_token: offer.offer_token.clone(), connect_data: b"place".to_vec() };
    allocator.send(AllocatorMessage::Place(answer)).await;
    match allocator.next_response().await {
        Ok(AllocatorResponse::Ack(ack)) => Some(ack.outcome()),
        Ok(other) => panic!("no acknowledgement: {other:?}"),
        Err(error) => {
            assert_eq!(error.code(), tonic::Code::Unavailable, "{error}");
            None
        }
    }
}

async fn answer_offer_until_acknowledged(site: &LateFeed, offer: &pb::AllocationOffer) -> AnswerOutcome {
    let acknowledged = async {
        loop {
            if let Some(outcome) = answer_offer(site, 1, offer).await {
                return outcome;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, acknowledged).await.expect("in time")
}

/// R9, S3-8: an allocator's answer is to be repeated at a server whose feed has not brought the match, and not refused. When the feed
/// arrives, the place that another server has accepted is acknowledged as accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offer_is_answered_at_a_server_whose_queue_feed_is_late() {
    let Some(database) = create_test_database("late_queue_feed_offer").await else { return };
    let site = LateFeed::start_in_time(&database.url, OFFERED);
    site.hold_feed();
    let mut in_time = site.allocator(0).await;
    let (_ann, _bob) = (enter(&site, "ann").await, enter(&site, "bob").await);
    let offer = in_time.next_offer().await;
    assert_eq!(answer_offer(&site, 1, &offer).await, None);
    assert_eq!(in_time.place(&offer, "place").await, AnswerOutcome::Accepted);
    assert_eq!(answer_offer(&site, 1, &offer).await, None);
    site.let_feed_arrive();
    assert_eq!(answer_offer_until_acknowledged(&site, &offer).await, AnswerOutcome::Accepted);
}

/// R9, S3-8: the same where the feed has brought the match, but not that another server has placed it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_place_is_not_refused_at_a_server_whose_queue_feed_is_late() {
    let Some(database) = create_test_database("late_queue_feed_place").await else { return };
    let site = LateFeed::start_in_time(&database.url, OFFERED);
    let mut late = site.allocator(1).await;
    let (_ann, _bob) = (enter(&site, "ann").await, enter(&site, "bob").await);
    let offer = late.next_offer().await;
    site.hold_feed();
    assert_eq!(site.allocator(0).await.place(&offer, "place").await, AnswerOutcome::Accepted);
    assert_ne!(answer_offer(&site, 1, &offer).await, Some(AnswerOutcome::NotWanted));
    site.let_feed_arrive();
    assert_eq!(answer_offer_until_acknowledged(&site, &offer).await, AnswerOutcome::Accepted);
}
