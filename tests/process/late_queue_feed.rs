//! A server whose queue feed is late: what another server has acknowledged is not refused. The fault is planted: the feed is held back
//! while a marker file exists.

use fireteam_client::{RetryPolicy, Ticket, pb};
use tokio_stream::StreamExt as _;

use crate::cluster::Cluster;
use crate::support::database::create_test_database;
use crate::support::party::party_session;
use crate::support::server_process::TEST_TIMEOUT;

const RULESET: &str = r#"<Ruleset Name="Duel" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
</Ruleset>"#;

async fn enter(cluster: &Cluster, name: &str) -> Ticket {
    let request = pb::QueueEnterRequest {
        session_composition: Some(party_session(&[(name, 20.0)])),
        matchmaking_set_id: Some(11),
        ..Default::default()
    };
    cluster.client(0, 0).expect("a server is running").enter_queue(request).await.expect("enter")
}

/// R9: a heartbeat, a watch and a leave of a ticket that another server has acknowledged work at a server that has not read it from
/// the feed. The watch goes on, and has the end of the ticket when the feed arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ticket_is_served_by_a_server_whose_queue_feed_is_late() {
    let Some(database) = create_test_database("late_queue_feed").await else { return };
    let cluster = Cluster::new_with_ruleset(&database.url, 2, RULESET);
    let folder = tempfile::tempdir().expect("a folder");
    let marker = folder.path().join("hold");
    let fault = format!("hold_queue_feed=return({})", marker.display());
    tokio::task::block_in_place(|| {
        cluster.fill(0, None, &[]);
        cluster.fill(1, None, &[("FAILPOINTS", &fault)]);
    });
    // From now on; it has read its snapshot.
    std::fs::write(&marker, "").expect("the marker");
    let late = cluster.client(1, 0).expect("a server is running").with_retry_policy(RetryPolicy::NEVER);

    let ann = enter(&cluster, "ann").await.reference();
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
    std::fs::remove_file(&marker).expect("the marker");
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
