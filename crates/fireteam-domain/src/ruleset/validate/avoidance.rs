//! `<Avoid>`: whom players would not meet again, and how much they mind.

use crate::limit::RULESET_DURATION_MS_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::validate::queue::POSITIVE_NUMBER;

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
    RatherNot,
}

const AVOID_TARGET_KEYWORDS: [(&str, AvoidTargetName); 3] = [
    ("blocked", AvoidTargetName::Blocked),
    ("recent_opponents", AvoidTargetName::Opponents),
    ("recent_teammates", AvoidTargetName::Teammates),
];

const AVOID_STRICTNESS_KEYWORDS: [(&str, AvoidStrictnessName); 3] = [
    ("never", AvoidStrictnessName::Never),
    ("not_same_team", AvoidStrictnessName::NotSameTeam),
    ("rather_not", AvoidStrictnessName::RatherNot),
];

/// Reads all `<Avoid>`s, in file order.
pub(super) fn read_avoidance_rules(elements: &[&RawElement], mistakes: &Diagnostics) -> Vec<AvoidanceRule> {
    let mut avoid: Vec<AvoidanceRule> = Vec::new();
    for element in elements {
        let mut at = ElementReader::new(element, mistakes);
        let one = read_avoidance_rule(&mut at);
        if let Some(one) = one {
            let again = avoid.iter().any(|known| {
                let alike = std::mem::discriminant(&known.whom) == std::mem::discriminant(&one.whom);
                let as_strict = std::mem::discriminant(&known.how) == std::mem::discriminant(&one.how);
                // Blocking knows no age: once they never meet, no second rule about them is ever asked.
                alike && (as_strict || one.whom == AvoidTarget::Blocked && known.how == AvoidStrictness::Never)
            });
            if again {
                let right = "keep one of them: twice makes sense in different ways alone";
                at.report(element.name_span, "the same people are avoided already", right);
            }
            avoid.push(one);
        }
        at.report_unread();
    }
    avoid
}

/// One rule; `None` when the mistake is noted.
fn read_avoidance_rule(at: &mut ElementReader<'_>) -> Option<AvoidanceRule> {
    let whom = at.required_keyword("Whom", &AVOID_TARGET_KEYWORDS);
    let how = at.required_keyword("How", &AVOID_STRICTNESS_KEYWORDS);
    let for_ms = match whom {
        Some(AvoidTargetName::Blocked) => {
            at.report_without_effect(&["ForMs"], "who is blocked stays blocked");
            None
        }
        Some(AvoidTargetName::Opponents | AvoidTargetName::Teammates) => {
            at.required_integer("ForMs", 1, RULESET_DURATION_MS_MAX)
        }
        None => at.optional_integer("ForMs", 1, RULESET_DURATION_MS_MAX),
    };
    let how = match (how, whom) {
        (Some(AvoidStrictnessName::Never), _) => Some(AvoidStrictness::Never),
        (Some(AvoidStrictnessName::NotSameTeam), _) => Some(AvoidStrictness::NotSameTeam),
        (Some(AvoidStrictnessName::RatherNot), Some(AvoidTargetName::Blocked)) => read_blocked_quality_cost(at),
        (Some(AvoidStrictnessName::RatherNot), Some(_)) => read_quality_cost(at),
        // What must be here depends on a word that is missing: what is here is taken for granted.
        (Some(AvoidStrictnessName::RatherNot) | None, _) => {
            let _ = (
                at.optional_number("Cost", POSITIVE_NUMBER),
                at.optional_integer("HalfLifeMs", 1, RULESET_DURATION_MS_MAX),
            );
            None
        }
    };
    if matches!(how, Some(AvoidStrictness::Never | AvoidStrictness::NotSameTeam)) {
        at.report_without_effect(&["Cost", "HalfLifeMs"], "only How=\"rather_not\" has a price");
    }
    let whom = match whom? {
        AvoidTargetName::Blocked => AvoidTarget::Blocked,
        AvoidTargetName::Opponents => AvoidTarget::RecentOpponents { for_ms: for_ms? },
        AvoidTargetName::Teammates => AvoidTarget::RecentTeammates { for_ms: for_ms? },
    };
    Some(AvoidanceRule { whom, how: how? })
}

fn read_quality_cost(at: &mut ElementReader<'_>) -> Option<AvoidStrictness> {
    let cost = at.required_number("Cost", POSITIVE_NUMBER);
    let half_life_ms = at.required_integer("HalfLifeMs", 1, RULESET_DURATION_MS_MAX);
    Some(AvoidStrictness::RatherNot { cost: cost?, half_life_ms: half_life_ms? })
}

/// Without an age nothing halves: the half-life is there for the sake of the type alone.
fn read_blocked_quality_cost(at: &mut ElementReader<'_>) -> Option<AvoidStrictness> {
    at.report_without_effect(&["HalfLifeMs"], "that somebody is blocked has no age");
    let cost = at.required_number("Cost", POSITIVE_NUMBER)?;
    Some(AvoidStrictness::RatherNot { cost, half_life_ms: RULESET_DURATION_MS_MAX })
}
