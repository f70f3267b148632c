//! The binary refuses to start where it should: with one line that says why, and an exit code that says what kind.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::process::{Log, Process, command, refused};

/// Code 3 and one line with `expected` in it, soon.
fn check_refused(folder: &Path, expected: &[&str]) {
    let ended = refused(folder, &[]);
    assert_eq!(ended.code, Some(3), "{}", ended.log);
    let serious: Vec<&str> = ended.log.lines().filter(|line| !line.contains(" INFO ")).collect();
    assert_eq!(serious.len(), 1, "{}", ended.log);
    expected.iter().for_each(|it| assert!(serious[0].contains(it), "{it}: {}", ended.log));
    println!("refused in {:?}: {}", ended.took, serious[0]);
}

/// R17: the second server on a file goes at once and says why; the first does not notice, and when it is killed the file
/// is free.
#[tokio::test]
async fn a_second_server_on_the_same_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = Process::start(folder.path(), &[]);
    check_refused(folder.path(), &["fireteam.db", "in use by another server"]);
    assert!(fireteam::server::is_serving(first.address, None).await.unwrap());
    first.kill();
    Process::start(folder.path(), &[]).kill();
}

/// R16: a file that is no database, and one with a page torn out of its middle.
#[test]
fn a_damaged_file_is_refused_with_what_to_do() {
    let remedy = ["fireteam.db is damaged", "move it and its -wal file away", "restore a copy"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    fs::write(&file, "not a database at all, whatever its name says. ".repeat(200)).unwrap();
    check_refused(folder.path(), &remedy);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fireteam.db");
    let sound = Process::start(folder.path(), &[]);
    sound.terminate();
    assert_eq!(sound.end().code, Some(0));
    let mut bytes = fs::read(&file).unwrap();
    // From the third page on: the first two alone would look like an empty, sound file.
    assert!(4 * 1024 < bytes.len(), "{} bytes", bytes.len());
    bytes[2 * 1024..].fill(0x5a);
    fs::write(&file, bytes).unwrap();
    check_refused(folder.path(), &remedy);
}

const TLS: [&str; 4] = ["--tls-certificate", "c.pem", "--tls-key", "k.pem"];
const AUTH: [&str; 4] = ["--auth-keys", "a.pem", "--auth-issuer", "studio"];
const PLAINTEXT: &str = "--insecure-allow-plaintext";
const ANONYMOUS: &str = "--insecure-allow-anonymous";

/// What a line of refusal names that starts with two dashes.
fn flags_in(line: &str) -> Vec<&str> {
    let words = line.split_whitespace().map(|it| it.trim_matches(|c: char| !c.is_alphabetic() && c != '-'));
    words.filter(|it| it.starts_with("--")).collect()
}

/// SEC-15: loopback or public, with TLS or without, with identities or without, with no flag, with either: 24 cells for
/// each port. An unsafe one ends with code 2 and a line that names exactly the flags that would mend it; with those given,
/// it is safe.
#[test]
fn unsafe_addresses_need_exactly_the_flags_that_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = command(folder.path(), arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let proxies = ["--trusted-proxies", "10.0.0.0/8"];
    let (mut cells, mut unsafe_cells) = (0, 0);
    for (port, key) in [("--listen", "listen"), ("--operator-listen", "operator_listen")] {
        for (address, public) in [("127.0.0.1:1", false), ("0.0.0.0:1", true)] {
            for (tls, auth) in [(false, false), (false, true), (true, false), (true, true)] {
                for flag in ["", PLAINTEXT, ANONYMOUS] {
                    let mut line = vec!["--print-config", port, address];
                    line.extend(proxies);
                    line.extend(TLS.iter().filter(|_| tls));
                    line.extend(AUTH.iter().filter(|_| auth));
                    line.extend([flag].iter().filter(|flag| !flag.is_empty()));
                    let private = tls || flag == PLAINTEXT;
                    let known = auth || port == "--listen" && flag == ANONYMOUS;
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
                    wanted.extend(["--tls-certificate", "--tls-key", PLAINTEXT].iter().filter(|_| !private));
                    wanted.extend(["--auth-keys", "--auth-issuer", "--tls-client-ca"].iter().filter(|_| !known));
                    wanted.extend([ANONYMOUS].iter().filter(|_| !known && port == "--listen"));
                    assert_eq!(flags_in(&said), wanted, "{said}");
                    line.extend(TLS.iter().filter(|_| !private));
                    line.extend(AUTH.iter().filter(|_| !known));
                    assert_eq!(run(&line).0, Some(0), "{line:?}: what was named was not enough");
                }
            }
        }
    }
    assert_eq!((cells, unsafe_cells), (48, 15));
}

/// SEC-15: what is left open is said at the start and every minute after, for as long as it is.
#[test]
fn what_is_left_open_is_said_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["serve", "--listen", "0.0.0.0:0", "--operator-listen", "127.0.0.1:0"];
    let flags = [PLAINTEXT, ANONYMOUS, "--trusted-proxies", "127.0.0.0/8"];
    let mut server = command(folder.path(), &[&ports[..], &flags].concat()).stderr(Stdio::piped()).spawn().unwrap();
    let log = Log::listen(server.stderr.take().unwrap());
    let said = [PLAINTEXT, ANONYMOUS].map(|flag| log.wait_for(flag, 1));
    server.kill().unwrap();
    server.wait().unwrap();
    for lines in said {
        assert!(lines[0].contains("WARN") && lines[0].contains("served without protection by"), "{lines:?}");
    }
}

