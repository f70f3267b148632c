//! The store that several servers share: Postgres. Memory proposes, this decides, and each server hears of the others.
//!
//! Nobody's row is changed but under its lock, taken in the order of ids; what a batch found then is what it decides by
//! (`decide.rs`, as in every store). There is no pool: each purpose has a connection of its own, which is thrown away
//! the moment anything goes wrong with it, so that none is ever used again with somebody's transaction open in it (F1).
//! Changes run in tasks that no caller can stop.

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

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::time::UnixMs;
use crate::store::postgres::connection::{ConnectionSlot, ask};
use crate::store::postgres::feed::AdvertChangeFeed;
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::statements as sql;
use crate::store::{AdvertFeed, AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement, rows};

/// What a verb other than a commit may take.
const OPERATION_TIMEOUT: Duration = Duration::from_secs(2);

/// How often one call of `forget` goes on to the next thousand rows of a kind.
const PURGE_STATEMENTS_MAX: usize = 20;

/// Which server this is, and what of the database is its business.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Drawn at every start: two starts of one server are two.
    pub id: u64,
    /// The populations that it loads and serves; `None` for all.
    pub silos: Option<Vec<SiloId>>,
}

impl Replica {
    /// The silos as the database has them.
    fn silo_ids(&self) -> Option<Vec<i64>> {
        self.silos.as_ref().map(|silos| silos.iter().map(|silo| silo.0.cast_signed()).collect())
    }
}

/// The store that several servers share.
#[derive(Debug)]
pub struct PostgresStore {
    options: PgConnectOptions,
    replica: Replica,
    advert_session: Arc<Mutex<WriteSession>>,
    /// The same for changes to the queues: the one does not wait for the other.
    queue_session: Arc<Mutex<WriteSession>>,
    /// For leases and attendance, which are of little worth when they are late.
    lease_connection: Arc<Mutex<ConnectionSlot>>,
    /// For what nobody waits for, so that it keeps no commit waiting.
    background_connection: Arc<Mutex<ConnectionSlot>>,
    unresolved_advert_commits: UnresolvedCommits,
    unresolved_queue_commits: UnresolvedCommits,
}

/// What changes need, one batch at a time.
#[derive(Debug)]
struct WriteSession {
    connection: ConnectionSlot,
    replica_id: i64,
    /// Batches begun: with the replica's number, each one's name.
    batch_count: u64,
    notify_throttle: commit::NotifyThrottle,
    /// What gives a batch up: of advertisements, or of the queues.
    abandon_statement: &'static str,
    unresolved_commits: UnresolvedCommits,
    closed: bool,
}

impl PostgresStore {
    /// Connects, and brings the schema up to date; several servers may do so at once.
    ///
    /// `Unavailable` when nobody answers, `Version` when a newer server has changed the schema, or when the database
    /// would answer before a change is durable. Each says in one line what to do.
    pub async fn open(url: &str, replica: Replica) -> Result<Self, StoreError> {
        let options = open::connect_options(url)?;
        open::check_and_migrate(&options).await?;
        let (unsettled, unsettled_queues) = (UnresolvedCommits::default(), UnresolvedCommits::default());
        let line = |purpose| ConnectionSlot::new(purpose, open::with_short_timeouts(&options));
        let desk = WriteSession::new(line("changes"), &replica, sql::ABANDON_BATCH, unsettled.clone());
        let queue_desk = WriteSession::new(line("queues"), &replica, queues::ABANDON_BATCH, unsettled_queues.clone());
        Ok(Self {
            advert_session: Arc::new(Mutex::new(desk)),
            queue_session: Arc::new(Mutex::new(queue_desk)),
            lease_connection: Arc::new(Mutex::new(line("leases"))),
            background_connection: Arc::new(Mutex::new(line("chores"))),
            options,
            replica,
            unresolved_advert_commits: unsettled,
            unresolved_queue_commits: unsettled_queues,
        })
    }

    /// The database's clock, to begin with (R10).
    pub async fn database_time(&self) -> Result<UnixMs, StoreError> {
        #[cfg(feature = "mutants")]
        if crate::store::mutant::is("expiry_by_the_local_clock") {
            return Ok(crate::clock::Clock::now(&crate::clock::SystemClock::start()));
        }
        self.run_exclusive(|mut desk| async move {
            let now: i64 = ask!(desk.connection, OPERATION_TIMEOUT, "the time", |connection| sqlx::query_scalar(
                sql::READ_DATABASE_TIME
            )
            .fetch_one(&mut *connection))?;
            Ok(rows::from_ms(now))
        })
        .await
    }

    /// Runs `verb` in a task of its own, with the desk to itself.
    async fn run_exclusive<T, V>(
        &self,
        verb: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        run_exclusive_on(&self.advert_session, verb).await
    }

