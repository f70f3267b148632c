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

use crate::domain::limit::{RULESET_ATTRIBUTES_MAX, RULESET_BYTES_MAX, RULESET_DEPTH_MAX, RULESET_ELEMENTS_MAX};
use crate::domain::ruleset::draft::{Element, Mistake, Span, Written, quoted};

/// What editors put on a root element to find the schema; it says nothing to a server.
const SCHEMA_PREFIX: &str = "xsi:";
const SCHEMA_DECLARATION: (&str, &str) = ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance");

/// The root element of `text`, or the one thing that keeps it from being XML.
///
/// A byte order mark is skipped. Comments are dropped. Attributes for editors (`xsi:…`) on the root are dropped.
pub fn parse(text: &str) -> Result<Element, Mistake> {
    if RULESET_BYTES_MAX < text.len() {
        let what = format!("the file has {} bytes", text.len());
        return Err(mistake(Span::default(), what, format!("keep it to {RULESET_BYTES_MAX}")));
    }
    let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if let Some((at, letter)) = text[offset..].char_indices().find(|(_, letter)| !is_allowed(*letter)) {
        let span = Span { start: offset + at, end: offset + at + letter.len_utf8() };
        return Err(mistake(span, format!("character U+{:04X} is not allowed", u32::from(letter)), "delete it"));
    }
    Tree { text, offset, open: Vec::new(), root: None, elements: 0 }.grow()
}

/// What XML 1.0 allows, less the control characters that it merely discourages.
fn is_allowed(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r') || !(letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}'))
}

fn mistake(span: Span, what: impl Into<String>, right: impl Into<String>) -> Mistake {
    Mistake { span, what: what.into(), right: right.into() }
}

/// The tree as it grows: open elements on a stack, so that no depth of nesting is a depth of calls.
struct Tree<'a> {
    text: &'a str,
    /// Bytes before the part that the reader sees.
    offset: usize,
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
}

impl<'a> Tree<'a> {
    fn grow(mut self) -> Result<Element, Mistake> {
        let mut reader = Reader::from_str(&self.text[self.offset..]);
        reader.config_mut().check_comments = true;
        loop {
            let start = self.offset + reader.buffer_position() as usize;
            let event = match reader.read_event() {
                Ok(event) => event,
                Err(error) => return Err(self.syntax(&error, self.offset + reader.error_position() as usize)),
            };
            let here = Span { start, end: self.offset + reader.buffer_position() as usize };
            match event {
                Event::Start(tag) => self.begin(&tag, start)?,
                Event::Empty(tag) => {
                    self.begin(&tag, start)?;
                    self.end();
                }
                Event::End(_) => self.end(),
                Event::Text(text) => self.plain_text(&text, here)?,
                Event::CData(_) => self.put_text(here)?,
                Event::GeneralRef(reference) => self.reference(&reference, here)?,
                Event::Comment(_) => {}
                Event::Decl(_) => self.declaration(here)?,
                Event::PI(_) => return Err(mistake(here, "a processing instruction is not allowed", "delete it")),
                Event::DocType(_) => {
                    let what = "a DOCTYPE is not allowed: it could declare entities";
                    return Err(mistake(here, what, "delete it; rulesets/ruleset.xsd is the schema"));
                }
                Event::Eof => return self.eof(here),
            }
        }
    }

    /// Opens an element. The element that it belongs to is below it on the stack.
    fn begin(&mut self, tag: &BytesStart<'_>, start: usize) -> Result<(), Mistake> {
        let tag_name = tag.name();
        let name: &str = tag_name.as_ref();
        let span = Span { start: start + 1, end: start + 1 + name.len() };
        if !is_name(name) {
            return Err(mistake(
                span,
                format!("{} is not a name of an element", quoted(name)),
                "begin it with a letter",
            ));
        }
        if self.open.is_empty() && self.root.is_some() {
            return Err(mistake(span, "a second root element begins", "keep one <Ruleset> in a file"));
        }
        if self.open.len() == RULESET_DEPTH_MAX {
            return Err(mistake(span, "elements are nested too deep", format!("keep to {RULESET_DEPTH_MAX} levels")));
        }
        self.elements += 1;
        if RULESET_ELEMENTS_MAX < self.elements {
            return Err(mistake(span, "there are too many elements", format!("keep to {RULESET_ELEMENTS_MAX}")));
        }
        let attributes = self.attributes(tag, span)?;
        self.open.push(Element { name: name.into(), span, attributes, children: Vec::new(), text: None });
        Ok(())
    }

