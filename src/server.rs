//! Startup and shutdown of a server: binds both ports, starts tasks, drains, stops in reverse order.

pub mod accept;
pub mod conn_limit;
mod counted_events;
mod disk_space;
pub mod grpc_web;
pub mod h2_frame_limit;
pub mod handshake;
pub mod host_check;
pub mod limits;
mod metric_recorders;
mod own_beacon;
pub mod port_server;
mod process_usage;
pub mod proxy_header;
pub mod run;
pub mod signal;
pub mod startup;
mod tcp_round_trip;
pub mod timeouts;
pub mod tls;
pub mod token_bucket;
pub mod transport;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::api::authorization::{AuthError, Authorizer, VerificationRateLimit};
use crate::api::client_address::{ClientAddressResolver, ResolveClientAddress};
use crate::api::connect_protocol::methods::ConnectMethods;
use crate::api::consistency::ConsistencyChecker;
use crate::api::drain::Drain;
use crate::api::health::HealthState;
use crate::api::layer::call_reporter::RpcObserver;
use crate::api::matchmaking_engine::MatchmakingEngine;
use crate::api::operator::RulesetAdmin;
use crate::api::rate_limits_and_audit::RateLimitsAndAudit;
use crate::auth::authenticator::Authenticator;
use crate::auth::rate_limit::RateLimits;
use crate::clock::Clock;
use crate::console::{self, PageAccessDecision};
use crate::engine::beacons::BeaconEngine;
use crate::engine::queues::QueueEngine;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::audit::AuditLog;
use crate::telemetry::label::TaskLabel;

use accept::IncomingConnections;
use grpc_web::CorsOrigins;
use handshake::{ConnectionHandshaker, ProxySettings};
use host_check::OperatorHosts;
use limits::EdgeLimits;
use port_server::PortServer;
use tls::ReloadableTlsConfig;

/// Dependencies of a server.
pub struct ServerDeps {
    /// Addresses of the client port; the first that can be bound is used. Port number 0 chooses a free port.
    pub listen: Vec<SocketAddr>,
    /// Addresses of the operator port; the first that can be bound is used. Port number 0 chooses a free port.
    pub operator_listen: Vec<SocketAddr>,
    /// Engine behind the Matchmaking service.
    pub engine: Arc<dyn MatchmakingEngine>,
    /// Queues and ratings; `None` in tests that replace the engine.
    pub queues: Option<QueueEngine>,
    /// Beacons and receipts; `None` in tests that replace the engine.
    pub beacons: Option<BeaconEngine>,
    /// Samples the least round trips of connections of clients.
    pub observes_tcp_floor: bool,
    /// Ruleset administration for the Operator service.
    pub rulesets: Arc<dyn RulesetAdmin>,
    /// Compares memory with the store.
    pub consistency_checker: Arc<dyn ConsistencyChecker>,
    /// Renders all metrics as OpenMetrics text.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// JWKS with the public keys for verifying match credentials.
    pub match_jwks: Arc<str>,
    /// Names of the operator port, besides addresses and `localhost`.
    pub operator_hosts: OperatorHosts,
    /// Origins whose web pages may call the client port. Pages of other origins never reach the operator port.
    pub cors_origins: CorsOrigins,
    /// Warnings for operators in `/readyz`, one line each.
    pub readiness_notes: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Counts calls and connections.
    pub rpc_observer: Arc<dyn RpcObserver>,
    /// Authenticates callers; `None`: authentication is off, and each call is allowed.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Derives the client's address behind trusted proxies.
    pub resolve_client_address: ResolveClientAddress,
    /// Rate limits per caller.
    pub rate_limits: Arc<RateLimits>,
    /// Log of operator actions.
    pub audit_log: Arc<AuditLog>,
    /// Source of jitter for connection lifetimes, so that clients of replicas started together do not reconnect
    /// together.
    pub clock: Arc<dyn Clock>,
    /// Whether the data searched is fresh enough to serve clients, and the store accepts writes.
    pub is_fresh: HealthCheckFn,
    /// Supervisor of the server's tasks. After its failure the server is neither ready nor alive.
    pub supervisor: TaskSupervisor,
    /// Connection limits and timeouts.
    pub limits: EdgeLimits,
    /// TLS for both ports; `None`: plaintext.
    pub tls: Option<Arc<ReloadableTlsConfig>>,
    /// Proxies in front of the client port. The operator port expects no PROXY header.
    pub proxies: ProxySettings,
}

/// Whether the data searched is fresh enough to serve clients, and the store accepts writes.
pub type HealthCheckFn = Arc<dyn Fn() -> bool + Send + Sync>;

/// Interval of freshness checks, about that of load balancers' health checks.
const FRESHNESS_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Entry point for starting a server.
#[derive(Debug)]
pub struct Server;

