//! The binary refuses to start where it should: with one line that says why, and an exit code that says what kind.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::support::server_process::{StderrLog, ServerProcess, fireteam_command, run_until_exit};

/// Code 3 and one line with `expected` in it, soon.
fn assert_startup_refused(folder: &Path, expected: &[&str]) {
    let ended = run_until_exit(folder, &[]);
    assert_eq!(ended.exit_code, Some(3), "{}", ended.log);
    let serious: Vec<&str> = ended.log.lines().filter(|line| !line.contains(" INFO ")).collect();
    assert_eq!(serious.len(), 1, "{}", ended.log);
    expected.iter().for_each(|it| assert!(serious[0].contains(it), "{it}: {}", ended.log));
    println!("refused in {:?}: {}", ended.duration, serious[0]);
}

/// R17: the second server on a file goes at once and says why; the first does not notice, and when it is killed the file
/// is free.
#[tokio::test]
async fn startup_is_refused_while_another_server_uses_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = ServerProcess::start(folder.path(), &[]);
    assert_startup_refused(folder.path(), &["fireteam.db", "in use by another server"]);
    assert!(fireteam::server::is_serving(first.address, None).await.unwrap());
    first.kill();
    ServerProcess::start(folder.path(), &[]).kill();
}

/// R16: a file that is no database, and one with a page torn out of its middle.
#[test]
fn startup_with_a_damaged_file_is_refused_with_the_remedy() {
    let remedy = ["fireteam.db is damaged", "move it and its -wal file away", "restore a copy"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    fs::write(&file, "not a database at all, whatever its name says. ".repeat(200)).unwrap();
    assert_startup_refused(folder.path(), &remedy);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    let sound = ServerProcess::start(folder.path(), &[]);
    sound.terminate();
    assert_eq!(sound.wait_for_exit().exit_code, Some(0));
    let mut bytes = fs::read(&file).unwrap();
    // From the third page on: the first two alone would look like an empty, sound file.
    assert!(4 * 1024 < bytes.len(), "{} bytes", bytes.len());
    bytes[2 * 1024..].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    assert_startup_refused(folder.path(), &remedy);
}

const TLS_FLAGS: [&str; 4] = ["--tls-certificate", "c.pem", "--tls-key", "k.pem"];
const AUTH_FLAGS: [&str; 4] = ["--auth-keys", "a.pem", "--auth-issuer", "studio"];
const PLAINTEXT_FLAG: &str = "--insecure-allow-plaintext";
const ANONYMOUS_FLAG: &str = "--insecure-allow-anonymous";

/// What a line of refusal names that starts with two dashes.
fn flags_in(line: &str) -> Vec<&str> {
    let words = line.split_whitespace().map(|it| it.trim_matches(|c: char| !c.is_alphabetic() && c != '-'));
    words.filter(|it| it.starts_with("--")).collect()
}

/// SEC-15: loopback or public, with TLS or without, with identities or without, with no flag, with either: 24 cells for
/// each port. An unsafe one ends with code 2 and a line that names exactly the flags that would mend it; with those given,
/// it is safe.
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
                    let private = tls || flag == PLAINTEXT_FLAG;
                    let known = auth || port == "--listen" && flag == ANONYMOUS_FLAG;
                    let is_safe = !public || private && known;
                    let (code, said) = run(&line);
                    assert_eq!(code, Some(if is_safe { 0 } else { 2 }), "{line:?}: {said}");
                    cells += 1;
                    if is_safe {
                        continue;
                    }
                    unsafe_cells += 1;
                    assert_eq!(said.lines().count(), 1, "{line:?}: {said}");
                    assert!(
                        said.starts_with(&format!("fireteam: {key} = {address} can be reached from outside")),
                        "{said}"
                    );
                    let mut wanted: Vec<&str> = Vec::new();
                    wanted.extend(["--tls-certificate", "--tls-key", PLAINTEXT_FLAG].iter().filter(|_| !private));
                    wanted.extend(["--auth-keys", "--auth-issuer", "--tls-client-ca"].iter().filter(|_| !known));
                    wanted.extend([ANONYMOUS_FLAG].iter().filter(|_| !known && port == "--listen"));
                    assert_eq!(flags_in(&said), wanted, "{said}");
                    line.extend(TLS_FLAGS.iter().filter(|_| !private));
                    line.extend(AUTH_FLAGS.iter().filter(|_| !known));
                    assert_eq!(run(&line).0, Some(0), "{line:?}: what was named was not enough");
                }
            }
        }
    }
    assert_eq!((cells, unsafe_cells), (48, 15));
}

