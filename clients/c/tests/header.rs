//! The header is what cbindgen generates from the source. `UPDATE=1` in the environment writes it again.

use std::path::Path;

/// Files whose public items are in the header, in its order.
const SOURCES: &[&str] = &[
    "status.rs",
    "types.rs",
    "queue_types.rs",
    "beacons.rs",
    "matching.rs",
    "queueing.rs",
    "match_host.rs",
    "verifier.rs",
    "responder.rs",
    "client.rs",
    "stream.rs",
    "library_exports.rs",
    "beacons_exports.rs",
    "matching_exports.rs",
    "queueing_exports.rs",
    "match_host_exports.rs",
    "verifier_exports.rs",
    "responder_exports.rs",
    "client_exports.rs",
    "stream_exports.rs",
];

#[test]
fn header_is_generated_from_the_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a configuration");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join("src").join(source));
    }
    let mut generated = Vec::new();
    builder.generate().expect("the source").write(&mut generated);
    let generated = String::from_utf8(generated).expect("text");
    let path = root.join("include/fireteam.h");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &generated).expect("write the header");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = committed.lines().zip(generated.lines()).find(|(committed, generated)| committed != generated);
    assert!(
        committed == generated,
        "the header is stale, first in {differs:?}; run: UPDATE=1 cargo test -p fireteam-c --test header"
    );
}