    /// Closes the innermost element; the reader has seen that the names agree.
    fn end(&mut self) {
        let Some(element) = self.open.pop() else { return };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn attributes(&self, tag: &BytesStart<'_>, tag_span: Span) -> Result<Vec<Written>, Mistake> {
        let mut attributes = Vec::new();
        let mut schema_is_declared = false;
        let body = tag_span.start;
        for (count, attribute) in tag.attributes().enumerate() {
            let attribute = attribute.map_err(|error| attribute_syntax(&error, body))?;
            let key: &str = attribute.key.as_ref();
            let raw: &str = &attribute.value;
            let (name_span, value_span) = (self.span_of(key, tag, body), self.span_of(raw, tag, body));
            if count == RULESET_ATTRIBUTES_MAX {
                let right = format!("keep to {RULESET_ATTRIBUTES_MAX}");
                return Err(mistake(name_span, "the element has too many attributes", right));
            }
            let before = self.text.get(..name_span.start).unwrap_or_default();
            if !before.ends_with([' ', '\t', '\n', '\r']) {
                return Err(mistake(name_span, "no space stands before the attribute", "put one there"));
            }
            if raw.contains('<') {
                return Err(mistake(value_span, "a value holds `<`", "write `&lt;`, or close the quote before it"));
            }
            let value =
                attribute.normalized_value(XmlVersion::Implicit1_0).ok().filter(|it| it.chars().all(is_allowed));
            let Some(value) = value else {
                let right = "write `&amp;` for a plain `&`; only amp, lt, gt, quot, apos and numbers are known";
                return Err(mistake(value_span, "a value holds a reference that means nothing", right));
            };
            if self.open.is_empty() && (key == SCHEMA_DECLARATION.0 || key.starts_with(SCHEMA_PREFIX)) {
                schema_is_declared |= (key, &*value) == SCHEMA_DECLARATION;
                if !is_name(key.strip_prefix(SCHEMA_PREFIX).unwrap_or("xsi")) {
                    return Err(mistake(name_span, format!("{} is not a name", quoted(key)), "delete it"));
                }
                if !schema_is_declared {
                    let (name, value) = SCHEMA_DECLARATION;
                    return Err(mistake(
                        name_span,
                        "`xsi` is not declared",
                        format!("write {name}=\"{value}\" before it"),
                    ));
                }
                continue;
            }
            if !is_name(key) || key == "xmlns" {
                return Err(mistake(name_span, format!("{} is not a name of an attribute", quoted(key)), "rename it"));
            }
            attributes.push(Written { name: key.into(), name_span, value: value.into(), value_span });
        }
        Ok(attributes)
    }

    /// Where `part`, a piece of the tag whose content begins at `body`, stands in the file.
    fn span_of(&self, part: &str, tag: &BytesStart<'_>, body: usize) -> Span {
        let content: &str = tag;
        let start = body + (part.as_ptr() as usize).saturating_sub(content.as_ptr() as usize);
        Span { start, end: start + part.len() }
    }

    fn plain_text(&mut self, text: &str, here: Span) -> Result<(), Mistake> {
        if let Some(at) = text.find("]]>") {
            let span = Span { start: here.start + at, end: here.start + at + 3 };
            return Err(mistake(span, "`]]>` ends nothing here", "delete it"));
        }
        let blank = text.len() - text.trim_start_matches([' ', '\t', '\n', '\r']).len();
        if blank == text.len() {
            return Ok(());
        }
        let shown = text.trim_matches([' ', '\t', '\n', '\r']).len();
        self.put_text(Span { start: here.start + blank, end: here.start + blank + shown })
    }

    /// Notes that the innermost element holds text; there must be one.
    fn put_text(&mut self, span: Span) -> Result<(), Mistake> {
        let Some(element) = self.open.last_mut() else {
            return Err(mistake(span, "text stands outside of the root element", "delete it, or write <Ruleset …>"));
        };
        element.text.get_or_insert(span);
        Ok(())
    }

    fn reference(&mut self, reference: &BytesRef<'_>, here: Span) -> Result<(), Mistake> {
        let known = match reference.resolve_char_ref() {
            Ok(Some(letter)) => is_allowed(letter),
            Ok(None) => ["amp", "lt", "gt", "quot", "apos"].contains(&&**reference),
            Err(_) => false,
        };
        if !known {
            let what = format!("{} means nothing", quoted(&self.text[here.start..here.end]));
            return Err(mistake(here, what, "write `&amp;` for a plain `&`"));
        }
        self.put_text(here)
    }

    /// `<?xml version="1.0" encoding="UTF-8"?>`, in the first place or not at all.
    fn declaration(&self, here: Span) -> Result<(), Mistake> {
        let right = "write <?xml version=\"1.0\" encoding=\"UTF-8\"?>, or leave it out";
        if here.start != self.offset {
            return Err(mistake(here, "the XML declaration is not at the very beginning", "put it there or delete it"));
        }
        let inside = self.text[here.start..here.end].trim_start_matches("<?xml").trim_end_matches("?>");
        is_declaration(inside).then_some(()).ok_or_else(|| mistake(here, "the XML declaration is unknown", right))
    }

    fn eof(mut self, here: Span) -> Result<Element, Mistake> {
        if let Some(element) = self.open.pop() {
            return Err(mistake(element.span, format!("<{}> is never closed", element.name), unclosed(&element.name)));
        }
        self.root.ok_or_else(|| mistake(here, "the file holds no element", "write a <Ruleset …>"))
    }

    fn syntax(&self, error: &Error, at: usize) -> Mistake {
        let rest = self.text.get(at..).unwrap_or_default();
        let line = rest.find(['>', '\n']).map_or(rest.len(), |end| end + 1);
        let span = Span { start: at, end: at + rest[..line].trim_end().len().max(1) };
        match error {
            Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
                let what = format!("</{}> closes <{}>", clean(found), clean(expected));
                mistake(span, what, format!("write </{}>, or close what was opened in between", clean(expected)))
            }
            Error::IllFormed(IllFormedError::UnmatchedEndTag(found)) => {
                mistake(span, format!("</{}> closes nothing", clean(found)), "delete it, or open it first")
            }
            Error::IllFormed(IllFormedError::UnclosedReference) => {
                mistake(span, "`&` begins a reference that does not end", "write `&amp;` for a plain `&`")
            }
            Error::IllFormed(IllFormedError::DoubleHyphenInComment) => {
                mistake(span, "a comment holds `--`", "write a single hyphen: XML ends comments with `-->` alone")
            }
            other => mistake(span, format!("this is not XML: {}", clean(&other.to_string())), "close it"),
        }
    }
}

fn unclosed(name: &str) -> String {
    format!("write </{name}> where it ends, or <{name} …/> if it holds nothing")
}

fn clean(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(100).collect()
}

/// A name as this grammar needs it: XML's own, without colons and beyond ASCII only letters and digits.
fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_alphanumeric() || "_-.".contains(letter))
        && name.is_ascii()
}

fn is_declaration(inside: &str) -> bool {
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

fn attribute_syntax(error: &AttrError, body: usize) -> Mistake {
    let at = |position: usize| Span { start: body + position, end: body + position + 1 };
    match *error {
        AttrError::ExpectedEq(position) => mistake(at(position), "an attribute has no value", "write name=\"value\""),
        AttrError::ExpectedValue(position) => mistake(at(position), "an attribute has no value", "write it in quotes"),
        AttrError::UnquotedValue(position) => {
            mistake(at(position), "a value stands without quotes", "put it between \" and \"")
        }
        AttrError::ExpectedQuote(position, _) => mistake(at(position), "a value has no closing quote", "add it"),
        AttrError::Duplicated(position, _) => {
            mistake(at(position), "the attribute is here a second time", "keep one of them")
        }
    }
}
