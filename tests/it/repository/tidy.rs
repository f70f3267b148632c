//! What a reader of the house may count on, kept by a test: short files that say what they are for, no loose ends,
//! migrations in pairs, metrics documented, nothing that names the machine it was written on.

use std::collections::BTreeSet;

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// Lines in a file, tests included: the limit of HOUSE_STYLE 1.1.
const LINES_MAX: usize = 600;

/// Loose ends. In pieces, so that this file passes its own test.
const BANNED: &[&str] = &[
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
    concat!("unsafe ", "{"),
];

/// Traces of the place where it was written: home folders, private registries. In pieces, for the same reason.
const PLACES: &[&str] = &[
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

/// What has a limit on its length. A contract (proto, schema, ruleset) is one page however long, and mostly comment.
fn is_long_form(path: &str) -> bool {
    [".rs", ".cpp", ".h"].iter().any(|end| path.ends_with(end)) && is_written(path)
}

fn is_code(path: &str) -> bool {
    [".rs", ".cpp", ".h", ".sql", ".proto", ".xml", ".xsd"].iter().any(|end| path.ends_with(end))
}

/// Everything that people write. Lock files are machines' work, golden files and vectors are data.
fn is_written(path: &str) -> bool {
    path != "Cargo.lock" && !path.contains("/golden/") && !path.contains("/vectors/") && !path.contains("/data/")
}

#[test]
fn files_are_short() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let mut lines: Vec<usize> =
        tree.iter().filter(|it| it.path.ends_with(".rs")).map(|it| it.text.lines().count()).collect();
    lines.sort_unstable();
    println!("{} Rust files, median {} lines, longest {}", lines.len(), lines[lines.len() / 2], lines[lines.len() - 1]);
    assert_no_violations(&too_long(&tree));
}

