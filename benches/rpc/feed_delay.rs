//! PF1 under load: time from the acknowledgement of an update at one server until a search at another finds it, while both
//! servers commit, search and match.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fireteam_client::pb;
use prost::Message;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::harness::{clock, quantile_of, report};
use crate::idle_queues::cpu_seconds;
use crate::rpc::load::{call, channel};
use crate::rpc::messages::{Hosts, SEARCH, UPDATE, alone, composition, searches};
use crate::rpc::queue_drive::{DRIVE_LENGTH, drive};
use crate::rpc::redis_server::MeasuredServers;
use crate::rpc::server_process::{DRIVE_SET, ServerProcess};
use crate::split_mix64::SplitMix64;

/// Servers on the database, of which two have load.
const SERVERS: [usize; 3] = [2, 8, 16];
/// Connections of a server to the database.
const CONNECTIONS_OF_SERVER: usize = 9;
/// Time from the start of the servers until they are idle, and time for which they are measured then.
const SETTLE_TIME: Duration = Duration::from_secs(2);
const IDLE_TIME: Duration = Duration::from_secs(8);
/// Updates that are timed.
const UPDATES: u32 = 600;
/// Longest pause before an update, milliseconds.
const PAUSE_MS: u64 = 30;
/// Advertisements that are replaced at each server.
const HOSTS: u64 = 256;
/// Clients of each server that replace advertisements, and clients that search, each with one call at a time.
const CLIENTS: usize = 2;
/// Interval between two calls of such a client.
const CALL_INTERVAL: Duration = Duration::from_millis(5);
/// Players of each server who enter a queue in a closed loop.
const PLAYERS: usize = 10;
/// Silo of the advertisement that is timed: a search there has one candidate.
const SILO: u64 = 7;
/// Limit of the 99th percentile, milliseconds.
const LIMIT_MS: f64 = 20.0;

/// Update of the timed advertisement. Searches show `version` as the number of open seats.
fn update(
    server: usize,
    session: &pb::SessionCompositionData,
    version: u32,
) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(pb::SessionCompositionData {
            max_allowed_join_reservation_count: Some(1 + (version % 999) as i32),
            ..session.clone()
        }),
        idempotency_key: format!("the one of server {server} that is looked for"),
        ..Default::default()
    }
}

/// Calls `path` with each of `messages` in turn, one call per interval, until stopped.
async fn call_at_intervals(channel: Channel, path: &'static str, messages: Arc<[Bytes]>, stop: Arc<AtomicBool>) {
    let mut interval = tokio::time::interval(CALL_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for message in messages.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        interval.tick().await;
        call(&channel, path, message.clone()).await.expect("a good answer");
    }
}

/// Milliseconds from sending each update at one server, and from its acknowledgement, to the first answer at the other that
/// has it. The servers take turns.
async fn time_updates(servers: &[Arc<ServerProcess>]) -> [Vec<f64>; 2] {
    let (mut rng, mut sessions, mut channels) = (SplitMix64(41), Vec::new(), Vec::new());
    for (at, server) in servers.iter().enumerate() {
        let channel = channel(server.address).await;
        let session = pb::SessionCompositionData { silo_id: Some(SILO), ..composition(&mut rng) };
        let created = call(&channel, UPDATE, update(at, &session, 0).encode_to_vec().into()).await.expect("published");
        sessions.push((session, pb::MatchmakingUpdateAdvertisementResponse::decode(created).expect("an answer")));
        channels.push(channel);
    }
    let party = pb::SessionCompositionData { silo_id: Some(SILO), ..composition(&mut rng) };
    let search = pb::MatchmakingSearchRequest {
        matchmaking_set_id: Some(1),
        session_composition: Some(party),
        ..Default::default()
    };
    let search: Bytes = search.encode_to_vec().into();
    let (mut since_sent, mut since_acknowledged) = (Vec::new(), Vec::new());
    for version in 1..=UPDATES {
        tokio::time::sleep(Duration::from_millis(rng.below(PAUSE_MS))).await;
        let here = version as usize % servers.len();
        let there = (here + 1) % servers.len();
        let (session, created) = &sessions[here];
        let message = pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: created.advertisement_id.clone(),
            advertisement_token: created.advertisement_token.clone(),
            idempotency_key: String::new(),
            ..update(here, session, version)
        };
        let sent = clock();
        call(&channels[here], UPDATE, message.encode_to_vec().into()).await.expect("updated");
        let acknowledged = clock();
        loop {
            let answer = call(&channels[there], SEARCH, search.clone()).await.expect("an answer");
            let answer = pb::MatchmakingSearchResponse::decode(answer).expect("an answer");
            if answer.candidates.iter().any(|found| found.open_seats == 1 + version % 999) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        since_sent.push(sent.elapsed().as_secs_f64() * 1e3);
        since_acknowledged.push(acknowledged.elapsed().as_secs_f64() * 1e3);
    }
    [since_sent, since_acknowledged]
}

/// Work of the database so far.
struct DatabaseWork {
    /// Transactions in the feeds of advertisements and of queues.
    changes: [i64; 2],
    /// Processor time of the sessions that read feeds, seconds.
    feed_cpu_s: f64,
    /// Reads of feeds; `None` without the extension pg_stat_statements.
    feed_reads: Option<i64>,
}

