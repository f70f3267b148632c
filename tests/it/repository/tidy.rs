//! Form of the repository: short files with a header, no leftovers, migrations in pairs, documented metrics, valid
//! links, no names of the machine it was written on.

use std::collections::BTreeSet;

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// Maximum lines of a file, tests included.
const LINES_MAX: usize = 600;

/// Leftovers. The words are joined so that this file passes its own test.
const LEFTOVERS: &[&str] = &[
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("...", "?"),
    concat!("#[", "ignore"),
    concat!("should_", "panic"),
    concat!("#[", "allow("),
    UNSAFE_BLOCK,
];

/// Start of an unsafe block.
const UNSAFE_BLOCK: &str = concat!("unsafe ", "{");

/// Files with unsafe blocks: the C interface and its tests, which call it as C does. `dependency_floors.rs` checks the lints of its package.
const UNSAFE_FILES: &[&str] = &["clients/c/src/raw.rs", "clients/c/tests/c_interface/functions.rs"];

/// Names of the authoring machine: home folders, private registries. Joined for the same reason.
const MACHINE_NAMES: &[&str] = &[
    concat!("/home", "/"),
    concat!("/root", "/"),
    concat!("/Users", "/"),
    concat!("/work", "/"),
    concat!("C:", "\\Users"),
    concat!(".art", "ifactory"),
    concat!("pypi.", "internal"),
    concat!("replace-", "with ="),
    concat!("localhost", ":4873"),
];

/// Header of the C interface, which is generated from `clients/c/src`.
const C_HEADER: &str = "clients/c/include/fireteam.h";

/// Whether a file has a length limit. A contract (proto, schema, ruleset, the header in C) is one page, and mostly comment.
fn is_long_form(path: &str) -> bool {
    [".rs", ".cpp", ".h"].iter().any(|end| path.ends_with(end)) && is_written(path) && path != C_HEADER
}

fn is_code(path: &str) -> bool {
    [".rs", ".cpp", ".h", ".sql", ".proto", ".xml", ".xsd"].iter().any(|end| path.ends_with(end))
}

/// Whether a file is written by people. Lock files are generated; golden files and vectors are data.
fn is_written(path: &str) -> bool {
    path != "Cargo.lock" && !path.contains("/golden/") && !path.contains("/vectors/") && !path.contains("/data/")
}

#[test]
fn tidy_files_are_short() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let mut lines: Vec<usize> =
        tree.iter().filter(|it| it.path.ends_with(".rs")).map(|it| it.text.lines().count()).collect();
    lines.sort_unstable();
    println!("{} Rust files, median {} lines, longest {}", lines.len(), lines[lines.len() / 2], lines[lines.len() - 1]);
    assert_no_violations(&too_long(&tree));
}