/// SEC-15: what is left open is said at the start and every minute after, for as long as it is.
#[test]
fn insecure_configuration_is_logged_at_startup() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["serve", "--listen", "0.0.0.0:0", "--operator-listen", "127.0.0.1:0"];
    let flags = [PLAINTEXT_FLAG, ANONYMOUS_FLAG, "--trusted-proxies", "127.0.0.0/8"];
    let mut server = fireteam_command(folder.path(), &[&ports[..], &flags].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let log = StderrLog::capture(server.stderr.take().unwrap());
    let said = [PLAINTEXT_FLAG, ANONYMOUS_FLAG].map(|flag| log.wait_for_lines(flag, 1));
    server.kill().unwrap();
    server.wait().unwrap();
    for lines in said {
        assert!(lines[0].contains("WARN") && lines[0].contains("insecure configuration accepted"), "{lines:?}");
    }
}

/// SEC-15: no secret is built in. Two servers that were told nothing have two keys, and of what is printed or logged about a
/// configuration nothing is secret: the password of a database and the key file's content are canaries.
#[test]
fn secrets_are_generated_per_server_and_never_printed() {
    let key = |folder: &Path| {
        ServerProcess::start(folder, &[]).kill();
        fs::read_to_string(folder.join("fireteam.token-key")).unwrap()
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = [key(folders[0].path()), key(folders[1].path())];
    assert_ne!(one, other);
    let server = ServerProcess::start(folders[0].path(), &["--log-level", "trace"]);
    let secret = one.trim();
    server.terminate();
    assert!(!server.wait_for_exit().log.contains(secret), "the key is in the log");
    let canary = "s3cret-canary";
    let store = format!("postgres://me:{canary}@127.0.0.1:1/none");
    let files = ["--token-key-file", "fireteam.token-key", "--match-key-file", "fireteam.match-key.pem"];
    let given = [&["--store", &store], &files[..]].concat();
    let printed = fireteam_command(folders[0].path(), &[&["--print-config"], &given[..]].concat()).output().unwrap();
    assert!(printed.status.success());
    let refused = run_until_exit(folders[0].path(), &[&given[..], &["--log-level", "trace"]].concat());
    for (where_, said) in [
        ("--print-config", String::from_utf8(printed.stdout).unwrap()),
        ("errors of --print-config", String::from_utf8(printed.stderr).unwrap()),
        ("the log of a store out of reach", refused.log),
    ] {
        assert!(!said.contains(canary) && !said.contains(secret), "{where_}: {said}");
    }
}

#[test]
fn printed_configuration_can_be_loaded_again() {
    let folder = tempfile::tempdir().unwrap();
    let given = ["--advertisement-ttl-s", "45", "--trusted-proxies", "10.0.0.0/8,fd00::/8", "--location-grid-degrees", "0.5"];
    let print = |arguments: &[&str]| {
        let output = fireteam_command(folder.path(), &[&["serve", "--print-config"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = print(&given);
    fs::write(folder.path().join("fireteam.toml"), &printed).unwrap();
    assert_eq!(print(&["--config", "fireteam.toml"]), printed);
    assert!(printed.contains("advertisement_ttl_s = 45") && printed.contains("location_grid_degrees = 0.5"), "{printed}");
}

/// `fireteam health` is 0 for a server that serves and 1 for one that has gone.
#[test]
fn health_command_exits_with_0_or_1() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &[]);
    let ask = |address: &str| fireteam_command(folder.path(), &["health", "--address", address]).output().unwrap().status.code();
    let address = server.address.to_string();
    assert_eq!(ask(&address), Some(0));
    assert_eq!(ask(&server.operator_address.to_string()), Some(0));
    server.kill();
    assert_eq!(ask(&address), Some(1));
}

/// The bundled rulesets are sound; a file with ten mistakes is shown as ten lines that editors jump to.
#[test]
fn check_command_reports_each_ruleset_problem() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let good = fireteam_command(root, &["check", "rulesets"]).output().unwrap();
    let said = String::from_utf8(good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 7, "{said}");

    let folder = root.join("tests/golden/rulesets");
    let bad = fireteam_command(&folder, &["check", "ten_mistakes.xml"]).output().unwrap();
    let said = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ten_mistakes.xml:")).count(), 10, "{said}");
    assert_eq!(fireteam_command(&folder, &["check", "nothing.xml"]).output().unwrap().status.code(), Some(1));
}
