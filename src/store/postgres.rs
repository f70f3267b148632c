//! The store that several servers share: Postgres. Memory proposes, this decides, and each server hears of the others.
//!
//! Nobody's row is changed but under its lock, taken in the order of ids; what a batch found then is what it decides by
//! (`decide.rs`, as in every store). There is no pool: each purpose has a connection of its own, which is thrown away
//! the moment anything goes wrong with it, so that none is ever used again with somebody's transaction open in it (F1).
//! Changes run in tasks that no caller can stop.

mod attempt;
mod change;
mod copied;
mod feed;
mod line;
mod mark;
#[cfg(feature = "mutants")]
mod mutant;
mod open;
mod plain;
mod queues;
mod read;
mod settle;
mod statements;
mod wake;
mod write;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnectOptions;
use sqlx::types::Uuid;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::time::UnixMs;
use crate::store::postgres::feed::ChangeFeed;
use crate::store::postgres::line::{Line, ask};
use crate::store::postgres::settle::Unsettled;
use crate::store::postgres::statements as sql;
use crate::store::{Committed, Feed, Store, StoreError, StoredAdvertisement, Write, rows};

/// What a verb other than a commit may take.
const VERB_WITHIN: Duration = Duration::from_secs(2);

/// How often one call of `forget` goes on to the next thousand rows of a kind.
const FORGET_ROUNDS_MAX: usize = 20;

/// Which server this is, and what of the database is its business.
#[derive(Clone, Debug)]
pub struct Replica {
    /// Drawn at every start: two starts of one server are two.
    pub number: u64,
    /// The populations that it loads and serves; `None` for all.
    pub silos: Option<Vec<SiloId>>,
}

impl Replica {
    /// The silos as the database has them.
    fn silos(&self) -> Option<Vec<i64>> {
        self.silos.as_ref().map(|silos| silos.iter().map(|silo| silo.0.cast_signed()).collect())
    }
}

/// The store that several servers share.
#[derive(Debug)]
pub struct Postgres {
    options: PgConnectOptions,
    replica: Replica,
    desk: Arc<Mutex<Desk>>,
    /// The same for changes to the queues: the one does not wait for the other.
    queue_desk: Arc<Mutex<Desk>>,
    /// For leases and attendance, which are of little worth when they are late.
    leases: Arc<Mutex<Line>>,
    /// For what nobody waits for, so that it keeps no commit waiting.
    chores: Arc<Mutex<Line>>,
    unsettled: Unsettled,
    unsettled_queues: Unsettled,
}

/// What changes need, one batch at a time.
#[derive(Debug)]
struct Desk {
    writes: Line,
    replica: i64,
    /// Batches begun: with the replica's number, each one's name.
    batches: u64,
    bell: attempt::Bell,
    /// What gives a batch up: of advertisements, or of the queues.
    give_up: &'static str,
    unsettled: Unsettled,
    closed: bool,
}

impl Postgres {
    /// Connects, and brings the schema up to date; several servers may do so at once.
    ///
    /// `Unavailable` when nobody answers, `Version` when a newer server has changed the schema, or when the database
    /// would answer before a change is durable. Each says in one line what to do.
    pub async fn open(url: &str, replica: Replica) -> Result<Self, StoreError> {
        let options = open::options(url)?;
        open::prepare(&options).await?;
        let (unsettled, unsettled_queues) = (Unsettled::default(), Unsettled::default());
        let line = |purpose| Line::new(purpose, open::hurried(&options));
        let desk = Desk::new(line("changes"), &replica, sql::GIVE_UP, unsettled.clone());
        let queue_desk = Desk::new(line("queues"), &replica, queues::GIVE_UP, unsettled_queues.clone());
        Ok(Self {
            desk: Arc::new(Mutex::new(desk)),
            queue_desk: Arc::new(Mutex::new(queue_desk)),
            leases: Arc::new(Mutex::new(line("leases"))),
            chores: Arc::new(Mutex::new(line("chores"))),
            options,
            replica,
            unsettled,
            unsettled_queues,
        })
    }

    /// The database's clock, to begin with (R10).
    pub async fn now(&self) -> Result<UnixMs, StoreError> {
        #[cfg(feature = "mutants")]
        if crate::store::mutant::is("expiry_by_the_local_clock") {
            return Ok(crate::clock::Clock::now(&crate::clock::SystemClock::start()));
        }
        self.alone(|mut desk| async move {
            let now: i64 = ask!(desk.writes, VERB_WITHIN, "the time", |connection| sqlx::query_scalar(sql::NOW)
                .fetch_one(&mut *connection))?;
            Ok(rows::from_ms(now))
        })
        .await
    }

    /// Runs `verb` in a task of its own, with the desk to itself.
    async fn alone<T, V>(&self, verb: impl FnOnce(OwnedMutexGuard<Desk>) -> V + Send + 'static) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        alone_at(&self.desk, verb).await
    }

