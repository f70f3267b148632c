//! Postgres is paused for longer than every deadline of tickets and ready checks, or a server is killed just before a deadline.
//! Players who could not answer are not penalized, keep their tickets, and can answer afterwards.

use std::time::Duration;

use fireteam_client::{Client, Code, RetryPolicy, Ticket, pb};
use pb::TicketState;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::report::{TestReport, scaled, until};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::party_session;

const SERVERS: usize = 2;

/// Ready checks during the outage. As many tickets wait.
const READY_CHECKS: usize = 40;

/// Longer than the ready check and the TTL of tickets.
const OUTAGE: Duration = Duration::from_secs(14);

/// Interval of each player's calls.
const CALL_INTERVAL: Duration = Duration::from_millis(500);

/// Matchmaking set of the queue.
const SET: u32 = 11;

const RULES: &str = r#"<Ruleset Name="Ready check" SetId="11">
  <Attributes><Attribute Name="skill" Type="number" Min="0" Max="1000000" Trust="client"/></Attributes>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="20" TicketTtlMs="6000"><RatingWindow Start="2" Max="2"/></Queue>
  <ReadyCheck TimeoutMs="5000" DeclineCooldownMs="600000"/>
</Ruleset>"#;

async fn enter(client: &Client, user: &str, skill: usize) -> Ticket {
    let request = pb::QueueEnterRequest {
        session_composition: Some(party_session(&[(user, skill as f64)])),
        matchmaking_set_id: Some(SET),
        ..Default::default()
    };
    client.enter_queue(request).await.expect("enter")
}

/// Heartbeat of a ticket; `None` if the server refuses it.
async fn heartbeat(client: &Client, ticket: &Ticket) -> Option<pb::TicketStatus> {
    let request = pb::QueueHeartbeatRequest { tickets: vec![ticket.reference()], ..Default::default() };
    match client.heartbeat_tickets(request).await {
        Ok(answer) => answer.statuses.into_iter().next(),
        Err(error) => {
            assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
            None
        }
    }
}

async fn accept(client: &Client, ticket: &Ticket, match_id: String) {
    let pb::TicketReference { ticket_id, ticket_token, .. } = ticket.reference();
    let request = pb::QueueRespondRequest { ticket_id, ticket_token, match_id, accept: true, ..Default::default() };
    let _ = client.respond_to_ready_check(request).await;
}

/// Heartbeats, and acceptances if `accepts`, until the ticket is in `state` after `from`. Returns the problem, if any.
async fn play(
    client: Client,
    ticket: Ticket,
    accepts_from: Instant,
    state: TicketState,
    from: Instant,
) -> Option<String> {
    loop {
        tokio::time::sleep(CALL_INTERVAL).await;
        let Some(status) = heartbeat(&client, &ticket).await else { continue };
        if status.state() == TicketState::Ended {
            return Some(format!("a ticket ended: {:?}", status.end_reason()));
        }
        if from <= Instant::now() && status.state() == state {
            return None;
        }
        if from + Duration::from_secs(20) <= Instant::now() {
            return Some(format!("a ticket is {:?} instead of {state:?}", status.state()));
        }
        if let Some(found) = status.found_match.filter(|_| accepts_from <= Instant::now()) {
            accept(&client, &ticket, found.match_id).await;
        }
    }
}

/// Records a violation if a player has a penalty.
async fn expect_no_penalty(database: &TestDatabase, report: &mut TestReport) {
    let mut connection = database.connect().await;
    let penalties: i64 =
        sqlx::query_scalar("select count(*) from penalty").fetch_one(&mut connection).await.expect("read");
    if penalties != 0 {
        report.violation(format!("{penalties} players are penalized"));
    }
}

