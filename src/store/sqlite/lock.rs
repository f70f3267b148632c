//! One server per file: a lock that the system takes back when its holder dies, however it dies.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// Held while a server has the database. The file beside the database stays; only the lock on it comes and goes, since a
/// file that is removed and made again could be locked twice.
#[derive(Debug)]
pub(super) struct DatabaseLock {
    file: File,
}

/// Given back in as many words: closing the file would do, but for a process that is just being started, which has a
/// copy of it until it runs its own program.
impl Drop for DatabaseLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl DatabaseLock {
    /// Locks `database` for this server, or says that another one has it. Never waits (R17).
    pub(super) fn try_acquire(database: &Path) -> Result<Self, StoreError> {
        let beside = lock_file_path(database);
        let cannot =
            |error: std::io::Error| StoreError::Unavailable(format!("cannot lock {}: {error}", beside.display()));
        let file = open_private_file(&beside).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Locked(database.display().to_string())),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }
}

/// Opens a file for writing, made if it is not there, for the server's user alone to read.
pub(super) fn open_private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn lock_file_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}
