//! Audit log: operators' actions, rejected operator calls and changes to the rulesets folder, one JSON object per line.
//!
//! Records go to the log and, if configured, to files. A record is on disk before the operator receives the answer. Rejected
//! calls are sampled and have a file of their own, so that callers without the role can neither fill the disk nor displace
//! the records of operators. The files may contain operators' names, never players'.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::domain::time::UnixMs;
use crate::telemetry::audit_file::{AuditFileWriter, RotatingAuditFile};
use crate::telemetry::event_sampler::{EventSampler, Sampled};

/// Log target of audit records.
pub const AUDIT_LOG_TARGET: &str = "fireteam::audit";

/// Action in the record of rejected calls that were only counted.
pub const COUNTED_REJECTIONS_ACTION: &str = "rejected calls";

/// Time in which one rejected call of each kind is recorded; the others are counted.
const REJECTION_WINDOW_MS: u64 = 60_000;

/// Full files of rejected calls that are kept.
const FULL_REJECTION_FILES_MAX: usize = 4;

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
    /// Method name of an operator call, `rulesets edited`, or `COUNTED_REJECTIONS_ACTION`.
    pub action: &'static str,
    /// Target of the action: a file, or the problems per file; may be empty.
    pub target: String,
    /// Rulesets that the action changed.
    pub ruleset_changes: Vec<AuditedRulesetChange>,
    /// Result: the name of a gRPC code.
    pub outcome: &'static str,
    /// Number of calls, in a record of calls that were only counted.
    #[serde(rename = "count", skip_serializing_if = "Option::is_none")]
    pub counted_calls: Option<u64>,
    /// Request id, for correlation with the caller's log.
    pub request_id: String,
}

/// Change of one set's ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AuditedRulesetChange {
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

/// Kind of a rejected call: the caller's role and the outcome.
type RejectionKind = (Option<&'static str>, &'static str);

/// Files of the audit log and their limits.
#[derive(Clone, Debug)]
pub struct AuditFileSettings {
    /// File of operators' actions. That of rejected calls has `.rejected` in its name.
    pub file: PathBuf,
    /// Size at which a file is renamed, bytes.
    pub bytes_max: u64,
    /// Renamed files with operators' actions that are kept.
    pub full_files_max: usize,
}

/// Files of operators' actions and of rejected calls.
#[derive(Debug)]
struct AuditFiles {
    actions: AuditFileWriter,
    rejections: AuditFileWriter,
}

/// Audit log, to the log and to files.
pub struct AuditLog {
    files: Option<AuditFiles>,
    now: NowFn,
    rejections: EventSampler<RejectionKind>,
    generated_id_count: AtomicU64,
}

impl AuditLog {
    /// Opens the audit log; with `settings` also creates its files if absent, readable by their owner only.
    ///
    /// Fails if a file cannot be written.
    pub fn open(settings: Option<&AuditFileSettings>, now: NowFn) -> io::Result<Self> {
        let files = settings.map(AuditFiles::open).transpose()?;
        let rejections = EventSampler::new(REJECTION_WINDOW_MS, 1);
        Ok(Self { files, now, rejections, generated_id_count: AtomicU64::new(0) })
    }

