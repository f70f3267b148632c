//! Documents that were written to hurt: each is refused, quickly, by name of what is wrong with it.

use fireteam::rules;

fn laughs() -> String {
    let entities: String =
        (1..10).map(|at| format!("<!ENTITY l{at} \"{}\">", format!("&l{};", at - 1).repeat(10))).collect();
    format!("<!DOCTYPE r [<!ENTITY l0 \"ha\">{entities}]><Ruleset Name='&l9;' SetId='1'/>")
}

fn with_attributes(count: usize) -> String {
    let attributes: String = (0..count).map(|at| format!(" a{at}='x'")).collect();
    format!("<Ruleset{attributes}/>")
}

fn utf16(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

/// SEC-14: twenty hostile documents and a part of what is said about each.
#[test]
fn twenty_hostile_documents_are_refused() {
    let sound = "<Ruleset Name='r' SetId='1'/>";
    let documents: [(&str, Vec<u8>, &str); 20] = [
        ("a billion laughs", laughs().into(), "DOCTYPE"),
        ("an external entity", "<!DOCTYPE r [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><r>&x;</r>".into(), "DOCTYPE"),
        ("an external schema", "<!DOCTYPE r SYSTEM \"http://127.0.0.1/x.dtd\"><r/>".into(), "DOCTYPE"),
        ("a parameter entity", "<!DOCTYPE r [<!ENTITY % p SYSTEM \"x\"> %p;]><r/>".into(), "DOCTYPE"),
        ("an undeclared entity", "<Ruleset Name='&x;' SetId='1'/>".into(), "reference"),
        ("80,000 attributes", with_attributes(80_000).into(), "bytes"),
        ("65 attributes", with_attributes(65).into(), "too many attributes"),
        ("a depth of 100,000", "<r>".repeat(100_000).into(), "bytes"),
        ("a depth of 65", ("<r>".repeat(65) + &"</r>".repeat(65)).into(), "nested too deep"),
        ("10,001 elements", format!("<r>{}</r>", "<a/>".repeat(10_000)).into(), "too many elements"),
        (
            "300 namespaces",
            format!("<r{}/>", (0..300).map(|at| format!(" xmlns:n{at}='u'")).collect::<String>()).into(),
            "not a name",
        ),
        ("UTF-16", utf16(sound), "UTF-8"),
        ("UTF-7 by declaration", format!("<?xml version='1.0' encoding='UTF-7'?>{sound}").into(), "declaration"),
        ("UTF-16 by declaration", format!("<?xml version='1.0' encoding='UTF-16'?>{sound}").into(), "declaration"),
        ("a NUL", sound.replace("'r'", "'r\0'").into(), "U+0000"),
        ("a NUL by reference", sound.replace("'r'", "'&#0;'").into(), "reference"),
        ("a control character by reference", sound.replace("'r'", "'&#x1b;'").into(), "reference"),
        ("more than it may have", format!("{sound}<!--{}-->", "x".repeat(300_000)).into(), "bytes"),
        ("a second root", format!("{sound}{sound}").into(), "second root"),
        ("an attribute said twice", "<Ruleset Name='a' Name='b' SetId='1'/>".into(), "second time"),
    ];
    for (name, bytes, part) in documents {
        let problems = rules::text_of("hostile.xml", &bytes)
            .and_then(|text| rules::parse("hostile.xml", text).map(|_| ()))
            .expect_err(name);
        assert_eq!(problems.len(), 1, "{name}");
        let said = problems[0].to_string();
        assert!(said.contains(part), "{name}: {said}");
        assert!(said.len() < 400 && !said.contains('\n'), "{name}: {said}");
        // A picture of one endless line must not be endless as well.
        assert!(problems[0].picture().len() < 4_000, "{name}: {} bytes", problems[0].picture().len());
    }
}

/// A file with a mistake in every element gets a list that a person can read to its end.
#[test]
fn mistakes_are_counted_only_so_far() {
    let text = format!("<Ruleset Name='r' SetId='1'>{}</Ruleset>", "<Nonsense/>".repeat(9_000));
    assert_eq!(rules::parse("many.xml", &text).unwrap_err().len(), fireteam::domain::limit::PROBLEMS_MAX);
}

/// What a person writes by way of a name comes back shortened and on one line.
#[test]
fn a_message_is_one_line_whatever_a_name_holds() {
    let text = format!("<Ruleset Name='r' SetId='&#10;{}'/>", "9".repeat(10_000));
    let problems = rules::parse("long.xml", &text).unwrap_err();
    let said = problems[0].to_string();
    assert!(said.len() < 400 && !said.contains('\n'), "{said}");
}

/// An editor's byte order mark, XML declaration and schema hint are welcome.
#[test]
fn what_editors_add_is_accepted() {
    let text = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone='yes' ?>
        <Ruleset xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\"
                 xsi:noNamespaceSchemaLocation=\"ruleset.xsd\" Name=\"a &amp; b\" SetId=\"1\"/>";
    assert_eq!(&*rules::parse("editor.xml", text).unwrap().name, "a & b");
}
