//! `<HardFilters>`: rules that must hold exactly (S1-17).

use crate::attribute::{AttributeValue, ValueType};
use crate::limit::{STRING_BYTES_MAX, STRING_LIST_ENTRIES_MAX};
use crate::measure::Measure;
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::raw::{Diagnostics, RawAttribute, RawElement, Span, quoted_excerpt};
use crate::ruleset::validate::attributes::{ATTRIBUTE_NUMBER_BOUNDS, DeclaredAttributes};
use crate::ruleset::validate::expansions::{DeclaredExpansions, LIMIT_BOUNDS};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, InFilterList};

const HARD_FILTER_ELEMENTS: [&str; 8] =
    ["Equal", "NotEqual", "In", "Range", "Overlap", "Compatible", "Within", "SameHash"];

const MISSING_POLICY_KEYWORDS: [(&str, HardMissingPolicy); 2] =
    [("pass", HardMissingPolicy::Pass), ("refuse", HardMissingPolicy::Refuse)];

/// Names of the refusals that need no rule: a filter of such a name would be taken for one.
const RESERVED_REFUSAL_NAMES: [&str; 6] = ["allowed", "excluded", "expired", "full", "own", "silo"];

/// Reads `<HardFilters>`; without one, everything is admitted.
pub(super) fn read_hard_filters(
    element: Option<&RawElement>,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    mistakes: &Diagnostics,
) -> Vec<HardFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut at = ElementReader::new(element, mistakes);
    let mut filters: Vec<HardFilter> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for child in at.children_named(&HARD_FILTER_ELEMENTS) {
        if let Some((name, filter)) = read_hard_filter(child, declared, expansions, &names, mistakes) {
            names.push(name);
            filters.extend(filter);
        }
    }
    at.report_unread();
    filters
}

/// One filter and its name; the name alone when the filter is wrong, nothing when not even that is known.
fn read_hard_filter(
    element: &RawElement,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    taken: &[String],
    mistakes: &Diagnostics,
) -> Option<(String, Option<HardFilter>)> {
    let mut at = ElementReader::new(element, mistakes);
    let given = at.optional_identifier("Name");
    // The name that a filter goes by when it has none of its own: that of what it looks at.
    let mut natural = None;
    let rule = match &*element.name {
        "SameHash" => {
            natural = Some("same_hash".into());
            Some(HardRule::SameHash)
        }
        "Within" => read_within(&mut at, declared, expansions, given, &mut natural),
        _ => read_attribute_rule(&mut at, declared, &mut natural),
    };
    let missing = match &*element.name {
        "SameHash" => None,
        _ => at.optional_keyword("Missing", &MISSING_POLICY_KEYWORDS),
    };
    let span = given.map_or(element.name_span, |given| given.value_span);
    let name = given.map(|given| given.value.to_string()).or(natural);
    if let Some(name) = &name {
        check_filter_name(&at, span, name, taken);
    }
    at.report_unread();
    let name = name?;
    let filter = rule.map(|rule| HardFilter { name: name.as_str().into(), missing: missing.unwrap_or_default(), rule });
    Some((name, filter))
}

fn check_filter_name(at: &ElementReader<'_>, span: Span, name: &str, taken: &[String]) {
    if RESERVED_REFUSAL_NAMES.contains(&name) {
        at.report(
            span,
            format!("{} is what the server calls a refusal of its own", quoted_excerpt(name)),
            "choose another Name",
        );
    }
    if taken.iter().any(|known| known == name) {
        let what = format!("a second hard filter is called {}", quoted_excerpt(name));
        at.report(span, what, "give it a Name of its own, so that refusals can be told apart");
    }
}

