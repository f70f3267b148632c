//! Documents that were written to hurt: each is refused, quickly, by name of what is wrong with it.

use fireteam::rules;
use fireteam::rules::RenderedDiagnostic;

use crate::support::hostile_documents::hostile_documents;

fn read(bytes: &[u8]) -> Result<(), Vec<RenderedDiagnostic>> {
    rules::decode_utf8("hostile.xml", bytes).and_then(|text| rules::parse_ruleset("hostile.xml", text).map(|_| ()))
}

/// SEC-14: what such a document may cost in memory, bytes.
const MEMORY_MAX: u64 = 32 << 20;

/// SEC-14: each is refused for what it is, in one line, and at little cost.
#[test]
fn twenty_hostile_documents_are_refused() {
    let mut most_bytes = 0;
    for (name, bytes, part) in hostile_documents() {
        let mut problems = Vec::new();
        let cost = allocation_counter::measure(|| problems = read(&bytes).expect_err(name));
        most_bytes = cost.bytes_max.max(most_bytes);
        assert!(cost.bytes_max <= MEMORY_MAX, "{name}: {} bytes", cost.bytes_max);
        assert_eq!(problems.len(), 1, "{name}");
        let said = problems[0].to_string();
        assert!(said.contains(part), "{name}: {said}");
        assert!(said.len() < 400 && !said.contains('\n'), "{name}: {said}");
        // A picture of one endless line must not be endless as well.
        assert!(problems[0].render_snippet().len() < 4_000, "{name}: {} bytes", problems[0].render_snippet().len());
    }
    println!("{} documents; the dearest took {most_bytes} bytes", hostile_documents().len());
}

/// A file with a mistake in every element gets a list that a person can read to its end.
#[test]
fn mistakes_are_counted_only_so_far() {
    let text = format!("<Ruleset Name='r' SetId='1'>{}</Ruleset>", "<Nonsense/>".repeat(9_000));
    assert_eq!(
        rules::parse_ruleset("many.xml", &text).unwrap_err().len(),
        fireteam::domain::limit::REPORTED_RULESET_PROBLEMS_MAX
    );
}

/// What a person writes by way of a name comes back shortened and on one line.
#[test]
fn a_message_is_one_line_whatever_a_name_holds() {
    let text = format!("<Ruleset Name='r' SetId='&#10;{}'/>", "9".repeat(10_000));
    let problems = rules::parse_ruleset("long.xml", &text).unwrap_err();
    let said = problems[0].to_string();
    assert!(said.len() < 400 && !said.contains('\n'), "{said}");
}

/// An editor's byte order mark, XML declaration and schema hint are welcome.
#[test]
fn what_editors_add_is_accepted() {
    let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone='yes' ?>
        <Ruleset xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"
                 xsi:noNamespaceSchemaLocation=\"ruleset.xsd\" Name=\"a &amp; b\" SetId=\"1\"/>";
    assert_eq!(&*rules::parse_ruleset("editor.xml", text).unwrap().name, "a & b");
}
