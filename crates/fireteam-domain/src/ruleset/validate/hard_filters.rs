//! `<HardFilters>`: rules that must hold exactly.

use crate::attribute::{AttributeValue, ValueType};
use crate::limit::{RULESET_DURATION_MS_MAX, STRING_BYTES_MAX, STRING_LIST_ENTRIES_MAX};
use crate::measure::Measure;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, Span, quoted_excerpt};
use crate::ruleset::validate::attributes::{ATTRIBUTE_NUMBER_BOUNDS, DELTA_PING, DeclaredAttributes};
use crate::ruleset::validate::expansions::{DeclaredExpansions, LIMIT_BOUNDS};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, InFilterListSource, OverlapChoice};

const HARD_FILTER_ELEMENTS: [&str; 8] =
    ["Equal", "NotEqual", "In", "Range", "Overlap", "Compatible", "Within", "SameRuleset"];

const MISSING_POLICY_KEYWORDS: [(&str, HardMissingPolicy); 2] =
    [("pass", HardMissingPolicy::Pass), ("refuse", HardMissingPolicy::Refuse)];

/// Default time for which a played value counts: 7 days.
const DEFAULT_RECENT_PLAYS_MS: u64 = 7 * 24 * 60 * 60 * 1000;

const OVERLAP_CHOICE_KEYWORDS: [(&str, OverlapChoice); 3] = [
    ("first_common", OverlapChoice::FirstCommon),
    ("drawn", OverlapChoice::Drawn),
    ("least_recently_played", OverlapChoice::LeastRecentlyPlayed { recent_ms: DEFAULT_RECENT_PLAYS_MS }),
];

/// Names of built-in refusals; a filter may not use them.
const RESERVED_REFUSAL_NAMES: [&str; 9] =
    ["allowed_range", "excluded", "expired", "full", "max_jitter", "max_packet_loss", "own", "silent", "silo"];

/// Reads `<HardFilters>`. Without it every candidate passes.
pub(super) fn read_hard_filters(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    diagnostics: &Diagnostics,
) -> Vec<HardFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut reader = ElementReader::new(element, diagnostics);
    let mut filters: Vec<HardFilter> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for child in reader.children_named(&HARD_FILTER_ELEMENTS) {
        if let Some((name, filter)) = read_hard_filter(child, declared, expansions, &names, diagnostics) {
            names.push(name);
            filters.extend(filter);
        }
    }
    reader.report_unread_and_missing();
    filters
}

/// Reads one filter and its name. Returns only the name if the filter is invalid, `None` if the name is unknown too.
fn read_hard_filter(
    element: &RawElement,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    used_names: &[String],
    diagnostics: &Diagnostics,
) -> Option<(String, Option<HardFilter>)> {
    let mut reader = ElementReader::new(element, diagnostics);
    let explicit_name = reader.optional_identifier("Name");
    // Default name of a filter: the attribute or measure that it tests.
    let mut default_name = None;
    let rule = match &*element.name {
        "SameRuleset" => {
            default_name = Some("same_hash".into());
            Some(HardRule::SameRuleset)
        }
        "Within" => read_within(&mut reader, declared, expansions, explicit_name, &mut default_name),
        _ => read_attribute_rule(&mut reader, declared, &mut default_name),
    };
    let missing = match &*element.name {
        "SameRuleset" => None,
        _ => reader.optional_keyword("Missing", &MISSING_POLICY_KEYWORDS),
    };
    let span = explicit_name.map_or(element.name_span, |explicit_name| explicit_name.value_span);
    let name = explicit_name.map(|explicit_name| explicit_name.value.to_string()).or(default_name);
    if let Some(name) = &name {
        check_filter_name(&reader, span, name, used_names);
    }
    reader.report_unread_and_missing();
    let name = name?;
    let filter = rule.map(|rule| HardFilter { name: name.as_str().into(), missing: missing.unwrap_or_default(), rule });
    Some((name, filter))
}

fn check_filter_name(reader: &ElementReader<'_>, span: Span, name: &str, used_names: &[String]) {
    if RESERVED_REFUSAL_NAMES.contains(&name) {
        reader.report_at(
            span,
            format!("{} is the name of a built-in refusal", quoted_excerpt(name)),
            "choose another Name",
        );
    }
    if used_names.iter().any(|used_name| used_name == name) {
        let problem = format!("a second hard filter has the name {}", quoted_excerpt(name));
        reader.report_at(span, problem, "give it a unique Name");
    }
}

