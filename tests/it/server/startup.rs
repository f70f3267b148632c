//! Startup and its refusals: one log line with the reason, and an exit code.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use sqlx::Executor as _;

use crate::support::database::create_test_database;
use crate::support::server_process::{ServerProcess, StderrLog, fireteam_command, run_until_exit};

/// Asserts exit code 3 and one log line that contains `expected`.
fn assert_startup_refused(folder: &Path, expected: &[&str]) {
    let ended = run_until_exit(folder, &[]);
    assert_eq!(ended.exit_code, Some(3), "{}", ended.log);
    let problems: Vec<&str> = ended.log.lines().filter(|line| !line.contains(" INFO ")).collect();
    assert_eq!(problems.len(), 1, "{}", ended.log);
    expected.iter().for_each(|text| assert!(problems[0].contains(text), "{text}: {}", ended.log));
    println!("refused in {:?}: {}", ended.duration, problems[0]);
}

/// R17: a second server on the same file exits at once with the reason. The first one is not affected, and after its
/// exit the file can be opened.
#[tokio::test]
async fn startup_is_refused_while_another_server_uses_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = ServerProcess::start(folder.path(), &[]);
    assert_startup_refused(folder.path(), &["fireteam.db", "in use by another server"]);
    assert!(fireteam::server::run::check_remote_health(first.address, None).await.unwrap());
    first.kill();
    ServerProcess::start(folder.path(), &[]).kill();
}

/// R16: a file that is not a database, and a database with destroyed pages.
#[test]
fn startup_with_a_damaged_file_is_refused_with_the_remedy() {
    let remedy = ["fireteam.db is damaged", "move it and its -wal file away", "restore a copy"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    fs::write(&file, "not a database, in spite of its name. ".repeat(200)).unwrap();
    assert_startup_refused(folder.path(), &remedy);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    let valid = ServerProcess::start(folder.path(), &[]);
    valid.terminate();
    assert_eq!(valid.wait_for_exit().exit_code, Some(0));
    let mut bytes = fs::read(&file).unwrap();
    // From the third page on: with the first two destroyed, the file would look empty.
    assert!(4 * 1024 < bytes.len(), "{} bytes", bytes.len());
    bytes[2 * 1024..].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    assert_startup_refused(folder.path(), &remedy);
}

const TLS_FLAGS: [&str; 4] = ["--tls-certificate", "c.pem", "--tls-key", "k.pem"];
const AUTH_FLAGS: [&str; 4] = ["--auth-keys", "a.pem", "--auth-issuer", "studio"];
const PLAINTEXT_FLAG: &str = "--insecure-allow-plaintext";
const ANONYMOUS_FLAG: &str = "--insecure-allow-anonymous";

/// Words of an error line that start with two dashes.
fn flags_in(line: &str) -> Vec<&str> {
    let words = line.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphabetic() && c != '-'));
    words.filter(|word| word.starts_with("--")).collect()
}

