//! File of the erasures of users: a server repeats them on a store that was restored from a backup.
//!
//! A line is added before an erasure begins, and the store records the number of the last erasure that has finished. A restored
//! store has a lower number, so the server erases again whom the lines after it name. A line names the user and the user's
//! publishers by keys under the secret of the deployment, so that the file alone names no account.
//!
//! Text, one line each: the header `fireteam-erasures 1 ID FINGERPRINT`, then `NUMBER UNIX_MS USER [PUBLISHER…]`. All but number and
//! time are hexadecimal digits. A line that a crash has cut off is removed: its erasure has not begun.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::domain::time::UnixMs;
use crate::files::open_regular_file;
use crate::store::error::StoreError;

/// Time for which an erasure is kept, milliseconds: 400 days. An older backup must not be restored.
pub const ERASURE_RETENTION_MS: u64 = 400 * 24 * 60 * 60 * 1_000;

/// Maximum number of kept erasures. For a further one the oldest tenth is removed.
pub const KEPT_ERASURES_MAX: usize = 100_000;

/// Maximum publishers of one user: one per issuer of tokens, and one without an issuer.
const PUBLISHERS_MAX: usize = 64;

/// Maximum size of a file, bytes: more than the longest lines need.
const FILE_BYTES_MAX: u64 = 256 << 20;

const HEADER_WORD: &str = "fireteam-erasures";
const FORMAT_VERSION: &str = "1";

/// Erasure of one user. The keys are those under the secret of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptErasure {
    /// Number in its file, from 1.
    pub number: u64,
    /// Time of the request.
    pub requested_at: UnixMs,
    /// Key of the user.
    pub user: [u8; 16],
    /// Keys by which advertisements know the user as publisher.
    pub publishers: Vec<[u8; 16]>,
}

/// Content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptErasures {
    /// Random number of the file. The store records its position by it.
    pub file_id: u64,
    /// Fingerprint of the secret of the keys.
    pub secret_fingerprint: i64,
    /// Erasures in the order of their numbers, which have no gaps.
    pub erasures: Vec<KeptErasure>,
}

impl KeptErasures {
    /// Erasures that a store with this position has not finished.
    pub fn after(&self, position: u64) -> &[KeptErasure] {
        let first = self.erasures.partition_point(|erasure| erasure.number <= position);
        self.erasures.get(first..).unwrap_or_default()
    }

    /// Whether erasures after `position` were removed because of their age or number.
    pub fn has_dropped_after(&self, position: u64) -> bool {
        self.erasures.first().is_some_and(|first| first.number > position.saturating_add(1))
    }

    fn next_number(&self) -> u64 {
        self.erasures.last().map_or(1, |last| last.number.saturating_add(1))
    }

    /// Removes erasures that are too old, and the oldest tenth if there are too many. The last one stays, because it has the
    /// number. Returns whether any was removed.
    fn prune(&mut self, now: UnixMs, max: usize) -> bool {
        let oldest = now.0.saturating_sub(ERASURE_RETENTION_MS);
        let expired = self.erasures.iter().take_while(|erasure| erasure.requested_at.0 < oldest).count();
        let surplus = if self.erasures.len() < max { 0 } else { self.erasures.len() - max + max.div_ceil(10) };
        let removed = expired.max(surplus).min(self.erasures.len().saturating_sub(1));
        self.erasures.drain(..removed);
        removed > 0
    }

    fn header(&self) -> String {
        format!(
            "{HEADER_WORD} {FORMAT_VERSION} {:016x} {:016x}\n",
            self.file_id,
            self.secret_fingerprint.cast_unsigned()
        )
    }

    fn to_text(&self) -> String {
        [self.header()].into_iter().chain(self.erasures.iter().map(KeptErasure::to_line)).collect()
    }

    /// Parses complete lines. Fails with the number of the first line that is not valid.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.lines();
        let mut content = lines.next().and_then(parse_header).ok_or(1_usize)?;
        for (index, line) in lines.enumerate() {
            let erasure = KeptErasure::parse(line).ok_or(index + 2)?;
            if content.erasures.last().is_some_and(|last| last.number.checked_add(1) != Some(erasure.number)) {
                return Err(index + 2);
            }
            content.erasures.push(erasure);
        }
        Ok(content)
    }
}

impl KeptErasure {
    fn to_line(&self) -> String {
        let mut line = format!("{} {}", self.number, self.requested_at.0);
        for key in std::iter::once(&self.user).chain(&self.publishers) {
            line.push_str(&format!(" {:032x}", u128::from_be_bytes(*key)));
        }
        line.push('\n');
        line
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let number = words.next()?.parse().ok()?;
        let requested_at = UnixMs(words.next()?.parse().ok()?);
        let user = parse_key(words.next()?)?;
        let publishers: Vec<[u8; 16]> = words.map(parse_key).collect::<Option<_>>()?;
        (publishers.len() <= PUBLISHERS_MAX).then_some(Self { number, requested_at, user, publishers })
    }
}

fn parse_header(line: &str) -> Option<KeptErasures> {
    let words: Vec<&str> = line.split(' ').collect();
    let [HEADER_WORD, FORMAT_VERSION, file_id, fingerprint] = words[..] else { return None };
    let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
    let secret_fingerprint = number(fingerprint)?.cast_signed();
    Some(KeptErasures { file_id: number(file_id)?, secret_fingerprint, erasures: Vec::new() })
}

fn parse_key(word: &str) -> Option<[u8; 16]> {
    (word.len() == 32).then(|| u128::from_str_radix(word, 16).ok()).flatten().map(u128::to_be_bytes)
}

/// Open file of erasures. One server has it.
#[derive(Debug)]
pub struct ErasureLog {
    path: PathBuf,
    state: Mutex<LogState>,
}

