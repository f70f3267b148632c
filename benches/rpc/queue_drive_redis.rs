//! Goal QD6: the drive of QD1 against the reference on Redis, without and with synced writes, in alternating rounds.

use std::time::Duration;

use crate::harness::{median, report};
use crate::rpc::queue_drive::{DriveLength, DriveResult, drive};
use crate::rpc::redis_server::{MeasuredServers, RedisPersistence, RedisServer};
use crate::rpc::server_process::{DRIVE_SET, ServerProcess};

/// Players at once.
const PLAYERS: [usize; 3] = [200, 1_000, 2_000];
/// Intervals of the reference's tick, milliseconds; the one with the most tickets per second counts.
const TICKS_MS: [u64; 5] = [5, 10, 20, 50, 100];
const LENGTH: DriveLength = DriveLength { warm_up: Duration::from_secs(3), windows: 5 };
/// Length of a drive that chooses the tick.
const TRIAL_LENGTH: DriveLength = DriveLength { warm_up: Duration::from_secs(1), windows: 3 };
/// Drives of each side.
const ROUNDS: usize = 3;

/// One drive of fireteam.
async fn drive_fireteam(store: &str, players: usize) -> DriveResult {
    let server = ServerProcess::start(&format!("fireteam-{store}"), 0);
    drive(MeasuredServers::alone(&server), DRIVE_SET, players, LENGTH).await
}

/// One drive of the reference. `None` if Redis is not installed.
async fn drive_reference(
    persistence: RedisPersistence,
    tick_ms: u64,
    players: usize,
    length: DriveLength,
) -> Option<DriveResult> {
    let redis = RedisServer::start(persistence)?;
    let more = [redis.address.to_string(), tick_ms.to_string()];
    let server = ServerProcess::start_with("redis-matchmaker", 0, &[&more[0], &more[1]]);
    let measured = MeasuredServers { server: &server, redis: Some(&redis) };
    Some(drive(measured, DRIVE_SET, players, length).await)
}

/// Finds the tick with the most tickets per second.
async fn best_tick_ms(persistence: RedisPersistence, players: usize) -> Option<u64> {
    let mut best = (0.0, 0);
    for tick_ms in TICKS_MS {
        let result = drive_reference(persistence, tick_ms, players, TRIAL_LENGTH).await?;
        let matched_per_s = median(result.matched_per_s);
        println!("# Redis, {persistence:?}, {players} players, tick {tick_ms} ms: {matched_per_s:.0} tickets/s");
        if best.0 < matched_per_s {
            best = (matched_per_s, tick_ms);
        }
    }
    Some(best.1)
}

/// Prints the figures of a drive.
fn print_drive(name: &str, players: usize, result: &DriveResult) {
    let (server_us, redis_us) = (median(result.cpu_us.clone()), median(result.redis_cpu_us.clone()));
    println!(
        "# {name}, {players} players: {:.0} tickets/s, p50 {:.1} ms, p99 {:.1} ms, server {server_us:.0} us and Redis {redis_us:.0} us a ticket",
        median(result.matched_per_s.clone()),
        result.p50_ms,
        result.p99_ms,
    );
}

/// Processor time for a ticket, microseconds: server and Redis.
fn cpu_us(result: &DriveResult) -> f64 {
    median(result.cpu_us.iter().zip(&result.redis_cpu_us).map(|(server, redis)| server + redis).collect())
}

/// A figure of a row: its name and goal, and its value in a drive.
type Figure = (&'static str, &'static str, fn(&DriveResult) -> f64);

const FIGURES: [Figure; 4] = [
    ("tickets with a match per second", "QD6 >= 1", |it| median(it.matched_per_s.clone())),
    ("ms from entering to a match, p50", "QD6 <= 1", |it| it.p50_ms),
    ("ms from entering to a match, p99", "QD6 <= 1", |it| it.p99_ms),
    ("us of all servers for a ticket", "QD6 <= 1", cpu_us),
];

/// Rows of one store. `None` if Redis is not installed.
async fn compare(store: &str, persistence: RedisPersistence, settings: &str, players: usize) -> Option<()> {
    let tick_ms = best_tick_ms(persistence, players).await?;
    let reference_name = format!("Redis, {settings}, tick {tick_ms} ms");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let reference = drive_reference(persistence, tick_ms, players, LENGTH).await?;
        print_drive(&reference_name, players, &reference);
        let subject = drive_fireteam(store, players).await;
        print_drive(store, players, &subject);
        rounds.push((subject, reference));
    }
    for (figure, goal, value) in FIGURES {
        let values: Vec<(f64, f64)> = rounds.iter().map(|(subject, it)| (value(subject), value(it))).collect();
        let subject = format!("{figure}, {store}, {players} players at once");
        report(goal, &subject, &reference_name, &values, 0.0);
    }
    Some(())
}

/// Rows of both stores; a notice where Redis is missing.
pub(crate) async fn run() {
    if let Some(redis) = RedisServer::start(RedisPersistence::Off) {
        println!("# Redis {}", redis.version().await);
    }
    let stores = [
        ("memory", RedisPersistence::Off, "appendonly no"),
        ("sqlite", RedisPersistence::EveryWrite, "appendfsync always"),
    ];
    for (store, persistence, settings) in stores {
        for players in PLAYERS {
            if compare(store, persistence, settings, players).await.is_none() {
                println!("SKIPPED: QD6: redis-server is not installed");
                return;
            }
        }
    }
}
