//! Facts about a Postgres for a diagnosis. Nothing is changed.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use crate::store::error::StoreError;
use crate::store::migrations;
use crate::store::postgres::connection::open::{add_address_to_error, connect_options, with_long_timeout};
use crate::store::postgres::connection::slot::{timeout_error, to_store_error};
use crate::store::writer_version;

/// Time limit of the whole diagnosis.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Connections that one server keeps, and those of operators' calls.
pub const CONNECTIONS_PER_SERVER: i64 = 10;

/// State of a database and of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostgresFacts {
    /// Version number, such as 150018.
    pub version: i32,
    /// Character encoding of the database.
    pub encoding: String,
    /// Setting `synchronous_commit` of this session.
    pub synchronous_commit: String,
    /// Whether commits are written to the disk.
    pub fsync: bool,
    /// Whether whole pages are logged, so that a page that was written in part can be repaired.
    pub full_page_writes: bool,
    /// Connections that roles without privileges may open.
    pub connections_max: i64,
    /// Open connections of all programs.
    pub connections: i64,
    /// Longest transaction of this database that is open, seconds; 0 for none.
    pub oldest_transaction_s: i64,
    /// Sessions of this database that wait for a lock.
    pub waiting_sessions: i64,
    /// Prepared transactions of this database.
    pub prepared_transactions: i64,
    /// Time of the database's clock, milliseconds since the Unix epoch.
    pub clock_ms: i64,
    /// Whether the database has a schema of fireteam.
    pub has_schema: bool,
    /// Number of the last migration; `None` without a schema.
    pub schema_version: Option<i64>,
    /// Lowest store format version that may write; `None` without a schema.
    pub min_writer_version: Option<i64>,
}

const READ_FACTS: &str = "
    select current_setting('server_version_num')::integer as version,
           current_setting('server_encoding') as encoding,
           current_setting('synchronous_commit') as synchronous_commit,
           current_setting('fsync')::boolean as fsync,
           current_setting('full_page_writes')::boolean as full_page_writes,
           current_setting('max_connections')::bigint
               - current_setting('superuser_reserved_connections')::bigint as connections_max,
           (select count(*) from pg_stat_activity where backend_type = 'client backend') as connections,
           (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::bigint
              from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()) as oldest_transaction_s,
           (select count(*) from pg_stat_activity
             where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0) as waiting_sessions,
           (select count(*) from pg_prepared_xacts where database = current_database()) as prepared_transactions,
           (extract(epoch from clock_timestamp()) * 1000)::bigint as clock_ms,
           to_regclass('_sqlx_migrations') is not null and to_regclass('store_setting') is not null as has_schema";

/// Reads the state of the database at `url`. Fails with host and cause if it cannot be reached.
pub async fn inspect_database(url: &str) -> Result<PostgresFacts, StoreError> {
    let options = with_long_timeout(&connect_options(url)?).application_name("fireteam doctor");
    let read = async {
        let mut connection = options.connect().await?;
        let facts = read_facts(&mut connection).await;
        let _ = connection.close().await;
        facts
    };
    match tokio::time::timeout(TIMEOUT, read).await {
        Ok(facts) => facts.map_err(|error| add_address_to_error(&options, to_store_error(error))),
        Err(_) => Err(add_address_to_error(&options, timeout_error("the diagnosis", TIMEOUT))),
    }
}

async fn read_facts(connection: &mut PgConnection) -> Result<PostgresFacts, sqlx::Error> {
    let row = sqlx::query(READ_FACTS).fetch_one(&mut *connection).await?;
    let mut facts = PostgresFacts {
        version: row.try_get("version")?,
        encoding: row.try_get("encoding")?,
        synchronous_commit: row.try_get("synchronous_commit")?,
        fsync: row.try_get("fsync")?,
        full_page_writes: row.try_get("full_page_writes")?,
        connections_max: row.try_get("connections_max")?,
        connections: row.try_get("connections")?,
        oldest_transaction_s: row.try_get("oldest_transaction_s")?,
        waiting_sessions: row.try_get("waiting_sessions")?,
        prepared_transactions: row.try_get("prepared_transactions")?,
        clock_ms: row.try_get("clock_ms")?,
        has_schema: row.try_get("has_schema")?,
        schema_version: None,
        min_writer_version: None,
    };
    if facts.has_schema {
        let newest = "select max(version) from _sqlx_migrations where success";
        facts.schema_version = sqlx::query_scalar(newest).fetch_one(&mut *connection).await?;
        let lowest = writer_version::READ_MIN_WRITER_VERSION_SQL;
        facts.min_writer_version = sqlx::query_scalar(lowest).fetch_optional(&mut *connection).await?;
    }
    Ok(facts)
}

/// Number of the last migration that this program knows.
pub fn supported_schema_version() -> i64 {
    migrations::POSTGRES.iter().map(|migration| migration.version).max().unwrap_or(0)
}
