//! Startup from a configuration: opens the store, loads rulesets, keys and geolocation, starts the engine and the
//! ports.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::response_encoder::encode_static_candidate_fields;
use crate::auth::authenticator::Authenticator;
use crate::auth::forwarded_for::{client_address, is_trusted_proxy};
use crate::auth::jwt_signing_key::JwtSigningKey;
use crate::auth::key_file;
use crate::auth::match_credential::{self, MatchCredentialKeys};
use crate::auth::policy::RateLimitKind;
use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::auth::rate_limit::{CallerClass, RateLimits};
use crate::auth::token::HmacTokenSigner;
use crate::clock::Clock;
use crate::config::{Config, ReceiptNetworkSetting, RulesetSource, StoreTarget};
use crate::domain::id::SiloId;
use crate::domain::location_privacy::RegionPlaces;
use crate::engine::rulesets::{RulesetReloader, load_rulesets};
use crate::engine::settings::EngineSettings;
use crate::engine::startup_retry::retry_at_startup;
use crate::engine::{BeaconSettings, Engine, EngineDeps, ReceiptPrefixRule};
use crate::geo::{LocatorSettings, ReloadableLocator};
use crate::rules::RulesetCatalog;
use crate::server::counted_events::UnloggedRejectionReporter;
use crate::server::disk_space::DiskMonitor;
use crate::server::handshake::ProxySettings;
use crate::server::host_check::OperatorHosts;
use crate::server::limits::EdgeLimits;
use crate::server::metric_recorders::{RpcMetrics, StoreMeter};
use crate::server::own_beacon::{self, BoundBeacon, RunningBeacon};
use crate::server::tcp_round_trip;
use crate::server::tls::ReloadableTlsConfig;
use crate::server::{self, HealthCheckFn, RunningServer, Server};
use crate::store::memory::MemoryStore;
use crate::store::metered::MeteredStore;
use crate::store::pass_failure::PassFailureFolder;
use crate::store::postgres::{FireteamReplica, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::supervisor::TaskSupervisor;
use crate::telemetry::audit::{AuditFileSettings, AuditLog};
use crate::telemetry::label::{LoadOutcome, RateLimitLabel, RateLimitRole};
use crate::telemetry::metric::Metrics;

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
    start_supervised_app(config, clock, metrics, supervisor).await
}

/// Starts as `start_app` does, with the metrics and the supervisor of tasks that the caller has started before.
pub(super) async fn start_supervised_app(
    config: &Config,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    supervisor: TaskSupervisor,
) -> anyhow::Result<App> {
    let settings = engine_settings(config);
    let files = StartupFiles::load_on_thread(config, &clock, &metrics).await?;
    let StartupFiles { catalog, signer, match_keys, user_keys, beacons, tls, locator, authenticator, audit_log } =
        files;
    let store = open_store(config, &*clock, &metrics, &supervisor).await.context("open store")?;
    record_or_check_user_key_secret(config, &*store, &user_keys).await?;
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
        settings,
        served_silos: config.silos.as_ref().map(|silos| silos.iter().copied().map(SiloId).collect()),
        supervisor: supervisor.clone(),
        pass_failures: PassFailureFolder::new(config.pass_failure_dir.clone()),
        beacon_settings: beacons,
        encode_static_candidate_fields,
    };
    let engine = Arc::new(Engine::start(deps).await.context("load advertisements")?);
    let reloader = Arc::new(engine.ruleset_reloader(ruleset_directory(config)));
    let rpc_metrics = Arc::new(RpcMetrics::new(metrics.clone()));
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
        render_metrics: Arc::new(move || metrics_source.render()),
        match_jwks: match_keys.public_key_set().into(),
        operator_hosts: operator_hosts(config),
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
        limits: EdgeLimits {
            shutdown_grace: Duration::from_secs(u64::from(config.shutdown_grace_period_s.max(2) - 1)),
            ..EdgeLimits::default()
        },
        tls: tls.clone(),
        proxies: proxy_settings(config),
    })
    .await?;
    let beacon = own_beacon.map(|beacon| beacon.start(engine.beacons(), &supervisor)).transpose()?;
    let reports = ReportTasks::start(counted_events, &disk_monitor, &supervisor);
    Ok(App { server, engine, reloader, locator, authenticator, metrics, tls, audit_log, supervisor, beacon, reports })
}

