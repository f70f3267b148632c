//! File lock: one server per database file. The operating system releases it when the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::store::error::StoreError;

/// Lock on a file beside the database. The file is never removed: a removed and recreated file could be locked twice.
#[derive(Debug)]
pub(in crate::store::sqlite) struct DatabaseLock {
    file: File,
}

/// Explicit unlock, because closing is not enough: a child process that is just starting has a copy of the file
/// descriptor until it runs its own program.
impl Drop for DatabaseLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl DatabaseLock {
    /// Locks `database` for this server. `Locked` if another server has it; never waits.
    pub(in crate::store::sqlite) fn try_acquire(database: &Path) -> Result<Self, StoreError> {
        let lock_path = lock_file_path(database);
        let lock_error =
            |error: std::io::Error| StoreError::Unavailable(format!("cannot lock {}: {error}", lock_path.display()));
        let file = open_private_file(&lock_path).map_err(lock_error)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(database.display().to_string())),
            Err(TryLockError::Error(error)) => Err(lock_error(error)),
        }
    }
}

/// Opens a file for writing; creates it, readable only by the server's user, if it does not exist.
pub(in crate::store::sqlite) fn open_private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Path of the lock file of a database.
pub(in crate::store::sqlite) fn lock_file_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
