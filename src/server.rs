//! Puts the parts together: binds, starts in order, stops in reverse.

pub mod assemble;
pub mod desk;
pub mod edge;
pub mod entrance;
pub mod frames;
mod front;
pub mod gate;
pub mod guarded;
pub mod incoming;
pub mod line;
mod meters;
pub mod port;
pub mod proxy_header;
mod run;
pub mod signal;
pub mod tls;

pub use run::{Known, is_serving, run};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::api;
use crate::api::admission::{Denied, Keeper};
use crate::api::audit::Auditor;
use crate::api::caller::{Callers, ClientAddress};
use crate::api::drain::Drain;
use crate::api::health::Health;
use crate::api::layer::report::RpcObserver;
use crate::api::matchmaker::Matchmaker;
use crate::api::operator::RulesetsDesk;
use crate::api::oversight::Oversight;
use crate::auth::authenticator::Authenticator;
use crate::auth::quota::Quotas;
use crate::clock::Clock;
use crate::console::{self, Sight};
use crate::engine::queues::Queues;
use crate::telemetry::audit::AuditLog;

use edge::Edge;
use entrance::{Entrance, Proxies};
use incoming::Incoming;
use port::Port;
use tls::Tls;

/// What a server is made of.
pub struct Parts {
    /// Where clients come; port 0 takes any that is free.
    pub listen: SocketAddr,
    /// Where operators come.
    pub operator_listen: SocketAddr,
    /// Answers.
    pub engine: Arc<dyn Matchmaker>,
    /// Where parties wait; none where a test stands in for the engine.
    pub queues: Option<Queues>,
    /// The rulesets folder.
    pub rulesets: Arc<dyn RulesetsDesk>,
    /// Compares memory with the store.
    pub auditor: Arc<dyn Auditor>,
    /// All metrics, as OpenMetrics text.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// The key set that players' credentials are verified with, for game servers.
    pub match_keys: Arc<str>,
    /// Counts calls and connections.
    pub observer: Arc<dyn RpcObserver>,
    /// Tells who is calling; none: everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Looks past proxies.
    pub client_address: ClientAddress,
    /// How often callers may ask.
    pub quotas: Arc<Quotas>,
    /// Where what operators do is written down.
    pub audit: Arc<AuditLog>,
    /// Dice for lifetimes, so that clients of replicas started together do not all come back together.
    pub clock: Arc<dyn Clock>,
    /// Whether what is searched is fresh enough for clients to be sent here.
    pub is_fresh: IsFresh,
    /// Limits on connections.
    pub edge: Edge,
    /// How connections to both ports are encrypted; none: they are not.
    pub tls: Option<Arc<Tls>>,
    /// Who stands before the client port. Operators come to theirs by themselves.
    pub proxies: Proxies,
}

/// Says whether what is searched is fresh enough for clients to be sent here.
pub type IsFresh = Arc<dyn Fn() -> bool + Send + Sync>;

/// How often freshness is looked at; balancers look about as often.
const FRESHNESS_EVERY: Duration = Duration::from_secs(1);

/// Starts servers.
#[derive(Debug)]
pub struct Server;

/// A server that runs until it is told to stop; dropping this stops it at once.
#[derive(Debug)]
pub struct Running {
    /// Where clients come.
    pub address: SocketAddr,
    /// Where operators come.
    pub operator_address: SocketAddr,
    drain: Drain,
    /// Ends every port's accepting.
    stopping: CancellationToken,
    /// Ends every connection.
    hard_stop: CancellationToken,
    ports: Vec<JoinHandle<()>>,
    linger: Duration,
    grace: Duration,
}

impl Server {
    /// Binds both ports, then serves them. Healthy when it returns.
    pub async fn start(parts: Parts) -> anyhow::Result<Running> {
        let edge = Arc::new(parts.edge);
        let health = Health::starting().await;
        let drain = Drain::new(health.clone());
        let (stopping, hard_stop) = (CancellationToken::new(), CancellationToken::new());

        let bind = |listen, proxies, what: &'static str| {
            let (clock, observer) = (parts.clock.clone(), parts.observer.clone());
            let entrance = Entrance::new(edge.clone(), clock, observer, hard_stop.clone(), parts.tls.clone(), proxies);
            Incoming::bind(listen, entrance).with_context(|| format!("bind the {what} port at {listen}"))
        };
        let operators = Proxies { header: false, ..parts.proxies.clone() };
        let clients = bind(parts.listen, parts.proxies, "client")?;
        let operators = bind(parts.operator_listen, operators, "operator")?;
        let (address, operator_address) = (clients.address(), operators.address());

