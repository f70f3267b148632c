//! Verdicts on the state of a store. The state is read by the store's own code.

use crate::cli::doctor::finding::Finding;
use crate::store::postgres::diagnosis::{self as postgres, PostgresFacts};
use crate::store::sqlite::backup;
use crate::store::sqlite::diagnosis::SqliteFacts;
use crate::store::writer_version::STORE_FORMAT_VERSION;

/// Length of a write-ahead log at which a server is in trouble: it keeps it below 64 MiB and one batch.
const WAL_BYTES_WARNING: u64 = 256 << 20;

/// Age of a transaction from which rows cannot be removed for long, seconds.
const TRANSACTION_WARNING_S: i64 = 300;

/// Difference of two clocks that is worth a warning, milliseconds.
const CLOCK_DIFFERENCE_WARNING_MS: i64 = 1_000;

/// Checks of a SQLite file.
pub(super) fn check_sqlite(facts: &SqliteFacts) -> Vec<Finding> {
    let mut findings = vec![match facts.is_in_use {
        Some(true) => Finding::ok("store lock", "a running server has the file"),
        Some(false) => Finding::ok("store lock", "no server has the file"),
        None => Finding::skip("store lock", "not known on this system", "compare with your list of processes"),
    }];
    findings.push(if facts.quick_check == "ok" {
        Finding::ok("store integrity", "all pages are sound")
    } else {
        Finding::fail("store integrity", &*facts.quick_check, "restore a backup (docs/BACKUP.md)")
    });
    findings.push(match facts.journal_mode.as_str() {
        "wal" => Finding::ok("store journal", "write-ahead log"),
        other => Finding::warn(
            "store journal",
            format!("journal mode {other}"),
            "start a server once; it sets the mode. On a network disk it cannot: use a local disk",
        ),
    });
    if facts.wal_bytes > WAL_BYTES_WARNING {
        findings.push(Finding::warn(
            "store log",
            format!("the write-ahead log has {} MiB", facts.wal_bytes >> 20),
            "end other programs that read the file",
        ));
    }
    findings.extend(check_schema(
        facts.schema_version,
        facts.min_writer_version,
        backup::supported_schema_version(),
        "name another file: this one is not of fireteam",
    ));
    findings
}

