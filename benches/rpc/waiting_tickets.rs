//! Goal QD5: a queue of 100,000 tickets that do not match, beside heartbeats and a few more tickets a second.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message as _;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::harness::{clock, quantile_of, report};
use crate::rpc::load::{call, channel};
use crate::rpc::queue_drive::ENTER;
use crate::rpc::server_process::{ServerProcess, WAITING_SET};
use crate::split_mix64::SplitMix64;

const HEARTBEAT: &str = "/fireteam.v1.QueueService/Heartbeat";

/// Tickets that wait.
const TICKETS: u64 = 100_000;
/// Tickets that enter each second while the figures are taken.
const ENTERS_PER_S: u64 = 100;
/// Heartbeats each second, each for one ticket.
const HEARTBEATS_PER_S: u64 = 1_000;
/// Calls at once while the queue is filled.
const CALLS_AT_ONCE: usize = 256;
const CONNECTIONS: usize = 8;
/// Time before the counted windows.
const WARM_UP: Duration = Duration::from_secs(3);
/// Counted windows of a second; each is one round of a row.
const WINDOWS: usize = 8;
/// Processor time of the server, cores.
const CORES_MAX: f64 = 0.3;
/// 99th percentile of Enter, milliseconds.
const ENTER_P99_MAX_MS: f64 = 20.0;

/// Enters the party of one player, whose rating no other ticket accepts.
async fn enter(channel: Channel, number: u64) -> pb::TicketReference {
    let player = pb::PlayerData {
        user_id: format!("waiting player {number}"),
        skill: Some(number as f64 * 10.0),
        ..Default::default()
    };
    let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
    let request = pb::QueueEnterRequest {
        session_composition: Some(party),
        matchmaking_set_id: Some(WAITING_SET),
        idempotency_key: format!("entering of player {number:020}"),
        ..Default::default()
    };
    let answer = call(&channel, ENTER, request.encode_to_vec().into()).await.expect("a ticket");
    let entered = pb::QueueEnterResponse::decode(answer).expect("a response");
    let ticket_id = entered.status.expect("a status").ticket_id;
    pb::TicketReference { ticket_id, ticket_token: entered.ticket_token, resume_token: Vec::new() }
}

/// Fills the queue. Returns the request of a heartbeat for each ticket.
async fn fill(channels: &[Channel]) -> Vec<Bytes> {
    let free = Arc::new(Semaphore::new(CALLS_AT_ONCE));
    let mut entering = JoinSet::new();
    for number in 0..TICKETS {
        let permit = Arc::clone(&free).acquire_owned().await.expect("it is never closed");
        let channel = channels[number as usize % CONNECTIONS].clone();
        entering.spawn(async move {
            let ticket = enter(channel, number).await;
            drop(permit);
            pb::QueueHeartbeatRequest { tickets: vec![ticket], ..Default::default() }.encode_to_vec().into()
        });
    }
    entering.join_all().await
}

/// Calls `HEARTBEATS_PER_S` times a second, until it is aborted.
async fn send_heartbeats(channels: Vec<Channel>, requests: Vec<Bytes>) {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / HEARTBEATS_PER_S as u32);
    let mut rng = SplitMix64(5);
    let mut calls = JoinSet::new();
    for number in 0.. {
        ticks.tick().await;
        while calls.try_join_next().is_some() {}
        let chosen = rng.below(requests.len() as u64) as usize;
        let (channel, request) = (channels[number % CONNECTIONS].clone(), requests[chosen].clone());
        calls.spawn(async move { call(&channel, HEARTBEAT, request).await.expect("a heartbeat") });
    }
}

/// Enters `ENTERS_PER_S` tickets a second for `seconds`. Returns the time of each call, milliseconds.
async fn enter_more(channels: &[Channel], first: u64, seconds: u64) -> Vec<f64> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / ENTERS_PER_S as u32);
    let mut calls = JoinSet::new();
    for number in first..first + seconds * ENTERS_PER_S {
        ticks.tick().await;
        let channel = channels[number as usize % CONNECTIONS].clone();
        calls.spawn(async move {
            let started = clock();
            enter(channel, number).await;
            started.elapsed().as_secs_f64() * 1e3
        });
    }
    calls.join_all().await
}

async fn measure(store: &str) {
    let server = ServerProcess::start(&format!("fireteam-{store}"), 0);
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS {
        channels.push(channel(server.address).await);
    }
    let requests = fill(&channels).await;
    let heartbeats = tokio::spawn(send_heartbeats(channels.clone(), requests));
    enter_more(&channels, TICKETS, WARM_UP.as_secs()).await;
    let mut first = TICKETS + WARM_UP.as_secs() * ENTERS_PER_S;
    let (mut cores, mut times) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        let (started, cpu) = (clock(), server.cpu_us());
        times.extend(enter_more(&channels, first, 1).await);
        cores.push(((server.cpu_us() - cpu) / 1e6 / started.elapsed().as_secs_f64(), CORES_MAX));
        first += ENTERS_PER_S;
    }
    heartbeats.abort();
    let p99_ms = quantile_of(&mut times, 0.99);
    let memory = server.resident_bytes() / 1024 / 1024;
    println!(
        "# {store}, {TICKETS} waiting tickets: {memory} MiB of memory, Enter p50 {:.1} ms",
        quantile_of(&mut times, 0.5)
    );
    report("QD5 <= 1", &format!("cores of the server, {store}, {TICKETS} waiting tickets"), "limit", &cores, 0.0);
    let enter_p99 = format!("ms of Enter, p99, {store}, {TICKETS} waiting tickets");
    report("QD5 <= 1", &enter_p99, "limit", &[(p99_ms, ENTER_P99_MAX_MS)], 0.0);
}

pub(crate) async fn run(wanted: &dyn Fn(&str) -> bool) {
    if wanted("QD5") {
        for store in ["memory", "sqlite"] {
            measure(store).await;
        }
    }
}
