//! Warnings of `fireteam check`: each with its line and the name of its check, as text and as JSON; and when they fail the command.

use std::path::{Path, PathBuf};

use fireteam::cli::check::{CheckFormat, CheckOptions, check_rulesets, check_rulesets_with};

use crate::support::server_process::fireteam_command;

/// Names of all checks that warn.
const CHECKS: [&str; 5] =
    ["allocation_timeout", "impossible_rule", "measured_never_probed", "weights_sum", "window_never_opens"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Report of files, with paths relative to the repository, and whether the check has succeeded.
fn report(paths: &[PathBuf], options: CheckOptions) -> (String, bool) {
    let mut out = Vec::new();
    let succeeded = check_rulesets_with(paths, options, &mut out);
    (String::from_utf8(out).unwrap().replace(&format!("{}/", root().display()), ""), succeeded)
}

/// Compares a text with a golden file; with `UPDATE_GOLDEN=1` writes it.
#[track_caller]
fn assert_golden(name: &str, text: &str) {
    let file = root().join("tests/golden/check").join(name);
    if std::env::vars().any(|(key, value)| key == "UPDATE_GOLDEN" && value == "1") {
        std::fs::write(&file, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&file).unwrap_or_default(), "{}", file.display());
}

#[test]
fn check_warnings_equal_the_golden_files() {
    let file = [root().join("tests/golden/check/warnings.xml")];
    let (text, succeeded) = report(&file, CheckOptions::default());
    assert!(succeeded, "warnings are no problems");
    assert_golden("warnings.txt", &text);
    let (json, _) = report(&file, CheckOptions { format: CheckFormat::Json, ..CheckOptions::default() });
    assert_golden("warnings.json", &json);
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    let problems = parsed["problems"].as_array().unwrap();
    assert_eq!(parsed["warnings"], problems.len());
    for problem in problems {
        assert!(
            CHECKS.contains(&problem["check"].as_str().unwrap()) && problem["line"].as_u64() > Some(0),
            "{problem}"
        );
    }
}

/// Denied warnings fail the check; a file without warnings passes it. Errors are in the JSON report too.
#[test]
fn check_warnings_fail_the_check_if_they_are_denied() {
    let denied = CheckOptions { deny_warnings: true, ..CheckOptions::default() };
    let warnings = [root().join("tests/golden/check/warnings.xml")];
    assert!(!report(&warnings, denied).1);
    let shipped = [root().join("rulesets")];
    let (text, succeeded) = report(&shipped, denied);
    assert!(succeeded && !text.contains("warning"), "{text}");
    let broken = [root().join("tests/golden/rulesets/ten_mistakes.xml")];
    let (json, succeeded) = report(&broken, CheckOptions { format: CheckFormat::Json, ..CheckOptions::default() });
    let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!succeeded && parsed["errors"] == 10, "{json}");
    assert_eq!(parsed["problems"][0]["severity"], "error", "{json}");
    assert!(parsed["problems"][0]["check"].is_null(), "{json}");
}

/// The flags of the command, and its exit status.
#[test]
fn check_command_has_flags_for_warnings_and_format() {
    let status = |arguments: &[&str]| {
        let output = fireteam_command(root(), &[&["check"], arguments].concat()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let file = "tests/golden/check/warnings.xml";
    assert_eq!(status(&[file]).0, Some(0));
    assert_eq!(status(&["--deny-warnings", file]).0, Some(1));
    let (code, json) = status(&["--format", "json", "--deny-warnings", "rulesets"]);
    assert_eq!(
        (code, serde_json::from_str::<serde_json::Value>(&json).unwrap()["warnings"].as_u64()),
        (Some(0), Some(0))
    );
    assert_eq!(status(&["--format", "xml", file]).0, Some(2));
}

/// A ruleset with one change of each kind has no warning where the rule can do what it says.
#[test]
fn check_warnings_spare_rules_that_work() {
    let warnings_of = |inside: &str| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.xml");
        std::fs::write(&file, format!("<Ruleset Name='a' SetId='1'>{inside}</Ruleset>")).unwrap();
        let mut out = Vec::new();
        assert!(check_rulesets(&[file], &mut out), "{}", String::from_utf8_lossy(&out));
        String::from_utf8(out).unwrap().matches(": warning: ").count()
    };
    let skill = "<Attributes><Attribute Name='skill' Type='number' Min='0' Max='50'/></Attributes>";
    let filters = |inside: &str| format!("{skill}<HardFilters>{inside}</HardFilters>");
    assert_eq!(warnings_of(&filters("<Range Attribute='skill' Min='50'/>")), 0);
    assert_eq!(warnings_of(&filters("<Range Attribute='skill' Min='50.5'/>")), 1);
    assert_eq!(
        warnings_of(&filters("<Range Name='a' Attribute='skill' Max='9'/><Range Name='b' Attribute='skill' Min='9'/>")),
        0
    );
    assert_eq!(
        warnings_of(&filters(
            "<Equal Name='a' Attribute='skill' Value='1'/><Range Name='b' Attribute='skill' Min='9'/>"
        )),
        1
    );
    let soft = |one: &str, other: &str| {
        format!(
            "{skill}<SoftFilters><SoftFilter Attribute='skill' Weight='{one}'/><SoftFilter Attribute='latency' Weight='{other}'/></SoftFilters>"
        )
    };
    assert_eq!(warnings_of(&soft("33.3%", "66.7%")), 0);
    assert_eq!(warnings_of(&soft("33%", "66%")), 1);
    assert_eq!(warnings_of(&soft("3", "4")), 0);
    let window = |attributes: &str| {
        format!("{skill}<Teams Count='2' Size='1'/><Queue PassIntervalMs='250'><RatingWindow {attributes}/></Queue>")
    };
    assert_eq!(warnings_of(&window("Start='2' Max='2'")), 0, "a fixed window has no steps");
    assert_eq!(warnings_of(&window("Start='2' Max='3' StepEveryMs='3600000'")), 0);
    assert_eq!(warnings_of(&window("Start='2' Max='3' StepEveryMs='3600001'")), 1);
}
