//! Hostile ruleset documents: each is refused quickly, with a short message that names the problem.

use fireteam::rules;
use fireteam::rules::FileDiagnostic;

use crate::support::hostile_documents::hostile_documents;

fn read(bytes: &[u8]) -> Result<(), Vec<FileDiagnostic>> {
    rules::ruleset_text_from_bytes("hostile.xml", bytes)
        .and_then(|text| rules::parse_ruleset("hostile.xml", text).map(|_| ()))
}

/// SEC-14: memory limit for one document, bytes.
const MEMORY_MAX: u64 = 32 << 20;

/// SEC-14: each document is refused with one line and within the memory limit.
#[test]
fn hostile_documents_are_refused_within_the_memory_limit() {
    let mut most_bytes = 0;
    for (name, bytes, part) in hostile_documents() {
        let mut problems = Vec::new();
        let cost = allocation_counter::measure(|| problems = read(&bytes).expect_err(name));
        most_bytes = cost.bytes_max.max(most_bytes);
        assert!(cost.bytes_max <= MEMORY_MAX, "{name}: {} bytes", cost.bytes_max);
        assert_eq!(problems.len(), 1, "{name}");
        let message = problems[0].to_string();
        assert!(message.contains(part), "{name}: {message}");
        assert!(message.len() < 400 && !message.contains('\n'), "{name}: {message}");
        // The snippet of a very long line must be short.
        assert!(problems[0].render_snippet().len() < 4_000, "{name}: {} bytes", problems[0].render_snippet().len());
    }
    println!("{} documents; the largest used {most_bytes} bytes", hostile_documents().len());
}

/// The number of problems reported for one file is limited.
#[test]
fn ruleset_problems_are_limited_in_number() {
    let text = format!("<Ruleset Name='r' SetId='1'>{}</Ruleset>", "<Nonsense/>".repeat(9_000));
    assert_eq!(
        rules::parse_ruleset("many.xml", &text).unwrap_err().len(),
        fireteam::domain::limit::REPORTED_RULESET_PROBLEMS_MAX
    );
}

/// A long or multi-line name is shortened to one line in the message.
#[test]
fn ruleset_message_with_a_long_name_is_one_line() {
    let text = format!("<Ruleset Name='r' SetId='&#10;{}'/>", "9".repeat(10_000));
    let problems = rules::parse_ruleset("long.xml", &text).unwrap_err();
    let message = problems[0].to_string();
    assert!(message.len() < 400 && !message.contains('\n'), "{message}");
}

/// A byte order mark, an XML declaration and a schema hint are accepted.
#[test]
fn ruleset_with_bom_and_schema_hint_is_accepted() {
    let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone='yes' ?>
        <Ruleset xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"
                 xsi:noNamespaceSchemaLocation=\"ruleset.xsd\" Name=\"a &amp; b\" SetId=\"1\"/>";
    assert_eq!(&*rules::parse_ruleset("editor.xml", text).unwrap().name, "a & b");
}
