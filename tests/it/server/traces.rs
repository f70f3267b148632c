//! Traces: a server exports the spans of sampled calls to a receiver that speaks OTLP, and a collector that is away or does not
//! answer delays neither calls nor the shutdown.

mod collector;
mod unreachable_collector;

use std::time::Duration;

use fireteam_client::{Client, pb};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::http_client::HttpClient;
use crate::support::queue_server::{SET_ID, duel_ruleset, enter_request};
use crate::support::scripted_server::search_request;
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};
use crate::support::test_server::party_session;
use collector::{Collector, hex, texts};

/// Trace and span of a caller.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// `traceparent` of a caller that samples the trace, and of one that does not.
const SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const NOT_SAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

const ENTER: &str = "fireteam.v1.QueueService/Enter";
const SEARCH: &str = "fireteam.v1.MatchmakingService/Search";
const UPDATE_ADVERTISEMENT: &str = "fireteam.v1.MatchmakingService/UpdateAdvertisement";
const CORE: &str = "fireteam.v1.MatchmakingService/Core";
const COMMIT_WAIT: &str = "wait for commit";
const HEALTH_WATCH: &str = "grpc.health.v1.Health/Watch";
const HEALTH_CHECK: &str = "grpc.health.v1.Health/Check";

/// Server with one queue, in a folder of its own.
struct TracedServer {
    process: ServerProcess,
    _folder: tempfile::TempDir,
}

impl TracedServer {
    fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, &[])
    }

    /// Server with these environment variables.
    fn start_with(arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::create_dir(folder.path().join("rulesets")).expect("a folder");
        std::fs::write(folder.path().join("rulesets/duel.xml"), duel_ruleset("")).expect("a ruleset");
        let arguments = [&["--rulesets", "rulesets"], arguments].concat();
        let process = ServerProcess::start_with(folder.path(), &arguments, variables);
        Self { process, _folder: folder }
    }

    /// Server that exports to a collector.
    fn start_with_collector(endpoint: &str, ratio: &str) -> Self {
        Self::start(&["--otlp-endpoint", endpoint, "--otlp-sample-ratio", ratio])
    }

    async fn channel(&self) -> tonic::transport::Channel {
        let uri = format!("http://{}", self.process.address);
        tonic::transport::Endpoint::from_shared(uri).expect("a URL").connect().await.expect("connect")
    }

    /// Client whose calls have a `traceparent`.
    async fn client(&self, traceparent: &str) -> Client {
        self.process.client().await.with_metadata("traceparent", traceparent).expect("a header")
    }

    /// Health check with or without a `traceparent`.
    async fn check_health(&self, traceparent: Option<&'static str>) {
        let answer =
            HealthClient::new(self.channel().await).check(with_traceparent(Default::default(), traceparent)).await;
        answer.expect("health");
    }

    /// Lines of the page of metrics that contain `text`.
    async fn metric_lines(&self, text: &str) -> Vec<String> {
        let page = self.process.operator_page("/metrics").await;
        page.lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

fn with_traceparent<T>(message: T, traceparent: Option<&'static str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(value) = traceparent {
        request.metadata_mut().insert("traceparent", value.parse().expect("a value"));
    }
    request
}

/// The span of a call continues the caller's trace. It has method, set and status, and its child is the wait for the commit. The bytes
/// have nothing of the caller: no name of a user, no header, no address (SEC-9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_has_the_span_of_a_sampled_call_and_of_its_commit() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    let client = server.client(SAMPLED).await.with_metadata("tracestate", "canary=canary").expect("a header");
    let client = client.with_metadata("x-canary", "canary").expect("a header");
    client.enter_queue(enter_request(SET_ID, &[("canary", 20.0)])).await.expect("enter");
    let span = collector.next_span(ENTER).await;
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!((span.kind(), span.trace_state.as_str()), (SpanKind::Server, ""));
    assert!(span.start_time_unix_nano < span.end_time_unix_nano);
    let expected = [
        ("fireteam.set_id", SET_ID.to_string()),
        ("rpc.method", ENTER.into()),
        ("rpc.response.status_code", "OK".into()),
        ("rpc.system.name", "grpc".into()),
    ];
    assert_eq!(texts(&span.attributes), expected.map(|(name, value)| (name.to_owned(), value)));
    let wait = collector.next_span(COMMIT_WAIT).await;
    assert_eq!((&wait.trace_id, &wait.parent_span_id), (&span.trace_id, &span.span_id));
    assert_eq!((texts(&wait.attributes), wait.kind()), (vec![], SpanKind::Internal));
    assert!(
        span.start_time_unix_nano <= wait.start_time_unix_nano && wait.end_time_unix_nano <= span.end_time_unix_nano
    );
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let resource = [("service.name".to_owned(), "fireteam".to_owned()), ("service.version".to_owned(), version)];
    assert_eq!(collector.resource, resource);
    assert!(collector.received_text("fireteam.set_id") && collector.received_text(ENTER), "the search finds texts");
    for private in ["canary", "127.0.0.1", "traceparent"] {
        assert!(!collector.received_text(private), "{private}");
    }
}

