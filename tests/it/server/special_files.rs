//! Files that are no regular files: a FIFO, a device. They are refused by name at the start and at a reload, and never delay
//! the end of the process.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::generated_client;
use crate::support::server_process::{ServerProcess, fireteam_command, run_until_exit};

/// Time limit of a start that is refused and of a shutdown; the default grace period is 10 s.
const END_MAX: Duration = Duration::from_secs(20);

const DUEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rulesets/ranked_duel.xml");

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Folder with a subfolder `rules` that has one valid ruleset.
fn folder_with_rules() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("rules")).unwrap();
    fs::copy(DUEL, folder.path().join("rules/duel.xml")).unwrap();
    folder
}

/// A start with a FIFO or a device in the place of each file is refused with its path, in seconds.
#[test]
fn special_file_at_the_start_is_refused_by_name() {
    let folder = folder_with_rules();
    let path = |name: &str| folder.path().join(name);
    make_fifo(&path("fifo"));
    symlink("/dev/zero", path("zero")).unwrap();
    fs::create_dir(path("with-fifo")).unwrap();
    make_fifo(&path("with-fifo/pipe.xml"));
    fs::create_dir(path("with-device")).unwrap();
    symlink("/dev/zero", path("with-device/endless.xml")).unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["--rulesets", "with-fifo"], "with-fifo/pipe.xml"),
        (&["--rulesets", "with-device"], "with-device/endless.xml"),
        (&["--geoip-db", "fifo"], "fifo"),
        (&["--geoip-db", "zero"], "zero"),
        (&["--token-key-file", "fifo"], "fifo"),
        (&["--match-key-file", "fifo"], "fifo"),
        (&["--audit-log-file", "fifo"], "fifo"),
        (&["--auth-keys", "fifo", "--auth-issuer", "x"], "fifo"),
        (&["--tls-certificate", "fifo", "--tls-key", "fifo"], "fifo"),
        (&["--config", "fifo"], "fifo"),
    ];
    for (arguments, name) in cases {
        let ended = run_until_exit(folder.path(), &[&["--store", "memory:"], arguments].concat());
        assert!(matches!(ended.exit_code, Some(1 | 2)), "{arguments:?}: {}", ended.log);
        assert!(ended.log.contains(name) && ended.log.contains("not a regular file"), "{arguments:?}: {}", ended.log);
        assert!(ended.duration < END_MAX, "{arguments:?}: {:?}", ended.duration);
    }
    let check = fireteam_command(folder.path(), &["check", "with-fifo"]).output().unwrap();
    assert_eq!(check.status.code(), Some(1), "{check:?}");
}

/// A FIFO that appears in the rulesets folder rejects the reload, by event and by call, and the rulesets stay in use. SIGTERM
/// ends the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifo_in_the_rulesets_folder_rejects_the_reload() {
    let folder = folder_with_rules();
    let server = ServerProcess::start(folder.path(), &["--store", "memory:", "--rulesets", "rules"]);
    make_fifo(&folder.path().join("rules/pipe.xml"));
    let mut operator = server.operator_client().await;
    let report = operator.reload_rulesets(generated_client::ReloadRulesetsRequest {}).await.unwrap().into_inner();
    assert_eq!(report.problems.len(), 1, "{report:?}");
    let problem = &report.problems[0];
    assert!(problem.file_name.ends_with("pipe.xml") && problem.message.contains("a FIFO"), "{problem:?}");
    // Another change, which the watcher notices: the folder with the FIFO is read again.
    fs::copy(DUEL, folder.path().join("rules/duel2.xml")).unwrap();
    assert_eq!(server.log.wait_for_lines("pipe.xml", 2).len(), 2, "{}", server.log.text());
    let listed = operator.list_rulesets(generated_client::ListRulesetsRequest {}).await.unwrap().into_inner();
    assert!(listed.rulesets.iter().any(|ruleset| ruleset.file_name.ends_with("duel.xml")), "{listed:?}");
    server.terminate();
    let ended = server.wait_for_exit();
    assert_eq!(ended.exit_code, Some(0), "{}", ended.log);
    assert!(ended.duration < END_MAX, "{:?}", ended.duration);
}