/// Reads the rules that test one attribute.
fn read_attribute_rule(
    reader: &mut ElementReader<'_>,
    declared: &DeclaredAttributes,
    default_name: &mut Option<String>,
) -> Option<HardRule> {
    let element = &*reader.element.name;
    let kind = match element {
        "In" => Some(ValueType::String),
        "Range" | "Compatible" => Some(ValueType::Number),
        "Overlap" => Some(ValueType::StringList),
        _ => None,
    };
    let raw = reader.required_attribute("Attribute");
    *default_name = raw.map(|raw| raw.value.to_string());
    let found = raw.and_then(|raw| match kind {
        Some(kind) => Some((declared.find_of_kind(reader, raw, kind)?, Some(kind))),
        None => declared.find(reader, raw),
    });
    // Read the rest even if the attribute is invalid, to report all problems.
    let index = found.map(|(index, _)| index);
    match element {
        "Equal" | "NotEqual" => {
            let value = read_constant(reader, found.and_then(|(_, kind)| kind));
            let attribute = index?;
            Some(match element {
                "Equal" => HardRule::Equal { attribute, value },
                _ => HardRule::NotEqual { attribute, value },
            })
        }
        "In" => {
            let list = read_in_list(reader, declared);
            let mutual = reader.bool_or("Mutual", false);
            Some(HardRule::In { attribute: index?, list: list?, mutual })
        }
        "Range" => {
            let (min, max) = read_open_range(reader)?;
            Some(HardRule::Range { attribute: index?, min, max })
        }
        "Overlap" => {
            let choose = read_overlap_choice(reader);
            Some(HardRule::Overlap { attribute: index?, choose })
        }
        _ => {
            let pairs = reader.required_attribute("Pairs").and_then(|raw| parse_compatible_pairs(reader, raw));
            Some(HardRule::Compatible { attribute: index?, pairs: pairs? })
        }
    }
}

/// Reads `Choose` of `<Overlap>`.
fn read_overlap_choice(reader: &mut ElementReader<'_>) -> Option<OverlapChoice> {
    let choice = reader.optional_keyword("Choose", &OVERLAP_CHOICE_KEYWORDS);
    if let Some(OverlapChoice::LeastRecentlyPlayed { recent_ms }) = choice {
        let recent_ms = reader.optional_integer("RecentMs", 1, RULESET_DURATION_MS_MAX).unwrap_or(recent_ms);
        return Some(OverlapChoice::LeastRecentlyPlayed { recent_ms });
    }
    reader.report_without_effect(&["RecentMs"], "it only affects Choose=\"least_recently_played\"");
    choice
}

/// Reads the constant of `<Equal>` or `<NotEqual>` as a value of the attribute's type.
fn read_constant(reader: &mut ElementReader<'_>, kind: Option<ValueType>) -> Option<AttributeValue> {
    let raw = reader.attribute("Value")?;
    match kind? {
        ValueType::Number => reader.optional_number("Value", ATTRIBUTE_NUMBER_BOUNDS).map(AttributeValue::Number),
        ValueType::Bool => {
            reader.optional_keyword("Value", &[("true", true), ("false", false)]).map(AttributeValue::Bool)
        }
        ValueType::StringList => parse_string_list(reader, raw).map(AttributeValue::from_string_list),
        ValueType::String => {
            let valid = raw.value.len() <= STRING_BYTES_MAX;
            if !valid {
                reader.report_value(raw, format!("give at most {STRING_BYTES_MAX} bytes"));
            }
            valid.then(|| AttributeValue::String(raw.value.as_ref().into()))
        }
    }
}

/// Reads `List`, a string list attribute of the checking side, or `Values`, constant strings.
fn read_in_list(reader: &mut ElementReader<'_>, declared: &DeclaredAttributes) -> Option<InFilterListSource> {
    match (reader.attribute("List"), reader.attribute("Values")) {
        (Some(list), None) => {
            declared.find_of_kind(reader, list, ValueType::StringList).map(InFilterListSource::OwnAttribute)
        }
        (None, Some(values)) => match AttributeValue::from_string_list(parse_string_list(reader, values)?) {
            AttributeValue::StringList(strings) => Some(InFilterListSource::Strings(strings)),
            AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_) => None,
        },
        (Some(list), Some(_)) => {
            reader.report_at(list.name_span, "<In> has both `List` and `Values`", "keep one of them");
            None
        }
        (None, None) => {
            let fix = "add Values=\"one two\", or List=\"…\" with the name of a string_list attribute";
            reader.report_at(reader.element.name_span, "<In> has no list", fix);
            None
        }
    }
}

/// Parses strings separated by spaces.
fn parse_string_list(reader: &ElementReader<'_>, raw: &RawAttribute) -> Option<Vec<Box<str>>> {
    let strings: Vec<Box<str>> = raw.value.split_whitespace().map(Into::into).collect();
    let valid = (1..=STRING_LIST_ENTRIES_MAX).contains(&strings.len())
        && strings.iter().all(|string| string.len() <= STRING_BYTES_MAX);
    if !valid {
        let fix = format!(
            "give 1 to {STRING_LIST_ENTRIES_MAX} words separated by spaces, each at most {STRING_BYTES_MAX} bytes"
        );
        reader.report_value(raw, fix);
    }
    valid.then_some(strings)
}

