//! The hash names a ruleset's meaning: another spelling keeps it, another number changes it.

use std::collections::BTreeSet;

use fireteam::domain::id::RulesetHash;
use fireteam::rules;
use fireteam::rules::bundled::FILES;
use proptest::prelude::*;

/// A ruleset that uses every section.
const EVERYTHING: &str = include_str!("../golden/rulesets/everything.xml");

fn hash(text: &str) -> RulesetHash {
    match rules::parse("hash.xml", text) {
        Ok(ruleset) => ruleset.hash,
        Err(problems) => panic!("{}\n{text}", problems.iter().map(|it| format!("{it}\n")).collect::<String>()),
    }
}

/// One element as its name, attributes and children, for writing it another way.
fn respell(node: roxmltree::Node<'_, '_>, dice: &mut impl FnMut(usize) -> usize, out: &mut String) {
    let space = |dice: &mut dyn FnMut(usize) -> usize| ["", " ", "\n", "\t ", "<!-- a word -->\n"][dice(5)];
    let name = node.tag_name().name();
    out.push_str(&format!("<{name}"));
    let mut attributes: Vec<_> = node.attributes().collect();
    while !attributes.is_empty() {
        let attribute = attributes.swap_remove(dice(attributes.len()));
        let quote = ['"', '\''][dice(2)];
        let gap = [" ", "\n  ", "\t"][dice(3)];
        let equals = ["=", " = "][dice(2)];
        out.push_str(&format!("{gap}{}{equals}{quote}{}{quote}", attribute.name(), attribute.value()));
    }
    let children: Vec<_> = node.children().filter(|child| child.is_element()).collect();
    if children.is_empty() && dice(2) == 0 {
        out.push_str("/>");
        return;
    }
    out.push('>');
    for child in children {
        out.push_str(space(dice));
        respell(child, dice, out);
    }
    out.push_str(space(dice));
    out.push_str(&format!("</{name}>"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// S1-11: white space, comments, attribute order, quotes and empty tags are spelling.
    #[test]
    fn another_spelling_keeps_the_hash(file in 0..=FILES.len(), rolls in proptest::collection::vec(any::<u16>(), 64)) {
        let text = FILES.get(file).map_or(EVERYTHING, |(_, text)| text);
        let document = roxmltree::Document::parse(text).unwrap();
        let mut at = 0;
        let mut dice = |sides: usize| { at += 1; usize::from(rolls[at % rolls.len()]) % sides };
        let mut other = String::from("<!-- respelt -->\n");
        respell(document.root_element(), &mut dice, &mut other);
        prop_assert_eq!(hash(text), hash(&other));
    }
}

/// S1-11: every number is part of the meaning. All of them are tried, none is drawn.
#[test]
fn another_number_changes_the_hash() {
    for (start, end) in numbers_of(EVERYTHING) {
        let value: f64 = EVERYTHING[start..end].parse().unwrap();
        for by in [1.0, 2.0] {
            let other = format!("{}{}{}", &EVERYTHING[..start], value + by, &EVERYTHING[end..]);
            assert_ne!(hash(EVERYTHING), hash(&other), "{value} + {by} at {start}:\n{other}");
        }
    }
}

/// S1-11: so is every word of a closed list.
#[test]
fn another_word_changes_the_hash() {
    let words = [
        ("Reduce=\"max\"", "Reduce=\"min\""),
        ("Trust=\"client\"", "Trust=\"token\""),
        ("Value=\"true\"", "Value=\"false\""),
        ("duel brawl", "duel"),
        ("Mutual=\"true\"", "Mutual=\"false\""),
        ("Missing=\"refuse\"", "Missing=\"pass\""),
        ("1-1 2-1", "1-1"),
        ("<SameHash/>", ""),
        ("\"square_root\"", "\"linear\""),
        ("Missing=\"neutral\"", "Missing=\"worst\""),
        ("Mode=\"lower_is_better\"", "Mode=\"difference\""),
        ("Type=\"skill\"", "Type=\"level\""),
        ("Consent=\"required\"", "Consent=\"assumed\""),
        ("RoleAttribute=\"roles\"", "RoleAttribute=\"maps\""),
        ("Name=\"tank\"", "Name=\"scout\""),
        ("PartyRating=\"median\"", "PartyRating=\"mean\""),
        ("Rounding=\"down\"", "Rounding=\"up\""),
        ("SkipUnchanged=\"false\"", "SkipUnchanged=\"true\""),
        ("\"bronze\"", "\"copper\""),
        ("Rounding=\"floor\"", "Rounding=\"ceiling\""),
        ("Combine=\"larger\"", "Combine=\"smaller\""),
        ("Clock=\"ticket\"", "Clock=\"queue\""),
        ("DivideBy=\"span\"", "DivideBy=\"count\""),
        ("Curve=\"quadratic\"", "Curve=\"linear\""),
        ("\"best_window\"", "\"nearest\""),
        ("\"highest_rated\"", "\"longest_waiting\""),
        ("Silos=\"3 7\"", "Silos=\"any\""),
    ];
    for (from, to) in words {
        assert!(EVERYTHING.contains(from), "{from}");
        assert_ne!(hash(EVERYTHING), hash(&EVERYTHING.replacen(from, to, 1)), "{from}");
    }
}

/// Where the numbers of quoted values stand, but for two that are no choice: -1, for ever, and the place in a table.
fn numbers_of(text: &str) -> Vec<(usize, usize)> {
    let document = roxmltree::Document::parse(text).unwrap();
    let elements = document.descendants().filter(|node| node.is_element());
    let values = elements.flat_map(|node| node.attributes().collect::<Vec<_>>());
    let values = values.filter(|attribute| attribute.name() != "PartySize");
    let numbers = values.filter(|attribute| attribute.value().parse::<f64>().is_ok_and(|number| 0.0 <= number));
    let found: Vec<_> =
        numbers.map(|attribute| attribute.range_value()).map(|range| (range.start, range.end)).collect();
    assert!(60 < found.len(), "only {} numbers were found", found.len());
    found
}

/// What is for people only is no part of the meaning; what clients and answers use is.
#[test]
fn names_for_people_do_not_count_and_handles_do() {
    let (_, duel) = FILES[2];
    assert_eq!(hash(duel), hash(&duel.replace("Name=\"Ranked duel\"", "Name=\"Duel\"")));
    assert_eq!(hash(duel), hash(&duel.replace("Unit=\"points\"", "Unit=\"stars\"")));
    assert_ne!(hash(duel), hash(&duel.replace("\"not_begun\"", "\"fresh\"")));
    assert_ne!(hash(duel), hash(&duel.replace("Trust=\"client\"", "Trust=\"server\"")));
    assert_ne!(hash(duel), hash(&duel.replace("Missing=\"refuse\"", "Missing=\"pass\"")));
}

/// S1-35: what a default says and what is said are one meaning; so are three equal steps and one long one.
#[test]
fn saying_the_default_changes_nothing() {
    let short = "<Ruleset Name='a' SetId='1'><ExpansionConfigs><ExpansionConfig Name='x' Type='latency'>\
        <Expansion ExpansionDurationMs='3000' Value='1'/><Expansion ExpansionDurationMs='-1' Value='2'/>\
        </ExpansionConfig></ExpansionConfigs></Ruleset>";
    let cut = "<Expansion ExpansionDurationMs='1000' Value='1'/><Expansion ExpansionDurationMs='2000' Value='1'/>";
    assert_eq!(hash(short), hash(&short.replace("<Expansion ExpansionDurationMs='3000' Value='1'/>", cut)));
    assert_eq!(hash(short), hash(&short.replace("SetId='1'", "SetId='1' Silos='any'")));
    let limits = "<Limits MaxResults='50' MaxEvaluated='20000'/></Ruleset>";
    assert_eq!(hash(short), hash(&short.replace("</Ruleset>", limits)));
}

/// The hash is 32 bits of SHA-256 and never 0; these values change only when the meaning of a shipped file does.
#[test]
fn shipped_files_have_hashes_of_their_own() {
    let hashes: BTreeSet<RulesetHash> = FILES.iter().map(|(_, text)| hash(text)).collect();
    assert_eq!(hashes.len(), FILES.len());
    assert!(!hashes.contains(&RulesetHash(0)));
}
