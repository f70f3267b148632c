//! What files hold, in one number, and which directory a name stands for.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, Metadata};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Files up to this size are read; larger ones are judged by size, time and identity, since nobody edits them by hand
/// and reading hundreds of megabytes every few seconds would be felt.
const HASHED_FILE_BYTES_MAX: u64 = 1 << 20;
/// Entries of one directory that are looked at.
const DIRECTORY_ENTRIES_MAX: usize = 4096;

/// A hash over the names and the content of `paths` and of the files directly in them. Equal means unchanged, but for
/// one chance in 2^64. What cannot be read counts as absent.
pub(super) fn content_fingerprint(paths: &[PathBuf]) -> u64 {
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
    // Follows symbolic links: a ConfigMap's files are links.
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() <= HASHED_FILE_BYTES_MAX => {
            fs::read(path).ok().hash(hasher)
        }
        Ok(metadata) if metadata.is_file() => metadata_fingerprint(&metadata).hash(hasher),
        Ok(_) | Err(_) => 0_u8.hash(hasher),
    }
}

/// What tells one directory from the next of the same name: where it is on disk and when it was made, because a freed
/// place on disk is soon taken again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity {
    device_and_inode: (u64, u64),
    created_at: Option<SystemTime>,
}

/// The identity of the directory that `path` stands for now; all zeros when there is none.
pub(super) fn file_identity(path: &Path) -> FileIdentity {
    match fs::metadata(path) {
        Ok(metadata) => FileIdentity { device_and_inode: node(&metadata), created_at: metadata.created().ok() },
        Err(_) => FileIdentity { device_and_inode: (0, 0), created_at: None },
    }
}

fn metadata_fingerprint(metadata: &Metadata) -> (u64, (u64, u64), Option<SystemTime>) {
    (metadata.len(), node(metadata), metadata.modified().ok())
}

#[cfg(unix)]
fn node(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn node(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}