#[test]
fn tidy_files_have_a_header() {
    assert_no_violations(&without_header(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn tidy_files_have_no_leftovers() {
    assert_no_violations(&leftovers(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn tidy_files_do_not_name_the_authoring_machine() {
    assert_no_violations(&machine_names(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn tidy_links_have_a_target() {
    assert_no_violations(&broken_links(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn tidy_migrations_come_in_pairs() {
    assert_no_violations(&misnumbered_migrations(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn tidy_metrics_are_documented() {
    match undocumented_metrics(&source_tree::read_source_files(source_tree::repository_root())) {
        Some(complaints) => assert_no_violations(&complaints),
        None => eprintln!("SKIPPED: src/telemetry/metric.rs has no metrics yet; docs/METRICS.md was not checked"),
    }
}

fn too_long(tree: &[SourceFile]) -> Vec<String> {
    let count = |it: &SourceFile| it.text.lines().count();
    let long = tree.iter().filter(|it| is_long_form(&it.path) && LINES_MAX < count(it));
    long.map(|it| format!("{}: {} lines; split it, {LINES_MAX} is the limit", it.path, count(it))).collect()
}

/// Rust files start with a `//!` sentence; SQL, proto, XML and C++ files with a comment, XML after its declaration.
fn without_header(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for SourceFile { path, text } in tree.iter().filter(|it| is_written(&it.path)) {
        let first = text.lines().next().unwrap_or_default();
        let has_header = match path.rsplit('.').next().unwrap_or_default() {
            "rs" => opens_with_a_sentence(text),
            "sql" => first.starts_with("-- "),
            "proto" | "cpp" | "h" => first.starts_with("// "),
            "xml" | "xsd" => {
                let body = text.trim_start();
                let body = if body.starts_with("<?xml") { body.split_once("?>").map_or("", |it| it.1) } else { body };
                body.trim_start().starts_with("<!--")
            }
            _ => true,
        };
        if !has_header {
            complaints.push(format!("{path}: has no header; open with a comment that names the file's purpose"));
        }
    }
    complaints
}

/// `//! Text with a full stop.`, on one or more lines.
fn opens_with_a_sentence(text: &str) -> bool {
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let words = header.join(" ").replace("//!", "");
    let first = words.trim().chars().next();
    let starts = first.is_some_and(|it| !it.is_lowercase());
    starts && (words.contains(". ") || words.contains(": ") || words.trim_end().ends_with(['.', ':']))
}

fn leftovers(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| is_code(&it.path) && is_written(&it.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let at = format!("{}:{}", source.path, number + 1);
            let is_allowed = |word: &str| word == UNSAFE_BLOCK && UNSAFE_FILES.contains(&source.path.as_str());
            let banned = LEFTOVERS.iter().filter(|word| line.contains(**word) && !is_allowed(word));
            complaints.extend(banned.map(|word| format!("{at}: `{word}` is a leftover; remove it")));
            if line.contains(concat!("TO", "DO")) && !line.contains(concat!("TO", "DO(#")) {
                complaints.push(format!("{at}: has no issue number; write {}(#12), or do it now", concat!("TO", "DO")));
            }
        }
    }
    complaints
}

fn machine_names(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| !it.path.contains("/data/")) {
        for (number, line) in source.text.lines().enumerate() {
            let named = MACHINE_NAMES.iter().filter(|place| line.contains(**place));
            complaints.extend(named.map(|place| format!("{}:{}: names `{place}`", source.path, number + 1)));
        }
        let registry = "registry+https://github.com/rust-lang/crates.io-index";
        if source.path == "Cargo.lock" {
            let other_registry =
                source.text.lines().filter(|line| line.starts_with("source = ") && !line.contains(registry));
            complaints.extend(other_registry.map(|line| format!("Cargo.lock: another registry: {line}")));
        }
    }
    complaints
}

/// `[text](path#anchor)` in documents, where the path is relative to the document and not a URL.
fn broken_links(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| it.path.ends_with(".md")) {
        let folder = source.path.rsplit_once('/').map_or("", |it| it.0);
        for link in source.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|it| it.0) {
            let path = link.split('#').next().unwrap_or_default();
            let exists = || exists_at(tree, folder, path) || is_picture_at(folder, path);
            if !path.is_empty() && !path.contains(':') && !exists() {
                complaints.push(format!("{}: {path} does not exist", source.path));
            }
        }
    }
    complaints
}

/// Whether `path` is a picture of the repository. The tree has text files only.
fn is_picture_at(folder: &str, path: &str) -> bool {
    path.ends_with(".webp") && source_tree::repository_root().join(folder).join(path).is_file()
}

/// Whether a file, or a folder with files, is at `path` relative to `folder`.
fn exists_at(tree: &[SourceFile], folder: &str, path: &str) -> bool {
    let mut steps: Vec<&str> = folder.split('/').filter(|step| !step.is_empty()).collect();
    for step in path.split('/').filter(|step| !step.is_empty() && *step != ".") {
        match step {
            ".." => drop(steps.pop()),
            step => steps.push(step),
        }
    }
    let target = steps.join("/");
    tree.iter().any(|it| it.path == target || it.path.starts_with(&format!("{target}/")))
}

/// The migrations of each database are numbered from 1 without gaps. A migration may exist for one database only.
fn misnumbered_migrations(tree: &[SourceFile]) -> Vec<String> {
    let mut problems = Vec::new();
    for folder in ["migrations/sqlite/", "migrations/postgres/"] {
        let names: BTreeSet<&str> = tree.iter().filter_map(|it| it.path.strip_prefix(folder)).collect();
        for (number, name) in (1..).zip(names) {
            if !name.starts_with(&format!("{number:04}_")) {
                problems.push(format!("{folder}{name}: expected number {number:04}"));
            }
        }
    }
    problems
}

/// Each `fireteam_…` name in the table is in docs/METRICS.md, and each documented name is in the table. `None` without
/// a table.
fn undocumented_metrics(tree: &[SourceFile]) -> Option<Vec<String>> {
    let text_of = |path: &str| tree.iter().find(|it| it.path == path).map(|it| it.text.as_str());
    let table = metric_names(text_of("src/telemetry/metric.rs")?.lines().map(source_tree::strip_line_comment));
    if table.is_empty() {
        return None;
    }
    let documented = metric_names(text_of("docs/METRICS.md").unwrap_or_default().lines());
    let missing = table.difference(&documented).map(|name| format!("docs/METRICS.md: does not document {name}"));
    let undocumented = documented.difference(&table).map(|name| format!("docs/METRICS.md: {name} is not in the table"));
    Some(missing.chain(undocumented).collect())
}

/// Words such as `fireteam_searches_total`; a suffix that the text format adds is removed, and `fireteam_store_*` is
/// skipped.
fn metric_names<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in lines {
        for word in line.split(|it: char| !it.is_ascii_alphanumeric() && it != '_') {
            if let Some(name) = word.strip_prefix("fireteam_").filter(|name| !name.is_empty() && !name.ends_with('_')) {
                let ends = ["_bucket", "_count", "_sum", "_total", "_info"];
                let bare = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
                names.insert(format!("fireteam_{bare}"));
            }
        }
    }
    names
}

#[test]
fn tidy_violations_are_reported() {
    let long = "//! Long.\n".repeat(LINES_MAX + 1);
    let leftover = format!(
        "//! Loose.\n{}\n// {}: later\n// {}(#4): fine\n",
        LEFTOVERS[0],
        concat!("TO", "DO"),
        concat!("TO", "DO")
    );
    let place = format!("//! Written at {}me.\n", MACHINE_NAMES[0]);
    let tree = source_tree::example_tree(&[
        ("src/long.rs", &long),
        ("src/loose.rs", &leftover),
        ("src/place.rs", &place),
        ("src/unsafe.rs", concat!("//! Unsafe.\nunsafe ", "{ 1 }\n")),
        (UNSAFE_FILES[0], concat!("//! Pointers.\nunsafe ", "{ 1 }\n")),
        ("src/headless.rs", "use std::fmt;\n"),
        ("src/mumbling.rs", "//! stub\n"),
        ("src/telemetry/metric.rs", "//! Table.\n/// Helps.\n\"fireteam_searches\", \"fireteam_updates_total\"\n"),
        ("docs/METRICS.md", "`fireteam_searches_total`, `fireteam_ghosts` and `fireteam_*`\n"),
        ("migrations/sqlite/0001_a.sql", "-- First.\n"),
        ("migrations/sqlite/0002_b.sql", "create table b;\n"),
        ("migrations/postgres/0001_a.sql", "-- First.\n"),
        ("migrations/postgres/0003_b.sql", "-- Third.\n"),
        ("proto/a.proto", "syntax = \"proto3\";\n"),
        ("rulesets/a.xml", "<?xml version=\"1.0\"?>\n<Ruleset/>\n"),
        ("rulesets/b.xml", "<?xml version=\"1.0\"?>\n<!-- A duel. -->\n<Ruleset/>\n"),
        ("docs/A.md", "[b](B.md), [c](../src/long.rs#x), [d](decisions/), [e](https://example.com), [f](#here)\n"),
        ("docs/decisions/1.md", "[a](../A.md)\n"),
        ("Cargo.lock", "source = \"registry+https://example.com/index\"\n"),
    ]);
    assert_exact_violations(&too_long(&tree), &["src/long.rs: 601 lines"]);
    let loose = ["src/loose.rs:2: ", "src/loose.rs:3: has no issue number", "src/unsafe.rs:2: "];
    assert_exact_violations(&leftovers(&tree), &loose);
    assert_exact_violations(&machine_names(&tree), &["src/place.rs:1: ", "Cargo.lock: another registry"]);
    let no_header = ["src/headless.rs", "src/mumbling.rs", "0002_b.sql", "proto/a.proto", "rulesets/a.xml"];
    assert_exact_violations(&without_header(&tree), &no_header);
    assert_exact_violations(&broken_links(&tree), &["docs/A.md: B.md does not exist"]);
    assert_exact_violations(&misnumbered_migrations(&tree), &["postgres/0003_b.sql: expected number 0002"]);
    assert_exact_violations(&undocumented_metrics(&tree).unwrap(), &["fireteam_updates", "fireteam_ghosts"]);
    assert_eq!(undocumented_metrics(&tree[..1]), None);
}
