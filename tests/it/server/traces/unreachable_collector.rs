//! Collectors that refuse connections, that never answer, and whose host does not accept connections.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use tokio::time::Instant;

use super::{HEALTH_CHECK, SAMPLED, TracedServer};
use crate::support::queue_server::wait_until;

/// Limit of a call, on a busy machine. A call that waited for an export would take 10 s.
const CALL_TIME_MAX: Duration = Duration::from_secs(8);

/// Limit of the shutdown, on a busy machine: 1 s for the last export, and the rest. A whole export would take 10 s.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(8);

/// Calls whose spans are dropped while the collector is away.
const CALLS: usize = 30;

/// Value of the counter of dropped spans with this reason.
async fn dropped_spans(server: &TracedServer, reason: &str) -> u64 {
    let series = format!("fireteam_trace_spans_dropped_total{{reason=\"{reason}\"}} ");
    let lines = server.metric_lines(&series).await;
    lines[0].strip_prefix(&series).expect("the series").parse().expect("a number")
}

/// Makes calls, and checks that each is answered in time.
async fn make_calls(server: &TracedServer) {
    for _ in 0..CALLS {
        let started = Instant::now();
        server.check_health(Some(SAMPLED)).await;
        assert!(started.elapsed() < CALL_TIME_MAX, "{:?}", started.elapsed());
    }
}

/// Calls and the shutdown are not delayed, dropped spans are counted, and the log has one line.
async fn check_unreachable_collector(endpoint: &str) {
    let server = TracedServer::start_with_collector(endpoint, "0");
    make_calls(&server).await;
    wait_until("an export failed", async || dropped_spans(&server, "export_failed").await != 0).await;
    wait_until("all spans are counted", async || dropped_spans(&server, "export_failed").await == CALLS as u64).await;
    make_calls(&server).await;
    wait_until("further exports failed", async || dropped_spans(&server, "export_failed").await > CALLS as u64).await;
    make_calls(&server).await;
    assert_eq!(dropped_spans(&server, "queue_full").await, 0);
    server.process.terminate();
    let exit = server.process.wait_for_exit();
    assert_eq!(exit.exit_code, Some(0), "{}", exit.log);
    assert!(exit.duration < SHUTDOWN_TIME_MAX, "{:?}", exit.duration);
    let lines: Vec<&str> = exit.log.lines().filter(|line| line.contains("trace export failed, its spans")).collect();
    assert_eq!(lines.len(), 1, "one line a minute: {}", exit.log);
    assert!(lines[0].contains("WARN") && lines[0].contains("error="), "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_collector_that_refuses_connections_delays_neither_calls_nor_the_shutdown() {
    let refusing = TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr()).expect("a free port");
    check_unreachable_collector(&format!("http://{refusing}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_collector_that_never_answers_delays_neither_calls_nor_the_shutdown() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    check_unreachable_collector(&format!("http://{}", silent.local_addr().expect("an address"))).await;
}

/// A full queue of connections: the system drops the first packet of further ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_collector_that_accepts_no_connection_delays_neither_calls_nor_the_shutdown() {
    let full = TcpListener::bind("127.0.0.1:0").expect("bind");
    rustix::net::listen(&full, 0).expect("a backlog");
    let address = full.local_addr().expect("an address");
    let _waiting = TcpStream::connect(address).expect("connect");
    let further = TcpStream::connect_timeout(&address, Duration::from_millis(200));
    assert!(further.is_err(), "the backlog is full");
    check_unreachable_collector(&format!("http://{address}")).await;
}

/// More calls than the queue has places, while the collector does not answer: spans are dropped and counted, and calls are answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_spans_that_the_queue_has_no_place_for_are_counted() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("bind");
    let server =
        TracedServer::start_with_collector(&format!("http://{}", silent.local_addr().expect("an address")), "1");
    let mut health = tonic_health::pb::health_client::HealthClient::new(server.channel().await);
    let started = Instant::now();
    while dropped_spans(&server, "queue_full").await == 0 {
        for _ in 0..500 {
            // A call over the rate limit has a span too.
            let _ = health.check(tonic_health::pb::HealthCheckRequest::default()).await;
        }
        assert!(started.elapsed() < crate::support::server_process::TEST_TIMEOUT, "{HEALTH_CHECK} was not dropped");
    }
    server.process.terminate();
    let exit = server.process.wait_for_exit();
    assert_eq!(exit.exit_code, Some(0), "{}", exit.log);
    assert!(exit.duration < SHUTDOWN_TIME_MAX, "{:?}", exit.duration);
}