/// SEC-15: no secret is built in. Two servers that were told nothing have two keys, and of what is printed or logged about a
/// configuration nothing is secret: the password of a database and the key file's content are canaries.
#[test]
fn secrets_are_made_here_and_shown_nowhere() {
    let key = |folder: &Path| {
        Process::start(folder, &[]).kill();
        fs::read_to_string(folder.join("fireteam.token-key")).unwrap()
    };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [one, other] = [key(folders[0].path()), key(folders[1].path())];
    assert_ne!(one, other);
    let server = Process::start(folders[0].path(), &["--log-level", "trace"]);
    let secret = one.trim();
    server.terminate();
    assert!(!server.end().log.contains(secret), "the key is in the log");
    let canary = "s3cret-canary";
    let store = format!("postgres://me:{canary}@127.0.0.1:1/none");
    let files = ["--token-key-file", "fireteam.token-key", "--match-key-file", "fireteam.match-key.pem"];
    let given = [&["--store", &store], &files[..]].concat();
    let printed = command(folders[0].path(), &[&["--print-config"], &given[..]].concat()).output().unwrap();
    assert!(printed.status.success());
    let refused = refused(folders[0].path(), &[&given[..], &["--log-level", "trace"]].concat());
    for (where_, said) in [
        ("--print-config", String::from_utf8(printed.stdout).unwrap()),
        ("errors of --print-config", String::from_utf8(printed.stderr).unwrap()),
        ("the log of a store out of reach", refused.log),
    ] {
        assert!(!said.contains(canary) && !said.contains(secret), "{where_}: {said}");
    }
}

#[test]
fn the_printed_configuration_starts_the_same_server() {
    let folder = tempfile::tempdir().unwrap();
    let given = ["--time-to-live-s", "45", "--trusted-proxies", "10.0.0.0/8,fd00::/8", "--cell-degrees", "0.5"];
    let print = |arguments: &[&str]| {
        let output = command(folder.path(), &[&["serve", "--print-config"], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let printed = print(&given);
    fs::write(folder.path().join("fireteam.toml"), &printed).unwrap();
    assert_eq!(print(&["--config", "fireteam.toml"]), printed);
    assert!(printed.contains("time_to_live_s = 45") && printed.contains("cell_degrees = 0.5"), "{printed}");
}

/// `fireteam health` is 0 for a server that serves and 1 for one that has gone.
#[test]
fn health_is_an_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let server = Process::start(folder.path(), &[]);
    let ask = |address: &str| command(folder.path(), &["health", "--address", address]).output().unwrap().status.code();
    let address = server.address.to_string();
    assert_eq!(ask(&address), Some(0));
    assert_eq!(ask(&server.operator_address.to_string()), Some(0));
    server.kill();
    assert_eq!(ask(&address), Some(1));
}

/// The bundled rulesets are sound; a file with ten mistakes is shown as ten lines that editors jump to.
#[test]
fn check_is_what_a_designer_runs_first() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let good = command(root, &["check", "rulesets"]).output().unwrap();
    let said = String::from_utf8(good.stdout).unwrap();
    assert_eq!(good.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 7, "{said}");

    let folder = root.join("tests/golden/rulesets");
    let bad = command(&folder, &["check", "ten_mistakes.xml"]).output().unwrap();
    let said = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ten_mistakes.xml:")).count(), 10, "{said}");
    assert_eq!(command(&folder, &["check", "nothing.xml"]).output().unwrap().status.code(), Some(1));
}
