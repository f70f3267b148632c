//! From a configuration to a server: opens the store, loads rules and places, starts the engine, binds the ports.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::Instant;

use crate::api::response_encoder::encode_static_candidate_fields;
use crate::auth::authenticator::Authenticator;
use crate::auth::forwarded_for::{client_address, is_trusted_proxy};
use crate::auth::issuing_key::IssuingKey;
use crate::auth::key_file;
use crate::auth::match_credential::{self, MatchCredentialKeys};
use crate::auth::policy::RateLimitKind;
use crate::auth::rate_limit::{CallerClass, RateLimits};
use crate::auth::token::{SIGNING_KEY_BYTES, TokenSigner};
use crate::clock::Clock;
use crate::config::{Config, StoreTarget};
use crate::domain::id::SiloId;
use crate::engine::settings::EngineSettings;
use crate::engine::{Engine, EngineDeps};
use crate::geo::{LocatorSettings, ReloadableLocator};
use crate::rules::RulesetCatalog;
use crate::server::desk::{self, RulesetReloader};
use crate::server::handshake::ProxySettings;
use crate::server::limits::EdgeLimits;
use crate::server::metric_recorders::{RpcMetrics, StoreMeter};
use crate::server::tls::TlsAcceptorSource;
use crate::server::{self, FreshnessCheck, RunningServer, Server};
use crate::store::memory::MemoryStore;
use crate::store::metered::MeteredStore;
use crate::store::postgres::{PostgresStore, Replica};
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::telemetry::audit::AuditLog;
use crate::telemetry::label::{LoadOutcome, RateLimitLabel, RateLimitRole};
use crate::telemetry::metric::Metrics;

/// Everything that runs, for whoever must reach a part of it.
#[derive(Debug)]
pub struct App {
    /// The ports.
    pub server: RunningServer,
    /// The matchmaker.
    pub engine: Arc<Engine>,
    /// The rulesets folder.
    pub rulesets: Arc<RulesetReloader>,
    /// The locality files.
    pub locator: Arc<ReloadableLocator>,
    /// Who tells who is calling; none: everybody may do everything.
    pub authenticator: Option<Arc<Authenticator>>,
    /// The counts.
    pub metrics: Arc<Metrics>,
    /// The certificates.
    pub tls: Option<Arc<TlsAcceptorSource>>,
    /// Where what operators do is written down.
    pub audit_log: Arc<AuditLog>,
}

