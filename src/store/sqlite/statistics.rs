//! Statistics of the SQLite store.

use std::path::Path;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Connection, Row};

use crate::domain::statistic::StatisticKey;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::rows::to_ms;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::{add_path_to_error, to_store_error};
use crate::store::sqlite::connection::open;
use crate::store::statistics::{
    KeyColumns, LONG_KEPT_KINDS, STATISTICS_ROWS_PURGED_PER_BATCH_MAX, STATISTICS_ROWS_READ_PER_STATEMENT_MAX,
    StatisticIncrement, StatisticsBatch, StatisticsQuery, StatisticsStore, StatisticsTotals, TotalsBuilder,
};

/// Records the number of a batch. No row changes if the batch was added before.
const RECORD_BATCH_NUMBER: &str = "insert into statistic_writer (writer, last_number, at_ms) values (?1, ?2, ?3) \
     on conflict (writer) do update set last_number = excluded.last_number, at_ms = excluded.at_ms \
     where last_number < excluded.last_number";

const ADD_INCREMENT: &str = "insert into statistic \
     (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket, count, total) \
     values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
     on conflict (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket) \
     do update set count = count + excluded.count, total = total + excluded.total";

const PURGE_STATISTICS: &str = "delete from statistic where (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket) in \
     (select hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket from statistic \
      where hour_ms < ?2 and (hour_ms < ?1 or kind not in (?3, ?4)) limit ?5)";

const PURGE_WRITERS: &str = "delete from statistic_writer where at_ms < ?1";

const READ_STATISTICS: &str = "select kind, set_id, case when ?1 then region else '' end as told_region, \
     case when ?2 then party_size else 0 end as told_size, ruleset_hash, rule, bucket, sum(count), sum(total) \
     from statistic where ?3 <= hour_ms and hour_ms < ?4 and (?5 is null or set_id = ?5) \
     group by 1, 2, 3, 4, 5, 6, 7 order by 1, 2, 3, 4, 5, 6, 7 limit ?6";

#[async_trait]
impl StatisticsStore for SqliteStore {
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, batch) = (self.path.clone(), batch.clone());
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = add_batch(&mut connection, &batch).await.map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
        read_totals(&self.path, query).await.map_err(|error| add_path_to_error(&self.path, error))
    }
}

/// Adds a batch in one transaction, and purges afterwards. Returns whether more rows are past their retention. After an error
/// the caller closes the connection, which rolls back.
async fn add_batch(connection: &mut SqliteConnection, batch: &StatisticsBatch) -> Result<bool, sqlx::Error> {
    sqlx::query("begin immediate").execute(&mut *connection).await?;
    let number = i64::try_from(batch.number).unwrap_or(i64::MAX);
    let record = sqlx::query(RECORD_BATCH_NUMBER).bind(batch.writer.to_vec()).bind(number).bind(to_ms(batch.now));
    let is_new = record.execute(&mut *connection).await?.rows_affected() > 0;
    if is_new {
        for increment in &batch.increments {
            add_increment(connection, increment).await?;
        }
    }
    sqlx::query("commit").execute(&mut *connection).await?;
    if is_new && batch.purges { purge(connection, batch).await } else { Ok(false) }
}

async fn add_increment(connection: &mut SqliteConnection, increment: &StatisticIncrement) -> Result<(), sqlx::Error> {
    let key = KeyColumns::encode(&increment.key);
    let query = sqlx::query(ADD_INCREMENT)
        .bind(to_ms(increment.hour_start))
        .bind(key.kind)
        .bind(key.set_id)
        .bind(key.region)
        .bind(key.party_size)
        .bind(key.ruleset_hash)
        .bind(key.rule)
        .bind(increment.bucket as i64)
        .bind(i64::try_from(increment.count).unwrap_or(i64::MAX))
        .bind(increment.sum);
    query.execute(connection).await.map(drop)
}

/// Purges rows past their retention. Returns whether there are more.
async fn purge(connection: &mut SqliteConnection, batch: &StatisticsBatch) -> Result<bool, sqlx::Error> {
    let [first_kind, second_kind] = LONG_KEPT_KINDS;
    let query = sqlx::query(PURGE_STATISTICS)
        .bind(to_ms(batch.long_retention_cutoff()))
        .bind(to_ms(batch.short_retention_cutoff()))
        .bind(first_kind)
        .bind(second_kind)
        .bind(STATISTICS_ROWS_PURGED_PER_BATCH_MAX);
    let purged = query.execute(&mut *connection).await?.rows_affected();
    let writers = sqlx::query(PURGE_WRITERS).bind(to_ms(batch.writer_cutoff()));
    writers.execute(connection).await?;
    Ok(STATISTICS_ROWS_PURGED_PER_BATCH_MAX as u64 <= purged)
}

/// Reads on a connection of its own, so that writers do not wait.
async fn read_totals(path: &Path, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
    let mut connection = open::connect(path).await?;
    let mut totals = TotalsBuilder::default();
    for part in query.parts() {
        add_totals(&mut totals, (query, part), &mut connection).await.map_err(to_store_error)?;
    }
    let _ = connection.close().await;
    Ok(totals.finish())
}

/// Adds the totals of a part of the period.
async fn add_totals(
    totals: &mut TotalsBuilder,
    (query, (from, until)): (&StatisticsQuery, (UnixMs, UnixMs)),
    connection: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    let statement = sqlx::query(READ_STATISTICS)
        .bind(query.by_region)
        .bind(query.by_party_size)
        .bind(to_ms(from))
        .bind(to_ms(until))
        .bind(query.set_id.map(|set_id| i64::from(set_id.0)))
        .bind(STATISTICS_ROWS_READ_PER_STATEMENT_MAX);
    let rows = statement.fetch_all(connection).await?;
    for row in &rows {
        if let Some(key) = decode_key(row)? {
            totals.add(key, row.try_get(6)?, row.try_get(7)?, row.try_get(8)?);
        }
    }
    totals.end_part(rows.len());
    Ok(())
}

/// Key of a row; `None` for a row that a newer server wrote.
fn decode_key(row: &SqliteRow) -> Result<Option<StatisticKey>, sqlx::Error> {
    let columns = KeyColumns {
        kind: row.try_get(0)?,
        set_id: row.try_get(1)?,
        region: row.try_get(2)?,
        party_size: row.try_get(3)?,
        ruleset_hash: row.try_get(4)?,
        rule: row.try_get(5)?,
    };
    Ok(columns.decode())
}