/// Running server; dropping it stops it at once.
#[derive(Debug)]
pub struct RunningServer {
    /// Bound address of the client port.
    pub address: SocketAddr,
    /// Bound address of the operator port.
    pub operator_address: SocketAddr,
    drain: Drain,
    /// Stops accepting on both ports.
    stop_accepting: CancellationToken,
    /// Closes all connections.
    hard_stop: CancellationToken,
    port_tasks: Vec<JoinHandle<()>>,
    drain_delay: Duration,
    shutdown_grace: Duration,
}

impl Server {
    /// Binds both ports and serves them. The server is ready when this returns. Fails if a port cannot be bound.
    pub async fn start(deps: ServerDeps) -> anyhow::Result<RunningServer> {
        let limits = Arc::new(deps.limits);
        let health = HealthState::new_not_serving().await;
        let drain = Drain::new(health.clone());
        let (stop_accepting, hard_stop) = (CancellationToken::new(), CancellationToken::new());
        let bind = |listen: &[SocketAddr], proxies, port_name: &'static str, observes_tcp_floor| {
            let (clock, observer, tls) = (deps.clock.clone(), deps.rpc_observer.clone(), deps.tls.clone());
            let (limits, hard_stop) = (limits.clone(), hard_stop.clone());
            let handshaker = ConnectionHandshaker::new(limits, clock, observer, hard_stop, tls, proxies)
                .with_tcp_floors(observes_tcp_floor);
            IncomingConnections::bind(listen, handshaker)
                .with_context(|| format!("bind the {port_name} port at {}", join_addresses(listen)))
        };
        let operator_proxies = ProxySettings { require_proxy_header: false, ..deps.proxies.clone() };
        let clients = bind(&deps.listen, deps.proxies, "client", deps.observes_tcp_floor)?;
        let operators = bind(&deps.operator_listen, operator_proxies, "operator", false)?;
        let (address, operator_address) = (clients.address(), operators.address());
        let address_resolver = ClientAddressResolver::new(deps.resolve_client_address);
        let (engine, queues, rates) = (deps.engine, deps.queues.clone(), deps.rate_limits.clone());
        let client_routes =
            api::client_routes(engine, queues, deps.beacons, address_resolver.clone(), rates, &health, &drain)
                .context("register reflection of the client port")?;
        let (rulesets, consistency_checker, authenticator) =
            (deps.rulesets, deps.consistency_checker, deps.authenticator.clone());
        let operator_routes =
            api::operator_routes(rulesets, consistency_checker, deps.queues, authenticator, &health, &drain)
                .context("register reflection of the operator port")?;
        let is_fresh = alive_and_fresh_check(&deps.supervisor, deps.is_fresh);
        let authorizer = authorizer(deps.authenticator, &deps.rate_limits, &address_resolver);
        let pages = console::ConsolePages {
            render_metrics: deps.render_metrics,
            check_metrics_access: metrics_access_check(authorizer.clone(), operator_address),
            is_ready: readiness_check(&drain, is_fresh.clone()),
            readiness_notes: deps.readiness_notes,
            is_alive: liveness_check(&deps.supervisor),
        };
        let client_routes = console::add_public_pages(client_routes.into_axum_router(), deps.match_jwks.clone());
        let operator_routes = console::add_public_pages(
            console::add_console_pages(operator_routes.into_axum_router(), pages),
            deps.match_jwks,
        );
        let port_server = PortServer {
            limits: limits.clone(),
            observer: deps.rpc_observer,
            authorizer,
            drain: drain.clone(),
            rate_limits_and_audit: RateLimitsAndAudit::new(deps.audit_log, deps.rate_limits, address_resolver),
            connect_methods: Arc::new(ConnectMethods::of_client_port().context("read the client port's methods")?),
            age_jitter: deps.clock.random_unit_f64(),
        };
        let operator_methods = ConnectMethods::of_operator_port().context("read the operator port's methods")?;
        let of_operators = port_server.for_operators(deps.operator_hosts, operator_methods);
        let serve_clients =
            port_server.serve_clients(clients, client_routes.into(), deps.cors_origins, stop_accepting.clone());
        let serve_operators = of_operators.serve(operators, operator_routes.into(), stop_accepting.clone());
        let port_tasks = spawn_port_tasks(&deps.supervisor, serve_clients, serve_operators);
        health.set_serving_status(is_fresh()).await;
        spawn_health_task(is_fresh, health, &drain, &deps.supervisor);
        Ok(RunningServer {
            address,
            operator_address,
            drain,
            stop_accepting,
            hard_stop,
            port_tasks,
            drain_delay: limits.drain_delay,
            shutdown_grace: limits.shutdown_grace,
        })
    }
}