/// All rules that look at one attribute.
fn read_attribute_rule(
    at: &mut ElementReader<'_>,
    declared: &DeclaredAttributes,
    natural: &mut Option<String>,
) -> Option<HardRule> {
    let element = &*at.element.name;
    let kind = match element {
        "In" => Some(ValueType::String),
        "Range" | "Compatible" => Some(ValueType::Number),
        "Overlap" => Some(ValueType::StringList),
        _ => None,
    };
    let written = at.required_attribute("Attribute");
    *natural = written.map(|written| written.value.to_string());
    let found = written.and_then(|written| match kind {
        Some(kind) => Some((declared.find_of_kind(at, written, kind)?, Some(kind))),
        None => declared.find(at, written),
    });
    // The rest is read even where the attribute is wrong, so that what is wrong there is found as well.
    let index = found.map(|(index, _)| index);
    match element {
        "Equal" | "NotEqual" => {
            let value = read_constant(at, found.and_then(|(_, kind)| kind));
            let attribute = index?;
            Some(match element {
                "Equal" => HardRule::Equal { attribute, value },
                _ => HardRule::NotEqual { attribute, value },
            })
        }
        "In" => {
            let list = read_in_list(at, declared);
            let mutual = at.bool_or("Mutual", false);
            Some(HardRule::In { attribute: index?, list: list?, mutual })
        }
        "Range" => {
            let (min, max) = read_open_range(at)?;
            Some(HardRule::Range { attribute: index?, min, max })
        }
        "Overlap" => Some(HardRule::Overlap { attribute: index? }),
        _ => {
            let pairs = at.required_attribute("Pairs").and_then(|written| parse_compatible_pairs(at, written));
            Some(HardRule::Compatible { attribute: index?, pairs: pairs? })
        }
    }
}

/// The constant of an `<Equal>` or `<NotEqual>`, as the attribute's kind reads it.
fn read_constant(at: &mut ElementReader<'_>, kind: Option<ValueType>) -> Option<AttributeValue> {
    let written = at.attribute("Value")?;
    match kind? {
        ValueType::Number => at.optional_number("Value", ATTRIBUTE_NUMBER_BOUNDS).map(AttributeValue::Number),
        ValueType::Bool => at.optional_keyword("Value", &[("true", true), ("false", false)]).map(AttributeValue::Bool),
        ValueType::StringList => parse_string_list(at, written).map(AttributeValue::string_list),
        ValueType::String => {
            let fits = written.value.len() <= STRING_BYTES_MAX;
            if !fits {
                at.report_value(written, format!("give at most {STRING_BYTES_MAX} bytes"));
            }
            fits.then(|| AttributeValue::String(written.value.clone()))
        }
    }
}

/// `List`, a texts attribute of the asking side, or `Values`, fixed texts.
fn read_in_list(at: &mut ElementReader<'_>, declared: &DeclaredAttributes) -> Option<InFilterList> {
    match (at.attribute("List"), at.attribute("Values")) {
        (Some(list), None) => declared.find_of_kind(at, list, ValueType::StringList).map(InFilterList::OwnAttribute),
        (None, Some(values)) => match AttributeValue::string_list(parse_string_list(at, values)?) {
            AttributeValue::StringList(texts) => Some(InFilterList::Strings(texts)),
            AttributeValue::Number(_) | AttributeValue::String(_) | AttributeValue::Bool(_) => None,
        },
        (Some(list), Some(_)) => {
            at.report(list.name_span, "<In> has both `List` and `Values`", "keep one of them");
            None
        }
        (None, None) => {
            let right = "add Values=\"one two\", or List=\"…\" with the name of a texts attribute";
            at.report(at.element.name_span, "<In> does not say in what", right);
            None
        }
    }
}

/// Texts with spaces between them.
fn parse_string_list(at: &ElementReader<'_>, written: &RawAttribute) -> Option<Vec<Box<str>>> {
    let texts: Vec<Box<str>> = written.value.split_whitespace().map(Into::into).collect();
    let sound =
        (1..=STRING_LIST_ENTRIES_MAX).contains(&texts.len()) && texts.iter().all(|text| text.len() <= STRING_BYTES_MAX);
    if !sound {
        let right = format!(
            "give 1 to {STRING_LIST_ENTRIES_MAX} words with spaces between them, each at most {STRING_BYTES_MAX} bytes"
        );
        at.report_value(written, right);
    }
    sound.then_some(texts)
}

