//! Hostile ruleset documents, for the tests and for the benchmark that times them.

fn billion_laughs() -> String {
    let entities: String =
        (1..10).map(|at| format!("<!ENTITY l{at} \"{}\">", format!("&l{};", at - 1).repeat(10))).collect();
    format!("<!DOCTYPE r [<!ENTITY l0 \"ha\">{entities}]><Ruleset Name='&l9;' SetId='1'/>")
}

fn ruleset_with_attributes(count: usize) -> String {
    let attributes: String = (0..count).map(|at| format!(" a{at}='x'")).collect();
    format!("<Ruleset{attributes}/>")
}

fn to_utf16_le(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

/// Twenty hostile documents: name, bytes, and a part of the expected error.
pub(crate) fn hostile_documents() -> [(&'static str, Vec<u8>, &'static str); 20] {
    let valid = "<Ruleset Name='r' SetId='1'/>";
    [
        ("a billion laughs", billion_laughs().into(), "DOCTYPE"),
        ("an external entity", "<!DOCTYPE r [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><r>&x;</r>".into(), "DOCTYPE"),
        ("an external schema", "<!DOCTYPE r SYSTEM \"http://127.0.0.1/x.dtd\"><r/>".into(), "DOCTYPE"),
        ("a parameter entity", "<!DOCTYPE r [<!ENTITY % p SYSTEM \"x\"> %p;]><r/>".into(), "DOCTYPE"),
        ("an undeclared entity", "<Ruleset Name='&x;' SetId='1'/>".into(), "reference"),
        ("80,000 attributes", ruleset_with_attributes(80_000).into(), "bytes"),
        ("65 attributes", ruleset_with_attributes(65).into(), "too many attributes"),
        ("a depth of 100,000", "<r>".repeat(100_000).into(), "bytes"),
        ("a depth of 65", ("<r>".repeat(65) + &"</r>".repeat(65)).into(), "nested too deep"),
        ("10,001 elements", format!("<r>{}</r>", "<a/>".repeat(10_000)).into(), "too many elements"),
        (
            "300 namespaces",
            format!("<r{}/>", (0..300).map(|at| format!(" xmlns:n{at}='u'")).collect::<String>()).into(),
            "not a valid attribute name",
        ),
        ("UTF-16", to_utf16_le(valid), "UTF-8"),
        ("UTF-7 by declaration", format!("<?xml version='1.0' encoding='UTF-7'?>{valid}").into(), "declaration"),
        ("UTF-16 by declaration", format!("<?xml version='1.0' encoding='UTF-16'?>{valid}").into(), "declaration"),
        ("a NUL", valid.replace("'r'", "'r\0'").into(), "U+0000"),
        ("a NUL by reference", valid.replace("'r'", "'&#0;'").into(), "reference"),
        ("a control character by reference", valid.replace("'r'", "'&#x1b;'").into(), "reference"),
        ("more bytes than allowed", format!("{valid}<!--{}-->", "x".repeat(300_000)).into(), "bytes"),
        ("a second root", format!("{valid}{valid}").into(), "second root"),
        ("a repeated attribute", "<Ruleset Name='a' Name='b' SetId='1'/>".into(), "second time"),
    ]
}
