//! Conformance of HTTP/2: h2spec (github.com/summerwind/h2spec) against the client port, plaintext and TLS.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server_under_attack::ServerUnderAttack;

/// Cases that fail, each with its reason in docs/SECURITY-TESTS.md.
const KNOWN_FAILURES: &[&str] = &[
    "2: Sends invalid connection preface",
    "1: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
    "1: Sends a second HEADERS frame without the END_STREAM flag",
    "3: Sends a HEADERS frame that contains a pseudo-header field as trailers",
];

/// The program: in `target/tools`, where .ci/long installs it, or in the path.
fn h2spec() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/h2spec");
    let candidates = [installed, PathBuf::from("h2spec")];
    candidates.into_iter().find(|program| Command::new(program).arg("--version").output().is_ok())
}

/// SEC-1: each case passes, or its reason is documented.
#[test]
fn h2spec_passes_or_each_failure_is_documented() {
    let Some(program) = h2spec() else {
        eprintln!(
            "SKIPPED: h2spec is not installed; the conformance of HTTP/2 was NOT tested; .ci/long installs it with Go"
        );
        return;
    };
    for (name, server, flags) in [
        ("plaintext", ServerUnderAttack::start(), &[][..]),
        ("TLS", ServerUnderAttack::start_with_tls(), &["--tls", "--insecure"][..]),
    ] {
        let port = server.address.port().to_string();
        let host = server.address.ip().to_string();
        let mut command = Command::new(&program);
        command.args(["--host", &host, "--port", &port, "--timeout", "3"]).args(flags);
        let output = command.output().expect("h2spec runs");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let summary = text.lines().rev().find(|line| line.contains("tests,")).unwrap_or_default();
        println!("{name}: {summary}");
        let failed: BTreeSet<&str> = failed_cases(&text);
        let unknown: Vec<&&str> = failed.iter().filter(|case| !KNOWN_FAILURES.contains(*case)).collect();
        assert!(summary.contains("passed") && unknown.is_empty(), "{name}: {unknown:?}\n{text}");
    }
}

/// Cases that failed: lines that begin with a cross.
fn failed_cases(text: &str) -> BTreeSet<&str> {
    text.lines().map(str::trim).filter_map(|line| line.strip_prefix('×')).map(str::trim).collect()
}
