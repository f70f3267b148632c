//! `<Avoid>`: players who should not meet again, and how strictly.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::ruleset::raw::{Diagnostics, RawElement};

#[derive(Clone, Copy, PartialEq)]
enum AvoidTargetName {
    Blocked,
    Opponents,
    Teammates,
}

#[derive(Clone, Copy)]
enum AvoidStrictnessName {
    Never,
    NotSameTeam,
    PreferNot,
}

const AVOID_TARGET_KEYWORDS: [(&str, AvoidTargetName); 3] = [
    ("blocked", AvoidTargetName::Blocked),
    ("recent_opponents", AvoidTargetName::Opponents),
    ("recent_teammates", AvoidTargetName::Teammates),
];

const AVOID_STRICTNESS_KEYWORDS: [(&str, AvoidStrictnessName); 3] = [
    ("never", AvoidStrictnessName::Never),
    ("not_same_team", AvoidStrictnessName::NotSameTeam),
    ("prefer_not", AvoidStrictnessName::PreferNot),
];

/// Reads the `<Avoid>` elements of the ruleset, which hold in searches and in the queue.
pub(super) fn read_common_rules(elements: &[&RawElement], diagnostics: &Diagnostics) -> Vec<AvoidanceRule> {
    let check = |reader: &ElementReader<'_>, element: &RawElement, rule: &AvoidanceRule| {
        let problem = match (rule.whom, rule.how) {
            (_, AvoidStrictness::NotSameTeam) => "searches know no teams, so that `not_same_team` has no meaning here",
            (AvoidTarget::Blocked, AvoidStrictness::PreferNot { .. }) => {
                "a cost of blocked players would show a searcher who has blocked whom"
            }
            _ => return,
        };
        reader.report_at(element.name_span, problem, "write How=\"never\", or move the element into <Queue>");
    };
    read_rules(elements, &[], check, diagnostics)
}

/// Reads the `<Avoid>` elements of `<Queue>`, and adds the rules of the ruleset.
pub(super) fn read_queue_rules(
    elements: &[&RawElement],
    common: &[AvoidanceRule],
    diagnostics: &Diagnostics,
) -> Vec<AvoidanceRule> {
    let mut rules = read_rules(elements, common, |_, _, _| {}, diagnostics);
    rules.extend(common);
    rules
}

/// Reads `<Avoid>` elements, in file order. `known` are rules that hold beside them.
fn read_rules(
    elements: &[&RawElement],
    known: &[AvoidanceRule],
    check: impl Fn(&ElementReader<'_>, &RawElement, &AvoidanceRule),
    diagnostics: &Diagnostics,
) -> Vec<AvoidanceRule> {
    let mut rules: Vec<AvoidanceRule> = Vec::new();
    for element in elements {
        let mut reader = ElementReader::new(element, diagnostics);
        let rule = read_avoidance_rule(&mut reader);
        if let Some(rule) = rule {
            check(&reader, element, &rule);
            let duplicate = known.iter().chain(&rules).any(|existing| {
                let same_target = std::mem::discriminant(&existing.whom) == std::mem::discriminant(&rule.whom);
                let same_strictness = std::mem::discriminant(&existing.how) == std::mem::discriminant(&rule.how);
                // Blocks have no age: after a `never` rule no other rule about blocked users can apply.
                same_target
                    && (same_strictness || rule.whom == AvoidTarget::Blocked && existing.how == AvoidStrictness::Never)
            });
            if duplicate {
                let fix = "keep one of them, or give them different `How`";
                reader.report_at(element.name_span, "another <Avoid> has the same `Whom`", fix);
            }
            rules.push(rule);
        }
        reader.report_unread_and_missing();
    }
    rules
}

/// Reads one rule; `None` if a problem was reported.
fn read_avoidance_rule(reader: &mut ElementReader<'_>) -> Option<AvoidanceRule> {
    let whom = reader.required_keyword("Whom", &AVOID_TARGET_KEYWORDS);
    let how = reader.required_keyword("How", &AVOID_STRICTNESS_KEYWORDS);
    let recent_ms = match whom {
        Some(AvoidTargetName::Blocked) => {
            reader.report_without_effect(&["RecentMs"], "blocks do not expire");
            None
        }
        Some(AvoidTargetName::Opponents | AvoidTargetName::Teammates) => {
            reader.required_integer("RecentMs", 1, RULESET_DURATION_MS_MAX)
        }
        None => reader.optional_integer("RecentMs", 1, RULESET_DURATION_MS_MAX),
    };
    let how = match (how, whom) {
        (Some(AvoidStrictnessName::Never), _) => Some(AvoidStrictness::Never),
        (Some(AvoidStrictnessName::NotSameTeam), _) => Some(AvoidStrictness::NotSameTeam),
        (Some(AvoidStrictnessName::PreferNot), Some(AvoidTargetName::Blocked)) => read_blocked_quality_cost(reader),
        (Some(AvoidStrictnessName::PreferNot), Some(_)) => read_quality_cost(reader),
        // The required attributes depend on a missing keyword; accept the present ones.
        (Some(AvoidStrictnessName::PreferNot) | None, _) => {
            let _ = (
                reader.optional_number("Cost", NumberBounds::POSITIVE),
                reader.optional_integer("HalfLifeMs", 1, RULESET_DURATION_MS_MAX),
            );
            None
        }
    };
    if matches!(how, Some(AvoidStrictness::Never | AvoidStrictness::NotSameTeam)) {
        reader.report_without_effect(&["Cost", "HalfLifeMs"], "only How=\"prefer_not\" has a cost");
    }
    let whom = match whom? {
        AvoidTargetName::Blocked => AvoidTarget::Blocked,
        AvoidTargetName::Opponents => AvoidTarget::RecentOpponents { recent_ms: recent_ms? },
        AvoidTargetName::Teammates => AvoidTarget::RecentTeammates { recent_ms: recent_ms? },
    };
    Some(AvoidanceRule { whom, how: how? })
}

fn read_quality_cost(reader: &mut ElementReader<'_>) -> Option<AvoidStrictness> {
    let cost = reader.required_number("Cost", NumberBounds::POSITIVE);
    let half_life_ms = reader.required_integer("HalfLifeMs", 1, RULESET_DURATION_MS_MAX);
    Some(AvoidStrictness::PreferNot { cost: cost?, half_life_ms: half_life_ms? })
}

/// Reads the cost of `blocked`. Blocks have no age, so the half-life is a placeholder.
fn read_blocked_quality_cost(reader: &mut ElementReader<'_>) -> Option<AvoidStrictness> {
    reader.report_without_effect(&["HalfLifeMs"], "blocks have no age");
    let cost = reader.required_number("Cost", NumberBounds::POSITIVE)?;
    Some(AvoidStrictness::PreferNot { cost, half_life_ms: RULESET_DURATION_MS_MAX })
}
