//! `x-forwarded-for` over gRPC: bytes that a client sends before its proxy appends the client's address, and the quota of a
//! proxy's own health checks.

use fireteam::config::{CallRateOrOpenStreamsMax, Config, DEFAULT_RATE_LIMITS, RateLimitRule, RateLimitSetting};
use http::{HeaderMap, HeaderValue};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Extensions, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server;
use crate::support::test_server::{TestServer, advertise_request};

const SEATTLE: &str = "71.20.133.126";
const LOS_ANGELES: &str = "151.220.31.64";

/// Limits anonymous callers of one address to three calls of this kind.
fn allow_three(limit: &'static str) -> impl FnOnce(&mut Config) {
    move |config| {
        let known = DEFAULT_RATE_LIMITS.iter().find(|rule| rule.role == "anonymous" && rule.limit == limit);
        let allowance = CallRateOrOpenStreamsMax::Calls { per_second: 1.0, burst: 3, per_5_min: 300 };
        let rule = RateLimitRule { allowance, ..*known.expect("a default rate limit") };
        config.rate_limits = RateLimitSetting::Overrides(vec![rule]);
    }
}

async fn channel_of(server: &TestServer) -> Channel {
    let uri = format!("http://{}", server.app.server.address);
    Endpoint::from_shared(uri).unwrap().connect().await.unwrap()
}

/// A request with these lines of `x-forwarded-for`.
fn request_with_lines<T>(lines: &[&[u8]], message: T) -> Request<T> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append("x-forwarded-for", HeaderValue::from_bytes(line).unwrap());
    }
    Request::from_parts(MetadataMap::from_headers(headers), Extensions::default(), message)
}

fn search() -> generated_client::MatchmakingSearchRequest {
    generated_client::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..scripted_server::search_request() }
}

/// SEC-7: bytes that are no text, sent before the address that the proxy appends, in the same line or in one of their own,
/// hide neither the place of the caller nor its quota. The proxy's quota is not spent.
#[tokio::test]
async fn forwarded_bytes_of_a_client_do_not_make_it_the_proxy() {
    let server = TestServer::start_with_config(allow_three("search")).await;
    server.client_from(LOS_ANGELES).await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let mut client = MatchmakingServiceClient::new(channel_of(&server).await);
    let appended = |bytes: &[u8]| [bytes, b", ", SEATTLE.as_bytes()].concat();
    for bytes in [&b"\xff"[..], b"\x80, 127.0.0.9", "é".as_bytes()] {
        let found = client.search(request_with_lines(&[&appended(bytes)], search())).await.expect("within the limit");
        let miles = found.into_inner().candidates[0].distance_miles.expect("the place of the caller is known");
        assert!(miles > 900.0, "{miles}");
    }
    for lines in [vec![appended(b"\xff")], vec![b"\xff".to_vec(), SEATTLE.into()], vec![SEATTLE.into()]] {
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        let refused =
            client.search(request_with_lines(&lines, search())).await.expect_err("the caller has spent its limit");
        assert_eq!(refused.code(), Code::ResourceExhausted, "{lines:?}");
    }
    client.search(request_with_lines(&[], search())).await.expect("the proxy's own limit is not spent");
}

/// SEC-11: health checks of a trusted proxy have a limit of their own, which no call that it forwards spends.
#[tokio::test]
async fn health_checks_of_a_proxy_have_a_limit_of_their_own() {
    let server = TestServer::start_with_config(allow_three("call")).await;
    let channel = channel_of(&server).await;
    let (mut client, mut health) = (MatchmakingServiceClient::new(channel.clone()), HealthClient::new(channel));
    let check = HealthCheckRequest::default;
    for number in 0..5 {
        // The proxy forwards what is no address, so these calls count as its own.
        let answer = client.search(request_with_lines(&[b"unknown"], search())).await;
        let is_limited = answer.is_err_and(|status| status.code() == Code::ResourceExhausted);
        assert_eq!(is_limited, 3 <= number, "{number}");
    }
    let forwarded = health.check(request_with_lines(&[b"unknown"], check())).await.expect_err("a forwarded check");
    assert_eq!(forwarded.code(), Code::ResourceExhausted);
    for _ in 0..5 {
        health.check(request_with_lines(&[], check())).await.expect("the proxy's own check");
    }
}
