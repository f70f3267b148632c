//! Opens the file, makes sure that SQLite does what was asked of it, and brings the schema up to date.

use std::path::Path;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};

use crate::store::StoreError;
use crate::store::migration_error::{self, RecoveryHint};
use crate::store::sqlite::lock::open_private_file;
use crate::store::sqlite::statements::STATEMENT_CACHE_CAPACITY;
use crate::store::sqlite::to_store_error;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// What may be done about a schema of another server.
const RECOVERY_HINT: RecoveryHint = RecoveryHint {
    for_newer_schema: ", or restore an older copy",
    for_changed_migration: "move the file away to begin with an empty one",
};

/// The first version without the bug that could corrupt a file when its log was reset (RELIABILITY.md section 1).
const SQLITE_VERSION_MIN: [u32; 3] = [3, 51, 3];

/// A file under this many bytes is checked whole at every start; above it the check would take seconds.
const INTEGRITY_CHECK_BYTES_MAX: u64 = 100_000_000;

/// How the server connects to `path`: durable before fast (F8), and nothing that trusts the file.
pub(super) fn connect_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        // Half of a page or less changes when an advertisement is published; small pages make less of a log of it.
        .page_size(1_024)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(2))
        // What is deleted is gone from the file, not only from the index (SEC-17).
        .pragma("secure_delete", "on")
        .pragma("trusted_schema", "off")
        // A file that shrinks under a map is a crash, and the log-reset bug was worse with it.
        .pragma("mmap_size", "0")
        .pragma("cache_size", "-32768")
        // `log.rs` does it, on a connection of its own.
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", "67108864")
        .row_buffer_size(1_024)
        .statement_cache_capacity(STATEMENT_CACHE_CAPACITY)
        .disable_statement_logging()
}

/// Opens a file that is locked already: made if it is not there, its schema up to date.
pub(super) async fn open_and_migrate(path: &Path) -> Result<SqliteConnection, StoreError> {
    // SQLite gives its log the rights of this file.
    open_private_file(path).map_err(|error| StoreError::Unavailable(error.to_string()))?;
    let mut connection = connect(path).await?;
    MIGRATIONS
        .run_direct(None, &mut connection, false)
        .await
        .map_err(|error| migration_error::to_store_error(error, &MIGRATIONS, RECOVERY_HINT, to_store_error))?;
    Ok(connection)
}

/// Looks a file over, on a connection of its own, so that it can be read meanwhile: whoever reads must not believe what
/// was read before this says so. Rows carry checksums; this finds what they cannot, such as a page that is missing.
pub(super) async fn check_integrity(path: &Path) -> Result<(), StoreError> {
    let mut connection = connect(path).await?;
    let size: i64 =
        fetch_scalar(&mut connection, "select page_count * page_size from pragma_page_count, pragma_page_size").await?;
    let verdict: String = match u64::try_from(size).unwrap_or(0) < INTEGRITY_CHECK_BYTES_MAX {
        true => fetch_scalar(&mut connection, "pragma quick_check(1)").await?,
        false => "ok".into(),
    };
    let _ = sqlx::Connection::close(connection).await;
    if verdict == "ok" { Ok(()) } else { Err(StoreError::DamagedFile(verdict)) }
}

/// A connection that has been seen to be what it was asked to be.
pub(super) async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    let mut connection = connect_options(path).connect().await.map_err(to_store_error)?;
    let version: String = fetch_scalar(&mut connection, "select sqlite_version()").await?;
    check_sqlite_version(&version)?;
    let journal: String = fetch_scalar(&mut connection, "pragma journal_mode").await?;
    let synchronous: i64 = fetch_scalar(&mut connection, "pragma synchronous").await?;
    let foreign_keys: i64 = fetch_scalar(&mut connection, "pragma foreign_keys").await?;
    if (journal.as_str(), synchronous, foreign_keys) != ("wal", 2, 1) {
        return Err(StoreError::Unavailable(format!(
            "it does not take write-ahead logging with full synchronisation (journal_mode {journal}, synchronous \
             {synchronous}, foreign_keys {foreign_keys}): put it on a local disk"
        )));
    }
    Ok(connection)
}

async fn fetch_scalar<T>(connection: &mut SqliteConnection, question: &'static str) -> Result<T, StoreError>
where
    T: Send + Unpin + for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    sqlx::query_scalar(question).fetch_one(connection).await.map_err(to_store_error)
}

fn check_sqlite_version(version: &str) -> Result<(), StoreError> {
    let numbers: Vec<u32> = version.split('.').map_while(|part| part.parse().ok()).collect();
    if numbers.as_slice() < SQLITE_VERSION_MIN.as_slice() {
        return Err(StoreError::Incompatible(format!(
            "SQLite {version} can corrupt a file in write-ahead mode: build the server with 3.51.3 or newer"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_libraries_are_refused() {
        for (version, fine) in [
            ("3.51.3", true),
            ("3.52.0", true),
            ("4.0.0", true),
            ("3.51.2", false),
            ("3.9.9", false),
            ("3.51", false),
            ("", false),
        ] {
            assert_eq!(check_sqlite_version(version).is_ok(), fine, "{version}");
        }
    }
}
