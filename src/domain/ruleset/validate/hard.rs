//! `<HardFilters>`: rules that must hold exactly (S1-17).

use crate::domain::attribute::{Value, ValueKind};
use crate::domain::limit::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::domain::measure::Measure;
use crate::domain::ruleset::draft::{Element, Mistakes, Span, Written, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::validate::attributes::{ANY_NUMBER, Declared};
use crate::domain::ruleset::validate::expansions::{Expansions, LIMIT};
use crate::domain::ruleset::{HardFilter, HardRule, InList, MissingHard};

const ELEMENTS: [&str; 8] = ["Equal", "NotEqual", "In", "Range", "Overlap", "Compatible", "Within", "SameHash"];

const MISSING: [(&str, MissingHard); 2] = [("pass", MissingHard::Pass), ("refuse", MissingHard::Refuse)];

/// Names of the refusals that need no rule: a filter of such a name would be taken for one.
const RESERVED: [&str; 6] = ["allowed", "excluded", "expired", "full", "own", "silo"];

/// Reads `<HardFilters>`; without one, everything is admitted.
pub(super) fn read(
    element: Option<&Element>,
    declared: &Declared,
    expansions: &mut Expansions,
    mistakes: &Mistakes,
) -> Vec<HardFilter> {
    let Some(element) = element else { return Vec::new() };
    let mut at = Fields::of(element, mistakes);
    let mut filters: Vec<HardFilter> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for child in at.children(&ELEMENTS) {
        if let Some((name, filter)) = read_one(child, declared, expansions, &names, mistakes) {
            names.push(name);
            filters.extend(filter);
        }
    }
    at.finish();
    filters
}

/// One filter and its name; the name alone when the filter is wrong, nothing when not even that is known.
fn read_one(
    element: &Element,
    declared: &Declared,
    expansions: &mut Expansions,
    taken: &[String],
    mistakes: &Mistakes,
) -> Option<(String, Option<HardFilter>)> {
    let mut at = Fields::of(element, mistakes);
    let given = at.optional_handle("Name");
    // The name that a filter goes by when it has none of its own: that of what it looks at.
    let mut natural = None;
    let rule = match &*element.name {
        "SameHash" => {
            natural = Some("same_hash".into());
            Some(HardRule::SameHash)
        }
        "Within" => within(&mut at, declared, expansions, given, &mut natural),
        _ => about_attribute(&mut at, declared, &mut natural),
    };
    let missing = match &*element.name {
        "SameHash" => None,
        _ => at.word("Missing", &MISSING),
    };
    let span = given.map_or(element.span, |given| given.value_span);
    let name = given.map(|given| given.value.to_string()).or(natural);
    if let Some(name) = &name {
        check_name(&at, span, name, taken);
    }
    at.finish();
    let name = name?;
    let filter = rule.map(|rule| HardFilter { name: name.as_str().into(), missing: missing.unwrap_or_default(), rule });
    Some((name, filter))
}

fn check_name(at: &Fields<'_>, span: Span, name: &str, taken: &[String]) {
    if RESERVED.contains(&name) {
        at.wrong(
            span,
            format!("{} is what the server calls a refusal of its own", quoted(name)),
            "choose another Name",
        );
    }
    if taken.iter().any(|known| known == name) {
        let what = format!("a second hard filter is called {}", quoted(name));
        at.wrong(span, what, "give it a Name of its own, so that refusals can be told apart");
    }
}

/// All rules that look at one attribute.
fn about_attribute(at: &mut Fields<'_>, declared: &Declared, natural: &mut Option<String>) -> Option<HardRule> {
    let element = &*at.element.name;
    let kind = match element {
        "In" => Some(ValueKind::Text),
        "Range" | "Compatible" => Some(ValueKind::Number),
        "Overlap" => Some(ValueKind::Texts),
        _ => None,
    };
    let written = at.required("Attribute");
    *natural = written.map(|written| written.value.to_string());
    let found = written.and_then(|written| match kind {
        Some(kind) => Some((declared.expect_kind(at, written, kind)?, Some(kind))),
        None => declared.find(at, written),
    });
    // The rest is read even where the attribute is wrong, so that what is wrong there is found as well.
    let index = found.map(|(index, _)| index);
    match element {
        "Equal" | "NotEqual" => {
            let value = constant(at, found.and_then(|(_, kind)| kind));
            let attribute = index?;
            Some(match element {
                "Equal" => HardRule::Equal { attribute, value },
                _ => HardRule::NotEqual { attribute, value },
            })
        }
        "In" => {
            let list = in_list(at, declared);
            let mutual = at.flag_or("Mutual", false);
            Some(HardRule::In { attribute: index?, list: list?, mutual })
        }
        "Range" => {
            let (min, max) = open_range(at)?;
            Some(HardRule::Range { attribute: index?, min, max })
        }
        "Overlap" => Some(HardRule::Overlap { attribute: index? }),
        _ => {
            let pairs = at.required("Pairs").and_then(|written| pairs(at, written));
            Some(HardRule::Compatible { attribute: index?, pairs: pairs? })
        }
    }
}

/// The constant of an `<Equal>` or `<NotEqual>`, as the attribute's kind reads it.
fn constant(at: &mut Fields<'_>, kind: Option<ValueKind>) -> Option<Value> {
    let written = at.written("Value")?;
    match kind? {
        ValueKind::Number => at.number("Value", ANY_NUMBER).map(Value::Number),
        ValueKind::Flag => at.word("Value", &[("true", true), ("false", false)]).map(Value::Flag),
        ValueKind::Texts => texts(at, written).map(Value::texts),
        ValueKind::Text => {
            let fits = written.value.len() <= TEXT_BYTES_MAX;
            if !fits {
                at.wrong_value(written, format!("give at most {TEXT_BYTES_MAX} bytes"));
            }
            fits.then(|| Value::Text(written.value.clone()))
        }
    }
}

/// `List`, a texts attribute of the asking side, or `Values`, fixed texts.
fn in_list(at: &mut Fields<'_>, declared: &Declared) -> Option<InList> {
    match (at.written("List"), at.written("Values")) {
        (Some(list), None) => declared.expect_kind(at, list, ValueKind::Texts).map(InList::Attribute),
        (None, Some(values)) => match Value::texts(texts(at, values)?) {
            Value::Texts(texts) => Some(InList::Texts(texts)),
            Value::Number(_) | Value::Text(_) | Value::Flag(_) => None,
        },
        (Some(list), Some(_)) => {
            at.wrong(list.name_span, "<In> has both `List` and `Values`", "keep one of them");
            None
        }
        (None, None) => {
            let right = "add Values=\"one two\", or List=\"…\" with the name of a texts attribute";
            at.wrong(at.element.span, "<In> does not say in what", right);
            None
        }
    }
}

/// Texts with spaces between them.
fn texts(at: &Fields<'_>, written: &Written) -> Option<Vec<Box<str>>> {
    let texts: Vec<Box<str>> = written.value.split_whitespace().map(Into::into).collect();
    let sound = (1..=TEXTS_MAX).contains(&texts.len()) && texts.iter().all(|text| text.len() <= TEXT_BYTES_MAX);
    if !sound {
        let right =
            format!("give 1 to {TEXTS_MAX} words with spaces between them, each at most {TEXT_BYTES_MAX} bytes");
        at.wrong_value(written, right);
    }
    sound.then_some(texts)
}

/// `Min`, `Max` or both; the end that is left out is open.
fn open_range(at: &mut Fields<'_>) -> Option<(f64, f64)> {
    let (min_written, max_written) = (at.written("Min"), at.written("Max"));
    let (min, max) = (at.number("Min", ANY_NUMBER), at.number("Max", ANY_NUMBER));
    if min_written.is_none() && max_written.is_none() {
        at.wrong(at.element.span, "<Range> has no end", "add Min=\"…\", Max=\"…\" or both");
        return None;
    }
    if (min_written.is_some() && min.is_none()) || (max_written.is_some() && max.is_none()) {
        return None;
    }
    let (low, high) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    if high < low {
        let what = format!("`Min` is {low} and `Max` is {high}");
        at.wrong(min_written?.value_span, what, "`Min` must not be more than `Max`, or nothing passes");
        return None;
    }
    Some((low, high))
}

/// Pairs such as `1-2`, with spaces between them; each stands for both ways round.
fn pairs(at: &Fields<'_>, written: &Written) -> Option<Box<[(i32, i32)]>> {
    let pair = |word: &str| {
        let (one, other) = word.split_once('-')?;
        let (one, other): (u16, u16) = (one.parse().ok()?, other.parse().ok()?);
        Some((i32::from(one.min(other)), i32::from(one.max(other))))
    };
    let pairs: Option<Vec<(i32, i32)>> = written.value.split_whitespace().map(pair).collect();
    match pairs {
        Some(mut pairs) if (1..=TEXTS_MAX * TEXTS_MAX).contains(&pairs.len()) => {
            pairs.sort_unstable();
            pairs.dedup();
            Some(pairs.into())
        }
        _ => {
            at.wrong_value(written, "give pairs of whole numbers with spaces between them, as in `1-1 1-2`");
            None
        }
    }
}

/// `<Within Expansion=…/>`, or `<Within Attribute=… Limit=…/>` for a limit that does not change.
fn within(
    at: &mut Fields<'_>,
    declared: &Declared,
    expansions: &mut Expansions,
    given: Option<&Written>,
    natural: &mut Option<String>,
) -> Option<HardRule> {
    let (expansion, attribute, limit) = (at.written("Expansion"), at.written("Attribute"), at.written("Limit"));
    let limit_value = at.number("Limit", LIMIT);
    let reciprocal_percent = at.number_or("ReciprocalPercent", Bounds::PERCENT, 100.0);
    match (expansion, limit) {
        (Some(expansion), None) => {
            let (index, measure) = expansions.find(at, expansion)?;
            let measure = measure?;
            *natural = Some(measure_name(measure, declared).into());
            if let Some(attribute) = attribute.filter(|it| *it.value != *measure_name(measure, declared)) {
                let what = format!("{} limits `{}`", quoted(&expansion.value), measure_name(measure, declared));
                at.wrong(attribute.value_span, what, "leave `Attribute` out, or name another expansion");
            }
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (None, Some(limit_written)) => {
            let Some(attribute) = attribute else {
                let right = "add Attribute=\"…\": a number attribute, `latency` or `distance`";
                at.wrong(limit_written.name_span, "`Limit` does not say of what", right);
                return None;
            };
            let measure = match &*attribute.value {
                "latency" => Measure::Latency,
                "distance" => Measure::Distance,
                _ => Measure::Attribute(declared.expect_kind(at, attribute, ValueKind::Number)?),
            };
            *natural = Some(attribute.value.to_string());
            let name = given.map_or(&*attribute.value, |given| &*given.value);
            let Some(index) = expansions.add_constant(name, measure, limit_value?) else {
                let what = format!("an <ExpansionConfig> is called {} too", quoted(name));
                at.wrong(limit_written.name_span, what, "give this filter another Name");
                return None;
            };
            Some(HardRule::Within { measure, expansion: index, reciprocal_percent })
        }
        (Some(_), Some(limit)) => {
            at.wrong(limit.name_span, "<Within> has both `Expansion` and `Limit`", "keep one of them");
            None
        }
        (None, None) => {
            let right = "add Expansion=\"…\" with the name of an <ExpansionConfig>, or Attribute=\"…\" and Limit=\"…\"";
            at.wrong(at.element.span, "<Within> does not say within what", right);
            None
        }
    }
}

fn measure_name(measure: Measure, declared: &Declared) -> &str {
    match measure {
        Measure::Attribute(index) => declared.name(index),
        Measure::Latency => "latency",
        Measure::Distance => "distance",
    }
}
