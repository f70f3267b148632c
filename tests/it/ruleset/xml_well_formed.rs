//! XML well-formedness: compared with another parser on thousands of damaged files.

use fireteam::rules::bundled::BUNDLED_FILES;
use fireteam::rules::xml;
use proptest::prelude::*;

/// Pieces of XML syntax to damage a file with.
const PIECES: [&str; 40] = [
    "<",
    ">",
    "&",
    "'",
    "\"",
    "/",
    "=",
    " ",
    "\n",
    "-",
    "--",
    "]]>",
    "<!--",
    "-->",
    "<![CDATA[",
    "&amp;",
    "&#65;",
    "&#0;",
    "&x;",
    "</",
    "/>",
    "<a>",
    "</a>",
    "<a/>",
    "<1/>",
    "<a b='1' b='2'/>",
    "<a b='1'c='2'/>",
    "<a b=1/>",
    "<a b/>",
    "é",
    "x",
    "<a b='<'/>",
    "</Ruleset>",
    "< a/>",
    "</ a>",
    "<a / >",
    "<a b = 'c' >",
    "</a >",
    "&#x41;",
    "<a\u{a0}b='1'/>",
];

/// Well-formed XML that the parser refuses on purpose; see `src/rules/xml.rs`.
fn is_refused_by_choice(text: &str) -> bool {
    let unsupported_name = |name: &str| !name.is_ascii() || name.contains(':');
    let document = roxmltree::Document::parse(text);
    let has_unsupported_name = document.is_ok_and(|document| {
        document.descendants().filter(|node| node.is_element()).any(|node| {
            unsupported_name(node.tag_name().name())
                || node.attributes().any(|attribute| unsupported_name(attribute.name()))
        })
    });
    has_unsupported_name || text.contains("xmlns") || text.contains("<!DOCTYPE")
}

#[track_caller]
fn compare(text: &str) {
    let reference = roxmltree::Document::parse(text);
    match (xml::parse_document(text), &reference) {
        (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
        (Ok(_), Err(error)) => panic!("accepted, though {error}:\n{text}"),
        // The other parser does not check the XML declaration, and accepts processing instructions.
        (Err(mistake), Ok(_)) if ["XML declaration", "instruction"].iter().any(|it| mistake.problem.contains(it)) => {}
        (Err(mistake), Ok(_)) => assert!(
            is_refused_by_choice(text),
            "refused, {mistake:?} `{}`:\n{text}",
            &text[mistake.span.start..mistake.span.end]
        ),
    }
}

/// A small file, so that damage is likely to be near syntax.
const SMALL: &str = "<?xml version='1.0'?>\n<!-- a --><Ruleset Name='a &amp; b' SetId=\"1\">\n <A b='1' c=\"2\"/>\n \
                     <B>t &lt; &#65;<![CDATA[ < ]]></B></Ruleset>\n<!-- z -->\n";

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Inserts a piece or removes characters at up to four places.
    #[test]
    fn xml_parser_agrees_with_the_reference_on_damaged_files(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0_usize..4), 1..=4),
    ) {
        compare(&damaged(SMALL, &damage));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same with the shipped files; diagnostics never panic.
    #[test]
    fn xml_parser_agrees_with_the_reference_on_damaged_rulesets(
        file in 0..BUNDLED_FILES.len(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len(), 0_usize..4), 1..=4),
    ) {
        let text = damaged(BUNDLED_FILES[file].1, &damage);
        compare(&text);
        if let Err(problems) = fireteam::rules::parse_ruleset_or_expansion_fragment("damaged.xml", &text) {
            for problem in problems {
                prop_assert!(0 < problem.line && !problem.problem.is_empty() && !problem.fix.is_empty());
                prop_assert!(!problem.render_snippet().is_empty());
            }
        }
    }
}

fn damaged(text: &str, damage: &[(prop::sample::Index, usize, usize)]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (place, piece, cut) in damage {
        let at = place.index(letters.len() + 1);
        let end = (at + cut).min(letters.len());
        letters.splice(at..end, PIECES[*piece].chars());
    }
    letters.into_iter().collect()
}
