//! Connects, makes sure that the database does what was asked of it, and brings the schema up to date.

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};

use crate::store::StoreError;
use crate::store::migration_error::{self, RecoveryHint};
use crate::store::postgres::connection::{timeout_error, to_store_error};

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/postgres");

/// What may be done about a schema of another server.
const RECOVERY_HINT: RecoveryHint =
    RecoveryHint { for_newer_schema: "", for_changed_migration: "name another database" };

/// The first version with all that is used here: transaction numbers of 64 bits, and a server that notices a client that
/// is gone.
const SERVER_VERSION_MIN: i32 = 140_000;

/// How long a start may wait for the database, and for other servers that migrate it.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(60);

/// How to reach `url`. Encrypted and verified unless the database is on this machine, or the address says otherwise.
pub(super) fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(to_store_error)?;
    let near = options.get_socket().is_some() || is_loopback(options.get_host());
    let options = match url.contains("sslmode=") || near {
        true => options,
        false => options.ssl_mode(PgSslMode::VerifyFull),
    };
    Ok(options.disable_statement_logging())
}

/// A folder of sockets counts as this machine.
fn is_loopback(host: &str) -> bool {
    host.starts_with('/') || host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The same for connections that clients wait for: whatever takes long is given up, by the database too, so that no lock
/// outlives the server that took it by more than moments (F7).
///
/// Their statements find every row by an index, whatever the planner last heard of a table's size: a plan made for an
/// empty table would otherwise read all of it, for the minutes that it takes the database to notice that it has grown.
pub(super) fn with_short_timeouts(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().options(SESSION_TIMEOUTS).options(DISCONNECT_DETECTION).options(PLANNER_SETTINGS)
}

/// What the database gives up by itself, and after how many milliseconds.
const SESSION_TIMEOUTS: [(&str, &str); 3] =
    [("statement_timeout", "1500"), ("lock_timeout", "250"), ("idle_in_transaction_session_timeout", "5000")];

/// How the database notices that a server is gone: milliseconds, then seconds.
const DISCONNECT_DETECTION: [(&str, &str); 5] = [
    ("client_connection_check_interval", "500"),
    ("tcp_user_timeout", "5000"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "1"),
    ("tcp_keepalives_count", "3"),
];

/// How the database goes about statements that are about a few rows each.
const PLANNER_SETTINGS: [(&str, &str); 3] =
    [("plan_cache_mode", "force_generic_plan"), ("enable_seqscan", "off"), ("jit", "off")];

/// The same for reading everything.
pub(super) fn with_long_timeout(options: &PgConnectOptions) -> PgConnectOptions {
    options.clone().options([("statement_timeout", "120000")]).options(DISCONNECT_DETECTION)
}

/// Looks the database over and migrates it. Servers that start together take turns: the migrator holds a lock that the
/// database gives up when its connection ends.
pub(super) async fn check_and_migrate(options: &PgConnectOptions) -> Result<(), StoreError> {
    let prepared = async {
        // The migrator makes its table if it is not there, and the database would remark that it is.
        let quiet = options.clone().application_name("fireteam start").options([("client_min_messages", "warning")]);
        let mut connection = quiet.connect().await.map_err(to_store_error)?;
        check_server_settings(&mut connection).await?;
        check_session_settings(options).await?;
        MIGRATIONS
            .run_direct(None, &mut connection, false)
            .await
            .map_err(|error| migration_error::to_store_error(error, &MIGRATIONS, RECOVERY_HINT, to_store_error))?;
        connection.close().await.map_err(to_store_error)
    };
    tokio::time::timeout(PREPARE_TIMEOUT, prepared)
        .await
        .unwrap_or_else(|_| Err(timeout_error("the start", PREPARE_TIMEOUT)))
}

async fn check_server_settings(connection: &mut PgConnection) -> Result<(), StoreError> {
    let (version, durable, encoding): (i32, String, String) = sqlx::query_as(
        "select current_setting('server_version_num')::integer, current_setting('synchronous_commit'), \
         current_setting('server_encoding')",
    )
    .fetch_one(connection)
    .await
    .map_err(to_store_error)?;
    check_server(version, &durable, &encoding)
}

/// Whether a connection gets the limits that it asks for: something in between may have its own, and then a server that is
/// gone would hold its locks for as long as it likes.
async fn check_session_settings(options: &PgConnectOptions) -> Result<(), StoreError> {
    let hurried = with_short_timeouts(options).application_name("fireteam start");
    let mut connection = hurried.connect().await.map_err(to_store_error)?;
    let names: Vec<&str> = SESSION_TIMEOUTS.iter().map(|(name, _)| *name).collect();
    let kept: Vec<(String, String)> = sqlx::query_as("select name, setting from pg_settings where name = any($1)")
        .bind(&names)
        .fetch_all(&mut connection)
        .await
        .map_err(to_store_error)?;
    connection.close().await.map_err(to_store_error)?;
    check_session_timeouts(&kept)
}

/// `kept` are names of settings with their values in milliseconds, as the database has them.
fn check_session_timeouts(kept: &[(String, String)]) -> Result<(), StoreError> {
    for (name, asked) in SESSION_TIMEOUTS {
        let found = kept.iter().find(|(kept, _)| kept == name).map_or("unset", |(_, value)| value);
        if found != asked {
            return Err(StoreError::Incompatible(format!(
                "postgres does not take this session's settings ({name} = {found}, asked for {asked}): connect to it \
                 directly, or have what is in between pass start-up options on"
            )));
        }
    }
    Ok(())
}

fn check_server(version: i32, durable: &str, encoding: &str) -> Result<(), StoreError> {
    let refused = if version < SERVER_VERSION_MIN {
        format!("postgres {} is too old: it needs 14 or newer", version / 10_000)
    } else if !["on", "remote_apply", "remote_write", "local"].contains(&durable) {
        format!(
            "postgres answers before a change is durable (synchronous_commit = {durable}): set it to on for this \
             database or user"
        )
    } else if encoding != "UTF8" {
        format!("the database's encoding is {encoding}: create it with encoding 'UTF8'")
    } else {
        return Ok(());
    };
    Err(StoreError::Incompatible(refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_lose_an_acknowledged_change_is_refused() {
        assert!(check_server(150_018, "on", "UTF8").is_ok());
        for (version, durable, encoding, word) in [
            (130_014, "on", "UTF8", "too old"),
            (150_018, "off", "UTF8", "synchronous_commit"),
            (150_018, "on", "SQL_ASCII", "encoding"),
        ] {
            let said = check_server(version, durable, encoding).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
    }

    #[test]
    fn limits_that_are_not_kept_are_refused() {
        let kept = |lock: &str| {
            let all = [
                ("idle_in_transaction_session_timeout", "5000"),
                ("lock_timeout", lock),
                ("statement_timeout", "1500"),
            ];
            all.map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        assert!(check_session_timeouts(&kept("250")).is_ok());
        let said = check_session_timeouts(&kept("0")).unwrap_err().to_string();
        assert!(said.contains("lock_timeout = 0, asked for 250"), "{said}");
        assert!(check_session_timeouts(&[]).is_err());
    }

    #[test]
    fn what_is_far_is_encrypted_and_verified() {
        let mode = |url: &str| format!("{:?}", connect_options(url).unwrap().get_ssl_mode());
        assert_eq!(mode("postgres://db.example/fireteam"), "VerifyFull");
        assert_eq!(mode("postgres://db.example/fireteam?sslmode=require"), "Require");
        for near in ["postgres://127.0.0.1/a", "postgres://localhost/a", "postgres:///a?host=/run/postgresql"] {
            assert_ne!(mode(near), "VerifyFull", "{near}");
        }
    }
}
