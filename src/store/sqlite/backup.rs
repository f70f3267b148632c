//! Backup of a SQLite store while a server uses it, and its restoration.
//!
//! `VACUUM INTO` reads one snapshot on a connection of its own and writes a new file. Commits continue; the write-ahead log of the
//! server can only be reset when the snapshot has been read. The new file has no free pages, and with `secure_delete` no
//! copies of rows beside those in use.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use crate::store::error::StoreError;
use crate::store::migrations;
use crate::store::sqlite::connection::error::{add_path_to_error, to_store_error};
use crate::store::sqlite::connection::lock::{DatabaseLock, open_private_file};
use crate::store::user_data::erasure_position_setting;
use crate::store::writer_version;

/// Time for which a read waits for a lock, for example while a server empties its write-ahead log.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Database file that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckedDatabase {
    /// Number of its last migration.
    pub schema_version: i64,
    /// Size, bytes.
    pub bytes: u64,
}

/// Copies the database at `source` to `target`, which must not exist. A server may use `source`. The copy has every change that
/// was acknowledged before this call. It appears under its name only when it is complete, on disk and checked.
///
/// Errors, each with the remedy: `Unavailable` if a file cannot be read or written, `DamagedFile` if the check fails, and
/// `Incompatible` if `source` is no store of this or an older format.
pub async fn back_up_database(source: &Path, target: &Path) -> Result<CheckedDatabase, StoreError> {
    if !source.is_file() {
        return Err(StoreError::Unavailable(format!("{} does not exist; name the server's file", source.display())));
    }
    refuse_existing(target, "name another file")?;
    let draft = DraftFile::create(target)?;
    let checked = copy_and_check(source, &draft.path).await?;
    // Another backup may have taken the name meanwhile.
    refuse_existing(target, "name another file")?;
    draft.rename_to(target)?;
    Ok(checked)
}

/// Puts a copy of the backup at `source` in the place of `target`, which no server may use. An existing `target` is replaced only if
/// `replace` is set, at once and together with its write-ahead log.
///
/// Errors as of `back_up_database`, and `Locked` if a server uses `target`.
pub async fn restore_database(source: &Path, target: &Path, replace: bool) -> Result<CheckedDatabase, StoreError> {
    if !source.is_file() {
        return Err(StoreError::Unavailable(format!("{} does not exist; name a backup", source.display())));
    }
    let _lock = DatabaseLock::try_acquire(target)?;
    if !replace {
        refuse_existing(target, "replace it with --force")?;
    }
    let draft = DraftFile::create(target)?;
    let checked = copy_and_check(source, &draft.path).await?;
    // A log of the former database must not be applied to the new one. So it goes first.
    for ending in ["-wal", "-shm", "-journal"] {
        remove_if_exists(&with_ending(target, ending))?;
    }
    draft.rename_to(target)?;
    Ok(checked)
}

/// Position that the store at `path` has in an erasure log. The file is not changed.
pub async fn read_erasure_position_of_file(path: &Path, log_id: u64) -> Result<u64, StoreError> {
    let mut connection = connect_read_only(path).await?;
    let read =
        sqlx::query_scalar("select value from store_setting where name = $1").bind(erasure_position_setting(log_id));
    let position: Option<i64> = read.fetch_optional(&mut connection).await.map_err(|error| error_at(path, error))?;
    let _ = connection.close().await;
    Ok(position.map_or(0, i64::cast_unsigned))
}

async fn copy_and_check(source: &Path, draft: &Path) -> Result<CheckedDatabase, StoreError> {
    // Fails early, before much is copied.
    read_schema_version(source).await?;
    let name = draft.to_str().ok_or_else(|| {
        StoreError::Unavailable(format!("{}: the name is not UTF-8; use another name", draft.display()))
    })?;
    let mut connection = connect_read_only(source).await?;
    let copied = sqlx::query("vacuum into $1").bind(name).execute(&mut connection).await;
    let _ = connection.close().await;
    copied.map_err(|error| error_at(source, error))?;
    File::open(draft).and_then(|file| file.sync_all()).map_err(|error| io_error(draft, &error))?;
    check_database(draft).await
}

