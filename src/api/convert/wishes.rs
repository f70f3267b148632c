//! Conversion of the wishes of a session composition. Each list, text and number is checked against its limit.

use std::fmt::Display;

use crate::api::convert::{FieldErrors, field_checks};
use crate::api::pb;
use crate::domain::limit;
use crate::domain::session::SessionDetails;
use crate::domain::wish::{AcceptedValues, Wish, WishStep};

/// Reads the wishes at `path` as details of a session; `None` without any.
pub(super) fn session_details_from_wishes(
    wire: Vec<pb::Wish>,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<Box<SessionDetails>> {
    if wire.is_empty() || !field_checks::check_list_len(wire.len(), limit::WISHES_PER_SESSION_MAX, path, problems) {
        return None;
    }
    let mut wishes: Vec<Wish> = Vec::with_capacity(wire.len());
    for (index, wire) in wire.into_iter().enumerate() {
        let path = format_args!("{path}[{index}]");
        field_checks::check_required_text(&wire.attribute, format_args!("{path}.attribute"), problems);
        if wishes.iter().any(|known| *known.subject_name == *wire.attribute) {
            problems.add(format_args!("{path}.attribute"), "is listed twice; give one wish for each attribute");
        }
        wishes.extend(wish(wire, path, problems));
    }
    SessionDetails::from_wishes(wishes)
}

fn wish(wire: pb::Wish, path: impl Display + Copy, problems: &mut FieldErrors) -> Option<Wish> {
    let relaxations = format_args!("{path}.relaxations");
    if !field_checks::check_list_len(wire.relaxations.len(), limit::WISH_STEPS_MAX, relaxations, problems) {
        return None;
    }
    let accepted = accepted_values(wire.accepted, format_args!("{path}.accepted"), problems);
    let mut steps = vec![WishStep { start_ms: 0, accepted }];
    for (index, step) in wire.relaxations.into_iter().enumerate() {
        let accepted = accepted_values(step.accepted, format_args!("{relaxations}[{index}].accepted"), problems);
        steps.push(WishStep { start_ms: step.after_ms, accepted });
    }
    match Wish::new(&wire.attribute, wire.accept_missing, steps) {
        Ok(wish) => Some(wish),
        Err(step) => {
            let path = format_args!("{relaxations}[{}]", step.saturating_sub(1));
            let days = limit::RULESET_DURATION_MS_MAX / (24 * 60 * 60 * 1000);
            let message = format!(
                "does not follow the step before it; let it start later, by at most {days} days in all, and accept all that \
                 was accepted before"
            );
            problems.add(path, message);
            None
        }
    }
}

fn accepted_values(
    wire: Option<pb::AcceptedValues>,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> AcceptedValues {
    let pb::AcceptedValues { min, max, strings, flag } = wire.unwrap_or_default();
    let min = min.map(|min| field_checks::checked_number(min, format_args!("{path}.min"), problems));
    let max = max.map(|max| field_checks::checked_number(max, format_args!("{path}.max"), problems));
    match (min, max, strings.is_empty(), flag) {
        (None, None, true, None) => AcceptedValues::Any,
        (None, None, true, Some(flag)) => AcceptedValues::Flag(flag),
        (None, None, false, None) => accepted_strings(strings, path, problems),
        (min, max, true, None) => {
            if let (Some(min), Some(max)) = (min, max)
                && max < min
            {
                problems.add(path, format!("has min {min} above max {max}; swap them"));
            }
            AcceptedValues::Numbers { min, max }
        }
        _ => {
            problems.add(path, "mixes numbers, strings and flag; give only what fits the attribute");
            AcceptedValues::Any
        }
    }
}

fn accepted_strings(strings: Vec<String>, path: impl Display + Copy, problems: &mut FieldErrors) -> AcceptedValues {
    let path = format_args!("{path}.strings");
    if !field_checks::check_list_len(strings.len(), limit::STRING_LIST_ENTRIES_MAX, path, problems) {
        return AcceptedValues::Any;
    }
    for (index, text) in strings.iter().enumerate() {
        field_checks::check_text_len(text, format_args!("{path}[{index}]"), problems);
    }
    let mut strings: Vec<Box<str>> = strings.into_iter().map(String::into_boxed_str).collect();
    strings.sort_unstable();
    strings.dedup();
    AcceptedValues::Strings(strings.into())
}

/// Converts wishes back, for an export.
pub(super) fn wishes_to_proto(wishes: &[Wish]) -> Vec<pb::Wish> {
    let accepted = |step: &WishStep| match &step.accepted {
        AcceptedValues::Any => pb::AcceptedValues::default(),
        AcceptedValues::Numbers { min, max } => pb::AcceptedValues { min: *min, max: *max, ..Default::default() },
        AcceptedValues::Strings(strings) => {
            let strings = strings.iter().map(|text| text.to_string()).collect();
            pb::AcceptedValues { strings, ..Default::default() }
        }
        AcceptedValues::Flag(flag) => pb::AcceptedValues { flag: Some(*flag), ..Default::default() },
    };
    let relaxation = |step: &WishStep| pb::WishRelaxation { after_ms: step.start_ms, accepted: Some(accepted(step)) };
    let convert = |wish: &Wish| pb::Wish {
        attribute: wish.subject_name.to_string(),
        accepted: wish.steps().first().map(accepted),
        relaxations: wish.steps().iter().skip(1).map(relaxation).collect(),
        accept_missing: wish.accepts_missing,
    };
    wishes.iter().map(convert).collect()
}
