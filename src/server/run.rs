//! Runs the server until SIGTERM or SIGINT; reloads rulesets, certificates, keys and geolocation files when they
//! change.

use std::any::Any;
use std::fmt::Display;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::api::operator::audit_details_of_reload;
use crate::api::rate_limits_and_audit::AuditDetails;
use crate::clock::SystemClock;
use crate::config::{Config, RulesetSource};
use crate::domain::ruleset::load::LOADED_BY_FOLDER;
use crate::files;
use crate::server::signal::shutdown_signal;
use crate::server::startup::store::StoppedWhileWaiting;
use crate::server::startup::{App, start_supervised_app};
use crate::server::tls::ReloadableTlsConfig;
use crate::supervisor::{TaskFailure, TaskSupervisor};
use crate::telemetry::audit::AuditRecord;
use crate::telemetry::label::{LoadOutcome, TaskLabel};
use crate::telemetry::metric::Metrics;
use crate::watch::{DEFAULT_WATCH_TIMING, FileWatcher, watch_paths};

/// Interval at which expired retired rulesets are purged.
const RULESET_PURGE_INTERVAL: Duration = Duration::from_secs(5);

/// Interval at which the log repeats security warnings about the configuration.
const RISK_WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Size limit of a file with CA certificates, bytes.
const HEALTH_CHECK_CA_BYTES_MAX: u64 = 1024 * 1024;

/// Timeout of the connection and of the request in `is_serving`.
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT. Fails if startup fails, or if a task fails that cannot be restarted.
pub async fn run_until_signal(config: Config) -> anyhow::Result<()> {
    // Signals are registered before startup, so that a signal during startup stops the server gracefully.
    let mut stop = std::pin::pin!(shutdown_signal().context("listen for signals")?);
    let metrics = Arc::new(Metrics::new());
    let supervisor = TaskSupervisor::new(metrics.task_panics.clone());
    let mut watched = tokio::select! {
        watched = WatchedFiles::start(&supervisor, &config) => watched?,
        () = &mut stop => return Ok(()),
    };
    let clock = Arc::new(SystemClock::start());
    let stop_waiting = CancellationToken::new();
    let start = start_supervised_app(&config, clock, metrics, supervisor.clone(), &stop_waiting);
    let mut start = std::pin::pin!(start);
    let app = tokio::select! {
        app = &mut start => app?,
        () = &mut stop => {
            stop_waiting.cancel();
            return stop_during_startup(start, &config).await;
        }
    };
    let _app_watchers = tokio::select! {
        watchers = async { anyhow::Ok((watch_geoip_files(&app).await?, watch_auth_keys(&app).await?)) } => watchers?,
        () = &mut stop => return stop_during_startup(std::pin::pin!(async { Ok(app) }), &config).await,
    };
    tracing::info!(
        listen = %app.server.address,
        operator_listen = %app.server.operator_address,
        "server started"
    );
    if !config.requires_authentication() {
        tracing::info!(
            "limits per caller left off: callers have no identity, so advertisements, reservations and tickets of one \
             caller are not counted"
        );
    }

    let mut purge = tokio::time::interval(RULESET_PURGE_INTERVAL);
    let (warnings, mut warn) = (config.security_warnings(), tokio::time::interval(RISK_WARNING_INTERVAL));
    loop {
        tokio::select! {
            biased;
            () = supervisor.wait_for_failure() => return stop_after_failure(app, &config).await,
            () = &mut stop => break,
            // A file system that does not answer must not delay the shutdown.
            Some(()) = watched.ruleset_file_changes.recv() => tokio::select! {
                biased;
                () = &mut stop => break,
                _ = supervisor.catch(TaskLabel::Reload, reload_rulesets(&app)) => {}
            },
            Some(()) = watched.certificate_file_changes.recv() => tokio::select! {
                biased;
                () = &mut stop => break,
                _ = supervisor.catch(TaskLabel::Reload, reload_certificates(&app)) => {}
            },
            _ = warn.tick(), if !warnings.is_empty() => {
                warnings.iter().for_each(|warning| tracing::warn!("insecure configuration accepted: {warning}"));
            }
            _ = purge.tick() => {
                // Fails only while the server drains.
                let _ = supervisor.catch(TaskLabel::RulesetPurge, app.engine.purge_retired_rulesets()).await;
            }
        }
    }
    tracing::info!("shutdown started");
    shut_down_in_time(app, &config).await;
    // A writer may panic while it commits the last batches.
    supervisor.failure().map_or(Ok(()), |failure| Err(failure_error(failure)))
}