impl DatabaseWork {
    async fn until_now(database: &mut PgConnection) -> Self {
        let query = "select (select count(*) from advertisement_change), (select count(*) from queue_change)";
        let (adverts, queues) = sqlx::query_as(query).fetch_one(&mut *database).await.expect("a count");
        let query = "select pid from pg_stat_activity where datname = current_database() and application_name like 'fireteam % feed'";
        let sessions: Vec<i32> = sqlx::query_scalar(query).fetch_all(&mut *database).await.expect("the sessions");
        let feed_cpu_s = cpu_seconds(|folder| sessions.iter().any(|pid| folder.ends_with(pid.to_string())));
        let query = "select sum(calls)::bigint from pg_stat_statements where query like '%with new_changes as%'";
        let feed_reads = sqlx::query_scalar(query).fetch_one(&mut *database).await.ok().flatten();
        Self { changes: [adverts, queues], feed_cpu_s, feed_reads }
    }

    /// Prints the work a second since `before`.
    fn print_since(&self, before: &Self, when: &str, servers: usize, seconds: f64) {
        let per_second = |at: usize| (self.changes[at] - before.changes[at]) as f64 / seconds;
        let cpu = (self.feed_cpu_s - before.feed_cpu_s) / seconds * 100.0;
        let reads = match (before.feed_reads, self.feed_reads) {
            (Some(before), Some(after)) => format!("{:.0}", (after - before) as f64 / seconds),
            _ => "unknown".to_owned(),
        };
        println!(
            "# PF1, {servers} servers, {when}: a second {:.0} commits of advertisements, {:.0} of queues; {reads} reads of \
             feeds, with {cpu:.1} % of a core of Postgres",
            per_second(0),
            per_second(1)
        );
    }
}

pub(crate) async fn run(url: &str) {
    let mut database = PgConnection::connect(url).await.expect("a database");
    let query = "select setting::bigint from pg_settings where name = 'max_connections'";
    let connections: i64 = sqlx::query_scalar(query).fetch_one(&mut database).await.expect("a setting");
    for count in SERVERS {
        if (count * CONNECTIONS_OF_SERVER + 10) as i64 > connections {
            println!("SKIPPED: PF1 with {count} servers: raise max_connections of the database, now {connections}");
            continue;
        }
        measure(url, count).await;
    }
}

/// PF1 with `count` servers, of which two have load.
async fn measure(url: &str, count: usize) {
    let mut database = PgConnection::connect(url).await.expect("a database");
    // The servers create the tables; rows of an earlier run are deleted first.
    let tables =
        "advertisement, reservation, advertisement_change, ticket, ticket_user, match, match_user, queue_change";
    let _ = database.execute(sqlx::AssertSqlSafe(format!("truncate {tables}"))).await;
    let servers: Vec<_> = (0..count).map(|_| Arc::new(ServerProcess::start("fireteam-postgres", 0))).collect();
    tokio::time::sleep(SETTLE_TIME).await;
    let (before, started) = (DatabaseWork::until_now(&mut database).await, clock());
    tokio::time::sleep(IDLE_TIME).await;
    let after = DatabaseWork::until_now(&mut database).await;
    after.print_since(&before, "idle", count, started.elapsed().as_secs_f64());
    let servers_with_load = &servers[..2];
    let stop = Arc::new(AtomicBool::new(false));
    let (mut load, mut queues) = (JoinSet::new(), JoinSet::new());
    for (at, server) in servers_with_load.iter().enumerate() {
        let hosts = channel(server.address).await;
        let hosts = Hosts::publish_named(&format!("a host of server {at}"), &hosts, HOSTS, None).await;
        for _ in 0..CLIENTS {
            let own = channel(server.address).await;
            load.spawn(call_at_intervals(own.clone(), UPDATE, hosts.replacing(alone), Arc::clone(&stop)));
            load.spawn(call_at_intervals(own, SEARCH, searches(64), Arc::clone(&stop)));
        }
        let server = Arc::clone(server);
        queues.spawn(async move { drive(MeasuredServers::alone(&server), DRIVE_SET, PLAYERS, DRIVE_LENGTH).await });
    }
    let (before, started) = (DatabaseWork::until_now(&mut database).await, clock());
    let [mut since_sent, mut since_acknowledged] = time_updates(servers_with_load).await;
    let after = DatabaseWork::until_now(&mut database).await;
    after.print_since(&before, "under load", count, started.elapsed().as_secs_f64());
    stop.store(true, Ordering::Relaxed);
    load.join_all().await;
    drop(queues);
    for (what, times) in [("sending", &mut since_sent), ("the acknowledgement of", &mut since_acknowledged)] {
        let (p50, p99, max) = (quantile_of(times, 0.5), quantile_of(times, 0.99), quantile_of(times, 1.0));
        println!(
            "# PF1, {count} servers: ms from {what} an update until another server finds it: p50 {p50:.1}, p99 {p99:.1}, max {max:.1}"
        );
    }
    let p99 = quantile_of(&mut since_acknowledged, 0.99);
    let subject = format!("ms until another server finds an acknowledged update, under load, {count} servers, p99");
    report("PF1 load <= 1", &subject, "limit", &[(p99, LIMIT_MS)], 0.0);
}
