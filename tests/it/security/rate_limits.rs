//! Rate limits over gRPC: per entry point and caller, with a retry delay; and the audit log of operator calls.

use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::config::{CallRateOrOpenStreamsMax, Config, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_types::StatusExt;

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::scripted_server;
use crate::support::test_server::TestServer;
use crate::support::tokens::start_authenticated_server;

const FIRST_ADDRESS: &str = "71.20.133.126";
const OTHER_ADDRESS: &str = "151.220.31.64";

/// Limits for anonymous callers per address: three searches at once and one per second, one stream.
fn set_small_rate_limits(config: &mut Config) {
    let rule = |limit: &str, allowance| {
        let known = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.role == "anonymous" && rule.limit == limit);
        RateLimitRule { allowance, ..*known.expect("a default rate limit") }
    };
    let search = CallRateOrOpenStreamsMax::Calls { per_second: 1.0, burst: 3, per_5_min: 300 };
    config.rate_limits = RateLimitSetting::Overrides(vec![
        rule("search", search),
        rule("stream", CallRateOrOpenStreamsMax::OpenStreams(1)),
    ]);
}

async fn matchmaking_client(server: &TestServer) -> MatchmakingServiceClient<Channel> {
    let uri = format!("http://{}", server.app.server.address);
    MatchmakingServiceClient::new(Endpoint::from_shared(uri).unwrap().connect().await.unwrap())
}

fn request_from<T>(address: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("x-forwarded-for", address.parse().unwrap());
    request
}

fn search_request() -> generated_client::MatchmakingSearchRequest {
    generated_client::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..scripted_server::search_request() }
}

fn search_envelope(nonce: u64) -> generated_client::MatchmakingCoreRequest {
    generated_client::MatchmakingCoreRequest {
        request_type: Some(1),
        request_nonce: Some(nonce),
        search_request: Some(search_request()),
        ..Default::default()
    }
}

/// Asserts RESOURCE_EXHAUSTED by the limit of that name, with the retry delay in the header and in the details.
fn assert_rate_limited(status: &Status, limit: &str, retry_ms: u64) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let info = status.get_details_error_info().expect("a reason");
    assert_eq!((&*info.reason, &*info.metadata["limit"]), ("RATE_LIMITED", limit));
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), &retry_ms.to_string());
    let retry = status.get_details_retry_info().expect("retry info").retry_delay.expect("a delay");
    assert_eq!(retry.as_millis(), u128::from(retry_ms));
}

/// SEC-11: the three entry points share one limit. The error has a retry delay, other addresses are not affected, and
/// tokens refill with time.
#[tokio::test]
async fn rate_limit_is_shared_by_all_entry_points() {
    let server = TestServer::start_with_config(set_small_rate_limits).await;
    let mut client = matchmaking_client(&server).await;
    client.search(request_from(FIRST_ADDRESS, search_request())).await.expect("the first");
    client.core(request_from(FIRST_ADDRESS, search_envelope(1))).await.expect("the second");
    let (to, requests) = mpsc::channel(8);
    let mut answers =
        client.connect(request_from(FIRST_ADDRESS, ReceiverStream::new(requests))).await.unwrap().into_inner();
    let mut search_on_stream = async |nonce| {
        let request = generated_client::MatchmakingConnectRequest { core: Some(search_envelope(nonce)) };
        to.send(request).await.unwrap();
        match answers.next().await.unwrap().unwrap().message.unwrap() {
            generated_client::matchmaking_connect_response::Message::Core(core) => core,
            other => panic!("{other:?}"),
        }
    };
    assert!(search_on_stream(2).await.error.is_none(), "the third");
    let error = search_on_stream(3).await.error.expect("the fourth exceeds the limit");
    assert_eq!((error.code, error.retry_after_ms), (Code::ResourceExhausted as i32, Some(1_000)));
    assert_rate_limited(
        &client.search(request_from(FIRST_ADDRESS, search_request())).await.unwrap_err(),
        "anonymous.search",
        1_000,
    );
    assert_rate_limited(
        &client.core(request_from(FIRST_ADDRESS, search_envelope(4))).await.unwrap_err(),
        "anonymous.search",
        1_000,
    );
    client.search(request_from(OTHER_ADDRESS, search_request())).await.expect("another address has its own limit");
    server.clock.advance_ms(1_000);
    assert!(search_on_stream(5).await.error.is_none());
    assert!(search_on_stream(6).await.error.is_some());
    let metrics = server.app.metrics.render();
    let line = "fireteam_rate_limited_total{role=\"anonymous\",limit=\"search\"} 4";
    assert!(metrics.contains(line), "{metrics}");
}

