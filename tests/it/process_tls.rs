//! The real server with certificates: asked for its health, renewed while it runs, and what it says of files that are wrong.

use std::fs;
use std::path::Path;

use crate::papers::{Authority, Papers, write, write_server};
use crate::process::{Process, command, refused};

/// `fireteam health`, over TLS when there is a `ca`: whether it found health, and what it said.
fn health(folder: &Path, address: &str, ca: Option<&Authority>) -> (bool, String) {
    let mut arguments = vec!["health", "--address", address];
    if let Some(ca) = ca {
        write(&folder.join("ca.pem"), &ca.pem);
        arguments.extend(["--ca", "ca.pem"]);
    }
    let asked = command(folder, &arguments).output().unwrap();
    (asked.status.success(), String::from_utf8(asked.stderr).unwrap())
}

/// As Kubernetes lays a secret out: `live/..data` leads to a folder, and the files lead through it.
fn swap(folder: &Path, name: &str, papers: &Papers) {
    let (next, live) = (folder.join("live").join(name), folder.join("live"));
    fs::create_dir_all(&next).unwrap();
    write_server(&next, papers);
    std::os::unix::fs::symlink(name, live.join("..next")).unwrap();
    fs::rename(live.join("..next"), live.join("..data")).unwrap();
    for file in ["server.pem", "server.key"] {
        if !live.join(file).exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(file), live.join(file)).unwrap();
        }
    }
}

const FLAGS: [&str; 4] = ["--tls-certificate", "live/server.pem", "--tls-key", "live/server.key"];

/// A1: renewed without a restart, also by swapping a symbolic link; and a bad pair changes nothing.
#[test]
fn certificates_are_renewed_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (Authority::new("first"), Authority::new("second"));
    swap(folder.path(), "..1", &first.server());
    let server = Process::start(folder.path(), &FLAGS);
    let ask = |ca| health(folder.path(), &server.address.to_string(), ca);
    let (well, said) = ask(Some(&first));
    assert!(well, "{said}\n{}", server.log.text());
    assert!(!ask(None).0, "plaintext is not spoken");
    assert!(!ask(Some(&second)).0, "not yet");
    assert!(health(folder.path(), &server.operator_address.to_string(), Some(&first)).0, "operators' port as well");

    let bad = Papers { certificate: second.server().certificate, key: second.server().key };
    swap(folder.path(), "..2", &bad);
    assert_eq!(server.log.wait_for("certificates refused", 1).len(), 1);
    assert!(ask(Some(&first)).0, "the old pair is still in use");

    swap(folder.path(), "..3", &second.server());
    assert_eq!(server.log.wait_for("certificates replaced", 1).len(), 1);
    let (well, said) = ask(Some(&second));
    assert!(well, "{said}");
    assert!(!ask(Some(&first)).0);
}

/// A7: what is wrong is said at the start, by file, with the remedy.
#[test]
fn a_server_does_not_start_with_a_key_that_others_can_read() {
    let folder = tempfile::tempdir().unwrap();
    swap(folder.path(), "..1", &Authority::new("house").server());
    let key = folder.path().join("live/server.key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let ended = refused(folder.path(), &FLAGS);
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.contains("chmod 600 live/server.key"), "{}", ended.log);
}
