//! TOLD and ASSIGN: parties that enter a queue and are told of their match, with a store that keeps what it says.

use std::collections::BTreeSet;
use std::time::Duration;

use fireteam_client::{Client, pb};
use futures_util::future::join_all;
use pb::TicketState;

use crate::harness::{ROUNDS, clock, quantile_of, report};
use crate::rpc::server_process::{QUEUE_SET, ServerProcess};

/// Pairs that enter one after the other, in a round.
const PAIRS: usize = 200;
/// Backends that enter players, each on a connection of its own.
const BACKENDS: usize = 16;
/// Players that a backend enters together: a connection has 32 calls at work at once.
const TOGETHER: usize = 30;
/// How often it does, in a round.
const TIMES: usize = 16;

/// From entering to being told, of two that suit each other and of whom the second comes a moment later; against 200 ms.
/// Tickets told of their match in a second, clients beside; against 5,000.
pub(crate) async fn run(wanted: &dyn Fn(&str) -> bool) {
    let server = ServerProcess::start("fireteam-sqlite", 0);
    if wanted("TOLD") {
        told(&server).await;
    }
    if wanted("ASSIGN") {
        assigned(&server).await;
    }
}

async fn client(server: &ServerProcess) -> Client {
    Client::connect(format!("http://{}", server.address)).await.expect("connect")
}

fn asks(user: String) -> pb::QueueEnterRequest {
    let player = pb::PlayerData { user_id: user, skill: Some(1_500.0), ..Default::default() };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    pb::QueueEnterRequest {
        session_composition: Some(party),
        matchmaking_set_id: Some(QUEUE_SET),
        ..Default::default()
    }
}

/// Enters one, watches it, and says when it was told.
async fn one(client: &Client, user: String) -> f64 {
    let started = clock();
    let queued = client.enter(asks(user)).await.expect("enter");
    let mut updates = queued.watch();
    while let Some(status) = updates.next().await.expect("a stream") {
        if status.state() == TicketState::Matched {
            break;
        }
    }
    started.elapsed().as_secs_f64() * 1e3
}

async fn told(server: &ServerProcess) {
    let (here, there) = (client(server).await, client(server).await);
    let (mut median, mut slow) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let mut waits = Vec::new();
        for pair in 0..PAIRS {
            let first = one(&here, format!("first {round} {pair}"));
            let second = async {
                tokio::time::sleep(Duration::from_millis(3)).await;
                one(&there, format!("second {round} {pair}")).await
            };
            let (first, second) = tokio::join!(first, second);
            waits.extend([first, second]);
        }
        median.push((quantile_of(&mut waits, 0.5), 200.0));
        slow.push((quantile_of(&mut waits, 0.99), 200.0));
    }
    report("TOLD <= 1", "ms from entering to being told, p50", "asked of the p99", &median, 0.0);
    report("TOLD <= 1", "ms from entering to being told, p99", "asked", &slow, 0.0);
}

/// Enters many time_all, and waits until all are told.
async fn many(client: &Client, name: &str) {
    let entered = join_all((0..TOGETHER).map(|number| client.enter(asks(format!("{name} {number}"))))).await;
    let tickets: Vec<pb::TicketReference> = entered.into_iter().map(|it| it.expect("enter").reference()).collect();
    let mut left: BTreeSet<String> = tickets.iter().map(|ticket| ticket.ticket_id.clone()).collect();
    let mut updates = client.watch(tickets);
    while !left.is_empty() {
        let status = updates.next().await.expect("a stream").expect("updates");
        if status.state() == TicketState::Matched {
            left.remove(&status.ticket_id);
        }
    }
}

async fn assigned(server: &ServerProcess) {
    let clients = join_all((0..BACKENDS).map(|_| client(server))).await;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let (started, cpu) = (clock(), server.cpu_us());
        let backend = |(number, client): (usize, &Client)| {
            let client = client.clone();
            async move {
                for time in 0..TIMES {
                    many(&client, &format!("player {round} {number} {time}")).await;
                }
            }
        };
        join_all(clients.iter().enumerate().map(backend)).await;
        let tickets = (BACKENDS * TOGETHER * TIMES) as f64;
        rounds.push((tickets / started.elapsed().as_secs_f64(), 5_000.0));
        println!("# {:.1} us of the server's processor for a ticket", (server.cpu_us() - cpu) / tickets);
    }
    report("ASSIGN >= 1", "tickets told of their match, a second, SQLite, clients beside", "asked", &rounds, 0.0);
}