/// SEC-15: loopback or public, with or without TLS, with or without authentication, with no flag or either: 24 cases
/// per port. An unsafe case exits with code 2 and a line that names exactly the flags that make it safe.
#[test]
fn unsafe_address_error_names_exactly_the_required_flags() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = fireteam_command(folder.path(), arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let proxies = ["--trusted-proxies", "10.0.0.0/8"];
    let (mut cells, mut unsafe_cells) = (0, 0);
    for (port, key) in [("--listen", "listen"), ("--operator-listen", "operator_listen")] {
        for (address, public) in [("127.0.0.1:1", false), ("0.0.0.0:1", true)] {
            for (tls, auth) in [(false, false), (false, true), (true, false), (true, true)] {
                for flag in ["", PLAINTEXT_FLAG, ANONYMOUS_FLAG] {
                    let mut line = vec!["--print-config", port, address];
                    line.extend(proxies);
                    line.extend(TLS_FLAGS.iter().filter(|_| tls));
                    line.extend(AUTH_FLAGS.iter().filter(|_| auth));
                    line.extend([flag].iter().filter(|flag| !flag.is_empty()));
                    let is_encrypted = tls || flag == PLAINTEXT_FLAG;
                    let is_authenticated = auth || port == "--listen" && flag == ANONYMOUS_FLAG;
                    let is_safe = !public || is_encrypted && is_authenticated;
                    let (code, output) = run(&line);
                    assert_eq!(code, Some(if is_safe { 0 } else { 2 }), "{line:?}: {output}");
                    cells += 1;
                    if is_safe {
                        continue;
                    }
                    unsafe_cells += 1;
                    assert_eq!(output.lines().count(), 1, "{line:?}: {output}");
                    assert!(
                        output.starts_with(&format!("fireteam: {key} = {address} can be reached from outside")),
                        "{output}"
                    );
                    let mut expected_flags: Vec<&str> = Vec::new();
                    expected_flags
                        .extend(["--tls-certificate", "--tls-key", PLAINTEXT_FLAG].iter().filter(|_| !is_encrypted));
                    expected_flags.extend(
                        ["--auth-keys", "--auth-issuer", "--tls-client-ca"].iter().filter(|_| !is_authenticated),
                    );
                    expected_flags.extend([ANONYMOUS_FLAG].iter().filter(|_| !is_authenticated && port == "--listen"));
                    assert_eq!(flags_in(&output), expected_flags, "{output}");
                    line.extend(TLS_FLAGS.iter().filter(|_| !is_encrypted));
                    line.extend(AUTH_FLAGS.iter().filter(|_| !is_authenticated));
                    assert_eq!(run(&line).0, Some(0), "{line:?}: the named flags were not enough");
                }
            }
        }
    }
    assert_eq!((cells, unsafe_cells), (48, 15));
}

/// SEC-15: an insecure configuration is logged at startup and every minute.
#[test]
fn insecure_configuration_is_logged_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["serve", "--listen", "0.0.0.0:0", "--operator-listen", "127.0.0.1:0"];
    let flags = [PLAINTEXT_FLAG, ANONYMOUS_FLAG, "--trusted-proxies", "127.0.0.0/8"];
    let mut server =
        fireteam_command(folder.path(), &[&ports[..], &flags].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let log = StderrLog::capture(server.stderr.take().unwrap());
    let output = [PLAINTEXT_FLAG, ANONYMOUS_FLAG].map(|flag| log.wait_for_lines(flag, 1));
    server.kill().unwrap();
    server.wait().unwrap();
    for lines in output {
        assert!(lines[0].contains("WARN") && lines[0].contains("insecure configuration accepted"), "{lines:?}");
    }
}