#[test]
fn files_say_what_they_are_for() {
    assert_no_violations(&headless(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn no_loose_ends() {
    assert_no_violations(&loose_ends(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn nothing_names_the_place_where_it_was_written() {
    assert_no_violations(&places(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn links_lead_somewhere() {
    assert_no_violations(&dead_links(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn migrations_come_in_pairs() {
    assert_no_violations(&unpaired_migrations(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn metrics_and_their_documents_agree() {
    match undocumented_metrics(&source_tree::read_source_files(source_tree::repository_root())) {
        Some(complaints) => assert_no_violations(&complaints),
        None => eprintln!("SKIPPED: src/telemetry/metric.rs has no metrics yet; docs/METRICS.md was NOT checked"),
    }
}

fn too_long(tree: &[SourceFile]) -> Vec<String> {
    let count = |it: &SourceFile| it.text.lines().count();
    let long = tree.iter().filter(|it| is_long_form(&it.path) && LINES_MAX < count(it));
    long.map(|it| format!("{}: {} lines; split it, {LINES_MAX} is the limit", it.path, count(it))).collect()
}

/// Rust opens with a `//!` sentence; SQL, proto and XML with a comment, XML after its declaration.
fn headless(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for SourceFile { path, text } in tree.iter().filter(|it| is_written(&it.path)) {
        let first = text.lines().next().unwrap_or_default();
        let right = match path.rsplit('.').next().unwrap_or_default() {
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
        if !right {
            complaints.push(format!("{path}: open with a comment that says what the file is for"));
        }
    }
    complaints
}

/// `//! Words, and a full stop.`, perhaps over several lines.
fn opens_with_a_sentence(text: &str) -> bool {
    let header: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    let words = header.join(" ").replace("//!", "");
    let first = words.trim().chars().next();
    let begins = first.is_some_and(|it| !it.is_lowercase());
    begins && (words.contains(". ") || words.contains(": ") || words.trim_end().ends_with(['.', ':']))
}

fn loose_ends(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| is_code(&it.path) && is_written(&it.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let at = format!("{}:{}", source.path, number + 1);
            let banned = BANNED.iter().filter(|word| line.contains(**word));
            complaints.extend(banned.map(|word| format!("{at}: `{word}` is a loose end")));
            if line.contains(concat!("TO", "DO")) && !line.contains(concat!("TO", "DO(#")) {
                complaints.push(format!("{at}: give it a number, {}(#12), or do it now", concat!("TO", "DO")));
            }
        }
    }
    complaints
}

fn places(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| !it.path.contains("/data/")) {
        for (number, line) in source.text.lines().enumerate() {
            let named = PLACES.iter().filter(|place| line.contains(**place));
            complaints.extend(named.map(|place| format!("{}:{}: names `{place}`", source.path, number + 1)));
        }
        let registry = "registry+https://github.com/rust-lang/crates.io-index";
        if source.path == "Cargo.lock" {
            let odd = source.text.lines().filter(|line| line.starts_with("source = ") && !line.contains(registry));
            complaints.extend(odd.map(|line| format!("Cargo.lock: another registry: {line}")));
        }
    }
    complaints
}

/// `[words](path#place)` in our documents, where the path is not an address: relative to the document.
fn dead_links(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in tree.iter().filter(|it| it.path.ends_with(".md")) {
        let folder = source.path.rsplit_once('/').map_or("", |it| it.0);
        for link in source.text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|it| it.0) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.contains(':') && !leads_somewhere(tree, folder, path) {
                complaints.push(format!("{}: nothing is at {path}", source.path));
            }
        }
    }
    complaints
}

/// Whether a file or a folder with files is at `path`, seen from `folder`.
fn leads_somewhere(tree: &[SourceFile], folder: &str, path: &str) -> bool {
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

/// Once there are two databases, each change is written for both, under the same name.
fn unpaired_migrations(tree: &[SourceFile]) -> Vec<String> {
    let names = |folder: &str| -> BTreeSet<String> {
        tree.iter().filter_map(|it| it.path.strip_prefix(folder)).map(str::to_owned).collect()
    };
    let (sqlite, postgres) = (names("migrations/sqlite/"), names("migrations/postgres/"));
    if postgres.is_empty() {
        return Vec::new();
    }
    let lonely = sqlite.symmetric_difference(&postgres);
    lonely.map(|name| format!("migrations: {name} exists for one database only")).collect()
}

/// Every `fireteam_…` name in the table is in docs/METRICS.md and the other way round. `None` without a table.
fn undocumented_metrics(tree: &[SourceFile]) -> Option<Vec<String>> {
    let text_of = |path: &str| tree.iter().find(|it| it.path == path).map(|it| it.text.as_str());
    let table = metric_names(text_of("src/telemetry/metric.rs")?.lines().map(source_tree::strip_line_comment));
    if table.is_empty() {
        return None;
    }
    let documented = metric_names(text_of("docs/METRICS.md").unwrap_or_default().lines());
    let missing = table.difference(&documented).map(|name| format!("docs/METRICS.md: does not say what {name} is"));
    let gone = documented.difference(&table).map(|name| format!("docs/METRICS.md: {name} is not in the table"));
    Some(missing.chain(gone).collect())
}

/// Words that look like `fireteam_searches_total`; with a suffix that the text format adds it is the same metric, and
/// `fireteam_store_*` is none.
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
fn an_untidy_house_is_noticed() {
    let long = "//! Long.\n".repeat(LINES_MAX + 1);
    let loose =
        format!("//! Loose.\n{}\n// {}: later\n// {}(#4): fine\n", BANNED[0], concat!("TO", "DO"), concat!("TO", "DO"));
    let place = format!("//! Written at {}me.\n", PLACES[0]);
    let tree = source_tree::example_tree(&[
        ("src/long.rs", &long),
        ("src/loose.rs", &loose),
        ("src/place.rs", &place),
        ("src/headless.rs", "use std::fmt;\n"),
        ("src/mumbling.rs", "//! stub\n"),
        ("src/telemetry/metric.rs", "//! Table.\n/// Helps.\n\"fireteam_searches\", \"fireteam_updates_total\"\n"),
        ("docs/METRICS.md", "`fireteam_searches_total`, `fireteam_ghosts` and `fireteam_*`\n"),
        ("migrations/sqlite/0001_a.sql", "-- First.\n"),
        ("migrations/sqlite/0002_b.sql", "create table b;\n"),
        ("migrations/postgres/0001_a.sql", "-- First.\n"),
        ("proto/a.proto", "syntax = \"proto3\";\n"),
        ("rulesets/a.xml", "<?xml version=\"1.0\"?>\n<Ruleset/>\n"),
        ("rulesets/b.xml", "<?xml version=\"1.0\"?>\n<!-- A duel. -->\n<Ruleset/>\n"),
        ("docs/A.md", "[b](B.md), [c](../src/long.rs#x), [d](decisions/), [e](https://example.com), [f](#here)\n"),
        ("docs/decisions/1.md", "[a](../A.md)\n"),
        ("Cargo.lock", "source = \"registry+https://example.com/index\"\n"),
    ]);
    assert_exact_violations(&too_long(&tree), &["src/long.rs: 601 lines"]);
    assert_exact_violations(&loose_ends(&tree), &["src/loose.rs:2: ", "src/loose.rs:3: give it a number"]);
    assert_exact_violations(&places(&tree), &["src/place.rs:1: ", "Cargo.lock: another registry"]);
    let silent = ["src/headless.rs", "src/mumbling.rs", "0002_b.sql", "proto/a.proto", "rulesets/a.xml"];
    assert_exact_violations(&headless(&tree), &silent);
    assert_exact_violations(&dead_links(&tree), &["docs/A.md: nothing is at B.md"]);
    assert_exact_violations(&unpaired_migrations(&tree), &["0002_b.sql"]);
    assert_exact_violations(&undocumented_metrics(&tree).unwrap(), &["fireteam_updates", "fireteam_ghosts"]);
    assert_eq!(undocumented_metrics(&tree[..1]), None);
}
