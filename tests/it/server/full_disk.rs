//! A server whose disk is full: not ready while commits fail, ready again by itself.

use fireteam_client::RetryPolicy;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::support::queue_server::wait_until;
use crate::support::server_process::ServerProcess;
use crate::support::test_server::{advertise_request, party_session};

/// Larger than the file of an empty database, so that reads and small files work.
const SIZE_LIMIT_BYTES: u64 = 4_096;

async fn grpc_health(server: &ServerProcess) -> ServingStatus {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.expect("connect"));
    health.check(HealthCheckRequest::default()).await.expect("health").into_inner().status()
}

async fn is_ready(server: &ServerProcess) -> bool {
    server.operator_page("/readyz").await.starts_with("HTTP/1.1 200")
}

/// A disk with little free space is reported before it is full: in the metrics, in the log and in `/readyz`, which stays ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_that_fills_up_is_reported_before_it_is_full() {
    let folder = tempfile::tempdir().unwrap();
    // More than any disk of a test machine has: 1 TiB.
    let server = ServerProcess::start(folder.path(), &["--disk-free-warning-mib", "1048576"]);
    assert_eq!(server.log.wait_for_lines("disk nearly full", 1).len(), 1, "{}", server.log.text());
    let page = server.operator_page("/readyz").await;
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("\nwarning: the disk of the store (.) has ") && page.contains(" MiB free"), "{page}");
    let metrics = server.operator_page("/metrics").await;
    let free = metrics.lines().find_map(|line| line.strip_prefix("fireteam_disk_free_bytes{folder=\"store\"} "));
    assert!(free.is_some_and(|free| free.parse::<u64>().is_ok_and(|free| free > 0)), "{metrics}");
}

/// R20: while no file can grow, as on a full disk, the server is not ready. When there is space again, it becomes ready
/// without a call, and nothing that was acknowledged is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_makes_the_server_not_ready_until_a_commit_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start_ignoring_file_size_signal(folder.path(), &[]);
    let client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
    let before = client.advertise(advertise_request(&[("before", 0.0)], 3)).await.expect("advertise");
    assert!(is_ready(&server).await);
    if !server.limit_file_size(Some(SIZE_LIMIT_BYTES)) {
        eprintln!("SKIPPED: full disk was NOT tested; install util-linux for prlimit");
        return;
    }
    let error = client.advertise(advertise_request(&[("during", 0.0)], 3)).await.map(drop).expect_err("a full disk");
    let reason = error.as_server_error().and_then(|status| status.reason.as_deref());
    assert_eq!(reason, Some("STORE_UNAVAILABLE"), "{error}");
    assert!(!is_ready(&server).await, "not ready at once");
    assert!(server.operator_page("/livez").await.starts_with("HTTP/1.1 200"), "a restart would not help");
    wait_until("NOT_SERVING", async || grpc_health(&server).await == ServingStatus::NotServing).await;

    assert!(server.limit_file_size(None));
    wait_until("ready", async || is_ready(&server).await).await;
    wait_until("SERVING", async || grpc_health(&server).await == ServingStatus::Serving).await;
    let after = client.advertise(advertise_request(&[("after", 0.0)], 3)).await.expect("advertise");
    server.terminate();
    assert_eq!(server.wait_for_exit().exit_code, Some(0));

    let server = ServerProcess::start(folder.path(), &[]);
    let found = server.client().await.new_search(1, party_session(&[("guest", 0.0)])).search().await.unwrap();
    let mut found: Vec<String> = found.candidates.into_iter().map(|candidate| candidate.advertisement_id).collect();
    let mut expected = [before.id().to_owned(), after.id().to_owned()];
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}