/// Variables of OpenTelemetry add headers to exports, and change neither sampling, resource, limits nor endpoint: these are settings of
/// the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_variables_of_the_environment_add_headers_only() {
    let mut collector = Collector::start().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-collector-key=secret"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_TRACES_SAMPLER", "always_off"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        ("OTEL_SERVICE_NAME", "other"),
        ("OTEL_RESOURCE_ATTRIBUTES", "place=other"),
    ];
    let server = TracedServer::start_with(&["--otlp-endpoint", &collector.endpoint], &variables);
    let client = server.client(SAMPLED).await;
    client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
    let span = collector.next_span(ENTER).await;
    assert_eq!(span.attributes.len(), 4, "{span:?}");
    assert_eq!(collector.last_key().as_deref(), Some("secret"));
    let names: Vec<&str> = collector.resource.iter().map(|(_, value)| &**value).collect();
    assert_eq!(names, ["fireteam", env!("CARGO_PKG_VERSION")]);
}

/// An update of an advertisement waits for a commit too, in a call of its own and in an envelope. A search waits for none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_an_advertisement_has_its_commit() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    let mut stub = server.process.client().await.matchmaking_stub();
    let update = |user| pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(party_session(&[(user, 20.0)])),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    };
    stub.update_advertisement(with_traceparent(update("ann"), Some(SAMPLED))).await.expect("published");
    let envelope = pb::MatchmakingCoreRequest {
        request_type: Some(2),
        request_nonce: Some(1),
        update_advertisement_request: Some(update("bob")),
        ..Default::default()
    };
    stub.core(with_traceparent(envelope, Some(SAMPLED))).await.expect("published");
    let search = pb::MatchmakingSearchRequest {
        session_composition: Some(party_session(&[("cem", 20.0)])),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    };
    stub.search(with_traceparent(search, Some(SAMPLED))).await.expect("an answer");
    for name in [UPDATE_ADVERTISEMENT, CORE] {
        let span = collector.next_span(name).await;
        assert!(texts(&span.attributes).contains(&("fireteam.set_id".to_owned(), SET_ID.to_string())), "{span:?}");
        assert_eq!(collector.next_span(COMMIT_WAIT).await.parent_span_id, span.span_id, "{name}");
    }
    collector.next_span(SEARCH).await;
    assert_eq!(collector.further_spans(), []);
}

/// A call in JSON has the same span as by gRPC, and continues the caller's trace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_has_the_span_of_a_call_in_json() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    let call = async |client: HttpClient| client.call(&format!("/{SEARCH}"), &search_in_json(SET_ID)).await.success();
    call(HttpClient::new(server.process.address)).await;
    call(HttpClient::new(server.process.address).with_header("traceparent", SAMPLED)).await;
    let span = collector.next_span(SEARCH).await;
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert!(texts(&span.attributes).contains(&("fireteam.set_id".to_owned(), SET_ID.to_string())), "{span:?}");
    assert_eq!(collector.further_spans(), []);
}

/// Search by one player, as JSON.
fn search_in_json(set_id: u32) -> String {
    let session = serde_json::json!({ "partySizeComposition": [1], "players": [{ "userId": "ann" }] });
    serde_json::json!({ "matchmakingSetId": set_id, "sessionComposition": session }).to_string()
}

/// The status of a refused call is an attribute. A span is an error only if the server has a problem.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_refused_call_has_its_status() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    let channel = server.channel().await;
    let mut unknown_set = search_request();
    unknown_set.matchmaking_set_id = Some(4_000_000_000);
    let search = with_traceparent(unknown_set, Some(SAMPLED));
    let refused = MatchmakingServiceClient::new(channel.clone()).search(search).await.expect_err("an unknown set");
    let mut watch = with_traceparent(HealthCheckRequest::default(), Some(SAMPLED));
    watch.set_timeout(Duration::from_millis(50));
    let mut health = HealthClient::new(channel).watch(watch).await.expect("a stream").into_inner();
    health.message().await.expect("the state").expect("the state");
    assert_eq!(health.message().await.expect_err("the deadline").code(), Code::DeadlineExceeded);

    let attribute = |span: &Span, name: &str| texts(&span.attributes).into_iter().find(|(key, _)| key == name);
    let status = |span: &Span| span.status.clone().unwrap_or_default().code();
    let span = collector.next_span(SEARCH).await;
    assert_eq!(refused.code(), Code::NotFound, "{refused:?}");
    assert_eq!(attribute(&span, "rpc.response.status_code").expect("a status").1, "NOT_FOUND");
    assert_eq!(attribute(&span, "fireteam.set_id").expect("a set").1, "4000000000");
    assert_eq!(status(&span), StatusCode::Unset);
    let span = collector.next_span(HEALTH_WATCH).await;
    assert_eq!(attribute(&span, "rpc.response.status_code").expect("a status").1, "DEADLINE_EXCEEDED");
    assert_eq!(attribute(&span, "fireteam.set_id"), None);
    assert_eq!(status(&span), StatusCode::Error);
}

