//! XML parser for rulesets: builds a tree of raw elements with the position of each name and value. Strict, with limits
//! on size and depth.
//!
//! quick-xml tokenizes leniently, so this file checks what it accepts: names, white space between attributes, `<` in
//! values, a second root and text outside the root. External content is never loaded. A DOCTYPE is an error. Only the
//! five predefined entities and character references are accepted.

use quick_xml::XmlVersion;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::events::attributes::AttrError;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::reader::Reader;

use crate::domain::limit::{
    RULESET_FILE_BYTES_MAX, RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX, RULESET_XML_DEPTH_MAX, RULESET_XML_ELEMENTS_MAX,
};
use crate::domain::ruleset::raw::{Diagnostic, RawAttribute, RawElement, Span, quoted_excerpt};

/// Prefix of the attributes on the root element with which editors find the schema; the server ignores them.
const SCHEMA_PREFIX: &str = "xsi:";
const XSI_NAMESPACE_DECLARATION: (&str, &str) = ("xmlns:xsi", "http://www.w3.org/2001/XMLSchema-instance");

/// White space of XML.
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// Parses `text` and returns its root element, or the first syntax error.
///
/// Skips a byte order mark, comments, and `xsi:…` attributes on the root.
pub fn parse_document(text: &str) -> Result<RawElement, Diagnostic> {
    if text.len() > RULESET_FILE_BYTES_MAX {
        let problem = format!("the file has {} bytes", text.len());
        return reject(Span::default(), problem, format!("keep it to {RULESET_FILE_BYTES_MAX} bytes"));
    }
    let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    if let Some((at, character)) = text[offset..].char_indices().find(|(_, character)| !is_allowed_char(*character)) {
        let span = Span { start: offset + at, end: offset + at + character.len_utf8() };
        return reject(span, format!("character U+{:04X} is not allowed", u32::from(character)), "delete it");
    }
    XmlTreeBuilder { text, bom_length: offset, open_elements: Vec::new(), root: None, element_count: 0 }.build()
}

/// Removes the comments of a well-formed document, and each line that contained only a comment. In text that is not
/// well-formed, comments after the first error remain.
pub fn delete_comments_and_their_lines(text: &str) -> String {
    let mut reader = Reader::from_str(text);
    let mut kept = String::with_capacity(text.len());
    let mut copied_to = 0;
    loop {
        let start = reader.buffer_position() as usize;
        match reader.read_event() {
            Ok(Event::Comment(_)) => {
                kept.push_str(&text[copied_to..start]);
                copied_to = reader.buffer_position() as usize;
                let line_start = kept.rfind('\n').map_or(0, |at| at + 1);
                let rest = &text[copied_to..];
                let line_end = rest.find('\n').map_or(rest.len(), |at| at + 1);
                if kept[line_start..].trim().is_empty() && rest[..line_end].trim().is_empty() {
                    kept.truncate(line_start);
                    copied_to += line_end;
                    // The skipped text is white space, which the reader reports as text and which is not copied again.
                }
            }
            Ok(Event::Eof) | Err(_) => break,
            Ok(_) => {}
        }
    }
    kept.push_str(&text[copied_to.min(text.len())..]);
    kept
}

/// Characters that XML 1.0 allows, except the control characters that it discourages.
fn is_allowed_char(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r') || !(character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}'))
}

fn diagnostic(span: Span, problem: impl Into<String>, fix: impl Into<String>) -> Diagnostic {
    Diagnostic { span, problem: problem.into(), fix: fix.into() }
}

fn reject<T>(span: Span, problem: impl Into<String>, fix: impl Into<String>) -> Result<T, Diagnostic> {
    Err(diagnostic(span, problem, fix))
}