    fn new_feed(&self) -> ChangeFeed {
        ChangeFeed::new(&self.options, &self.replica, self.unsettled.clone())
    }
}

impl Desk {
    fn new(writes: Line, replica: &Replica, give_up: &'static str, unsettled: Unsettled) -> Self {
        let replica = replica.number.cast_signed();
        Self { writes, replica, batches: 0, bell: attempt::Bell::default(), give_up, unsettled, closed: false }
    }
}

/// Runs `verb` in a task of its own, with `desk` to itself.
async fn alone_at<T, V>(
    desk: &Arc<Mutex<Desk>>,
    verb: impl FnOnce(OwnedMutexGuard<Desk>) -> V + Send + 'static,
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
impl Store for Postgres {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.alone(move |mut desk| async move { remove_expired(&mut desk, now).await }).await?;
        self.forget(now).await?;
        let mut stored = self.new_feed().read(&[]).await?.changed;
        stored.sort_unstable_by_key(|stored| stored.advertisement.id);
        Ok(stored)
    }

    async fn commit(&self, batch: &[Write]) -> Result<Committed, StoreError> {
        if batch.is_empty() {
            return Ok(Committed::default());
        }
        #[cfg(feature = "mutants")]
        if crate::store::mutant::is("transaction_in_the_handler") {
            return change::commit(&mut *self.desk.lock().await, batch).await;
        }
        let batch = batch.to_vec();
        self.alone(move |mut desk| async move { change::commit(&mut desk, &batch).await }).await
    }

    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        let chores = Arc::clone(&self.chores);
        let task = tokio::spawn(async move { forget(&mut *chores.lock_owned().await, now).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    async fn look(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut ids: Vec<Uuid> = ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        ids.sort_unstable();
        let mut chores = self.chores.lock().await;
        let rows = ask!(chores, VERB_WITHIN, "looking", |connection| sqlx::query(sql::READ_SOME)
            .bind(self.replica.silos())
            .bind(&ids)
            .fetch_all(&mut *connection))?;
        let (there, _) = feed::sort(&rows, 0, self.replica.number.cast_signed())?;
        Ok(there)
    }

    async fn names(&self, first: AdvertisementId, most: usize) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut chores = self.chores.lock().await;
        let names: Vec<Uuid> =
            ask!(chores, VERB_WITHIN, "looking for names", |connection| sqlx::query_scalar(sql::NAMES)
                .bind(self.replica.silos())
                .bind(Uuid::from_bytes(*first.as_bytes()))
                .bind(i64::try_from(most).unwrap_or(i64::MAX))
                .fetch_all(&mut *connection))?;
        Ok(names.into_iter().map(|id| AdvertisementId::from_bytes(id.into_bytes())).collect())
    }

    async fn feed(&self) -> Option<Box<dyn Feed>> {
        Some(Box::new(self.new_feed()))
    }

    async fn close(&self) {
        for desk in [&self.desk, &self.queue_desk] {
            let closing = alone_at(desk, |mut desk| async move {
                desk.closed = true;
                desk.writes.close().await;
                Ok(())
            });
            if let Err(error) = closing.await {
                tracing::debug!(%error, "close the store");
            }
        }
    }
}

/// Removes what has expired, a thousand at a time, as any change.
async fn remove_expired(desk: &mut Desk, now: UnixMs) -> Result<(), StoreError> {
    loop {
        let due: Vec<Uuid> =
            ask!(desk.writes, VERB_WITHIN, "looking for the expired", |connection| sqlx::query_scalar(
                sql::FIND_EXPIRED
            )
            .bind(rows::to_ms(now))
            .fetch_all(&mut *connection))?;
        if due.is_empty() {
            return Ok(());
        }
        let expire = |id: &Uuid| Write::Expire { id: AdvertisementId::from_bytes(id.into_bytes()), now, seen: None };
        change::commit(desk, &due.iter().map(expire).collect::<Vec<_>>()).await?;
    }
}

async fn forget(line: &mut Line, now: UnixMs) -> Result<(), StoreError> {
    for statement in [sql::FORGET_RESERVATIONS, sql::FORGET_DELETIONS, sql::FORGET_NAMES] {
        for _ in 0..FORGET_ROUNDS_MAX {
            let done = ask!(line, VERB_WITHIN, "forgetting", |connection| sqlx::query(statement)
                .bind(rows::to_ms(now))
                .execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    for _ in 0..FORGET_ROUNDS_MAX {
        let forgotten = ask!(line, VERB_WITHIN, "forgetting", |connection| sqlx::query(sql::FORGET_CHANGES)
            .execute(&mut *connection))?;
        if forgotten.rows_affected() == 0 {
            break;
        }
    }
    Ok(())
}
