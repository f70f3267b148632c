//! The queues of the store in one file: the same connection, the same bargain.

mod change;
mod read;
pub(super) mod statements;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Connection;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::life::Match;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::queues::{Finished, QueueLoad, QueueOutcome, QueueWrite, Queues};
use crate::store::sqlite::change::json_array;
use crate::store::sqlite::queues::statements as sql;
use crate::store::sqlite::{FORGET_ROUNDS_MAX, Sqlite, about, open, unavailable};
use crate::store::{StoreError, rows};

#[async_trait]
impl Queues for Sqlite {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        let path = self.path.clone();
        self.alone(move |mut door| async move {
            let mut connection = door.take(&path).await?;
            let answer = load(&mut connection, now).await;
            door.give_back(connection, &answer);
            answer
        })
        .await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let (path, batch, mover) = (self.path.clone(), batch.to_vec(), Arc::clone(&self.moving.mover));
        self.alone(move |mut door| async move {
            let mut connection = door.take_to_write(&path, &mover).await?;
            let answer = change::commit(&mut connection, &batch).await;
            door.give_back(connection, &answer);
            let (outcomes, length) = answer?;
            door.heard(length, &mover);
            Ok(outcomes)
        })
        .await
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        let names = json_array([id.as_bytes()].into_iter());
        let rows = look(&self.path, sqlx::query(sql::MATCHES).bind(names)).await;
        let rows = rows.map_err(|error| about(&self.path, error))?;
        rows.first().map(read::play).transpose()
    }

    async fn look_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        let names = json_array([id.as_bytes()].into_iter());
        let rows = look(&self.path, sqlx::query(sql::RESULTS).bind(names)).await;
        let rows = rows.map_err(|error| about(&self.path, error))?;
        rows.first().map(read::result).transpose()
    }

    async fn rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingChange>, StoreError> {
        let query = sqlx::query(sql::RATING_CHANGES).bind(user.as_bytes().to_vec()).bind(i64::from(set_id.0));
        let rows = look(&self.path, query).await.map_err(|error| about(&self.path, error))?;
        rows.iter().map(read::change).collect()
    }

    async fn finished(&self, (at, id): (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let query = sqlx::query(sql::FINISHED).bind(rows::to_ms(at)).bind(id.as_bytes().to_vec()).bind(most);
        let rows = look(&self.path, query).await.map_err(|error| about(&self.path, error))?;
        rows.iter().map(read::finished).collect()
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        let path = self.path.clone();
        self.alone(move |mut door| async move {
            let mut connection = door.take(&path).await?;
            let answer = forget(&mut connection, now).await;
            door.give_back(connection, &answer);
            answer
        })
        .await
    }
}

/// Rows as they are, on a connection of its own: it holds no change up.
async fn look(
    path: &Path,
    query: sqlx::query::Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<Vec<SqliteRow>, StoreError> {
    let mut connection = open::connect(path).await?;
    let rows = query.fetch_all(&mut connection).await.map_err(unavailable)?;
    let _ = connection.close().await;
    Ok(rows)
}

async fn load(connection: &mut SqliteConnection, now: UnixMs) -> Result<QueueLoad, StoreError> {
    forget(connection, now).await?;
    let mut load = QueueLoad::default();
    for row in sqlx::query(sql::LOAD_TICKETS).fetch_all(&mut *connection).await.map_err(unavailable)? {
        load.tickets.push(read::ticket(&row)?);
    }
    for row in sqlx::query(sql::LOAD_MATCHES).fetch_all(&mut *connection).await.map_err(unavailable)? {
        load.matches.push(read::play(&row)?);
    }
    for row in sqlx::query(sql::LOAD_RATINGS).fetch_all(connection).await.map_err(unavailable)? {
        load.ratings.push(read::rating(&row)?);
    }
    Ok(load)
}

async fn forget(connection: &mut SqliteConnection, now: UnixMs) -> Result<(), StoreError> {
    for statement in sql::FORGET {
        for _ in 0..FORGET_ROUNDS_MAX {
            let query = sqlx::query(statement).bind(rows::to_ms(now));
            if query.execute(&mut *connection).await.map_err(unavailable)?.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}
