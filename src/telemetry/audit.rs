//! Audit log: operators' actions, rejected operator calls and changes to the rulesets folder, one JSON object per line.
//!
//! Records go to the log and, if configured, to the end of a file. A record is on disk before the operator receives the
//! answer. The file is opened for each record, so it may be moved away at any time. It may contain operators' names,
//! never players'.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::domain::time::UnixMs;

/// Log target of audit records.
pub const AUDIT_LOG_TARGET: &str = "fireteam::audit";

/// Callback that returns the current time.
pub type NowFn = Box<dyn Fn() -> UnixMs + Send + Sync>;

/// Audit record: one action that was done or rejected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    /// Role of the caller; `folder` for an edit of the rulesets folder; `None` for an unauthenticated caller.
    pub role: Option<&'static str>,
    /// Subject of the caller's token or certificate.
    pub subject: Option<String>,
    /// Issuer of the token; `tls` for a certificate.
    pub issuer: Option<String>,
    /// Method name of an operator call, or `rulesets edited`.
    pub action: &'static str,
    /// Target of the action: a file, or the problems per file; may be empty.
    pub target: String,
    /// Rulesets that the action changed.
    pub ruleset_changes: Vec<AuditedChange>,
    /// Result: the name of a gRPC code.
    pub outcome: &'static str,
    /// Request id, for correlation with the caller's log.
    pub request_id: String,
}

/// Change of one set's ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AuditedChange {
    /// Matchmaking set id.
    pub set_id: u32,
    /// Ruleset hash before; `None` if the set had no ruleset.
    pub before: Option<u32>,
    /// Ruleset hash after; `None` if the set has no ruleset now.
    pub after: Option<u32>,
}

/// One line of the audit log: a record with its time.
#[derive(Serialize)]
struct AuditLine<'a> {
    time_unix_ms: u64,
    #[serde(flatten)]
    record: &'a AuditRecord,
}

/// Audit log, to the log and to a file.
pub struct AuditLog {
    file: Option<PathBuf>,
    now: NowFn,
    /// Serializes writes: one line at a time.
    write_lock: Mutex<()>,
    request_count: AtomicU64,
}

impl AuditLog {
    /// Opens the audit log; with `file` also creates that file if absent, readable by its owner only.
    ///
    /// Fails if the file cannot be written.
    pub fn open(file: Option<&Path>, now: NowFn) -> io::Result<Self> {
        if let Some(file) = file {
            open_for_append(file)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))?;
        }
        Ok(Self { file: file.map(Into::into), now, write_lock: Mutex::default(), request_count: AtomicU64::new(0) })
    }

    /// Generates an id for a request without one: the time and a counter of this process.
    pub fn next_request_id(&self) -> String {
        format!("{:x}-{}", (self.now)().0, self.request_count.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes one record. On error the file does not contain the record; the log contains it in any case. Blocks.
    pub fn append(&self, record: &AuditRecord) -> io::Result<()> {
        let mut line = serde_json::to_string(&AuditLine { time_unix_ms: (self.now)().0, record })?;
        tracing::info!(target: AUDIT_LOG_TARGET, "{line}");
        let Some(file) = &self.file else { return Ok(()) };
        line.push('\n');
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn audit_record(target: &str) -> AuditRecord {
        AuditRecord {
            action: "fireteam.v1.OperatorService/CheckRuleset",
            target: target.into(),
            outcome: "OK",
            ..AuditRecord::default()
        }
    }

    /// Each record is one line, for any content. After the file is moved away, a new file is created.
    #[test]
    fn audit_log_appends_one_json_line_per_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "before\n").unwrap();
        let log = AuditLog::open(Some(&path), Box::new(|| UnixMs(7))).unwrap();
        log.append(&audit_record("a\n{\"forged\":1}")).unwrap();
        let changes = vec![AuditedChange { set_id: 1, before: Some(2), after: None }];
        log.append(&AuditRecord { ruleset_changes: changes, subject: Some("ana".into()), ..audit_record("b") })
            .unwrap();
        let text = read();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (3, "before"));
        let read_back: Vec<serde_json::Value> =
            lines[1..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&read_back[0]["target"], &read_back[0]["time_unix_ms"]), (&"a\n{\"forged\":1}".into(), &7.into()));
        assert_eq!(
            (&read_back[1]["subject"], &read_back[1]["ruleset_changes"][0]["before"]),
            (&"ana".into(), &2.into())
        );
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        log.append(&audit_record("c")).unwrap();
        assert_eq!(read().lines().count(), 1);
        assert_ne!(log.next_request_id(), log.next_request_id());
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
        assert!(log.append(&audit_record("x")).is_err(), "a failed write is an error");
        assert!(AuditLog::open(Some(&path), Box::new(|| UnixMs(7))).is_err());
    }
}