/// `Min`, `Max` or both; the end that is left out is open.
fn read_open_range(at: &mut ElementReader<'_>) -> Option<(f64, f64)> {
    let (min_written, max_written) = (at.attribute("Min"), at.attribute("Max"));
    let (min, max) =
        (at.optional_number("Min", ATTRIBUTE_NUMBER_BOUNDS), at.optional_number("Max", ATTRIBUTE_NUMBER_BOUNDS));
    if min_written.is_none() && max_written.is_none() {
        at.report(at.element.name_span, "<Range> has no end", "add Min=\"…\", Max=\"…\" or both");
        return None;
    }
    if (min_written.is_some() && min.is_none()) || (max_written.is_some() && max.is_none()) {
        return None;
    }
    let (low, high) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    if high < low {
        let what = format!("`Min` is {low} and `Max` is {high}");
        at.report(min_written?.value_span, what, "`Min` must not be more than `Max`, or nothing passes");
        return None;
    }
    Some((low, high))
}

/// Pairs such as `1-2`, with spaces between them; each stands for both ways round.
fn parse_compatible_pairs(at: &ElementReader<'_>, written: &RawAttribute) -> Option<Box<[(i32, i32)]>> {
    let pair = |word: &str| {
        let (one, other) = word.split_once('-')?;
        let (one, other): (u16, u16) = (one.parse().ok()?, other.parse().ok()?);
        Some((i32::from(one.min(other)), i32::from(one.max(other))))
    };
    let pairs: Option<Vec<(i32, i32)>> = written.value.split_whitespace().map(pair).collect();
    match pairs {
        Some(mut pairs) if (1..=STRING_LIST_ENTRIES_MAX * STRING_LIST_ENTRIES_MAX).contains(&pairs.len()) => {
            pairs.sort_unstable();
            pairs.dedup();
            Some(pairs.into())
        }
        _ => {
            at.report_value(written, "give pairs of whole numbers with spaces between them, as in `1-1 1-2`");
            None
        }
    }
}

/// `<Within Expansion=…/>`, or `<Within Attribute=… Limit=…/>` for a limit that does not change.
fn read_within(
    at: &mut ElementReader<'_>,
    declared: &DeclaredAttributes,
    expansions: &mut DeclaredExpansions,
    given: Option<&RawAttribute>,
    natural: &mut Option<String>,
) -> Option<HardRule> {
    let (expansion, attribute, limit) = (at.attribute("Expansion"), at.attribute("Attribute"), at.attribute("Limit"));
    let limit_value = at.optional_number("Limit", LIMIT_BOUNDS);
    let reciprocal_percent = at.number_or("ReciprocalPercent", NumberBounds::PERCENT, 100.0);
    match (expansion, limit) {
        (Some(expansion), None) => {
            let (index, measure) = expansions.find(at, expansion)?;
            let measure = measure?;
            *natural = Some(measure_name(measure, declared).into());
            if let Some(attribute) = attribute.filter(|it| *it.value != *measure_name(measure, declared)) {
                let what = format!("{} limits `{}`", quoted_excerpt(&expansion.value), measure_name(measure, declared));
                at.report(attribute.value_span, what, "leave `Attribute` out, or name another expansion");
            }
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (None, Some(limit_written)) => {
            let Some(attribute) = attribute else {
                let right = "add Attribute=\"…\": a number attribute, `latency` or `distance`";
                at.report(limit_written.name_span, "`Limit` does not say of what", right);
                return None;
            };
            let measure = match &*attribute.value {
                "latency" => Measure::Latency,
                "distance" => Measure::Distance,
                _ => Measure::AttributeDifference(declared.find_of_kind(at, attribute, ValueType::Number)?),
            };
            *natural = Some(attribute.value.to_string());
            let name = given.map_or(&*attribute.value, |given| &*given.value);
            let Some(index) = expansions.add_constant(name, measure, limit_value?) else {
                let what = format!("an <ExpansionConfig> is called {} too", quoted_excerpt(name));
                at.report(limit_written.name_span, what, "give this filter another Name");
                return None;
            };
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (Some(_), Some(limit)) => {
            at.report(limit.name_span, "<Within> has both `Expansion` and `Limit`", "keep one of them");
            None
        }
        (None, None) => {
            let right = "add Expansion=\"…\" with the name of an <ExpansionConfig>, or Attribute=\"…\" and Limit=\"…\"";
            at.report(at.element.name_span, "<Within> does not say within what", right);
            None
        }
    }
}

fn measure_name(measure: Measure, declared: &DeclaredAttributes) -> &str {
    match measure {
        Measure::AttributeDifference(index) => declared.name(index),
        Measure::Latency => "latency",
        Measure::Distance => "distance",
    }
}
