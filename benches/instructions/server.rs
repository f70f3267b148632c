//! The gRPC services without a network: encoded requests in, encoded responses out, on one thread, with a memory store.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use fireteam::api::authorization::Authorizer;
use fireteam::api::client_address::ClientAddressResolver;
use fireteam::api::drain::Drain;
use fireteam::api::health::HealthState;
use fireteam::api::matchmaking::MatchmakingApi;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::pb::matchmaking_service_server::MatchmakingServiceServer;
use fireteam::api::pb::queue_service_server::QueueServiceServer;
use fireteam::api::queue::QueueApi;
use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::policy::CLIENTS_AND_GAME_SERVERS;
use fireteam::auth::public_user_keys::PublicUserKeySecret;
use fireteam::auth::token::HmacTokenSigner;
use fireteam::clock::ManualClock;
use fireteam::domain::time::UnixMs;
use fireteam::engine::BeaconSettings;
use fireteam::engine::settings::EngineSettings;
use fireteam::engine::{Engine, EngineDeps};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::RulesetCatalog;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::telemetry::metric::Metrics;
use fireteam_client::pb;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame};
use prost::Message;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tonic::body::Body;
use tower::Service as _;

use crate::count;
use crate::population::{NOW, composition, ruleset};
use crate::split_mix64::SplitMix64;

/// Advertisements that each call row works on.
pub(crate) const HOSTS: usize = 64;

pub(crate) const UPDATE: &str = "/fireteam.v1.MatchmakingService/UpdateAdvertisement";
const SEARCH: &str = "/fireteam.v1.MatchmakingService/Search";
const RESERVE: &str = "/fireteam.v1.MatchmakingService/Reserve";
const CONNECT: &str = "/fireteam.v1.MatchmakingService/Connect";

/// The ruleset of the advertisements.
pub(crate) const ADVERT_RULESET: &str = r#"<Ruleset Name="gate" SetId="1">
  <Attributes>
    <Attribute Name="skill" Type="number" Min="0" Max="3000" Trust="client"/>
    <Attribute Name="mode" Type="string" Trust="client"/>
  </Attributes>
  <SoftFilters>
    <SoftFilter Attribute="skill" Weight="60%"/>
    <SoftFilter Attribute="distance" Weight="40%"/>
  </SoftFilters>
</Ruleset>"#;

/// An engine with its services, and the runtime of one thread that all of its tasks run on.
pub(crate) struct InProcessServer {
    pub(crate) runtime: Runtime,
    /// Keeps the engine's tasks running.
    engine: Arc<Engine>,
    matchmaking: MatchmakingServiceServer<MatchmakingApi>,
    queue: QueueServiceServer<QueueApi>,
}

impl InProcessServer {
    /// Starts an engine with a memory store and this ruleset.
    pub(crate) fn start(xml: &str) -> Self {
        Self::start_with_store(xml, Arc::new(MemoryStore::new()))
    }