/// With the ratio 0, only calls whose caller samples the trace are exported. The last spans are sent at the shutdown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_ratio_zero_exports_only_calls_that_their_callers_sample() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    let too_long = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
    let zeros = "00-00000000000000000000000000000000-b7ad6b7169203331-01";
    for unsampled in [None, Some(NOT_SAMPLED), Some("00-not-a-parent-01"), Some(too_long), Some(zeros), Some("")] {
        server.check_health(unsampled).await;
    }
    server.check_health(Some(SAMPLED)).await;
    server.process.terminate();
    let span = collector.next_span(HEALTH_CHECK).await;
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
    let exit = server.process.wait_for_exit();
    assert_eq!(exit.exit_code, Some(0), "{}", exit.log);
    assert_eq!(collector.further_spans(), [], "spans of calls that are not sampled");
}

/// With the ratio 1, a call without a valid `traceparent` is a trace of its own. One that the caller does not sample is not exported.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_ratio_one_exports_each_call_that_its_caller_leaves_open() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "1");
    for traceparent in [Some(NOT_SAMPLED), None, Some("00-not-a-parent-01"), Some(SAMPLED)] {
        server.check_health(traceparent).await;
    }
    let first = collector.next_span(HEALTH_CHECK).await;
    let second = collector.next_span(HEALTH_CHECK).await;
    for span in [&first, &second] {
        assert!(span.parent_span_id.is_empty() && hex(&span.trace_id) != TRACE, "{span:?}");
    }
    assert_ne!(first.trace_id, second.trace_id);
    assert_eq!(hex(&collector.next_span(HEALTH_CHECK).await.trace_id), TRACE);
}

/// The histogram of call durations names the trace of a sampled call in the bucket of its duration, within the 128 characters of
/// OpenMetrics. Without a collector, no call is sampled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_id_is_the_exemplar_of_the_call_duration() {
    let mut collector = Collector::start().await;
    let server = TracedServer::start_with_collector(&collector.endpoint, "0");
    server.check_health(None).await;
    assert_eq!(server.metric_lines("trace_id").await, Vec::<String>::new());
    server.check_health(Some(SAMPLED)).await;
    collector.next_span(HEALTH_CHECK).await;
    let lines = server.metric_lines("trace_id").await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (sample, exemplar) = line.split_once(" # ").expect("an exemplar");
    assert!(sample.starts_with("fireteam_rpc_duration_seconds_bucket{le="), "{line}");
    assert!(sample.contains("method=\"other\""), "{line}");
    let (labels, seconds) = exemplar.split_once(' ').expect("a value");
    assert_eq!(labels, format!("{{trace_id=\"{TRACE}\"}}"));
    assert!(labels.len() <= 128 && seconds.parse::<f64>().is_ok_and(|seconds| seconds > 0.0), "{line}");

    let server = TracedServer::start(&[]);
    server.check_health(Some(SAMPLED)).await;
    assert_eq!(server.metric_lines("trace_id").await, Vec::<String>::new());
}

/// Invalid settings are refused, with their names and what to use.
#[test]
fn trace_settings_are_checked_at_the_start() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let check = |arguments: &[&str], message: &str| {
        let exit = ServerProcess::run_until_exit_with(folder.path(), arguments, &[]);
        assert_eq!(exit.exit_code, Some(2), "{arguments:?}: {}", exit.log);
        assert!(exit.log.contains(message), "{arguments:?}: {}", exit.log);
    };
    for endpoint in [
        "127.0.0.1:4317",
        "https://collector:4317",
        "http://collector",
        "http://user@collector:4317",
        "http://collector:0",
        "http://collector:65536",
        "http://:4317",
        "http://collector:4317/v1/traces",
        "http://collector:4317?a=b",
        "",
    ] {
        let message = "otlp_endpoint: not the address of a collector; use http://HOST:PORT";
        check(&["--otlp-endpoint", endpoint], message);
    }
    for ratio in ["1.01", "-0.01", "NaN", "inf"] {
        check(&[&format!("--otlp-sample-ratio={ratio}")], "otlp_sample_ratio: ");
    }
}

/// Waits for an event of the server, with a time limit.
async fn in_time<T>(event: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, event).await.expect("in time")
}
