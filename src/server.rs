//! Puts the parts together: binds, starts in order, stops in reverse.

pub mod accept;
pub mod conn_limit;
pub mod desk;
pub mod h2_frame_limit;
pub mod handshake;
pub mod limits;
mod metric_recorders;
pub mod port_server;
pub mod proxy_header;
mod routing;
mod run;
pub mod signal;
pub mod startup;
pub mod timeouts;
pub mod tls;
pub mod transport;

pub use run::{HealthCheckTls, is_serving, run_until_signal};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::api;
use crate::api::audit_layer::AuditLayer;
use crate::api::authorization::{AuthError, Authorizer};
use crate::api::client_address::{ClientAddressResolver, ResolveClientAddress};
use crate::api::consistency::ConsistencyChecker;
use crate::api::drain::Drain;
use crate::api::health::HealthState;
use crate::api::layer::call_report::RpcObserver;
use crate::api::matchmaking_engine::MatchmakingEngine;
use crate::api::operator::RulesetAdmin;
use crate::auth::authenticator::Authenticator;
use crate::auth::rate_limit::RateLimits;
use crate::clock::Clock;
use crate::console::{self, PageAccess};
use crate::engine::queues::QueueEngine;
use crate::telemetry::audit::AuditLog;

use accept::IncomingConnections;
use handshake::{ConnectionHandshaker, ProxySettings};
use limits::EdgeLimits;
use port_server::PortServer;
use tls::TlsAcceptorSource;

/// What a server is made of.
pub struct ServerDeps {
    /// Where clients come; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Where operators come.
    pub operator_listen: SocketAddr,
    /// Answers.
    pub engine: Arc<dyn MatchmakingEngine>,
    /// Where parties wait; none where a test stands in for the engine.
    pub queues: Option<QueueEngine>,
    /// The rulesets folder.
    pub rulesets: Arc<dyn RulesetAdmin>,
    /// Compares memory with the store.
    pub consistency_checker: Arc<dyn ConsistencyChecker>,
    /// All metrics, as OpenMetrics text.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The key set that players' credentials are verified with, for game servers.
    pub match_jwks: Arc<str>,
    /// Counts calls and connections.
    pub rpc_observer: Arc<dyn RpcObserver>,
    /// Tells who is calling; none: everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Looks past proxies.
    pub resolve_client_address: ResolveClientAddress,
    /// How often callers may ask.
    pub rate_limits: Arc<RateLimits>,
    /// Where what operators do is written down.
    pub audit_log: Arc<AuditLog>,
    /// Dice for lifetimes, so that clients of replicas started together do not all come back together.
    pub clock: Arc<dyn Clock>,
    /// Whether what is searched is fresh enough for clients to be sent here.
    pub is_fresh: FreshnessCheck,
    /// Limits on connections.
    pub limits: EdgeLimits,
    /// How connections to both ports are encrypted; none: they are not.
    pub tls: Option<Arc<TlsAcceptorSource>>,
    /// Who stands before the client port. Operators come to theirs by themselves.
    pub proxies: ProxySettings,
}

/// Says whether what is searched is fresh enough for clients to be sent here.
pub type FreshnessCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often freshness is looked at; balancers look about as often.
const FRESHNESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A server that runs until it is told to stop; dropping this stops it at once.
#[derive(Debug)]
pub struct RunningServer {
    /// Where clients come.
    pub address: SocketAddr,
    /// Where operators come.
    pub operator_address: SocketAddr,
    drain: Drain,
    /// Ends every port's accepting.
    stop_accepting: CancellationToken,
    /// Ends every connection.
    hard_stop: CancellationToken,
    port_tasks: Vec<JoinHandle<()>>,
    drain_delay: Duration,
    shutdown_grace: Duration,
}

impl Server {
    /// Binds both ports, then serves them. Healthy when it returns.
    pub async fn start(parts: ServerDeps) -> anyhow::Result<RunningServer> {
        let edge = Arc::new(parts.limits);
        let health = HealthState::not_serving().await;
        let drain = Drain::new(health.clone());
        let (stopping, hard_stop) = (CancellationToken::new(), CancellationToken::new());

        let bind = |listen, proxies, what: &'static str| {
            let (clock, observer) = (parts.clock.clone(), parts.rpc_observer.clone());
            let entrance =
                ConnectionHandshaker::new(edge.clone(), clock, observer, hard_stop.clone(), parts.tls.clone(), proxies);
            IncomingConnections::bind(listen, entrance).with_context(|| format!("bind the {what} port at {listen}"))
        };
        let operators = ProxySettings { require_proxy_header: false, ..parts.proxies.clone() };
        let clients = bind(parts.listen, parts.proxies, "client")?;
        let operators = bind(parts.operator_listen, operators, "operator")?;
        let (address, operator_address) = (clients.address(), operators.address());

