//! Startup from a configuration: opens the store, loads rulesets, keys and geolocation, starts the engine and the
//! ports.

mod files;
pub(super) mod store;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::authenticator::Authenticator;
use crate::auth::forwarded_for::{client_address, is_trusted_proxy};
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{CallerClass, RateLimits};
use crate::clock::Clock;
use crate::config::Config;
use crate::domain::id::SiloId;
use crate::engine::rulesets::RulesetReloader;
use crate::engine::settings::EngineSettings;
use crate::engine::{BeaconSettings, Engine, EngineDeps};
use crate::geo::ReloadableLocator;
use crate::server::counted_events::UnloggedRejectionReporter;
use crate::server::disk_space::DiskMonitor;
use crate::server::grpc_web::CorsOrigins;
use crate::server::handshake::ProxySettings;
use crate::server::host_check::OperatorHosts;
use crate::server::limits::EdgeLimits;
use crate::server::metric_recorders::RpcMetrics;
use crate::server::own_beacon::{self, BoundBeacon, RunningBeacon};
use crate::server::process_usage::render_with_process_usage;
use crate::server::startup::files::{StartupFiles, ruleset_directory};
use crate::server::startup::store::{
    open_erasure_log, open_store, record_or_check_user_key_secret, repeat_kept_erasures,
};
use crate::server::tcp_round_trip;
use crate::server::tls::ReloadableTlsConfig;
use crate::server::{self, HealthCheckFn, RunningServer, Server};
use crate::store::pass_failure::PassFailureFolder;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::audit::AuditLog;
use crate::telemetry::label::{RateLimitLabel, RateLimitRole};
use crate::telemetry::metric::Metrics;
use crate::telemetry::trace::CallTracer;

/// Running application, with the parts that reloads need.
#[derive(Debug)]
pub struct App {
    /// Both ports.
    pub server: RunningServer,
    /// Matchmaking engine.
    pub engine: Arc<Engine>,
    /// Ruleset reload and administration.
    pub reloader: Arc<RulesetReloader>,
    /// Geolocation database, reloadable.
    pub locator: Arc<ReloadableLocator>,
    /// Authenticates callers; `None`: authentication is off.
    pub authenticator: Option<Arc<Authenticator>>,
    /// Metrics registry.
    pub metrics: Arc<Metrics>,
    /// TLS certificates, reloadable; `None`: plaintext.
    pub tls: Option<Arc<ReloadableTlsConfig>>,
    /// Log of operator actions.
    pub audit_log: Arc<AuditLog>,
    /// Supervisor of all tasks.
    pub supervisor: TaskSupervisor,
    beacon: Option<RunningBeacon>,
    reports: ReportTasks,
}

/// Tasks that only report to operators; they stop on drop.
#[derive(Debug)]
struct ReportTasks {
    /// Rejected calls that were only counted.
    counted_events: UnloggedRejectionReporter,
    _stop: DropGuard,
}

impl ReportTasks {
    fn start(
        counted_events: UnloggedRejectionReporter,
        disk_monitor: &Arc<DiskMonitor>,
        supervisor: &TaskSupervisor,
    ) -> Self {
        let stop = CancellationToken::new();
        disk_monitor.spawn(supervisor, &stop);
        counted_events.spawn(supervisor, &stop);
        Self { counted_events, _stop: stop.drop_guard() }
    }
}

