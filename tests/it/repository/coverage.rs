//! Coverage page, docs/COVERAGE.md: each requirement has a row, and each test that it names exists and names the requirement.
//!
//! `UPDATE_GOLDEN=1 cargo test --test it coverage` rewrites the last column from the comments of the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

const PAGE: &str = "docs/COVERAGE.md";

/// All requirement ids: prefix, first and last number.
const IDS: &[(&str, u32, u32)] = &[
    ("S0-", 1, 27),
    ("S1-", 1, 52),
    ("S1-", 60, 69),
    ("S1-", 96, 98),
    ("S2-", 1, 14),
    ("S3-", 1, 14),
    ("S4-", 1, 18),
    ("B-", 1, 38),
    ("R", 1, 25),
    ("SEC-", 1, 21),
    ("LAT-", 1, 6),
];

/// Requirements that this release does not promise yet. No other row may say `later`.
const LATER: &[(&str, u32, u32)] = &[
    ("R", 3, 3),
    ("R", 11, 11),
    ("R", 13, 16),
    ("R", 19, 22),
    ("R", 24, 24),
    ("SEC-", 3, 3),
    ("SEC-", 8, 8),
    ("LAT-", 4, 4),
];

/// Last column of a requirement that is not promised yet but has some tests, such as a file that is read or a limit
/// that is enforced.
const PARTLY_TESTED: &str = "later; begun in ";

/// Largest number of tests that one row names, so that the page stays readable. Other tests still name the id.
const NAMED_MAX: usize = 3;

#[test]
fn coverage_page_equals_the_tests() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let tests = tests_by_id(&tree);
    let mut page = text_of(&tree, PAGE).to_owned();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        page = rewritten(&page, &tests);
        // By rename, because other tests read the tree at the same time.
        let new = source_tree::repository_root().join("docs/COVERAGE.md.new");
        fs::write(&new, &page).unwrap();
        fs::rename(&new, source_tree::repository_root().join(PAGE)).unwrap();
    }
    assert_no_violations(&complaints(&page, &tests));
}

#[test]
fn coverage_of_promised_requirements_is_not_later() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let unpromised = numbered(LATER);
    // Rewritten first, so that an outdated page hides nothing and a new test counts at once.
    let page = rewritten(text_of(&tree, PAGE), &tests_by_id(&tree));
    let later =
        rows(&page).into_iter().filter(|row| row.tests_cell.starts_with("later") && !unpromised.contains(&row.id));
    let broken: Vec<String> = later.map(|row| format!("{}: no test names it ({})", row.id, row.subject)).collect();
    assert_no_violations(&broken);
}

