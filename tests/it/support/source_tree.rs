//! The repository's files as text, for the tests that check them, and example trees for testing these checks.

use std::fs;
use std::path::{Path, PathBuf};

/// Root directory of the repository.
pub(crate) fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A text file, with its path from the root in forward slashes.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Directories without source files of this project.
const IGNORED_FOLDERS: &[&str] = &["target", ".git", "node_modules", "build"];

/// Reads every text file under `root`, sorted by path. Skips files that are not UTF-8.
pub(crate) fn read_source_files(root: &Path) -> Vec<SourceFile> {
    let mut paths = Vec::new();
    collect_paths(root, &mut paths);
    paths.sort();
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let path = path.strip_prefix(root).unwrap().to_str()?.replace('\\', "/");
        Some(SourceFile { path, text })
    };
    paths.into_iter().filter_map(source).collect()
}

fn collect_paths(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if IGNORED_FOLDERS.contains(&name) || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            collect_paths(&path, paths);
        } else if path.is_file() {
            paths.push(path);
        }
    }
}

/// Writes `(path, text)` pairs to a temporary directory and reads them back as an example tree.
pub(crate) fn example_tree(files: &[(&str, &str)]) -> Vec<SourceFile> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    read_source_files(folder.path())
}

/// The line without its `//` comment. Knows enough about string literals to keep `"http://…"`.
pub(crate) fn strip_line_comment(line: &str) -> &str {
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

/// Panics with all violations, one per line.
#[track_caller]
pub(crate) fn assert_no_violations(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

/// Panics unless exactly one violation names each of `expected` and there is no other. A check that reports too much is
/// as wrong as one that reports nothing.
#[track_caller]
pub(crate) fn assert_exact_violations(violations: &[String], expected: &[&str]) {
    for name in expected {
        let found = violations.iter().filter(|violation| violation.contains(name)).count();
        assert_eq!(found, 1, "`{name}` in\n{}", violations.join("\n"));
    }
    assert_eq!(violations.len(), expected.len(), "\n{}\n", violations.join("\n"));
}

#[test]
fn strip_line_comment_keeps_urls() {
    assert_eq!(strip_line_comment("let a = 1; // note"), "let a = 1; ");
    assert_eq!(strip_line_comment("let a = \"http://b\"; // note"), "let a = \"http://b\"; ");
    assert_eq!(strip_line_comment("/// all of it"), "");
}
