//! `protoc` generates clients from the proto files without flags for packages. Prints a notice if `protoc` is missing.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Languages that `protoc` generates without a plugin: its flag, and a folder and file that it must write.
const BUILT_IN_LANGUAGES: &[(&str, &str)] = &[
    ("--java_out", "dev/fireteam/v1/TicketStatus.java"),
    ("--csharp_out", "Queue.cs"),
    ("--python_out", "fireteam/v1/queue_pb2.py"),
    ("--cpp_out", "fireteam/v1/queue.pb.h"),
];

#[test]
fn protoc_generates_each_built_in_language_without_extra_flags() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let folder = proto.join("fireteam/v1");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 7, "{files:?}");
    for (flag, expected) in BUILT_IN_LANGUAGES {
        let out = tempfile::tempdir().unwrap();
        let mut command = Command::new("protoc");
        command.arg("-I").arg(&proto).arg(format!("{flag}={}", out.path().display())).args(&files);
        let Ok(output) = command.output() else {
            // Not with eprintln, because the output of a passing test is hidden.
            let notice = b"SKIPPED: protoc is not installed (protobuf-compiler), so no client was generated\n";
            std::io::stderr().write_all(notice).unwrap();
            return;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.is_empty(), "{flag}: {text}");
        assert!(out.path().join(expected).exists(), "{flag} wrote no {expected}");
    }
}
