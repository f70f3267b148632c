//! Facts about a SQLite file for a diagnosis. Nothing is changed, and no lock is taken that a server would notice.

use std::fs;
use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::store::error::StoreError;
use crate::store::sqlite::backup::{connect_read_only, with_ending};
use crate::store::sqlite::connection::error::{add_path_to_error, to_store_error};
use crate::store::sqlite::connection::lock::lock_file_path;
use crate::store::writer_version;

/// State of a SQLite file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqliteFacts {
    /// Number of the last migration; `None` if the file is no store.
    pub schema_version: Option<i64>,
    /// Lowest store format version that may write.
    pub min_writer_version: Option<i64>,
    /// Journal mode of the file: `wal` after a server has opened it.
    pub journal_mode: String,
    /// Result of a check of all pages: `ok`, or the first problem.
    pub quick_check: String,
    /// Whether a running server has the file; `None` if the system does not tell.
    pub is_in_use: Option<bool>,
    /// Length of the write-ahead log, bytes.
    pub wal_bytes: u64,
}

/// Reads the state of a file that exists. Reads the whole file.
pub async fn inspect_database(path: &Path) -> Result<SqliteFacts, StoreError> {
    let is_in_use = is_locked(path);
    let wal_bytes = fs::metadata(with_ending(path, "-wal")).map_or(0, |metadata| metadata.len());
    let mut connection = connect(path, is_in_use == Some(false) && wal_bytes == 0).await?;
    let facts = read_facts(&mut connection, is_in_use, wal_bytes).await;
    let _ = connection.close().await;
    facts.map_err(|error| add_path_to_error(path, to_store_error(error)))
}

/// Connects for reading. A file that no program uses, and that has no log, is opened without making files beside it.
async fn connect(path: &Path, is_unused: bool) -> Result<SqliteConnection, StoreError> {
    if !is_unused {
        return connect_read_only(path).await;
    }
    let options =
        SqliteConnectOptions::new().filename(path).read_only(true).immutable(true).pragma("trusted_schema", "off");
    let connected = options.disable_statement_logging().connect().await;
    connected.map_err(|error| add_path_to_error(path, to_store_error(error)))
}

async fn read_facts(
    connection: &mut SqliteConnection,
    is_in_use: Option<bool>,
    wal_bytes: u64,
) -> Result<SqliteFacts, sqlx::Error> {
    let journal_mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(&mut *connection).await?;
    let quick_check: String = sqlx::query_scalar("pragma quick_check(1)").fetch_one(&mut *connection).await?;
    let tables = "select count(*) from sqlite_schema where name in ('_sqlx_migrations', 'store_setting')";
    let tables: i64 = sqlx::query_scalar(tables).fetch_one(&mut *connection).await?;
    let (mut schema_version, mut min_writer_version) = (None, None);
    if tables == 2 {
        let newest = "select max(version) from _sqlx_migrations where success";
        schema_version = sqlx::query_scalar(newest).fetch_one(&mut *connection).await?;
        let lowest = writer_version::READ_MIN_WRITER_VERSION_SQL;
        min_writer_version = sqlx::query_scalar(lowest).fetch_optional(&mut *connection).await?;
    }
    Ok(SqliteFacts { schema_version, min_writer_version, journal_mode, quick_check, is_in_use, wal_bytes })
}

/// Whether a process has locked the lock file, by the system's list of locks: a lock of our own could keep a server from starting.
#[cfg(target_os = "linux")]
fn is_locked(database: &Path) -> Option<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(metadata) = fs::metadata(lock_file_path(database)) else { return Some(false) };
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let inode = format!(":{}", metadata.ino());
    // `1: FLOCK  ADVISORY  WRITE 4711 08:01:1234567 0 EOF`.
    let names_file = |line: &str| line.split_whitespace().nth(5).is_some_and(|file| file.ends_with(&inode));
    Some(locks.lines().any(|line| line.contains("FLOCK") && names_file(line)))
}

#[cfg(not(target_os = "linux"))]
fn is_locked(_database: &Path) -> Option<bool> {
    None
}
