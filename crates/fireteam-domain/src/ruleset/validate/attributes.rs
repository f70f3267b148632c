//! `<Attributes>`: what sessions may say, and how rules refer to it.

use crate::attribute::{Attribute, AttributeSource, PartyAggregation, Trust, ValueType};
use crate::limit::{ATTRIBUTES_MAX, NUMBER_MAGNITUDE_MAX};
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, quoted_excerpt};
use crate::ruleset::spelling::suggestion;

/// The two measures that nobody declares.
pub(super) const MEASURED_BY_SERVER: [&str; 2] = ["latency", "distance"];

/// Any number that a session may state.
pub(super) const ATTRIBUTE_NUMBER_BOUNDS: NumberBounds =
    NumberBounds::inclusive(-NUMBER_MAGNITUDE_MAX, NUMBER_MAGNITUDE_MAX);

/// How players' values become a party's.
pub(super) const PARTY_AGGREGATION_KEYWORDS: [(&str, PartyAggregation); 5] = [
    ("mean", PartyAggregation::Mean),
    ("median", PartyAggregation::Median),
    ("min", PartyAggregation::Min),
    ("max", PartyAggregation::Max),
    ("sum", PartyAggregation::Sum),
];

const VALUE_KIND_KEYWORDS: [(&str, ValueType); 4] = [
    ("number", ValueType::Number),
    ("text", ValueType::String),
    ("flag", ValueType::Bool),
    ("texts", ValueType::StringList),
];

const TRUST_KEYWORDS: [(&str, Trust); 3] =
    [("client", Trust::Client), ("server", Trust::GameServer), ("token", Trust::TokenClaim)];

/// The declared attributes. One whose declaration is broken is kept, so that what refers to it is not wrong as well.
pub(super) struct DeclaredAttributes(Vec<(Attribute, Option<ValueType>)>);

impl DeclaredAttributes {
    /// The attribute that `written` names: its place, and its kind where its declaration is sound. Notes an unknown name.
    pub(super) fn find(&self, at: &ElementReader<'_>, written: &RawAttribute) -> Option<(usize, Option<ValueType>)> {
        self.find_with_suggestions(at, written, &[])
    }

    /// The same, where `others` would be right too.
    pub(super) fn find_with_suggestions(
        &self,
        at: &ElementReader<'_>,
        written: &RawAttribute,
        others: &[&'static str],
    ) -> Option<(usize, Option<ValueType>)> {
        let found = self.0.iter().position(|(attribute, _)| attribute.name == written.value);
        let Some(index) = found else {
            if MEASURED_BY_SERVER.contains(&&*written.value) {
                let right = "limit it with <Within>, or wish for it with <SoftFilter>";
                at.report(
                    written.value_span,
                    format!("{} is measured, not declared", quoted_excerpt(&written.value)),
                    right,
                );
            } else {
                let known = self.0.iter().map(|(attribute, _)| &*attribute.name).chain(others.iter().copied());
                let what = format!("no attribute is called {}", quoted_excerpt(&written.value));
                at.report(written.value_span, what, suggestion(&written.value, known));
            }
            return None;
        };
        Some((index, self.0[index].1))
    }

    /// The attribute that `written` names, which must be of `kind`.
    pub(super) fn find_of_kind(
        &self,
        at: &ElementReader<'_>,
        written: &RawAttribute,
        kind: ValueType,
    ) -> Option<usize> {
        let (index, found) = self.find(at, written)?;
        let found = found?;
        if found != kind {
            let what = format!("{} is a {}", quoted_excerpt(&written.value), found.as_str());
            let right = format!("<{}> needs a {} attribute", at.element.name, kind.as_str());
            at.report(written.value_span, what, right);
            return None;
        }
        Some(index)
    }

    /// The range that the attribute at `index` declares.
    pub(super) fn range(&self, index: usize) -> Option<(f64, f64)> {
        self.0[index].0.normalization_range
    }

    /// The name of the attribute at `index`.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.0[index].0.name
    }

    pub(super) fn into_attributes(self) -> Box<[Attribute]> {
        self.0.into_iter().map(|(attribute, _)| attribute).collect()
    }
}

/// Reads `<Attributes>`; without one, nothing is declared.
pub(super) fn read_attributes(element: Option<&RawElement>, mistakes: &Diagnostics) -> DeclaredAttributes {
    let mut declared = DeclaredAttributes(Vec::new());
    let Some(element) = element else { return declared };
    let mut at = ElementReader::new(element, mistakes);
    let children = at.children_named(&["Attribute"]);
    if let Some(excess) = children.get(ATTRIBUTES_MAX) {
        at.report(
            excess.name_span,
            format!("{} attributes are declared", children.len()),
            format!("keep {ATTRIBUTES_MAX}"),
        );
    }
    for child in children {
        read_attribute(child, &mut declared, mistakes);
    }
    at.report_unread();
    declared
}

