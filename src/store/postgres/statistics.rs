//! Statistics of the Postgres store.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Connection, Row};

use crate::domain::statistic::StatisticKey;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::rows::to_ms;
use crate::store::statistics::{
    KeyColumns, LONG_KEPT_KINDS, STATISTICS_ROWS_PURGED_PER_BATCH_MAX, STATISTICS_ROWS_READ_PER_STATEMENT_MAX,
    StatisticsBatch, StatisticsQuery, StatisticsStore, StatisticsTotals, TotalsBuilder,
};

/// Records the number of a batch. No row changes if the batch was added before.
const RECORD_BATCH_NUMBER: &str = "insert into statistic_writer as stored (writer, last_number, at_ms) values ($1, $2, $3) \
     on conflict (writer) do update set last_number = excluded.last_number, at_ms = excluded.at_ms \
     where stored.last_number < excluded.last_number";

const ADD_INCREMENTS: &str = "insert into statistic as stored \
     (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket, count, total) \
     select * from unnest($1::bigint[], $2::integer[], $3::bigint[], $4::text[], $5::integer[], $6::bigint[], $7::text[], \
     $8::integer[], $9::bigint[], $10::double precision[]) \
     on conflict (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket) \
     do update set count = stored.count + excluded.count, total = stored.total + excluded.total";

const PURGE_STATISTICS: &str = "delete from statistic where ctid in (select ctid from statistic \
     where hour_ms < $2 and (hour_ms < $1 or kind <> all($3)) limit $4 for update skip locked)";

const PURGE_WRITERS: &str = "delete from statistic_writer where writer in \
     (select writer from statistic_writer where at_ms < $1 limit $2 for update skip locked)";

/// In the order of keys in memory: the database may order texts otherwise.
const READ_STATISTICS: &str = "select kind, set_id, case when $1 then region else '' end collate \"C\", \
     case when $2 then party_size else 0 end, ruleset_hash, rule collate \"C\", bucket, \
     least(sum(count), 9223372036854775807)::bigint, sum(total) \
     from statistic where $3 <= hour_ms and hour_ms < $4 and ($5::bigint is null or set_id = $5) \
     group by 1, 2, 3, 4, 5, 6, 7 order by 1, 2, 3, 4, 5, 6, 7 limit $6";

#[async_trait]
impl StatisticsStore for PostgresStore {
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = Arc::clone(&self.background_connection).lock_owned().await;
        let is_new =
            query_within!(slot, OPERATION_TIMEOUT, "adding statistics", |connection| add_batch(connection, batch))?;
        if !batch.purges || !is_new {
            return Ok(false);
        }
        query_within!(slot, OPERATION_TIMEOUT, "purging statistics", |connection| purge(connection, batch))
    }

    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
        let mut totals = TotalsBuilder::default();
        for part in query.parts() {
            let mut slot = Arc::clone(&self.background_connection).lock_owned().await;
            query_within!(slot, OPERATION_TIMEOUT, "reading statistics", |connection| read_totals_of_time_range(
                &mut totals,
                (query, part),
                connection
            ))?;
        }
        Ok(totals.finish())
    }
}

/// Adds a batch in one transaction. Returns false if it was added before.
async fn add_batch(connection: &mut PgConnection, batch: &StatisticsBatch) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let record = sqlx::query(RECORD_BATCH_NUMBER)
        .bind(Uuid::from_bytes(batch.writer))
        .bind(i64::try_from(batch.number).unwrap_or(i64::MAX))
        .bind(to_ms(batch.now));
    let is_new = record.execute(&mut *transaction).await?.rows_affected() > 0;
    if is_new && !batch.increments.is_empty() {
        add_increments(&mut transaction, batch).await?;
    }
    transaction.commit().await?;
    Ok(is_new)
}

/// Purges rows past their retention. Returns whether there are more.
async fn purge(connection: &mut PgConnection, batch: &StatisticsBatch) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(PURGE_STATISTICS)
        .bind(to_ms(batch.long_retention_cutoff()))
        .bind(to_ms(batch.short_retention_cutoff()))
        .bind(LONG_KEPT_KINDS.to_vec())
        .bind(STATISTICS_ROWS_PURGED_PER_BATCH_MAX);
    let purged = query.execute(&mut *connection).await?.rows_affected();
    let writers =
        sqlx::query(PURGE_WRITERS).bind(to_ms(batch.writer_cutoff())).bind(STATISTICS_ROWS_PURGED_PER_BATCH_MAX);
    writers.execute(connection).await?;
    Ok(STATISTICS_ROWS_PURGED_PER_BATCH_MAX as u64 <= purged)
}

async fn add_increments(connection: &mut PgConnection, batch: &StatisticsBatch) -> Result<(), sqlx::Error> {
    let increments = &batch.increments;
    let keys: Vec<KeyColumns> = increments.iter().map(|increment| KeyColumns::encode(&increment.key)).collect();
    let buckets = increments.iter().map(|increment| i32::try_from(increment.bucket).unwrap_or(i32::MAX));
    let counts = increments.iter().map(|increment| i64::try_from(increment.count).unwrap_or(i64::MAX));
    let query = sqlx::query(ADD_INCREMENTS)
        .bind(increments.iter().map(|increment| to_ms(increment.hour_start)).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.kind).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.set_id).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.region.clone()).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.party_size).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.ruleset_hash).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.rule.clone()).collect::<Vec<_>>())
        .bind(buckets.collect::<Vec<_>>())
        .bind(counts.collect::<Vec<_>>())
        .bind(increments.iter().map(|increment| increment.sum).collect::<Vec<_>>());
    query.execute(connection).await.map(drop)
}

/// Adds the totals of a part of the period.
async fn read_totals_of_time_range(
    totals: &mut TotalsBuilder,
    (query, (from, until)): (&StatisticsQuery, (UnixMs, UnixMs)),
    connection: &mut PgConnection,
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
            totals.add(key, row.try_get::<i32, _>(6)?.into(), row.try_get(7)?, row.try_get(8)?);
        }
    }
    totals.end_part(rows.len());
    Ok(())
}

/// Key of a row; `None` for a row that a newer server wrote.
fn decode_key(row: &PgRow) -> Result<Option<StatisticKey>, sqlx::Error> {
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
