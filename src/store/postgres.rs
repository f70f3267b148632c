//! Postgres store, shared by several servers. Each server keeps a copy in memory, commits here, and reads the others'
//! changes.
//!
//! A row is changed only under its lock, and locks are taken in id order. A batch is decided from the rows as they are
//! under the lock (`apply_writes.rs`, as in every backend). There is no connection pool: each purpose has its own
//! connection, dropped after any error. So no connection is reused with an open transaction. Writes run in tasks that
//! continue if the caller stops waiting.

mod commit;
mod connection;
mod copy_decode;
mod cursor;
mod decode;
mod fast_path;
mod feed;
mod listen;
#[cfg(feature = "mutants")]
mod mutant;
mod open;
mod queues;
mod resolve_commit;
mod statements;
mod transaction;
mod write_rows;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::time::UnixMs;
use crate::store::postgres::connection::{ConnectionSlot, query_within};
use crate::store::postgres::feed::AdvertChangeFeed;
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::statements as sql;
use crate::store::unknown_rows::{RowKey, UnknownRows};
use crate::store::writer_version::WriterGate;
use crate::store::{
    AdvertFeed, AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement, VersionStep, WriteOutcome, rows,
};

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
    unknown_rows: Arc<UnknownRows>,
    writer_gate: WriterGate,
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
    unknown_rows: Arc<UnknownRows>,
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
        let unknown_rows: Arc<UnknownRows> = Arc::default();
        let slot = |purpose| ConnectionSlot::new(purpose, open::with_short_timeouts(&options));
        let session = |purpose, abandon_statement, unresolved_commits: &UnresolvedCommits| WriteSession {
            connection: slot(purpose),
            replica_id: replica.id.cast_signed(),
            batch_count: 0,
            notify_throttle: commit::NotifyThrottle::default(),
            abandon_statement,
            unresolved_commits: unresolved_commits.clone(),
            unknown_rows: Arc::clone(&unknown_rows),
            closed: false,
        };
        let advert_session = session("adverts", sql::ABANDON_BATCH, &unresolved_advert_commits);
        let queue_session = session("queues", queues::ABANDON_BATCH, &unresolved_queue_commits);
        Ok(Self {
            advert_session: Arc::new(Mutex::new(advert_session)),
            queue_session: Arc::new(Mutex::new(queue_session)),
            lease_connection: Arc::new(Mutex::new(slot("leases"))),
            background_connection: Arc::new(Mutex::new(slot("background"))),
            options,
            replica,
            unresolved_advert_commits,
            unresolved_queue_commits,
            unknown_rows,
            writer_gate: WriterGate::default(),
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

    fn new_advert_feed(&self) -> AdvertChangeFeed {
        let unresolved_commits = self.unresolved_advert_commits.clone();
        AdvertChangeFeed::new(&self.options, &self.replica, unresolved_commits, Arc::clone(&self.unknown_rows))
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

#[async_trait]
impl Store for PostgresStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.run_exclusive(move |mut session| async move { delete_expired(&mut session, now).await }).await?;
        self.purge(now).await?;
        let mut stored = self.new_advert_feed().read_batch(&[]).await?.changed;
        stored.sort_unstable_by_key(|stored| stored.advertisement.id);
        Ok(stored)
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        #[cfg(feature = "mutants")]
        if crate::store::mutant::is("transaction_in_the_handler") {
            return transaction::commit_batch(&mut *self.advert_session.lock().await, batch).await;
        }
        self.writer_gate.check()?;
        let is_unknown =
            |write: &AdvertWrite| self.unknown_rows.contains(RowKey::Advertisement(write.advertisement_id()));
        let refused = (WriteOutcome::UnknownRow, VersionStep::default());
        let commit = |batch: Vec<AdvertWrite>| async {
            let CommitResult { outcomes, version_steps } = self
                .run_exclusive(move |mut session| async move { transaction::commit_batch(&mut session, &batch).await })
                .await?;
            Ok(outcomes.into_iter().zip(version_steps).collect())
        };
        let (outcomes, version_steps) =
            self.unknown_rows.commit_known(batch, refused, is_unknown, commit).await?.into_iter().unzip();
        Ok(CommitResult { outcomes, version_steps })
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        self.writer_gate.check()?;
        let slot = Arc::clone(&self.background_connection);
        let task = tokio::spawn(async move { purge_rows(&mut *slot.lock_owned().await, now).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut ids: Vec<Uuid> = ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        ids.sort_unstable();
        let mut slot = self.background_connection.lock().await;
        let rows = query_within!(slot, OPERATION_TIMEOUT, "reading advertisements", |connection| {
            sqlx::query(sql::READ_ADVERTISEMENTS).bind(self.replica.silo_ids()).bind(&ids).fetch_all(&mut *connection)
        })?;
        let (found, _) = feed::decode_changes(&rows, 0, self.replica.id.cast_signed(), &self.unknown_rows)?;
        Ok(found)
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let ids: Vec<Uuid> = query_within!(slot, OPERATION_TIMEOUT, "listing advertisements", |connection| {
            let query = sqlx::query_scalar(sql::LIST_ADVERTISEMENT_IDS).bind(self.replica.silo_ids());
            let query = query.bind(Uuid::from_bytes(*first.as_bytes()));
            query.bind(i64::try_from(limit).unwrap_or(i64::MAX)).fetch_all(&mut *connection)
        })?;
        Ok(ids.into_iter().map(|id| AdvertisementId::from_bytes(id.into_bytes())).collect())
    }

    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        Some(Box::new(self.new_advert_feed()))
    }

    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        self.unknown_rows.counts()
    }

    fn is_writable(&self) -> bool {
        self.writer_gate.is_open()
    }

    async fn close(&self) {
        for session in [&self.advert_session, &self.queue_session] {
            let closed = run_exclusive_on(session, |mut session| async move {
                session.closed = true;
                session.connection.close().await;
                Ok(())
            });
            if let Err(error) = closed.await {
                tracing::debug!(%error, "store close failed");
            }
        }
    }
}

/// Removes expired advertisements, 1,000 per batch, without those of a newer server.
async fn delete_expired(session: &mut WriteSession, now: UnixMs) -> Result<(), StoreError> {
    let mut unknown: Vec<Uuid> = Vec::new();
    loop {
        let expired: Vec<Uuid> =
            query_within!(session.connection, OPERATION_TIMEOUT, "listing expired advertisements", |connection| {
                sqlx::query_scalar(sql::LIST_EXPIRED_IDS)
                    .bind(rows::to_ms(now))
                    .bind(&unknown)
                    .fetch_all(&mut *connection)
            })?;
        if expired.is_empty() {
            return Ok(());
        }
        let all_silos: Option<Vec<i64>> = None;
        let rows =
            query_within!(session.connection, OPERATION_TIMEOUT, "reading expired advertisements", |connection| {
                sqlx::query(sql::READ_ADVERTISEMENTS).bind(&all_silos).bind(&expired).fetch_all(&mut *connection)
            })?;
        let (known, _) = feed::decode_changes(&rows, 0, session.replica_id, &session.unknown_rows)?;
        let known: BTreeSet<AdvertisementId> = known.iter().map(|stored| stored.advertisement.id).collect();
        unknown.extend(expired.iter().filter(|id| !known.contains(&AdvertisementId::from_bytes(id.into_bytes()))));
        if known.is_empty() {
            continue;
        }
        let expire = |id: AdvertisementId| AdvertWrite::Expire { advertisement_id: id, now, expected_version: None };
        transaction::commit_batch(session, &known.into_iter().map(expire).collect::<Vec<_>>()).await?;
    }
}

async fn purge_rows(slot: &mut ConnectionSlot, now: UnixMs) -> Result<(), StoreError> {
    for statement in [sql::PURGE_RESERVATIONS, sql::CLEAR_EXPIRED_DELETIONS, sql::PURGE_TOMBSTONES] {
        for _ in 0..PURGE_STATEMENTS_MAX {
            let result = query_within!(slot, OPERATION_TIMEOUT, "purging", |connection| {
                sqlx::query(statement).bind(rows::to_ms(now)).execute(&mut *connection)
            })?;
            if result.rows_affected() == 0 {
                break;
            }
        }
    }
    for _ in 0..PURGE_STATEMENTS_MAX {
        let result = query_within!(slot, OPERATION_TIMEOUT, "purging", |connection| {
            sqlx::query(sql::PURGE_CHANGES).execute(&mut *connection)
        })?;
        if result.rows_affected() == 0 {
            break;
        }
    }
    Ok(())
}