    fn new_advert_feed(&self) -> AdvertChangeFeed {
        AdvertChangeFeed::new(&self.options, &self.replica, self.unresolved_advert_commits.clone())
    }
}

impl WriteSession {
    fn new(writes: ConnectionSlot, replica: &Replica, give_up: &'static str, unsettled: UnresolvedCommits) -> Self {
        let replica = replica.id.cast_signed();
        Self {
            connection: writes,
            replica_id: replica,
            batch_count: 0,
            notify_throttle: commit::NotifyThrottle::default(),
            abandon_statement: give_up,
            unresolved_commits: unsettled,
            closed: false,
        }
    }
}

/// Runs `verb` in a task of its own, with `desk` to itself.
async fn run_exclusive_on<T, V>(
    desk: &Arc<Mutex<WriteSession>>,
    verb: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    V: Future<Output = Result<T, StoreError>> + Send,
{
    let desk = Arc::clone(desk);
    let task = tokio::spawn(async move {
        let desk = desk.lock_owned().await;
        if desk.closed { Err(StoreError::Unavailable("it is closed".into())) } else { verb(desk).await }
    });
    task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
}

#[async_trait]
impl Store for PostgresStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.run_exclusive(move |mut desk| async move { delete_expired(&mut desk, now).await }).await?;
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
        let batch = batch.to_vec();
        self.run_exclusive(move |mut desk| async move { transaction::commit_batch(&mut desk, &batch).await }).await
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        let chores = Arc::clone(&self.background_connection);
        let task = tokio::spawn(async move { purge_rows(&mut *chores.lock_owned().await, now).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut ids: Vec<Uuid> = ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        ids.sort_unstable();
        let mut chores = self.background_connection.lock().await;
        let rows = ask!(chores, OPERATION_TIMEOUT, "looking", |connection| sqlx::query(sql::READ_ADVERTISEMENTS)
            .bind(self.replica.silo_ids())
            .bind(&ids)
            .fetch_all(&mut *connection))?;
        let (there, _) = feed::decode_changes(&rows, 0, self.replica.id.cast_signed())?;
        Ok(there)
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut chores = self.background_connection.lock().await;
        let names: Vec<Uuid> = ask!(chores, OPERATION_TIMEOUT, "looking for names", |connection| sqlx::query_scalar(
            sql::LIST_ADVERTISEMENT_IDS
        )
        .bind(self.replica.silo_ids())
        .bind(Uuid::from_bytes(*first.as_bytes()))
        .bind(i64::try_from(most).unwrap_or(i64::MAX))
        .fetch_all(&mut *connection))?;
        Ok(names.into_iter().map(|id| AdvertisementId::from_bytes(id.into_bytes())).collect())
    }

    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        Some(Box::new(self.new_advert_feed()))
    }

    async fn close(&self) {
        for desk in [&self.advert_session, &self.queue_session] {
            let closing = run_exclusive_on(desk, |mut desk| async move {
                desk.closed = true;
                desk.connection.close().await;
                Ok(())
            });
            if let Err(error) = closing.await {
                tracing::debug!(%error, "close the store");
            }
        }
    }
}

/// Removes what has expired, a thousand at a time, as any change.
async fn delete_expired(desk: &mut WriteSession, now: UnixMs) -> Result<(), StoreError> {
    loop {
        let due: Vec<Uuid> =
            ask!(desk.connection, OPERATION_TIMEOUT, "looking for the expired", |connection| sqlx::query_scalar(
                sql::LIST_EXPIRED_IDS
            )
            .bind(rows::to_ms(now))
            .fetch_all(&mut *connection))?;
        if due.is_empty() {
            return Ok(());
        }
        let expire = |id: &Uuid| AdvertWrite::Expire {
            advertisement_id: AdvertisementId::from_bytes(id.into_bytes()),
            now,
            expected_version: None,
        };
        transaction::commit_batch(desk, &due.iter().map(expire).collect::<Vec<_>>()).await?;
    }
}

async fn purge_rows(line: &mut ConnectionSlot, now: UnixMs) -> Result<(), StoreError> {
    for statement in [sql::PURGE_RESERVATIONS, sql::CLEAR_EXPIRED_DELETIONS, sql::PURGE_TOMBSTONES] {
        for _ in 0..PURGE_STATEMENTS_MAX {
            let done = ask!(line, OPERATION_TIMEOUT, "forgetting", |connection| sqlx::query(statement)
                .bind(rows::to_ms(now))
                .execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    for _ in 0..PURGE_STATEMENTS_MAX {
        let forgotten = ask!(line, OPERATION_TIMEOUT, "forgetting", |connection| sqlx::query(sql::PURGE_CHANGES)
            .execute(&mut *connection))?;
        if forgotten.rows_affected() == 0 {
            break;
        }
    }
    Ok(())
}
