//! Key file of the token signer: one or two lines of 64 hexadecimal digits, readable by its owner only. Also creates and
//! opens private files for other keys.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fireteam_probe::BeaconKey;
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::auth::receipt_check::BeaconFleetKeys;
use crate::auth::token::{HmacTokenSigner, SIGNING_KEY_BYTES};
use crate::files::{READ_DEADLINE, read_start, run_with_deadline, with_regular_file};

/// Bytes read of a key file: enough for two keys and white space.
const SIGNING_KEY_FILE_BYTES_MAX: u64 = 1024;

/// Failure to load or create a key file. Each message is one line.
#[derive(Debug, Error)]
pub enum KeyFileError {
    /// The file could not be read or created.
    #[error("key file {}: {error}; check path and permissions", file.display())]
    Io {
        /// Path of the key file.
        file: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// Users other than the owner may read the file.
    #[error("key file {0} is readable by other users; run `chmod 600 {0}`", file.display())]
    ReadableByOthers {
        /// Path of the key file.
        file: PathBuf,
    },
    /// The file is not in the hexadecimal format. The message never contains the file's content.
    #[error(
        "key file {} is not one or two lines of 64 hexadecimal digits; correct it, or move it away to create a new one",
        file.display()
    )]
    MalformedHex {
        /// Path of the key file.
        file: PathBuf,
    },
    /// The file has no single secret. The message never contains the file's content.
    #[error(
        "key file {} is not one line of 64 hexadecimal digits; restore it: with another secret all users change their public \
         keys",
        file.display()
    )]
    MalformedSecret {
        /// Path of the key file.
        file: PathBuf,
    },
    /// The file is not the key of a beacon. The message never contains the file's content.
    #[error("key file {} is not one line of 64 hexadecimal digits; make it with `fireteam beacon-key`", file.display())]
    MalformedBeaconKey {
        /// Path of the key file.
        file: PathBuf,
    },
    /// The file is not in PEM format. The message never contains the file's content.
    #[error(
        "key file {} is not one or two Ed25519 private keys in PEM (PKCS #8); create keys with `fireteam keygen`, \
         or move it away to create a new one",
        file.display()
    )]
    MalformedPem {
        /// Path of the key file.
        file: PathBuf,
    },
}

/// Loads the keys: the first line signs; the second, if any, is the previous key and still verifies. If the file does not
/// exist, creates it with `new_key`, readable by its owner only.
///
/// To rotate: insert a new line at the top, remove the third.
pub fn load_or_create_signer(path: &Path, new_key: [u8; SIGNING_KEY_BYTES]) -> Result<HmacTokenSigner, KeyFileError> {
    match read_or_create_private_file(path, &encode_secret_file(new_key))? {
        None => Ok(HmacTokenSigner::new(new_key, None)),
        Some(text) => parse_signer(&text).ok_or_else(|| KeyFileError::MalformedHex { file: path.into() }),
    }
}

/// Loads the fleet keys of beacons: one line, and the one before a rotation. If the file does not exist, creates it with `new_key`,
/// readable by its owner only.
pub fn load_or_create_beacon_fleet_keys(
    path: &Path,
    new_key: [u8; SIGNING_KEY_BYTES],
) -> Result<BeaconFleetKeys, KeyFileError> {
    match read_or_create_private_file(path, &encode_secret_file(new_key))? {
        None => Ok(BeaconFleetKeys::new(new_key, None)),
        Some(text) => parse_beacon_fleet_keys(&text, path),
    }
}

/// Loads the fleet keys of beacons from a file that exists.
pub fn load_beacon_fleet_keys(path: &Path) -> Result<BeaconFleetKeys, KeyFileError> {
    parse_beacon_fleet_keys(&read_private_file(path)?, path)
}

fn parse_beacon_fleet_keys(text: &str, path: &Path) -> Result<BeaconFleetKeys, KeyFileError> {
    let (current, previous) =
        parse_current_and_previous_key(text).ok_or_else(|| KeyFileError::MalformedHex { file: path.into() })?;
    Ok(BeaconFleetKeys::new(current, previous))
}

/// Loads the key of one beacon: one line.
pub fn load_single_beacon_key(path: &Path) -> Result<BeaconKey, KeyFileError> {
    let key = parse_hex_key(read_private_file(path)?.trim());
    key.map(BeaconKey).ok_or_else(|| KeyFileError::MalformedBeaconKey { file: path.into() })
}

/// Creates a file with one secret, readable by its owner only. Fails with `AlreadyExists` if the file exists.
pub fn create_secret_file(path: &Path, secret: [u8; SIGNING_KEY_BYTES]) -> io::Result<()> {
    create_private_file(path, &encode_secret_file(secret))
}

/// Loads the secret of public user keys: one line. If the file does not exist, creates it with `new_secret`, readable by its
/// owner only.
pub fn load_or_create_public_user_key_secret(
    path: &Path,
    new_secret: [u8; SIGNING_KEY_BYTES],
) -> Result<PublicUserKeySecret, KeyFileError> {
    match read_or_create_private_file(path, &encode_secret_file(new_secret))? {
        None => Ok(PublicUserKeySecret::new(new_secret)),
        Some(text) => match parse_hex_key(text.trim()) {
            Some(secret) => Ok(PublicUserKeySecret::new(secret)),
            None => Err(KeyFileError::MalformedSecret { file: path.into() }),
        },
    }
}