/// Watchers of the files whose changes this module reloads.
struct WatchedFiles {
    _watchers: Vec<FileWatcher>,
    /// A message for each change of the rulesets.
    ruleset_file_changes: mpsc::Receiver<()>,
    /// A message for each change of the certificates.
    certificate_file_changes: mpsc::Receiver<()>,
}

impl WatchedFiles {
    /// Starts watching. This is before loading, so that no change in between is missed.
    async fn start(supervisor: &TaskSupervisor, config: &Config) -> anyhow::Result<Self> {
        // A full channel means that a reload is already due.
        let (rulesets_changed, ruleset_reloads) = mpsc::channel::<()>(1);
        let (certificates_changed, certificate_reloads) = mpsc::channel::<()>(1);
        let mut watchers = Vec::new();
        if let RulesetSource::Directory(directory) = &config.rulesets {
            let notify = move || _ = rulesets_changed.try_send(());
            watchers.push(watch_files(supervisor, vec![directory.clone()], notify).await?);
        }
        if let Some(files) = &config.tls {
            let notify = move || _ = certificates_changed.try_send(());
            watchers.push(watch_files(supervisor, ReloadableTlsConfig::files_to_watch(files), notify).await?);
        }
        Ok(Self {
            _watchers: watchers,
            ruleset_file_changes: ruleset_reloads,
            certificate_file_changes: certificate_reloads,
        })
    }
}

/// Ends a start that a signal has interrupted: the server starts and stops, or the start is abandoned at the end of the grace
/// period.
async fn stop_during_startup(
    start: Pin<&mut impl Future<Output = anyhow::Result<App>>>,
    config: &Config,
) -> anyhow::Result<()> {
    tracing::info!("shutdown started");
    match tokio::time::timeout(grace_period(config), start).await {
        Ok(Err(error)) if error.chain().any(|cause| cause.is::<StoppedWhileWaiting>()) => {}
        Ok(app) => shut_down_in_time(app?, config).await,
        Err(_) => tracing::warn!("shutdown grace period exceeded; the start was abandoned"),
    }
    Ok(())
}

/// Stops the server within the grace period.
async fn shut_down_in_time(app: App, config: &Config) {
    if tokio::time::timeout(grace_period(config), app.shutdown()).await.is_err() {
        tracing::warn!("shutdown grace period exceeded; the store was not closed");
    }
}

fn grace_period(config: &Config) -> Duration {
    Duration::from_secs(u64::from(config.shutdown_grace_period_s))
}

/// Stops the server within the grace period, and returns the error of its exit.
async fn stop_after_failure(app: App, config: &Config) -> anyhow::Result<()> {
    let supervisor = app.supervisor.clone();
    shut_down_in_time(app, config).await;
    Err(supervisor.failure().map_or_else(|| anyhow!("a task failed"), failure_error))
}

fn failure_error(failure: &TaskFailure) -> anyhow::Error {
    anyhow!("task {} panicked: {}; restart the server, and report this as a bug", failure.task.as_str(), failure.reason)
}

/// TLS verification of the server whose health is checked.
#[derive(Clone, Debug)]
pub struct HealthCheckTls {
    /// CA certificates for verifying the server's certificate, PEM file.
    pub ca_file: PathBuf,
    /// Name in the server's certificate; `None`: its IP address.
    pub server_name: Option<String>,
}

