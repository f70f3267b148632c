//! Goals QD1 to QD4: players enter a queue of 1v1 matches in a closed loop, and each watches its ticket until it has a match.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message;
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use crate::harness::{clock, quantile_of, report};
use crate::rpc::load::{Raw, call, channel};
use crate::rpc::redis_server::MeasuredServers;
use crate::rpc::server_process::{DRIVE_SET, DRIVE_SET_ON_CHANGE, ServerProcess};

pub(super) const ENTER: &str = "/fireteam.v1.QueueService/Enter";
pub(super) const WATCH: &str = "/fireteam.v1.QueueService/Watch";

/// Length of the drives of QD1 to QD4; each window is one round of a row.
pub(super) const DRIVE_LENGTH: DriveLength = DriveLength { warm_up: Duration::from_secs(3), windows: 8 };
/// Length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Players on a connection. It may have 64 streams, and those that a player has just ended count for a moment.
const PLAYERS_PER_CONNECTION: usize = 16;
/// Connections at least.
const CONNECTIONS_MIN: usize = 32;

/// Part of a watch's message that the drive reads.
#[derive(Clone, PartialEq, prost::Message)]
struct WatchedTicket {
    #[prost(message, optional, tag = "1")]
    status: Option<WatchedState>,
}

/// State of the ticket.
#[derive(Clone, PartialEq, prost::Message)]
struct WatchedState {
    #[prost(int32, tag = "2")]
    state: i32,
}

/// Part of a response to Enter that the drive reads.
#[derive(Clone, PartialEq, prost::Message)]
struct EnteredTicket {
    #[prost(message, optional, tag = "1")]
    status: Option<EnteredStatus>,
    #[prost(bytes = "vec", tag = "2")]
    ticket_token: Vec<u8>,
}

/// Id of the ticket.
#[derive(Clone, PartialEq, prost::Message)]
struct EnteredStatus {
    #[prost(string, tag = "1")]
    ticket_id: String,
}

/// Length of a drive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriveLength {
    /// Time before the counted windows.
    pub(crate) warm_up: Duration,
    /// Counted windows of a second.
    pub(crate) windows: usize,
}

