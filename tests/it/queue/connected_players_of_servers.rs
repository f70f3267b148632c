//! Connected players of several servers: a user who is connected to two of them counts once.

use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam_client::{Client, Ticket, pb};
use pb::TicketState;
use tonic::transport::Endpoint;

use crate::queue::connected_players::{gate_reason, gated_ruleset, report_connected};
use crate::store::replicas::Replicas;
use crate::support::database::create_test_database;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::generated_client::{ExplainRequest, GateReason};
use crate::support::party_site::{PartySite, by_operator, wait_for_state};
use crate::support::queue_server::{SET_ID, enter_request, operator_client, wait_until};

/// Game backends at both servers of a site.
async fn backends(site: &PartySite) -> [Client; 2] {
    let backend = async |server: usize, name: &str| {
        site.issuer.client_with_token(&site.servers[server], Role::GameServer, name).await
    };
    [backend(0, "eu-1").await, backend(1, "eu-2").await]
}

/// Returns when both servers have exchanged what was connected at the call.
async fn wait_for_exchange(site: &PartySite) {
    let database = site.database().expect("Postgres");
    for _ in 0..2 {
        let mut connection = database.connect().await;
        let begun: String =
            sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&mut connection).await.expect("a time");
        let reported = format!(
            "select count(distinct replica) from connected_users_by_set where reported_at > '{begun}'::timestamptz"
        );
        wait_until("both servers report", async || site.count_rows(&reported).await == 2).await;
    }
}

/// Returns when the lists of both servers have `count` users together, and were counted.
async fn wait_for_lists(site: &PartySite, count: i64) {
    let listed = "select count(*) from connected_user";
    wait_until("the lists have changed", async || site.count_rows(listed).await == count).await;
    let database = site.database().expect("Postgres");
    // Twice: a count may have begun before the lists changed. The server that counts has the first one before it counts again.
    for _ in 0..2 {
        let mut connection = database.connect().await;
        let begun: String =
            sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&mut connection).await.expect("a time");
        let counted = format!(
            "select count(*) from connected_users_by_set
              where total_count is not null and reported_at > '{begun}'::timestamptz"
        );
        wait_until("the users are counted", async || site.count_rows(&counted).await > 0).await;
    }
}

/// Gate reasons that the servers of a site give for a ticket; `None` for one that does not know it yet.
async fn gate_reasons(site: &PartySite, ticket: &Ticket) -> Vec<Option<GateReason>> {
    let mut reasons = Vec::new();
    for server in &site.servers {
        let request = ExplainRequest { ticket_id: ticket.id().to_owned(), ..Default::default() };
        let explained = operator_client(server).await.explain(by_operator(site, request)).await;
        reasons.push(explained.ok().map(|explained| explained.into_inner().gate_reason()));
    }
    reasons
}

async fn wait_for_gate(site: &PartySite, ticket: &Ticket, reason: GateReason) {
    wait_until("all servers agree about the gate", async || {
        gate_reasons(site, ticket).await.iter().all(|found| *found == Some(reason))
    })
    .await;
}

/// S2-7: five players who are connected to two servers are five: two waiting players are too few, and three of six are enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gate_counts_a_player_of_two_servers_once() {
    let test = "gate_counts_a_player_of_two_servers_once";
    let Some(site) = PartySite::on_postgres(test, &gated_ruleset()).await else { return };
    for backend in &backends(&site).await {
        report_connected(backend, &["ann", "bob", "dan", "eve", "fay"], &[SET_ID]).await;
    }
    let ann = site.player("ann").await.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let mut bob =
        site.player_elsewhere("bob").await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    wait_for_exchange(&site).await;
    wait_for_gate(&site, &ann, GateReason::TooFewWaiting).await;
    assert_eq!(bob.heartbeat().await.expect("heartbeat").state(), TicketState::Waiting);
    let mut cid = site.player("cid").await.enter_queue(enter_request(SET_ID, &[("cid", 20.0)])).await.expect("enter");
    wait_until("three of six are enough", async || {
        let mut matched = 0;
        for ticket in [&mut bob, &mut cid] {
            matched += u32::from(ticket.heartbeat().await.expect("heartbeat").state() == TicketState::Matched);
        }
        matched > 0
    })
    .await;
    site.shut_down().await;
}

