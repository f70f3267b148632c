//! Opening of the SQLite file: checks versions and settings, and migrates the schema.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};

use crate::store::error::StoreError;
use crate::store::migration_check::{self, migrator_for_newer_schema};
use crate::store::migrations;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::lock::open_private_file;
use crate::store::sqlite::connection::sql_script::STATEMENT_CACHE_CAPACITY;
use crate::store::writer_version;

/// Remedy for a schema that this server cannot use.
const INCOMPATIBLE_SCHEMA_REMEDY: &str = "move the file away to start with an empty database";

/// First version without the bug that could corrupt the file when the write-ahead log was reset.
const SQLITE_VERSION_MIN: [u32; 3] = [3, 51, 3];

/// Files below this size are checked whole at every start. Above it, the check would take seconds.
const INTEGRITY_CHECK_BYTES_MAX: u64 = 100_000_000;

/// Connection options: durable commits, and no trust in the schema of the file.
pub(in crate::store::sqlite) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        // Publishing an advertisement changes at most half a page. Small pages keep the write-ahead log short.
        .page_size(1_024)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(2))
        // Deleted data is overwritten in the file, not only removed from the index.
        .pragma("secure_delete", "on")
        .pragma("trusted_schema", "off")
        // If the file shrinks while it is mapped, the process crashes. The log-reset bug was also worse with it.
        .pragma("mmap_size", "0")
        .pragma("cache_size", "-32768")
        // `wal.rs` checkpoints on its own connection.
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", "67108864")
        .row_buffer_size(1_024)
        .statement_cache_capacity(STATEMENT_CACHE_CAPACITY)
        .disable_statement_logging()
}

/// Opens a file whose lock this server holds; creates it if needed, and migrates the schema.
pub(in crate::store::sqlite) async fn open_and_migrate(path: &Path) -> Result<SqliteConnection, StoreError> {
    // SQLite gives the log file the permissions of this file.
    open_private_file(path).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let mut connection = connect(path).await?;
    let mut migrated = migrations::SQLITE.run_direct(None, &mut connection, false).await;
    if let Err(MigrateError::VersionMissing(version)) = migrated {
        let min_writer_version = read_min_writer_version(&mut connection).await.ok();
        if let Some(migrator) = migrator_for_newer_schema(version, &migrations::SQLITE, min_writer_version)? {
            migrated = migrator.run_direct(None, &mut connection, false).await;
        }
    }
    migrated.map_err(|error| migration_check::to_store_error(error, INCOMPATIBLE_SCHEMA_REMEDY, to_store_error))?;
    writer_version::check_at_open(read_min_writer_version(&mut connection).await?)?;
    Ok(connection)
}

/// Reads the lowest store format version that may write.
pub(in crate::store::sqlite) async fn read_min_writer_version(
    connection: &mut SqliteConnection,
) -> Result<i64, StoreError> {
    fetch_scalar(connection, writer_version::READ_MIN_WRITER_VERSION_SQL).await
}

/// Checks the file's integrity on its own connection, so that loading can run at the same time. The loaded data must
/// not be used before the check succeeds. Rows have checksums; this finds other damage, such as a missing page.
pub(in crate::store::sqlite) async fn check_integrity_if_small(path: &Path) -> Result<(), StoreError> {
    let mut connection = connect(path).await?;
    let size: i64 =
        fetch_scalar(&mut connection, "select page_count * page_size from pragma_page_count, pragma_page_size").await?;
    let is_small = u64::try_from(size).unwrap_or(0) < INTEGRITY_CHECK_BYTES_MAX;
    let check_result: String =
        if is_small { fetch_scalar(&mut connection, "pragma quick_check(1)").await? } else { "ok".into() };
    let _ = sqlx::Connection::close(connection).await;
    if check_result == "ok" { Ok(()) } else { Err(StoreError::DamagedFile(check_result)) }
}

/// Connects, and checks that the required settings are in effect.
pub(in crate::store::sqlite) async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut connection = connect_options(path).connect().await.map_err(to_store_error)?;
    let version: String = fetch_scalar(&mut connection, "select sqlite_version()").await?;
    check_sqlite_version(&version)?;
    let journal: String = fetch_scalar(&mut connection, "pragma journal_mode").await?;
    let synchronous: i64 = fetch_scalar(&mut connection, "pragma synchronous").await?;
    let foreign_keys: i64 = fetch_scalar(&mut connection, "pragma foreign_keys").await?;
    if (journal.as_str(), synchronous, foreign_keys) != ("wal", 2, 1) {
        return Err(StoreError::Unavailable(format!(
            "write-ahead logging with full synchronization is not available (journal_mode {journal}, synchronous \
             {synchronous}, foreign_keys {foreign_keys}); put the file on a local disk"
        )));
    }
    Ok(connection)
}

async fn fetch_scalar<T>(connection: &mut SqliteConnection, query: &'static str) -> Result<T, StoreError>
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    sqlx::query_scalar(query).fetch_one(connection).await.map_err(to_store_error)
}

fn check_sqlite_version(version: &str) -> Result<(), StoreError> {
    let numbers: Vec<u32> = version.split('.').map_while(|number| number.parse().ok()).collect();
    if numbers.as_slice() < SQLITE_VERSION_MIN.as_slice() {
        return Err(StoreError::Incompatible(format!(
            "SQLite {version} can corrupt a file in WAL mode; build the server with 3.51.3 or newer"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_version_check_rejects_old_versions() {
        for (version, is_accepted) in [
            ("3.51.3", true),
            ("3.52.0", true),
            ("4.0.0", true),
            ("3.51.2", false),
            ("3.9.9", false),
            ("3.51", false),
            ("", false),
        ] {
            assert_eq!(check_sqlite_version(version).is_ok(), is_accepted, "{version}");
        }
    }
}
