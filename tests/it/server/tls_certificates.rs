//! The real server with certificates: asked for its health, renewed while it runs, and what it says of files that are wrong.

use std::fs;
use std::path::Path;

use crate::support::certs::{CertificateAuthority, CertificateAndKey, write_private_file, write_server_certificate};
use crate::support::server_process::{ServerProcess, fireteam_command, run_until_exit};

/// `fireteam health`, over TLS when there is a `ca`: whether it found health, and what it said.
fn run_health_command(folder: &Path, address: &str, ca: Option<&CertificateAuthority>) -> (bool, String) {
    let mut arguments = vec!["health", "--address", address];
    if let Some(ca) = ca {
        write_private_file(&folder.join("ca.pem"), &ca.pem);
        arguments.extend(["--ca", "ca.pem"]);
    }
    let asked = fireteam_command(folder, &arguments).output().unwrap();
    (asked.status.success(), String::from_utf8(asked.stderr).unwrap())
}

/// As Kubernetes lays a secret out: `live/..data` leads to a folder, and the files lead through it.
fn swap_certificate_files(folder: &Path, name: &str, papers: &CertificateAndKey) {
    let (next, live) = (folder.join("live").join(name), folder.join("live"));
    fs::create_dir_all(&next).unwrap();
    write_server_certificate(&next, papers);
    std::os::unix::fs::symlink(name, live.join("..next")).unwrap();
    fs::rename(live.join("..next"), live.join("..data")).unwrap();
    for file in ["server.pem", "server.key"] {
        if !live.join(file).exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(file), live.join(file)).unwrap();
        }
    }
}

const TLS_FLAGS: [&str; 4] = ["--tls-certificate", "live/server.pem", "--tls-key", "live/server.key"];

/// A1: renewed without a restart, also by swapping a symbolic link; and a bad pair changes nothing.
#[test]
fn tls_certificates_are_renewed_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (CertificateAuthority::new("first"), CertificateAuthority::new("second"));
    swap_certificate_files(folder.path(), "..1", &first.server_certificate());
    let server = ServerProcess::start(folder.path(), &TLS_FLAGS);
    let ask = |ca| run_health_command(folder.path(), &server.address.to_string(), ca);
    let (well, said) = ask(Some(&first));
    assert!(well, "{said}\n{}", server.log.text());
    assert!(!ask(None).0, "plaintext is not spoken");
    assert!(!ask(Some(&second)).0, "not yet");
    assert!(run_health_command(folder.path(), &server.operator_address.to_string(), Some(&first)).0, "operators' port as well");

    let bad = CertificateAndKey { certificate: second.server_certificate().certificate, key: second.server_certificate().key };
    swap_certificate_files(folder.path(), "..2", &bad);
    assert_eq!(server.log.wait_for_lines("certificates refused", 1).len(), 1);
    assert!(ask(Some(&first)).0, "the old pair is still in use");

    swap_certificate_files(folder.path(), "..3", &second.server_certificate());
    assert_eq!(server.log.wait_for_lines("certificates replaced", 1).len(), 1);
    let (well, said) = ask(Some(&second));
    assert!(well, "{said}");
    assert!(!ask(Some(&first)).0);
}

/// A7: what is wrong is said at the start, by file, with the remedy.
#[test]
fn startup_with_a_tls_key_readable_by_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    swap_certificate_files(folder.path(), "..1", &CertificateAuthority::new("house").server_certificate());
    let key = folder.path().join("live/server.key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let ended = run_until_exit(folder.path(), &TLS_FLAGS);
    assert_eq!(ended.exit_code, Some(1));
    assert!(ended.log.contains("chmod 600 live/server.key"), "{}", ended.log);
}
