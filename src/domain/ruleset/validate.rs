//! From draft to ruleset, or every problem at once.
//!
//! Each section has a file of its own. A section that finds a mistake notes it and reads on with a harmless value: no
//! ruleset comes of it, but the next mistake is found as well.

mod attributes;
mod avoid;
mod expansions;
mod hard;
pub(super) mod life;
mod quality;
pub(super) mod queue;
mod rating;
mod regions;
mod search;
mod sense;
mod soft;
mod teams;
mod window;

use std::sync::Arc;

use crate::domain::expansion::Expansion;
use crate::domain::id::{RulesetHash, SetId, SiloId};
use crate::domain::limit::RULES_MAX;
use crate::domain::ruleset::draft::{Element, Mistake, Mistakes, quoted};
use crate::domain::ruleset::fields::Fields;
use crate::domain::ruleset::hash::hash_of;
use crate::domain::ruleset::suggest::instead;
use crate::domain::ruleset::{Ruleset, SiloRule};

/// Expansions that stand alone, as the thesis prints them; what their types mean, a ruleset has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct Fragment {
    /// The attributes that the expansions limit: `Measure::Attribute` points in here.
    pub attributes: Box<[Box<str>]>,
    /// The expansions, in file order.
    pub expansions: Box<[Expansion]>,
}

/// Checks a whole ruleset; `xml` is the file that `draft` was read from. Every mistake is in the answer, in file order.
pub fn validate(draft: &Element, xml: Arc<str>) -> Result<Ruleset, Vec<Mistake>> {
    let mistakes = Mistakes::default();
    if &*draft.name != "Ruleset" {
        let right = instead(&draft.name, ["Ruleset"]);
        mistakes.add(draft.span, format!("the file begins with {}", quoted(&draft.name)), right);
        return Err(mistakes.into_sorted());
    }
    let ruleset = read(draft, &mistakes, xml);
    if mistakes.is_empty() { Ok(Ruleset { hash: hash_of(&ruleset), ..ruleset }) } else { Err(mistakes.into_sorted()) }
}

/// Checks an `<ExpansionConfigs>` that stands alone.
pub fn validate_fragment(draft: &Element) -> Result<Fragment, Vec<Mistake>> {
    let mistakes = Mistakes::default();
    let fragment = expansions::read_fragment(draft, &mistakes);
    if mistakes.is_empty() { Ok(fragment) } else { Err(mistakes.into_sorted()) }
}

fn read(root: &Element, mistakes: &Mistakes, xml: Arc<str>) -> Ruleset {
    let mut at = Fields::of(root, mistakes);
    if let Some(name) = at.required("Name").filter(|name| name.value.trim().is_empty()) {
        at.wrong_value(name, "give the playlist a name");
    }
    let name = at.text("Name");
    let set_id = at.required_whole("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    let silos = silos(&mut at);
    let declared = attributes::read(at.child("Attributes"), mistakes);
    let hard_filters = at.child("HardFilters");
    let soft_filters = at.child("SoftFilters");
    let mut expansions = expansions::read(at.child("ExpansionConfigs"), &declared, mistakes);
    let hard = hard::read(hard_filters, &declared, &mut expansions, mistakes);
    let soft = soft::read(soft_filters, &declared, mistakes);
    let chances = at.child("AdvertiseChances");
    let limits = search::limits(at.child("Limits"), mistakes);
    let (line, involved_phase_percent) = search::latency(at.child("Latency"), mistakes);
    let consent = search::consent(at.child("Party"), mistakes);
    let before = mistakes.count();
    let teams = at.child("Teams").map(|element| teams::read(element, &declared, mistakes));
    let chances = search::chances(chances, teams.as_ref(), mistakes);
    let queue = at.child("Queue").map(|element| queue::read(element, &declared, &expansions, set_id, mistakes));
    let ready_check = at.child("ReadyCheck").map(|element| life::ready_check(element, mistakes));
    let server = life::server(at.child("Server"), mistakes);
    let rating = at.child("Rating").map(|element| rating::read(element, mistakes));
    // Whether parts go together can be asked of sound ones alone: a mistake would be told twice.
    if mistakes.count() == before {
        sense::check(&at, teams.as_ref(), queue.as_ref(), rating.as_ref());
    }
    sense::check_parts(&at);
    at.finish();
    Ruleset {
        name,
        set_id: set_id.unwrap_or(SetId(0)),
        hash: RulesetHash(0),
        silos,
        attributes: declared.into_attributes(),
        hard: hard.into(),
        soft: soft.into(),
        expansions: expansions.into_expansions(),
        chances,
        limits,
        line,
        involved_phase_percent,
        consent,
        teams,
        queue,
        ready_check,
        server,
        rating,
        xml,
    }
}

/// `any`, the default, or silo ids with spaces between them.
fn silos(at: &mut Fields<'_>) -> SiloRule {
    let Some(written) = at.written("Silos").filter(|written| written.value.trim() != "any") else {
        return SiloRule::Any;
    };
    let ids: Option<Vec<SiloId>> = written.value.split_whitespace().map(|word| word.parse().ok().map(SiloId)).collect();
    match ids {
        Some(mut ids) if (1..=RULES_MAX).contains(&ids.len()) => {
            ids.sort_unstable();
            ids.dedup();
            SiloRule::Only(ids.into())
        }
        _ => {
            at.wrong_value(written, format!("give `any`, or 1 to {RULES_MAX} numbers with spaces between them"));
            SiloRule::Any
        }
    }
}