#[test]
fn coverage_page_with_each_fault_is_reported() {
    let one_test = "//! A.\n#[cfg(test)]\nmod tests {\n    /// S1-25: degrees to miles, and RUSTSEC-2024-1 is not an id.\n    \
                    #[test]\n    fn it_holds() {\n        // B-16\n    }\n\n    // S1-26\n    fn helper() {}\n}\n";
    let other_test = "//! B.\n// SEC-5 in a comment of its own\n\n/// SEC-8\n#[tokio::test]\nasync fn waits() {}\n";
    let scenario = "//! C.\n/// S1-30\nasync fn plays(site: Site) {\n}\n\n/// S1-31\nasync fn helps() {\n}\n\non_each_store! {\n    \
                    plays, rules(),\n        plays_on_sqlite, plays_on_postgres;\n}\n";
    let files = [("src/a.rs", one_test), ("tests/it/b.rs", other_test), ("tests/it/c.rs", scenario)];
    let tree = source_tree::example_tree(&files);
    let tests = tests_by_id(&tree);
    assert_eq!(tests.keys().collect::<Vec<_>>(), ["B-16", "S1-25", "S1-30", "SEC-8"]);

    let every_id: Vec<String> = numbered(IDS).into_iter().collect();
    let row = |id: &str| match id {
        "S1-25" => "| S1-25 | true | `src/a.rs::it_holds` |".to_owned(),
        "B-16" => "| B-16 | true | `src/a.rs::it_holds` |".to_owned(),
        "S1-26" => "| S1-26 | does not name it | `src/a.rs::it_holds` |".to_owned(),
        "S1-27" => "| S1-27 | does not exist | `src/a.rs::it_hopes` |".to_owned(),
        "S1-28" => "| S1-28 | no reason | design: |".to_owned(),
        "S1-29" => "| S1-29 | nonsense | soon |".to_owned(),
        "S1-30" => "| S1-30 | a scenario | `tests/it/c.rs::plays` |".to_owned(),
        id => format!("| {id} | something | later |"),
    };
    let mut lines: Vec<String> = every_id.iter().filter(|id| *id != "R9").map(|id| row(id)).collect();
    lines.push("| S1-99 | invented | later |".to_owned());
    lines.push("| R8 | duplicate | later |".to_owned());
    let page = lines.join("\n");
    assert_exact_violations(
        &complaints(&page, &tests),
        &[
            "R9: has no row",
            "S1-99: is no requirement",
            "R8: has two rows",
            "S1-26: `src/a.rs::it_holds` does not name it",
            "S1-27: `src/a.rs::it_hopes` does not name it",
            "S1-28: ",
            "S1-29: ",
            "SEC-8: the row says later, but `tests/it/b.rs::waits` names it",
        ],
    );

    let repaired = rewritten(&page, &tests);
    assert!(repaired.contains("| SEC-8 | something | later; begun in `tests/it/b.rs::waits` |"));
    assert!(repaired.contains("| S1-25 | true | `src/a.rs::it_holds` |"));
    assert!(repaired.contains("| S1-27 | does not exist | later |"));
    assert_exact_violations(
        &complaints(&repaired, &tests),
        &["R9: has no row", "S1-99", "R8: has two rows", "S1-28: "],
    );
}

/// One line of the table.
struct Row {
    id: String,
    subject: String,
    tests_cell: String,
}

fn rows(page: &str) -> Vec<Row> {
    page.lines().filter_map(row_of).collect()
}

fn row_of(line: &str) -> Option<Row> {
    let cells: Vec<&str> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let [id, subject, tests_cell] = cells[..] else { return None };
    let is_row = id != "id" && !id.starts_with('-');
    is_row.then(|| Row { id: id.to_owned(), subject: subject.to_owned(), tests_cell: tests_cell.to_owned() })
}

fn numbered(ranges: &[(&str, u32, u32)]) -> BTreeSet<String> {
    ranges.iter().flat_map(|(prefix, first, last)| (*first..=*last).map(move |it| format!("{prefix}{it}"))).collect()
}

fn text_of<'a>(tree: &'a [SourceFile], path: &str) -> &'a str {
    &tree.iter().find(|it| it.path == path).unwrap_or_else(|| panic!("{path} is missing")).text
}

fn complaints(page: &str, tests: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let (known, mut seen, mut complaints) = (numbered(IDS), BTreeSet::new(), Vec::new());
    for Row { id, tests_cell, .. } in rows(page) {
        if !known.contains(&id) {
            complaints.push(format!("{id}: is no requirement"));
        }
        if !seen.insert(id.clone()) {
            complaints.push(format!("{id}: has two rows"));
        }
        let naming_tests = tests.get(&id);
        if tests_cell == "later" {
            let test = naming_tests.and_then(|it| it.first());
            complaints.extend(test.map(|it| format!("{id}: the row says later, but `{it}` names it")));
        } else if let Some(reason) = tests_cell.strip_prefix("design:") {
            if reason.trim().is_empty() {
                complaints.push(format!("{id}: `design:` has no text; name the reason why no test is needed"));
            }
        } else {
            for test in tests_cell.strip_prefix(PARTLY_TESTED).unwrap_or(&tests_cell).split(", ") {
                if !naming_tests.is_some_and(|it| it.contains(test.trim_matches('`'))) {
                    complaints.push(format!("{id}: {test} does not name it, or does not exist"));
                }
            }
        }
    }
    complaints.extend(known.difference(&seen).map(|id| format!("{id}: has no row")));
    complaints
}

