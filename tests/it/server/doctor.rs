//! `fireteam doctor`: a sound server has no failure, each fault has its line and remedy, and nothing is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sqlx::{Connection as _, Executor as _};

use crate::support::database::create_test_database;
use crate::support::server_process::{ServerProcess, fireteam_command};

const DUEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rulesets/ranked_duel.xml");
const LOCALITY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/dbip-tour.mmdb");

/// Verdicts of all checks, as `VERDICT found | remedy`. A check that occurs twice keeps its last line.
fn diagnose(folder: &Path, arguments: &[&str]) -> (Option<i32>, BTreeMap<String, String>) {
    let arguments = [&["doctor", "--format", "json", "--rulesets", "rules"], arguments].concat();
    let output = fireteam_command(folder, &arguments).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |finding: &serde_json::Value, key: &str| finding[key].as_str().expect("text").to_owned();
    let findings = findings.as_array().expect("an array").iter().map(|finding| {
        let line = format!("{} {} | {}", text(finding, "verdict"), text(finding, "found"), text(finding, "remedy"));
        assert!(text(finding, "verdict") == "OK" || !text(finding, "remedy").is_empty(), "{line}");
        (text(finding, "check"), line)
    });
    (output.status.code(), findings.collect())
}

/// Names and contents of all files.
fn content(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.map(|path| (path.display().to_string(), fs::read(&path).unwrap())).collect()
}

fn new_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("rules")).unwrap();
    fs::copy(DUEL, folder.path().join("rules/duel.xml")).unwrap();
    folder
}

/// Whether the line of a check has a verdict and a text.
fn assert_line(findings: &BTreeMap<String, String>, check: &str, verdict: &str, text: &str) {
    let line = findings.get(check).unwrap_or_else(|| panic!("no {check}: {findings:#?}"));
    assert!(line.starts_with(verdict) && line.contains(text), "{check}: {line}");
}

#[test]
fn doctor_of_a_sqlite_server_changes_nothing_and_names_each_fault() {
    let site = new_folder();
    let folder = site.path();
    let (code, before) = diagnose(folder, &[]);
    assert_eq!(code, Some(0), "{before:#?}");
    assert_line(&before, "store", "WARN", "fireteam.db does not exist");
    assert_line(&before, "locality file", "WARN", "--geoip-db");
    assert!(content(folder).is_empty(), "nothing is made: {:?}", content(folder).keys());

    let server = ServerProcess::start(folder, &["--rulesets", "rules"]);
    let (code, running) = diagnose(folder, &["--geoip-db", LOCALITY]);
    assert_eq!(code, Some(0), "{running:#?}");
    for check in ["configuration", "token keys", "match keys", "user key", "rulesets", "erasure log", "store integrity"]
    {
        assert_line(&running, check, "OK", "");
    }
    assert_line(&running, "store lock", "OK", "a running server has the file");
    assert_line(&running, "store schema", "OK", "the newest");
    assert_line(&running, "locality file", "", "days ago");
    server.terminate();
    assert_eq!(server.wait_for_exit().exit_code, Some(0));
    let files = content(folder);
    let (code, stopped) = diagnose(folder, &["--disk-free-warning-mib", "1048576"]);
    assert_eq!(code, Some(0), "{stopped:#?}");
    assert_line(&stopped, "store lock", "OK", "no server has the file");
    assert_line(&stopped, "disk", "WARN", "MiB free");
    assert!(files == content(folder), "{:?}", content(folder).keys());

    // One fault after another.
    let faults: [(&str, &[u8], &str, &str); 5] = [
        ("fireteam.token-key", b"secret", "token keys", "not one or two lines"),
        ("fireteam.erasures", b"something else\n", "erasure log", "not a line of an erasure log"),
        ("rules/duel.xml", b"<Ruleset", "rulesets", "duel.xml"),
        ("locality.mmdb", b"not a file of addresses", "locality file", "city edition"),
        (
            "fireteam.db",
            b"not a database, although it is longer than the header of one: a hundred bytes and a few more, at least.",
            "store",
            "damaged",
        ),
    ];
    for (name, bytes, check, text) in faults {
        let former = fs::read(folder.join(name)).ok();
        fs::write(folder.join(name), bytes).unwrap();
        let geoip: &[&str] = if check == "locality file" { &["--geoip-db", "locality.mmdb"] } else { &[] };
        let (code, findings) = diagnose(folder, geoip);
        assert_eq!(code, Some(1), "{check}: {findings:#?}");
        assert_line(&findings, check, "FAIL", text);
        if let Some(former) = former {
            fs::write(folder.join(name), former).unwrap();
        }
    }
    let (code, invalid) = diagnose(folder, &["--max-silos", "0", "--store", "memory:"]);
    assert_eq!(code, Some(1));
    assert_line(&invalid, "configuration", "FAIL", "max_silos");
    let (_, memory) = diagnose(folder, &["--store", "memory:"]);
    assert_line(&memory, "store", "WARN", "all data is lost");
    let (code, absent) = diagnose(folder, &["--store", "sqlite:no/such/a.db"]);
    assert_eq!(code, Some(1));
    assert_line(&absent, "store", "FAIL", "create the folder");
}

