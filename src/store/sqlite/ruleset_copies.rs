//! Ruleset copies of the SQLite store.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::load::RulesetLoad;
use crate::store::error::StoreError;
use crate::store::rows::{from_ms, to_ms};
use crate::store::ruleset_copies::{
    RulesetCopy, RulesetCopyChanges, RulesetCopyRows, RulesetCopyStore, RulesetReport, UsedRulesets,
};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::to_store_error;

const READ_COPIES: &str = "select set_id, hash, file_name, source_xml, active_at_ms, removed_at_ms, ended_at_ms, \
     loaded_at_ms, loaded_by from ruleset_copy";

const UPSERT_COPY: &str = "insert into ruleset_copy \
     (set_id, hash, file_name, source_xml, active_at_ms, removed_at_ms, ended_at_ms, loaded_at_ms, loaded_by) \
     values (?, ?, ?, ?, ?, ?, ?, ?, ?) \
     on conflict (set_id, hash) do update set file_name = excluded.file_name, source_xml = excluded.source_xml, \
     active_at_ms = excluded.active_at_ms, removed_at_ms = excluded.removed_at_ms, ended_at_ms = excluded.ended_at_ms, \
     loaded_at_ms = excluded.loaded_at_ms, loaded_by = excluded.loaded_by";

const UPDATE_COPY_EXCEPT_SOURCE: &str = "update ruleset_copy set file_name = ?, active_at_ms = ?, removed_at_ms = ?, \
     ended_at_ms = ?, loaded_at_ms = ?, loaded_by = ? where set_id = ? and hash = ?";

const DELETE_COPY: &str = "delete from ruleset_copy where set_id = ? and hash = ?";

const READ_SETS_OF_LIVE_TICKETS: &str = "select distinct set_id from ticket where state <> 2";

/// `h` is the key of the ruleset hash in the body of a match.
const READ_MATCH_RULESETS: &str = "select distinct set_id, cast(json_extract(body, '$.h') as integer) from \"match\"";

#[async_trait]
impl RulesetCopyStore for SqliteStore {
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, report) = (self.path.clone(), report.clone());
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = apply_report(&mut connection, &report).await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }
}

/// Applies a report in one transaction. After an error the caller closes the connection, which rolls back.
async fn apply_report(
    connection: &mut SqliteConnection,
    report: &RulesetReport,
) -> Result<Vec<RulesetCopy>, StoreError> {
    let before = read_copies(connection).await?;
    let mut after = before.clone();
    after.apply_report(report);
    if after.has_purgeable(report) {
        after.purge(report, &read_used_rulesets(connection).await?);
    }
    // This server alone writes to the file, so nothing has changed since the rows were read.
    let changes = before.changes_to(&after);
    if !changes.is_empty() {
        write_changes(connection, &changes).await.map_err(to_store_error)?;
    }
    Ok(after.into_copies())
}

async fn write_changes(connection: &mut SqliteConnection, changes: &RulesetCopyChanges) -> Result<(), sqlx::Error> {
    sqlx::query("begin immediate").execute(&mut *connection).await?;
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
    sqlx::query("commit").execute(connection).await?;
    Ok(())
}

async fn read_copies(connection: &mut SqliteConnection) -> Result<RulesetCopyRows, StoreError> {
    let rows = sqlx::query(READ_COPIES).fetch_all(connection).await.map_err(to_store_error)?;
    let copies: Result<Vec<RulesetCopy>, sqlx::Error> = rows.iter().map(decode_copy).collect();
    copies.map(RulesetCopyRows::new).map_err(to_store_error)
}

async fn read_used_rulesets(connection: &mut SqliteConnection) -> Result<UsedRulesets, StoreError> {
    let sets: Vec<(i64,)> =
        sqlx::query_as(READ_SETS_OF_LIVE_TICKETS).fetch_all(&mut *connection).await.map_err(to_store_error)?;
    let rulesets: Vec<(i64, Option<i64>)> =
        sqlx::query_as(READ_MATCH_RULESETS).fetch_all(connection).await.map_err(to_store_error)?;
    let known = rulesets
        .into_iter()
        .filter_map(|(set, hash)| Some((SetId(to_u32_or_zero(set)), RulesetHash(to_u32_or_zero(hash?)))));
    Ok(UsedRulesets {
        ticket_sets: sets.into_iter().map(|(set,)| SetId(to_u32_or_zero(set))).collect(),
        match_rulesets: known.collect(),
    })
}

fn decode_copy(row: &SqliteRow) -> Result<RulesetCopy, sqlx::Error> {
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