/// The page with its last column generated from the tests.
fn rewritten(page: &str, tests: &BTreeMap<String, BTreeSet<String>>) -> String {
    let unpromised = numbered(LATER);
    let rewrite = |line: &str| match row_of(line) {
        None => line.to_owned(),
        Some(Row { id, subject, tests_cell }) => {
            let tests_cell = match tests.get(&id) {
                Some(naming_tests) => {
                    // Those that the page has, then integration tests, then unit tests.
                    let is_listed = |it: &String| tests_cell.split([',', ' ']).any(|listed| listed == it);
                    let mut named: Vec<String> = naming_tests.iter().map(|it| format!("`{it}`")).collect();
                    named.sort_by_key(|it| (!is_listed(it), !it.starts_with("`tests/")));
                    named.truncate(NAMED_MAX);
                    let partly_tested = if unpromised.contains(&id) { PARTLY_TESTED } else { "" };
                    format!("{partly_tested}{}", named.join(", "))
                }
                None if tests_cell.starts_with("design:") => tests_cell,
                None => "later".to_owned(),
            };
            format!("| {id} | {subject} | {tests_cell} |")
        }
    };
    page.lines().map(rewrite).collect::<Vec<_>>().join("\n") + "\n"
}

/// Each id in a test's comments, with those tests as `path::name`.
fn tests_by_id(tree: &[SourceFile]) -> BTreeMap<String, BTreeSet<String>> {
    let known = numbered(IDS);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // This file's ids are examples in strings.
    for source in tree.iter().filter(|it| it.path.ends_with(".rs") && it.path != "tests/it/repository/coverage.rs") {
        for (name, comments) in tests_of(&source.text) {
            for id in ids_in(&comments).into_iter().filter(|id| known.contains(id)) {
                found.entry(id).or_default().insert(format!("{}::{name}", source.path));
            }
        }
    }
    found
}

/// Scenarios that `on_each_store!` makes tests of.
fn scenarios_of(text: &str) -> BTreeSet<&str> {
    let inside = text.lines().skip_while(|line| !line.starts_with("on_each_store! {")).skip(1);
    let first_words = inside.filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    first_words.filter_map(|line| Some(line.trim().split_once(',')?.0)).collect()
}

/// Each test function, and each scenario of `on_each_store!`, with the comments above it and inside it.
fn tests_of(text: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let scenarios = scenarios_of(text);
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let attribute = line.trim();
        let is_test = attribute == "#[test]" || attribute.starts_with("#[tokio::test");
        if !is_test && !scenarios.iter().any(|name| line.starts_with(&format!("async fn {name}("))) {
            continue;
        }
        let is_above = |line: &&&str| line.trim_start().starts_with("//") || line.trim_start().starts_with("#[");
        let above = lines[..at].iter().rev().take_while(is_above);
        let Some(start) = lines[at..].iter().position(|line| line.contains("fn ")).map(|it| at + it) else { continue };
        let name = lines[start].split("fn ").nth(1).unwrap_or_default();
        let name: String = name.chars().take_while(|it| it.is_alphanumeric() || *it == '_').collect();
        // Formatted code closes a function with a brace at the indentation of its first line.
        let indent = &line[..line.len() - line.trim_start().len()];
        let closing = format!("{indent}}}");
        let one_line = lines[start].trim_end().ends_with('}');
        let length = lines[start..].iter().position(|it| *it == closing).filter(|_| !one_line).unwrap_or(0);
        let comment = |line: &&str| line.split_once("//").map(|it| it.1.to_owned());
        let mut comments: Vec<String> = above.filter_map(comment).collect();
        comments.extend(lines[at..=start + length].iter().filter_map(comment));
        tests.push((name, comments.join("\n")));
    }
    tests
}

/// Words that look like ids: `S1-25`, `B-16`, `R17`, `SEC-20`.
fn ids_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
    words.map(|word| word.trim_matches('-').to_owned()).collect()
}