/// SEC-11: open streams are counted over all connections of a caller; a closed stream frees its place.
#[tokio::test]
async fn rate_limit_of_streams_counts_all_connections_of_a_caller() {
    let server = TestServer::start_with_config(set_small_rate_limits).await;
    let (mut first, mut second) = (matchmaking_client(&server).await, matchmaking_client(&server).await);
    let (to, requests) = mpsc::channel::<generated_client::MatchmakingConnectRequest>(1);
    let mut answers =
        first.connect(request_from(FIRST_ADDRESS, ReceiverStream::new(requests))).await.unwrap().into_inner();
    let idle = || tokio_stream::pending::<generated_client::MatchmakingConnectRequest>();
    assert_rate_limited(
        &second.connect(request_from(FIRST_ADDRESS, idle())).await.unwrap_err(),
        "anonymous.stream",
        1_000,
    );
    second.connect(request_from(OTHER_ADDRESS, idle())).await.expect("another address has its own limit");
    drop(to);
    assert!(answers.next().await.is_none());
    second.connect(request_from(FIRST_ADDRESS, idle())).await.expect("below the limit again");
}

/// SEC-11: a failed call is charged, and a closed stream refunds nothing.
#[tokio::test]
async fn rate_limit_charges_failed_and_cancelled_calls() {
    let server = TestServer::start_with_config(set_small_rate_limits).await;
    let mut client = matchmaking_client(&server).await;
    let unknown_set = generated_client::MatchmakingSearchRequest { matchmaking_set_id: Some(77), ..search_request() };
    assert_eq!(client.search(request_from(FIRST_ADDRESS, unknown_set)).await.unwrap_err().code(), Code::NotFound);
    for nonce in 0..2 {
        let (to, requests) = mpsc::channel(1);
        let mut answers =
            client.connect(request_from(FIRST_ADDRESS, ReceiverStream::new(requests))).await.unwrap().into_inner();
        let request = generated_client::MatchmakingConnectRequest { core: Some(search_envelope(nonce)) };
        to.send(request).await.unwrap();
        answers.next().await.unwrap().unwrap();
        drop(to);
        assert!(answers.next().await.is_none());
    }
    assert_rate_limited(
        &client.search(request_from(FIRST_ADDRESS, search_request())).await.unwrap_err(),
        "anonymous.search",
        1_000,
    );
}

/// SEC-11, SEC-4: repeated invalid credentials are rate-limited per address. Expired tokens do not count, and a valid
/// token from the same address is accepted.
#[tokio::test]
async fn rate_limit_of_auth_failures_is_separate() {
    let (server, issuer) = start_authenticated_server().await;
    let mut client = matchmaking_client(&server).await;
    let mut search_with_token = async |key: &JwtSigningKey, issued: &CallerTokenClaims| {
        let mut request = Request::new(search_request());
        let header = format!("Bearer {}", key.sign_jwt(issued).unwrap());
        request.metadata_mut().insert("authorization", header.parse().unwrap());
        client.search(request).await.err()
    };
    let good = issuer.claims(Role::Client, "ana");
    let old = CallerTokenClaims { iat: good.iat - 7_200, exp: good.iat - 3_600, ..good.clone() };
    let unknown_key = JwtSigningKey::from_seed(&[9; 32]).unwrap();
    for _ in 0..20 {
        assert_eq!(search_with_token(&issuer.key, &old).await.unwrap().code(), Code::Unauthenticated);
    }
    for _ in 0..10 {
        assert_eq!(search_with_token(&unknown_key, &good).await.unwrap().code(), Code::Unauthenticated);
    }
    assert_rate_limited(&search_with_token(&unknown_key, &good).await.unwrap(), "anonymous.auth_failure", 1_000);
    let is_accepted = |code| !matches!(code, Code::Unauthenticated | Code::ResourceExhausted);
    assert!(search_with_token(&issuer.key, &good).await.is_none_or(|status| is_accepted(status.code())));
}

/// A message that does not decode as a search.
#[derive(Clone, PartialEq, prost::Message)]
struct UnreadableSearch {
    #[prost(uint64, tag = "1")]
    not_a_session: u64,
}