/// Result of a drive.
#[derive(Clone, Debug)]
pub(crate) struct DriveResult {
    /// Tickets per second that got their match, by window.
    pub(crate) matched_per_s: Vec<f64>,
    /// Processor time of the server for a ticket, microseconds, by window.
    pub(crate) cpu_us: Vec<f64>,
    /// The same of Redis; 0 without it.
    pub(crate) redis_cpu_us: Vec<f64>,
    /// Milliseconds from entering to the match, of all windows: median and 99th percentile.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// State that the players share.
#[derive(Debug, Default)]
struct Shared {
    matched: AtomicU64,
    is_counting: AtomicBool,
    is_over: AtomicBool,
}

/// Opens a watch of one ticket.
async fn watch(channel: &Channel, ticket: pb::TicketReference) -> Streaming<Bytes> {
    let request = pb::QueueWatchRequest { tickets: vec![ticket], ..Default::default() };
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("the connection stays");
    let path = http::uri::PathAndQuery::from_static(WATCH);
    let message: Bytes = request.encode_to_vec().into();
    grpc.server_streaming(Request::new(message), path, Raw).await.expect("a watch").into_inner()
}

/// One player: enters, watches until it has a match, and is then the next player. Returns the counted times, milliseconds.
async fn play(channel: Channel, set_id: u32, name: String, shared: Arc<Shared>) -> Vec<f64> {
    let mut times = Vec::new();
    for number in 0_u64.. {
        if shared.is_over.load(Ordering::Relaxed) {
            break;
        }
        let started: Instant = clock();
        let player = pb::PlayerData { user_id: format!("{name} {number}"), ..Default::default() };
        let party = pb::SessionCompositionData { players: vec![player], ..Default::default() };
        let request = pb::QueueEnterRequest {
            session_composition: Some(party),
            matchmaking_set_id: Some(set_id),
            idempotency_key: format!("entering of {name} {number:020}"),
            ..Default::default()
        };
        let answer = call(&channel, ENTER, request.encode_to_vec().into()).await.expect("a ticket");
        let entered = EnteredTicket::decode(answer).expect("a response");
        let ticket_id = entered.status.expect("a status").ticket_id;
        let ticket = pb::TicketReference { ticket_id, ticket_token: entered.ticket_token, resume_token: Vec::new() };
        let mut statuses = watch(&channel, ticket).await;
        while let Some(message) = statuses.message().await.expect("a status") {
            let status = WatchedTicket::decode(message).expect("a status").status.expect("a status");
            if status.state == pb::TicketState::Matched as i32 {
                break;
            }
        }
        shared.matched.fetch_add(1, Ordering::Relaxed);
        if shared.is_counting.load(Ordering::Relaxed) {
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
    }
    times
}

/// Runs `players` players at once against the queue of a set.
pub(crate) async fn drive(
    measured: MeasuredServers<'_>,
    set_id: u32,
    players: usize,
    length: DriveLength,
) -> DriveResult {
    let address = measured.server.address;
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS_MIN.max(players.div_ceil(PLAYERS_PER_CONNECTION)) {
        channels.push(channel(address).await);
    }
    let shared = Arc::new(Shared::default());
    let mut tasks = JoinSet::new();
    for player in 0..players {
        let name = format!("player {} {set_id} {players} {player}", address.port());
        tasks.spawn(play(channels[player % channels.len()].clone(), set_id, name, Arc::clone(&shared)));
    }
    tokio::time::sleep(length.warm_up).await;
    shared.is_counting.store(true, Ordering::Relaxed);
    let (mut matched_per_s, mut cpu_us, mut redis_cpu_us) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..length.windows {
        let (started, cpu, matched) = (clock(), measured.cpu_us(), shared.matched.load(Ordering::Relaxed));
        tokio::time::sleep(WINDOW).await;
        let tickets = (shared.matched.load(Ordering::Relaxed) - matched).max(1) as f64;
        matched_per_s.push(tickets / started.elapsed().as_secs_f64());
        let cpu_after = measured.cpu_us();
        cpu_us.push((cpu_after.0 - cpu.0) / tickets);
        redis_cpu_us.push((cpu_after.1 - cpu.1) / tickets);
    }
    shared.is_counting.store(false, Ordering::Relaxed);
    shared.is_over.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    // An odd player may wait for ever, so the last ones are not awaited.
    while let Ok(Some(ended)) = tokio::time::timeout(WINDOW, tasks.join_next()).await {
        times.extend(ended.expect("a player runs to its end"));
    }
    let (p50_ms, p99_ms) = (quantile_of(&mut times, 0.5), quantile_of(&mut times, 0.99));
    DriveResult { matched_per_s, cpu_us, redis_cpu_us, p50_ms, p99_ms }
}

/// One row: each value beside its limit.
fn row(goal: &str, subject: &str, values: &[f64], limit: f64) {
    let rounds: Vec<(f64, f64)> = values.iter().map(|value| (*value, limit)).collect();
    report(goal, subject, "limit", &rounds, 0.0);
}

/// Limits of a store under many players: tickets per second and microseconds of the server for a ticket.
struct ManyPlayersLimits {
    matched_per_s: f64,
    cpu_us: f64,
}

/// Rows of many players.
async fn measure_many_players(goal: &str, store: &str, limits: &ManyPlayersLimits) -> Vec<DriveResult> {
    let mut results = Vec::new();
    for players in [1_000, 2_000] {
        let server = ServerProcess::start(&format!("fireteam-{store}"), 0);
        let result = drive(MeasuredServers::alone(&server), DRIVE_SET, players, DRIVE_LENGTH).await;
        println!("# {store}, {players} players: p50 {:.1} ms, p99 {:.1} ms", result.p50_ms, result.p99_ms);
        let named = |figure: &str| format!("{figure}, {store}, {players} players at once");
        row(
            &format!("{goal} >= 1"),
            &named("tickets with a match per second"),
            &result.matched_per_s,
            limits.matched_per_s,
        );
        row(&format!("{goal} <= 1"), &named("us of the server for a ticket"), &result.cpu_us, limits.cpu_us);
        results.push(result);
    }
    results
}

/// Rows of few players, by their waiting time: with passes every 10 ms, and 3 ms after a change.
async fn measure_few_players(store: &str, p50_limits_ms: [f64; 2], p99_limits_ms: [f64; 2]) {
    let server = ServerProcess::start(&format!("fireteam-{store}"), 0);
    let sets = [(DRIVE_SET, "every 10 ms"), (DRIVE_SET_ON_CHANGE, "3 ms after a change")];
    for ((at, players), (set_id, passes)) in [20, 200].into_iter().enumerate().flat_map(|it| sets.map(|set| (it, set)))
    {
        let result = drive(MeasuredServers::alone(&server), set_id, players, DRIVE_LENGTH).await;
        let named = |figure: &str| {
            format!("ms from entering to a match, {figure}, {store}, {players} players at once, passes {passes}")
        };
        row("QD4 <= 1", &named("p50"), &[result.p50_ms], p50_limits_ms[at]);
        row("QD4 <= 1", &named("p99"), &[result.p99_ms], p99_limits_ms[at]);
    }
}

pub(crate) async fn run(wanted: &dyn Fn(&str) -> bool) {
    let memory = match wanted("QD1") || wanted("QD3") {
        true => {
            measure_many_players("QD3", "memory", &ManyPlayersLimits { matched_per_s: 12_000.0, cpu_us: 50.0 }).await
        }
        false => Vec::new(),
    };
    if wanted("QD1") {
        let limits = ManyPlayersLimits { matched_per_s: 12_000.0, cpu_us: 70.0 };
        let durable = measure_many_players("QD1", "sqlite", &limits).await;
        for (durable, volatile) in durable.iter().zip(&memory) {
            report(
                "QD1 <= 1.3",
                "ms from entering to a match, p50, sqlite",
                "memory",
                &[(durable.p50_ms, volatile.p50_ms)],
                0.0,
            );
        }
    }
    if wanted("QD2") {
        match crate::store_postgres::database() {
            Some(_) => {
                let limits = ManyPlayersLimits { matched_per_s: 8_000.0, cpu_us: 70.0 };
                measure_many_players("QD2", "postgres", &limits).await;
            }
            None => println!("SKIPPED: QD2: set FIRETEAM_BENCH_POSTGRES to a database to fill"),
        }
    }
    if wanted("QD4") {
        measure_few_players("memory", [12.0, 16.0], [25.0, 40.0]).await;
        measure_few_players("sqlite", [12.0, 20.0], [25.0, 40.0]).await;
    }
}