/// S2-7: a player of two servers stays connected until the last of them has heard nothing for 30 s, also over a restart of the
/// first. What a server that stops has counted ends with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn player_of_two_servers_is_connected_until_both_have_heard_nothing() {
    let test = "player_of_two_servers_is_connected_until_both_have_heard_nothing";
    let Some(mut site) = PartySite::on_postgres(test, &gated_ruleset()).await else { return };
    let [here, there] = backends(&site).await;
    // With ann: three. One that waits is too few of three, and enough of two.
    for backend in [&here, &there] {
        report_connected(backend, &["dan", "eve"], &[SET_ID]).await;
    }
    let mut ann =
        site.player_elsewhere("ann").await.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    wait_for_lists(&site, 5).await;
    wait_for_gate(&site, &ann, GateReason::TooFewWaiting).await;
    site.clock.advance_ms(20_000);
    ann.heartbeat().await.expect("heartbeat");
    report_connected(&there, &["dan", "eve"], &[SET_ID]).await;
    site.clock.advance_ms(15_000);
    // The second server hears of both: with ann, three.
    wait_for_lists(&site, 3).await;
    wait_for_gate(&site, &ann, GateReason::TooFewWaiting).await;
    report_connected(&here, &["dan", "eve"], &[SET_ID]).await;
    wait_for_lists(&site, 5).await;
    site.clock.advance_ms(16_000);
    ann.heartbeat().await.expect("heartbeat");
    // The first one hears of both, the second of ann.
    wait_for_lists(&site, 3).await;
    wait_for_gate(&site, &ann, GateReason::TooFewWaiting).await;
    site.restart_first().await;
    ann.heartbeat().await.expect("heartbeat");
    wait_for_gate(&site, &ann, GateReason::Unspecified).await;
    let [here, _] = backends(&site).await;
    report_connected(&here, &["dan"], &[SET_ID]).await;
    report_connected(&there, &["dan"], &[SET_ID]).await;
    // One of two waits.
    wait_for_lists(&site, 3).await;
    wait_for_gate(&site, &ann, GateReason::Unspecified).await;
    let mut bob = site.player("bob").await.enter_queue(enter_request(SET_ID, &[("bob", 20.0)])).await.expect("enter");
    wait_for_state(&mut bob, TicketState::Matched).await;
    site.shut_down().await;
}

/// S2-7: a player who was connected to a server that is killed, and to another one, counts once. Those whom only the killed server
/// knew are forgotten some seconds later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_of_a_killed_server_are_forgotten() {
    let Some(database) = create_test_database("players_of_a_killed_server_are_forgotten").await else { return };
    let rules = tempfile::tempdir().expect("a folder");
    std::fs::write(rules.path().join("duel.xml"), gated_ruleset()).expect("rules");
    let mut replicas = Replicas::start(&database, 2, &["--rulesets", &rules.path().display().to_string()]);
    let there = replicas.servers.pop().expect("a server");
    let here = &replicas.servers[0];
    let (client, other_client) = (here.client().await, there.client().await);
    let endpoint = Endpoint::from_shared(format!("http://{}", here.operator_address)).expect("an address");
    let mut operator = OperatorServiceClient::new(endpoint.connect().await.expect("connect"));
    let ann = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let keep_connected = async || {
        let request = pb::QueueHeartbeatRequest {
            tickets: vec![ann.reference()],
            connected_user_ids: vec!["dan".to_owned()],
            connected_matchmaking_set_ids: vec![SET_ID],
            ..Default::default()
        };
        client.heartbeat_tickets(request).await.expect("heartbeat");
    };
    let mut wait_for = async |reason: GateReason| {
        wait_until("the gate changes", async || {
            keep_connected().await;
            gate_reason(&mut operator, ann.id()).await == Some(reason)
        })
        .await;
    };
    wait_for(GateReason::Unspecified).await;
    report_connected(&other_client, &["dan", "eve"], &[SET_ID]).await;
    wait_for(GateReason::TooFewWaiting).await;
    there.kill();
    wait_for(GateReason::Unspecified).await;
    // A third server hears of dan alone, who counts already.
    let third = replicas.start_another(&database, &["--rulesets", &rules.path().display().to_string()]);
    report_connected(&third.client().await, &["dan"], &[SET_ID]).await;
    for _ in 0..40 {
        keep_connected().await;
        report_connected(&third.client().await, &["dan"], &[SET_ID]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(gate_reason(&mut operator, ann.id()).await, Some(GateReason::Unspecified), "one of two");
    }
}
