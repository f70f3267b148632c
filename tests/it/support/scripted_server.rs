//! A server on free ports with a scripted engine behind it, and clients of it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use fireteam::api::consistency::ConsistencyChecker;
use fireteam::api::layer::call_reporter::{RpcObserver, status_code_name};
use fireteam::api::matchmaking_engine::MatchmakingEngine;
use fireteam::api::operator::RulesetAdmin;
use fireteam::auth::rate_limit::RateLimits;
use fireteam::clock::Clock;
use fireteam::domain::id::{RulesetHash, SetId};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::load::RulesetLoad;
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use fireteam::engine::error::{EngineError, RetireObstacle, SwapObstacle};
use fireteam::engine::rulesets::{
    CheckRulesetAnswer, ReloadReport, RetiredSetCounts, RulesetListing, RulesetProblem, RulesetSwap, SwapReport,
};
use fireteam::server::grpc_web::CorsOrigins;
use fireteam::server::handshake::ProxySettings;
use fireteam::server::host_check::OperatorHosts;
use fireteam::server::limits::EdgeLimits;
use fireteam::server::tls::ReloadableTlsConfig;
use fireteam::server::{RunningServer, Server, ServerDeps};
use fireteam::supervisor::TaskSupervisor;
use fireteam::telemetry::audit::AuditLog;
use fireteam::telemetry::trace::CallSpan;

use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::generated_client::{self, operator_service_client::OperatorServiceClient};
use crate::support::scripted_engine::{SET_ID, ScriptedEngine, advertisement_id};

/// Time limit of a wait. Only a broken server makes a test wait that long.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A running server with a scripted engine.
pub(crate) struct ScriptedServer {
    pub(crate) server: Option<RunningServer>,
    pub(crate) address: SocketAddr,
    pub(crate) operator_address: SocketAddr,
    pub(crate) engine: Arc<ScriptedEngine>,
    pub(crate) observer: Arc<RecordingObserver>,
}

/// Records finished calls and rejected connections.
#[derive(Debug, Default)]
pub(crate) struct RecordingObserver {
    pub(crate) calls: Mutex<Vec<(&'static str, &'static str)>>,
    pub(crate) rejected_connections: Mutex<Vec<&'static str>>,
    changed: Notify,
}

impl RecordingObserver {
    /// Waits until a call of `method` has ended with `code`.
    pub(crate) async fn wait_for_call(&self, method: &'static str, code: &'static str) {
        let recorded = async {
            loop {
                let changed = self.changed.notified();
                if self.calls.lock().unwrap().contains(&(method, code)) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, recorded).await.expect("the call is recorded");
    }

    /// Waits until a connection has been rejected for `reason`.
    pub(crate) async fn wait_for_rejection(&self, reason: &'static str) {
        let recorded = async {
            loop {
                let changed = self.changed.notified();
                if self.rejected_connections.lock().unwrap().contains(&reason) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, recorded).await.expect("the rejection is recorded");
    }
}

impl RpcObserver for RecordingObserver {
    fn call_finished(&self, method: &'static str, code: Code, _: Duration, _: Option<&CallSpan>) {
        self.calls.lock().unwrap().push((method, status_code_name(code)));
        self.changed.notify_waiters();
    }

    fn connection_rejected(&self, reason: &'static str) {
        self.rejected_connections.lock().unwrap().push(reason);
        self.changed.notify_waiters();
    }
}

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> UnixMs {
        UnixMs(1_000)
    }

    fn random_unit_f64(&self) -> f64 {
        0.5
    }

    fn random_bytes(&self) -> [u8; 16] {
        [4; 16]
    }
}

struct StubOperatorBackend;

#[tonic::async_trait]
impl RulesetAdmin for StubOperatorBackend {
    fn check(&self, file_name: &str, xml: &str) -> Result<CheckRulesetAnswer, Vec<RulesetProblem>> {
        match xml {
            "<Ruleset/>" => Ok(CheckRulesetAnswer { hash: Some(RulesetHash(5)), rating_change: String::new() }),
            _ => Err(vec![RulesetProblem {
                file_name: file_name.into(),
                line: 2,
                column: 3,
                message: "is not a ruleset".into(),
            }]),
        }
    }

    fn parse(&self, _: &str, _: &str) -> Result<Option<Arc<Ruleset>>, Vec<RulesetProblem>> {
        Ok(None)
    }

    fn find(&self, _: SetId, _: Option<RulesetHash>) -> Option<Arc<Ruleset>> {
        None
    }

    async fn reload(&self, _: &str) -> ReloadReport {
        let changes = vec![(SetId(SET_ID), Some(RulesetHash(1)), Some(RulesetHash(2)))];
        ReloadReport { changes, ..ReloadReport::default() }
    }

    fn list_rulesets(&self) -> Vec<RulesetListing> {
        vec![RulesetListing {
            name: "duel".into(),
            set_id: SetId(SET_ID),
            hash: RulesetHash(2),
            file_name: "duel.xml".into(),
            is_current: false,
            load: Some(RulesetLoad::new(UnixMs(77), "operator ana (studio)")),
            problems: vec![],
            ratings: None,
            retires_in_ms: Some(9),
            live_tickets: 3,
            live_matches: 4,
        }]
    }

    async fn swap(&self, swap: &RulesetSwap, _: &str) -> Result<SwapReport, EngineError> {
        let changes = vec![(swap.set_id, Some(swap.expected_hash), Some(RulesetHash(2)))];
        let rating_changes = vec![(swap.set_id, "the rating scale changes".to_owned())];
        let load = ReloadReport { changes, rating_changes, ..ReloadReport::default() };
        Ok(SwapReport { file_name: "duel.xml".into(), load })
    }

