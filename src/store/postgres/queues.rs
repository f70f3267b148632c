//! The queues of the store that several servers share: connections of their own, the same bargain.

mod change;
mod feed;
mod read;
mod statements;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, SiloId, UserKey};
use crate::domain::life::Match;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::postgres::line::{Line, ask};
use crate::store::postgres::queues::feed::ChangeFeed;
use crate::store::postgres::queues::statements as sql;
pub(super) use crate::store::postgres::queues::statements::GIVE_UP;
use crate::store::postgres::{FORGET_ROUNDS_MAX, Postgres, VERB_WITHIN, alone_at};
use crate::store::queues::{Finished, QueueFeed, QueueKey, QueueLoad, QueueOutcome, QueueWrite, Queues};
use crate::store::{StoreError, rows};

impl Postgres {
    fn new_queue_feed(&self) -> ChangeFeed {
        ChangeFeed::new(&self.options, &self.replica, self.unsettled_queues.clone())
    }
}

#[async_trait]
impl Queues for Postgres {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        self.forget_queues(now).await?;
        let news = self.new_queue_feed().read_all().await?;
        Ok(QueueLoad { tickets: news.tickets, matches: news.matches, ratings: news.ratings })
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let batch = batch.to_vec();
        alone_at(&self.queue_desk, |mut desk| async move { change::commit(&mut desk, &batch).await }).await
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        let mut chores = self.chores.lock().await;
        let none: Option<Vec<i64>> = None;
        let row = ask!(chores, VERB_WITHIN, "looking", |connection| sqlx::query(sql::MATCHES)
            .bind(vec![Uuid::from_bytes(*id.as_bytes())])
            .bind(&none)
            .fetch_optional(&mut *connection))?;
        row.as_ref().map(read::play).transpose()
    }

    async fn look_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        let mut chores = self.chores.lock().await;
        let row = ask!(chores, VERB_WITHIN, "looking", |connection| sqlx::query(sql::RESULTS)
            .bind(vec![Uuid::from_bytes(*id.as_bytes())])
            .fetch_optional(&mut *connection))?;
        row.as_ref().map(read::result).transpose()
    }

    async fn rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingChange>, StoreError> {
        let mut chores = self.chores.lock().await;
        let rows = ask!(chores, VERB_WITHIN, "looking", |connection| sqlx::query(sql::RATING_CHANGES)
            .bind(Uuid::from_bytes(*user.as_bytes()))
            .bind(i64::from(set_id.0))
            .fetch_all(&mut *connection))?;
        rows.iter().map(read::change).collect()
    }

    async fn finished(&self, (at, id): (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut chores = self.chores.lock().await;
        let rows = ask!(chores, VERB_WITHIN, "looking", |connection| sqlx::query(sql::FINISHED)
            .bind(rows::to_ms(at))
            .bind(Uuid::from_bytes(*id.as_bytes()))
            .bind(most)
            .fetch_all(&mut *connection))?;
        rows.iter().map(read::finished).collect()
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        let chores = Arc::clone(&self.chores);
        let task = tokio::spawn(async move { forget(&mut *chores.lock_owned().await, now).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    async fn queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        Some(Box::new(self.new_queue_feed()))
    }

    async fn lease(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        let (sets, silos) = columns(queues);
        let mut leases = self.leases.lock().await;
        let held: Vec<(i64, i64)> = ask!(leases, VERB_WITHIN, "a lease", |connection| sqlx::query_as(sql::LEASE)
            .bind(self.replica.number.cast_signed())
            .bind(&sets)
            .bind(&silos)
            .bind(i64::from(for_ms))
            .fetch_all(&mut *connection))?;
        let key = |(set, silo): (i64, i64)| {
            let set_id = SetId(u32::try_from(set).unwrap_or_default());
            QueueKey { set_id, silo: SiloId(silo.cast_unsigned()) }
        };
        let held: Vec<QueueKey> = held.into_iter().map(key).collect();
        Ok(queues.iter().map(|queue| held.contains(queue)).collect())
    }

    async fn release(&self, queues: &[QueueKey]) -> Result<(), StoreError> {
        let (sets, silos) = columns(queues);
        let mut leases = self.leases.lock().await;
        ask!(leases, VERB_WITHIN, "letting a lease go", |connection| sqlx::query(sql::RELEASE)
            .bind(self.replica.number.cast_signed())
            .bind(&sets)
            .bind(&silos)
            .execute(&mut *connection))?;
        Ok(())
    }

    async fn attend(&self, mine: &[(SiloId, u32)]) -> Result<Vec<(SiloId, u32)>, StoreError> {
        let mut mine = mine.to_vec();
        mine.sort_unstable();
        mine.dedup_by_key(|(silo, _)| *silo);
        let (silos, users): (Vec<i64>, Vec<i64>) =
            mine.iter().map(|(silo, users)| (silo.0.cast_signed(), i64::from(*users))).unzip();
        let mut leases = self.leases.lock().await;
        let all: Vec<(i64, i64)> = ask!(leases, VERB_WITHIN, "attendance", |connection| sqlx::query_as(sql::ATTEND)
            .bind(self.replica.number.cast_signed())
            .bind(&silos)
            .bind(&users)
            .fetch_all(&mut *connection))?;
        let said = |(silo, users): (i64, i64)| (SiloId(silo.cast_unsigned()), u32::try_from(users).unwrap_or(u32::MAX));
        Ok(all.into_iter().map(said).collect())
    }
}

/// Sets and silos, in order, each queue once: servers that ask for the same leases wait for each other, not each other's.
fn columns(queues: &[QueueKey]) -> (Vec<i64>, Vec<i64>) {
    let mut queues = queues.to_vec();
    queues.sort_unstable();
    queues.dedup();
    queues.iter().map(|queue| (i64::from(queue.set_id.0), queue.silo.0.cast_signed())).unzip()
}

async fn forget(line: &mut Line, now: UnixMs) -> Result<(), StoreError> {
    for statement in sql::FORGET {
        for _ in 0..FORGET_ROUNDS_MAX {
            let done = ask!(line, VERB_WITHIN, "forgetting", |connection| sqlx::query(statement)
                .bind(rows::to_ms(now))
                .execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    for statement in sql::FORGET_BY_AGE {
        for _ in 0..FORGET_ROUNDS_MAX {
            let done =
                ask!(line, VERB_WITHIN, "forgetting", |connection| sqlx::query(statement).execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}
