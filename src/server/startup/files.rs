//! Files that a server reads before it starts: rulesets, keys, certificates and geolocation databases.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};

use crate::auth::authenticator::Authenticator;
use crate::auth::jwt_signing_key::JwtSigningKey;
use crate::auth::key_file;
use crate::auth::match_credential::{self, MatchCredentialKeys};
use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::auth::token::HmacTokenSigner;
use crate::clock::Clock;
use crate::config::{Config, ReceiptNetworkSetting, RulesetSource, StoreTarget};
use crate::domain::location_privacy::RegionPlaces;
use crate::engine::rulesets::load_rulesets;
use crate::engine::{BeaconSettings, ReceiptPrefixRule};
use crate::geo::{LocatorSettings, ReloadableLocator};
use crate::rules::RulesetCatalog;
use crate::server::tls::ReloadableTlsConfig;
use crate::telemetry::audit::{AuditFileSettings, AuditLog};
use crate::telemetry::label::LoadOutcome;
use crate::telemetry::metric::Metrics;

/// Content of the files that a server needs before it starts.
pub(super) struct StartupFiles {
    pub(super) catalog: Arc<RulesetCatalog>,
    pub(super) signer: Arc<HmacTokenSigner>,
    pub(super) match_keys: Arc<MatchCredentialKeys>,
    pub(super) user_keys: Arc<PublicUserKeySecret>,
    pub(super) beacons: BeaconSettings,
    pub(super) tls: Option<Arc<ReloadableTlsConfig>>,
    pub(super) locator: Arc<ReloadableLocator>,
    pub(super) authenticator: Option<Arc<Authenticator>>,
    pub(super) audit_log: Arc<AuditLog>,
}

impl StartupFiles {
    /// Reads all files on a thread of its own: a file system that does not answer must not block the signal that ends the
    /// start.
    pub(super) async fn load_on_thread(
        config: &Config,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<Self> {
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

/// Directory of the ruleset files; `None` for the bundled rulesets.
pub(super) fn ruleset_directory(config: &Config) -> Option<PathBuf> {
    match &config.rulesets {
        RulesetSource::Directory(directory) => Some(directory.clone()),
        RulesetSource::Bundled => None,
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
    metrics.record_locality_load(LoadOutcome::Loaded, locator.oldest_build_timestamp_s());
    Ok(locator)
}
