//! R20: planted panics in the tasks of a real server: a writer stops it, everything else continues.

use fireteam::rules::parse::parse_ruleset;
use fireteam::store::pass_failure::PassRecord;
use fireteam_client::{Client, RetryPolicy, Ticket, pb};
use tokio_stream::StreamExt as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::party::party_session;
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};

/// Set in which passes panic, as in the fail point, and another one.
const PANICKING_SET: u32 = 11;
const HEALTHY_SET: u32 = 12;

fn ruleset(set_id: u32) -> String {
    format!(
        r#"<Ruleset Name="Duel {set_id}" SetId="{set_id}">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="50" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><RatingWindow Start="2" Max="2"/></Queue>
</Ruleset>"#
    )
}

/// Starts a server with both sets and one fault.
fn start(folder: &std::path::Path, fault: &str) -> ServerProcess {
    let rules = folder.join("rules");
    std::fs::create_dir_all(&rules).expect("a folder");
    for set_id in [PANICKING_SET, HEALTHY_SET] {
        std::fs::write(rules.join(format!("{set_id}.xml")), ruleset(set_id)).expect("a ruleset");
    }
    let arguments = ["--rulesets", "rules", "--pass-failure-dir", "failed"];
    ServerProcess::start_with(folder, &arguments, &[("FAILPOINTS", fault)])
}

async fn enter(client: &Client, set_id: u32, name: &str) -> Result<Ticket, fireteam_client::Error> {
    let request = pb::QueueEnterRequest {
        session_composition: Some(party_session(&[(name, 20.0)])),
        matchmaking_set_id: Some(set_id),
        ..Default::default()
    };
    client.enter_queue(request).await
}

/// Two players enter the set's queue and are matched.
async fn assert_matches(client: &Client, set_id: u32, names: [&str; 2]) {
    let mut tickets = Vec::new();
    for name in names {
        tickets.push(enter(client, set_id, name).await.expect("enter"));
    }
    for ticket in &tickets {
        let mut statuses = ticket.watch();
        let is_matched = async {
            loop {
                let status = statuses.next().await.expect("the stream is open").expect("the ticket has not ended");
                if status.state() == pb::TicketState::Matched {
                    return;
                }
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, is_matched).await.expect("matched in time");
    }
}

/// The writer's panic makes the server unhealthy at once, and ends it with an error within the grace period. After a
/// restart, what was acknowledged is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_a_writer_stops_the_server() {
    for (fault, task) in [("panic_in_queue_writer", "queue_writer"), ("panic_in_advert_writer", "advert_writer")] {
        let folder = tempfile::tempdir().unwrap();
        let server = start(folder.path(), &format!("{fault}=return"));
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
        let mut health = HealthClient::new(channel.connect().await.unwrap());
        let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        let client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
        if task == "queue_writer" {
            enter(&client, HEALTHY_SET, "ann").await.expect_err("the writer panicked");
        } else {
            let request = crate::support::party::advertise_request(&[("host", 0.0)], 3);
            let request =
                pb::MatchmakingUpdateAdvertisementRequest { matchmaking_set_id: Some(HEALTHY_SET), ..request };
            client.advertise(request).await.map(drop).expect_err("the writer panicked");
        }
        let becomes_unhealthy = async {
            // A starting server may set the status that it has more than once.
            while watch.next().await.unwrap().unwrap().status() != ServingStatus::NotServing {}
        };
        tokio::time::timeout(TEST_TIMEOUT, becomes_unhealthy).await.expect("NOT_SERVING in time");
        let ended = server.wait_for_exit();
        assert_eq!(ended.exit_code, Some(1), "{}", ended.log);
        assert!(ended.log.contains(&format!("task panicked task=\"{task}\"")), "{}", ended.log);
        assert!(ended.log.contains(&format!("task {task} panicked: planted panic")), "{}", ended.log);
        let restarted = start(folder.path(), "");
        assert_matches(&restarted.client().await, HEALTHY_SET, ["ann", "bob"]).await;
    }
}

/// A pass that panics keeps its input, which runs again, and delays only the passes of its queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_a_pass_costs_only_the_passes_of_its_queue() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "panic_in_pass=2*return->off");
    let client = server.client().await;
    assert_matches(&client, PANICKING_SET, ["eve", "dan"]).await;
    assert_matches(&client, HEALTHY_SET, ["ann", "bob"]).await;
    let metrics = server.operator_page("/metrics").await;
    assert!(metrics.contains("fireteam_task_panics_total{task=\"pass\"} 2"), "{metrics}");
    assert!(server.operator_page("/readyz").await.starts_with("HTTP/1.1 200"));
    let files: Vec<_> =
        std::fs::read_dir(folder.path().join("failed")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "only the first of several failed passes is kept: {files:?}");
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(!text.contains("eve") && !text.contains("dan"), "{text}");
    let record = PassRecord::decode(&text).unwrap();
    assert!(record.panic.contains("planted panic in a pass"), "{}", record.panic);
    let ruleset = parse_ruleset("replay.xml", &record.ruleset_xml).unwrap();
    let tickets = record.call_with_pass_input(&ruleset, |input| input.tickets.len()).unwrap();
    assert!((1..=2).contains(&tickets), "{tickets}");
    server.terminate();
    assert_eq!(server.wait_for_exit().exit_code, Some(0));
}

/// While the passes of one queue always panic, another queue is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_in_each_pass_of_a_queue_leaves_the_others_running() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "panic_in_pass=return");
    let client = server.client().await;
    enter(&client, PANICKING_SET, "eve").await.expect("enter");
    assert!(!server.log.wait_for_lines("pass failed", 1).is_empty());
    assert_matches(&client, HEALTHY_SET, ["ann", "bob"]).await;
    assert!(server.operator_page("/livez").await.starts_with("HTTP/1.1 200"));
}

/// The runner of a queue is restarted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panic_of_a_queue_runner_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), "panic_in_queue_runner=2*return->off");
    assert_matches(&server.client().await, HEALTHY_SET, ["ann", "bob"]).await;
    let metrics = server.operator_page("/metrics").await;
    assert!(metrics.contains("fireteam_task_panics_total{task=\"queue_runner\"} 2"), "{metrics}");
}
