//! Connection options for Postgres, checks of its version and settings, and migration of the schema.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};

use crate::store::error::StoreError;
use crate::store::migration_check::{self, migrator_for_newer_schema};
use crate::store::migrations;
use crate::store::postgres::connection::lock_probe::check_advisory_locks;
use crate::store::postgres::connection::slot::{timeout_error, to_store_error};
use crate::store::writer_version;

/// Remedy for a schema that this server cannot use.
const INCOMPATIBLE_SCHEMA_REMEDY: &str = "use another database";

/// First version with 64-bit transaction ids and with detection of lost clients by the server.
const POSTGRES_VERSION_MIN: i32 = 140_000;

/// Time limit at startup for connecting, and for other servers that migrate.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Connection options for `url`. TLS with verification, unless the database is on this machine or the URL sets
/// `sslmode`.
pub(in crate::store::postgres) fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(to_store_error)?;
    let is_local = options.get_socket().is_some() || is_local_host(options.get_host());
    let options = if url.contains("sslmode=") || is_local { options } else { options.ssl_mode(PgSslMode::VerifyFull) };
    Ok(options.disable_statement_logging())
}

/// Whether the host is this machine; a socket folder is.
fn is_local_host(host: &str) -> bool {
    host.starts_with('/') || host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Options for connections that clients wait for. The database cancels slow statements, so locks are released soon
/// after a server fails.
///
/// The planner must use an index even if its statistics are old. Otherwise a plan made for an empty table would scan
/// the table until its statistics are updated, minutes later.
pub(in crate::store::postgres) fn with_oltp_settings(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().options(SESSION_TIMEOUTS).options(DISCONNECT_DETECTION).options(PLANNER_SETTINGS)
}

/// Time limits that the database enforces, milliseconds.
const SESSION_TIMEOUTS: [(&str, &str); 3] =
    [("statement_timeout", "1500"), ("lock_timeout", "250"), ("idle_in_transaction_session_timeout", "5000")];

/// Detection of a lost server by the database: milliseconds, then seconds.
const DISCONNECT_DETECTION: [(&str, &str); 5] = [
    ("client_connection_check_interval", "500"),
    ("tcp_user_timeout", "5000"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "3"),
];

/// Planner settings for statements on few rows.
const PLANNER_SETTINGS: [(&str, &str); 3] =
    [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];

/// Options for loading all rows.
pub(in crate::store::postgres) fn with_long_timeout(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().options([("statement_timeout", "120000")]).options(DISCONNECT_DETECTION)
}

/// Checks the database and migrates it. Servers that start together take turns: the migrator holds a lock that ends
/// with its connection.
pub(in crate::store::postgres) async fn check_and_migrate(options: &PgConnectOptions) -> Result<(), StoreError> {
    let preparation = async {
        // The migrator creates its table if it does not exist; the database would log a notice otherwise.
        let quiet_options =
            options.clone().application_name("fireteam startup").options([("client_min_messages", "warning")]);
        let mut connection =
            quiet_options.connect().await.map_err(|error| add_address_to_error(options, to_store_error(error)))?;
        fetch_and_check_version_and_settings(&mut connection).await?;
        fetch_and_check_session_timeouts(options).await?;
        check_advisory_locks(options).await?;
        let mut migrated = migrations::POSTGRES.run_direct(None, &mut connection, false).await;
        if let Err(MigrateError::VersionMissing(version)) = migrated {
            let min_writer_version = fetch_min_writer_version(&mut connection).await.ok();
            if let Some(migrator) = migrator_for_newer_schema(version, &migrations::POSTGRES, min_writer_version)? {
                migrated = migrator.run_direct(None, &mut connection, false).await;
            }
        }
        migrated.map_err(|error| migration_check::to_store_error(error, INCOMPATIBLE_SCHEMA_REMEDY, to_store_error))?;
        writer_version::check_at_open(fetch_min_writer_version(&mut connection).await.map_err(to_store_error)?)?;
        connection.close().await.map_err(to_store_error)
    };
    tokio::time::timeout(STARTUP_TIMEOUT, preparation)
        .await
        .unwrap_or_else(|_| Err(add_address_to_error(options, timeout_error("startup", STARTUP_TIMEOUT))))
}

/// Adds the address of the database to the error of a failed connection: `postgres at HOST:PORT: …`.
pub(in crate::store::postgres) fn add_address_to_error(options: &PgConnectOptions, error: StoreError) -> StoreError {
    let address = match options.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    match error {
        StoreError::Unavailable(reason) => {
            let reason = reason.strip_prefix("postgres: ").unwrap_or(&reason);
            StoreError::Unavailable(format!("postgres at {address}: {reason}"))
        }
        other => other,
    }
}

/// Reads the lowest store format version that may write.
pub(in crate::store::postgres) async fn fetch_min_writer_version(
    connection: &mut PgConnection,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(writer_version::READ_MIN_WRITER_VERSION_SQL).fetch_one(connection).await
}

async fn fetch_and_check_version_and_settings(connection: &mut PgConnection) -> Result<(), StoreError> {
    let (version, synchronous_commit, encoding): (i32, String, String) = sqlx::query_as(
        "select current_setting('server_version_num')::integer, current_setting('synchronous_commit'), \
         current_setting('server_encoding')",
    )
    .fetch_one(connection)
    .await
    .map_err(to_store_error)?;
    check_version_and_settings(version, &synchronous_commit, &encoding)
}

/// Checks that a session gets the time limits it asks for. A proxy may override them; then a failed server would hold
/// its locks without limit.
async fn fetch_and_check_session_timeouts(options: &PgConnectOptions) -> Result<(), StoreError> {
    let options = with_oltp_settings(options).application_name("fireteam startup");
    let mut connection = options.connect().await.map_err(to_store_error)?;
    let names: Vec<&str> = SESSION_TIMEOUTS.iter().map(|(name, _)| *name).collect();
    let settings: Vec<(String, String)> = sqlx::query_as("select name, setting from pg_settings where name = any($1)")
        .bind(&names)
        .fetch_all(&mut connection)
        .await
        .map_err(to_store_error)?;
    connection.close().await.map_err(to_store_error)?;
    check_session_timeouts(&settings)
}

/// `settings` are names and values in milliseconds, as the database reports them.
fn check_session_timeouts(settings: &[(String, String)]) -> Result<(), StoreError> {
    for (name, expected) in SESSION_TIMEOUTS {
        let actual = settings.iter().find(|(setting, _)| setting == name).map_or("unset", |(_, value)| value);
        if actual != expected {
            return Err(StoreError::Incompatible(format!(
                "postgres does not apply this session's settings ({name} = {actual}, expected {expected}); connect \
                 directly, or let the proxy forward startup options"
            )));
        }
    }
    Ok(())
}

fn check_version_and_settings(version: i32, synchronous_commit: &str, encoding: &str) -> Result<(), StoreError> {
    let problem = if version < POSTGRES_VERSION_MIN {
        format!("postgres {} is too old; use 14 or newer", version / 10_000)
    } else if !["on", "remote_apply", "remote_write", "local"].contains(&synchronous_commit) {
        format!(
            "postgres acknowledges commits before they are durable (synchronous_commit = {synchronous_commit}); set it \
             to on for this database or user"
        )
    } else if encoding != "UTF8" {
        format!("the database's encoding is {encoding}; create it with encoding 'UTF8'")
    } else {
        return Ok(());
    };
    Err(StoreError::Incompatible(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_check_rejects_unsafe_settings() {
        assert!(check_version_and_settings(150_018, "on", "UTF8").is_ok());
        for (version, synchronous_commit, encoding, expected) in [
            (130_014, "on", "UTF8", "too old"),
            (150_018, "off", "UTF8", "synchronous_commit"),
            (150_018, "on", "SQL_ASCII", "encoding"),
        ] {
            let error = check_version_and_settings(version, synchronous_commit, encoding).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn session_check_rejects_overridden_timeouts() {
        let settings = |lock: &str| {
            let settings = [
                ("idle_in_transaction_session_timeout", "5000"),
                ("lock_timeout", lock),
                ("statement_timeout", "1500"),
            ];
            settings.map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        assert!(check_session_timeouts(&settings("250")).is_ok());
        let error = check_session_timeouts(&settings("0")).unwrap_err().to_string();
        assert!(error.contains("lock_timeout = 0, expected 250"), "{error}");
        assert!(check_session_timeouts(&[]).is_err());
    }

    #[test]
    fn connect_options_require_tls_for_remote_hosts() {
        let mode = |url: &str| format!("{:?}", connect_options(url).unwrap().get_ssl_mode());
        assert_eq!(mode("postgres://db.example/fireteam"), "VerifyFull");
        assert_eq!(mode("postgres://db.example/fireteam?sslmode=require"), "Require");
        for local_url in ["postgres://127.0.0.1/a", "postgres://localhost/a", "postgres:///a?host=/run/postgresql"] {
            assert_ne!(mode(local_url), "VerifyFull", "{local_url}");
        }
    }
}
