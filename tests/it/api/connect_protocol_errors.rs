//! Connect protocol, refused requests: wrong verb, type, path, body, size, time and caller. Each error says what would be right.

use std::time::Duration;

use fireteam_client::pb;
use serde_json::json;

use fireteam::auth::identity::Role;
use fireteam::config::{CallRateOrOpenStreamsMax, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
use fireteam::server::limits::EdgeLimits;

use crate::support::http_client::HttpClient;
use crate::support::scripted_engine::PENDING_UPDATE_TTL_MS;
use crate::support::scripted_server::{ScriptedServer, TEST_TIMEOUT};
use crate::support::test_server::TestServer;
use crate::support::tokens::start_authenticated_server;

const SEARCH: &str = "/fireteam.v1.MatchmakingService/Search";
const ENTER: &str = "/fireteam.v1.QueueService/Enter";
const WATCH: &str = "/fireteam.v1.QueueService/Watch";

/// SEC-4: a request that names a method and is no call reaches no handler, and its error says what to send.
#[tokio::test]
async fn connect_protocol_refuses_wrong_verb_type_and_path() {
    let server = TestServer::start().await;
    let running = &server.app.server;
    let client = HttpClient::new(running.address);
    for verb in ["GET", "PUT", "DELETE", "OPTIONS"] {
        let response = client.send(verb, SEARCH, "").await;
        assert_eq!(response.headers["allow"], "POST");
        assert!(response.failure(405, "unimplemented").contains("send POST"));
    }
    for (path, content_type, accepted) in [
        (SEARCH, "text/plain", "application/json, application/proto"),
        (SEARCH, "application/json; charset=latin1", "application/json, application/proto"),
        (SEARCH, "application/connect+json", "application/json, application/proto"),
        (WATCH, "application/json", "application/connect+json, application/connect+proto"),
    ] {
        let response = client.clone().with_header("content-type", content_type).send("POST", path, "{}").await;
        assert_eq!(response.headers["accept-post"], accepted);
        assert!(response.failure(415, "invalid_argument").contains(accepted), "{content_type}");
    }
    let without_type = client.send("POST", SEARCH, "{}").await;
    without_type.failure(415, "invalid_argument");
    for path in ["/fireteam.v1.QueueService/Guess", "/fireteam.v1.OperatorService/ListRulesets", "/grpc.x.Y/Z"] {
        assert!(client.call(path, "{}").await.failure(404, "unimplemented").contains("no such method on this port"));
    }
    assert_eq!(client.call("/elsewhere", "{}").await.status, 404);
    assert_eq!(client.send("GET", "/fireteam.v1.QueueService/Guess", "").await.status, 404);
    let operators = HttpClient::new(running.operator_address);
    operators.call(ENTER, "{}").await.failure(404, "unimplemented");
    assert_eq!(operators.send("GET", "/livez", "").await.status, 200, "pages are still served");
    let stream = client.clone().with_header("content-type", "application/connect+json");
    let response = stream.send("POST", "/fireteam.v1.MatchmakingService/Connect", "").await;
    assert!(response.failure(505, "invalid_argument").contains("use HTTP/2"));
}

/// Each malformed body is an error of the client that names the place, and what would be right there.
#[tokio::test]
async fn connect_protocol_names_the_field_of_a_bad_body() {
    let server = TestServer::start().await;
    let client = HttpClient::new(server.app.server.address);
    for (body, expected) in [
        ("", "the body is empty; send {} or the JSON form of fireteam.v1.QueueEnterRequest"),
        ("{", "the body is not valid JSON: EOF while parsing an object at line 1 column 1; send the JSON form of"),
        ("{}{}", "the body is not valid JSON: trailing characters at line 1 column 3; send the JSON form of"),
        ("\u{0}", "the body is not valid JSON: expected value at line 1 column 1"),
        ("[]", "send a JSON object, the form of fireteam.v1.QueueEnterRequest; invalid type: sequence, expected a map"),
        (
            r#"{"matchmakingSetID":1}"#,
            "matchmakingSetID: QueueEnterRequest has no such field; did you mean `matchmakingSetId`?",
        ),
        (
            r#"{"zzz":1}"#,
            "zzz: QueueEnterRequest has no such field; send sessionComposition, matchmakingSetId, serviceConfigurationHash, \
             idempotencyKey, blockedUserIds",
        ),
        (r#"{"matchmakingSetId":"one"}"#, "matchmakingSetId: send a whole number from 0 to 4294967295; invalid digit"),
        (r#"{"matchmakingSetId":-1}"#, "matchmakingSetId: send a whole number from 0 to 4294967295; "),
        (r#"{"matchmakingSetId":4294967296}"#, "matchmakingSetId: send a whole number from 0 to 4294967295; "),
        (
            r#"{"sessionComposition":{"players":[{"userId":"a"},{"userId":7}]}}"#,
            "sessionComposition.players[1].userId: send a string; invalid type: integer `7`, expected a string",
        ),
        (
            r#"{"sessionComposition":{"players":[{"attributes":{"a":{"numbervalue":7}}}]}}"#,
            "sessionComposition.players[0].attributes.a.numbervalue: AttributeValue has no such field; did you mean `numberValue`?",
        ),
        (r#"{"sessionComposition":{"players":{}}}"#, "sessionComposition.players: send an array; invalid type: map"),
        (
            r#"{"sessionComposition":7}"#,
            "sessionComposition: send an object, the JSON form of SessionCompositionData; invalid",
        ),
        (r#"{"blockedUserIds":["a",true]}"#, "blockedUserIds[1]: send a string; invalid type: boolean `true`"),
    ] {
        let message = client.call(ENTER, body).await.failure(400, "invalid_argument");
        assert!(message.starts_with(expected), "{body}: {message}");
    }
    let token = client.call(SEARCH, r#"{"searchToken":"*"}"#).await.failure(400, "invalid_argument");
    assert!(token.starts_with("searchToken: send bytes as base64; "), "{token}");
    let enumeration = r#"{"requestType":"SEARCH"}"#;
    let message =
        client.call("/fireteam.v1.MatchmakingService/Core", enumeration).await.failure(400, "invalid_argument");
    assert!(message.starts_with("requestType: send "), "{message}");
    // The details name the field, as those of any other invalid request.
    let error = client.call(ENTER, r#"{"zzz":1}"#).await.json();
    let debug: Vec<_> = error["details"].as_array().unwrap().iter().map(|detail| detail["debug"].clone()).collect();
    assert_eq!(debug[0]["reason"], "INVALID_REQUEST", "{error}");
    assert_eq!(debug[1]["fieldViolations"][0]["field"], "zzz", "{error}");
}

/// Levels and size are limited before anything is built from the body.
#[tokio::test]
async fn connect_protocol_limits_levels_and_size() {
    let server = TestServer::start().await;
    let client = HttpClient::new(server.app.server.address);
    for deep in
        ["[".repeat(60_000), r#"{"sessionComposition":"#.repeat(2_000), format!("{{\"zzz\":{}", "[".repeat(60_000))]
    {
        client.call(ENTER, &deep).await.failure(400, "invalid_argument");
    }
    // 128 KiB of text on the client port, 520 KiB on the operator port; a message of 64 KiB by any encoding.
    for (address, path, limit) in [
        (server.app.server.address, ENTER, 128 * 1024),
        (server.app.server.operator_address, "/fireteam.v1.OperatorService/CheckRuleset", 520 * 1024),
    ] {
        let client = HttpClient::new(address);
        let message = client.call(path, &" ".repeat(limit + 1)).await.failure(400, "out_of_range");
        assert_eq!(message, format!("the request is too large; send at most {limit} bytes"));
        let fits = format!("{{}}{}", " ".repeat(limit - 2));
        let response = client.call(path, &fits).await;
        assert!(response.status == 200 || response.json()["code"] != "out_of_range", "{response:?}");
    }
    let long = json!({ "idempotencyKey": "k".repeat(70_000) }).to_string();
    client.call(ENTER, &long).await.failure(400, "out_of_range");
    let protobuf = client.clone().with_header("content-type", "application/proto");
    protobuf
        .send("POST", ENTER, [&[0x22, 0xf0, 0xa2, 0x04][..], &[b'k'; 70_000]].concat())
        .await
        .failure(400, "out_of_range");
    protobuf.send("POST", ENTER, b"\xff".to_vec()).await.failure(400, "invalid_argument");
}

/// A header of the protocol with a value that is not served is an error, and not ignored.
#[tokio::test]
async fn connect_protocol_refuses_unknown_versions_compression_and_timeouts() {
    let server = TestServer::start().await;
    let client = HttpClient::new(server.app.server.address);
    let call = async |name: &str, value: &str| client.clone().with_header(name, value).call(ENTER, "{}").await;
    assert_eq!(
        call("connect-protocol-version", "2").await.failure(400, "invalid_argument"),
        "connect-protocol-version: 2 is not served; send 1, or no such header"
    );
    assert!(
        call("connect-timeout-ms", "1s")
            .await
            .failure(400, "invalid_argument")
            .starts_with("connect-timeout-ms: 1s is no")
    );
    let message = call("content-encoding", "gzip").await.failure(501, "unimplemented");
    assert_eq!(message, "content-encoding: gzip is not served; send identity, or no such header");
    for (name, value) in
        [("connect-protocol-version", "1"), ("connect-timeout-ms", "5000"), ("content-encoding", "identity")]
    {
        let message = call(name, value).await.failure(400, "invalid_argument");
        assert!(message.starts_with("idempotency_key: is missing"), "{message}");
    }
}

/// G3: the shorter deadline of client and server ends a call.
#[tokio::test]
async fn connect_protocol_timeout_ends_a_call() {
    let server =
        ScriptedServer::start_with_limits(EdgeLimits { unary_deadline: TEST_TIMEOUT, ..EdgeLimits::default() }).await;
    let update = json!({
        "matchmakingSetId": 1,
        "timeToLiveMs": PENDING_UPDATE_TTL_MS,
        "sessionComposition": { "players": [{ "userId": "ana" }], "maxAllowedJoinReservationCount": 3 },
    });
    let pending = json!({ "requestType": 2, "requestNonce": "1", "updateAdvertisementRequest": update });
    let client = HttpClient::new(server.address).with_header("connect-timeout-ms", "50");
    let core = "/fireteam.v1.MatchmakingService/Core";
    client.call(core, &pending.to_string()).await.failure(504, "deadline_exceeded");
    server.observer.wait_for_call("fireteam.v1.MatchmakingService/Core", "DEADLINE_EXCEEDED").await;
    let slow = ScriptedServer::start_with_limits(EdgeLimits {
        unary_deadline: Duration::from_millis(50),
        ..EdgeLimits::default()
    })
    .await;
    HttpClient::new(slow.address).call(core, &pending.to_string()).await.failure(504, "deadline_exceeded");
}

/// SEC-4: a caller without credentials learns nothing of its body, nor whether the method exists.
#[tokio::test]
async fn connect_protocol_authenticates_before_it_reads() {
    let (server, issuer) = start_authenticated_server().await;
    let client = HttpClient::new(server.app.server.address);
    for (path, body) in [(ENTER, "{"), (ENTER, "{\"zzz\":1}"), ("/fireteam.v1.QueueService/Guess", "{}")] {
        let message = client.call(path, body).await.failure(401, "unauthenticated");
        assert!(message.starts_with("no credentials"), "{message}");
    }
    let known = client.with_header("authorization", &issuer.authorization_header(Role::Client, "ana"));
    known.call(ENTER, "{").await.failure(400, "invalid_argument");
    known.call("/fireteam.v1.QueueService/Guess", "{}").await.failure(404, "unimplemented");
    known.call("/fireteam.v1.LatencyService/AnnounceBeacon", "{}").await.failure(403, "permission_denied");
}

/// SEC-11: a limit of calls counts JSON and gRPC together, before the body is read.
#[tokio::test]
async fn connect_protocol_shares_the_rate_limits_of_grpc() {
    let server = TestServer::start_with_config(|config| {
        let known = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.role == "anonymous" && rule.limit == "call");
        let allowance = CallRateOrOpenStreamsMax::Calls { per_second: 1.0, burst: 3, per_5_min: 300 };
        let rule = RateLimitRule { allowance, ..*known.expect("a default rate limit") };
        config.rate_limits = RateLimitSetting::Overrides(vec![rule]);
    })
    .await;
    let grpc = server.client_from("71.20.133.126").await;
    let client = HttpClient::new(server.app.server.address).with_header("x-forwarded-for", "71.20.133.126");
    let configuration = || pb::MatchmakingGetConfigurationRequest { matchmaking_set_id: Some(1), ..Default::default() };
    grpc.get_configuration(configuration()).await.expect("the first");
    client.call("/fireteam.v1.MatchmakingService/GetConfiguration", r#"{"matchmakingSetId":1}"#).await.success();
    client.call(ENTER, "{").await.failure(400, "invalid_argument");
    let limited = client.call(ENTER, "{").await;
    assert_eq!(limited.failure(429, "resource_exhausted"), "rate limit anonymous.call exceeded; retry in 1000 ms");
    assert_eq!(limited.headers["grpc-retry-pushback-ms"], "1000");
    let error = limited.json();
    let details = error["details"].as_array().expect("details");
    assert!(details.iter().any(|detail| detail["debug"]["reason"] == "RATE_LIMITED"), "{error}");
    assert!(grpc.get_configuration(configuration()).await.is_err());
    server.clock.advance_ms(1_000);
    client.call(ENTER, "{").await.failure(400, "invalid_argument");
}

/// A page of another origin never reaches the operator port, and neither does another host name.
#[tokio::test]
async fn connect_protocol_on_the_operator_port_checks_host_and_origin() {
    let server = TestServer::start().await;
    let client = HttpClient::new(server.app.server.operator_address);
    let list = "/fireteam.v1.OperatorService/ListRulesets";
    client.call(list, "{}").await.success();
    assert_eq!(client.clone().with_header("origin", "https://game.example").call(list, "{}").await.status, 403);
    assert_eq!(client.with_header("host", "evil.example").call(list, "{}").await.status, 403);
}
