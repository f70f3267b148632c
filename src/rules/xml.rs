//! From XML to a draft, with every name and value's place in the file; strict, and bounded in every direction.
//!
//! quick-xml finds the tags; it is lenient where speed asks for it, so what it lets through is checked here: names,
//! white space between attributes, `<` in values, a second root, text around it. Nothing is ever fetched or expanded:
//! a DOCTYPE is refused, and only the five entities of XML itself and numbers of characters are known.

use quick_xml::XmlVersion;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

use crate::domain::limit::{
    RULESET_FILE_BYTES_MAX, RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX, RULESET_XML_DEPTH_MAX, RULESET_XML_ELEMENTS_MAX,
};
use crate::domain::ruleset::raw::{Diagnostic, RawAttribute, RawElement, Span, quoted_excerpt};

/// What editors put on a root element to find the schema; it says nothing to a server.
const SCHEMA_PREFIX: &str = "xsi:";
const SCHEMA_DECLARATION: (&str, &str) = ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance");

/// The root element of `text`, or the one thing that keeps it from being XML.
///
/// A byte order mark is skipped. Comments are dropped. Attributes for editors (`xsi:…`) on the root are dropped.
pub fn parse_document(text: &str) -> Result<RawElement, Diagnostic> {
    if RULESET_FILE_BYTES_MAX < text.len() {
        let what = format!("the file has {} bytes", text.len());
        return Err(diagnostic(Span::default(), what, format!("keep it to {RULESET_FILE_BYTES_MAX}")));
    }
    let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if let Some((at, letter)) = text[offset..].char_indices().find(|(_, letter)| !is_allowed_char(*letter)) {
        let span = Span { start: offset + at, end: offset + at + letter.len_utf8() };
        return Err(diagnostic(span, format!("character U+{:04X} is not allowed", u32::from(letter)), "delete it"));
    }
    XmlTreeBuilder { text, bom_length: offset, open_elements: Vec::new(), root: None, element_count: 0 }.build()
}

/// What XML 1.0 allows, less the control characters that it merely discourages.
fn is_allowed_char(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r') || !(letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}'))
}

fn diagnostic(span: Span, what: impl Into<String>, right: impl Into<String>) -> Diagnostic {
    Diagnostic { span, problem: what.into(), fix: right.into() }
}

/// The tree as it grows: open elements on a stack, so that no depth of nesting is a depth of calls.
struct XmlTreeBuilder<'a> {
    text: &'a str,
    /// Bytes before the part that the reader sees.
    bom_length: usize,
    open_elements: Vec<RawElement>,
    root: Option<RawElement>,
    element_count: usize,
}

impl<'a> XmlTreeBuilder<'a> {
    fn build(mut self) -> Result<RawElement, Diagnostic> {
        let mut reader = Reader::from_str(&self.text[self.bom_length..]);
        reader.config_mut().check_comments = true;
        loop {
            let start = self.bom_length + reader.buffer_position() as usize;
            let event = match reader.read_event() {
                Ok(event) => event,
                Err(error) => {
                    return Err(self.syntax_diagnostic(&error, self.bom_length + reader.error_position() as usize));
                }
            };
            let here = Span { start, end: self.bom_length + reader.buffer_position() as usize };
            match event {
                Event::Start(tag) => self.open_element(&tag, start)?,
                Event::Empty(tag) => {
                    self.open_element(&tag, start)?;
                    self.close_element();
                }
                Event::End(_) => self.close_element(),
                Event::Text(text) => self.check_text(&text, here)?,
                Event::CData(_) => self.record_text_span(here)?,
                Event::GeneralRef(reference) => self.check_entity_reference(&reference, here)?,
                Event::Comment(_) => {}
                Event::Decl(_) => self.check_xml_declaration(here)?,
                Event::PI(_) => return Err(diagnostic(here, "a processing instruction is not allowed", "delete it")),
                Event::DocType(_) => {
                    let what = "a DOCTYPE is not allowed: it could declare entities";
                    return Err(diagnostic(here, what, "delete it; rulesets/ruleset.xsd is the schema"));
                }
                Event::Eof => return self.finish_document(here),
            }
        }
    }

    /// Opens an element. The element that it belongs to is below it on the stack.
    fn open_element(&mut self, tag: &BytesStart<'_>, start: usize) -> Result<(), Diagnostic> {
        let tag_name = tag.name();
        let name: &str = tag_name.as_ref();
        let span = Span { start: start + 1, end: start + 1 + name.len() };
        if !is_valid_name(name) {
            return Err(diagnostic(
                span,
                format!("{} is not a name of an element", quoted_excerpt(name)),
                "begin it with a letter",
            ));
        }
        if self.open_elements.is_empty() && self.root.is_some() {
            return Err(diagnostic(span, "a second root element begins", "keep one <Ruleset> in a file"));
        }
        if self.open_elements.len() == RULESET_XML_DEPTH_MAX {
            return Err(diagnostic(
                span,
                "elements are nested too deep",
                format!("keep to {RULESET_XML_DEPTH_MAX} levels"),
            ));
        }
        self.element_count += 1;
        if RULESET_XML_ELEMENTS_MAX < self.element_count {
            return Err(diagnostic(span, "there are too many elements", format!("keep to {RULESET_XML_ELEMENTS_MAX}")));
        }
        let attributes = self.read_attributes(tag, span)?;
        self.open_elements.push(RawElement {
            name: name.into(),
            name_span: span,
            attributes,
            children: Vec::new(),
            text_span: None,
        });
        Ok(())
    }