    fn swap_obstacle(&self) -> Option<SwapObstacle> {
        Some(SwapObstacle::BundledRulesets)
    }

    async fn retire_set(&self, set_id: SetId, force: bool) -> Result<RetiredSetCounts, EngineError> {
        if !force {
            let obstacle = RetireObstacle::WaitingTickets;
            return Err(EngineError::CannotRetireSet { set_id, live_tickets: 3, live_matches: 4, obstacle });
        }
        Ok(RetiredSetCounts { ended_tickets: 3, live_matches: 4 })
    }
}

#[tonic::async_trait]
impl ConsistencyChecker for StubOperatorBackend {
    async fn check_consistency(&self, listed_max: usize) -> Result<ConsistencyReport, EngineError> {
        let kinds = vec![InconsistencyKind::Reservations, InconsistencyKind::Index];
        let listed = (0..listed_max.min(3))
            .map(|n| Inconsistency { id: advertisement_id(n as u8), kinds: kinds.clone() })
            .collect();
        Ok(ConsistencyReport {
            advertisement_count: 7,
            reservation_count: 6,
            inconsistency_count: 3,
            unwritten_count: 2,
            changing_count: 1,
            inconsistencies: listed,
            is_complete: false,
            duration_ms: 5,
        })
    }
}

/// Parts of a server on free ports in front of this engine, without queues, authentication, TLS and proxies. It believes forwarded addresses.
pub(crate) fn server_deps(engine: Arc<dyn MatchmakingEngine>, rpc_observer: Arc<dyn RpcObserver>) -> ServerDeps {
    let any_port = "127.0.0.1:0".parse().unwrap();
    ServerDeps {
        listen: vec![any_port],
        operator_listen: vec![any_port],
        engine,
        queues: None,
        beacons: None,
        observes_tcp_floor: false,
        rulesets: Arc::new(StubOperatorBackend),
        consistency_checker: Arc::new(StubOperatorBackend),
        render_metrics: Arc::new(|| "# EOF\n".into()),
        match_jwks: "{\"keys\":[]}\n".into(),
        operator_hosts: OperatorHosts::IpLocalhostOrNames(Vec::new()),
        cors_origins: CorsOrigins::Any,
        readiness_notes: Arc::new(Vec::new),
        rpc_observer,
        authenticator: None,
        resolve_client_address: Arc::new(|peer, lines| {
            let hop = lines.last().and_then(|line| line.rsplit(|byte| *byte == b',').next());
            let hop = hop.and_then(|hop| std::str::from_utf8(hop).ok());
            hop.and_then(|hop| hop.trim().parse().ok()).unwrap_or(peer)
        }),
        rate_limits: Arc::new(RateLimits::unlimited()),
        audit_log: Arc::new(AuditLog::open(None, Box::new(|| UnixMs(1_000))).unwrap()),
        clock: Arc::new(FixedClock),
        is_fresh: Arc::new(|| true),
        supervisor: TaskSupervisor::default(),
        limits: EdgeLimits::default(),
        tls: None,
        proxies: ProxySettings::without_proxies(),
    }
}

impl ScriptedServer {
    /// Starts a server with default limits.
    pub(crate) async fn start() -> Self {
        Self::start_with_limits(EdgeLimits::default()).await
    }

    /// Starts a server with these limits.
    pub(crate) async fn start_with_limits(edge: EdgeLimits) -> Self {
        Self::start_with_tls_and_proxies(edge, None, ProxySettings::without_proxies()).await
    }

    /// Starts a server with TLS or behind proxies.
    pub(crate) async fn start_with_tls_and_proxies(
        edge: EdgeLimits,
        tls: Option<Arc<ReloadableTlsConfig>>,
        proxies: ProxySettings,
    ) -> Self {
        let (matchmaker, counted) = (ScriptedEngine::new(), Arc::new(RecordingObserver::default()));
        let parts = ServerDeps { limits: edge, tls, proxies, ..server_deps(matchmaker.clone(), counted.clone()) };
        let running = Server::start(parts).await.unwrap();
        let (address, operator_address) = (running.address, running.operator_address);
        Self { server: Some(running), address, operator_address, engine: matchmaker, observer: counted }
    }

    /// gRPC channel to the client port.
    pub(crate) async fn client_channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// Client of the matchmaking service.
    pub(crate) async fn matchmaking_client(&self) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.client_channel().await)
    }

    /// Client of the operator service.
    pub(crate) async fn operator_client(&self) -> OperatorServiceClient<Channel> {
        let uri = format!("http://{}", self.operator_address);
        OperatorServiceClient::new(Endpoint::from_shared(uri).unwrap().connect().await.unwrap())
    }

    /// TCP connection to the client port.
    pub(crate) async fn raw_connection(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Shuts the server down gracefully and returns the time it took.
    pub(crate) async fn shutdown(&mut self) -> Duration {
        let started = tokio::time::Instant::now();
        let stopped = self.server.take().unwrap().shutdown();
        tokio::time::timeout(TEST_TIMEOUT, stopped).await.expect("shutdown in time");
        started.elapsed()
    }
}

/// Search request of one player.
pub(crate) fn search_request() -> generated_client::MatchmakingSearchRequest {
    generated_client::MatchmakingSearchRequest {
        session_composition: Some(session_composition()),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    }
}

/// Session of one player.
pub(crate) fn session_composition() -> generated_client::SessionCompositionData {
    let player = generated_client::PlayerData { user_id: "ann".into(), skill: Some(12.5), ..Default::default() };
    generated_client::SessionCompositionData { players: vec![player], ..Default::default() }
}

/// Update request that creates an advertisement.
pub(crate) fn publish_request() -> generated_client::MatchmakingUpdateAdvertisementRequest {
    generated_client::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(session_composition()),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    }
}