/// Tree under construction. Open elements are on an explicit stack, so nesting does not use the call stack.
struct XmlTreeBuilder<'a> {
    text: &'a str,
    /// Bytes before the text that the reader sees.
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
            let event_span = Span { start, end: self.bom_length + reader.buffer_position() as usize };
            match event {
                Event::Start(tag) => self.open_element(&tag, start)?,
                Event::Empty(tag) => {
                    self.open_element(&tag, start)?;
                    self.close_element();
                }
                Event::End(_) => self.close_element(),
                Event::Text(text) => self.read_text(&text, event_span)?,
                Event::CData(_) => self.record_text_span(event_span)?,
                Event::GeneralRef(reference) => self.read_entity_reference(&reference, event_span)?,
                Event::Comment(_) => {}
                Event::Decl(_) => self.check_xml_declaration(event_span)?,
                // A schema reference for editors; the server ignores it.
                Event::PI(instruction) if instruction.target() == "xml-model" && self.is_before_root() => {}
                Event::PI(_) => {
                    let fix = "delete it; only <?xml-model …?> before the root element is allowed";
                    return reject(event_span, "a processing instruction is not allowed", fix);
                }
                Event::DocType(_) => {
                    let problem = "a DOCTYPE is not allowed: it could declare entities";
                    return reject(event_span, problem, "delete it; rulesets/ruleset.xsd is the schema");
                }
                Event::Eof => return self.finish_document(event_span),
            }
        }
    }

    /// Whether the root element has not begun.
    fn is_before_root(&self) -> bool {
        self.root.is_none() && self.open_elements.is_empty()
    }

    /// Opens an element; its parent is below it on the stack.
    fn open_element(&mut self, tag: &BytesStart<'_>, start: usize) -> Result<(), Diagnostic> {
        let tag_name = tag.name();
        let name: &str = tag_name.as_ref();
        let span = Span { start: start + 1, end: start + 1 + name.len() };
        if !is_valid_name(name) {
            return reject(
                span,
                format!("{} is not a valid element name", quoted_excerpt(name)),
                "use letters, digits, `_`, `-` and `.`, starting with a letter or `_`",
            );
        }
        if self.open_elements.is_empty() && self.root.is_some() {
            return reject(span, "a second root element starts here", "keep one <Ruleset> per file");
        }
        if self.open_elements.len() == RULESET_XML_DEPTH_MAX {
            return reject(
                span,
                "elements are nested too deeply",
                format!("use at most {RULESET_XML_DEPTH_MAX} levels"),
            );
        }
        self.element_count += 1;
        if self.element_count > RULESET_XML_ELEMENTS_MAX {
            return reject(span, "the file has too many elements", format!("use at most {RULESET_XML_ELEMENTS_MAX}"));
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

    /// Closes the innermost element. The reader has checked that the names match.
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
        let tag_start = tag_span.start;
        for (count, attribute) in tag.attributes().enumerate() {
            let attribute = attribute.map_err(|error| attribute_diagnostic(&error, tag_start))?;
            let key: &str = attribute.key.as_ref();
            let raw_value: &str = &attribute.value;
            let (name_span, value_span) = (self.span_of(key, tag, tag_start), self.span_of(raw_value, tag, tag_start));
            if count == RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX {
                let fix = format!("use at most {RULESET_XML_ATTRIBUTES_PER_ELEMENT_MAX}");
                return reject(name_span, "the element has too many attributes", fix);
            }
            let before = self.text.get(..name_span.start).unwrap_or_default();
            if !before.ends_with(WHITE_SPACE) {
                return reject(name_span, "there is no space before the attribute", "add one");
            }
            if raw_value.contains('<') {
                return reject(value_span, "a value contains `<`", "write `&lt;`, or close the quote before it");
            }
            let value = attribute
                .normalized_value(XmlVersion::Implicit1_0)
                .ok()
                .filter(|value| value.chars().all(is_allowed_char));
            let Some(value) = value else {
                let fix =
                    "write `&amp;` for a literal `&`; only amp, lt, gt, quot, apos and character numbers are supported";
                return reject(value_span, "a value contains an unknown reference", fix);
            };
            if self.open_elements.is_empty() && (key == XSI_NAMESPACE_DECLARATION.0 || key.starts_with(SCHEMA_PREFIX)) {
                schema_is_declared |= (key, &*value) == XSI_NAMESPACE_DECLARATION;
                if !is_valid_name(key.strip_prefix(SCHEMA_PREFIX).unwrap_or("xsi")) {
                    return reject(name_span, format!("{} is not a valid name", quoted_excerpt(key)), "delete it");
                }
                if !schema_is_declared {
                    let (name, value) = XSI_NAMESPACE_DECLARATION;
                    return reject(name_span, "`xsi` is not declared", format!("write {name}=\"{value}\" before it"));
                }
                continue;
            }
            if !is_valid_name(key) || key == "xmlns" {
                return reject(
                    name_span,
                    format!("{} is not a valid attribute name", quoted_excerpt(key)),
                    "rename it",
                );
            }
            attributes.push(RawAttribute { name: key.into(), name_span, value: value.into(), value_span });
        }
        Ok(attributes)
    }

    /// Position in the file of `part`, a slice of the tag whose content starts at `tag_start`.
    fn span_of(&self, part: &str, tag: &BytesStart<'_>, tag_start: usize) -> Span {
        let content: &str = tag;
        let start = tag_start + (part.as_ptr() as usize).saturating_sub(content.as_ptr() as usize);
        Span { start, end: start + part.len() }
    }

    fn read_text(&mut self, text: &str, event_span: Span) -> Result<(), Diagnostic> {
        if let Some(at) = text.find("]]>") {
            let span = Span { start: event_span.start + at, end: event_span.start + at + 3 };
            return reject(span, "`]]>` has no matching `<![CDATA[`", "delete it");
        }
        let without_leading = text.trim_start_matches(WHITE_SPACE);
        let start = event_span.start + text.len() - without_leading.len();
        match without_leading.trim_end_matches(WHITE_SPACE).len() {
            0 => Ok(()),
            length => self.record_text_span(Span { start, end: start + length }),
        }
    }

    /// Records that the innermost element contains text. Text outside the root is an error.
    fn record_text_span(&mut self, span: Span) -> Result<(), Diagnostic> {
        let Some(element) = self.open_elements.last_mut() else {
            return reject(span, "there is text outside the root element", "delete it, or add <Ruleset …>");
        };
        element.text_span.get_or_insert(span);
        Ok(())
    }

    fn read_entity_reference(&mut self, reference: &BytesRef<'_>, event_span: Span) -> Result<(), Diagnostic> {
        let is_known = match reference.resolve_char_ref() {
            Ok(Some(character)) => is_allowed_char(character),
            Ok(None) => ["amp", "lt", "gt", "quot", "apos"].contains(&&**reference),
            Err(_) => false,
        };
        if !is_known {
            let problem =
                format!("{} is an unknown reference", quoted_excerpt(&self.text[event_span.start..event_span.end]));
            return reject(event_span, problem, "write `&amp;` for a literal `&`");
        }
        self.record_text_span(event_span)
    }

    /// Checks `<?xml version="1.0" encoding="UTF-8"?>`; only allowed at the start of the file.
    fn check_xml_declaration(&self, event_span: Span) -> Result<(), Diagnostic> {
        if event_span.start != self.bom_length {
            return reject(
                event_span,
                "the XML declaration is not at the start of the file",
                "move it there, or delete it",
            );
        }
        let content = self.text[event_span.start..event_span.end].trim_start_matches("<?xml").trim_end_matches("?>");
        if is_valid_xml_declaration(content) {
            return Ok(());
        }
        reject(
            event_span,
            "the XML declaration is not supported",
            "write <?xml version=\"1.0\" encoding=\"UTF-8\"?>, or remove it",
        )
    }

    fn finish_document(mut self, event_span: Span) -> Result<RawElement, Diagnostic> {
        if let Some(element) = self.open_elements.pop() {
            return reject(
                element.name_span,
                format!("<{}> is never closed", element.name),
                format!("write </{0}> where it ends, or <{0} …/> if it is empty", element.name),
            );
        }
        self.root.ok_or_else(|| diagnostic(event_span, "the file has no element", "add a <Ruleset …>"))
    }

    fn syntax_diagnostic(&self, error: &Error, at: usize) -> Diagnostic {
        let rest = self.text.get(at..).unwrap_or_default();
        let line = rest.find(['>', '\n']).map_or(rest.len(), |end| end + 1);
        let span = Span { start: at, end: at + rest[..line].trim_end().len().max(1) };
        match error {
            Error::IllFormed(IllFormedError::MismatchedEndTag { expected, found }) => {
                let expected = sanitized_excerpt(expected);
                let opened = self.open_elements.last().map_or(0, |element| element.name_span.start);
                let line = self.text[..opened].matches('\n').count() + 1;
                let problem =
                    format!("</{}> closes <{expected}>, which was opened in line {line}", sanitized_excerpt(found));
                diagnostic(span, problem, format!("write </{expected}>, or close the elements opened in between"))
            }
            Error::IllFormed(IllFormedError::UnmatchedEndTag(found)) => diagnostic(
                span,
                format!("</{}> closes nothing", sanitized_excerpt(found)),
                "delete it, or open it first",
            ),
            Error::IllFormed(IllFormedError::UnclosedReference) => {
                diagnostic(span, "`&` starts a reference without an end", "write `&amp;` for a literal `&`")
            }
            Error::IllFormed(IllFormedError::DoubleHyphenInComment) => diagnostic(
                span,
                "a comment contains `--`",
                "use single hyphens; XML allows `--` only at the end of a comment",
            ),
            other => {
                diagnostic(span, format!("this is not XML: {}", sanitized_excerpt(&other.to_string())), "close it")
            }
        }
    }
}

