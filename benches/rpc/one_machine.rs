//! PH1: clients, server and Postgres on one machine, a million advertisements in the store and in memory.

use sqlx::{Connection, Executor};

use crate::harness::{ROUNDS, report};
use crate::rpc::load::{Target, channel, streamed, unary};
use crate::rpc::messages::{CONNECT, Hosts, SEARCH, enveloped, is_updated, searches};
use crate::rpc::server_process::ServerProcess;

/// Advertisements.
const MANY: u64 = 1_000_000;
/// Advertisements that are published repeatedly.
const HOSTS: u64 = 4_096;
/// Streams, unanswered messages per stream, and messages per round.
const WINDOWS: (usize, usize, usize) = (8, 256, 100_000);
/// Searches per round.
const SEARCHES: usize = 16_000;

/// Acknowledged durable publications per second, of which 100,000 are required, and searches per second of the server's CPU
/// time, of which 30,000 are required.
pub(crate) async fn run(url: &str) {
    let mut database = sqlx::PgConnection::connect(url).await.expect("a database");
    // The server creates the tables; rows of an earlier run are deleted first.
    let _ = database.execute("truncate advertisement, reservation, advertisement_change").await;
    let server = ServerProcess::start("fireteam-postgres", MANY);
    database.execute("vacuum analyze").await.expect("a tidy database");
    let hosts = Hosts::publish(&channel(server.address).await, HOSTS).await;
    let (replacing, searches_sent) = (hosts.replacing(enveloped), searches(512));
    let (connect, search) =
        (Target { child: &server, path: CONNECT, header: None }, Target { child: &server, path: SEARCH, header: None });
    let (mut written, mut found) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let cost = streamed(connect, &replacing, WINDOWS, is_updated).await;
        written.push((1e6 / cost.wall_us, 100_000.0));
        let cost = unary(search, &searches_sent, SEARCHES).await;
        found.push((1e6 / cost.cpu_us, 30_000.0));
    }
    report(
        "PH1 >= 1",
        "durable advertisements/s, acknowledged, client and Postgres on the same machine",
        "required",
        &written,
        0.0,
    );
    report("PH1 >= 1", "searches of 1M, 50 hits, for a second of the server's processor", "required", &found, 0.0);
}
