//! TLS certificates of the server process: health checks, renewal while running, errors about wrong files.

use std::fs;
use std::path::Path;

use crate::support::certs::{CertificateAndKey, CertificateAuthority, write_private_file, write_server_certificate};
use crate::support::server_process::{ServerProcess, fireteam_command, run_until_exit};

/// Runs `fireteam health`, with TLS if there is a `ca`: whether it succeeded, and its standard error.
fn run_health_command(folder: &Path, address: &str, ca: Option<&CertificateAuthority>) -> (bool, String) {
    let mut arguments = vec!["health", "--address", address];
    if let Some(ca) = ca {
        write_private_file(&folder.join("ca.pem"), &ca.pem);
        arguments.extend(["--ca", "ca.pem"]);
    }
    let output = fireteam_command(folder, &arguments).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

/// Layout of a mounted Kubernetes secret: `live/..data` links to a directory, and the files link through it.
fn swap_certificate_files(folder: &Path, name: &str, certificate: &CertificateAndKey) {
    let (next, live) = (folder.join("live").join(name), folder.join("live"));
    fs::create_dir_all(&next).unwrap();
    write_server_certificate(&next, certificate);
    std::os::unix::fs::symlink(name, live.join("..next")).unwrap();
    fs::rename(live.join("..next"), live.join("..data")).unwrap();
    for file in ["server.pem", "server.key"] {
        if !live.join(file).exists() {
            std::os::unix::fs::symlink(Path::new("..data").join(file), live.join(file)).unwrap();
        }
    }
}

const TLS_FLAGS: [&str; 4] = ["--tls-certificate", "live/server.pem", "--tls-key", "live/server.key"];

/// A1: certificates are renewed without a restart, also by replacing a symbolic link. A mismatched pair changes
/// nothing.
#[test]
fn tls_certificates_are_renewed_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (CertificateAuthority::new("first"), CertificateAuthority::new("second"));
    swap_certificate_files(folder.path(), "..1", &first.server_certificate());
    let server = ServerProcess::start(folder.path(), &TLS_FLAGS);
    let health = |ca| run_health_command(folder.path(), &server.address.to_string(), ca);
    let (is_healthy, output) = health(Some(&first));
    assert!(is_healthy, "{output}\n{}", server.log.text());
    assert!(!health(None).0, "plaintext is rejected");
    assert!(!health(Some(&second)).0, "the second certificate is not in use yet");
    assert!(
        run_health_command(folder.path(), &server.operator_address.to_string(), Some(&first)).0,
        "the operator port too"
    );

    let bad = CertificateAndKey {
        certificate: second.server_certificate().certificate,
        key: second.server_certificate().key,
    };
    swap_certificate_files(folder.path(), "..2", &bad);
    assert_eq!(server.log.wait_for_lines("certificates reload failed", 1).len(), 1);
    assert!(health(Some(&first)).0, "the old pair is still in use");

    swap_certificate_files(folder.path(), "..3", &second.server_certificate());
    assert_eq!(server.log.wait_for_lines("certificates reloaded", 1).len(), 1);
    let (is_healthy, output) = health(Some(&second));
    assert!(is_healthy, "{output}");
    assert!(!health(Some(&first)).0);
}

/// A7: a wrong file is reported at startup, with its name and the remedy.
#[test]
fn startup_with_a_tls_key_readable_by_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    swap_certificate_files(folder.path(), "..1", &CertificateAuthority::new("server").server_certificate());
    let key = folder.path().join("live/server.key");
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let ended = run_until_exit(folder.path(), &TLS_FLAGS);
    assert_eq!(ended.exit_code, Some(1));
    assert!(ended.log.contains("chmod 600 live/server.key"), "{}", ended.log);
}
