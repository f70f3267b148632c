//! SIGTERM and SIGKILL: how the process ends, and what the next start finds.

use std::time::Duration;

use fireteam_client::{Code, RetryPolicy, pb};
use tokio::io::AsyncReadExt;
use tokio_stream::StreamExt;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::queue_server::{SET_ID, enter_request};
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};
use crate::support::test_server::{advertise_request, party_session};

/// Time limit of a shutdown; the default grace period is half of it.
const SHUTDOWN_MAX: Duration = Duration::from_secs(20);
/// Number of advertisements before the restart. The benchmarks measure 100,000.
const ADVERTISEMENT_COUNT: usize = 3_000;

/// R11: after SIGTERM health changes first, open streams end with UNAVAILABLE, silent connections do not delay the
/// exit, and the exit code is 0. Acknowledged data is there after the next start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_ends_streams_and_exits_with_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &[]);
    let (connection, mut events) = server.client().await.open_stream().await.unwrap();
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 3)).await.unwrap();
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let queue_client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
    let ticket = queue_client.enter_queue(enter_request(SET_ID, &[("waiting", 20.0)])).await.unwrap();
    let mut ticket_stream = ticket.watch();
    assert_eq!(ticket_stream.next().await.unwrap().unwrap().state(), pb::TicketState::Waiting);
    let mut health = HealthClient::new(channel.connect().await.unwrap());
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let mut silent = Vec::new();
    for address in [server.address, server.address, server.operator_address] {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }

    server.terminate();
    let update = tokio::time::timeout(TEST_TIMEOUT, watch.next()).await.expect("a health update in time");
    assert_eq!(update.unwrap().unwrap().status(), ServingStatus::NotServing);
    let end_error = tokio::time::timeout(TEST_TIMEOUT, events.next_reservation_event())
        .await
        .expect("the stream ends in time")
        .unwrap_err();
    assert_eq!(end_error.code(), Some(Code::Unavailable), "{end_error}");
    let watch_error =
        tokio::time::timeout(TEST_TIMEOUT, ticket_stream.next()).await.expect("the watch ends in time").unwrap_err();
    for error in [&end_error, &watch_error] {
        let end = error.as_server_error().expect("a status");
        assert_eq!((end.code, end.reason.as_deref()), (Code::Unavailable, Some("DRAINING")), "{error}");
    }
    let ended = server.wait_for_exit();
    assert_eq!(ended.exit_code, Some(0), "{}", ended.log);
    println!("exited {:?} after its streams", ended.duration);
    assert!(ended.duration < SHUTDOWN_MAX, "{:?}", ended.duration);
    assert!(!ended.log.contains("ERROR") && !ended.log.contains("panic"), "{}", ended.log);
    for mut socket in silent {
        let mut rest = Vec::new();
        drop(
            tokio::time::timeout(TEST_TIMEOUT, socket.read_to_end(&mut rest)).await.expect("the connection is closed"),
        );
    }

    let server = ServerProcess::start(folder.path(), &[]);
    let found = server.client().await.new_search(1, party_session(&[("guest", 0.0)])).search().await.unwrap();
    assert_eq!(
        found.candidates.iter().map(|candidate| candidate.advertisement_id.as_str()).collect::<Vec<_>>(),
        [advertised.id()]
    );
}

/// R11: a signal right after the start is handled too.
#[test]
fn sigterm_right_after_startup_exits_with_code_0() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &["--store", "memory:"]);
    server.terminate();
    let ended = server.wait_for_exit();
    assert_eq!(ended.exit_code, Some(0), "{}", ended.log);
    assert!(ended.log.ends_with("shutdown started"), "{}", ended.log);
}

/// R2: after SIGKILL and a restart, every advertisement is found. The time until the server serves is printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_after_kill_restores_every_advertisement() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &[]);
    let (connection, _events) = server.client().await.open_stream().await.unwrap();
    let mut answers = Vec::new();
    for number in 0..ADVERTISEMENT_COUNT {
        let update = pb::MatchmakingUpdateAdvertisementRequest {
            idempotency_key: format!("advertisement number {number:06}"),
            time_to_live_ms: Some(600_000),
            ..advertise_request(&[(&format!("host {number}"), 0.0)], 1)
        };
        let core = pb::MatchmakingCoreRequest {
            request_type: Some(pb::MatchmakingCoreRequestType::UpdateAdvertisement.into()),
            update_advertisement_request: Some(update),
            ..Default::default()
        };
        let answer = connection.send(core).await.unwrap();
        answers.push(tokio::spawn(answer.wait()));
    }
    for answer in answers {
        let answer = answer.await.unwrap().unwrap();
        assert!(answer.update_advertisement_response.expect("an update response").created);
    }
    server.kill();
    let server = ServerProcess::start(folder.path(), &[]);
    println!("serving {ADVERTISEMENT_COUNT} advertisements {:?} after the start", server.started_in);
    let metrics = server.operator_page("/metrics").await;
    assert!(metrics.contains(&format!("\nfireteam_advertisements {ADVERTISEMENT_COUNT}\n")), "{metrics}");
}
