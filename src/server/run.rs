//! Serves until told to stop, and keeps rulesets and locality files as fresh as the disk.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::api::audit_layer::AuditEntry;
use crate::api::operator::{RulesetAdmin as _, audit_entry_of_reload};
use crate::clock::SystemClock;
use crate::config::{Config, RulesetSource};
use crate::server::signal::shutdown_signal;
use crate::server::startup::{App, start_app};
use crate::server::tls::TlsAcceptorSource;
use crate::telemetry::audit::AuditRecord;
use crate::telemetry::label::LoadOutcome;
use crate::watch::{DEFAULT_DEBOUNCE, FileWatcher, watch_paths};

/// How often retired rulesets are looked at.
const RULESET_PURGE_INTERVAL: Duration = Duration::from_secs(5);

/// How often the log says what the configuration leaves open.
const RISK_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// How long `is_serving` waits for an answer.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT.
pub async fn run_until_signal(config: Config) -> anyhow::Result<()> {
    // Listening begins before starting, so that a signal in between stops the server in good order.
    let mut stop = std::pin::pin!(shutdown_signal().context("listen for signals")?);
    // Watching begins before loading, so that a change in between is not missed.
    let (changed, mut to_reload) = mpsc::channel::<()>(1);
    let _rulesets = match &config.rulesets {
        RulesetSource::Directory(directory) => Some(watch_files(vec![directory.clone()], move || {
            // Full means that a reload is due anyway.
            let _ = changed.try_send(());
        })?),
        RulesetSource::Bundled => None,
    };
    let (renewed, mut to_renew) = mpsc::channel::<()>(1);
    let _certificates = match &config.tls {
        Some(files) => Some(watch_files(TlsAcceptorSource::files_to_watch(files), move || {
            let _ = renewed.try_send(());
        })?),
        None => None,
    };
    let house = start_app(&config, Arc::new(SystemClock::start())).await?;
    let _places = watch_geoip_files(&house)?;
    let _keys = watch_auth_keys(&house)?;
    tracing::info!(
        listen = %house.server.address,
        operator_listen = %house.server.operator_address,
        "serving"
    );

    let mut forget = tokio::time::interval(RULESET_PURGE_INTERVAL);
    let (risks, mut warn) = (config.security_warnings(), tokio::time::interval(RISK_WARNING_INTERVAL));
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(()) = to_reload.recv() => reload_rulesets(&house).await,
            Some(()) = to_renew.recv() => reload_certificates(&house),
            _ = warn.tick(), if !risks.is_empty() => {
                risks.iter().for_each(|risk| tracing::warn!("served without protection by {risk}"));
            }
            _ = forget.tick() => {
                // Refused only while going away.
                let _ = house.engine.purge_retired_rulesets().await;
            }
        }
    }
    tracing::info!("going away");
    house.shutdown().await;
    Ok(())
}

/// By what a server that speaks TLS is known.
#[derive(Clone, Debug)]
pub struct HealthCheckTls {
    /// Certificates of those who sign its certificate, PEM.
    pub ca_file: PathBuf,
    /// The name in its certificate; none: its address.
    pub server_name: Option<String>,
}

/// Whether the server at `address` says that it serves; over TLS, if it is known by something.
pub async fn is_serving(address: SocketAddr, known: Option<&HealthCheckTls>) -> anyhow::Result<bool> {
    let endpoint = match known {
        None => Endpoint::from_shared(format!("http://{address}"))?,
        Some(known) => {
            let ca = std::fs::read(&known.ca_file).with_context(|| format!("read {}", known.ca_file.display()))?;
            let name = known.server_name.clone().unwrap_or_else(|| address.ip().to_string());
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(name);
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?
        }
    };
    let channel = endpoint
        .connect_timeout(HEALTH_CHECK_TIMEOUT)
        .timeout(HEALTH_CHECK_TIMEOUT)
        .connect()
        .await
        .context("connect")?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await.context("ask")?;
    Ok(answer.into_inner().status == ServingStatus::Serving as i32)
}

/// Reads the rulesets again, because somebody has edited the folder, and writes down what that has changed. Whoever it was
/// is not known here; the folder's own history says it, where it has one.
async fn reload_rulesets(house: &App) {
    let reloaded = house.rulesets.reload().await;
    let AuditEntry { target: object, ruleset_changes: changes } = audit_entry_of_reload(&reloaded);
    let outcome = if reloaded.problems.is_empty() { "OK" } else { "INVALID_ARGUMENT" };
    let (role, what, audit) = (Some("folder"), "rulesets edited", house.audit_log.clone());
    let record = AuditRecord {
        role,
        what,
        object,
        changes,
        outcome,
        request_id: audit.generate_request_id(),
        ..AuditRecord::default()
    };
    let written = tokio::task::spawn_blocking(move || audit.append(&record)).await;
    if let Err(error) = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        // The rules are in force already: there is nobody to refuse anything to.
        tracing::error!(%error, "the audit file cannot be written; edited rulesets are not in it");
    }
}

/// Reads the certificates again. The files are small and local, and this happens a few times a year.
fn reload_certificates(house: &App) {
    let Some(tls) = &house.tls else { return };
    house.metrics.tls_loads.get_or_create(&log_reload("certificates", tls.reload())).inc();
}

fn watch_geoip_files(house: &App) -> anyhow::Result<Option<FileWatcher>> {
    let files: Vec<PathBuf> = house.locator.files().map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let (locator, metrics) = (house.locator.clone(), house.metrics.clone());
    let watcher = watch_files(files, move || {
        metrics.locality_loads.get_or_create(&log_reload("locality files", locator.reload())).inc();
    })?;
    Ok(Some(watcher))
}

fn watch_auth_keys(house: &App) -> anyhow::Result<Option<FileWatcher>> {
    let Some(authenticator) = house.authenticator.clone().filter(|it| !it.key_files().is_empty()) else {
        return Ok(None);
    };
    let metrics = house.metrics.clone();
    let watcher = watch_files(authenticator.key_files().to_vec(), move || {
        metrics.auth_key_loads.get_or_create(&log_reload("auth keys", authenticator.reload())).inc();
    })?;
    Ok(Some(watcher))
}

/// Says in the log how it went to read `what` again, and says it in a word.
fn log_reload<E: Display>(what: &'static str, reloaded: Result<(), E>) -> LoadOutcome {
    match reloaded {
        Ok(()) => {
            tracing::info!("{what} replaced");
            LoadOutcome::Loaded
        }
        Err(error) => {
            tracing::warn!(%error, "{what} refused; the old ones stay in use");
            LoadOutcome::Rejected
        }
    }
}

fn watch_files(paths: Vec<PathBuf>, on_change: impl FnMut() + Send + 'static) -> anyhow::Result<FileWatcher> {
    watch_paths(paths, DEFAULT_DEBOUNCE, on_change).context("watch for changed files")
}
