//! SEC-2: connection floods, and a server without free file descriptors.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic_health::pb::HealthCheckRequest;

use crate::library_defaults;
use crate::raw_http2::preface;
use crate::report::{Report, scale};
use crate::server_under_attack::ServerUnderAttack;
use crate::support::server_process::TEST_TIMEOUT;

/// Limit on the time until a client with another address is served.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Opens `count` connections from `address`, each with a valid start. Returns those that the server has left open.
async fn flood(server: &ServerUnderAttack, address: &str, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for number in 1..=count {
        // Closed connections are dropped, since this process has a descriptor limit too.
        if number % 2_000 == 0 {
            connections = still_open(connections).await;
        }
        if let Ok(mut connection) = server.connect_from(address).await
            && connection.write_all(&preface()).await.is_ok()
        {
            connections.push(connection);
        }
    }
    // The server accepts in order: all earlier connections are accepted before this one.
    server.client().await.check(HealthCheckRequest::default()).await.expect("honest calls are answered");
    still_open(connections).await
}

/// The connections that have received the server's SETTINGS and were not closed.
async fn still_open(connections: Vec<TcpStream>) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for connection in connections {
        let mut bytes = [0; 256];
        let is_open =
            match timeout(TEST_TIMEOUT, connection.peek(&mut bytes)).await.expect("closed, or SETTINGS received") {
                Ok(0) | Err(_) => false,
                Ok(_) => true,
            };
        if is_open {
            open.push(connection);
        }
    }
    open
}

/// CPU share of the server while nothing happens.
async fn idle_share(server: &ServerUnderAttack) -> f64 {
    let (busy, started) = (server.cpu_time(), Instant::now());
    sleep(Duration::from_secs(1)).await;
    (server.cpu_time() - busy).as_secs_f64() / started.elapsed().as_secs_f64()
}

/// SEC-2: few connections of a flood from one address stay open, they cost nothing, and another address is served immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_flood_from_one_address_is_limited() {
    let mut report = Report::start("connection flood").await;
    let (server, count) = (ServerUnderAttack::start(), (2_000 * scale()).min(20_000));
    let before = server.resident_mib();
    let started = Instant::now();
    let open = flood(&server, "127.0.0.50", count).await;
    let took = started.elapsed();
    let share = idle_share(&server).await;
    let started = Instant::now();
    let other = flood(&server, "127.0.0.51", 1).await;
    let served = started.elapsed();
    report.note(format!(
        "{count} connections in {took:.1?}: {} open, {:.1} MiB more, {:.0} % of a processor; another address is served in {served:.1?}",
        open.len(),
        server.resident_mib() - before,
        100.0 * share,
    ));
    if 64 < open.len() || open.len() < 10 {
        report.violation(format!("{} connections of one address are open", open.len()));
    }
    if other.len() != 1 || SERVED_WITHIN < served {
        report.violation(format!("another address waits {served:?}"));
    }
    if 0.05 < share {
        report.violation(format!("idle connections take {share:.2} of a processor"));
    }
    let defaults = library_defaults::start(false);
    let open = flood(&defaults, "127.0.0.50", 200).await.len();
    report.note(format!("the library's default settings keep {open} of 200"));
    if open < 200 {
        report.violation(format!("the library keeps {open} of 200"));
    }
    report.finish();
}

/// SEC-2, F6: without descriptors the server waits between attempts, serves existing connections, and accepts new ones later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptor_exhaustion_is_survived() {
    let mut report = Report::start("no free descriptors").await;
    let server = ServerUnderAttack::start_with_descriptors(128);
    let mut client = server.client().await;
    let mut flood = Vec::new();
    for number in 0..200 {
        let source = format!("127.0.1.{}", number / 40 + 1);
        let mut connection = server.connect_from(&source).await.unwrap();
        // Connections that are not accepted wait in the kernel's queue, and can be written to as well.
        connection.write_all(&preface()).await.unwrap();
        flood.push(connection);
    }
    let exhausted = async {
        while !server.log().contains("accept failed") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, exhausted).await.expect("it runs out of descriptors");
    let share = idle_share(&server).await;
    client.check(HealthCheckRequest::default()).await.expect("existing connections are served");
    flood.truncate(20);
    let started = Instant::now();
    server.client().await.check(HealthCheckRequest::default()).await.expect("new connections are accepted again");
    report.note(format!(
        "{:.0} % of a processor without descriptors; new connections are accepted {:.1?} later",
        100.0 * share,
        started.elapsed()
    ));
    if 0.25 < share {
        report.violation(format!("accepting takes {share:.2} of a processor"));
    }
    report.finish();
}