/// Opens and starts everything. Serving when it returns.
pub async fn start_app(config: &Config, clock: Arc<dyn Clock>) -> anyhow::Result<App> {
    let metrics = Arc::new(Metrics::new());
    let catalog = Arc::new(RulesetCatalog::default());
    let rulesets = desk::load_rulesets(&config.rulesets).map_err(|problems| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow!("load rulesets: nothing to fall back on yet\n{}", lines.join("\n"))
    })?;
    catalog.replace_all(rulesets, clock.now(), 0);
    let settings = engine_settings(config);
    let signer = Arc::new(load_signer(config, &*clock)?);
    let match_keys = Arc::new(load_match_keys(config, &*clock)?);
    let tls = load_tls(config, &metrics)?;
    let locator = Arc::new(load_locator(config, &metrics)?);
    let authenticator = load_authenticator(config, clock.clone(), &metrics)?;
    let audit = Arc::new(open_audit_log(config, &clock)?);
    let store = open_store(config, &*clock, &metrics).await.context("open store")?;
    let parts = EngineDeps {
        clock: clock.clone(),
        store,
        rulesets: catalog.clone(),
        geo_locator: locator.clone(),
        token_signer: signer,
        match_credential_keys: match_keys.clone(),
        metrics: metrics.clone(),
        settings,
        served_silos: config.silos.as_ref().map(|silos| silos.iter().copied().map(SiloId).collect()),
        encode_advert: encode_static_candidate_fields,
    };
    let engine = Arc::new(Engine::start(parts).await.context("load advertisements")?);
    let desk = Arc::new(RulesetReloader::new(config.rulesets.clone(), engine.clone(), catalog, metrics.clone()));
    let (trusted, rendered) = (config.trusted_proxies.clone(), metrics.clone());
    let neighbours = trusted.clone();
    let running = Server::start(server::ServerDeps {
        listen: config.listen,
        operator_listen: config.operator_listen,
        engine: engine.clone(),
        queues: Some(engine.queues().clone()),
        rulesets: desk.clone(),
        consistency_checker: engine.clone(),
        render_metrics: Arc::new(move || rendered.render()),
        match_jwks: match_keys.public_key_set().into(),
        rpc_observer: Arc::new(RpcMetrics::new(metrics.clone())),
        authenticator: authenticator.clone(),
        resolve_client_address: Arc::new(move |peer, hops| client_address(peer, hops, &trusted)),
        rate_limits: Arc::new(rate_limits(config, &clock, &metrics)),
        audit_log: audit.clone(),
        clock,
        is_fresh: freshness_check(engine.clone(), config.max_staleness_s),
        limits: EdgeLimits {
            shutdown_grace: Duration::from_secs(u64::from(config.shutdown_deadline_s.max(2) - 1)),
            ..EdgeLimits::default()
        },
        tls: tls.clone(),
        proxies: ProxySettings {
            is_trusted: Arc::new(move |address| is_trusted_proxy(address, &neighbours)),
            require_proxy_header: config.proxy_protocol,
        },
    })
    .await?;
    Ok(App { server: running, engine, rulesets: desk, locator, authenticator, metrics, tls, audit_log: audit })
}

impl App {
    /// Stops in reverse: no more changes, ports closed in good order, what was submitted written, the store closed.
    pub async fn shutdown(self) {
        let Self { server: running, engine, .. } = self;
        running.shutdown().await;
        engine.close().await;
    }
}

/// Clients are not sent to a server whose picture is older than an operator will have it.
fn freshness_check(engine: Arc<Engine>, max_staleness_s: u32) -> FreshnessCheck {
    let most_ms = u64::from(max_staleness_s) * 1_000;
    Arc::new(move || engine.store_staleness_ms().is_none_or(|age_ms| age_ms <= most_ms))
}

fn engine_settings(config: &Config) -> EngineSettings {
    let ms = |seconds: u32| seconds.saturating_mul(1000);
    EngineSettings {
        default_ttl_ms: ms(config.time_to_live_s),
        default_hold_ms: ms(config.reservation_hold_s),
        retired_ruleset_retention_ms: u64::from(config.keep_retired_rulesets_s) * 1000,
        allow_client_locality: config.allow_client_locality,
        allow_search_overrides: config.allow_search_overrides,
        ..EngineSettings::default()
    }
}

/// The keys of the file, made on first use; without a file, keys that die with the process.
fn load_signer(config: &Config, clock: &dyn Clock) -> anyhow::Result<TokenSigner> {
    let fresh = random_key_bytes(clock);
    match &config.token_key_file {
        Some(path) => key_file::load_or_create_signer(path, fresh).context("load token keys"),
        None => Ok(TokenSigner::new(fresh, None)),
    }
}

/// The keys of players' credentials, likewise.
fn load_match_keys(config: &Config, clock: &dyn Clock) -> anyhow::Result<MatchCredentialKeys> {
    let fresh = random_key_bytes(clock);
    match &config.match_key_file {
        Some(path) => match_credential::load_or_create_match_keys(path, &fresh).context("load match keys"),
        None => Ok(MatchCredentialKeys::new(IssuingKey::from_seed(&fresh).context("make a match key")?, None)),
    }
}

/// Dice for a key.
fn random_key_bytes(clock: &dyn Clock) -> [u8; SIGNING_KEY_BYTES] {
    let mut fresh = [0; SIGNING_KEY_BYTES];
    for half in fresh.chunks_mut(16) {
        half.copy_from_slice(&clock.random_bytes()[..half.len()]);
    }
    fresh
}

