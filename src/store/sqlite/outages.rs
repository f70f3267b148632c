//! Outages of the SQLite store. The only server of a file has the number 0.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use crate::domain::available_time::Outage;
use crate::store::error::StoreError;
use crate::store::outages::{LivenessReport, OUTAGES_READ_MAX, OutageStore, ServerSignOfLife, StoredOutages};
use crate::store::rows::{from_ms, to_ms};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::to_store_error;

const READ_OUTAGES: &str = "select from_ms, to_ms from outage_interval order by from_ms desc limit ?";

const READ_SIGNS_OF_LIFE: &str = "select alive_ms from server_alive where replica = 0";

const UPSERT_ALIVE: &str = "insert into server_alive (replica, alive_ms) values (0, ?) \
     on conflict (replica) do update set alive_ms = excluded.alive_ms";

const INSERT_OUTAGE: &str = "insert or ignore into outage_interval (replica, from_ms, to_ms) values (0, ?, ?)";

const PURGE_OUTAGES: &str = "delete from outage_interval where to_ms < ?";

#[async_trait]
impl OutageStore for SqliteStore {
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, report) = (self.path.clone(), report.clone());
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = apply_liveness_report(&mut connection, &report).await.map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }
}

/// Applies a report in one transaction. After an error the caller closes the connection, which rolls back.
async fn apply_liveness_report(
    connection: &mut SqliteConnection,
    report: &LivenessReport,
) -> Result<StoredOutages, sqlx::Error> {
    if report.alive_at.is_some() || !report.ended_outages.is_empty() {
        sqlx::query("begin immediate").execute(&mut *connection).await?;
        if let Some(alive_at) = report.alive_at {
            sqlx::query(UPSERT_ALIVE).bind(to_ms(alive_at)).execute(&mut *connection).await?;
        }
        for outage in &report.ended_outages {
            let query = sqlx::query(INSERT_OUTAGE).bind(to_ms(outage.from)).bind(to_ms(outage.to));
            query.execute(&mut *connection).await?;
        }
        sqlx::query(PURGE_OUTAGES).bind(to_ms(report.purge_before)).execute(&mut *connection).await?;
        sqlx::query("commit").execute(&mut *connection).await?;
    }
    let limit = i64::try_from(OUTAGES_READ_MAX).unwrap_or(i64::MAX);
    let outages: Vec<(i64, i64)> = sqlx::query_as(READ_OUTAGES).bind(limit).fetch_all(&mut *connection).await?;
    let servers: Vec<(i64,)> = sqlx::query_as(READ_SIGNS_OF_LIFE).fetch_all(connection).await?;
    Ok(StoredOutages {
        outages: outages.into_iter().map(|(from, to)| Outage { from: from_ms(from), to: from_ms(to) }).collect(),
        servers: servers.into_iter().map(|(alive_at,)| ServerSignOfLife::of_only_server(from_ms(alive_at))).collect(),
    })
}
