//! Packages: their versions are that of Cargo.toml, and their files name only settings that the server has.

use std::collections::BTreeSet;
use std::process::Command;

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

/// Files of packages that carry the version: path, text before the version and text after it.
const VERSIONS: &[(&str, &str, &str)] = &[
    ("packaging/helm/fireteam/Chart.yaml", "\nversion: ", "\n"),
    ("packaging/helm/fireteam/Chart.yaml", "\nappVersion: ", "\n"),
    ("packaging/npm/package.json", "\"version\": \"", "\""),
    ("packaging/python/METADATA", "\nVersion: ", "\n"),
    ("packaging/debian/changelog", "fireteam (", ")"),
    ("packaging/compose.yaml", "image: fireteam:", "\n"),
    ("packaging/compose.yaml", "fireteam-", "-x86_64.image.tar"),
];

/// Files that start the server: path, and a text that each line with its flags contains.
const FLAG_LINES: &[(&str, &str)] = &[
    ("packaging/compose.yaml", "command: [serve"),
    ("packaging/debian/fireteam.service", "ExecStart=/usr/bin/fireteam serve"),
    ("packaging/helm/fireteam/templates/deployment.yaml", "            - --"),
    ("packaging/Dockerfile", "CMD [\"serve\""),
];

#[test]
fn packaging_versions_are_that_of_the_server() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert_no_violations(&other_versions(&tree, env!("CARGO_PKG_VERSION")));
}

#[test]
fn packaging_names_only_settings_of_the_server() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    let help = Command::new(env!("CARGO_BIN_EXE_fireteam")).args(["serve", "--help"]).output().unwrap();
    assert!(help.status.success());
    assert_no_violations(&unknown_settings(&tree, &String::from_utf8(help.stdout).unwrap()));
}

#[test]
fn packaging_violations_are_reported() {
    let chart = "packaging/helm/fireteam/Chart.yaml";
    let tree = source_tree::example_tree(&[
        (chart, "# Chart.\nversion: 1.2.3\nappVersion: 1.2.2\n"),
        ("packaging/npm/package.json", "{ \"version\": \"1.2.3\" }\n"),
        ("packaging/python/METADATA", "Name: fireteam\nVersion: 1.2.3\n"),
        ("packaging/debian/changelog", "fireteam (1.2.3) stable\n"),
        (
            "packaging/compose.yaml",
            "# --input fireteam-1.2.3-x86_64.image.tar\nimage: fireteam:1.2.3\ncommand: [serve, --listen, x, --hear, y]\n",
        ),
        ("packaging/debian/fireteam.service", "ExecStart=/usr/bin/fireteam serve --config x\n"),
        ("packaging/debian/fireteam.toml", "# A comment = none.\nlisten = \"x\"\nlistens = \"x\"\n"),
        ("packaging/helm/fireteam/templates/deployment.yaml", "            - --listen=x\n"),
        ("packaging/Dockerfile", "ENV FIRETEAM_LISTEN=x FIRETEAM_HEAR=y\nCMD [\"serve\"]\n"),
    ]);
    assert_exact_violations(&other_versions(&tree, "1.2.3"), &["Chart.yaml: `appVersion: ` 1.2.2"]);
    let help = "      --listen <ADDRESS>  Address [env: FIRETEAM_LISTEN=]\n      --config <FILE>\n";
    let expected = ["compose.yaml: --hear", "fireteam.toml: --listens", "Dockerfile: FIRETEAM_HEAR"];
    assert_exact_violations(&unknown_settings(&tree, help), &expected);
    assert_eq!(other_versions(&tree[..1], "1.2.3").len(), VERSIONS.len());
}

/// Versions in the packages' files that differ from the server's.
fn other_versions(tree: &[SourceFile], version: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, before, after) in VERSIONS {
        let text = tree.iter().find(|it| it.path == *path).map_or("", |it| it.text.as_str());
        let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after)).map(|(found, _)| found);
        if found != Some(version) {
            let found = found.unwrap_or("is missing");
            complaints.push(format!("{path}: `{}` {found}; the server's version is {version}", before.trim_start()));
        }
    }
    complaints
}

/// Flags, variables and keys in the packages' files that the help of `fireteam serve` does not name.
fn unknown_settings(tree: &[SourceFile], help: &str) -> Vec<String> {
    let known: BTreeSet<&str> = words(help).collect();
    let mut complaints = Vec::new();
    for SourceFile { path, text } in tree.iter().filter(|it| it.path.starts_with("packaging/")) {
        let markers: Vec<&str> = FLAG_LINES.iter().filter(|it| it.0 == path).map(|it| it.1).collect();
        let lines = text.lines().filter(|line| markers.iter().any(|marker| line.contains(marker)));
        let flags = lines.flat_map(words).filter(|word| word.starts_with("--")).map(str::to_owned);
        let variables = words(text).filter(|word| is_variable(word)).map(str::to_owned);
        let keys = text.lines().filter(|line| path.ends_with("fireteam.toml") && !line.starts_with('#'));
        let keys = keys.filter_map(|line| Some(format!("--{}", line.split_once(" = ")?.0.replace('_', "-"))));
        let used: BTreeSet<String> = flags.chain(variables).chain(keys).collect();
        let unknown = used.iter().filter(|word| !known.contains(word.as_str()));
        complaints.extend(unknown.map(|word| format!("{path}: {word} is not in `fireteam serve --help`")));
        if !markers.is_empty() && !text.lines().any(|line| markers.iter().any(|marker| line.contains(marker))) {
            complaints.push(format!("{path}: starts no server; correct the table of this test"));
        }
    }
    complaints
}

/// A whole variable of the server, such as `FIRETEAM_LISTEN`; `FIRETEAM_*` is none.
fn is_variable(word: &str) -> bool {
    word.strip_prefix("FIRETEAM_").is_some_and(|name| !name.is_empty())
}

/// Words of letters, digits, `_` and `-`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_' && it != '-').filter(|word| !word.is_empty())
}