    /// Generates an id for a request without one: the time and a counter of this process.
    pub fn next_request_id(&self) -> String {
        format!("{:x}-{}", (self.now)().0, self.generated_id_count.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes one record. On error the file may not contain the record; the log contains it in any case. Blocks until a
    /// deadline.
    pub fn append(&self, record: &AuditRecord) -> io::Result<()> {
        self.write(record, self.files.as_ref().map(|files| &files.actions))
    }

    /// Whether the record of a rejected call is to be written with `append_rejection`. Otherwise the call is only counted.
    pub fn sample_rejection(&self, role: Option<&'static str>, outcome: &'static str) -> Sampled {
        self.rejections.sample((role, outcome), (self.now)().0)
    }

    /// Writes the record of a rejected call, after the number of those that were only counted before. Blocks until a
    /// deadline.
    pub fn append_rejection(&self, record: &AuditRecord, counted: u64) -> io::Result<()> {
        self.append_counted((record.role, record.outcome), counted)?;
        self.write(record, self.files.as_ref().map(|files| &files.rejections))
    }

    /// Writes the numbers of rejected calls that were only counted in windows that have ended; with `all` also in the
    /// current ones. Blocks until a deadline.
    pub fn append_counted_rejections(&self, all: bool) -> io::Result<()> {
        let now_ms = (self.now)().0;
        let counted = if all { self.rejections.take_all_counts() } else { self.rejections.take_ended_counts(now_ms) };
        // A number that could not be written to the file is in the log.
        let results: Vec<io::Result<()>> =
            counted.into_iter().map(|(kind, count)| self.append_counted(kind, count)).collect();
        results.into_iter().collect()
    }

    fn append_counted(&self, (role, outcome): RejectionKind, count: u64) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let request_id = self.next_request_id();
        let record = AuditRecord {
            role,
            action: COUNTED_REJECTIONS_ACTION,
            outcome,
            counted_calls: Some(count),
            request_id,
            ..AuditRecord::default()
        };
        self.write(&record, self.files.as_ref().map(|files| &files.rejections))
    }

    fn write(&self, record: &AuditRecord, file: Option<&AuditFileWriter>) -> io::Result<()> {
        let now = (self.now)();
        let mut line = serde_json::to_string(&AuditLine { time_unix_ms: now.0, record })?;
        tracing::info!(target: AUDIT_LOG_TARGET, "{line}");
        let Some(file) = file else { return Ok(()) };
        line.push('\n');
        file.append(line.into_bytes(), now)
    }
}

impl AuditFiles {
    fn open(settings: &AuditFileSettings) -> io::Result<Self> {
        let open = |path: PathBuf, full_files_max| {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            let bytes_max = settings.bytes_max;
            AuditFileWriter::open(RotatingAuditFile { path: path.clone(), bytes_max, full_files_max }).map_err(named)
        };
        Ok(Self {
            actions: open(settings.file.clone(), settings.full_files_max)?,
            rejections: open(rejections_path(&settings.file), FULL_REJECTION_FILES_MAX)?,
        })
    }
}

/// Path of the file of rejected calls: `audit.rejected.jsonl` beside `audit.jsonl`.
pub fn rejections_path(file: &Path) -> PathBuf {
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(".rejected");
    if let Some(extension) = file.extension() {
        name.push(".");
        name.push(extension);
    }
    file.with_file_name(name)
}

impl std::fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AuditLog").field("files", &self.files).finish_non_exhaustive()
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

    fn settings(file: &Path) -> AuditFileSettings {
        AuditFileSettings { file: file.to_owned(), bytes_max: 1 << 20, full_files_max: 3 }
    }

    /// Each record is one line, for any content. After the file is moved away, a new file is created.
    #[test]
    fn audit_log_appends_one_json_line_per_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let read = || std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, "before\n").unwrap();
        let log = AuditLog::open(Some(&settings(&path)), Box::new(|| UnixMs(7))).unwrap();
        log.append(&audit_record("a\n{\"forged\":1}")).unwrap();
        let changes = vec![AuditedRulesetChange { set_id: 1, before: Some(2), after: None }];
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
        let log = AuditLog::open(Some(&settings(&path)), Box::new(|| UnixMs(7))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(log.append(&audit_record("x")).is_err(), "a failed write is an error");
        assert!(AuditLog::open(Some(&settings(&path)), Box::new(|| UnixMs(7))).is_err());
    }

    /// SEC-19: of many rejected calls, one of each role and outcome is written, with the number of the others; none of
    /// them is in the file of operators' actions.
    #[test]
    fn audit_log_samples_rejected_calls_and_tells_their_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let log = AuditLog::open(Some(&settings(&path)), Box::new(|| UnixMs(7))).unwrap();
        for _ in 0..1_000 {
            for role in [None, Some("client")] {
                let record = AuditRecord { role, outcome: "PERMISSION_DENIED", ..audit_record("x") };
                if let Sampled::Write { counted } = log.sample_rejection(role, record.outcome) {
                    log.append_rejection(&record, counted).unwrap();
                }
            }
        }
        log.append(&audit_record("of an operator")).unwrap();
        log.append_counted_rejections(false).unwrap();
        let rejected = folder.path().join("audit.rejected.jsonl");
        assert_eq!(std::fs::read_to_string(&rejected).unwrap().lines().count(), 2);
        log.append_counted_rejections(true).unwrap();
        log.append_counted_rejections(true).unwrap();
        let text = std::fs::read_to_string(&rejected).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let counts: Vec<u64> = lines.iter().map(|line| line["count"].as_u64().unwrap_or(1)).collect();
        assert_eq!(counts, [1, 1, 999, 999], "{text}");
        assert_eq!((&lines[2]["role"], &lines[3]["role"]), (&serde_json::Value::Null, &"client".into()));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
    }

    #[test]
    fn audit_file_of_rejected_calls_is_beside_the_other() {
        for (file, expected) in [("a/audit.jsonl", "a/audit.rejected.jsonl"), ("audit", "audit.rejected")] {
            assert_eq!(rejections_path(Path::new(file)), Path::new(expected));
        }
    }
}