/// Checks of a Postgres. `host_ms` is the host's clock at about the time of the facts.
pub(super) fn check_postgres(facts: &PostgresFacts, host_ms: i64) -> Vec<Finding> {
    let mut findings = vec![Finding::ok("store", format!("Postgres {} answers", facts.version / 10_000))];
    let mut expect =
        |check, is_good: bool, found: String, failure: fn(&'static str, String, &str) -> Finding, remedy: &str| {
            findings.push(if is_good { Finding::ok(check, found) } else { failure(check, found, remedy) });
        };
    let fail = |check, found: String, remedy: &str| Finding::fail(check, found, remedy);
    let warn = |check, found: String, remedy: &str| Finding::warn(check, found, remedy);
    expect("store version", 140_000 <= facts.version, facts.version.to_string(), fail, "use Postgres 14 or newer");
    expect(
        "store encoding",
        facts.encoding == "UTF8",
        facts.encoding.clone(),
        fail,
        "create the database with encoding 'UTF8'",
    );
    let is_durable = ["on", "remote_apply", "remote_write", "local"].contains(&facts.synchronous_commit.as_str());
    let found = format!("synchronous_commit = {}", facts.synchronous_commit);
    expect("store commits", is_durable, found, fail, "set synchronous_commit to on for this database or user");
    let found = format!("fsync = {}", on_off(facts.fsync));
    expect("store fsync", facts.fsync, found, fail, "set fsync to on: a crash of the machine can destroy the database");
    let found = format!("full_page_writes = {}", on_off(facts.full_page_writes));
    expect(
        "store pages",
        facts.full_page_writes,
        found,
        warn,
        "set full_page_writes to on, unless the disk writes pages as a whole",
    );
    let free = facts.connections_max - facts.connections;
    let found = format!("{} of {} connections are open", facts.connections, facts.connections_max);
    let remedy = format!("raise max_connections: each server uses {}", postgres::CONNECTIONS_PER_SERVER);
    expect("store connections", postgres::CONNECTIONS_PER_SERVER <= free, found, fail, &remedy);
    let found = format!("the oldest open transaction began {} s ago", facts.oldest_transaction_s);
    let is_short = facts.oldest_transaction_s < TRANSACTION_WARNING_S;
    expect(
        "store transactions",
        is_short,
        found,
        warn,
        "end it with pg_terminate_backend, if it is of another program",
    );
    let found = format!("{} sessions wait for a lock", facts.waiting_sessions);
    expect(
        "store locks",
        facts.waiting_sessions == 0,
        found,
        warn,
        "find the blocking session with pg_blocking_pids (docs/RUNBOOK.md)",
    );
    let found = format!("{} prepared transactions", facts.prepared_transactions);
    let remedy = "commit or roll back those in pg_prepared_xacts: they keep locks, also over a restart";
    expect("store prepared transactions", facts.prepared_transactions == 0, found, warn, remedy);
    let difference = facts.clock_ms - host_ms;
    let found = format!("the database's clock is {difference} ms ahead of this machine's");
    let remedy = "synchronize both clocks; servers use that of the database, logs and tokens this machine's";
    expect("store clock", difference.abs() < CLOCK_DIFFERENCE_WARNING_MS, found, warn, remedy);
    findings.extend(check_schema(
        facts.schema_version,
        facts.min_writer_version,
        postgres::supported_schema_version(),
        "name another database: this one is not of fireteam",
    ));
    findings
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

/// Schema of an existing store against what this program knows.
fn check_schema(found: Option<i64>, min_writer: Option<i64>, supported: i64, remedy: &str) -> Option<Finding> {
    const CHECK: &str = "store schema";
    let Some(found) = found else {
        return Some(Finding::warn(
            CHECK,
            "there is no schema; the first start creates it",
            format!("none for a new store; otherwise {remedy}"),
        ));
    };
    let min_writer = min_writer.unwrap_or(1);
    Some(if min_writer > STORE_FORMAT_VERSION {
        Finding::fail(
            CHECK,
            format!("the store requires format version {min_writer}, and this program has {STORE_FORMAT_VERSION}"),
            "start a newer server (docs/UPGRADING.md)",
        )
    } else if found > supported {
        Finding::warn(
            CHECK,
            format!("migration {found} of a newer version; this program knows {supported}"),
            "upgrade this server when the newer version stays",
        )
    } else if found < supported {
        Finding::warn(
            CHECK,
            format!("migration {found}; the next start migrates to {supported}"),
            "make a backup before (docs/BACKUP.md)",
        )
    } else {
        Finding::ok(CHECK, format!("migration {found}, the newest"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Verdict;

    fn verdict(findings: &[Finding], check: &str) -> Verdict {
        let found: Vec<Verdict> = findings.iter().filter(|it| it.check == check).map(|it| it.verdict).collect();
        assert_eq!(found.len(), 1, "{check}: {findings:?}");
        found[0]
    }

    fn sound_postgres() -> PostgresFacts {
        PostgresFacts {
            version: 150_018,
            encoding: "UTF8".into(),
            synchronous_commit: "on".into(),
            fsync: true,
            full_page_writes: true,
            connections_max: 97,
            connections: 20,
            clock_ms: 5_000,
            schema_version: Some(postgres::supported_schema_version()),
            min_writer_version: Some(STORE_FORMAT_VERSION),
            ..PostgresFacts::default()
        }
    }

    /// Name of a finding, its verdict after a change of sound facts, and the change.
    type ChangedFact<F> = (&'static str, Verdict, fn(&mut F));

    #[test]
    fn doctor_of_a_sound_postgres_is_ok() {
        let findings = check_postgres(&sound_postgres(), 4_500);
        assert!(findings.iter().all(|finding| finding.verdict == Verdict::Ok), "{findings:?}");
    }

    #[test]
    fn doctor_judges_each_setting_of_postgres() {
        let cases: [ChangedFact<PostgresFacts>; 14] = [
            ("store version", Verdict::Fail, |facts| facts.version = 130_014),
            ("store encoding", Verdict::Fail, |facts| facts.encoding = "SQL_ASCII".into()),
            ("store commits", Verdict::Fail, |facts| facts.synchronous_commit = "off".into()),
            ("store fsync", Verdict::Fail, |facts| facts.fsync = false),
            ("store pages", Verdict::Warn, |facts| facts.full_page_writes = false),
            ("store connections", Verdict::Fail, |facts| facts.connections = 90),
            ("store transactions", Verdict::Warn, |facts| facts.oldest_transaction_s = 301),
            ("store locks", Verdict::Warn, |facts| facts.waiting_sessions = 1),
            ("store prepared transactions", Verdict::Warn, |facts| facts.prepared_transactions = 1),
            ("store clock", Verdict::Warn, |facts| facts.clock_ms = 0),
            ("store schema", Verdict::Warn, |facts| facts.schema_version = None),
            ("store schema", Verdict::Warn, |facts| facts.schema_version = Some(1)),
            ("store schema", Verdict::Warn, |facts| facts.schema_version = Some(9_999)),
            ("store schema", Verdict::Fail, |facts| facts.min_writer_version = Some(9_999)),
        ];
        for (check, expected, change) in cases {
            let mut facts = sound_postgres();
            change(&mut facts);
            let findings = check_postgres(&facts, 4_500);
            assert_eq!(verdict(&findings, check), expected, "{findings:?}");
            let others = findings.iter().filter(|finding| finding.check != check);
            assert!(others.into_iter().all(|finding| finding.verdict == Verdict::Ok), "{findings:?}");
            assert!(findings.iter().all(|it| it.verdict == Verdict::Ok || !it.remedy.is_empty()), "{findings:?}");
        }
    }

    #[test]
    fn doctor_judges_a_sqlite_file() {
        let sound = SqliteFacts {
            schema_version: Some(backup::supported_schema_version()),
            min_writer_version: Some(1),
            journal_mode: "wal".into(),
            quick_check: "ok".into(),
            is_in_use: Some(false),
            wal_bytes: 0,
        };
        assert!(check_sqlite(&sound).iter().all(|finding| finding.verdict == Verdict::Ok));
        let cases: [ChangedFact<SqliteFacts>; 4] = [
            ("store integrity", Verdict::Fail, |facts| facts.quick_check = "page 3: bad".into()),
            ("store journal", Verdict::Warn, |facts| facts.journal_mode = "delete".into()),
            ("store log", Verdict::Warn, |facts| facts.wal_bytes = 300 << 20),
            ("store lock", Verdict::Skip, |facts| facts.is_in_use = None),
        ];
        for (check, expected, change) in cases {
            let mut facts = sound.clone();
            change(&mut facts);
            assert_eq!(verdict(&check_sqlite(&facts), check), expected);
        }
    }
}