    /// Closes the innermost element; the reader has seen that the names agree.
    fn close_element(&mut self) {
        let Some(element) = self.open_elements.pop() else { return };
        match self.open_elements.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn read_attributes(&self, tag: &BytesStart<'_>, tag_span: Span) -> Result<Vec<RawAttribute>, Diagnostic> {
        let mut attributes = Vec::new();
        let mut schema_is_declared = false;
        let body = tag_span.start;
        for (count, attribute) in tag.attributes().enumerate() {
            let attribute = attribute.map_err(|error| attribute_diagnostic(&error, body))?;
            let key: &str = attribute.key.as_ref();
            let raw: &str = &attribute.value;
            let (name_span, value_span) = (self.span_of(key, tag, body), self.span_of(raw, tag, body));
            if count == RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX {
                let right = format!("keep to {RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX}");
                return Err(diagnostic(name_span, "the element has too many attributes", right));
            }
            let before = self.text.get(..name_span.start).unwrap_or_default();
            if !before.ends_with([' ', '\t', '\n', '\r']) {
                return Err(diagnostic(name_span, "no space stands before the attribute", "put one there"));
            }
            if raw.contains('<') {
                return Err(diagnostic(value_span, "a value holds `<`", "write `&lt;`, or close the quote before it"));
            }
            let value =
                attribute.normalized_value(XmlVersion::Implicit1_0).ok().filter(|it| it.chars().all(is_allowed_char));
            let Some(value) = value else {
                let right = "write `&amp;` for a plain `&`; only amp, lt, gt, quot, apos and numbers are known";
                return Err(diagnostic(value_span, "a value holds a reference that means nothing", right));
            };
            if self.open_elements.is_empty() && (key == SCHEMA_DECLARATION.0 || key.starts_with(SCHEMA_PREFIX)) {
                schema_is_declared |= (key, &*value) == SCHEMA_DECLARATION;
                if !is_valid_name(key.strip_prefix(SCHEMA_PREFIX).unwrap_or("xsi")) {
                    return Err(diagnostic(name_span, format!("{} is not a name", quoted_excerpt(key)), "delete it"));
                }
                if !schema_is_declared {
                    let (name, value) = SCHEMA_DECLARATION;
                    return Err(diagnostic(
                        name_span,
                        "`xsi` is not declared",
                        format!("write {name}=\"{value}\" before it"),
                    ));
                }
                continue;
            }
            if !is_valid_name(key) || key == "xmlns" {
                return Err(diagnostic(
                    name_span,
                    format!("{} is not a name of an attribute", quoted_excerpt(key)),
                    "rename it",
                ));
            }
            attributes.push(RawAttribute { name: key.into(), name_span, value: value.into(), value_span });
        }
        Ok(attributes)
    }

    /// Where `part`, a piece of the tag whose content begins at `body`, stands in the file.
    fn span_of(&self, part: &str, tag: &BytesStart<'_>, body: usize) -> Span {
        let content: &str = tag;
        let start = body + (part.as_ptr() as usize).saturating_sub(content.as_ptr() as usize);
        Span { start, end: start + part.len() }
    }

    fn check_text(&mut self, text: &str, here: Span) -> Result<(), Diagnostic> {
        if let Some(at) = text.find("]]>") {
            let span = Span { start: here.start + at, end: here.start + at + 3 };
            return Err(diagnostic(span, "`]]>` ends nothing here", "delete it"));
        }
        let blank = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
        if blank == text.len() {
            return Ok(());
        }
        let shown = text.trim_matches([' ', '\t', '\n', '\r']).len();
        self.record_text_span(Span { start: here.start + blank, end: here.start + blank + shown })
    }

    /// Notes that the innermost element holds text; there must be one.
    fn record_text_span(&mut self, span: Span) -> Result<(), Diagnostic> {
        let Some(element) = self.open_elements.last_mut() else {
            return Err(diagnostic(span, "text stands outside of the root element", "delete it, or write <Ruleset …>"));
        };
        element.text_span.get_or_insert(span);
        Ok(())
    }

    fn check_entity_reference(&mut self, reference: &BytesRef<'_>, here: Span) -> Result<(), Diagnostic> {
        let known = match reference.resolve_char_ref() {
            Ok(Some(letter)) => is_allowed_char(letter),
            Ok(None) => ["amp", "lt", "gt", "quot", "apos"].contains(&&**reference),
            Err(_) => false,
        };
        if !known {
            let what = format!("{} means nothing", quoted_excerpt(&self.text[here.start..here.end]));
            return Err(diagnostic(here, what, "write `&amp;` for a plain `&`"));
        }
        self.record_text_span(here)
    }

    /// `<?xml version="1.0" encoding="UTF-8"?>`, in the first place or not at all.
    fn check_xml_declaration(&self, here: Span) -> Result<(), Diagnostic> {
        let right = "write <?xml version=\"1.0\" encoding=\"UTF-8\"?>, or leave it out";
        if here.start != self.bom_length {
            return Err(diagnostic(
                here,
                "the XML declaration is not at the very beginning",
                "put it there or delete it",
            ));
        }
        let inside = self.text[here.start..here.end].trim_start_matches("<?xml").trim_end_matches("?>");
        is_valid_xml_declaration(inside)
            .then_some(())
            .ok_or_else(|| diagnostic(here, "the XML declaration is unknown", right))
    }

    fn finish_document(mut self, here: Span) -> Result<RawElement, Diagnostic> {
        if let Some(element) = self.open_elements.pop() {
            return Err(diagnostic(
                element.name_span,
                format!("<{}> is never closed", element.name),
                unclosed_element_fix(&element.name),
            ));
        }
        self.root.ok_or_else(|| diagnostic(here, "the file holds no element", "write a <Ruleset …>"))
    }

    fn syntax_diagnostic(&self, error: &Error, at: usize) -> Diagnostic {
        let rest = self.text.get(at..).unwrap_or_default();
        let line = rest.find(['>', '\n']).map_or(rest.len(), |end| end + 1);
        let span = Span { start: at, end: at + rest[..line].trim_end().len().max(1) };
        match error {
            Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
                let what = format!("</{}> closes <{}>", sanitized_excerpt(found), sanitized_excerpt(expected));
                diagnostic(
                    span,
                    what,
                    format!("write </{}>, or close what was opened in between", sanitized_excerpt(expected)),
                )
            }
            Error::IllFormed(IllFormedError::UnmatchedEndTag(found)) => diagnostic(
                span,
                format!("</{}> closes nothing", sanitized_excerpt(found)),
                "delete it, or open it first",
            ),
            Error::IllFormed(IllFormedError::UnclosedReference) => {
                diagnostic(span, "`&` begins a reference that does not end", "write `&amp;` for a plain `&`")
            }
            Error::IllFormed(IllFormedError::DoubleHyphenInComment) => {
                diagnostic(span, "a comment holds `--`", "write a single hyphen: XML ends comments with `-->` alone")
            }
            other => {
                diagnostic(span, format!("this is not XML: {}", sanitized_excerpt(&other.to_string())), "close it")
            }
        }
    }
}

