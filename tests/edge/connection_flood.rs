//! SEC-2: floods of connections, and a server that has no descriptors left.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tonic_health::pb::HealthCheckRequest;

use crate::library_defaults;
use crate::raw_http2::opening;
use crate::report::{Report, scale};
use crate::server_under_attack::Victim;
use crate::support::server_process::TEST_TIMEOUT;

/// How soon somebody from elsewhere must be served.
const SERVED_WITHIN: Duration = Duration::from_secs(1);

/// Connections from `address`, each with a beginning that is good; those that are open once the server has looked at all.
async fn flood(victim: &Victim, address: &str, count: usize) -> Vec<TcpStream> {
    let mut connections = Vec::new();
    for number in 1..=count {
        // This process has no descriptors to waste either.
        if number % 2_000 == 0 {
            connections = kept(connections).await;
        }
        if let Ok(mut connection) = victim.connect_from(address).await
            && connection.write_all(&opening()).await.is_ok()
        {
            connections.push(connection);
        }
    }
    // What the server has not seen yet it sees before this one.
    victim.client().await.check(HealthCheckRequest::default()).await.expect("others are served");
    kept(connections).await
}

/// Those that say something and do not end: a server's SETTINGS, and then nothing.
async fn kept(connections: Vec<TcpStream>) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    for connection in connections {
        let mut said = [0; 256];
        let is_kept = match timeout(TEST_TIMEOUT, connection.peek(&mut said)).await.expect("closed or greeted") {
            Ok(0) | Err(_) => false,
            Ok(_) => true,
        };
        if is_kept {
            kept.push(connection);
        }
    }
    kept
}

/// The share of a processor that a victim needs while nothing happens.
async fn idle_share(victim: &Victim) -> f64 {
    let (busy, begun) = (victim.busy(), Instant::now());
    sleep(Duration::from_secs(1)).await;
    (victim.busy() - busy).as_secs_f64() / begun.elapsed().as_secs_f64()
}

/// SEC-2: of a flood from one place few connections are kept, they cost nothing, and others are served at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_connections_from_one_place_is_kept_small() {
    let mut report = Report::begin("a flood of connections").await;
    let (victim, count) = (Victim::start(), (2_000 * scale()).min(20_000));
    let before = victim.resident_mib();
    let begun = Instant::now();
    let kept = flood(&victim, "127.0.0.50", count).await;
    let took = begun.elapsed();
    let share = idle_share(&victim).await;
    let begun = Instant::now();
    let other = flood(&victim, "127.0.0.51", 1).await;
    let served = begun.elapsed();
    report.note(format!(
        "{count} connections in {took:.1?}: {} kept, {:.1} MiB more, {:.0} % of a processor; another place is served in {served:.1?}",
        kept.len(),
        victim.resident_mib() - before,
        100.0 * share,
    ));
    if 64 < kept.len() || kept.len() < 10 {
        report.violated(format!("{} connections of one place are kept", kept.len()));
    }
    if other.len() != 1 || SERVED_WITHIN < served {
        report.violated(format!("another place waits {served:?}"));
    }
    if 0.05 < share {
        report.violated(format!("idle connections take {share:.2} of a processor"));
    }
    let theirs = library_defaults::start(false);
    let kept = flood(&theirs, "127.0.0.50", 200).await.len();
    report.note(format!("the library's own settings keep {kept} of 200"));
    if kept < 200 {
        report.violated(format!("the library keeps {kept} of 200"));
    }
    report.end();
}

/// SEC-2, F6: out of descriptors the server rests, serves whom it has, and takes others again as soon as it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_descriptors_rests_and_recovers() {
    let mut report = Report::begin("no descriptors left").await;
    let victim = Victim::start_with_descriptors(128);
    let mut client = victim.client().await;
    let mut flood = Vec::new();
    for number in 0..200 {
        let place = format!("127.0.1.{}", number / 40 + 1);
        let mut connection = victim.connect_from(&place).await.unwrap();
        // Those that are never accepted are in the system's queue, and can be written to all the same.
        connection.write_all(&opening()).await.unwrap();
        flood.push(connection);
    }
    let exhausted = async {
        while !victim.said().contains("accept failed") {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(TEST_TIMEOUT, exhausted).await.expect("it runs out of descriptors");
    let share = idle_share(&victim).await;
    client.check(HealthCheckRequest::default()).await.expect("whoever is in is served");
    flood.truncate(20);
    let begun = Instant::now();
    victim.client().await.check(HealthCheckRequest::default()).await.expect("others are taken again");
    report.note(format!(
        "{:.0} % of a processor without descriptors; others are taken {:.1?} later",
        100.0 * share,
        begun.elapsed()
    ));
    if 0.25 < share {
        report.violated(format!("accepting takes {share:.2} of a processor"));
    }
    report.end();
}