/// Content of the files that a server needs before it starts.
struct StartupFiles {
    catalog: Arc<RulesetCatalog>,
    signer: Arc<HmacTokenSigner>,
    match_keys: Arc<MatchCredentialKeys>,
    user_keys: Arc<PublicUserKeySecret>,
    beacons: BeaconSettings,
    tls: Option<Arc<ReloadableTlsConfig>>,
    locator: Arc<ReloadableLocator>,
    authenticator: Option<Arc<Authenticator>>,
    audit_log: Arc<AuditLog>,
}

impl StartupFiles {
    /// Reads all files on a thread of its own: a file system that does not answer must not block the signal that ends the
    /// start.
    async fn load_on_thread(config: &Config, clock: &Arc<dyn Clock>, metrics: &Arc<Metrics>) -> anyhow::Result<Self> {
        let (config, clock, metrics) = (config.clone(), clock.clone(), metrics.clone());
        tokio::task::spawn_blocking(move || Self::load(&config, &clock, &metrics)).await.context("load files")?
    }

    /// Reads all files. Blocks, each read until a deadline.
    fn load(config: &Config, clock: &Arc<dyn Clock>, metrics: &Metrics) -> anyhow::Result<Self> {
        let catalog = Arc::new(RulesetCatalog::default());
        let rulesets = load_rulesets(ruleset_directory(config).as_deref()).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            anyhow!("load rulesets: {}", lines.join("\n"))
        })?;
        catalog.replace_all(rulesets.rulesets, clock.now(), 0);
        catalog.update_state(|state| state.retired_files = rulesets.retired_files);
        check_store_folder_exists(&config.store).context("open store")?;
        Ok(Self {
            catalog,
            signer: Arc::new(load_or_create_token_signer(config, &**clock)?),
            match_keys: Arc::new(load_or_create_match_keys(config, &**clock)?),
            user_keys: Arc::new(load_or_create_user_key_secret(config, &**clock)?),
            beacons: load_beacon_settings(config, &**clock)?,
            tls: load_tls(config, metrics)?,
            locator: Arc::new(load_locator(config, metrics)?),
            authenticator: load_authenticator(config, clock.clone(), metrics)?,
            audit_log: Arc::new(open_audit_log(config, clock)?),
        })
    }
}