/// Opens and starts all parts. The server is ready when this returns. Fails with the part that could not be opened.
pub async fn start_app(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<App> {
    let metrics = Arc::new(Metrics::new());
    let supervisor = TaskSupervisor::new(metrics.task_panics.clone());
    start_supervised_app(config, clock, metrics, supervisor, &CancellationToken::new()).await
}

/// Limits of both ports. Streams get a second less than the process has to end.
fn edge_limits(config: &Config) -> EdgeLimits {
    let shutdown_grace = Duration::from_secs(u64::from(config.shutdown_grace_period_s.max(2) - 1));
    EdgeLimits { shutdown_grace, ..EdgeLimits::default() }
}

/// Starts as `start_app` does, with the metrics and the supervisor of tasks that the caller has started before. Fails with
/// `StoppedWhileWaiting` if `stop_waiting` is cancelled before the database can be reached.
pub(super) async fn start_supervised_app(
    config: &Config,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    supervisor: TaskSupervisor,
    stop_waiting: &CancellationToken,
) -> anyhow::Result<App> {
    metrics.set_process_start(clock.now());
    let files = StartupFiles::load_on_thread(config, &clock, &metrics).await?;
    let StartupFiles { catalog, signer, match_keys, user_keys, beacons, tls, locator, authenticator, audit_log } =
        files;
    let store = open_store(config, &*clock, &metrics, &supervisor, stop_waiting).await.context("open store")?;
    record_or_check_user_key_secret(config, &*store, &user_keys).await?;
    let erasure_log = open_erasure_log(config, &user_keys, &clock).await.context("open erasure log")?;
    // Used for the place of the own beacon alone.
    let observes_tcp_floor = config.observe_tcp && config.beacon.is_some() && tcp_round_trip::is_supported().await;
    let own_beacon = bind_own_beacon(config, &beacons, &clock, &metrics)?;
    let deps = EngineDeps {
        clock: clock.clone(),
        store,
        rulesets: catalog,
        geo_locator: locator.clone(),
        token_signer: signer,
        match_credential_keys: match_keys.clone(),
        public_user_keys: user_keys,
        metrics: metrics.clone(),
        settings: engine_settings(config),
        served_silos: config.silos.as_ref().map(|silos| silos.iter().copied().map(SiloId).collect()),
        supervisor: supervisor.clone(),
        pass_failures: PassFailureFolder::new(config.pass_failure_dir.clone()),
        erasure_log,
        beacon_settings: beacons,
    };
    let engine = Arc::new(Engine::start(deps).await.context("load advertisements")?);
    repeat_kept_erasures(&engine).await?;
    let reloader = Arc::new(engine.ruleset_reloader(ruleset_directory(config)));
    let rpc_metrics = start_call_recorder(config, &clock, &metrics)?;
    let counted_events = UnloggedRejectionReporter { calls: rpc_metrics.clone(), audit_log: audit_log.clone() };
    let disk_monitor = DiskMonitor::new(config, metrics.clone());
    let monitor_of_notes = disk_monitor.clone();
    let (trusted_proxies, metrics_source) = (config.trusted_proxies.clone(), metrics.clone());
    let server = Server::start(server::ServerDeps {
        listen: config.listen.resolved_addresses().to_vec(),
        operator_listen: config.operator_listen.resolved_addresses().to_vec(),
        engine: engine.clone(),
        queues: Some(engine.queues().clone()),
        beacons: Some(engine.beacons()),
        observes_tcp_floor,
        rulesets: reloader.clone(),
        consistency_checker: engine.clone(),
        render_metrics: Arc::new(move || render_with_process_usage(&metrics_source)),
        match_jwks: match_keys.public_key_set().into(),
        operator_hosts: operator_hosts(config),
        cors_origins: cors_origins(config),
        readiness_notes: Arc::new(move || monitor_of_notes.notes()),
        rpc_observer: rpc_metrics.clone(),
        authenticator: authenticator.clone(),
        resolve_client_address: Arc::new(move |peer, forwarded| {
            client_address(peer, forwarded.iter().copied(), &trusted_proxies)
        }),
        rate_limits: Arc::new(rate_limits(config, &clock, &metrics)),
        audit_log: audit_log.clone(),
        clock,
        is_fresh: store_health_check(engine.clone(), config.max_staleness_s),
        supervisor: supervisor.clone(),
        limits: edge_limits(config),
        tls: tls.clone(),
        proxies: proxy_settings(config),
    })
    .await?;
    let beacon = own_beacon.map(|beacon| beacon.start(engine.beacons(), &supervisor)).transpose()?;
    let reports = ReportTasks::start(counted_events, &disk_monitor, &supervisor);
    Ok(App { server, engine, reloader, locator, authenticator, metrics, tls, audit_log, supervisor, beacon, reports })
}

impl App {
    /// Stops in reverse order: drains, closes the ports, writes pending changes, closes the store.
    pub async fn shutdown(self) {
        let Self { server, engine, beacon, reports, .. } = self;
        // Waits for its thread, 100 ms at most.
        drop(beacon);
        server.shutdown().await;
        // Bounded by the deadline of an audit record.
        let calls = reports.counted_events.calls.clone();
        let flush_traces = tokio::task::spawn_blocking(move || calls.flush_traces());
        // A panic of the exporter must not keep the store open.
        let _ = tokio::join!(reports.counted_events.write(true), engine.close(), flush_traces);
    }
}

/// Recorder of calls in the metrics and, if a collector is configured, in traces.
fn start_call_recorder(
    config: &Config,
    clock: &Arc<dyn Clock>,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Arc<RpcMetrics>> {
    let start = |endpoint: &String| {
        let clock = clock.clone();
        CallTracer::start(endpoint, config.otlp_sample_ratio, metrics, Box::new(move || clock.now()))
    };
    let tracer = config.otlp_endpoint.as_ref().map(start).transpose().context("start the export of traces")?;
    Ok(Arc::new(RpcMetrics::new(metrics.clone(), tracer)))
}

/// A server is stale when its last contact with the store is older than `max_staleness_s`, when commits fail, or when the
/// store requires a newer server.
fn store_health_check(engine: Arc<Engine>, max_staleness_s: u32) -> HealthCheckFn {
    let max_ms = u64::from(max_staleness_s) * 1_000;
    Arc::new(move || {
        engine.is_store_format_writable()
            && !engine.are_commits_failing()
            && engine.store_staleness_ms().is_none_or(|age_ms| age_ms <= max_ms)
    })
}

fn proxy_settings(config: &Config) -> ProxySettings {
    let trusted_proxies = config.trusted_proxies.clone();
    ProxySettings {
        is_trusted_proxy: Arc::new(move |address| is_trusted_proxy(address, &trusted_proxies)),
        require_proxy_header: config.proxy_protocol,
    }
}

/// Names by which operators reach the operator port.
fn operator_hosts(config: &Config) -> OperatorHosts {
    if config.tls.is_some() {
        return OperatorHosts::Any;
    }
    let listen_name = config.operator_listen.host().to_ascii_lowercase();
    OperatorHosts::IpLocalhostOrNames(config.operator_hosts.iter().cloned().chain([listen_name]).collect())
}

/// Origins whose web pages may call the client port.
fn cors_origins(config: &Config) -> CorsOrigins {
    match config.cors_origins.as_slice() {
        [] => CorsOrigins::None,
        [any] if any == "*" => CorsOrigins::Any,
        // Valid origins are valid headers.
        origins => CorsOrigins::Listed(origins.iter().filter_map(|origin| origin.parse().ok()).collect()),
    }
}

fn engine_settings(config: &Config) -> EngineSettings {
    let ms = |seconds: u32| seconds.saturating_mul(1000);
    EngineSettings {
        default_advertisement_ttl_ms: ms(config.advertisement_ttl_s),
        default_reservation_ttl_ms: ms(config.reservation_ttl_s),
        retired_ruleset_retention_ms: u64::from(config.ruleset_retention_s) * 1000,
        ruleset_removal_grace_ms: u64::from(config.ruleset_removal_grace_s) * 1000,
        rating_retention_ms: config.rating_retention_days.map(|days| u64::from(days) * 24 * 60 * 60 * 1000),
        allow_client_locality: config.allow_client_locality,
        allow_search_overrides: config.allow_search_overrides,
        max_silos: config.max_silos,
        max_silos_per_user: config.max_silos_per_user,
        max_advertisements_per_client: config.max_advertisements_per_client,
        max_advertisements_per_server: config.max_advertisements_per_server,
        max_reservations_per_client: config.max_reservations_per_client,
        max_tickets_per_user: config.max_tickets_per_user,
        ..EngineSettings::default()
    }
}

/// Socket of the server's own beacon, if it has one.
fn bind_own_beacon(
    config: &Config,
    settings: &BeaconSettings,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> anyhow::Result<Option<BoundBeacon>> {
    let bind = |beacon| own_beacon::bind_beacon(beacon, settings.fleet_keys.as_ref(), clock.clone(), metrics);
    config.beacon.as_ref().map(bind).transpose()
}

/// Builds the rate limits; exceeded limits are counted by role and limit.
fn rate_limits(config: &Config, clock: &Arc<dyn Clock>, metrics: &Arc<Metrics>) -> RateLimits {
    let metrics = metrics.clone();
    let count = move |class: CallerClass, kind: RateLimitKind| {
        let role = RateLimitRole::ALL.iter().find(|label| label.as_str() == class.as_str());
        let limit = RateLimitLabel::ALL.iter().find(|label| label.as_str() == kind.as_str());
        if let (Some(&role), Some(&limit)) = (role, limit) {
            metrics.rate_limited.get_or_create(&(role, limit)).inc();
        }
    };
    RateLimits::new(&config.effective_rate_limits().unwrap_or_default(), clock.clone(), Box::new(count))
}
