//! Fingerprint of files' content, and identity of directories.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, Metadata, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::files::{READ_DEADLINE, open_regular_file, read_start, run_with_deadline};

/// Files up to this size are read, bytes. Larger files are compared by size, modification time and inode: reading
/// hundreds of megabytes every few seconds would cost too much.
const FULLY_HASHED_FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of entries read of one directory.
const DIRECTORY_ENTRIES_MAX: usize = 4096;

/// Hash of the names and contents of `paths` and of the files directly in them.
///
/// Equal hashes mean unchanged content, with an error probability of 2^-64. Unreadable files count as absent. Fails with
/// `TimedOut` after a deadline.
pub(super) fn content_fingerprint(paths: &[PathBuf]) -> io::Result<u64> {
    let owned = paths.to_owned();
    let first = paths.first().map_or(Path::new("."), PathBuf::as_path);
    run_with_deadline(first, READ_DEADLINE, move || Ok(hash_paths(&owned)))
}

fn hash_paths(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        path.hash(&mut hasher);
        let Ok(entries) = fs::read_dir(path) else {
            hash_file(path, &mut hasher);
            continue;
        };
        let mut files: Vec<PathBuf> = entries.take(DIRECTORY_ENTRIES_MAX).flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            file.hash(&mut hasher);
            hash_file(&file, &mut hasher);
        }
    }
    hasher.finish()
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) {
    // Follows symbolic links: the files of a ConfigMap are links.
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= FULLY_HASHED_FILE_BYTES_MAX => {
            let file = open_regular_file(path, OpenOptions::new().read(true));
            file.and_then(|file| read_start(&file, FULLY_HASHED_FILE_BYTES_MAX)).ok().hash(hasher)
        }
        Ok(metadata) if metadata.is_file() => metadata_fingerprint(&metadata).hash(hasher),
        Ok(_) | Err(_) => 0_u8.hash(hasher),
    }
}

/// Identity of a directory, to detect a replacement with the same name: inode and creation time, because inode numbers
/// are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DirectoryIdentity {
    device_and_inode: (u64, u64),
    created_at: Option<SystemTime>,
}

/// Identity of the directory at `path`; zeros if there is none.
pub(super) fn directory_identity(path: &Path) -> DirectoryIdentity {
    match fs::metadata(path) {
        Ok(metadata) => {
            DirectoryIdentity { device_and_inode: device_and_inode(&metadata), created_at: metadata.created().ok() }
        }
        Err(_) => DirectoryIdentity { device_and_inode: (0, 0), created_at: None },
    }
}

fn metadata_fingerprint(metadata: &Metadata) -> (u64, (u64, u64), Option<SystemTime>) {
    (metadata.len(), device_and_inode(metadata), metadata.modified().ok())
}

#[cfg(unix)]
fn device_and_inode(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn device_and_inode(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}
