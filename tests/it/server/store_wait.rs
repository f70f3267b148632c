//! Wait for the database at startup: until it accepts connections, for a limited time, and not where waiting cannot help.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::database::PostgresCluster;
use crate::support::server_process::{StderrLog, fireteam_command, run_until_exit};

/// Text of the log line of a failed attempt.
const RETRIED: &str = "database unreachable, retried";

/// A start that may wait. Killed on drop.
struct WaitingStart {
    child: Child,
    log: Arc<StderrLog>,
}

impl WaitingStart {
    fn spawn(folder: &Path, store: &str, wait_s: &str) -> Self {
        let arguments =
            [&["serve", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"][..], &FLAGS].concat();
        let mut command = fireteam_command(folder, &arguments);
        command.args(["--store", store, "--store-wait-s", wait_s]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let log = StderrLog::capture(child.stderr.take().expect("piped"));
        Self { child, log }
    }
}

impl Drop for WaitingStart {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const FLAGS: [&str; 6] =
    ["--rulesets", "bundled:", "--token-key-file", "a.token-key", "--match-key-file", "a.match-key.pem"];

fn run_to_the_end(folder: &Path, store: &str, wait_s: &str) -> (Option<i32>, String) {
    let exit = run_until_exit(folder, &[&FLAGS[..], &["--store", store, "--store-wait-s", wait_s]].concat());
    (exit.exit_code, exit.log)
}

/// A server starts before its database, which starts, and then recovers, and serves when the database accepts connections.
#[test]
fn store_wait_ends_when_the_database_accepts_connections() {
    let Some(cluster) = PostgresCluster::start("store_wait_ends_when_the_database_accepts_connections") else { return };
    let folder = tempfile::tempdir().unwrap();
    cluster.send_command("halt");
    // A standby without connections answers as a database in recovery does, until it is promoted.
    cluster.run_shell("touch data/standby.signal; echo hot_standby=off >> data/postgresql.conf");
    let start = WaitingStart::spawn(folder.path(), &cluster.url("postgres"), "600");
    let refused = start.log.wait_for_lines(RETRIED, 1);
    assert!(refused[0].contains(&cluster.folder.display().to_string()), "names the host: {refused:?}");
    cluster.send_command_only("start");
    assert_eq!(start.log.wait_for_lines("(57P03)", 1).len(), 1, "{}", start.log.text());
    assert!(!start.log.text().contains("server started"));
    cluster.run_shell("pg_ctl promote > promoted.log && rm promoted.log");
    assert_eq!(start.log.wait_for_lines("server started", 1).len(), 1, "{}", start.log.text());
}

/// SIGTERM ends the wait at once, before the grace period, and without an error.
#[test]
fn store_wait_ends_at_once_after_sigterm() {
    let folder = tempfile::tempdir().unwrap();
    let mut start = WaitingStart::spawn(folder.path(), "postgres://127.0.0.1:1/fireteam", "600");
    start.log.wait_for_lines(RETRIED, 1);
    let sent_at = Instant::now();
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {}", start.child.id())]).status().unwrap().success());
    assert_eq!(start.child.wait().unwrap().code(), Some(0), "{}", start.log.text());
    assert!(sent_at.elapsed() < Duration::from_secs(5), "{:?}", sent_at.elapsed());
}

/// The end of the wait names host, cause, the time waited and the setting.
#[test]
fn store_wait_that_is_over_names_host_and_cause() {
    let folder = tempfile::tempdir().unwrap();
    for (store, wait_s, parts) in [
        ("postgres://127.0.0.1:1/fireteam", "2", ["postgres at 127.0.0.1:1", "refused", "--store-wait-s"]),
        ("postgres://db.invalid/fireteam", "0", ["postgres at db.invalid:5432", "lookup", "--store-wait-s"]),
    ] {
        let (code, log) = run_to_the_end(folder.path(), store, wait_s);
        assert_eq!(code, Some(1), "{log}");
        let last = log.lines().last().unwrap();
        assert!(last.contains("server failed") && parts.iter().all(|part| last.contains(part)), "{log}");
        assert_eq!(log.contains(RETRIED), wait_s != "0", "{log}");
    }
}

/// An error that a later attempt cannot change ends the start at once.
#[test]
fn store_wait_is_not_for_a_wrong_password_or_a_missing_database() {
    let Some(cluster) = PostgresCluster::start("store_wait_is_not_for_a_wrong_password") else { return };
    let folder = tempfile::tempdir().unwrap();
    let (code, log) = run_to_the_end(folder.path(), &cluster.url("absent"), "600");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("(3D000)") && log.contains(&cluster.folder.display().to_string()), "{log}");
    assert!(!log.contains(RETRIED), "{log}");
    cluster.send_command("halt");
    cluster.run_shell("echo 'local all all scram-sha-256' > data/pg_hba.conf");
    cluster.send_command("start");
    let url = format!("{}&password=wrong-word", cluster.url("postgres"));
    let (code, log) = run_to_the_end(folder.path(), &url, "600");
    assert_eq!(code, Some(1), "{log}");
    assert!(log.contains("(28P01)") && !log.contains(RETRIED) && !log.contains("wrong-word"), "{log}");
}
