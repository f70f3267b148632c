//! Postgres store, shared by several servers. Each server keeps a copy in memory, commits here, and reads the others'
//! changes.
//!
//! A row is changed only under its lock, and locks are taken in id order. A batch is decided from the rows as they are
//! under the lock (`apply_writes.rs`, as in every backend). There is no connection pool: each purpose has its own
//! connection, dropped after any error. So no connection is reused with an open transaction. Writes run in tasks that
//! continue if the caller stops waiting.

mod adverts;
mod allocation_offers;
mod beacons;
mod connection;
pub mod diagnosis;
mod outages;
mod queues;
mod replica_identity;
mod ruleset_copies;
mod statistics;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::postgres::connection::feed_pacing::LastKnownChange;
use crate::store::postgres::connection::open;
use crate::store::postgres::connection::slot::{ConnectionSlot, OPERATION_TIMEOUT, query_within};
use crate::store::postgres::connection::statements::READ_DATABASE_TIME;
use crate::store::postgres::connection::unresolved_commits::UnresolvedCommits;
use crate::store::postgres::connection::wait::wait_for_database;
use crate::store::postgres::connection::write_session::{SessionStatements, WriteSession, run_with_exclusive_session};
pub use crate::store::postgres::replica_identity::FireteamReplica;
use crate::store::rows;
use crate::store::unknown_rows::UnknownRows;
use crate::store::writer_version::WriterGate;
use crate::supervisor::TaskSupervisor;

/// Postgres store.
#[derive(Debug)]
pub struct PostgresStore {
    options: PgConnectOptions,
    replica: FireteamReplica,
    advert_session: Arc<Mutex<WriteSession>>,
    /// Session for queue batches, so that they do not wait for advertisement batches.
    queue_session: Arc<Mutex<WriteSession>>,
    /// For leases and user counts, which are useless when late.
    lease_connection: Arc<Mutex<ConnectionSlot>>,
    /// For purges and reads without a waiting client, so that they do not delay commits.
    background_connection: Arc<Mutex<ConnectionSlot>>,
    unresolved_advert_commits: UnresolvedCommits,
    unresolved_queue_commits: UnresolvedCommits,
    last_advert_change: LastKnownChange,
    last_queue_change: LastKnownChange,
    unknown_rows: Arc<UnknownRows>,
    writer_version_check: WriterGate,
    supervisor: TaskSupervisor,
}

impl PostgresStore {
    /// Connects and migrates the schema; several servers can do so at once.
    ///
    /// Errors, each with the remedy: `Unavailable` if the database does not answer. `Incompatible` if a newer server
    /// changed the schema, or if the database would acknowledge a commit before it is durable.
    pub async fn open(url: &str, replica: FireteamReplica) -> Result<Self, StoreError> {
        Self::open_supervised(url, replica, &TaskSupervisor::default()).await
    }

    /// Connects as `open` does. `supervisor` restarts the listeners after a panic.
    pub async fn open_supervised(
        url: &str,
        replica: FireteamReplica,
        supervisor: &TaskSupervisor,
    ) -> Result<Self, StoreError> {
        let options = open::connect_options(url)?;
        open::check_and_migrate(&options).await?;
        let unresolved_advert_commits = UnresolvedCommits::default();
        let unresolved_queue_commits = UnresolvedCommits::default();
        let (last_advert_change, last_queue_change) = (LastKnownChange::default(), LastKnownChange::default());
        let unknown_rows: Arc<UnknownRows> = Arc::default();
        let slot = |purpose| ConnectionSlot::new(purpose, open::with_oltp_settings(&options));
        let session = |purpose, statements, last_change: &LastKnownChange, unresolved: &UnresolvedCommits| {
            let unknown_rows = Arc::clone(&unknown_rows);
            let (last_change, unresolved) = (last_change.clone(), unresolved.clone());
            WriteSession::new(slot(purpose), &replica, statements, last_change, unresolved, unknown_rows)
        };
        let of_adverts = SessionStatements {
            abandon_batch: adverts::statements::ABANDON_BATCH,
            notify: adverts::statements::NOTIFY_OF_CHANGES,
        };
        let of_queues = SessionStatements {
            abandon_batch: queues::statements::ABANDON_BATCH,
            notify: queues::statements::NOTIFY_OF_CHANGES,
        };
        let advert_session = session("adverts", of_adverts, &last_advert_change, &unresolved_advert_commits);
        let queue_session = session("queues", of_queues, &last_queue_change, &unresolved_queue_commits);
        Ok(Self {
            advert_session: Arc::new(Mutex::new(advert_session)),
            queue_session: Arc::new(Mutex::new(queue_session)),
            lease_connection: Arc::new(Mutex::new(slot("leases"))),
            background_connection: Arc::new(Mutex::new(slot("background"))),
            options,
            replica,
            unresolved_advert_commits,
            unresolved_queue_commits,
            last_advert_change,
            last_queue_change,
            unknown_rows,
            writer_version_check: WriterGate::default(),
            supervisor: supervisor.clone(),
        })
    }

    /// Waits for a database that starts, for at most `max`. Each failed attempt is a line of the log.
    ///
    /// Fails with host and cause when the time is over. Returns at once, with success, if waiting cannot help, for example after a
    /// wrong password: `open` then has the error.
    pub async fn wait_until_reachable(url: &str, max: Duration) -> Result<(), StoreError> {
        wait_for_database(&open::connect_options(url)?, max).await
    }

    /// Time of the database's clock, to set the server's clock at startup.
    pub async fn database_time(&self) -> Result<UnixMs, StoreError> {
        self.run_with_advert_session(|mut session| async move {
            let now_ms: i64 = query_within!(session.connection, OPERATION_TIMEOUT, "reading the time", |connection| {
                sqlx::query_scalar(READ_DATABASE_TIME).fetch_one(&mut *connection)
            })?;
            Ok(rows::from_ms(now_ms))
        })
        .await
    }

    /// Runs `operation` in its own task with exclusive access to the advertisement session.
    async fn run_with_advert_session<T, V>(
        &self,
        operation: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        run_with_exclusive_session(&self.advert_session, operation).await
    }
}
