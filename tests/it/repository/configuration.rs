//! Configuration reference, docs/CONFIGURATION.md: all settings, generated from the flags of `fireteam serve`.
//! `UPDATE_GOLDEN=1` rewrites the page.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Args as _, Command};
use fireteam::config::raw::ServeFlags;

const HEAD: &str = "# Configuration reference

All settings of `fireteam serve`, generated from its flags. Subjects and examples: [OPERATING](OPERATING.md).

A setting is a flag, a variable, or a key of the TOML file that `--config` names. Flags override variables, variables override the file, and
the file overrides defaults. Lists are separated by commas, and arrays in TOML. `fireteam serve --print-config` prints the effective
configuration as TOML. An unknown key or variable is an error, with the closest known name. `fireteam backup`, `restore` and `doctor` take
the same settings.

`UPDATE_GOLDEN=1 cargo test --test it -- configuration_reference` rewrites this page.

| flag | variable | TOML key | default | meaning, unit and range |
|---|---|---|---|---|
";

/// The page as the flags say it.
fn generated_page() -> String {
    let command = ServeFlags::augment_args(Command::new("serve"));
    let mut page = HEAD.to_owned();
    for argument in command.get_arguments() {
        page.push_str(&row(argument));
    }
    page
}

fn row(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let (meaning, default) = match help.rsplit_once(" [default: ") {
        Some((meaning, default)) => (meaning, default.trim_end_matches(']')),
        None => (help.as_str(), ""),
    };
    let flag = argument.get_long().expect("a long flag");
    let value = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value = value.map(|names| names.iter().map(|name| format!(" {name}")).collect::<String>()).unwrap_or_default();
    let list = if argument.get_num_args().is_some_and(|range| range.max_values() > 1) { "…" } else { "" };
    let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let key = match argument.get_id().as_str() {
        "config" | "print_config" => String::new(),
        key => format!("`{key}`"),
    };
    let escape = |text: &str| text.replace('|', "\\|");
    let mut row = String::new();
    writeln!(row, "| `--{flag}{value}{list}` | {variable} | {key} | {} | {} |", escape(default), escape(meaning))
        .expect("memory");
    row
}

#[test]
fn configuration_reference_equals_the_flags() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/CONFIGURATION.md");
    let expected = generated_page();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let different = page.lines().zip(expected.lines()).find(|(page, expected)| page != expected);
    assert!(
        page == expected,
        "docs/CONFIGURATION.md is not current; run with UPDATE_GOLDEN=1. First difference: {different:?}"
    );
}

/// Each setting says its default, unless it has none of its own.
#[test]
fn configuration_reference_has_a_default_for_each_setting() {
    let page = generated_page();
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `--")).map(|line| line.split(" | ").collect()).collect();
    assert!(rows.len() > 50, "{}", rows.len());
    // Required beside another setting, or actions.
    let without = [
        "--config",
        "--print-config",
        "--tls-key",
        "--auth-issuer",
        "--beacon-id",
        "--beacon-place",
        "--beacon-announce-address",
    ];
    for row in rows {
        let is_without =
            without.iter().any(|flag| row[0].starts_with(&format!("| `{flag} ")) || row[0] == format!("| `{flag}`"));
        assert_eq!(row[3].trim().is_empty(), is_without, "{row:?}");
        assert!(!row[4].trim_end_matches(" |").is_empty(), "{row:?}");
    }
}
