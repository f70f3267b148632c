//! TOLD and ASSIGN: parties enter a queue and receive their match, with a durable store.

use std::collections::BTreeSet;
use std::time::Duration;

use fireteam_client::{Client, pb};
use futures_util::future::join_all;
use pb::TicketState;

use crate::harness::{ROUNDS, clock, quantile_of, report};
use crate::rpc::server_process::{QUEUE_SET, ServerProcess};

/// Pairs that enter one after another, per round.
const PAIRS: usize = 200;
/// Game backends, each with a connection of its own.
const BACKENDS: usize = 16;
/// Players that a backend enters at once; a connection may have 32 concurrent calls.
const PLAYERS_AT_ONCE: usize = 30;
/// Times that a backend does this, per round.
const REPEATS: usize = 16;

/// TOLD: from entering to the match status, for two compatible players of whom the second enters a moment later; limit 200 ms.
/// ASSIGN: tickets that receive their match per second, with the clients on the same machine; required 5,000.
pub(crate) async fn run(wanted: &dyn Fn(&str) -> bool) {
    let server = ServerProcess::start("fireteam-sqlite", 0);
    if wanted("TOLD") {
        measure_notification(&server).await;
    }
    if wanted("ASSIGN") {
        measure_match_rate(&server).await;
    }
}

async fn client(server: &ServerProcess) -> Client {
    Client::connect(format!("http://{}", server.address)).await.expect("connect")
}

fn enter_request(user: String) -> pb::QueueEnterRequest {
    let player = pb::PlayerData { user_id: user, skill: Some(1_500.0), ..Default::default() };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    pb::QueueEnterRequest {
        session_composition: Some(party),
        matchmaking_set_id: Some(QUEUE_SET),
        ..Default::default()
    }
}

/// Enters one player and watches the ticket. Returns the time until the match status, milliseconds.
async fn time_until_matched(client: &Client, user: String) -> f64 {
    let started = clock();
    let queued = client.enter_queue(enter_request(user)).await.expect("enter");
    let mut updates = queued.watch();
    while let Some(status) = updates.next().await.expect("a stream") {
        if status.state() == TicketState::Matched {
            break;
        }
    }
    started.elapsed().as_secs_f64() * 1e3
}

async fn measure_notification(server: &ServerProcess) {
    let (here, there) = (client(server).await, client(server).await);
    let (mut median, mut slow) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut waits = Vec::new();
        for pair in 0..PAIRS {
            let first = time_until_matched(&here, format!("first {round} {pair}"));
            let second = async {
                tokio::time::sleep(Duration::from_millis(3)).await;
                time_until_matched(&there, format!("second {round} {pair}")).await
            };
            let (first, second) = tokio::join!(first, second);
            waits.extend([first, second]);
        }
        median.push((quantile_of(&mut waits, 0.5), 200.0));
        slow.push((quantile_of(&mut waits, 0.99), 200.0));
    }
    report("TOLD <= 1", "ms from entering to the match status, p50", "limit of the p99", &median, 0.0);
    report("TOLD <= 1", "ms from entering to the match status, p99", "limit", &slow, 0.0);
}

/// Enters `PLAYERS_AT_ONCE` players at once and waits until all have a match.
async fn enter_and_wait(client: &Client, name: &str) {
    let entered =
        join_all((0..PLAYERS_AT_ONCE).map(|number| client.enter_queue(enter_request(format!("{name} {number}")))))
            .await;
    let tickets: Vec<pb::TicketReference> = entered.into_iter().map(|it| it.expect("enter").reference()).collect();
    let mut left: BTreeSet<String> = tickets.iter().map(|ticket| ticket.ticket_id.clone()).collect();
    let mut updates = client.watch_tickets(tickets);
    while !left.is_empty() {
        let status = updates.next().await.expect("a stream").expect("a status");
        if status.state() == TicketState::Matched {
            left.remove(&status.ticket_id);
        }
    }
}

async fn measure_match_rate(server: &ServerProcess) {
    let clients = join_all((0..BACKENDS).map(|_| client(server))).await;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let (started, cpu) = (clock(), server.cpu_us());
        let backend = |(number, client): (usize, &Client)| {
            let client = client.clone();
            async move {
                for time in 0..REPEATS {
                    enter_and_wait(&client, &format!("player {round} {number} {time}")).await;
                }
            }
        };
        join_all(clients.iter().enumerate().map(backend)).await;
        let tickets = (BACKENDS * PLAYERS_AT_ONCE * REPEATS) as f64;
        rounds.push((tickets / started.elapsed().as_secs_f64(), 5_000.0));
        println!("# {:.1} us of the server's processor for a ticket", (server.cpu_us() - cpu) / tickets);
    }
    report(
        "ASSIGN >= 1",
        "tickets with a match per second, SQLite, clients on the same machine",
        "required",
        &rounds,
        0.0,
    );
}
