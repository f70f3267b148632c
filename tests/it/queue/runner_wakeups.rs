//! Wake-ups of queue runners: a change runs its own queue and no other.

use fireteam_client::pb;
use pb::TicketState;

use crate::support::generated_client::{GetStatisticsRequest, QueueStatistics};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server_with_config, wait_until,
};
use crate::support::test_server::TestServer;

/// Queues beside the changed one, one per silo.
const OTHER_QUEUES: u64 = 2_000;

/// Silo of the changed queue.
const SILO: u64 = 0;

/// Request of `user` to enter in `silo`.
fn enter_in_silo(user: &str, silo: u64) -> pb::QueueEnterRequest {
    let mut request = enter_request(SET_ID, &[(user, 20.0)]);
    request.session_composition.as_mut().expect("a party").silo_id = Some(silo);
    request
}

async fn queue_statistics(server: &TestServer) -> Vec<QueueStatistics> {
    let mut operator = operator_client(server).await;
    operator.get_statistics(GetStatisticsRequest::default()).await.expect("statistics").into_inner().queues
}

/// Rounds of all runners, as the metric counts them.
fn queue_rounds(server: &TestServer) -> u64 {
    let metrics = server.app.metrics.render();
    let line = metrics.lines().find_map(|line| line.strip_prefix("fireteam_queue_rounds_total "));
    line.expect("the metric").parse().expect("a number")
}

/// A change of one queue runs its passes; 2,000 other queues run neither a pass nor a round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn change_runs_its_own_queue_and_no_other() {
    let server = start_queue_server_with_config(&[&duel_ruleset("")], |config| {
        (config.max_silos, config.max_silos_per_user) = (10_000, 10_000);
    })
    .await;
    let client = server.client().await;
    for silo in 1..=OTHER_QUEUES {
        client.enter_queue(enter_in_silo(&format!("user {silo}"), silo)).await.expect("enter");
    }
    let total_passes = async || queue_statistics(&server).await.iter().map(|queue| queue.passes).sum::<u64>();
    wait_until("the first pass of each queue", async || total_passes().await == OTHER_QUEUES).await;
    let before = queue_rounds(&server);
    let pairs = 20;
    for pair in 0..pairs {
        let [first, second] = ["ann", "bob"].map(|name| enter_in_silo(&format!("{name} {pair}"), SILO));
        let mut waiting = QueuedParty::enter_with_request(&server, first).await;
        let _opponent = QueuedParty::enter_with_request(&server, second).await;
        waiting.wait_for_state(TicketState::Matched).await;
    }
    let rounds = queue_rounds(&server) - before;
    assert!(pairs <= rounds && rounds < OTHER_QUEUES / 2, "{rounds} rounds for {pairs} matches");
    for queue in queue_statistics(&server).await {
        let is_changed = queue.silo_id == SILO;
        assert!(if is_changed { pairs <= queue.passes } else { queue.passes == 1 }, "{queue:?}");
    }
}

/// A queue that becomes empty and is entered again gets a runner again, each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_that_was_empty_runs_again() {
    let server = start_queue_server_with_config(&[&duel_ruleset("")], |_| {}).await;
    for round in 0..50 {
        let mut ann = QueuedParty::enter(&server, SET_ID, &[(&format!("ann {round}"), 20.0)]).await;
        assert!(ann.ticket.leave().await.expect("leave"), "the queue is empty");
        let mut bob = QueuedParty::enter(&server, SET_ID, &[(&format!("bob {round}"), 20.0)]).await;
        let cid = QueuedParty::enter(&server, SET_ID, &[(&format!("cid {round}"), 20.0)]).await;
        let found = bob.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        cid.ticket.end_match(&found.match_id, false).await.expect("end");
    }
}
