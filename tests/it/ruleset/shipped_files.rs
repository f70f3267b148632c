//! Shipped rulesets: valid, bundled, with the documented numbers, and accepted by the XML schema.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use fireteam::domain::attribute::Trust;
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::{HardRule, SoftFilterObjective};
use fireteam::rules;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn xml_files(directory: &str) -> Vec<PathBuf> {
    let entries = root().join(directory).read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|it| it == "xml")).collect();
    files.sort();
    files
}

#[test]
fn shipped_files_are_all_bundled() {
    let bundled: Vec<PathBuf> = rules::bundled::BUNDLED_FILES.iter().map(|(name, _)| root().join(name)).collect();
    assert_eq!(bundled, xml_files("rulesets"));
    let loaded = rules::load_directory(&root().join("rulesets")).unwrap();
    let bundled_rulesets = rules::bundled::load_bundled().unwrap();
    assert!(loaded.iter().map(|(_, it)| it).eq(bundled_rulesets.iter().map(|(_, it)| it)));
    // Files with `<Limits>` have the same limits; sets made for queues use the default.
    for (_, ruleset) in bundled_rulesets.iter().filter(|(_, ruleset)| ruleset.source_xml.contains("<Limits")) {
        assert_eq!(
            (ruleset.search_limits.max_results, ruleset.search_limits.max_evaluated),
            (50, 20_000),
            "{}",
            ruleset.name
        );
    }
}

/// S1-19 to S1-21, S1-24, S1-36, S1-46, S1-48, B-8, B-9: Control has the thesis's ranges and weights, and its served
/// XML has the file's elements.
#[test]
fn shipped_control_has_the_numbers_of_the_thesis() {
    let bundled_rulesets = rules::bundled::load_bundled().unwrap();
    let (_, control) = bundled_rulesets.iter().find(|(_, ruleset)| ruleset.set_id.0 == 1).unwrap();
    let file = include_str!("../../../rulesets/destiny_control_6v6.xml");
    let elements = |xml: &str| -> Vec<String> {
        let document = roxmltree::Document::parse(xml).unwrap();
        document.descendants().filter(|node| node.is_element()).map(|node| xml[node.range()].to_owned()).collect()
    };
    let leaves = |xml: &str| elements(xml).into_iter().filter(|text| text.ends_with("/>") && !text.contains("<!--"));
    assert!(file.contains("<!--") && !control.source_xml.contains("<!--"), "clients receive the file without comments");
    assert!(
        leaves(&control.source_xml)
            .filter(|text| text.matches('<').count() == 1)
            .eq(leaves(file).filter(|text| text.matches('<').count() == 1))
    );
    assert_eq!(elements(&control.source_xml).len(), elements(file).len());
    let skill = &control.attributes[control.attribute_index("skill").unwrap()];
    assert_eq!((skill.normalization_range, skill.trust), (Some((-1000.0, 1000.0)), Trust::Client));
    let [by_skill, by_latency] = &*control.soft_filters else { panic!("two soft filters") };
    assert_eq!((by_skill.weight, by_skill.mode), (0.4, SoftFilterObjective::Difference));
    assert_eq!((by_latency.weight, by_latency.mode), (0.6, SoftFilterObjective::LowerIsBetter));
    assert_eq!((by_latency.min, by_latency.max), (0.0, 300.0));
    // 100 points are worth 10 ms; dividing by half of the span would be wrong (B-9).
    assert!((by_skill.weight * 100.0 / 2_000.0 - 0.02).abs() < 1e-12);
    assert!((by_latency.weight * by_latency.normalize(10.0) - 0.02).abs() < 1e-12);
    let mutual = control.hard_filters.iter().filter_map(|hard| match hard.rule {
        HardRule::Within { measure, reciprocal_percent, .. } => Some((measure, reciprocal_percent)),
        _ => None,
    });
    assert_eq!(mutual.collect::<Vec<_>>(), [(Measure::AttributeDifference(0), 100.0), (Measure::Latency, 100.0)]);
}

/// Runs xmllint on files: success and output; `None` if it is not installed.
fn xmllint(files: &[PathBuf]) -> Option<(bool, String)> {
    let schema = root().join("rulesets/ruleset.xsd");
    let output = Command::new("xmllint").arg("--noout").arg("--schema").arg(schema).args(files).output().ok()?;
    Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The schema accepts what the server accepts, and refuses misspelt names.
#[test]
fn schema_accepts_what_the_server_accepts() {
    let (complete, broken): (Vec<PathBuf>, Vec<PathBuf>) = xml_files("tests/golden/rulesets")
        .into_iter()
        .partition(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("everything")));
    let valid = [xml_files("rulesets"), complete].concat();
    let Some((accepted, output)) = xmllint(&valid) else {
        // Not eprintln, whose output a passing test hides.
        let notice = "SKIPPED: xmllint is not installed (libxml2-utils), so rulesets/ruleset.xsd was not tested\n";
        std::io::stderr().write_all(notice.as_bytes()).unwrap();
        return;
    };
    assert!(accepted, "{output}");
    for path in broken {
        let (accepted, output) = xmllint(&[path]).unwrap();
        assert!(!accepted, "{output}");
    }
}

/// Each element and attribute of the schema is described in rulesets/README.md.
#[test]
fn schema_names_are_all_in_the_reference() {
    let schema = std::fs::read_to_string(root().join("rulesets/ruleset.xsd")).unwrap();
    let reference = std::fs::read_to_string(root().join("rulesets/README.md")).unwrap();
    let schema = roxmltree::Document::parse(&schema).unwrap();
    let named = schema.descendants().filter(|node| ["attribute", "element"].contains(&node.tag_name().name()));
    let names: Vec<&str> = named.filter_map(|node| node.attribute("name")).collect();
    assert!(80 < names.len());
    for name in names {
        assert!(reference.contains(&format!("`{name}`")) || reference.contains(&format!("<{name}")), "{name}");
    }
}

/// Editors find the schema from the root element. It is not part of the rules: without it, the hash is the same.
#[test]
fn shipped_rulesets_name_their_schema() {
    const SCHEMA: &str =
        r#" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:noNamespaceSchemaLocation="ruleset.xsd""#;
    for path in xml_files("rulesets") {
        let (name, text) = (path.display().to_string(), std::fs::read_to_string(&path).unwrap());
        let root_element = text.lines().find(|line| line.starts_with("<Ruleset ")).unwrap();
        assert!(root_element.contains(SCHEMA), "{name}: {root_element}");
        let parse = |text: &str| match rules::parse_ruleset_or_expansion_fragment(&name, text) {
            Ok(rules::RulesetFile::Ruleset(ruleset)) => ruleset.hash,
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(parse(&text), parse(&text.replace(SCHEMA, "")), "{name}");
    }
}