/// Reads `Min`, `Max` or both; a missing end is open.
fn read_open_range(reader: &mut ElementReader<'_>) -> Option<(f64, f64)> {
    let (raw_min, raw_max) = (reader.attribute("Min"), reader.attribute("Max"));
    let (min, max) = (
        reader.optional_number("Min", ATTRIBUTE_NUMBER_BOUNDS),
        reader.optional_number("Max", ATTRIBUTE_NUMBER_BOUNDS),
    );
    if raw_min.is_none() && raw_max.is_none() {
        reader.report_at(
            reader.element.name_span,
            "<Range> has neither `Min` nor `Max`",
            "add Min=\"…\", Max=\"…\" or both",
        );
        return None;
    }
    if (raw_min.is_some() && min.is_none()) || (raw_max.is_some() && max.is_none()) {
        return None;
    }
    let (lower, upper) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    if upper < lower {
        let problem = format!("`Min` is {lower} and `Max` is {upper}");
        reader.report_at(raw_min?.value_span, problem, "`Min` must not be greater than `Max`");
        return None;
    }
    Some((lower, upper))
}

/// Parses pairs such as `1-2`, separated by spaces; order within a pair does not matter.
fn parse_compatible_pairs(reader: &ElementReader<'_>, raw: &RawAttribute) -> Option<Box<[(i32, i32)]>> {
    let pair = |word: &str| {
        let (first, second) = word.split_once('-')?;
        let (first, second): (u16, u16) = (first.parse().ok()?, second.parse().ok()?);
        Some((i32::from(first.min(second)), i32::from(first.max(second))))
    };
    let pairs: Option<Vec<(i32, i32)>> = raw.value.split_whitespace().map(pair).collect();
    match pairs {
        Some(mut pairs) if (1..=STRING_LIST_ENTRIES_MAX * STRING_LIST_ENTRIES_MAX).contains(&pairs.len()) => {
            pairs.sort_unstable();
            pairs.dedup();
            Some(pairs.into())
        }
        _ => {
            reader.report_value(raw, "give pairs of whole numbers separated by spaces, such as `1-1 1-2`");
            None
        }
    }
}

/// Reads `<Within Expansion=…/>`, or `<Within Attribute=… Limit=…/>` for a constant limit.
fn read_within(
    reader: &mut ElementReader<'_>,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    explicit_name: Option<&RawAttribute>,
    default_name: &mut Option<String>,
) -> Option<HardRule> {
    let (expansion, attribute, limit) =
        (reader.attribute("Expansion"), reader.attribute("Attribute"), reader.attribute("Limit"));
    let limit_value = reader.optional_number("Limit", LIMIT_BOUNDS);
    let reciprocal_percent = reader.number_or("ReciprocalPercent", NumberBounds::PERCENT, 100.0);
    match (expansion, limit) {
        (Some(expansion), None) => {
            let (index, measure) = expansions.find(reader, expansion)?;
            let measure = measure?;
            *default_name = Some(measure_name(measure, declared).into());
            if let Some(attribute) = attribute.filter(|attribute| *attribute.value != *measure_name(measure, declared))
            {
                let problem =
                    format!("{} limits `{}`", quoted_excerpt(&expansion.value), measure_name(measure, declared));
                reader.report_at(attribute.value_span, problem, "remove `Attribute`, or name another expansion");
            }
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (None, Some(raw_limit)) => {
            let Some(attribute) = attribute else {
                let fix = "add Attribute=\"…\": a number attribute, `latency` or `distance`";
                reader.report_at(raw_limit.name_span, "`Limit` needs `Attribute`", fix);
                return None;
            };
            let measure = match &*attribute.value {
                "latency" => Measure::Latency,
                "distance" => Measure::Distance,
                _ => Measure::AttributeDifference(declared.find_of_kind(reader, attribute, ValueType::Number)?),
            };
            *default_name = Some(attribute.value.to_string());
            let name = explicit_name.map_or(&*attribute.value, |explicit_name| &*explicit_name.value);
            let Some(index) = expansions.add_constant(name, measure, limit_value?) else {
                let problem = format!("an <ExpansionConfig> already has the name {}", quoted_excerpt(name));
                reader.report_at(raw_limit.name_span, problem, "give this filter another Name");
                return None;
            };
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (Some(_), Some(limit)) => {
            reader.report_at(limit.name_span, "<Within> has both `Expansion` and `Limit`", "keep one of them");
            None
        }
        (None, None) => {
            let fix = "add Expansion=\"…\" with the name of an <ExpansionConfig>, or Attribute=\"…\" and Limit=\"…\"";
            reader.report_at(reader.element.name_span, "<Within> has no limit", fix);
            None
        }
    }
}

fn measure_name(measure: Measure, declared: &DeclaredAttributes) -> &str {
    match measure {
        Measure::AttributeDifference(index) => declared.name(index),
        Measure::Latency => "latency",
        Measure::DeltaPing => DELTA_PING,
        Measure::Distance => "distance",
        Measure::PacketLoss => "packet_loss",
        Measure::Jitter => "jitter",
    }
}