fn unclosed_element_fix(name: &str) -> String {
    format!("write </{name}> where it ends, or <{name} …/> if it holds nothing")
}

fn sanitized_excerpt(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(100).collect()
}

/// A name as this grammar needs it: XML's own, without colons and beyond ASCII only letters and digits.
fn is_valid_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || "_-.".contains(letter))
        && name.is_ascii()
}

fn is_valid_xml_declaration(inside: &str) -> bool {
    let mut rest = inside;
    let mut pseudo = |name: &str, values: &[&str]| -> Option<bool> {
        let spaced = rest.trim_start();
        let Some(after) = spaced.strip_prefix(name).filter(|_| spaced.len() < rest.len()) else { return Some(false) };
        let after = after.trim_start().strip_prefix('=')?.trim_start();
        let quote = after.chars().next().filter(|quote| "\"'".contains(*quote))?;
        let (value, after) = after[1..].split_once(quote)?;
        rest = after;
        values.iter().any(|known| known.eq_ignore_ascii_case(value)).then_some(true)
    };
    let version = pseudo("version", &["1.0"]);
    let sound = version == Some(true) && pseudo("encoding", &["utf-8"]).is_some();
    let sound = sound && pseudo("standalone", &["yes", "no"]).is_some();
    sound && rest.trim().is_empty()
}

fn attribute_diagnostic(error: &AttrError, body: usize) -> Diagnostic {
    let at = |position: usize| Span { start: body + position, end: body + position + 1 };
    match *error {
        AttrError::ExpectedEq(position) => {
            diagnostic(at(position), "an attribute has no value", "write name=\"value\"")
        }
        AttrError::ExpectedValue(position) => {
            diagnostic(at(position), "an attribute has no value", "write it in quotes")
        }
        AttrError::UnquotedValue(position) => {
            diagnostic(at(position), "a value stands without quotes", "put it between \" and \"")
        }
        AttrError::ExpectedQuote(position, _) => diagnostic(at(position), "a value has no closing quote", "add it"),
        AttrError::Duplicated(position, _) => {
            diagnostic(at(position), "the attribute is here a second time", "keep one of them")
        }
    }
}