fn read_attribute(element: &RawElement, declared: &mut DeclaredAttributes, mistakes: &Diagnostics) {
    let mut at = ElementReader::new(element, mistakes);
    let name = at.required_identifier("Name");
    let kind = at.required_keyword("Type", &VALUE_KIND_KEYWORDS);
    let range = read_value_range(&mut at, kind);
    let unit = at.display_text("Unit");
    let source = name.map_or(AttributeSource::AttributeMap, |name| AttributeSource::of_name(&name.value));
    let reduce = at.attribute("Reduce");
    if let Some(reduce) = reduce.filter(|_| name.is_some() && source != AttributeSource::Skill) {
        let what = format!("<Attribute> {} has `Reduce`", quoted_excerpt(&name_or_empty(name)));
        at.report(reduce.name_span, what, "leave it out: only `skill` is given for each player");
    }
    let reduction = at.optional_keyword("Reduce", &PARTY_AGGREGATION_KEYWORDS).unwrap_or_default();
    let trust = at.optional_keyword("Trust", &TRUST_KEYWORDS).unwrap_or_default();
    if let Some(name) = name {
        check_attribute_name(&at, name, source, kind, declared);
        let attribute = Attribute {
            name: name.value.clone(),
            value_type: kind.unwrap_or(ValueType::Number),
            source,
            normalization_range: range,
            unit,
            party_aggregation: reduction,
            trust,
        };
        declared.0.push((attribute, kind));
    }
    at.report_unread();
}

fn name_or_empty(name: Option<&RawAttribute>) -> String {
    name.map(|name| name.value.to_string()).unwrap_or_default()
}

fn check_attribute_name(
    at: &ElementReader<'_>,
    name: &RawAttribute,
    source: AttributeSource,
    kind: Option<ValueType>,
    declared: &DeclaredAttributes,
) {
    if MEASURED_BY_SERVER.contains(&&*name.value) {
        let right = "choose another name: it is measured by the server and needs no declaration";
        at.report(name.value_span, format!("{} is reserved", quoted_excerpt(&name.value)), right);
    }
    if declared.0.iter().any(|(known, _)| known.name == name.value) {
        at.report(
            name.value_span,
            format!("{} is declared a second time", quoted_excerpt(&name.value)),
            "keep one of them",
        );
    }
    if let (Some(required), Some(kind)) = (source.required_type(), kind)
        && required != kind
    {
        let what =
            format!("{} is built in and a {}, not a {}", quoted_excerpt(&name.value), required.as_str(), kind.as_str());
        at.report(name.value_span, what, format!("write Type=\"{}\", or choose another name", required.as_str()));
    }
}

/// `Min` and `Max`: both or neither, on numbers alone.
fn read_value_range(at: &mut ElementReader<'_>, kind: Option<ValueType>) -> Option<(f64, f64)> {
    let written = at.attribute("Min").or(at.attribute("Max"));
    if let (Some(written), Some(ValueType::String | ValueType::Bool | ValueType::StringList)) = (written, kind) {
        let what = format!("`{}` stands at an attribute that is no number", written.name);
        at.report(written.name_span, what, "leave it out, or write Type=\"number\"");
    }
    read_min_and_max(at)
}

/// `Min` and `Max` of the element at hand: both or neither, `Min` the lesser.
pub(super) fn read_min_and_max(at: &mut ElementReader<'_>) -> Option<(f64, f64)> {
    let (min_written, max_written) = (at.attribute("Min"), at.attribute("Max"));
    let (min, max) =
        (at.optional_number("Min", ATTRIBUTE_NUMBER_BOUNDS), at.optional_number("Max", ATTRIBUTE_NUMBER_BOUNDS));
    match (min_written, max_written) {
        (Some(alone), None) => at.report(alone.name_span, "`Min` has no `Max`", "give both, or neither"),
        (None, Some(alone)) => at.report(alone.name_span, "`Max` has no `Min`", "give both, or neither"),
        _ => {}
    }
    let (min, max) = (min?, max?);
    if max <= min {
        let what = format!("`Min` is {min} and `Max` is {max}");
        at.report(min_written?.value_span, what, "`Min` must be less than `Max`");
        return None;
    }
    Some((min, max))
}