/// SEC-15: no secret is built in. Two servers with default settings have different keys. Printed and logged
/// configurations contain no secret: a database password and the key file's content are canaries.
#[test]
fn secrets_are_generated_per_server_and_never_printed() {
    let key = |folder: &Path| {
        ServerProcess::start(folder, &[]).kill();
        fs::read_to_string(folder.join("fireteam.token-key")).unwrap()
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [first, second] = [key(folders[0].path()), key(folders[1].path())];
    assert_ne!(first, second);
    let server = ServerProcess::start(folders[0].path(), &["--log-level", "trace"]);
    let secret = first.trim();
    server.terminate();
    assert!(!server.wait_for_exit().log.contains(secret), "the key is in the log");
    let canary = "s3cret-canary";
    let store = format!("postgres://me:{canary}@127.0.0.1:1/none");
    let files = ["--token-key-file", "fireteam.token-key", "--match-key-file", "fireteam.match-key.pem"];
    let given = [&["--store", &store], &files[..]].concat();
    let printed = fireteam_command(folders[0].path(), &[&["--print-config"], &given[..]].concat()).output().unwrap();
    assert!(printed.status.success());
    let refused = run_until_exit(folders[0].path(), &[&given[..], &["--log-level", "trace"]].concat());
    for (source, output) in [
        ("--print-config", String::from_utf8(printed.stdout).unwrap()),
        ("errors of --print-config", String::from_utf8(printed.stderr).unwrap()),
        ("the log of a store out of reach", refused.log),
    ] {
        assert!(!output.contains(canary) && !output.contains(secret), "{source}: {output}");
    }
}

#[test]
fn printed_configuration_can_be_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let given =
        ["--advertisement-ttl-s", "45", "--trusted-proxies", "10.0.0.0/8,fd00::/8", "--location-grid-degrees", "0.5"];
    let print = |arguments: &[&str]| {
        let output =
            fireteam_command(folder.path(), &[&["serve", "--print-config"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = print(&given);
    fs::write(folder.path().join("fireteam.toml"), &printed).unwrap();
    assert_eq!(print(&["--config", "fireteam.toml"]), printed);
    assert!(
        printed.contains("advertisement_ttl_s = 45") && printed.contains("location_grid_degrees = 0.5"),
        "{printed}"
    );
}

/// `fireteam health` exits with 0 for a serving server and with 1 after it has stopped.
#[test]
fn health_command_exits_with_0_or_1() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &[]);
    let health = |address: &str| {
        fireteam_command(folder.path(), &["health", "--address", address]).output().unwrap().status.code()
    };
    let address = server.address.to_string();
    assert_eq!(health(&address), Some(0));
    assert_eq!(health(&server.operator_address.to_string()), Some(0));
    server.kill();
    assert_eq!(health(&address), Some(1));
}

/// The bundled rulesets are valid; a file with ten mistakes gives ten lines that editors can jump to.
#[test]
fn check_command_reports_each_ruleset_problem() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let good = fireteam_command(root, &["check", "rulesets"]).output().unwrap();
    let output = String::from_utf8(good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(0), "{output}");
    assert_eq!(output.lines().filter(|line| line.starts_with("ok ")).count(), 7, "{output}");

    let folder = root.join("tests/golden/rulesets");
    let bad = fireteam_command(&folder, &["check", "ten_mistakes.xml"]).output().unwrap();
    let output = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1), "{output}");
    assert_eq!(output.lines().filter(|line| line.starts_with("ten_mistakes.xml:")).count(), 10, "{output}");
    assert_eq!(fireteam_command(&folder, &["check", "nothing.xml"]).output().unwrap().status.code(), Some(1));
}

/// Postgres ends the transaction of a server that hangs, here after 4 seconds; until then its locks make every call of
/// a starting server fail after a quarter of a second. The server waits and starts.
#[tokio::test]
async fn startup_waits_for_the_locks_of_a_server_that_hangs_on_postgres() {
    let test = "startup_waits_for_the_locks_of_a_server_that_hangs_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let keys = ["--token-key-file", "token-key", "--match-key-file", "match-key.pem"];
    let arguments = [&["--store", &database.url], &keys[..]].concat();
    let first = ServerProcess::start(folder.path(), &arguments);
    first.terminate();
    assert_eq!(first.wait_for_exit().exit_code, Some(0));
    for (table, action) in [("ruleset_copy", "report rulesets"), ("server_alive", "report outages")] {
        let mut hanging = database.connect().await;
        hanging.execute("set idle_in_transaction_session_timeout = '4s'; begin").await.unwrap();
        let lock = format!("lock table {table} in share row exclusive mode");
        hanging.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
        let second = ServerProcess::start(folder.path(), &arguments);
        let warning = "store is unavailable at startup, retrying action=\"ACTION\"".replace("ACTION", action);
        let log = second.log.text();
        assert_eq!(log.matches(&warning).count(), 1, "{log}");
        second.terminate();
        assert_eq!(second.wait_for_exit().exit_code, Some(0));
    }
}
