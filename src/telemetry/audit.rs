//! What operators did, what was refused of what only they may, and what editing the rulesets folder changed: one JSON object a line, in the log and, where a file is
//! named, at its end.
//!
//! A line is on the disk before the operator hears that something is done. The file is opened for each line, so it may be
//! moved away at any time and a new one begins. Operators' names may stand there; players' never do.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::domain::time::UnixMs;

/// What these lines are marked with in the log.
pub const AUDIT_LOG_TARGET: &str = "fireteam::audit";

/// Tells the time.
pub type NowFn = Box<dyn Fn() -> UnixMs + Send + Sync>;

/// One thing that was done or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    /// In what role, or `folder` for whoever edits that; none: nobody has shown who they are.
    pub role: Option<&'static str>,
    /// Who, as whoever vouches for them calls them.
    pub subject: Option<String>,
    /// Who vouches.
    pub issuer: Option<String>,
    /// What was asked: a method of a fixed set, or `rulesets edited`.
    pub what: &'static str,
    /// Of what: a file, or how many problems in which files, or nothing.
    pub object: String,
    /// Rulesets that are others now.
    pub changes: Vec<AuditedChange>,
    /// How it ended: a gRPC code's name.
    pub outcome: &'static str,
    /// Names the request, here and at whoever sent it.
    pub request_id: String,
}

/// A set whose ruleset means something else than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AuditedChange {
    /// The set.
    pub set_id: u32,
    /// The hash of its ruleset before; none: it had none.
    pub before: Option<u32>,
    /// The hash now; none: it has none.
    pub after: Option<u32>,
}

/// A record as it is written.
#[derive(Serialize)]
struct AuditLine<'a> {
    time_unix_ms: u64,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

/// Writes records down.
pub struct AuditLog {
    file: Option<PathBuf>,
    now: NowFn,
    /// One line at a time.
    write_lock: Mutex<()>,
    request_count: AtomicU64,
}

impl AuditLog {
    /// A log that goes to `file` as well; it is made when it is not there, for its owner's eyes alone. Fails when it cannot
    /// be written.
    pub fn open(file: Option<&Path>, now: NowFn) -> io::Result<Self> {
        if let Some(file) = file {
            open_for_append(file).map_err(|why| io::Error::new(why.kind(), format!("{}: {why}", file.display())))?;
        }
        Ok(Self { file: file.map(Into::into), now, write_lock: Mutex::default(), request_count: AtomicU64::new(0) })
    }

    /// A name for a request that brought none: the time, and a count of this process.
    pub fn generate_request_id(&self) -> String {
        format!("{:x}-{}", (self.now)().0, self.request_count.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes one record down. An error says that the file does not have it; the log has it in any case. Blocks.
    pub fn append(&self, record: &AuditRecord) -> io::Result<()> {
        let mut line = serde_json::to_string(&AuditLine { time_unix_ms: (self.now)().0, record })?;
        tracing::info!(target: AUDIT_LOG_TARGET, "{line}");
        let Some(file) = &self.file else { return Ok(()) };
        line.push('\n');
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = open_for_append(file)?;
        file.write_all(line.as_bytes())?;
        file.sync_data()
    }
}

fn open_for_append(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("file", &self.file).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn audit_record(object: &str) -> AuditRecord {
        AuditRecord {
            what: "fireteam.v1.OperatorService/CheckRuleset",
            object: object.into(),
            outcome: "OK",
            ..AuditRecord::default()
        }
    }

    /// What is written stays, one line each whatever is in it, and a file that was moved away begins anew.
    #[test]
    fn audit_log_appends_one_json_line_per_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "before\n").unwrap();
        let log = AuditLog::open(Some(&path), Box::new(|| UnixMs(7))).unwrap();
        log.append(&audit_record("a\n{\"forged\":1}")).unwrap();
        let changes = vec![AuditedChange { set_id: 1, before: Some(2), after: None }];
        log.append(&AuditRecord { changes, subject: Some("ana".into()), ..audit_record("b") }).unwrap();
        let text = read();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "before"));
        let read_back: Vec<serde_json::Value> =
            lines[1..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&read_back[0]["object"], &read_back[0]["time_unix_ms"]), (&"a\n{\"forged\":1}".into(), &7.into()));
        assert_eq!((&read_back[1]["subject"], &read_back[1]["changes"][0]["before"]), (&"ana".into(), &2.into()));
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        log.append(&audit_record("c")).unwrap();
        assert_eq!(read().lines().count(), 1);
        assert_ne!(log.generate_request_id(), log.generate_request_id());
    }

    #[cfg(unix)]
    #[test]
    fn audit_log_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(Some(&path), Box::new(|| UnixMs(7))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(log.append(&audit_record("x")).is_err(), "what cannot be written is not passed over");
        assert!(AuditLog::open(Some(&path), Box::new(|| UnixMs(7))).is_err());
    }
}