#[cfg(unix)]
#[test]
fn doctor_finds_an_exposed_key_file_and_an_old_locality_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = new_folder();
    let folder = site.path();
    ServerProcess::start(folder, &["--rulesets", "rules"]).kill();
    fs::set_permissions(folder.join("fireteam.user-key"), fs::Permissions::from_mode(0o644)).unwrap();
    let (code, findings) = diagnose(folder, &[]);
    assert_eq!(code, Some(1), "{findings:#?}");
    assert_line(&findings, "user key", "FAIL", "chmod 600");
    // The build time is a number in the metadata at the end of the file.
    let mut bytes = fs::read(LOCALITY).unwrap();
    let name = b"build_epoch";
    let at = bytes.windows(name.len()).rposition(|window| window == name).expect("metadata") + name.len();
    // Control bytes of an unsigned 64-bit number: extended type, length in the low bits of the first byte.
    let length = usize::from(bytes[at] & 0x1f);
    bytes[at + 2..at + 2 + length].fill(0);
    bytes[at + 1 + length] = 1;
    fs::write(folder.join("old.mmdb"), bytes).unwrap();
    let (_, findings) = diagnose(folder, &["--geoip-db", "old.mmdb"]);
    assert_line(&findings, "locality file", "WARN", "get the file of this month");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_of_a_postgres_finds_what_holds_it_up() {
    let Some(database) = create_test_database("doctor_of_a_postgres_finds_what_holds_it_up").await else { return };
    let site = new_folder();
    let folder = site.path();
    let keys =
        ["--token-key-file", "a.token-key", "--match-key-file", "a.match-key.pem", "--erasure-log-file", "a.erasures"];
    let arguments = |url| [&keys[..], &["--store", url]].concat();
    let (_, before) = diagnose(folder, &arguments(&database.url));
    assert_line(&before, "store schema", "WARN", "the first start creates it");
    assert_line(&before, "token keys", "WARN", "copy the file of the others");
    let server = ServerProcess::start(folder, &[&["--rulesets", "rules"][..], &arguments(&database.url)].concat());
    let (code, running) = diagnose(folder, &arguments(&database.url));
    // The test's cluster runs without fsync.
    assert_eq!(code, Some(1), "{running:#?}");
    assert_line(&running, "store fsync", "FAIL", "fsync = off");
    assert_line(&running, "store pages", "WARN", "full_page_writes = off");
    for check in
        ["store", "store version", "store commits", "store connections", "store clock", "store schema", "store locks"]
    {
        assert_line(&running, check, "OK", "");
    }
    // A session that waits for another's lock.
    let mut holder = database.connect().await;
    holder
        .execute("begin; select value from store_setting where name = 'min_writer_version' for update")
        .await
        .unwrap();
    let mut waiter = database.connect().await;
    let waiting = tokio::spawn(async move {
        let _ = waiter
            .execute("begin; update store_setting set value = value where name = 'min_writer_version'; rollback")
            .await;
    });
    let has_waiter = async || {
        let mut observer = database.connect().await;
        let count = "select count(*) from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0";
        let count: i64 = sqlx::query_scalar(count).fetch_one(&mut observer).await.unwrap();
        count == 1
    };
    crate::support::queue_server::wait_until("a session waits", has_waiter).await;
    let (_, blocked) = diagnose(folder, &arguments(&database.url));
    assert_line(&blocked, "store locks", "WARN", "1 sessions wait");
    holder.execute("rollback").await.unwrap();
    holder.close().await.unwrap();
    waiting.await.unwrap();
    drop(server);

    let (code, absent) = diagnose(folder, &arguments("postgres://127.0.0.1:1/fireteam"));
    assert_eq!(code, Some(1));
    assert_line(&absent, "store", "FAIL", "postgres at 127.0.0.1:1");
    let output = fireteam_command(folder, &["doctor", "--rulesets", "rules"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("OK    configuration: valid\n") && text.contains("\n      remedy: "), "{text}");
}