/// `127.0.0.1:1 or [::1]:1`.
fn join_addresses(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// Check of callers, with a limit of the signatures that are verified for one address.
fn authorizer(
    authenticator: Option<Arc<Authenticator>>,
    rate_limits: &Arc<RateLimits>,
    address_resolver: &ClientAddressResolver,
) -> Authorizer {
    let (rate_limits, address_resolver) = (rate_limits.clone(), address_resolver.clone());
    Authorizer::new(authenticator).with_verification_rate_limit(VerificationRateLimit { rate_limits, address_resolver })
}

/// Access check for the metrics of the operator port at `address`.
fn metrics_access_check(authorizer: Authorizer, address: SocketAddr) -> console::CheckPageAccess {
    Arc::new(move |headers, extensions| match authorizer.authorize_metrics(address.ip(), headers, extensions) {
        Ok(()) => PageAccessDecision::Allowed,
        Err(AuthError::Unauthenticated(_) | AuthError::RateLimited(_)) => PageAccessDecision::Unauthenticated,
        Err(AuthError::RoleNotAllowed(_)) => PageAccessDecision::Forbidden,
    })
}

/// Whether no task has failed that cannot be restarted.
fn liveness_check(supervisor: &TaskSupervisor) -> HealthCheckFn {
    let supervisor = supervisor.clone();
    Arc::new(move || supervisor.failure().is_none())
}

/// Whether the server serves and its data is fresh.
fn readiness_check(drain: &Drain, is_fresh: HealthCheckFn) -> HealthCheckFn {
    let drain = drain.clone();
    Arc::new(move || drain.is_serving() && is_fresh())
}

/// Whether the server is alive and its data is fresh.
fn alive_and_fresh_check(supervisor: &TaskSupervisor, is_fresh: HealthCheckFn) -> HealthCheckFn {
    let is_alive = liveness_check(supervisor);
    Arc::new(move || is_alive() && is_fresh())
}

/// Starts the tasks of both ports. The server cannot go on without either.
fn spawn_port_tasks(
    supervisor: &TaskSupervisor,
    serve_clients: impl Future<Output = ()> + Send + 'static,
    serve_operators: impl Future<Output = ()> + Send + 'static,
) -> Vec<JoinHandle<()>> {
    vec![
        supervisor.spawn_critical(TaskLabel::ClientPort, serve_clients),
        supervisor.spawn_critical(TaskLabel::OperatorPort, serve_operators),
    ]
}

fn spawn_health_task(is_fresh: HealthCheckFn, health: HealthState, drain: &Drain, supervisor: &TaskSupervisor) {
    let (of_task, failed) = (drain.clone(), supervisor.clone());
    let start = move || follow_freshness_with_health(is_fresh.clone(), health.clone(), of_task.clone(), failed.clone());
    drop(supervisor.spawn_restarting(TaskLabel::Health, drain.stream_cancellation(), start));
}

/// Reports NOT_SERVING while the data is stale or the store accepts no writes, until the server drains; at once when a
/// task has failed.
async fn follow_freshness_with_health(
    is_fresh: HealthCheckFn,
    health: HealthState,
    drain: Drain,
    supervisor: TaskSupervisor,
) {
    let mut was_fresh = is_fresh();
    health.set_serving_status(was_fresh && drain.is_serving()).await;
    loop {
        tokio::select! {
            () = drain.stream_cancellation().cancelled() => return health.set_serving_status(false).await,
            () = supervisor.wait_for_failure() => return health.set_serving_status(false).await,
            () = tokio::time::sleep(FRESHNESS_CHECK_INTERVAL) => {}
        }
        let is_fresh_now = is_fresh();
        if is_fresh_now != std::mem::replace(&mut was_fresh, is_fresh_now) && drain.is_serving() {
            tracing::warn!(is_fresh = is_fresh_now, "health status changed with the store");
            health.set_serving_status(is_fresh_now).await;
        }
    }
}

impl RunningServer {
    /// First half of a shutdown: reports NOT_SERVING and ends streams. Unary calls are still served.
    pub async fn start_drain(&self) {
        self.drain.start().await;
    }

    /// Stops gracefully: drains, waits for load balancers to notice, stops accepting, lets calls finish. After the
    /// grace period, closes the remaining connections.
    pub async fn shutdown(mut self) {
        self.start_drain().await;
        let port_tasks = std::mem::take(&mut self.port_tasks);
        let stop_accepting = self.stop_accepting.clone();
        let drain_delay = self.drain_delay;
        let graceful = async {
            tokio::time::sleep(drain_delay).await;
            stop_accepting.cancel();
            for port_task in port_tasks {
                // The task ends with the port's last connection. If it panicked, the panic is in the log.
                let _ = port_task.await;
            }
        };
        if tokio::time::timeout(self.shutdown_grace, graceful).await.is_err() {
            tracing::warn!("shutdown grace period exceeded; open connections closed");
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