/// Checks every page and index of a file, and that it is a store that this program can use.
pub async fn check_database(path: &Path) -> Result<CheckedDatabase, StoreError> {
    let schema_version = read_schema_version(path).await?;
    let mut connection = connect_read_only(path).await?;
    let checked = sqlx::query_scalar("pragma integrity_check(1)").fetch_one(&mut connection).await;
    let _ = connection.close().await;
    let checked: String = checked.map_err(|error| error_at(path, error))?;
    if checked != "ok" {
        return Err(add_path_to_error(path, StoreError::DamagedFile(checked)));
    }
    let bytes = fs::metadata(path).map_err(|error| io_error(path, &error))?.len();
    Ok(CheckedDatabase { schema_version, bytes })
}

/// Last migration of a store. Fails if the file is no store, or if the store requires a newer server.
async fn read_schema_version(path: &Path) -> Result<i64, StoreError> {
    let mut connection = connect_read_only(path).await?;
    let tables =
        "select count(*) from sqlite_schema where name in ('_sqlx_migrations', 'store_setting', 'advertisement')";
    let tables: i64 =
        sqlx::query_scalar(tables).fetch_one(&mut connection).await.map_err(|error| error_at(path, error))?;
    if tables != 3 {
        return Err(StoreError::Incompatible(format!("{} is no fireteam database; name another file", path.display())));
    }
    let version: Option<i64> = sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
        .fetch_one(&mut connection)
        .await
        .map_err(|error| error_at(path, error))?;
    let min_writer_version: i64 = sqlx::query_scalar(writer_version::READ_MIN_WRITER_VERSION_SQL)
        .fetch_one(&mut connection)
        .await
        .map_err(|error| error_at(path, error))?;
    let _ = connection.close().await;
    writer_version::check_at_open(min_writer_version).map_err(|error| add_path_to_error(path, error))?;
    Ok(version.unwrap_or(0))
}

/// Number of the last migration that this program knows.
pub fn supported_schema_version() -> i64 {
    migrations::SQLITE.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Connects without changing the file.
pub(super) async fn connect_read_only(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("trusted_schema", "off")
        // The file that `vacuum into` writes inherits it. Otherwise pages that were split keep copies of rows beside their cells.
        .pragma("secure_delete", "on")
        .pragma("mmap_size", "0")
        .disable_statement_logging();
    options.connect().await.map_err(|error| error_at(path, error))
}

/// File that is removed unless it was renamed.
struct DraftFile {
    path: PathBuf,
    is_renamed: bool,
}

impl DraftFile {
    /// Creates an empty file beside `target`, readable by its owner only.
    fn create(target: &Path) -> Result<Self, StoreError> {
        let path = with_ending(target, &format!(".{}.draft", std::process::id()));
        remove_if_exists(&path)?;
        open_private_file(&path).map_err(|error| io_error(&path, &error))?;
        Ok(Self { path, is_renamed: false })
    }

    /// Renames the file, durably.
    fn rename_to(mut self, target: &Path) -> Result<(), StoreError> {
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let renamed = fs::rename(&self.path, target).and_then(|()| File::open(folder)?.sync_all());
        renamed.map_err(|error| io_error(target, &error))?;
        self.is_renamed = true;
        Ok(())
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn refuse_existing(target: &Path, remedy: &str) -> Result<(), StoreError> {
    match target.try_exists() {
        Ok(false) => Ok(()),
        Ok(true) => Err(StoreError::Unavailable(format!("{} exists; move it away, or {remedy}", target.display()))),
        Err(error) => Err(io_error(target, &error)),
    }
}

fn remove_if_exists(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(io_error(path, &error)),
        _ => Ok(()),
    }
}

pub(super) fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn io_error(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("{}: {error}; check path, permissions and free space", path.display()))
}

fn error_at(path: &Path, error: sqlx::Error) -> StoreError {
    add_path_to_error(path, to_store_error(error))
}
