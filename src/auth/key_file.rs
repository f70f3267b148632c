//! The file that holds the keys of the server's own tokens: one or two lines of 64 hexadecimal digits, for its owner's
//! eyes alone. And how any such file is made and opened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::auth::token::{SIGNING_KEY_BYTES, TokenSigner};

/// Bytes of a key file that are looked at: two keys and some white space.
const SIGNING_KEY_FILE_BYTES_MAX: u64 = 1024;

/// Why there are no keys. Each message is one line and says what would help.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// It could not be read or made.
    #[error("key file {}: {why}", file.display())]
    Io {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        #[source]
        why: io::Error,
    },
    /// Others than its owner may read it.
    #[error("key file {0} can be read by others: run `chmod 600 {0}`", file.display())]
    ReadableByOthers {
        /// Which file.
        file: PathBuf,
    },
    /// It holds something else than keys. Its content is never shown.
    #[error(
        "key file {}: expected one or two lines of 64 hexadecimal digits; move it away to have a new one made",
        file.display()
    )]
    MalformedHex {
        /// Which file.
        file: PathBuf,
    },
    /// It was to hold keys in PEM, and holds something else. Its content is never shown.
    #[error(
        "key file {}: expected one or two Ed25519 private keys in PEM (PKCS #8), as `fireteam keygen` makes them; \
         move it away to have a new one made",
        file.display()
    )]
    MalformedPem {
        /// Which file.
        file: PathBuf,
    },
}

/// Reads the keys: the first line signs, the second, if any, is the previous key and still opens. When there is no such
/// file, one is made with `fresh` in it, readable by its owner alone.
///
/// To rotate: put a new line in front, drop the third.
pub fn load_or_create_signer(path: &Path, fresh: [u8; SIGNING_KEY_BYTES]) -> Result<TokenSigner, KeyFileError> {
    let line: String = fresh.iter().map(|byte| format!("{byte:02x}")).chain(["\n".into()]).collect();
    match read_or_create_private_file(path, &line)? {
        None => Ok(TokenSigner::new(fresh, None)),
        Some(text) => parse_signer(&text).ok_or_else(|| KeyFileError::MalformedHex { file: path.into() }),
    }
}

/// What a private file holds; `None` when there was none, and one was made with `fresh` in it.
pub(super) fn read_or_create_private_file(path: &Path, fresh: &str) -> Result<Option<String>, KeyFileError> {
    let io_error = |why| KeyFileError::Io { file: path.into(), why };
    match create_private_file(path, fresh) {
        Ok(()) => return Ok(None),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
        Err(why) => return Err(io_error(why)),
    }
    let file = File::open(path).map_err(io_error)?;
    if is_exposed(&file).map_err(io_error)? {
        return Err(KeyFileError::ReadableByOthers { file: path.into() });
    }
    let mut text = String::new();
    file.take(SIGNING_KEY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(io_error)?;
    Ok(Some(text))
}

fn parse_signer(text: &str) -> Option<TokenSigner> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let current = parse_hex_key(lines.next()?)?;
    let previous = match lines.next() {
        Some(line) => Some(parse_hex_key(line)?),
        None => None,
    };
    lines.next().is_none().then(|| TokenSigner::new(current, previous))
}

fn parse_hex_key(line: &str) -> Option<[u8; SIGNING_KEY_BYTES]> {
    let digits = line.as_bytes();
    if digits.len() != 2 * SIGNING_KEY_BYTES {
        return None;
    }
    let mut key = [0; SIGNING_KEY_BYTES];
    for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(key)
}

/// Makes the file, whole and durable before any token is signed with it; fails when it is there already, so that of two
/// servers that start at once one makes it and the other reads it.
fn create_private_file(path: &Path, text: &str) -> io::Result<()> {
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let draft = draft_path(path, text);
    let made = write_draft_file(&draft, text).and_then(|()| match fs::hard_link(&draft, path) {
        // Some file systems have no links. Renaming would overwrite a file made this instant, but nothing older.
        Err(why) if why.kind() != io::ErrorKind::AlreadyExists => fs::rename(&draft, path),
        linked => linked,
    });
    // Gone already if it was renamed, and in nobody's way if it cannot be removed.
    let _ = fs::remove_file(&draft);
    made.and_then(|()| sync_folder_of(path))
}

/// A file's name is kept in its folder, which has to reach the disk as well.
#[cfg(unix)]
fn sync_folder_of(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder_of(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// A name of its own for every server that drafts: taken from the digest of keys that nobody else has.
fn draft_path(path: &Path, text: &str) -> PathBuf {
    let digest = Sha256::digest(text);
    let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    path.with_extension(format!("{name}.draft"))
}

fn write_draft_file(draft: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Whether others than its owner may read a file, or than its group where the owner is root: that is how Kubernetes lays a
/// secret out for a process that is not root (`fsGroup`), and distributions a key for several servers. Whoever is in that
/// group root has put there.
#[cfg(unix)]
pub(crate) fn is_exposed(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok(mode_is_readable_by_others(metadata.uid(), metadata.mode()))
}

#[cfg(unix)]
fn mode_is_readable_by_others(owner: u32, mode: u32) -> bool {
    const ROOT: u32 = 0;
    const GROUP_READS: u32 = 0o040;
    let allowed = if owner == ROOT { GROUP_READS } else { 0 };
    mode & 0o077 & !allowed != 0
}

#[cfg(not(unix))]
pub(crate) fn is_exposed(_file: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// SEC-15: a group may read what root owns, as in a mounted secret; nobody may do more, and nobody else anything.
    #[test]
    fn key_file_is_readable_by_its_owner_or_by_the_group_of_root() {
        const SOMEBODY: u32 = 1_000;
        for (owner, mode, exposed) in [
            (SOMEBODY, 0o100_600, false),
            (SOMEBODY, 0o100_400, false),
            (SOMEBODY, 0o100_440, true),
            (SOMEBODY, 0o100_604, true),
            (0, 0o100_600, false),
            (0, 0o100_440, false),
            (0, 0o100_640, false),
            (0, 0o100_660, true),
            (0, 0o100_650, true),
            (0, 0o100_644, true),
            (0, 0o100_604, true),
        ] {
            assert_eq!(mode_is_readable_by_others(owner, mode), exposed, "{owner} {mode:o}");
        }
    }
}
