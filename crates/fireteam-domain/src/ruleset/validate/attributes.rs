//! `<Attributes>`: declares the attributes of sessions, and resolves references to them.

use crate::attribute::{
    AggregateFunction, Attribute, MissingMemberPolicy, NumberAggregation, PlayerAggregation, SourceField, Trust,
    ValueType,
};
use crate::limit::{ATTRIBUTES_MAX, NUMBER_MAGNITUDE_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, quoted_excerpt};
use crate::ruleset::spelling::suggestion;

/// Measures that need no declaration.
pub(super) const SERVER_COMPUTED_MEASURE_NAMES: [&str; 2] = ["latency", "distance"];

/// Measures that only the probes of a searching client know; in soft filters.
pub(super) const PROBED_MEASURE_NAMES: [&str; 2] = ["packet_loss", "jitter"];

/// Measure of a pair that only soft filters read: the round trip, less the searcher's least to a region.
pub(super) const DELTA_PING: &str = "delta_ping";

/// Numbers that a session may have.
pub(super) const ATTRIBUTE_NUMBER_BOUNDS: NumberBounds =
    NumberBounds::new_inclusive(-NUMBER_MAGNITUDE_MAX, NUMBER_MAGNITUDE_MAX);

/// Aggregations of the players' values into the party's value.
pub(super) const NUMBER_AGGREGATION_KEYWORDS: [(&str, NumberAggregation); 5] = [
    ("mean", NumberAggregation::Mean),
    ("median", NumberAggregation::Median),
    ("min", NumberAggregation::Min),
    ("max", NumberAggregation::Max),
    ("sum", NumberAggregation::Sum),
];

const BOOL_AGGREGATION_KEYWORDS: [(&str, AggregateFunction); 2] =
    [("any", AggregateFunction::Any), ("all", AggregateFunction::All)];

const LIST_AGGREGATION_KEYWORDS: [(&str, AggregateFunction); 2] =
    [("union", AggregateFunction::Union), ("intersection", AggregateFunction::Intersection)];

const MISSING_MEMBER_KEYWORDS: [(&str, MissingMemberPolicy); 2] =
    [("missing", MissingMemberPolicy::Missing), ("skip", MissingMemberPolicy::Skip)];

const VALUE_KIND_KEYWORDS: [(&str, ValueType); 4] = [
    ("number", ValueType::Number),
    ("string", ValueType::String),
    ("bool", ValueType::Bool),
    ("string_list", ValueType::StringList),
];

const TRUST_KEYWORDS: [(&str, Trust); 3] =
    [("client", Trust::Client), ("game_server", Trust::GameServer), ("token", Trust::TokenClaim)];

/// Declared attributes. An attribute with an invalid declaration is kept, so that references to it are not reported
/// too.
pub(super) struct DeclaredAttributes(Vec<(Attribute, Option<ValueType>)>);

impl DeclaredAttributes {
    /// Index of the attribute that `raw` names, and its type if the declaration is valid. Reports an unknown name.
    pub(super) fn find(&self, reader: &ElementReader<'_>, raw: &RawAttribute) -> Option<(usize, Option<ValueType>)> {
        self.find_with_extra_suggestions(reader, raw, &[])
    }

