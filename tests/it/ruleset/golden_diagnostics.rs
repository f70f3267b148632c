//! Diagnostics of broken rulesets, compared with golden files.

use std::path::{Path, PathBuf};

use fireteam::cli::check::check_rulesets;
use fireteam::rules;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/rulesets").join(name)
}

/// Compares the diagnostics of `name`.xml with `name`.txt; with `UPDATE_GOLDEN=1` writes `name`.txt.
#[track_caller]
fn check_golden(name: &str) -> String {
    let text = std::fs::read_to_string(golden(&format!("{name}.xml"))).unwrap();
    let problems = rules::parse_ruleset(&format!("{name}.xml"), &text).expect_err("a broken ruleset was accepted");
    let mut diagnostics: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    diagnostics.push('\n');
    diagnostics.extend(problems.iter().map(|problem| format!("{}\n\n", problem.render_snippet())));
    let expected = golden(&format!("{name}.txt"));
    if std::env::vars().any(|(key, value)| key == "UPDATE_GOLDEN" && value == "1") {
        std::fs::write(&expected, &diagnostics).unwrap();
    }
    assert_eq!(diagnostics, std::fs::read_to_string(&expected).unwrap_or_default(), "{}", expected.display());
    diagnostics
}

/// R: a ruleset with ten mistakes has ten located problems.
#[test]
fn diagnostics_of_ten_mistakes_are_ten() {
    let diagnostics = check_golden("ten_mistakes");
    assert_eq!(diagnostics.lines().filter(|line| line.starts_with("ten_mistakes.xml:")).count(), 10);
}

#[test]
fn diagnostics_of_each_kind_equal_the_golden_files() {
    let sections = ["attributes", "hard_filters", "soft_filters", "expansions", "search", "queue", "steps", "rating"];
    let sections = [&sections[..], &["avoidance", "statistics", "wishes"]].concat();
    for name in sections.into_iter().chain(["unknown_names"]) {
        check_golden(name);
    }
}

/// A file that is not XML has one problem, at the right position.
#[test]
fn diagnostics_of_syntax_errors_have_a_position() {
    let cases = [
        ("<Ruleset Name=a/>", "1:15", "quotes"),
        ("<Ruleset\n  Name/>", "2:7", "no value"),
        ("<Ruleset Name='a' Name='b'/>", "1:19", "second time"),
        ("<Ruleset Name='a'SetId='1'/>", "1:18", "no space"),
        ("<Ruleset>\n <Limits>\n</Ruleset>", "3:1", "</Ruleset> closes <Limits>, which was opened in line 2"),
        ("<Ruleset>\n <Limits/>\n", "1:2", "never closed"),
        ("<Ruleset Name='a", "1:1", "not closed"),
        ("<Ruleset Name='é & b'/>", "1:16", "reference"),
        ("<!-- a -- b --><Ruleset/>", "1:8", "--"),
        ("<Ruleset/> tail", "1:12", "outside"),
        ("<Ruleset/>\n<Ruleset/>", "2:2", "second root"),
        ("<Ruleset>&nbsp;</Ruleset>", "1:10", "`&nbsp;` is an unknown reference"),
        ("", "1:1", "no element"),
    ];
    for (text, place, part) in cases {
        let problems = rules::parse_ruleset("a.xml", text).expect_err(text);
        let diagnostics: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(
            diagnostics[0].starts_with(&format!("a.xml:{place}: ")) && diagnostics[0].contains(part),
            "{text}\n{diagnostics:?}"
        );
        assert_eq!(diagnostics.len(), 1, "{diagnostics:?}");
        assert!(problems[0].render_snippet().contains("a.xml"), "{}", problems[0].render_snippet());
    }
}

/// B-10: the thesis's sample with the wrong closing tag, as printed, is refused at that tag.
#[test]
fn diagnostics_of_the_printed_sample_name_the_closing_tag() {
    let diagnostics = check_golden("as_printed");
    assert!(diagnostics.starts_with("as_printed.xml:17:1:"), "{diagnostics}");
}

#[test]
fn check_command_prints_diagnostics_of_a_directory() {
    let mut out = Vec::new();
    assert!(!check_rulesets(&[golden("")], &mut out));
    let out = String::from_utf8(out).unwrap();
    assert!(out.trim_end().ends_with(" problems"), "{out}");
    assert!(out.contains("ten_mistakes.xml:"), "{out}");

    let mut out = Vec::new();
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("rulesets");
    assert!(check_rulesets(&[shipped], &mut out), "{}", String::from_utf8_lossy(&out));
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("7 files are valid\n"), "{out}");
    // S1-21, S1-23: the exchange rate that the thesis computed.
    assert!(out.contains("10 ms of latency weigh as much as 100 points of skill\n"), "{out}");
}