    /// The same with another store.
    pub(crate) fn start_with_store(xml: &str, store: Arc<dyn Store>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let clock = Arc::new(ManualClock::new(UnixMs(NOW), 1));
        let catalog = Arc::new(RulesetCatalog::default());
        catalog.replace_all(vec![("gate.xml".into(), Arc::new(ruleset(xml)))], UnixMs(NOW), 0);
        let deps = EngineDeps {
            clock,
            store,
            rulesets: catalog,
            geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), LocatorSettings::default())),
            token_signer: Arc::new(HmacTokenSigner::new([7; 32], None)),
            public_user_keys: Arc::new(PublicUserKeySecret::new([7; 32])),
            match_credential_keys: Arc::new(MatchCredentialKeys::new(
                JwtSigningKey::from_seed(&[8; 32]).expect("a key"),
                None,
            )),
            metrics: Arc::new(Metrics::new()),
            settings: EngineSettings { allow_client_locality: true, ..EngineSettings::default() },
            served_silos: None,
            supervisor: fireteam::supervisor::TaskSupervisor::default(),
            pass_failures: fireteam::store::pass_failure::PassFailureFolder::default(),
            erasure_log: None,
            beacon_settings: BeaconSettings::default(),
        };
        let engine = Arc::new(runtime.block_on(Engine::start(deps)).expect("an empty store loads"));
        let resolver = ClientAddressResolver::new(Arc::new(|peer, _| peer));
        let drain = Drain::new(HealthState::default());
        let api = MatchmakingApi::new(MatchmakingHandler::new(engine.clone()), resolver.clone(), drain);
        let queue = QueueServiceServer::new(QueueApi::new(engine.queues().clone(), resolver, None));
        Self { runtime, matchmaking: MatchmakingServiceServer::new(api), queue, engine }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Calls an RPC. Returns the stream of its response messages.
    pub(crate) async fn call(&self, path: &str, body: Body) -> Responses {
        let mut request = Request::new(body);
        *request.uri_mut() = path.parse().expect("a path");
        *request.method_mut() = http::Method::POST;
        request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        let auth = Authorizer::default()
            .authorize(CLIENTS_AND_GAME_SERVERS, &HeaderMap::new(), request.extensions())
            .expect("authentication is off");
        request.extensions_mut().insert(auth);
        let response = if path.contains("QueueService") {
            self.queue.clone().call(request).await
        } else {
            self.matchmaking.clone().call(request).await
        };
        let response = response.expect("infallible");
        assert!(!response.headers().contains_key("grpc-status"), "{path} failed: {:?}", response.headers());
        Responses::new(response.into_body())
    }

    /// Calls a unary RPC with an encoded message; returns the encoded response.
    pub(crate) async fn unary(&self, path: &str, message: &Bytes) -> Bytes {
        self.call(path, Body::new(Messages::one(message.clone()))).await.next().await.expect("a response")
    }
}

/// Response messages of a call. A frame may hold several.
pub(crate) struct Responses {
    body: Body,
    unread: Bytes,
}

impl Responses {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, unread: Bytes::new() }
    }

    /// Next encoded message, without its length prefix; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        while self.unread.is_empty() {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await?.expect("a frame");
            self.unread = frame.into_data().unwrap_or_default();
        }
        self.unread.advance(1);
        let length = self.unread.get_u32();
        Some(self.unread.split_to(length as usize))
    }
}

/// Request messages of a call, encoded.
pub(crate) struct Messages(mpsc::UnboundedReceiver<Bytes>);

impl Messages {
    /// One message.
    pub(crate) fn one(message: Bytes) -> Self {
        let (sender, messages) = Self::stream();
        sender.send(message).expect("an open stream");
        messages
    }

    /// An open stream of messages.
    #[expect(clippy::disallowed_methods, reason = "each section sends a fixed number of messages")]
    fn stream() -> (mpsc::UnboundedSender<Bytes>, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (sender, Self(receiver))
    }
}

impl http_body::Body for Messages {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|message| message.map(|message| Ok(Frame::data(message))))
    }
}

/// Message with its gRPC prefix: not compressed, and its length.
pub(crate) fn encoded(message: &impl Message) -> Bytes {
    let mut bytes = vec![0; 5];
    message.encode(&mut bytes).expect("a growing buffer");
    let length = u32::try_from(bytes.len() - 5).expect("a short message");
    bytes[1..5].copy_from_slice(&length.to_be_bytes());
    bytes.into()
}

/// Server with advertisements, and the requests that replace them.
struct Hosts {
    server: InProcessServer,
    updates: Vec<pb::MatchmakingUpdateAdvertisementRequest>,
}