fn sanitized_excerpt(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(100).collect()
}

/// Whether `name` is an ASCII XML name without a colon.
fn is_valid_name(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || "_-.".contains(character))
}

fn is_valid_xml_declaration(content: &str) -> bool {
    let mut rest = content;
    let mut read_pseudo_attribute = |name: &str, values: &[&str]| -> Option<bool> {
        let after_space = rest.trim_start();
        let Some(after) = after_space.strip_prefix(name).filter(|_| after_space.len() < rest.len()) else {
            return Some(false);
        };
        let after = after.trim_start().strip_prefix('=')?.trim_start();
        let quote = after.chars().next().filter(|quote| "\"'".contains(*quote))?;
        let (value, after) = after[1..].split_once(quote)?;
        rest = after;
        values.iter().any(|expected| expected.eq_ignore_ascii_case(value)).then_some(true)
    };
    let version = read_pseudo_attribute("version", &["1.0"]);
    let is_valid = version == Some(true) && read_pseudo_attribute("encoding", &["utf-8"]).is_some();
    let is_valid = is_valid && read_pseudo_attribute("standalone", &["yes", "no"]).is_some();
    is_valid && rest.trim().is_empty()
}

fn attribute_diagnostic(error: &AttrError, tag_start: usize) -> Diagnostic {
    let at = |position: usize| Span { start: tag_start + position, end: tag_start + position + 1 };
    match *error {
        AttrError::ExpectedEq(position) => {
            diagnostic(at(position), "an attribute has no value", "write name=\"value\"")
        }
        AttrError::ExpectedValue(position) => {
            diagnostic(at(position), "an attribute has no value", "write it in quotes")
        }
        AttrError::UnquotedValue(position) => {
            diagnostic(at(position), "a value has no quotes", "put it between \" and \"")
        }
        AttrError::ExpectedQuote(position, _) => diagnostic(at(position), "a value has no closing quote", "add it"),
        AttrError::Duplicated(position, _) => {
            diagnostic(at(position), "the attribute appears a second time", "keep one of them")
        }
    }
}
