//! `<Avoid>`: whom players would not meet again, and how much they mind.

use crate::domain::limit::DURATION_MS_MAX;
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::queue::{Avoid, AvoidHow, AvoidWhom};
use crate::domain::ruleset::validate::queue::POSITIVE;

#[derive(Clone, Copy, PartialEq)]
enum Whom {
    Blocked,
    Opponents,
    Teammates,
}

#[derive(Clone, Copy)]
enum How {
    Never,
    NotSameTeam,
    RatherNot,
}

const WHOM: [(&str, Whom); 3] =
    [("blocked", Whom::Blocked), ("recent_opponents", Whom::Opponents), ("recent_teammates", Whom::Teammates)];

const HOW: [(&str, How); 3] =
    [("never", How::Never), ("not_same_team", How::NotSameTeam), ("rather_not", How::RatherNot)];

/// Reads all `<Avoid>`s, in file order.
pub(super) fn read(elements: &[&Element], mistakes: &Mistakes) -> Vec<Avoid> {
    let mut avoid: Vec<Avoid> = Vec::new();
    for element in elements {
        let mut at = Fields::of(element, mistakes);
        let one = read_one(&mut at);
        if let Some(one) = one {
            let again = avoid.iter().any(|known| {
                let alike = std::mem::discriminant(&known.whom) == std::mem::discriminant(&one.whom);
                let as_strict = std::mem::discriminant(&known.how) == std::mem::discriminant(&one.how);
                // Blocking knows no age: once they never meet, no second rule about them is ever asked.
                alike && (as_strict || one.whom == AvoidWhom::Blocked && known.how == AvoidHow::Never)
            });
            if again {
                let right = "keep one of them: twice makes sense in different ways alone";
                at.wrong(element.span, "the same people are avoided already", right);
            }
            avoid.push(one);
        }
        at.finish();
    }
    avoid
}

/// One rule; `None` when the mistake is noted.
fn read_one(at: &mut Fields<'_>) -> Option<Avoid> {
    let whom = at.required_word("Whom", &WHOM);
    let how = at.required_word("How", &HOW);
    let for_ms = match whom {
        Some(Whom::Blocked) => {
            at.idle(&["ForMs"], "who is blocked stays blocked");
            None
        }
        Some(Whom::Opponents | Whom::Teammates) => at.required_whole("ForMs", 1, DURATION_MS_MAX),
        None => at.whole("ForMs", 1, DURATION_MS_MAX),
    };
    let how = match (how, whom) {
        (Some(How::Never), _) => Some(AvoidHow::Never),
        (Some(How::NotSameTeam), _) => Some(AvoidHow::NotSameTeam),
        (Some(How::RatherNot), Some(Whom::Blocked)) => blocked_at_a_cost(at),
        (Some(How::RatherNot), Some(_)) => at_a_cost(at),
        // What must be here depends on a word that is missing: what is here is taken for granted.
        (Some(How::RatherNot) | None, _) => {
            let _ = (at.number("Cost", POSITIVE), at.whole("HalfLifeMs", 1, DURATION_MS_MAX));
            None
        }
    };
    if matches!(how, Some(AvoidHow::Never | AvoidHow::NotSameTeam)) {
        at.idle(&["Cost", "HalfLifeMs"], "only How=\"rather_not\" has a price");
    }
    let whom = match whom? {
        Whom::Blocked => AvoidWhom::Blocked,
        Whom::Opponents => AvoidWhom::RecentOpponents { for_ms: for_ms? },
        Whom::Teammates => AvoidWhom::RecentTeammates { for_ms: for_ms? },
    };
    Some(Avoid { whom, how: how? })
}

fn at_a_cost(at: &mut Fields<'_>) -> Option<AvoidHow> {
    let cost = at.required_number("Cost", POSITIVE);
    let half_life_ms = at.required_whole("HalfLifeMs", 1, DURATION_MS_MAX);
    Some(AvoidHow::RatherNot { cost: cost?, half_life_ms: half_life_ms? })
}

/// Without an age nothing halves: the half-life is there for the sake of the type alone.
fn blocked_at_a_cost(at: &mut Fields<'_>) -> Option<AvoidHow> {
    at.idle(&["HalfLifeMs"], "that somebody is blocked has no age");
    let cost = at.required_number("Cost", POSITIVE)?;
    Some(AvoidHow::RatherNot { cost, half_life_ms: DURATION_MS_MAX })
}
