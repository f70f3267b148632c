//! Outages of the Postgres store.

use async_trait::async_trait;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::domain::available_time::Outage;
use crate::store::error::StoreError;
use crate::store::outages::{
    LivenessReport, OUTAGES_READ_MAX, OutageStore, SERVERS_READ_MAX, ServerSignOfLife, StoredOutages,
};
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::rows::{from_ms, to_ms};

const READ_OUTAGES: &str = "select from_ms, to_ms from outage_interval order by from_ms desc limit $1";

const READ_SIGNS_OF_LIFE: &str =
    "select replica, alive_ms, is_stopped from server_alive order by alive_ms desc limit $1";

const UPSERT_ALIVE: &str = "insert into server_alive (replica, alive_ms, is_stopped) values ($1, $2, $3) \
     on conflict (replica) do update set alive_ms = excluded.alive_ms, is_stopped = excluded.is_stopped";

const INSERT_OUTAGES: &str = "insert into outage_interval (replica, from_ms, to_ms) \
     select $1, from_ms, to_ms from unnest($2::bigint[], $3::bigint[]) as ended (from_ms, to_ms) \
     on conflict (replica, from_ms) do nothing";

const PURGE_OUTAGES: &str = "delete from outage_interval where to_ms < $1";

const PURGE_SERVERS: &str = "delete from server_alive where replica <> $1 and (alive_ms < $2 or $3)";

#[async_trait]
impl OutageStore for PostgresStore {
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
        self.writer_version_check.check_may_write()?;
        let replica_id = self.replica.id.cast_signed();
        let mut slot = self.lease_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "reporting outages", |connection| {
            apply_report(connection, replica_id, report)
        })
    }
}

async fn apply_report(
    connection: &mut PgConnection,
    replica_id: i64,
    report: &LivenessReport,
) -> Result<StoredOutages, sqlx::Error> {
    if let Some(alive_at) = report.alive_at {
        let mut transaction = connection.begin().await?;
        let upsert = sqlx::query(UPSERT_ALIVE).bind(replica_id).bind(to_ms(alive_at)).bind(report.is_stopping);
        upsert.execute(&mut *transaction).await?;
        if !report.ended_outages.is_empty() {
            let (from, to): (Vec<i64>, Vec<i64>) =
                report.ended_outages.iter().map(|outage| (to_ms(outage.from), to_ms(outage.to))).unzip();
            sqlx::query(INSERT_OUTAGES).bind(replica_id).bind(from).bind(to).execute(&mut *transaction).await?;
        }
        let purge_before = to_ms(report.purge_before);
        sqlx::query(PURGE_OUTAGES).bind(purge_before).execute(&mut *transaction).await?;
        let purge = sqlx::query(PURGE_SERVERS).bind(replica_id).bind(purge_before).bind(report.purges_other_servers);
        purge.execute(&mut *transaction).await?;
        transaction.commit().await?;
    }
    let limit = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let outages: Vec<(i64, i64)> =
        sqlx::query_as(READ_OUTAGES).bind(limit(OUTAGES_READ_MAX)).fetch_all(&mut *connection).await?;
    let servers: Vec<(i64, i64, bool)> =
        sqlx::query_as(READ_SIGNS_OF_LIFE).bind(limit(SERVERS_READ_MAX)).fetch_all(connection).await?;
    let mark = |(replica, alive_ms, is_stopped): (i64, i64, bool)| ServerSignOfLife {
        is_own: replica == replica_id,
        alive_at: from_ms(alive_ms),
        is_stopped,
    };
    Ok(StoredOutages {
        outages: outages.into_iter().map(|(from, to)| Outage { from: from_ms(from), to: from_ms(to) }).collect(),
        servers: servers.into_iter().map(mark).collect(),
    })
}
