//! Store of a server at startup: opened, with the clock of its database and the same secret as the other servers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::clock::Clock;
use crate::config::{Config, StoreTarget};
use crate::domain::id::SiloId;
use crate::engine::Engine;
use crate::engine::startup_retry::retry_at_startup;
use crate::files::{READ_DEADLINE, run_with_deadline};
use crate::server::metric_recorders::StoreMeter;
use crate::store::erasure_log::ErasureLog;
use crate::store::memory::MemoryStore;
use crate::store::metered::MeteredStore;
use crate::store::postgres::{FireteamReplica, PostgresStore};
use crate::store::sqlite::SqliteStore;
use crate::store::{Store, StoreError};
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::Metrics;

/// Attempts to read the store's time at startup. A store may be busy when many servers start at once.
const STORE_TIME_ATTEMPTS_MAX: usize = 20;

/// A signal has ended the start while it waited for the database. Nothing was opened.
#[derive(Debug, Error)]
#[error("stopped while waiting for the database")]
pub(in crate::server) struct StoppedWhileWaiting;

/// Opens the store that the configuration names, and waits for a database that does not accept connections yet, until `stop`. The clock follows the database's, if servers share one.
pub(super) async fn open_store(
    config: &Config,
    clock: &dyn Clock,
    metrics: &Arc<Metrics>,
    supervisor: &TaskSupervisor,
    stop: &CancellationToken,
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
            let driver_url = url.driver_url_with_password();
            let max_wait = Duration::from_secs(u64::from(config.store_wait_s));
            tokio::select! {
                reached = PostgresStore::wait_until_reachable(&driver_url, max_wait) => reached?,
                () = stop.cancelled() => return Err(StoppedWhileWaiting.into()),
            }
            let store = PostgresStore::open_supervised(&driver_url, replica, supervisor).await?;
            synchronize_clock(&store, clock).await?;
            Arc::new(store)
        }
    };
    Ok(Arc::new(MeteredStore::new(inner, StoreMeter { metrics: metrics.clone(), monotonic_origin: Instant::now() })))
}

/// Fails if the servers of a database name users by another secret: a player would have two keys in one match.
pub(super) async fn record_or_check_user_key_secret(
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

/// Opens the file of erasures, if there is one, on a thread of its own.
pub(super) async fn open_erasure_log(
    config: &Config,
    user_keys: &PublicUserKeySecret,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Option<Arc<ErasureLog>>> {
    let Some(path) = config.erasure_log_file.clone() else { return Ok(None) };
    let [new_id, _] = u64_halves(clock.random_bytes());
    let (fingerprint, now) = (user_keys.secret_fingerprint(), clock.now());
    let open = move || {
        let file = path.clone();
        run_with_deadline(&file, READ_DEADLINE, move || Ok(ErasureLog::open(&path, new_id, fingerprint, now)))
    };
    Ok(Some(Arc::new(tokio::task::spawn_blocking(open).await???)))
}

/// Erases again, before any client is served, whom the erasure log names and the store has not erased.
pub(super) async fn repeat_kept_erasures(engine: &Engine) -> anyhow::Result<()> {
    let erasures = engine.queues().repeat_kept_erasures().await;
    let erasures = erasures
        .map_err(|error| anyhow!("repeat the erasures of the erasure log: {error:?}; see the log before this line"))?;
    if erasures > 0 {
        tracing::warn!(erasures, "erasures not finished in this store, they were repeated");
    }
    Ok(())
}

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