        let callers = Callers::new(parts.client_address);
        let (engine, queues) = (parts.engine, parts.queues.clone());
        let routes = api::routes(engine, queues, callers.clone(), parts.quotas.clone(), &health, &drain)
            .context("describe the service")?;
        let desk = api::operator_routes(parts.rulesets, parts.auditor, parts.queues, &health, &drain)
            .context("describe the operator's service")?;
        let (ready, is_fresh) = (drain.clone(), parts.is_fresh.clone());
        let is_ready = Arc::new(move || ready.is_serving() && is_fresh());
        let keeper = Keeper::new(parts.authenticator);
        let pages = console::Pages {
            metrics: parts.metrics,
            may_see_metrics: may_see_metrics(keeper.clone(), operator_address),
            is_ready,
            match_keys: parts.match_keys,
        };
        let desk = Routes::from(console::with_pages(desk.into_axum_router(), pages));

        let port = Port {
            edge: edge.clone(),
            observer: parts.observer,
            keeper,
            drain: drain.clone(),
            oversight: Oversight { audit: parts.audit, quotas: parts.quotas, callers },
            dice: parts.clock.dice(),
        };
        let ports = vec![
            tokio::spawn(port.clone().serve_clients(clients, routes, stopping.clone())),
            tokio::spawn(port.serve_operators(operators, desk, stopping.clone())),
        ];
        health.set_serving((parts.is_fresh)()).await;
        tokio::spawn(watch_freshness(parts.is_fresh, health, drain.clone()));
        let (linger, grace) = (edge.linger, edge.grace);
        Ok(Running { address, operator_address, drain, stopping, hard_stop, ports, linger, grace })
    }
}

/// Who sees the metrics of the port at `address`.
fn may_see_metrics(keeper: Keeper, address: SocketAddr) -> console::MaySee {
    Arc::new(move |headers, extensions| match keeper.admit_to_metrics(address.ip(), headers, extensions) {
        Ok(()) => Sight::Yes,
        Err(Denied::Unknown(_)) => Sight::Unknown,
        Err(Denied::Role(_)) => Sight::No,
    })
}

/// Keeps health in step with freshness until the server drains.
async fn watch_freshness(is_fresh: IsFresh, health: Health, drain: Drain) {
    let mut was_fresh = is_fresh();
    loop {
        tokio::select! {
            () = drain.token().cancelled() => return health.set_serving(false).await,
            () = tokio::time::sleep(FRESHNESS_EVERY) => {}
        }
        let fresh = is_fresh();
        if fresh != std::mem::replace(&mut was_fresh, fresh) && drain.is_serving() {
            tracing::warn!(fresh, "freshness has changed: health says so");
            health.set_serving(fresh).await;
        }
    }
}

impl Running {
    /// The first half of a shutdown: not serving any more, streams end, calls are still answered.
    pub async fn drain(&self) {
        self.drain.begin().await;
    }

    /// Stops in good order: drains, lingers for balancers to look away, closes the ports, lets calls finish, and after
    /// the grace period closes what is still open (R11).
    pub async fn shutdown(mut self) {
        self.drain().await;
        let ports = std::mem::take(&mut self.ports);
        let stopping = self.stopping.clone();
        let linger = self.linger;
        let in_order = async {
            tokio::time::sleep(linger).await;
            stopping.cancel();
            for port in ports {
                // A port's task ends with its last connection; that it panicked is in the log already.
                drop(port.await);
            }
        };
        if tokio::time::timeout(self.grace, in_order).await.is_err() {
            tracing::warn!("connections were still open after the grace period; closing them");
        }
        self.hard_stop.cancel();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopping.cancel();
        self.hard_stop.cancel();
    }
}
