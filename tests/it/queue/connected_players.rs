//! Connected players of a gate: counted per set and silo, named by heartbeats, added up over servers.

use fireteam_client::{Client, Code, pb};
use pb::TicketState;
use tonic::transport::{Channel, Endpoint};

use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::generated_client::{ExplainRequest, GateReason};
use crate::support::queue_server::{
    QueuedParty, SET_ID, duel_ruleset, enter_request, operator_client, start_queue_server, wait_until,
};

/// A second queue beside `SET_ID`, for matches of 32 players.
const CROWD: u32 = 12;

/// A set without a queue.
const SEARCHED: u32 = 13;

/// Rules of a 1v1 queue whose gate requires half of the connected players to wait.
pub(super) fn gated_ruleset() -> String {
    duel_ruleset("")
        .replace("<Queue PassIntervalMs=\"10\">", "<Queue PassIntervalMs=\"10\"><Gate MinWaitingPercent=\"50\"/>")
}

/// Rules of another set for matches of 32 players.
fn crowd_ruleset() -> String {
    duel_ruleset("")
        .replace(&format!("SetId=\"{SET_ID}\""), &format!("SetId=\"{CROWD}\""))
        .replace("Size=\"1\"", "Size=\"16\"")
}

/// Reports `users` as connected players of `sets` in silo 0.
pub(super) async fn report_connected(client: &Client, users: &[&str], sets: &[u32]) {
    let request = pb::QueueHeartbeatRequest {
        connected_user_ids: users.iter().map(|user| (*user).to_owned()).collect(),
        connected_matchmaking_set_ids: sets.to_vec(),
        ..Default::default()
    };
    client.heartbeat_tickets(request).await.expect("heartbeat");
}

/// Gate reason in the explanation of a ticket.
pub(super) async fn gate_reason(operator: &mut OperatorServiceClient<Channel>, ticket_id: &str) -> Option<GateReason> {
    let request = ExplainRequest { ticket_id: ticket_id.to_owned(), ..Default::default() };
    operator.explain(request).await.ok().map(|explained| explained.into_inner().gate_reason())
}

/// S2-7: thirty players who wait in another set do not close the gate of a ladder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_does_not_count_the_players_of_another_set() {
    let server = start_queue_server(&[&gated_ruleset(), &crowd_ruleset()]).await;
    let client = server.client().await;
    for number in 0..30 {
        client.enter_queue(enter_request(CROWD, &[(&format!("crowd {number}"), 20.0)])).await.expect("enter");
    }
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    for waiting in [&mut ann, &mut bob] {
        waiting.wait_for_state(TicketState::Matched).await;
    }
}

/// S2-7: connected players count in each set that their heartbeat names, and in no other. Unknown sets and sets without
/// a queue are ignored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_counts_the_players_whose_heartbeat_names_the_set() {
    let searched = crowd_ruleset().replace(&format!("SetId=\"{CROWD}\""), &format!("SetId=\"{SEARCHED}\""));
    let searched = searched.replace("<Queue PassIntervalMs=\"10\"><RatingWindow Start=\"2\" Max=\"2\"/></Queue>", "");
    let server = start_queue_server(&[&gated_ruleset(), &crowd_ruleset(), &searched]).await;
    let client = server.client().await;
    let mut operator = operator_client(&server).await;
    report_connected(&client, &["dan", "eve", "fay"], &[CROWD]).await;
    report_connected(&client, &["gus", "hal", "ida"], &[]).await;
    let ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    assert_eq!(gate_reason(&mut operator, ann.ticket.id()).await, Some(GateReason::Unspecified), "only ann counts");
    report_connected(&client, &["joe", "kim", "joe"], &[SET_ID, 4_000_000_000, SEARCHED, SET_ID]).await;
    assert_eq!(gate_reason(&mut operator, ann.ticket.id()).await, Some(GateReason::TooFewWaiting), "one of three");
    server.clock.advance_ms(30_000);
    client
        .heartbeat_tickets(pb::QueueHeartbeatRequest { tickets: vec![ann.ticket.reference()], ..Default::default() })
        .await
        .expect("heartbeat");
    assert_eq!(gate_reason(&mut operator, ann.ticket.id()).await, Some(GateReason::Unspecified), "they expired");
}

