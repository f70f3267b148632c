//! File of audit lines: appended by a thread of its own, synced, and renamed when it is full.
//!
//! The file is opened for each line, so it may be moved away at any time. A file system that does not answer blocks only the
//! thread; an append fails at its deadline.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use crate::domain::time::UnixMs;
use crate::files;

/// Deadline of one append. Shorter than that of a call, which reports it.
const APPEND_DEADLINE: Duration = Duration::from_secs(3);

/// Lines that wait for the thread. More than there are threads that may wait for an append.
const WAITING_LINES_MAX: usize = 1_024;

/// Full files of one name that are looked at; more are left alone.
const LISTED_FILES_MAX: usize = 100_000;

/// Path and limits of a file of audit lines.
#[derive(Clone, Debug)]
pub(super) struct RotatingAuditFile {
    /// Current file. A full one gets a dot and the time in milliseconds at the end of its name.
    pub(super) path: PathBuf,
    /// Size at which a file is full, bytes.
    pub(super) bytes_max: u64,
    /// Full files that are kept beside the current one; the oldest is removed.
    pub(super) full_files_max: usize,
}

/// One line to append.
struct Append {
    line: Vec<u8>,
    now: UnixMs,
    reply: SyncSender<io::Result<()>>,
}

/// Handle of the thread that appends to a file. The thread ends when the handle is dropped.
#[derive(Debug)]
pub(super) struct AuditFileWriter {
    path: PathBuf,
    appends: SyncSender<Append>,
}

impl AuditFileWriter {
    /// Checks that the file can be written, which creates it, and starts the thread. Blocks until a deadline.
    pub(super) fn open(file: RotatingAuditFile) -> io::Result<Self> {
        let path = file.path.clone();
        let to_open = path.clone();
        files::run_with_deadline(&path, APPEND_DEADLINE, move || open_for_append(&to_open).map(drop))?;
        let (appends, waiting) = sync_channel(WAITING_LINES_MAX);
        thread::Builder::new().name("audit".into()).spawn(move || run_append_loop(&file, &waiting))?;
        Ok(Self { path, appends })
    }

    /// Appends one line and waits until it is on disk. On an error that is not `TimedOut`, the file does not have the line.
    pub(super) fn append(&self, line: Vec<u8>, now: UnixMs) -> io::Result<()> {
        let (reply, answer) = sync_channel(1);
        let busy = |_| io::Error::new(io::ErrorKind::TimedOut, self.timeout_text("too many lines wait"));
        self.appends.try_send(Append { line, now, reply }).map_err(busy)?;
        match answer.recv_timeout(APPEND_DEADLINE) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, self.timeout_text("no answer of its file system")))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the audit thread has ended")),
        }
    }

    fn timeout_text(&self, reason: &str) -> String {
        format!("timed out writing {}: {reason}", self.path.display())
    }
}

fn run_append_loop(file: &RotatingAuditFile, waiting: &Receiver<Append>) {
    while let Ok(Append { line, now, reply }) = waiting.recv() {
        // Without a receiver, the caller has given up.
        let _ = reply.send(file.append(&line, now));
    }
}

impl RotatingAuditFile {
    fn append(&self, line: &[u8], now: UnixMs) -> io::Result<()> {
        let mut file = open_for_append(&self.path)?;
        let mut length = file.metadata()?.len();
        if length > 0 && self.bytes_max < length + line.len() as u64 {
            match self.rename_full_file(now).and_then(|()| open_for_append(&self.path)) {
                Ok(new_file) => (file, length) = (new_file, 0),
                // The line is more important than the size of its file.
                Err(error) => tracing::warn!(%error, "full audit file not renamed, it grows"),
            }
        }
        let written = file.write_all(line).and_then(|()| file.sync_data());
        if written.is_err() {
            // A part of a line would spoil the next one.
            let _ = file.set_len(length);
        }
        written
    }

    /// Renames the full file, then removes the oldest full files beyond the limit.
    fn rename_full_file(&self, now: UnixMs) -> io::Result<()> {
        let name = |ms: u64| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{ms}"));
            PathBuf::from(name)
        };
        // Later than each other file, also if the clock was set back: the oldest files are removed.
        let newest = self.full_files()?.into_iter().map(|(time, _)| time).max();
        let time = newest.map_or(now.0, |newest| now.0.max(newest.saturating_add(1)));
        fs::rename(&self.path, name(time))?;
        if let Err(error) = self.remove_oldest_files() {
            tracing::warn!(%error, "full audit files not removed");
        }
        Ok(())
    }

    fn remove_oldest_files(&self) -> io::Result<()> {
        let mut full = self.full_files()?;
        full.sort();
        let excess = full.len().saturating_sub(self.full_files_max);
        full[..excess].iter().try_for_each(|(_, path)| fs::remove_file(path))
    }

    /// Full files with the times in their names.
    fn full_files(&self) -> io::Result<Vec<(u64, PathBuf)>> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let own_name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut full = Vec::new();
        for entry in fs::read_dir(folder)?.take(LISTED_FILES_MAX) {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let time = name.strip_prefix(&own_name).and_then(|rest| rest.strip_prefix('.'));
            if let Some(time) = time.and_then(|digits| digits.parse::<u64>().ok()) {
                full.push((time, entry.path()));
            }
        }
        Ok(full)
    }
}

fn open_for_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    files::open_regular_file(path, &mut options)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A full file is renamed, lines are never split, and only the oldest files beyond the limit are removed.
    #[test]
    fn audit_file_is_renamed_when_full_and_the_oldest_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(folder.path().join("audit.jsonl.bak"), "not ours").unwrap();
        let file = RotatingAuditFile { path: path.clone(), bytes_max: 10, full_files_max: 2 };
        let audit = AuditFileWriter::open(file.clone()).unwrap();
        for number in 0..8 {
            // The time stands still for two lines, as on a fast machine.
            audit.append(format!("line{number}\n").into_bytes(), UnixMs(1_000 + number / 2)).unwrap();
        }
        let mut full = file.full_files().unwrap();
        full.sort();
        let texts: Vec<String> = full.iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect();
        assert_eq!(texts, ["line5\n", "line6\n"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "line7\n");
        assert!(folder.path().join("audit.jsonl.bak").exists());
    }

    #[cfg(unix)]
    #[test]
    fn audit_file_that_is_a_fifo_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let error = AuditFileWriter::open(RotatingAuditFile { path, bytes_max: 10, full_files_max: 2 }).unwrap_err();
        assert!(error.to_string().contains("a FIFO"), "{error}");
    }
}
