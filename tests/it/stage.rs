//! Real doors on free ports with a scripted matchmaker behind them, and the ways in.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use fireteam::api::consistency::ConsistencyChecker;
use fireteam::api::layer::call_report::{RpcObserver, status_code_name};
use fireteam::api::operator::{ReloadReport, RulesetAdmin, RulesetListing, RulesetProblem};
use fireteam::auth::rate_limit::RateLimits;
use fireteam::clock::Clock;
use fireteam::domain::id::{RulesetHash, SetId};
use fireteam::domain::time::UnixMs;
use fireteam::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use fireteam::engine::error::EngineError;
use fireteam::server::handshake::ProxySettings;
use fireteam::server::limits::EdgeLimits;
use fireteam::server::tls::TlsAcceptorSource;
use fireteam::server::{RunningServer, Server, ServerDeps};
use fireteam::telemetry::audit::AuditLog;

use crate::plain::matchmaking_service_client::MatchmakingServiceClient;
use crate::plain::{self, operator_service_client::OperatorServiceClient};
use crate::scripted::{SET, Scripted, id};

/// Longer than anything here should take; only a broken server makes a test wait for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server at work.
pub(crate) struct Stage {
    pub(crate) running: Option<RunningServer>,
    pub(crate) address: SocketAddr,
    pub(crate) operator_address: SocketAddr,
    pub(crate) matchmaker: Arc<Scripted>,
    pub(crate) counted: Arc<Counted>,
}

/// Calls as they were counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) calls: Mutex<Vec<(&'static str, &'static str)>>,
    pub(crate) turned_away: Mutex<Vec<&'static str>>,
    changed: Notify,
}

impl Counted {
    /// Waits until a call of `method` has ended with `code`.
    pub(crate) async fn wait_for(&self, method: &'static str, code: &'static str) {
        let heard = async {
            loop {
                let changed = self.changed.notified();
                if self.calls.lock().unwrap().contains(&(method, code)) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.expect("the call is counted");
    }

    /// Waits until a connection has been turned away because of `why`.
    pub(crate) async fn wait_for_turned_away(&self, why: &'static str) {
        let heard = async {
            loop {
                let changed = self.changed.notified();
                if self.turned_away.lock().unwrap().contains(&why) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, heard).await.expect("the connection is counted");
    }
}

impl RpcObserver for Counted {
    fn call_finished(&self, method: &'static str, code: Code, _: Duration) {
        self.calls.lock().unwrap().push((method, status_code_name(code)));
        self.changed.notify_waiters();
    }

    fn connection_rejected(&self, why: &'static str) {
        self.turned_away.lock().unwrap().push(why);
        self.changed.notify_waiters();
    }
}

struct StillClock;

impl Clock for StillClock {
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

struct Desk;

#[tonic::async_trait]
impl RulesetAdmin for Desk {
    fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<RulesetProblem>> {
        match xml {
            "<Ruleset/>" => Ok(RulesetHash(5)),
            _ => Err(vec![RulesetProblem {
                file_name: file_name.into(),
                line: 2,
                column: 3,
                message: "is no ruleset".into(),
            }]),
        }
    }

    async fn reload(&self) -> ReloadReport {
        ReloadReport { changes: vec![(SetId(SET), Some(RulesetHash(1)), Some(RulesetHash(2)))], problems: vec![] }
    }

    fn list(&self) -> Vec<RulesetListing> {
        vec![RulesetListing {
            name: "duel".into(),
            set_id: SetId(SET),
            hash: RulesetHash(2),
            file_name: "duel.xml".into(),
            is_current: false,
            loaded_at: UnixMs(77),
            problems: vec![],
        }]
    }
}

#[tonic::async_trait]
impl ConsistencyChecker for Desk {
    async fn check_consistency(&self, listed_max: usize) -> Result<ConsistencyReport, EngineError> {
        let kinds = vec![InconsistencyKind::Reservations, InconsistencyKind::Index];
        let listed = (0..listed_max.min(3)).map(|n| Inconsistency { id: id(n as u8), kinds: kinds.clone() }).collect();
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

impl Stage {
    /// A server with ordinary limits.
    pub(crate) async fn open() -> Self {
        Self::with_edge(EdgeLimits::default()).await
    }

    /// A server with limits that a test can reach.
    pub(crate) async fn with_edge(edge: EdgeLimits) -> Self {
        Self::with_entrance(edge, None, ProxySettings::none()).await
    }

    /// A server that encrypts, or that stands behind proxies.
    pub(crate) async fn with_entrance(
        edge: EdgeLimits,
        tls: Option<Arc<TlsAcceptorSource>>,
        proxies: ProxySettings,
    ) -> Self {
        let (matchmaker, counted) = (Scripted::new(), Arc::new(Counted::default()));
        let any = "127.0.0.1:0".parse().unwrap();
        let parts = ServerDeps {
            listen: any,
            operator_listen: any,
            engine: matchmaker.clone(),
            queues: None,
            rulesets: Arc::new(Desk),
            consistency_checker: Arc::new(Desk),
            render_metrics: Arc::new(|| "# EOF\n".into()),
            match_jwks: "{\"keys\":[]}\n".into(),
            rpc_observer: counted.clone(),
            authenticator: None,
            resolve_client_address: Arc::new(|peer, hops| hops.last().and_then(|hop| hop.parse().ok()).unwrap_or(peer)),
            rate_limits: Arc::new(RateLimits::unlimited()),
            audit_log: Arc::new(AuditLog::open(None, Box::new(|| UnixMs(1_000))).unwrap()),
            clock: Arc::new(StillClock),
            is_fresh: Arc::new(|| true),
            limits: edge,
            tls,
            proxies,
        };
        let running = Server::start(parts).await.unwrap();
        let (address, operator_address) = (running.address, running.operator_address);
        Self { running: Some(running), address, operator_address, matchmaker, counted }
    }

    /// A connection to the client port.
    pub(crate) async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect().await.unwrap()
    }

    /// A game client.
    pub(crate) async fn client(&self) -> MatchmakingServiceClient<Channel> {
        MatchmakingServiceClient::new(self.channel().await)
    }

    /// An operator.
    pub(crate) async fn operator(&self) -> OperatorServiceClient<Channel> {
        let at = format!("http://{}", self.operator_address);
        OperatorServiceClient::new(Endpoint::from_shared(at).unwrap().connect().await.unwrap())
    }

    /// A bare connection to the client port.
    pub(crate) async fn socket(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Stops the server in good order, and tells how long it took.
    pub(crate) async fn shut_down(&mut self) -> Duration {
        let began = tokio::time::Instant::now();
        let stopped = self.running.take().unwrap().shutdown();
        tokio::time::timeout(PATIENCE, stopped).await.expect("the server stops");
        began.elapsed()
    }
}

/// A search by one player.
pub(crate) fn search() -> plain::MatchmakingSearchRequest {
    plain::MatchmakingSearchRequest {
        session_composition: Some(composition()),
        matchmaking_set_id: Some(SET),
        ..Default::default()
    }
}

/// One player's session.
pub(crate) fn composition() -> plain::SessionCompositionData {
    let player = plain::PlayerData { user_id: "ann".into(), skill: Some(12.5), ..Default::default() };
    plain::SessionCompositionData { players: vec![player], ..Default::default() }
}

/// An update that publishes.
pub(crate) fn publish() -> plain::MatchmakingUpdateAdvertisementRequest {
    plain::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(composition()),
        matchmaking_set_id: Some(SET),
        ..Default::default()
    }
}