/// S2-7: when connected players disconnect, the gate opens without another event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_opens_when_connected_players_expire() {
    let server = start_queue_server(&[&gated_ruleset()]).await;
    report_connected(&server.client().await, &["ann", "bob", "dan", "eve", "fay"], &[SET_ID]).await;
    let mut ann = QueuedParty::enter(&server, SET_ID, &[("ann", 20.0)]).await;
    let mut bob = QueuedParty::enter(&server, SET_ID, &[("bob", 20.0)]).await;
    let mut operator = operator_client(&server).await;
    assert_eq!(gate_reason(&mut operator, bob.ticket.id()).await, Some(GateReason::TooFewWaiting), "two of five");
    server.clock.advance_ms(30_000);
    for waiting in [&mut ann, &mut bob] {
        waiting.wait_for_state(TicketState::Matched).await;
    }
}

/// A heartbeat that names too many sets is refused with the field.
#[tokio::test]
async fn heartbeat_with_too_many_sets_is_refused() {
    let server = start_queue_server(&[&duel_ruleset("")]).await;
    let client = server.client().await;
    let request = |sets: u32| pb::QueueHeartbeatRequest {
        connected_user_ids: vec!["ann".to_owned()],
        connected_matchmaking_set_ids: (1..=sets).collect(),
        ..Default::default()
    };
    client.heartbeat_tickets(request(16)).await.expect("sixteen sets");
    let refused = client.heartbeat_tickets(request(17)).await.expect_err("too many sets");
    assert_eq!(refused.code(), Some(Code::InvalidArgument), "{refused}");
    assert_eq!(refused.fields()[0].field, "connected_matchmaking_set_ids");
}

/// S2-7: two servers on one database add up their connected players, set by set.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_counts_the_connected_players_of_all_servers() {
    let Some(database) = create_test_database("gate_counts_the_connected_players_of_all_servers").await else { return };
    let rules = tempfile::tempdir().expect("a folder");
    std::fs::write(rules.path().join("duel.xml"), gated_ruleset()).expect("rules");
    std::fs::write(rules.path().join("crowd.xml"), crowd_ruleset()).expect("rules");
    let replicas = Replicas::start(&database, 2, &["--rulesets", &rules.path().display().to_string()]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let (client, other_client) = (here.client().await, there.client().await);
    let mut operators = Vec::new();
    for server in &replicas.servers {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.operator_address)).expect("an address");
        operators.push(OperatorServiceClient::new(endpoint.connect().await.expect("connect")));
    }
    let enter = async |client: &Client, name: &str| {
        client.enter_queue(enter_request(SET_ID, &[(name, 20.0)])).await.expect("enter")
    };
    // Of another set, so that they never count here.
    report_connected(&client, &["dan", "eve", "fay", "gus", "hal", "ida"], &[CROWD]).await;
    let ann = enter(&client, "ann").await;
    assert_eq!(gate_reason(&mut operators[0], ann.id()).await, Some(GateReason::Unspecified), "only ann counts");
    // Repeated, so that they stay connected on a slow machine.
    let report_others = async || report_connected(&other_client, &["joe", "kim", "lee"], &[SET_ID]).await;
    for operator in &mut operators {
        wait_until("the count of all servers closes the gate: one of four", async || {
            report_others().await;
            gate_reason(operator, ann.id()).await == Some(GateReason::TooFewWaiting)
        })
        .await;
    }
    let joe = enter(&other_client, "joe").await;
    for (client, ticket) in [(&client, &ann), (&other_client, &joe)] {
        wait_until("two of four are enough", async || {
            let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
            client.heartbeat_tickets(request).await.expect("heartbeat").statuses[0].state() == TicketState::Matched
        })
        .await;
    }
}
