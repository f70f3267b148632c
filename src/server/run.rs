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

use crate::api::operator::{RulesetsDesk as _, deed_of};
use crate::api::oversight::Deed;
use crate::clock::SystemClock;
use crate::config::{Config, RulesetSource};
use crate::server::assemble::{House, assemble};
use crate::server::signal::asked_to_stop;
use crate::server::tls::Tls;
use crate::telemetry::audit::Record;
use crate::telemetry::label::Load;
use crate::watch::{DEFAULT_PACE, Watcher, watch};

/// How often retired rulesets are looked at.
const FORGET_EVERY: Duration = Duration::from_secs(5);

/// How often the log says what the configuration leaves open.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// How long `is_serving` waits for an answer.
const HEALTH_WAIT: Duration = Duration::from_secs(2);

/// Serves until SIGTERM or SIGINT.
pub async fn run(config: Config) -> anyhow::Result<()> {
    // Listening begins before starting, so that a signal in between stops the server in good order.
    let mut stop = std::pin::pin!(asked_to_stop().context("listen for signals")?);
    // Watching begins before loading, so that a change in between is not missed.
    let (changed, mut to_reload) = mpsc::channel::<()>(1);
    let _rulesets = match &config.rulesets {
        RulesetSource::Directory(directory) => Some(watching(vec![directory.clone()], move || {
            // Full means that a reload is due anyway.
            let _ = changed.try_send(());
        })?),
        RulesetSource::Bundled => None,
    };
    let (renewed, mut to_renew) = mpsc::channel::<()>(1);
    let _certificates = match &config.tls {
        Some(files) => Some(watching(Tls::files(files), move || {
            let _ = renewed.try_send(());
        })?),
        None => None,
    };
    let house = assemble(&config, Arc::new(SystemClock::start())).await?;
    let _places = watch_places(&house)?;
    let _keys = watch_keys(&house)?;
    tracing::info!(
        listen = %house.running.address,
        operator_listen = %house.running.operator_address,
        "serving"
    );

    let mut forget = tokio::time::interval(FORGET_EVERY);
    let (risks, mut warn) = (config.risks(), tokio::time::interval(WARN_EVERY));
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(()) = to_reload.recv() => reload(&house).await,
            Some(()) = to_renew.recv() => renew(&house),
            _ = warn.tick(), if !risks.is_empty() => {
                risks.iter().for_each(|risk| tracing::warn!("served without protection by {risk}"));
            }
            _ = forget.tick() => {
                // Refused only while going away.
                let _ = house.engine.forget_rulesets().await;
            }
        }
    }
    tracing::info!("going away");
    house.shutdown().await;
    Ok(())
}

/// By what a server that speaks TLS is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Certificates of those who sign its certificate, PEM.
    pub ca: PathBuf,
    /// The name in its certificate; none: its address.
    pub server_name: Option<String>,
}

/// Whether the server at `address` says that it serves; over TLS, if it is known by something.
pub async fn is_serving(address: SocketAddr, known: Option<&Known>) -> anyhow::Result<bool> {
    let endpoint = match known {
        None => Endpoint::from_shared(format!("http://{address}"))?,
        Some(known) => {
            let ca = std::fs::read(&known.ca).with_context(|| format!("read {}", known.ca.display()))?;
            let name = known.server_name.clone().unwrap_or_else(|| address.ip().to_string());
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(name);
            Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?
        }
    };
    let channel = endpoint.connect_timeout(HEALTH_WAIT).timeout(HEALTH_WAIT).connect().await.context("connect")?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await.context("ask")?;
    Ok(answer.into_inner().status == ServingStatus::Serving as i32)
}

/// Reads the rulesets again, because somebody has edited the folder, and writes down what that has changed. Whoever it was
/// is not known here; the folder's own history says it, where it has one.
async fn reload(house: &House) {
    let reloaded = house.desk.reload().await;
    let Deed { object, changes } = deed_of(&reloaded);
    let outcome = if reloaded.problems.is_empty() { "OK" } else { "INVALID_ARGUMENT" };
    let (role, what, audit) = (Some("folder"), "rulesets edited", house.audit.clone());
    let record = Record { role, what, object, changes, outcome, request_id: audit.request_id(), ..Record::default() };
    let written = tokio::task::spawn_blocking(move || audit.write(&record)).await;
    if let Err(error) = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
        // The rules are in force already: there is nobody to refuse anything to.
        tracing::error!(%error, "the audit file cannot be written; edited rulesets are not in it");
    }
}

/// Reads the certificates again. The files are small and local, and this happens a few times a year.
fn renew(house: &House) {
    let Some(tls) = &house.tls else { return };
    house.metrics.tls_loads.get_or_create(&told("certificates", tls.reload())).inc();
}

fn watch_places(house: &House) -> anyhow::Result<Option<Watcher>> {
    let files: Vec<PathBuf> = house.locator.files().map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let (locator, metrics) = (house.locator.clone(), house.metrics.clone());
    let watcher = watching(files, move || {
        metrics.locality_loads.get_or_create(&told("locality files", locator.reload())).inc();
    })?;
    Ok(Some(watcher))
}

fn watch_keys(house: &House) -> anyhow::Result<Option<Watcher>> {
    let Some(authenticator) = house.authenticator.clone().filter(|it| !it.key_files().is_empty()) else {
        return Ok(None);
    };
    let metrics = house.metrics.clone();
    let watcher = watching(authenticator.key_files().to_vec(), move || {
        metrics.auth_key_loads.get_or_create(&told("auth keys", authenticator.reload())).inc();
    })?;
    Ok(Some(watcher))
}

/// Says in the log how it went to read `what` again, and says it in a word.
fn told<E: Display>(what: &'static str, reloaded: Result<(), E>) -> Load {
    match reloaded {
        Ok(()) => {
            tracing::info!("{what} replaced");
            Load::Adopted
        }
        Err(error) => {
            tracing::warn!(%error, "{what} refused; the old ones stay in use");
            Load::Rejected
        }
    }
}

fn watching(paths: Vec<PathBuf>, on_change: impl FnMut() + Send + 'static) -> anyhow::Result<Watcher> {
    watch(paths, DEFAULT_PACE, on_change).context("watch for changed files")
}