impl App {
    /// Stops in reverse order: drains, closes the ports, writes pending changes, closes the store.
    pub async fn shutdown(self) {
        let Self { server, engine, beacon, reports, .. } = self;
        // Waits for its thread, 100 ms at most.
        drop(beacon);
        server.shutdown().await;
        // Bounded by the deadline of an audit record.
        tokio::join!(reports.counted_events.write(true), engine.close());
    }
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

/// Directory of the ruleset files; `None` for the bundled rulesets.
fn ruleset_directory(config: &Config) -> Option<PathBuf> {
    match &config.rulesets {
        RulesetSource::Directory(directory) => Some(directory.clone()),
        RulesetSource::Bundled => None,
    }
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

/// Fails if the folder of a SQLite file does not exist. The key files are in the same folder by default, and are created
/// first; without this check their error would hide the cause.
fn check_store_folder_exists(store: &StoreTarget) -> anyhow::Result<()> {
    let StoreTarget::Sqlite(file) = store else { return Ok(()) };
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => Err(anyhow!(
            "the folder {} does not exist; create it, or name another file with --store sqlite:PATH",
            folder.display()
        )),
        _ => Ok(()),
    }
}

/// Token keys from the key file, which is created on first use; without a file, random keys for this process.
fn load_or_create_token_signer(config: &Config, clock: &dyn Clock) -> anyhow::Result<HmacTokenSigner> {
    let new_key = clock.random_key();
    match &config.token_key_file {
        Some(path) => key_file::load_or_create_signer(path, new_key).context("load token keys"),
        None => Ok(HmacTokenSigner::new(new_key, None)),
    }
}

/// Match credential keys from the key file, which is created on first use; without a file, random keys for this
/// process.
fn load_or_create_match_keys(config: &Config, clock: &dyn Clock) -> anyhow::Result<MatchCredentialKeys> {
    let new_key = clock.random_key();
    match &config.match_key_file {
        Some(path) => match_credential::load_or_create_match_keys(path, &new_key).context("load match keys"),
        None => Ok(MatchCredentialKeys::new(JwtSigningKey::from_seed(&new_key).context("make a match key")?, None)),
    }
}

/// Secret of public user keys from its file, which is created on first use; without a file, a random one for this process.
fn load_or_create_user_key_secret(config: &Config, clock: &dyn Clock) -> anyhow::Result<PublicUserKeySecret> {
    let new_secret = clock.random_key();
    match &config.user_key_file {
        Some(path) => key_file::load_or_create_public_user_key_secret(path, new_secret).context("load user keys"),
        None => Ok(PublicUserKeySecret::new(new_secret)),
    }
}

/// Keys of beacons' receipts from their file, which is created on first use; without a file there are no beacons.
fn load_beacon_settings(config: &Config, clock: &dyn Clock) -> anyhow::Result<BeaconSettings> {
    let load = |path| key_file::load_or_create_beacon_fleet_keys(path, clock.random_key()).context("load fleet keys");
    let prefix_rule = match config.receipt_prefix {
        ReceiptNetworkSetting::Strict => ReceiptPrefixRule::Strict,
        ReceiptNetworkSetting::Place => ReceiptPrefixRule::Place,
    };
    Ok(BeaconSettings {
        fleet_keys: config.beacon_fleet_key_file.as_deref().map(load).transpose()?,
        prefix_rule,
        own_beacon_id: config.beacon.as_ref().map(|beacon| beacon.id),
    })
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

/// Fails if the servers of a database name users by another secret: a player would have two keys in one match.
async fn record_or_check_user_key_secret(
    config: &Config,
    store: &dyn Store,
    user_keys: &PublicUserKeySecret,
) -> anyhow::Result<()> {
    let Some(path) = config.user_key_file.as_ref().filter(|_| matches!(config.store, StoreTarget::Postgres(_))) else {
        return Ok(());
    };
    let secret_id = user_keys.secret_fingerprint();
    let recorded =
        retry_at_startup("record the user key", async || store.record_user_key_secret_id(secret_id).await).await;
    if recorded.context("record the user key")? == secret_id {
        return Ok(());
    }
    Err(anyhow!(
        "user key file {}: the other servers of this database have another secret; copy their file, or name it with \
         --user-key-file",
        path.display()
    ))
}

/// Loads the keys for verifying callers' tokens; `None` if authentication is off.
fn load_authenticator(
    config: &Config,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> anyhow::Result<Option<Arc<Authenticator>>> {
    if !config.requires_authentication() {
        return Ok(None);
    }
    let authenticator = Authenticator::new(config.auth.clone(), clock).context("load auth keys")?;
    metrics.auth_key_loads.get_or_create(&LoadOutcome::Loaded).inc();
    Ok(Some(Arc::new(authenticator)))
}

/// Loads the TLS certificates; `None` if TLS is off.
fn load_tls(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Arc<ReloadableTlsConfig>>> {
    let Some(files) = &config.tls else { return Ok(None) };
    let tls = ReloadableTlsConfig::open(files.clone())?;
    metrics.tls_loads.get_or_create(&LoadOutcome::Loaded).inc();
    Ok(Some(Arc::new(tls)))
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

/// Opens the audit log. A file that cannot be written ends the startup.
fn open_audit_log(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<AuditLog> {
    let clock = clock.clone();
    let files = config.audit_log_file.clone().map(|file| AuditFileSettings {
        file,
        bytes_max: u64::from(config.audit_log_max_mib) << 20,
        full_files_max: config.audit_log_max_files as usize,
    });
    AuditLog::open(files.as_ref(), Box::new(move || clock.now())).context("open audit log file")
}

/// Loads the geolocation databases; without any, locations are unknown, and the log says so.
fn load_locator(config: &Config, metrics: &Metrics) -> anyhow::Result<ReloadableLocator> {
    let files: Vec<PathBuf> = config.geoip_db_files.clone();
    let settings = LocatorSettings {
        grid_degrees: config.location_grid_degrees,
        session_grid_degrees: config.session_location_grid_degrees,
        geoip_max_accuracy_radius_km: config.geoip_max_accuracy_radius_km,
    };
    let is_empty = files.is_empty();
    let region_places = config.region_places.iter().filter_map(|it| Some((it.region.as_str().into(), it.locality()?)));
    let locator = ReloadableLocator::new(files, settings).with_region_places(RegionPlaces::new(region_places));
    if is_empty {
        tracing::info!(
            "no geolocation database configured; locations are unknown, latency comes from measurements only"
        );
        return Ok(locator);
    }
    locator.reload().context("load geolocation databases")?;
    metrics.locality_loads.get_or_create(&LoadOutcome::Loaded).inc();
    Ok(locator)
}

async fn open_store(
    config: &Config,
    clock: &dyn Clock,
    metrics: &Arc<Metrics>,
    supervisor: &TaskSupervisor,
) -> anyhow::Result<Arc<dyn Store>> {
    let inner: Arc<dyn Store> = match &config.store {
        StoreTarget::Memory => Arc::new(MemoryStore::new()),
        StoreTarget::Sqlite(path) => Arc::new(SqliteStore::open_supervised(path, supervisor).await?),
        StoreTarget::Postgres(url) => {
            let [replica_id, _] = u64_halves(clock.random_bytes());
            let silos = config.silos.as_ref().map(|silos| silos.iter().copied().map(SiloId).collect());
            let replica = FireteamReplica { id: replica_id, silos };
            let unknown_parameters = url.unknown_parameter_count();
            if unknown_parameters > 0 {
                tracing::warn!(
                    unknown_parameters,
                    "parameters of the store URL ignored, the driver does not know them"
                );
            }
            let store = PostgresStore::open_supervised(&url.driver_url_with_password(), replica, supervisor).await?;
            synchronize_clock(&store, clock).await?;
            Arc::new(store)
        }
    };
    Ok(Arc::new(MeteredStore::new(inner, StoreMeter { metrics: metrics.clone(), monotonic_origin: Instant::now() })))
}

/// Attempts to read the store's time at startup. A store may be busy when many servers start at once.
const STORE_TIME_ATTEMPTS_MAX: usize = 20;

/// Synchronizes the clock with the store's clock. Retries if the store is slow, because startup has more time than a
/// call.
async fn synchronize_clock(store: &PostgresStore, clock: &dyn Clock) -> anyhow::Result<()> {
    for attempt in 1.. {
        let requested_at = clock.now();
        match store.database_time().await {
            Ok(store_time) => {
                clock.sync_to_store_clock(store_time, requested_at);
                break;
            }
            Err(StoreError::Unavailable(error)) if attempt < STORE_TIME_ATTEMPTS_MAX => {
                tracing::warn!(error, attempt, "store time request failed");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn u64_halves(bytes: [u8; 16]) -> [u64; 2] {
    let (halves, _) = bytes.as_chunks::<8>();
    [u64::from_be_bytes(halves[0]), u64::from_be_bytes(halves[1])]
}