impl Hosts {
    fn publish() -> Self {
        let server = InProcessServer::start(ADVERT_RULESET);
        let mut rng = SplitMix64(17);
        let updates = (0..HOSTS).map(|number| {
            let new = pb::MatchmakingUpdateAdvertisementRequest {
                matchmaking_set_id: Some(1),
                session_composition: Some(composition(&mut rng)),
                connect_data: vec![7; 16],
                idempotency_key: format!("host of the gate {number:020}"),
                ..Default::default()
            };
            let answer = server.runtime.block_on(server.unary(UPDATE, &encoded(&new)));
            let answer = pb::MatchmakingUpdateAdvertisementResponse::decode(answer).expect("a response");
            pb::MatchmakingUpdateAdvertisementRequest {
                advertisement_id: answer.advertisement_id,
                advertisement_token: answer.advertisement_token,
                idempotency_key: String::new(),
                ..new
            }
        });
        let updates = updates.collect();
        Self { server, updates }
    }

    /// Counts one unary update per message.
    fn count_updates(&self, messages: &[Bytes]) {
        count(
            |_| (),
            |()| {
                self.server.runtime.block_on(async {
                    for message in messages {
                        self.server.unary(UPDATE, message).await;
                    }
                });
                messages.len()
            },
        );
    }
}

/// Replaces an advertisement by a unary call.
pub(crate) fn upsert_unary() {
    let hosts = Hosts::publish();
    let messages: Vec<Bytes> = hosts.updates.iter().map(encoded).collect();
    hosts.count_updates(&messages);
}

/// Extends an advertisement's TTL by a unary call.
pub(crate) fn heartbeat() {
    let hosts = Hosts::publish();
    let heartbeat = |update: &pb::MatchmakingUpdateAdvertisementRequest| pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: update.advertisement_id.clone(),
        advertisement_token: update.advertisement_token.clone(),
        ..Default::default()
    };
    let messages: Vec<Bytes> = hosts.updates.iter().map(|update| encoded(&heartbeat(update))).collect();
    hosts.count_updates(&messages);
}

/// Replaces advertisements by pipelined requests on a Connect stream.
pub(crate) fn upsert_streamed() {
    let hosts = Hosts::publish();
    let server = &hosts.server;
    let messages: Vec<Bytes> = hosts.updates.iter().map(|update| encoded(&enveloped(update.clone()))).collect();
    let (requests, body) = Messages::stream();
    let mut responses = server.runtime.block_on(server.call(CONNECT, Body::new(body)));
    let mut exchange = || {
        messages.iter().for_each(|message| requests.send(message.clone()).expect("an open stream"));
        server.runtime.block_on(async {
            for _ in &messages {
                responses.next().await.expect("a response");
            }
        });
        messages.len()
    };
    // The first requests subscribe the stream to each advertisement.
    exchange();
    count(|_| (), |()| exchange());
}

fn enveloped(update: pb::MatchmakingUpdateAdvertisementRequest) -> pb::MatchmakingConnectRequest {
    let core = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::UpdateAdvertisement.into()),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    pb::MatchmakingConnectRequest { core: Some(core) }
}

/// Reserves a seat in a session that a search has found. Each section has a party of its own.
pub(crate) fn reserve() {
    let hosts = Hosts::publish();
    let server = &hosts.server;
    let requests = |section: usize| -> Vec<Bytes> {
        let party = composition(&mut SplitMix64(23 + section as u64));
        let search = pb::MatchmakingSearchRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(party.clone()),
            ..Default::default()
        };
        let found = server.runtime.block_on(server.unary(SEARCH, &encoded(&search)));
        let found = pb::MatchmakingSearchResponse::decode(found).expect("a response");
        assert!(!found.candidates.is_empty(), "the search finds sessions");
        let request = |candidate: &pb::Candidate| pb::MatchmakingReserveRequest {
            advertisement_id: candidate.advertisement_id.clone(),
            idempotency_key: format!("party {section} at {}", candidate.advertisement_id),
            search_token: found.search_token.clone(),
            session_composition: Some(party.clone()),
            ..Default::default()
        };
        found.candidates.iter().map(|candidate| encoded(&request(candidate))).collect()
    };
    count(requests, |requests| {
        server.runtime.block_on(async {
            for request in requests.iter() {
                server.unary(RESERVE, request).await;
            }
        });
        requests.len()
    });
}