/// Cases 4 and 5: an outage longer than the ready check and the TTL penalizes no player and expires no ticket.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_longer_than_every_deadline_penalizes_no_player() {
    let name = "outage, players refused";
    let mut report = TestReport::start(name).await;
    let Some(postgres) = PostgresCluster::start(name) else { return };
    let database = postgres.create_database("fireteam").await;
    let cluster = Cluster::start_with_ruleset(&database.url, SERVERS, RULES);
    let client = |number: usize| {
        cluster.client(number % SERVERS, number).expect("a server is running").with_retry_policy(RetryPolicy::NEVER)
    };
    let checks = scaled(READY_CHECKS).max(4);
    let mut tickets = Vec::new();
    for number in 0..checks {
        for side in ["a", "b"] {
            let at = tickets.len();
            tickets.push((client(at), enter(&client(at), &format!("{side} {number}"), 100 * number).await, true));
        }
        let at = tickets.len();
        tickets.push((client(at), enter(&client(at), &format!("w {number}"), 100 * number + 50).await, false));
    }
    // The last ready check has begun, and the first one has time left.
    until("the last match is proposed", async || {
        let (client, ticket, _) = &tickets[tickets.len() - 3];
        heartbeat(client, ticket).await.is_some_and(|status| status.state() == TicketState::Proposed)
    })
    .await;
    postgres.send_command("pause");
    let outage_ends_at = Instant::now() + OUTAGE;
    let players: Vec<_> = tickets
        .into_iter()
        .enumerate()
        .map(|(at, (client, ticket, is_proposed))| {
            let state = if is_proposed { TicketState::Matched } else { TicketState::Waiting };
            // Half of the players try to accept during the outage.
            let accepts_from = if at % 2 == 0 { Instant::now() } else { outage_ends_at };
            tokio::spawn(play(client, ticket, accepts_from, state, outage_ends_at + Duration::from_secs(1)))
        })
        .collect();
    tokio::time::sleep_until(outage_ends_at).await;
    postgres.send_command("resume");
    report.record("ready checks", checks);
    for player in players {
        if let Some(problem) = player.await.expect("the task ends") {
            report.violation(problem);
        }
    }
    expect_no_penalty(&database, &mut report).await;
    drop(cluster);
    report.finish();
}

/// Case 4: a server is killed a second before the ready checks of its players end. The other server does not know yet that it is
/// silent, and penalizes no one; the players find the other server and accept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_killed_just_before_a_deadline_penalizes_no_player() {
    let name = "server killed just before a deadline";
    let mut report = TestReport::start(name).await;
    let Some(postgres) = PostgresCluster::start(name) else { return };
    let database = postgres.create_database("fireteam").await;
    let rules = RULES
        .replace("TimeoutMs=\"5000\"", "TimeoutMs=\"8000\"")
        .replace("TicketTtlMs=\"6000\"", "TicketTtlMs=\"15000\"");
    let cluster = Cluster::start_with_ruleset(&database.url, SERVERS, &rules);
    let client = |server: usize, number: usize| {
        cluster.client(server, number).expect("a server is running").with_retry_policy(RetryPolicy::NEVER)
    };
    let checks = scaled(READY_CHECKS).max(4);
    let mut tickets = Vec::new();
    for number in 0..checks {
        for side in ["a", "b"] {
            tickets.push(enter(&client(1, number), &format!("{side} {number}"), 100 * number).await);
        }
    }
    let mut first_ends_at = Instant::now();
    until("the first match is proposed", async || {
        let asked_at = Instant::now();
        let Some(status) = heartbeat(&client(1, 0), &tickets[0]).await else { return false };
        let is_proposed = status.state() == TicketState::Proposed;
        let found = status.found_match.filter(|_| is_proposed);
        let Some(left_ms) = found.and_then(|found| found.deadline_in_ms) else { return false };
        first_ends_at = asked_at + Duration::from_millis(left_ms);
        true
    })
    .await;
    // The calls of one round may take long on a busy machine.
    let killed_at = first_ends_at - Duration::from_secs(1);
    for (number, ticket) in tickets.iter().enumerate().cycle() {
        if killed_at <= Instant::now() {
            break;
        }
        heartbeat(&client(1, number), ticket).await;
        tokio::time::sleep(CALL_INTERVAL / 400).await;
    }
    cluster.kill(1);
    // Past the deadline as it was set, also if the killed server ran the queue; within the extended one.
    let returns_at = first_ends_at + Duration::from_secs(4);
    tokio::time::sleep_until(returns_at).await;
    report.record("ready checks", checks);
    let players: Vec<_> = tickets
        .into_iter()
        .enumerate()
        .map(|(number, ticket)| {
            tokio::spawn(play(client(0, number), ticket, returns_at, TicketState::Matched, returns_at))
        })
        .collect();
    for player in players {
        if let Some(problem) = player.await.expect("the task ends") {
            report.violation(problem);
        }
    }
    expect_no_penalty(&database, &mut report).await;
    drop(cluster);
    report.finish();
}