#[derive(Debug)]
struct LogState {
    file: File,
    content: KeptErasures,
    /// Length of the complete lines, bytes.
    length: u64,
}

impl ErasureLog {
    /// Opens the file; creates it with `new_id` if it does not exist or is empty. Removes erasures that are too old. Blocks.
    ///
    /// Errors, each with the remedy: `Locked` if another server has the file, `Incompatible` if it was written under another
    /// secret, `DamagedFile` if a line is not valid, `Unavailable` if it cannot be read or written.
    pub fn open(path: &Path, new_id: u64, secret_fingerprint: i64, now: UnixMs) -> Result<Self, StoreError> {
        let io_error = |error: io::Error| unavailable(path, &error);
        let mut options = private_file_options();
        let mut file = open_regular_file(path, options.read(true).create(true)).map_err(io_error)?;
        lock(&file, path)?;
        let (mut content, length) = match read_content(&mut file, path)? {
            Some(found) => found,
            None => (KeptErasures { file_id: new_id, secret_fingerprint, erasures: Vec::new() }, 0),
        };
        if content.secret_fingerprint != secret_fingerprint {
            return Err(StoreError::Incompatible(format!(
                "{} was written under another user key; restore that key file (--user-key-file), or move {0} away: users that it \
                 names are then not erased again",
                path.display()
            )));
        }
        if length == 0 || content.prune(now, KEPT_ERASURES_MAX) {
            (file, content) = replace_file(path, content).map_err(io_error)?;
        } else {
            file.set_len(length).map_err(io_error)?;
        }
        let length = file.metadata().map_err(io_error)?.len();
        Ok(Self { path: path.to_owned(), state: Mutex::new(LogState { file, content, length }) })
    }

    /// Random number of the file.
    pub fn file_id(&self) -> u64 {
        self.state().content.file_id
    }

    /// Content of the file.
    pub fn content(&self) -> KeptErasures {
        self.state().content.clone()
    }

    /// Adds an erasure, on disk when this returns, and returns its number. Blocks. After an error the file is as before.
    pub fn append(&self, requested_at: UnixMs, user: [u8; 16], publishers: &[[u8; 16]]) -> Result<u64, StoreError> {
        let mut state = self.state();
        let state = &mut *state;
        let io_error = |error: io::Error| unavailable(&self.path, &error);
        if state.content.erasures.len() >= KEPT_ERASURES_MAX {
            let mut pruned = state.content.clone();
            pruned.prune(requested_at, KEPT_ERASURES_MAX);
            (state.file, state.content) = replace_file(&self.path, pruned).map_err(io_error)?;
            state.length = state.file.metadata().map_err(io_error)?.len();
        }
        let publishers = publishers.iter().take(PUBLISHERS_MAX).copied().collect();
        let number = state.content.next_number();
        let erasure = KeptErasure { number, requested_at, user, publishers };
        let line = erasure.to_line();
        let write = |file: &mut File| {
            // A part of a line that failed before is overwritten.
            file.set_len(state.length)?;
            file.seek(SeekFrom::Start(state.length))?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        write(&mut state.file).map_err(io_error)?;
        state.length += line.len() as u64;
        state.content.erasures.push(erasure);
        Ok(number)
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Explicit unlock: a child process that is just starting has a copy of the file descriptor.
impl Drop for LogState {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Reads a file without changing or locking it. `None` if it is empty or does not exist. Blocks.
pub fn read_erasures(path: &Path) -> Result<Option<KeptErasures>, StoreError> {
    match open_regular_file(path, OpenOptions::new().read(true)) {
        Ok(mut file) => Ok(read_content(&mut file, path)?.map(|(content, _)| content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(path, &error)),
    }
}

/// Content, and the length of the complete lines in bytes. `None` if there is no complete line.
fn read_content(file: &mut File, path: &Path) -> Result<Option<(KeptErasures, u64)>, StoreError> {
    let io_error = |error: io::Error| unavailable(path, &error);
    let size = file.metadata().map_err(io_error)?.len();
    if size > FILE_BYTES_MAX {
        return Err(StoreError::DamagedFile(format!(
            "{} has {size} bytes, more than {FILE_BYTES_MAX}; it is no erasure log, name another file",
            path.display()
        )));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(io_error)?;
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    if complete == 0 && !HEADER_WORD.starts_with(text.get(..HEADER_WORD.len()).unwrap_or(&text)) {
        return Err(damaged(path, 1));
    }
    if complete == 0 {
        return Ok(None);
    }
    let content = KeptErasures::parse(&text[..complete]).map_err(|line| damaged(path, line))?;
    Ok(Some((content, complete as u64)))
}

fn damaged(path: &Path, line: usize) -> StoreError {
    StoreError::DamagedFile(format!(
        "{}:{line}: not a line of an erasure log; restore a copy of the file, or move it away: users that it names are then not \
         erased again",
        path.display()
    ))
}

fn unavailable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!("erasure log {}: {error}; check path, permissions and free space", path.display()))
}

fn lock(file: &File, path: &Path) -> Result<(), StoreError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked(path.display().to_string())),
        Err(TryLockError::Error(error)) => Err(unavailable(path, &error)),
    }
}

/// Writes a whole file beside `path`, locks it, and renames it over `path`.
fn replace_file(path: &Path, content: KeptErasures) -> io::Result<(File, KeptErasures)> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".draft");
    let mut file = private_file_options().read(true).create(true).truncate(true).open(&draft)?;
    file.try_lock().map_err(io::Error::from)?;
    file.write_all(content.to_text().as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    Ok((file, content))
}

/// Options for writing a file that only its owner may read.
fn private_file_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests;
