//! The tree as text: what the tests of the house read, and toy trees on which they show that they bite.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One file, with its path from the root in forward slashes.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Folders that hold nothing of ours.
const NOT_OURS: &[&str] = &["target", ".git", "node_modules", "build"];

/// Every text file under `root`, sorted by path. Files that are not UTF-8 (databases, pictures) are left out.
pub(crate) fn read(root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    collect(root, &mut paths);
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(root).unwrap().to_str()?.replace('\\', "/");
        Some(Source { path, text })
    };
    paths.into_iter().filter_map(source).collect()
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if NOT_OURS.contains(&name) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect(&path, paths);
        } else if path.is_file() {
            paths.push(path);
        }
    }
}

/// A toy tree: the same, from `(path, text)` pairs that are written to a folder of their own first, so that reading is
/// tried as well.
pub(crate) fn toy(files: &[(&str, &str)]) -> Vec<Source> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    read(folder.path())
}

/// The line without its `//` comment. Knows just enough of strings to leave `"http://…"` alone.
pub(crate) fn code_of(line: &str) -> &str {
    let mut in_string = false;
    let bytes = line.as_bytes();
    for at in 0..bytes.len() {
        match bytes[at] {
            b'"' if at == 0 || bytes[at - 1] != b'\\' => in_string = !in_string,
            b'/' if !in_string && bytes.get(at + 1) == Some(&b'/') => return &line[..at],
            _ => {}
        }
    }
    line
}

/// Panics with every complaint, one a line.
#[track_caller]
pub(crate) fn none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Panics unless exactly one complaint names each of `expected`, and there is no other: a check that says too much on
/// a toy tree is as wrong as one that says nothing.
#[track_caller]
pub(crate) fn exactly(complaints: &[String], expected: &[&str]) {
    for wanted in expected {
        let found = complaints.iter().filter(|complaint| complaint.contains(wanted)).count();
        assert_eq!(found, 1, "`{wanted}` in\n{}", complaints.join("\n"));
    }
    assert_eq!(complaints.len(), expected.len(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn comments_are_told_from_addresses() {
    assert_eq!(code_of("let a = 1; // why"), "let a = 1; ");
    assert_eq!(code_of("let a = \"http://b\"; // why"), "let a = \"http://b\"; ");
    assert_eq!(code_of("/// all of it"), "");
}
