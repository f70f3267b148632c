//! Metric cardinality and log size do not depend on the texts of requests.

use tonic::transport::Endpoint;
use tonic::{Code, Request};

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server;
use crate::support::server_process::ServerProcess;

/// Maximum length of a log line, bytes.
const LINE_BYTES_MAX: usize = 1_024;

/// Search with 64 users and 32 regions that are unique to `number`; for odd numbers also 4 unknown attributes, which is
/// an error.
fn search_with_unique_texts(number: usize) -> generated_client::MatchmakingSearchRequest {
    let players = (0..64)
        .map(|at| generated_client::PlayerData { user_id: format!("canary {number} {at}"), ..Default::default() });
    let regions = (0..32)
        .map(|at| generated_client::RegionLatency { region: format!("canary-{number}-{at}"), round_trip_ms: 1.0 });
    let text = |at| Some(generated_client::attribute_value::Value::StringValue(format!("canary\n{number} {at}")));
    let count = if number.is_multiple_of(2) { 0 } else { 4 };
    let attributes =
        (0..count).map(|at| (format!("canary {number} {at}"), generated_client::AttributeValue { value: text(at) }));
    let session = generated_client::SessionCompositionData {
        players: players.collect(),
        region_latencies: regions.collect(),
        attributes: attributes.collect(),
        ..Default::default()
    };
    generated_client::MatchmakingSearchRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(1),
        ..scripted_server::search_request()
    }
}

/// SEC-19: 100,000 different texts, half of them in rejected calls, and a hundred unknown methods add no metric series.
/// No log line is longer than a kilobyte or contains such a text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metrics_and_log_lines_do_not_grow_with_request_texts() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &["--log-level", "debug", "--store", "memory:"]);
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let mut client = MatchmakingServiceClient::new(endpoint.connect().await.unwrap());
    let mut call = async |number: usize| {
        let result = client.search(search_with_unique_texts(number)).await;
        assert_eq!(result.is_ok(), number.is_multiple_of(2), "{result:?}");
    };
    let unknown = async |number: usize| {
        // A connection per call: repeated unknown methods end a connection.
        let mut grpc = tonic::client::Grpc::new(endpoint.connect().await.unwrap());
        grpc.ready().await.unwrap();
        let path = format!("/canary.v{number}.Service/Method").parse().unwrap();
        let codec = tonic_prost::ProstCodec::<
            generated_client::MatchmakingSearchRequest,
            generated_client::MatchmakingSearchResponse,
        >::default();
        let result = grpc.unary(Request::new(search_with_unique_texts(0)), path, codec).await;
        assert_eq!(result.unwrap_err().code(), Code::Unimplemented);
    };
    call(0).await;
    call(1).await;
    unknown(0).await;
    let series = |page: &str| page.lines().filter(|line| !line.starts_with('#')).count();
    let before = series(&server.operator_page("/metrics").await);
    for number in 2..1_030 {
        call(number).await;
        if number.is_multiple_of(10) {
            unknown(number).await;
        }
    }
    let after = series(&server.operator_page("/metrics").await);
    assert_eq!(after, before);
    server.terminate();
    let log = server.wait_for_exit().log;
    let longest = log.lines().map(str::len).max().unwrap();
    println!("{after} series; {} lines, the longest of {longest} bytes", log.lines().count());
    assert!(1_000 < log.lines().count(), "rejections are logged");
    assert!(longest <= LINE_BYTES_MAX);
    assert!(!log.contains("canary"), "{}", log.lines().find(|line| line.contains("canary")).unwrap());
}