    /// As `find`; the names in `also_valid` are suggested too.
    pub(super) fn find_with_extra_suggestions(
        &self,
        reader: &ElementReader<'_>,
        raw: &RawAttribute,
        also_valid: &[&'static str],
    ) -> Option<(usize, Option<ValueType>)> {
        let position = self.0.iter().position(|(attribute, _)| attribute.name == raw.value);
        let Some(index) = position else {
            if PROBED_MEASURE_NAMES.contains(&&*raw.value) {
                let problem = format!("{} is measured by the searcher's probes", quoted_excerpt(&raw.value));
                let fix = "use it in <SoftFilter>; <Latency MaxLossPercent MaxJitterMs> limit it";
                reader.report_at(raw.value_span, problem, fix);
            } else if &*raw.value == DELTA_PING {
                reader.report_at(
                    raw.value_span,
                    format!("{} is only for soft filters", quoted_excerpt(&raw.value)),
                    "use it in <SoftFilter>; limit `latency` in <Within>",
                );
            } else if SERVER_COMPUTED_MEASURE_NAMES.contains(&&*raw.value) {
                let fix = "use it in <Within> or <SoftFilter>";
                reader.report_at(
                    raw.value_span,
                    format!("{} is measured by the server, not declared", quoted_excerpt(&raw.value)),
                    fix,
                );
            } else {
                let known = self.0.iter().map(|(attribute, _)| &*attribute.name).chain(also_valid.iter().copied());
                let problem = format!("no attribute is called {}", quoted_excerpt(&raw.value));
                reader.report_at(raw.value_span, problem, suggestion(&raw.value, known));
            }
            return None;
        };
        Some((index, self.0[index].1))
    }

    /// Index of the attribute that `raw` names. Reports a type other than `kind`.
    pub(super) fn find_of_kind(
        &self,
        reader: &ElementReader<'_>,
        raw: &RawAttribute,
        kind: ValueType,
    ) -> Option<usize> {
        let (index, position) = self.find(reader, raw)?;
        let position = position?;
        if position != kind {
            let problem = format!("{} is a {}", quoted_excerpt(&raw.value), position.as_str());
            let fix = format!("<{}> needs a {} attribute", reader.element.name, kind.as_str());
            reader.report_at(raw.value_span, problem, fix);
            return None;
        }
        Some(index)
    }

    /// Whether each player has a value of its own of the attribute at `index`.
    pub(super) fn is_of_players(&self, index: usize) -> bool {
        matches!(self.0[index].0.source, SourceField::Players(_))
    }

    /// Declared range of the attribute at `index`.
    pub(super) fn range(&self, index: usize) -> Option<(f64, f64)> {
        self.0[index].0.normalization_range
    }

    /// Name of the attribute at `index`.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.0[index].0.name
    }

    pub(super) fn into_attributes(self) -> Box<[Attribute]> {
        self.0.into_iter().map(|(attribute, _)| attribute).collect()
    }
}

/// Reads `<Attributes>`; without it, no attribute is declared.
pub(super) fn read_attributes(element: Option<&RawElement>, diagnostics: &Diagnostics) -> DeclaredAttributes {
    let mut declared = DeclaredAttributes(Vec::new());
    let Some(element) = element else { return declared };
    let mut reader = ElementReader::new(element, diagnostics);
    let children = reader.children_named(&["Attribute"]);
    if let Some(excess) = children.get(ATTRIBUTES_MAX) {
        reader.report_at(
            excess.name_span,
            format!("{} attributes are declared", children.len()),
            format!("keep at most {ATTRIBUTES_MAX}"),
        );
    }
    for child in children {
        read_attribute(child, &mut declared, diagnostics);
    }
    reader.report_unread_and_missing();
    declared
}

fn read_attribute(element: &RawElement, declared: &mut DeclaredAttributes, diagnostics: &Diagnostics) {
    let mut reader = ElementReader::new(element, diagnostics);
    let name = reader.required_identifier("Name");
    let kind = reader.required_keyword("Type", &VALUE_KIND_KEYWORDS);
    let range = read_value_range(&mut reader, kind);
    let unit = reader.display_text("Unit");
    let mut source = name.map_or(SourceField::AttributeMap, |name| SourceField::of_attribute_name(&name.value));
    let mut reduction = NumberAggregation::default();
    match (reader.attribute("PartyAggregation"), source) {
        (Some(_), SourceField::AttributeMap) => {
            let aggregation = read_player_aggregation(&mut reader, kind);
            source = aggregation.map_or(source, SourceField::Players);
        }
        (Some(raw), _) if !source.uses_party_aggregation() => {
            let problem = format!("<Attribute> {} has `PartyAggregation`", quoted_excerpt(&name_or_empty(name)));
            reader.report_at(raw.name_span, problem, "remove it: this built-in attribute has one value for a party");
            reader.report_without_effect(&["MissingMember"], "this built-in attribute has one value for a party");
        }
        _ => {
            let aggregation = reader.optional_keyword("PartyAggregation", &NUMBER_AGGREGATION_KEYWORDS);
            reduction = aggregation.unwrap_or_default();
            let reason = "it is for attributes of players, which have `PartyAggregation` and are not built in";
            reader.report_without_effect(&["MissingMember"], reason);
        }
    }
    let trust = reader.optional_keyword("Trust", &TRUST_KEYWORDS).unwrap_or_default();
    let wishes = reader.bool_or("Wishes", false);
    if let Some(name) = name {
        check_attribute_name(&reader, name, source, kind, declared);
        let attribute = Attribute {
            name: name.value.clone(),
            value_type: kind.unwrap_or(ValueType::Number),
            source,
            normalization_range: range,
            unit,
            number_aggregation: reduction,
            trust,
            allows_wishes: wishes,
        };
        declared.0.push((attribute, kind));
    }
    reader.report_unread_and_missing();
}