/// Reads the keys that callers' tokens are verified with.
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

/// The certificates, where there are to be any.
fn load_tls(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Arc<TlsAcceptorSource>>> {
    let Some(files) = &config.tls else { return Ok(None) };
    let tls = TlsAcceptorSource::open(files.clone())?;
    metrics.tls_loads.get_or_create(&LoadOutcome::Loaded).inc();
    Ok(Some(Arc::new(tls)))
}

/// How often callers may ask; refusals are counted by role and charge.
fn rate_limits(config: &Config, clock: &Arc<dyn Clock>, metrics: &Arc<Metrics>) -> RateLimits {
    let metrics = metrics.clone();
    let count = move |class: CallerClass, charge: RateLimitKind| {
        let role = RateLimitRole::ALL.iter().find(|it| it.as_str() == class.as_str());
        let charge = RateLimitLabel::ALL.iter().find(|it| it.as_str() == charge.as_str());
        if let (Some(&role), Some(&charge)) = (role, charge) {
            metrics.rate_limited.get_or_create(&(role, charge)).inc();
        }
    };
    RateLimits::new(&config.rate_limit_rules().unwrap_or_default(), clock.clone(), Box::new(count))
}

/// Where what operators do is written down. A file that cannot be written ends the start.
fn open_audit_log(config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<AuditLog> {
    let clock = clock.clone();
    AuditLog::open(config.audit_file.as_deref(), Box::new(move || clock.now())).context("open the audit file")
}

/// The locality files, or nobody's place: said once.
fn load_locator(config: &Config, metrics: &Metrics) -> anyhow::Result<ReloadableLocator> {
    let files: Vec<PathBuf> = config.geoip_db_files.clone();
    let settings = LocatorSettings {
        grid_degrees: config.cell_degrees,
        session_grid_degrees: config.session_cell_degrees,
        max_accuracy_radius_km: config.max_accuracy_radius_km,
    };
    let none = files.is_empty();
    let locator = ReloadableLocator::new(files, settings);
    if none {
        tracing::info!("no locality files: nobody's place is known, and latency is guessed from measurements alone");
        return Ok(locator);
    }
    locator.reload().context("load locality files")?;
    metrics.locality_loads.get_or_create(&LoadOutcome::Loaded).inc();
    Ok(locator)
}

async fn open_store(config: &Config, clock: &dyn Clock, metrics: &Arc<Metrics>) -> anyhow::Result<Arc<dyn Store>> {
    let inner: Arc<dyn Store> = match &config.store {
        StoreTarget::Memory => Arc::new(MemoryStore::new()),
        StoreTarget::Sqlite(path) => Arc::new(SqliteStore::open(path).await?),
        StoreTarget::Postgres(url) => {
            let [number, _] = u64_halves(clock.random_bytes());
            let silos = config.silos.as_ref().map(|silos| silos.iter().copied().map(SiloId).collect());
            let store = PostgresStore::open(url.expose_password(), Replica { id: number, silos }).await?;
            synchronize_clock(&store, clock).await?;
            Arc::new(store)
        }
    };
    Ok(Arc::new(MeteredStore::new(inner, StoreMeter { metrics: metrics.clone(), started: Instant::now() })))
}

/// How often a start asks what time it is: a store that has just answered may be busy, as when many servers start at once.
const STORE_TIME_ATTEMPTS_MAX: usize = 20;

/// Goes by the store's clock from here on. A start has more time than a call: it asks again when the answer is late.
async fn synchronize_clock(store: &PostgresStore, clock: &dyn Clock) -> anyhow::Result<()> {
    for asked_again in 1.. {
        let asked = clock.now();
        match store.database_time().await {
            Ok(theirs) => {
                clock.sync_to_store_clock(theirs, asked);
                break;
            }
            Err(StoreError::Unavailable(why)) if asked_again < STORE_TIME_ATTEMPTS_MAX => {
                tracing::warn!(why, "the store is slow to say what time it is");
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
