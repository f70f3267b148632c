//! Minimum versions of dependencies without known vulnerabilities, and banned dependencies (SEC-20).
//!
//! The advisory database cannot be fetched everywhere; this list needs no network. `.ci/advisories` checks the database where it
//! can, and says which of the two it was.

use crate::support::source_tree;

/// Crate, minimum version, reason.
const FLOORS: &[(&str, &str, &str)] = &[
    ("h2", "0.4.16", "RUSTSEC-2026-0258"),
    ("tonic", "0.12.3", "RUSTSEC-2024-0376"),
    ("quick-xml", "0.41.0", "RUSTSEC-2026-0194 and 0195"),
    ("sqlx", "0.8.1", "RUSTSEC-2024-0363"),
    ("libsqlite3-sys", "0.37.0", "bundles SQLite 3.51.3, which cannot lose a WAL reset"),
    ("maxminddb", "0.27.0", "RUSTSEC-2025-0132"),
    ("memmap2", "0.9.11", "RUSTSEC-2026-0186"),
    ("bytes", "1.11.1", "RUSTSEC-2026-0007"),
    ("rustls-webpki", "0.103.13", "RUSTSEC-2026-0049, 0098, 0099 and 0104"),
    ("aws-lc-sys", "0.39.0", "the last release with an open advisory is older"),
    ("time", "0.3.47", "RUSTSEC-2026-0009"),
    ("lru", "0.18.2", "the last release with an open advisory is older"),
    ("crossbeam-epoch", "0.9.20", "the last release with an open advisory is older"),
];

/// Crate and reason.
const BANNED: &[(&str, &str)] = &[
    ("rsa", "RUSTSEC-2023-0071 has no fix"),
    ("rustls-pemfile", "no longer maintained"),
    ("openssl", "rustls is the only TLS library"),
    ("native-tls", "rustls is the only TLS library"),
];

/// SEC-20: the lock file has at least the minimum versions and nothing banned.
#[test]
fn dependencies_have_the_minimum_versions() {
    let lock = std::fs::read_to_string(source_tree::repository_root().join("Cargo.lock")).unwrap();
    source_tree::assert_no_violations(&complaints(&lock));
}

/// Package with unsafe code: the C interface. Its lints deny it in each file that does not lift the lint.
const UNSAFE_PACKAGE: &str = "clients/c/Cargo.toml";

/// Files of that package that lift the lint. `tidy.rs` keeps unsafe blocks in the first; the others have the attribute of exported names.
const UNSAFE_FILES: &[&str] = &[
    "raw.rs",
    "beacons_exports.rs",
    "client_exports.rs",
    "library_exports.rs",
    "match_host_exports.rs",
    "matching_exports.rs",
    "queueing_exports.rs",
    "responder_exports.rs",
    "stream_exports.rs",
    "verifier_exports.rs",
];

/// SEC-20: the packages have no unsafe blocks, by a lint that cannot be overridden. One package is excepted, file by file.
#[test]
fn dependencies_and_packages_forbid_unsafe_code() {
    let text = |path: &str| std::fs::read_to_string(source_tree::repository_root().join(path)).unwrap();
    assert!(text("Cargo.toml").contains("unsafe_code = \"forbid\""));
    for path in ["Cargo.toml", "clients/rust/Cargo.toml", "clients/probe/Cargo.toml"] {
        assert!(text(path).contains("[lints]\nworkspace = true"), "{path} does not use the workspace's lints");
    }
    for lint in ["unsafe_code = \"deny\"", "unsafe_op_in_unsafe_fn = \"deny\"", "undocumented_unsafe_blocks = \"deny\""]
    {
        assert!(text(UNSAFE_PACKAGE).contains(lint), "{UNSAFE_PACKAGE} lacks the lint {lint}");
    }
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let lifts = tree.iter().filter(|it| it.path.starts_with("clients/c/src/") && it.text.contains("(unsafe_code"));
    let mut lifting: Vec<&str> = lifts.filter_map(|it| it.path.strip_prefix("clients/c/src/")).collect();
    lifting.sort_by_key(|file| *file != "raw.rs");
    assert_eq!(lifting, UNSAFE_FILES);
}

#[test]
fn dependencies_of_an_old_lock_file_are_reported() {
    let package = |name: &str, version: &str| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n");
    let lock = [
        package("h2", "0.4.9"),
        package("h2", "0.4.16"),
        package("bytes", "1.12.0"),
        package("rsa", "0.9.0"),
        package("time", "0.3.47-rc.1"),
    ];
    source_tree::assert_exact_violations(
        &complaints(&lock.concat()),
        &["h2 0.4.9 is older than 0.4.16", "rsa", "time 0.3.47-rc.1"],
    );
}

fn complaints(lock: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in lock.split("[[package]]").skip(1) {
        let field = |key: &str| {
            let value = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "));
            value.unwrap_or_default().trim_matches('"')
        };
        let (name, version) = (field("name"), field("version"));
        for (_, floor, reason) in FLOORS.iter().filter(|it| it.0 == name) {
            if numbers(version) < numbers(floor) {
                complaints.push(format!("{name} {version} is older than {floor}: {reason}"));
            }
        }
        for (_, reason) in BANNED.iter().filter(|it| it.0 == name) {
            complaints.push(format!("{name} {version} is banned: {reason}"));
        }
    }
    complaints
}

/// Major, minor, patch, and 0 for a pre-release, which is older than its release.
fn numbers(version: &str) -> [u64; 4] {
    let version = version.split('+').next().unwrap_or_default();
    let (release, is_release) = match version.split_once('-') {
        Some((release, _)) => (release, 0),
        None => (version, 1),
    };
    let mut parts = release.split('.').map(|part| part.parse().expect("a version is numbers"));
    let mut next = || parts.next().unwrap_or(0);
    [next(), next(), next(), is_release]
}
