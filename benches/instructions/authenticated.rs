//! Calls of players with identity tokens, through authorization and rate limits, as the client port passes them on.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fireteam::api::authorization::{Authorizer, VerificationRateLimit};
use fireteam::api::client_address::{ClientAddressResolver, ConnectionPeer};
use fireteam::api::client_routes;
use fireteam::api::drain::Drain;
use fireteam::api::health::HealthState;
use fireteam::api::layer::call_reporter::RpcObserver;
use fireteam::api::layer::{CallLayer, CallService};
use fireteam::api::rate_limits_and_audit::RateLimitsAndAudit;
use fireteam::auth::authenticator::Authenticator;
use fireteam::auth::forwarded_for::client_address;
use fireteam::auth::identity::Role;
use fireteam::auth::jwt_signing_key::{CallerTokenClaims, JwtSigningKey};
use fireteam::auth::rate_limit::RateLimits;
use fireteam::clock::ManualClock;
use fireteam::config::{DEFAULT_RATE_LIMITS, JwtSettings};
use fireteam::domain::time::UnixMs;
use fireteam::telemetry::audit::AuditLog;
use fireteam::telemetry::trace::CallSpan;
use fireteam_client::pb;
use http::{HeaderValue, Request};
use prost::Message;
use tonic::Code;
use tonic::body::Body;
use tonic::service::Routes;
use tower::{Layer as _, Service as _};

use crate::count;
use crate::population::{NOW, composition};
use crate::server::{ADVERT_RULESET, HOSTS, InProcessServer, Messages, Responses, UPDATE, encoded};
use crate::split_mix64::SplitMix64;

const ISSUER: &str = "gate";

/// Deadline of a unary call.
const UNARY_DEADLINE: Duration = Duration::from_secs(5);

/// Streams that a connection may have.
const STREAMS_MAX: u32 = 4;

/// Discards the counts of calls.
struct NoObserver;

impl RpcObserver for NoObserver {
    fn call_finished(&self, _: &'static str, _: Code, _: Duration, _: Option<&CallSpan>) {}

    fn connection_rejected(&self, _: &'static str) {}
}

/// Player with a token and a connection.
struct CallingPlayer {
    name: String,
    authorization: HeaderValue,
    peer: ConnectionPeer,
}

/// Client port without a network: the routes behind the check of callers, with default rate limits.
struct ClientPort {
    server: InProcessServer,
    service: CallService<Routes>,
    key: JwtSigningKey,
}

impl ClientPort {
    fn start() -> Self {
        let server = InProcessServer::start(ADVERT_RULESET);
        let clock = Arc::new(ManualClock::new(UnixMs(NOW), 2));
        let key = JwtSigningKey::from_seed(&[9; 32]).expect("a key");
        let resolver = ClientAddressResolver::new(Arc::new(|peer, forwarded| {
            client_address(peer, forwarded.iter().copied(), &[])
        }));
        let rate_limits = Arc::new(RateLimits::new(&DEFAULT_RATE_LIMITS, clock.clone(), Box::new(|_, _| {})));
        let limit = VerificationRateLimit { rate_limits: rate_limits.clone(), address_resolver: resolver.clone() };
        let authorizer =
            Authorizer::new(Some(Arc::new(authenticator(&key, clock)))).with_verification_rate_limit(limit);
        let (health, audit_log) = (HealthState::default(), AuditLog::open(None, Box::new(|| UnixMs(NOW))));
        let drain = Drain::new(health.clone());
        let engine = server.engine();
        let queues = Some(engine.queues().clone());
        let routes =
            client_routes(engine.clone(), queues, None, resolver.clone(), rate_limits.clone(), &health, &drain);
        let rate_limits_and_audit =
            RateLimitsAndAudit::new(Arc::new(audit_log.expect("a log without files")), rate_limits, resolver);
        let calls = CallLayer::new(Arc::new(NoObserver), authorizer, UNARY_DEADLINE, &drain);
        let service = calls
            .with_rate_limits_and_audit(rate_limits_and_audit)
            .layer(routes.expect("the routes of the port").prepare());
        Self { server, service, key }
    }

    fn player(&self, number: usize) -> CallingPlayer {
        let name = format!("player {number}");
        let iat = NOW / 1_000;
        let issued = CallerTokenClaims {
            iss: ISSUER.into(),
            sub: name.clone(),
            aud: ISSUER.into(),
            iat,
            exp: iat + 3_600,
            role: Some(Role::Client.as_str().into()),
            scope: None,
        };
        let header = format!("Bearer {}", self.key.sign_jwt(&issued).expect("a token"));
        let address = Ipv4Addr::new(192, 0, 2, u8::try_from(number).expect("few players"));
        let peer = ConnectionPeer::new(IpAddr::V4(address), STREAMS_MAX);
        CallingPlayer { name, authorization: header.parse().expect("a header"), peer }
    }

    async fn update(&self, player: &CallingPlayer, message: &Bytes) -> Bytes {
        let mut request = Request::new(Body::new(Messages::one(message.clone())));
        *request.uri_mut() = UPDATE.parse().expect("a path");
        *request.method_mut() = http::Method::POST;
        request.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        request.headers_mut().insert("authorization", player.authorization.clone());
        request.extensions_mut().insert(player.peer.clone());
        let response = self.service.clone().call(request).await.expect("infallible");
        assert!(!response.headers().contains_key("grpc-status"), "a call failed: {:?}", response.headers());
        Responses::new(Body::new(response.into_body())).next().await.expect("a response")
    }

    /// Publishes a session of the player. Returns the heartbeat that extends its TTL.
    fn publish(&self, player: &CallingPlayer, rng: &mut SplitMix64) -> Bytes {
        let mut session = composition(rng);
        session.players[0].user_id.clone_from(&player.name);
        let new = pb::MatchmakingUpdateAdvertisementRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(session),
            connect_data: vec![7; 16],
            idempotency_key: format!("host of the gate {:020}", rng.next()),
            ..Default::default()
        };
        let answer = self.server.runtime.block_on(self.update(player, &encoded(&new)));
        let answer = pb::MatchmakingUpdateAdvertisementResponse::decode(answer).expect("a response");
        encoded(&pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: answer.advertisement_id,
            advertisement_token: answer.advertisement_token,
            ..Default::default()
        })
    }
}

/// Authenticator of tokens that `key` signs. Its key file is deleted once it was read.
fn authenticator(key: &JwtSigningKey, clock: Arc<ManualClock>) -> Authenticator {
    let folder = tempfile::tempdir().expect("a folder");
    let file: &Path = &folder.path().join("jwks.json");
    std::fs::write(file, key.public_key_set()).expect("a file");
    let settings = JwtSettings::of_one_issuer(ISSUER, ISSUER, &[file.to_owned()]);
    Authenticator::new(Some(settings), clock).expect("keys")
}

/// Extends an advertisement's TTL by a unary call with a token that was verified before.
pub(crate) fn heartbeat() {
    let port = ClientPort::start();
    let mut rng = SplitMix64(29);
    let hosts: Vec<(CallingPlayer, Bytes)> = (0..HOSTS)
        .map(|number| {
            let player = port.player(number);
            let heartbeat = port.publish(&player, &mut rng);
            (player, heartbeat)
        })
        .collect();
    count(
        |_| (),
        |()| {
            port.server.runtime.block_on(async {
                for (player, heartbeat) in &hosts {
                    port.update(player, heartbeat).await;
                }
            });
            hosts.len()
        },
    );
}