/// Whether the server at `address` reports SERVING; over TLS if `tls` is given. Fails if it cannot be reached.
pub async fn check_remote_health(address: SocketAddr, tls: Option<&HealthCheckTls>) -> anyhow::Result<bool> {
    let endpoint = match tls {
        None => Endpoint::from_shared(format!("http://{address}"))?,
        Some(tls) => {
            let ca = files::read_file_start(&tls.ca_file, HEALTH_CHECK_CA_BYTES_MAX)
                .with_context(|| format!("read {}", tls.ca_file.display()))?;
            let name = tls.server_name.clone().unwrap_or_else(|| address.ip().to_string());
            let client_tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(name);
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(client_tls)?
        }
    };
    let channel = endpoint
        .connect_timeout(HEALTH_CHECK_TIMEOUT)
        .timeout(HEALTH_CHECK_TIMEOUT)
        .connect()
        .await
        .context("connect")?;
    let response =
        HealthClient::new(channel).check(HealthCheckRequest::default()).await.context("request health status")?;
    Ok(response.into_inner().status == ServingStatus::Serving as i32)
}

/// Reloads the rulesets after a change in their folder, and audits the changes. The editor's identity is unknown here.
async fn reload_rulesets(app: &App) {
    let report = app.reloader.reload(LOADED_BY_FOLDER).await;
    let AuditDetails { target, ruleset_changes } = audit_details_of_reload(&report);
    let outcome = if report.problems.is_empty() { "OK" } else { "INVALID_ARGUMENT" };
    let audit_log = app.audit_log.clone();
    let record = AuditRecord {
        role: Some("folder"),
        action: "rulesets edited",
        target,
        ruleset_changes,
        outcome,
        request_id: audit_log.next_request_id(),
        ..AuditRecord::default()
    };
    let written = tokio::task::spawn_blocking(move || audit_log.append(&record)).await;
    if let Err(error) = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        // The rulesets are already in use, so the failure can only be logged.
        tracing::error!(%error, "audit record write failed after a ruleset reload");
    }
}

/// Reloads the certificates.
async fn reload_certificates(app: &App) {
    let Some(tls) = app.tls.clone() else { return };
    let result = match tokio::task::spawn_blocking(move || tls.reload()).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => return,
    };
    app.metrics.tls_loads.get_or_create(&log_reload("certificates", result)).inc();
}

async fn watch_geoip_files(app: &App) -> anyhow::Result<Option<FileWatcher>> {
    let files: Vec<PathBuf> = app.locator.files().map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let (locator, metrics) = (app.locator.clone(), app.metrics.clone());
    let watcher = watch_files(&app.supervisor, files, move || {
        let outcome = log_reload("geolocation databases", locator.reload());
        metrics.record_locality_load(outcome, locator.oldest_build_timestamp_s());
    })
    .await?;
    Ok(Some(watcher))
}

async fn watch_auth_keys(app: &App) -> anyhow::Result<Option<FileWatcher>> {
    let Some(authenticator) = app.authenticator.clone().filter(|authenticator| !authenticator.key_files().is_empty())
    else {
        return Ok(None);
    };
    let metrics = app.metrics.clone();
    let watcher = watch_files(&app.supervisor, authenticator.key_files().to_vec(), move || {
        metrics.auth_key_loads.get_or_create(&log_reload("auth keys", authenticator.reload())).inc();
    })
    .await?;
    Ok(Some(watcher))
}

/// Logs the outcome of a reload of `files`; returns it as a metric label.
fn log_reload<E: Display>(files: &'static str, result: Result<(), E>) -> LoadOutcome {
    match result {
        Ok(()) => {
            tracing::info!("{files} reloaded");
            LoadOutcome::Loaded
        }
        Err(error) => {
            tracing::warn!(%error, "{files} reload failed; the previous ones stay in use");
            LoadOutcome::Rejected
        }
    }
}

async fn watch_files(
    supervisor: &TaskSupervisor,
    paths: Vec<PathBuf>,
    on_change: impl FnMut() + Send + 'static,
) -> anyhow::Result<FileWatcher> {
    let supervisor = supervisor.clone();
    let on_panic = move |panic: &(dyn Any + Send)| drop(supervisor.record_panic(TaskLabel::FileWatcher, panic));
    let watching = tokio::task::spawn_blocking(move || watch_paths(paths, DEFAULT_WATCH_TIMING, on_change, on_panic));
    watching.await.context("watch files for changes")?.context("watch files for changes")
}