/// Content of a file with one secret.
pub fn encode_secret_file(secret: [u8; SIGNING_KEY_BYTES]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).chain(["\n".into()]).collect()
}

/// Reads a private file. If it does not exist, creates it with `new_content` and returns `None`.
pub(super) fn read_or_create_private_file(path: &Path, new_content: &str) -> Result<Option<String>, KeyFileError> {
    let io_error = |error| KeyFileError::Io { file: path.into(), error };
    let (to_create, content) = (path.to_owned(), new_content.to_owned());
    match run_with_deadline(path, READ_DEADLINE, move || create_private_file(&to_create, &content)) {
        Ok(()) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io_error(error)),
    }
    read_private_file(path).map(Some)
}

/// Reads a private file.
fn read_private_file(path: &Path) -> Result<String, KeyFileError> {
    let io_error = |error| KeyFileError::Io { file: path.into(), error };
    let text = with_regular_file(path, READ_DEADLINE, |file| {
        let is_exposed = is_readable_by_others(&file)?;
        Ok((!is_exposed).then_some(read_start(&file, SIGNING_KEY_FILE_BYTES_MAX)?))
    });
    let bytes = text.map_err(io_error)?.ok_or_else(|| KeyFileError::ReadableByOthers { file: path.into() })?;
    let invalid = |error| io_error(io::Error::new(io::ErrorKind::InvalidData, error));
    String::from_utf8(bytes).map_err(invalid)
}

fn parse_signer(text: &str) -> Option<HmacTokenSigner> {
    parse_current_and_previous_key(text).map(|(current, previous)| HmacTokenSigner::new(current, previous))
}

/// Keys of a file with one or two lines: the current one, and the previous one.
fn parse_current_and_previous_key(text: &str) -> Option<([u8; SIGNING_KEY_BYTES], Option<[u8; SIGNING_KEY_BYTES]>)> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let current = parse_hex_key(lines.next()?)?;
    let previous = match lines.next() {
        Some(line) => Some(parse_hex_key(line)?),
        None => None,
    };
    lines.next().is_none().then_some((current, previous))
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

/// Creates the file atomically and durably, before any token is signed with it.
///
/// Fails with `AlreadyExists` if the file exists: of two servers that start together one creates it, the other reads it.
fn create_private_file(path: &Path, text: &str) -> io::Result<()> {
    if path.try_exists()? {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    let draft = draft_path(path, text);
    let created = write_draft_file(&draft, text).and_then(|()| match fs::hard_link(&draft, path) {
        // Some file systems have no hard links. Renaming may overwrite a file created at this moment, but no older one.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => fs::rename(&draft, path),
        linked => linked,
    });
    // Already gone if it was renamed; harmless if it cannot be removed.
    let _ = fs::remove_file(&draft);
    created.and_then(|()| sync_parent_folder(path))
}

/// Syncs the folder of `path`, which stores the name of the new file.
#[cfg(unix)]
fn sync_parent_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_parent_folder(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Path of the draft file, unique per server: its name comes from a digest of the server's own new key.
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

/// Whether users other than the owner may read a file. If root owns the file, its group may read it too.
///
/// Kubernetes mounts a secret that way for a process that is not root (`fsGroup`), and distributions share a key among
/// servers that way. Only root adds members to that group.
#[cfg(unix)]
pub(crate) fn is_readable_by_others(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = file.metadata()?;
    Ok(mode_is_exposed(metadata.uid(), metadata.mode()))
}

#[cfg(unix)]
fn mode_is_exposed(owner: u32, mode: u32) -> bool {
    const ROOT_UID: u32 = 0;
    const GROUP_READ_BIT: u32 = 0o040;
    let allowed = if owner == ROOT_UID { GROUP_READ_BIT } else { 0 };
    mode & 0o077 & !allowed != 0
}

#[cfg(not(unix))]
pub(crate) fn is_readable_by_others(_file: &File) -> io::Result<bool> {
    Ok(false)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// SEC-15: the group may read a file that root owns, as in a mounted secret. Any wider permission is rejected.
    #[test]
    fn key_file_is_readable_by_its_owner_or_by_the_group_of_root() {
        const NON_ROOT_UID: u32 = 1_000;
        for (owner, mode, exposed) in [
            (NON_ROOT_UID, 0o100_600, false),
            (NON_ROOT_UID, 0o100_400, false),
            (NON_ROOT_UID, 0o100_440, true),
            (NON_ROOT_UID, 0o100_604, true),
            (0, 0o100_600, false),
            (0, 0o100_440, false),
            (0, 0o100_640, false),
            (0, 0o100_660, true),
            (0, 0o100_650, true),
            (0, 0o100_644, true),
            (0, 0o100_604, true),
        ] {
            assert_eq!(mode_is_exposed(owner, mode), exposed, "{owner} {mode:o}");
        }
    }
}
