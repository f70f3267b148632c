//! Postgres store, shared by several servers. Each server keeps a copy in memory, commits here, and reads the others'
//! changes.
//!
//! A row is changed only under its lock, and locks are taken in id order. A batch is decided from the rows as they are
//! under the lock (`apply_writes.rs`, as in every backend). There is no connection pool: each purpose has its own
//! connection, dropped after any error. So no connection is reused with an open transaction. Writes run in tasks that
//! continue if the caller stops waiting.

mod adverts;
mod connection;
mod queues;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::SiloId;
use crate::domain::time::UnixMs;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::connection::resolve_commit::UnresolvedCommits;
use crate::store::postgres::connection::slot::{ConnectionSlot, query_within};
use crate::store::postgres::connection::{commit, open};
use crate::store::{StoreError, rows};

/// Time limit of an operation other than a commit.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of purge statements per table in one call; each removes at most 1,000 rows.
const PURGE_STATEMENTS_MAX: usize = 20;

/// Identity of this server, and the silos that it serves.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Random id, new at every start: a restarted server is another replica.
    pub id: u64,
    /// Silos that this server loads and serves; `None` for all.
    pub silos: Option<Vec<SiloId>>,
}

impl Replica {
    /// Silos as column values.
    fn silo_ids(&self) -> Option<Vec<i64>> {
        self.silos.as_ref().map(|silos| silos.iter().map(|silo| silo.0.cast_signed()).collect())
    }
}

/// Postgres store.
#[derive(Debug)]
pub struct PostgresStore {
    options: PgConnectOptions,
    replica: Replica,
    advert_session: Arc<Mutex<WriteSession>>,
    /// Session for queue batches, so that they do not wait for advertisement batches.
    queue_session: Arc<Mutex<WriteSession>>,
    /// For leases and user counts, which are useless when late.
    lease_connection: Arc<Mutex<ConnectionSlot>>,
    /// For purges and reads without a waiting client, so that they do not delay commits.
    background_connection: Arc<Mutex<ConnectionSlot>>,
    unresolved_advert_commits: UnresolvedCommits,
    unresolved_queue_commits: UnresolvedCommits,
}

/// Connection and state for writing one batch at a time.
#[derive(Debug)]
struct WriteSession {
    connection: ConnectionSlot,
    replica_id: i64,
    /// Number of batches started; with the replica id it forms the batch id.
    batch_count: u64,
    notify_throttle: commit::NotifyThrottle,
    /// Statement that abandons a batch, of advertisements or of queues.
    abandon_statement: &'static str,
    unresolved_commits: UnresolvedCommits,
    closed: bool,
}

impl PostgresStore {
    /// Connects and migrates the schema; several servers can do so at once.
    ///
    /// Errors, each with the remedy: `Unavailable` if the database does not answer. `Incompatible` if a newer server
    /// changed the schema, or if the database would acknowledge a commit before it is durable.
    pub async fn open(url: &str, replica: Replica) -> Result<Self, StoreError> {
        let options = open::connect_options(url)?;
        open::check_and_migrate(&options).await?;
        let unresolved_advert_commits = UnresolvedCommits::default();
        let unresolved_queue_commits = UnresolvedCommits::default();
        let slot = |purpose| ConnectionSlot::new(purpose, open::with_short_timeouts(&options));
        let advert_session =
            WriteSession::new(slot("adverts"), &replica, sql::ABANDON_BATCH, unresolved_advert_commits.clone());
        let queue_session =
            WriteSession::new(slot("queues"), &replica, queues::ABANDON_BATCH, unresolved_queue_commits.clone());
        Ok(Self {
            advert_session: Arc::new(Mutex::new(advert_session)),
            queue_session: Arc::new(Mutex::new(queue_session)),
            lease_connection: Arc::new(Mutex::new(slot("leases"))),
            background_connection: Arc::new(Mutex::new(slot("background"))),
            options,
            replica,
            unresolved_advert_commits,
            unresolved_queue_commits,
        })
    }

    /// Time of the database's clock, to set the server's clock at startup.
    pub async fn database_time(&self) -> Result<UnixMs, StoreError> {
        #[cfg(feature = "mutants")]
        if crate::store::mutant::is("expiry_by_the_local_clock") {
            return Ok(crate::clock::Clock::now(&crate::clock::SystemClock::start()));
        }
        self.run_exclusive(|mut session| async move {
            let now_ms: i64 = query_within!(session.connection, OPERATION_TIMEOUT, "reading the time", |connection| {
                sqlx::query_scalar(sql::READ_DATABASE_TIME).fetch_one(&mut *connection)
            })?;
            Ok(rows::from_ms(now_ms))
        })
        .await
    }

    /// Runs `operation` in its own task with exclusive access to the advertisement session.
    async fn run_exclusive<T, V>(
        &self,
        operation: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        run_exclusive_on(&self.advert_session, operation).await
    }
}

impl WriteSession {
    fn new(
        connection: ConnectionSlot,
        replica: &Replica,
        abandon_statement: &'static str,
        unresolved_commits: UnresolvedCommits,
    ) -> Self {
        Self {
            connection,
            replica_id: replica.id.cast_signed(),
            batch_count: 0,
            notify_throttle: commit::NotifyThrottle::default(),
            abandon_statement,
            unresolved_commits,
            closed: false,
        }
    }
}

/// Runs `operation` in its own task with exclusive access to `session`.
async fn run_exclusive_on<T, V>(
    session: &Arc<Mutex<WriteSession>>,
    operation: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    V: Future<Output = Result<T, StoreError>> + Send,
{
    let session = Arc::clone(session);
    let task = tokio::spawn(async move {
        let session = session.lock_owned().await;
        if session.closed {
            Err(StoreError::Unavailable("the store is closed".into()))
        } else {
            operation(session).await
        }
    });
    task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
}