/// SEC-11: every call is charged when it arrives: unreadable ones, unknown methods, health checks, streams and
/// unauthenticated calls. Other addresses are not affected.
#[tokio::test]
async fn rate_limit_charges_unreadable_and_unknown_calls() {
    let three_calls = |config: &mut Config| {
        let known = DEFAULT_RATE_LIMITS
            .iter()
            .find(|rule| rule.role == "anonymous" && rule.limit == "call")
            .expect("a default rate limit");
        let allowance = CallRateOrOpenStreamsMax::Calls { per_second: 1.0, burst: 3, per_5_min: 300 };
        config.rate_limits = RateLimitSetting::Overrides(vec![RateLimitRule { allowance, ..*known }]);
    };
    let server = TestServer::start_with_config(three_calls).await;
    let uri = format!("http://{}", server.app.server.address);
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    let call = async |path: &'static str, address: &str| {
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<UnreadableSearch, UnreadableSearch>::default();
        let unreadable = request_from(address, UnreadableSearch { not_a_session: 7 });
        grpc.unary(unreadable, path.parse().unwrap(), codec).await.unwrap_err()
    };
    let (search, unknown) = ("/fireteam.v1.MatchmakingService/Search", "/fireteam.v1.MatchmakingService/Nothing");
    let mut health = HealthClient::new(channel.clone());
    for path in [search, unknown] {
        assert_ne!(call(path, FIRST_ADDRESS).await.code(), Code::ResourceExhausted, "{path}");
    }
    health.check(request_from(FIRST_ADDRESS, HealthCheckRequest::default())).await.expect("the third");
    for path in [search, unknown] {
        assert_rate_limited(&call(path, FIRST_ADDRESS).await, "anonymous.call", 1_000);
    }
    assert_rate_limited(
        &health.watch(request_from(FIRST_ADDRESS, HealthCheckRequest::default())).await.unwrap_err(),
        "anonymous.call",
        1_000,
    );
    let idle = tokio_stream::pending::<generated_client::MatchmakingConnectRequest>();
    assert_rate_limited(
        &matchmaking_client(&server).await.connect(request_from(FIRST_ADDRESS, idle)).await.unwrap_err(),
        "anonymous.call",
        1_000,
    );
    assert_ne!(call(search, OTHER_ADDRESS).await.code(), Code::ResourceExhausted);
    server.clock.advance_ms(1_000);
    health.check(request_from(FIRST_ADDRESS, HealthCheckRequest::default())).await.expect("below the limit again");

    let (authenticated, _) = start_authenticated_server().await;
    let mut anonymous = matchmaking_client(&authenticated).await;
    let refused = |status: Status| status.code() == Code::Unauthenticated;
    let mut rejected = 0;
    while refused(anonymous.search(scripted_server::search_request()).await.unwrap_err()) {
        rejected += 1;
    }
    assert_eq!(rejected, 500, "calls without credentials are charged to the address");
}

/// SEC-11: a reflection stream ends at its limit, also for repeated requests.
#[tokio::test]
async fn reflection_stream_ends_at_its_limit() {
    let server = TestServer::start().await;
    let uri = format!("http://{}", server.app.server.address);
    let channel = Endpoint::from_shared(uri).unwrap().connect().await.unwrap();
    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::FileContainingSymbol("fireteam.v1.MatchmakingService".into())),
        ..Default::default()
    };
    let requests = tokio_stream::iter(std::iter::repeat_n(ask, 100_000));
    let answers = ServerReflectionClient::new(channel).server_reflection_info(requests).await.unwrap();
    let mut answers = answers.into_inner();
    let (mut count, mut bytes) = (0, 0);
    let end = loop {
        match answers.message().await {
            Ok(answer) => bytes += prost::Message::encoded_len(&answer.expect("an error at the end")),
            Err(end) => break end,
        }
        count += 1;
    };
    println!("{count} answers, {bytes} bytes");
    assert_eq!(end.code(), Code::ResourceExhausted, "{end}");
    assert_eq!(end.get_details_error_info().expect("a reason").reason, "STREAM_LIMIT_REACHED");
    assert!(10 <= count && bytes <= 1024 * 1024, "{count} answers, {bytes} bytes");
}

/// A8: an operator call is in the audit log when its response arrives, with the changes.
#[tokio::test]
async fn operator_calls_are_written_to_the_audit_log() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.jsonl");
    let audit_log_file = file.clone();
    let server = TestServer::start_with_config(|config| config.audit_log_file = Some(audit_log_file)).await;
    let uri = format!("http://{}", server.app.server.operator_address);
    let mut operator = OperatorServiceClient::new(Endpoint::from_shared(uri).unwrap().connect().await.unwrap());
    let mut check =
        Request::new(generated_client::CheckRulesetRequest { file_name: "a\nb.xml".into(), ..Default::default() });
    check.metadata_mut().insert("x-request-id", "from-the-pipeline-7".parse().unwrap());
    operator.check_ruleset(check).await.unwrap();
    operator.reload_rulesets(generated_client::ReloadRulesetsRequest {}).await.unwrap();
    let long = generated_client::CheckRulesetRequest { file_name: "x".repeat(300), ..Default::default() };
    operator.check_ruleset(long).await.unwrap_err();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let field = |at: usize, key: &str| lines[at][key].as_str().unwrap_or_default().to_owned();
    assert_eq!((lines.len(), field(0, "target")), (3, "a\nb.xml".to_owned()));
    assert_eq!(field(0, "request_id"), "from-the-pipeline-7");
    let entries = [0, 1, 2].map(|at| (field(at, "action"), field(at, "outcome")));
    let entry = |name: &str, outcome: &str| (format!("fireteam.v1.OperatorService/{name}"), outcome.to_owned());
    let check = |outcome| entry("CheckRuleset", outcome);
    assert_eq!(entries, [check("OK"), entry("ReloadRulesets", "OK"), check("INVALID_ARGUMENT")]);
}