/// Reads how the values of players are aggregated; each type has functions of its own. `None` if a problem was reported.
fn read_player_aggregation(reader: &mut ElementReader<'_>, kind: Option<ValueType>) -> Option<PlayerAggregation> {
    const PARTY_AGGREGATION: &str = "PartyAggregation";
    let missing_member = reader.optional_keyword("MissingMember", &MISSING_MEMBER_KEYWORDS).unwrap_or_default();
    let function = match kind? {
        ValueType::Number => {
            reader.optional_keyword(PARTY_AGGREGATION, &NUMBER_AGGREGATION_KEYWORDS).map(AggregateFunction::Number)?
        }
        ValueType::Bool => reader.optional_keyword(PARTY_AGGREGATION, &BOOL_AGGREGATION_KEYWORDS)?,
        ValueType::StringList => reader.optional_keyword(PARTY_AGGREGATION, &LIST_AGGREGATION_KEYWORDS)?,
        ValueType::String => {
            let raw = reader.attribute(PARTY_AGGREGATION)?;
            let fix = "write Type=\"string_list\", where a player's list may have one entry";
            reader.report_at(raw.name_span, "the strings of several players are not one string", fix);
            return None;
        }
    };
    Some(PlayerAggregation { function, missing_member })
}

fn name_or_empty(name: Option<&RawAttribute>) -> String {
    name.map(|name| name.value.to_string()).unwrap_or_default()
}

fn check_attribute_name(
    reader: &ElementReader<'_>,
    name: &RawAttribute,
    source: SourceField,
    kind: Option<ValueType>,
    declared: &DeclaredAttributes,
) {
    if SERVER_COMPUTED_MEASURE_NAMES.contains(&&*name.value) || &*name.value == DELTA_PING {
        let fix = "choose another name: the server measures it without a declaration";
        reader.report_at(name.value_span, format!("{} is reserved", quoted_excerpt(&name.value)), fix);
    }
    if PROBED_MEASURE_NAMES.contains(&&*name.value) {
        let fix = "choose another name: clients measure it by probes";
        reader.report_at(name.value_span, format!("{} is reserved", quoted_excerpt(&name.value)), fix);
    }
    if declared.0.iter().any(|(known, _)| known.name == name.value) {
        reader.report_at(
            name.value_span,
            format!("{} is declared a second time", quoted_excerpt(&name.value)),
            "keep one of them",
        );
    }
    if let (Some(required), Some(kind)) = (source.required_type(), kind)
        && required != kind
    {
        let problem = format!(
            "{} is a built-in {} attribute, not a {}",
            quoted_excerpt(&name.value),
            required.as_str(),
            kind.as_str()
        );
        reader.report_at(
            name.value_span,
            problem,
            format!("write Type=\"{}\", or choose another name", required.as_str()),
        );
    }
}

/// Reads `Min` and `Max`: both or neither, for number attributes only.
fn read_value_range(reader: &mut ElementReader<'_>, kind: Option<ValueType>) -> Option<(f64, f64)> {
    let raw = reader.attribute("Min").or(reader.attribute("Max"));
    if let (Some(raw), Some(ValueType::String | ValueType::Bool | ValueType::StringList)) = (raw, kind) {
        let problem = format!("`{}` needs a number attribute", raw.name);
        reader.report_at(raw.name_span, problem, "remove it, or write Type=\"number\"");
    }
    read_min_and_max(reader)
}

/// Reads `Min` and `Max`: both or neither, `Min` less than `Max`.
pub(super) fn read_min_and_max(reader: &mut ElementReader<'_>) -> Option<(f64, f64)> {
    let (raw_min, raw_max) = (reader.attribute("Min"), reader.attribute("Max"));
    let (min, max) = (
        reader.optional_number("Min", ATTRIBUTE_NUMBER_BOUNDS),
        reader.optional_number("Max", ATTRIBUTE_NUMBER_BOUNDS),
    );
    match (raw_min, raw_max) {
        (Some(only), None) => reader.report_at(only.name_span, "`Min` has no `Max`", "give both, or neither"),
        (None, Some(only)) => reader.report_at(only.name_span, "`Max` has no `Min`", "give both, or neither"),
        _ => {}
    }
    let (min, max) = (min?, max?);
    if max <= min {
        let problem = format!("`Min` is {min} and `Max` is {max}");
        reader.report_at(raw_min?.value_span, problem, "`Min` must be less than `Max`");
        return None;
    }
    Some((min, max))
}
