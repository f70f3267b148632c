//! The binary refuses to start where it should: with one line that says why, and an exit code that says what kind.

use std::fs;
use std::path::Path;

use crate::process::{Process, command, refused};

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

/// SEC-15: where others can reach a port, both flags must say that this is meant; each port that is exposed is named with
/// exactly the flags that are missing. 3 x 3 x 4 cells; nothing is bound in any.
#[test]
fn unsafe_addresses_need_exactly_the_flags_that_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let addresses = [("127.0.0.1:1", true), ("[::ffff:127.0.0.1]:1", true), ("0.0.0.0:1", false)];
    let operators = [("[::1]:2", true), ("192.0.2.1:2", false), ("[::]:2", false)];
    let flags = ["--insecure-allow-plaintext", "--insecure-allow-anonymous"];
    let mut unsafe_cells = 0;
    for (listen, listen_is_safe) in addresses {
        for (operator_listen, operator_is_safe) in operators {
            for given in [&flags[..0], &flags[..1], &flags[1..], &flags[..]] {
                let ports = ["--print-config", "--listen", listen, "--operator-listen", operator_listen];
                let output = command(folder.path(), &[&ports[..], given].concat()).output().unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                let missing: Vec<&str> = flags.into_iter().filter(|flag| !given.contains(flag)).collect();
                let exposed =
                    [("listen", listen, listen_is_safe), ("operator_listen", operator_listen, operator_is_safe)];
                let exposed: Vec<_> = exposed.iter().filter(|(.., safe)| !safe && !missing.is_empty()).collect();
                assert_eq!(
                    output.status.code(),
                    Some(if exposed.is_empty() { 0 } else { 2 }),
                    "{ports:?} {given:?}: {said}"
                );
                assert_eq!(said.lines().count(), exposed.len(), "{ports:?} {given:?}: {said}");
                for ((key, address, _), line) in exposed.iter().zip(said.lines()) {
                    unsafe_cells += 1;
                    assert!(
                        line.starts_with(&format!("fireteam: {key} = {address} can be reached from outside")),
                        "{line}"
                    );
                    let named: Vec<&str> = line
                        .split_whitespace()
                        .map(|it| it.trim_matches(|c: char| !c.is_alphabetic() && c != '-'))
                        .filter(|it| it.starts_with("--"))
                        .collect();
                    assert_eq!(named, missing, "{line}");
                }
            }
        }
    }
    assert_eq!(unsafe_cells, 27, "3 exposed ways with either port, in 3 ways of too few flags");
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
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 3, "{said}");

    let folder = root.join("tests/golden/rulesets");
    let bad = command(&folder, &["check", "ten_mistakes.xml"]).output().unwrap();
    let said = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("ten_mistakes.xml:")).count(), 10, "{said}");
    assert_eq!(command(&folder, &["check", "nothing.xml"]).output().unwrap().status.code(), Some(1));
}
