//! PH1: one machine that holds clients, server and Postgres, a million advertisements in the store and in memory.

use sqlx::{Connection, Executor};

use crate::harness::{ROUNDS, report};
use crate::rpc::load::{Target, channel, streamed, unary};
use crate::rpc::messages::{CONNECT, Hosts, SEARCH, enveloped, is_updated, searches};
use crate::rpc::server_process::ServerProcess;

/// Advertisements.
const MANY: u64 = 1_000_000;
/// Those that are published again and again.
const HOSTS: u64 = 4_096;
/// Streams, messages that each may have unanswered, and messages in a round.
const WINDOWS: (usize, usize, usize) = (8, 256, 100_000);
/// Searches in a round.
const SEARCHES: usize = 16_000;

/// Acknowledged durable advertisements against 100,000 in a second, and searches for each second of the server's
/// processor against 30,000.
pub(crate) async fn run(url: &str) {
    let mut database = sqlx::PgConnection::connect(url).await.expect("a database");
    // The child makes the tables; whatever an earlier run has left there goes first.
    let _ = database.execute("truncate advertisement, reservation, change").await;
    let server = ServerProcess::start("fireteam-postgres", MANY);
    database.execute("vacuum analyze").await.expect("a tidy database");
    let hosts = Hosts::publish(&channel(server.address).await, HOSTS).await;
    let (replacing, asked) = (hosts.replacing(enveloped), searches(512));
    let (connect, search) =
        (Target { child: &server, path: CONNECT, header: None }, Target { child: &server, path: SEARCH, header: None });
    let (mut written, mut found) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let cost = streamed(connect, &replacing, WINDOWS, is_updated).await;
        written.push((1e6 / cost.wall_us, 100_000.0));
        let cost = unary(search, &asked, SEARCHES).await;
        found.push((1e6 / cost.cpu_us, 30_000.0));
    }
    report("PH1 >= 1", "durable advertisements/s, acknowledged, client and Postgres beside", "asked", &written, 0.0);
    report("PH1 >= 1", "searches of 1M, 50 hits, for a second of the server's processor", "asked", &found, 0.0);
}
