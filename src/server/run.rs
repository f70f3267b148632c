//! Serves until told to stop, and keeps rulesets and locality files as fresh as the disk.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::api::operator::RulesetsDesk as _;
use crate::clock::SystemClock;
use crate::config::{Config, RulesetSource};
use crate::server::assemble::{House, assemble};
use crate::server::signal::asked_to_stop;
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
    let house = assemble(&config, Arc::new(SystemClock::start())).await?;
    let _places = watch_places(&house)?;
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
            Some(()) = to_reload.recv() => drop(house.desk.reload().await),
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

/// Whether the server at `address` says that it serves.
pub async fn is_serving(address: SocketAddr) -> anyhow::Result<bool> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}"))?;
    let channel = endpoint.connect_timeout(HEALTH_WAIT).timeout(HEALTH_WAIT).connect().await.context("connect")?;
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await.context("ask")?;
    Ok(answer.into_inner().status == ServingStatus::Serving as i32)
}

fn watch_places(house: &House) -> anyhow::Result<Option<Watcher>> {
    let files: Vec<PathBuf> = house.locator.files().map(PathBuf::from).collect();
    if files.is_empty() {
        return Ok(None);
    }
    let (locator, metrics) = (house.locator.clone(), house.metrics.clone());
    let watcher = watching(files, move || {
        let outcome = match locator.reload() {
            Ok(()) => {
                tracing::info!("locality files replaced");
                Load::Adopted
            }
            Err(error) => {
                tracing::warn!(%error, "locality files refused; the old ones stay in use");
                Load::Rejected
            }
        };
        metrics.locality_loads.get_or_create(&outcome).inc();
    })?;
    Ok(Some(watcher))
}

fn watching(paths: Vec<PathBuf>, on_change: impl FnMut() + Send + 'static) -> anyhow::Result<Watcher> {
    watch(paths, DEFAULT_PACE, on_change).context("watch for changed files")
}
