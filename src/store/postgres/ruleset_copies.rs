//! Ruleset copies of the Postgres store.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::load::RulesetLoad;
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::rows::{from_ms, to_ms};
use crate::store::ruleset_copies::{
    RulesetCopy, RulesetCopyChanges, RulesetCopyRows, RulesetCopyStore, RulesetReport, UsedRulesets,
};

const READ_COPIES: &str = "select set_id, hash, file_name, source_xml, active_at_ms, removed_at_ms, ended_at_ms, \
     loaded_at_ms, loaded_by from ruleset_copy";

/// Excludes other reports, and lets readers continue.
const LOCK_COPIES: &str = "lock table ruleset_copy in share row exclusive mode";

const UPSERT_COPY: &str = "insert into ruleset_copy \
     (set_id, hash, file_name, source_xml, active_at_ms, removed_at_ms, ended_at_ms, loaded_at_ms, loaded_by) \
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
     on conflict (set_id, hash) do update set file_name = excluded.file_name, source_xml = excluded.source_xml, \
     active_at_ms = excluded.active_at_ms, removed_at_ms = excluded.removed_at_ms, ended_at_ms = excluded.ended_at_ms, \
     loaded_at_ms = excluded.loaded_at_ms, loaded_by = excluded.loaded_by";

const UPDATE_COPY_EXCEPT_SOURCE: &str = "update ruleset_copy set file_name = $1, active_at_ms = $2, removed_at_ms = $3, \
     ended_at_ms = $4, loaded_at_ms = $5, loaded_by = $6 where set_id = $7 and hash = $8";

const DELETE_COPY: &str = "delete from ruleset_copy where set_id = $1 and hash = $2";

const READ_TICKET_SETS: &str = "select distinct set_id from ticket where state <> 2";

/// `h` is the key of the ruleset hash in the body of a match.
const READ_MATCH_RULESETS: &str = "select distinct set_id, (body::jsonb ->> 'h')::bigint from match";

#[async_trait]
impl RulesetCopyStore for PostgresStore {
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let (slot, report) = (Arc::clone(&self.background_connection), report.clone());
        // In a task of its own: the report is applied even if the caller stops waiting.
        let task = tokio::spawn(async move {
            let mut slot = slot.lock_owned().await;
            query_within!(slot, OPERATION_TIMEOUT, "reporting rulesets", |connection| {
                apply_report(connection, &report)
            })
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }
}

/// Applies a report in one transaction. Reads without a lock first: most reports change nothing.
async fn apply_report(connection: &mut PgConnection, report: &RulesetReport) -> Result<Vec<RulesetCopy>, sqlx::Error> {
    let before = read_copies(connection).await?;
    let after = rows_after(connection, &before, report).await?;
    if before.changes_to(&after).is_empty() {
        return Ok(after.into_copies());
    }
    let mut transaction = connection.begin().await?;
    sqlx::query(LOCK_COPIES).execute(&mut *transaction).await?;
    let before = read_copies(&mut transaction).await?;
    let after = rows_after(&mut transaction, &before, report).await?;
    write_changes(&mut transaction, &before.changes_to(&after)).await?;
    transaction.commit().await?;
    Ok(after.into_copies())
}

async fn rows_after(
    connection: &mut PgConnection,
    before: &RulesetCopyRows,
    report: &RulesetReport,
) -> Result<RulesetCopyRows, sqlx::Error> {
    let mut after = before.clone();
    after.apply_report(report);
    if after.has_purgeable(report) {
        after.purge(report, &read_used_rulesets(connection).await?);
    }
    Ok(after)
}

async fn write_changes(connection: &mut PgConnection, changes: &RulesetCopyChanges) -> Result<(), sqlx::Error> {
    for copy in &changes.upserted {
        sqlx::query(UPSERT_COPY)
            .bind(i64::from(copy.set_id.0))
            .bind(i64::from(copy.hash.0))
            .bind(&copy.file_name)
            .bind(&*copy.source_xml)
            .bind(to_ms(copy.last_active_at))
            .bind(copy.file_removed_at.map(to_ms))
            .bind(copy.set_retired_at.map(to_ms))
            .bind(copy.load.as_ref().map(|load| to_ms(load.at)))
            .bind(copy.load.as_ref().map(|load| &*load.by))
            .execute(&mut *connection)
            .await?;
    }
    for copy in &changes.updated {
        sqlx::query(UPDATE_COPY_EXCEPT_SOURCE)
            .bind(&copy.file_name)
            .bind(to_ms(copy.last_active_at))
            .bind(copy.file_removed_at.map(to_ms))
            .bind(copy.set_retired_at.map(to_ms))
            .bind(copy.load.as_ref().map(|load| to_ms(load.at)))
            .bind(copy.load.as_ref().map(|load| &*load.by))
            .bind(i64::from(copy.set_id.0))
            .bind(i64::from(copy.hash.0))
            .execute(&mut *connection)
            .await?;
    }
    for (set_id, hash) in &changes.deleted {
        let query = sqlx::query(DELETE_COPY).bind(i64::from(set_id.0)).bind(i64::from(hash.0));
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

async fn read_copies(connection: &mut PgConnection) -> Result<RulesetCopyRows, sqlx::Error> {
    let rows = sqlx::query(READ_COPIES).fetch_all(connection).await?;
    let copies: Result<Vec<RulesetCopy>, sqlx::Error> = rows.iter().map(decode_copy).collect();
    copies.map(RulesetCopyRows::new)
}

async fn read_used_rulesets(connection: &mut PgConnection) -> Result<UsedRulesets, sqlx::Error> {
    let sets: Vec<(i64,)> = sqlx::query_as(READ_TICKET_SETS).fetch_all(&mut *connection).await?;
    let rulesets: Vec<(i64, Option<i64>)> = sqlx::query_as(READ_MATCH_RULESETS).fetch_all(connection).await?;
    let known = rulesets
        .into_iter()
        .filter_map(|(set, hash)| Some((SetId(to_u32_or_zero(set)), RulesetHash(to_u32_or_zero(hash?)))));
    Ok(UsedRulesets {
        ticket_sets: sets.into_iter().map(|(set,)| SetId(to_u32_or_zero(set))).collect(),
        match_rulesets: known.collect(),
    })
}

fn decode_copy(row: &PgRow) -> Result<RulesetCopy, sqlx::Error> {
    let source_xml: String = row.try_get(3)?;
    let loaded_at = row.try_get::<Option<i64>, _>(7)?.map(from_ms);
    let loaded_by: Option<String> = row.try_get(8)?;
    Ok(RulesetCopy {
        set_id: SetId(to_u32_or_zero(row.try_get(0)?)),
        hash: RulesetHash(to_u32_or_zero(row.try_get(1)?)),
        file_name: row.try_get(2)?,
        source_xml: Arc::from(source_xml),
        load: loaded_at.zip(loaded_by).map(|(at, by)| RulesetLoad::new(at, &by)),
        last_active_at: from_ms(row.try_get(4)?),
        file_removed_at: row.try_get::<Option<i64>, _>(5)?.map(from_ms),
        set_retired_at: row.try_get::<Option<i64>, _>(6)?.map(from_ms),
    })
}

/// The schema limits the column to this range.
fn to_u32_or_zero(number: i64) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