        let callers = ClientAddressResolver::new(parts.resolve_client_address);
        let (engine, queues) = (parts.engine, parts.queues.clone());
        let routes = api::client_routes(engine, queues, callers.clone(), parts.rate_limits.clone(), &health, &drain)
            .context("describe the service")?;
        let desk = api::operator_routes(parts.rulesets, parts.consistency_checker, parts.queues, &health, &drain)
            .context("describe the operator's service")?;
        let (ready, is_fresh) = (drain.clone(), parts.is_fresh.clone());
        let is_ready = Arc::new(move || ready.is_serving() && is_fresh());
        let keeper = Authorizer::new(parts.authenticator);
        let pages = console::ConsolePages {
            render_metrics: parts.render_metrics,
            check_metrics_access: metrics_access_check(keeper.clone(), operator_address),
            is_ready,
            jwks: parts.match_jwks,
        };
        let desk = Routes::from(console::add_console_pages(desk.into_axum_router(), pages));

        let port = PortServer {
            limits: edge.clone(),
            observer: parts.rpc_observer,
            authorizer: keeper,
            drain: drain.clone(),
            audit_layer: AuditLayer {
                audit_log: parts.audit_log,
                rate_limits: parts.rate_limits,
                address_resolver: callers,
            },
            age_jitter: parts.clock.random_unit_f64(),
        };
        let ports = vec![
            tokio::spawn(port.clone().serve_clients(clients, routes, stopping.clone())),
            tokio::spawn(port.serve_operators(operators, desk, stopping.clone())),
        ];
        health.set_serving((parts.is_fresh)()).await;
        tokio::spawn(follow_freshness_with_health(parts.is_fresh, health, drain.clone()));
        let (linger, grace) = (edge.drain_delay, edge.shutdown_grace);
        Ok(RunningServer {
            address,
            operator_address,
            drain,
            stop_accepting: stopping,
            hard_stop,
            port_tasks: ports,
            drain_delay: linger,
            shutdown_grace: grace,
        })
    }
}

/// Who sees the metrics of the port at `address`.
fn metrics_access_check(keeper: Authorizer, address: SocketAddr) -> console::CheckPageAccess {
    Arc::new(move |headers, extensions| match keeper.authorize_metrics(address.ip(), headers, extensions) {
        Ok(()) => PageAccess::Allowed,
        Err(AuthError::Unauthenticated(_)) => PageAccess::Unauthenticated,
        Err(AuthError::RoleNotAllowed(_)) => PageAccess::Forbidden,
    })
}

/// Keeps health in step with freshness until the server drains.
async fn follow_freshness_with_health(is_fresh: FreshnessCheck, health: HealthState, drain: Drain) {
    let mut was_fresh = is_fresh();
    loop {
        tokio::select! {
            () = drain.stream_cancellation().cancelled() => return health.set_serving(false).await,
            () = tokio::time::sleep(FRESHNESS_CHECK_INTERVAL) => {}
        }
        let fresh = is_fresh();
        if fresh != std::mem::replace(&mut was_fresh, fresh) && drain.is_serving() {
            tracing::warn!(fresh, "freshness has changed: health says so");
            health.set_serving(fresh).await;
        }
    }
}

impl RunningServer {
    /// The first half of a shutdown: not serving any more, streams end, calls are still answered.
    pub async fn drain(&self) {
        self.drain.start().await;
    }

    /// Stops in good order: drains, lingers for balancers to look away, closes the ports, lets calls finish, and after
    /// the grace period closes what is still open (R11).
    pub async fn shutdown(mut self) {
        self.drain().await;
        let ports = std::mem::take(&mut self.port_tasks);
        let stopping = self.stop_accepting.clone();
        let linger = self.drain_delay;
        let in_order = async {
            tokio::time::sleep(linger).await;
            stopping.cancel();
            for port in ports {
                // A port's task ends with its last connection; that it panicked is in the log already.
                drop(port.await);
            }
        };
        if tokio::time::timeout(self.shutdown_grace, in_order).await.is_err() {
            tracing::warn!("connections were still open after the grace period; closing them");
        }
        self.hard_stop.cancel();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop_accepting.cancel();
        self.hard_stop.cancel();
    }
}
