//! From draft to ruleset, or every problem at once.
//!
//! Each section has a file of its own. A section that finds a mistake notes it and reads on with a harmless value: no
//! ruleset comes of it, but the next mistake is found as well.

mod attributes;
mod avoidance;
mod cross_checks;
mod expansions;
mod hard_filters;
pub(super) mod lifecycle;
mod quality;
pub(super) mod queue;
mod rating;
mod regions;
mod search;
mod soft_filters;
mod teams;
mod window;

use std::sync::Arc;

use crate::expansion::Expansion;
use crate::id::{RulesetHash, SetId, SiloId};
use crate::limit::RULESET_ENTRIES_PER_KIND_MAX;
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::hash::ruleset_hash;
use crate::ruleset::raw::{Diagnostic, Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::spelling::suggestion;
use crate::ruleset::{Ruleset, ServedSilos};

/// Expansions that stand alone, as the thesis prints them; what their types mean, a ruleset has to say.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpansionFragment {
    /// The attributes that the expansions limit: `Measure::Attribute` points in here.
    pub attribute_names: Box<[Box<str>]>,
    /// The expansions, in file order.
    pub expansions: Box<[Expansion]>,
}

/// Checks a whole ruleset; `xml` is the file that `draft` was read from. Every mistake is in the answer, in file order.
pub fn validate_ruleset(draft: &RawElement, xml: Arc<str>) -> Result<Ruleset, Vec<Diagnostic>> {
    let mistakes = Diagnostics::default();
    if &*draft.name != "Ruleset" {
        let right = suggestion(&draft.name, ["Ruleset"]);
        mistakes.report(draft.name_span, format!("the file begins with {}", quoted_excerpt(&draft.name)), right);
        return Err(mistakes.into_sorted());
    }
    let ruleset = read_ruleset(draft, &mistakes, xml);
    if mistakes.is_empty() {
        Ok(Ruleset { hash: ruleset_hash(&ruleset), ..ruleset })
    } else {
        Err(mistakes.into_sorted())
    }
}

/// Checks an `<ExpansionConfigs>` that stands alone.
pub fn validate_expansion_fragment(draft: &RawElement) -> Result<ExpansionFragment, Vec<Diagnostic>> {
    let mistakes = Diagnostics::default();
    let fragment = expansions::read_expansion_fragment(draft, &mistakes);
    if mistakes.is_empty() { Ok(fragment) } else { Err(mistakes.into_sorted()) }
}

fn read_ruleset(root: &RawElement, mistakes: &Diagnostics, xml: Arc<str>) -> Ruleset {
    let mut at = ElementReader::new(root, mistakes);
    if let Some(name) = at.required_attribute("Name").filter(|name| name.value.trim().is_empty()) {
        at.report_value(name, "give the playlist a name");
    }
    let name = at.display_text("Name");
    let set_id = at.required_integer("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    let silos = read_silos(&mut at);
    let declared = attributes::read_attributes(at.single_child("Attributes"), mistakes);
    let hard_filters = at.single_child("HardFilters");
    let soft_filters = at.single_child("SoftFilters");
    let mut expansions = expansions::read_expansions(at.single_child("ExpansionConfigs"), &declared, mistakes);
    let hard = hard_filters::read_hard_filters(hard_filters, &declared, &mut expansions, mistakes);
    let soft = soft_filters::read_soft_filters(soft_filters, &declared, mistakes);
    let chances = at.single_child("AdvertiseChances");
    let limits = search::read_search_limits(at.single_child("Limits"), mistakes);
    let (line, involved_phase_percent) = search::read_latency(at.single_child("Latency"), mistakes);
    let consent = search::read_party_consent(at.single_child("Party"), mistakes);
    let before = mistakes.count();
    let teams = at.single_child("Teams").map(|element| teams::read_teams(element, &declared, mistakes));
    let chances = search::read_advertise_chances(chances, teams.as_ref(), mistakes);
    let queue =
        at.single_child("Queue").map(|element| queue::read_queue(element, &declared, &expansions, set_id, mistakes));
    let ready_check = at.single_child("ReadyCheck").map(|element| lifecycle::read_ready_check(element, mistakes));
    let server = lifecycle::read_hosting(at.single_child("Server"), mistakes);
    let rating = at.single_child("Rating").map(|element| rating::read_rating(element, mistakes));
    // Whether parts go together can be asked of sound ones alone: a mistake would be told twice.
    if mistakes.count() == before {
        cross_checks::check_sections_agree(&at, teams.as_ref(), queue.as_ref(), rating.as_ref());
    }
    cross_checks::check_required_sections(&at);
    at.report_unread();
    Ruleset {
        name,
        set_id: set_id.unwrap_or(SetId(0)),
        hash: RulesetHash(0),
        silos,
        attributes: declared.into_attributes(),
        hard_filters: hard.into(),
        soft_filters: soft.into(),
        expansions: expansions.into_expansions(),
        advertise_chances: chances,
        search_limits: limits,
        latency_model: line,
        involved_phase_percent,
        consent,
        teams,
        queue,
        ready_check,
        server,
        rating,
        source_xml: xml,
    }
}

/// `any`, the default, or silo ids with spaces between them.
fn read_silos(at: &mut ElementReader<'_>) -> ServedSilos {
    let Some(written) = at.attribute("Silos").filter(|written| written.value.trim() != "any") else {
        return ServedSilos::Any;
    };
    let ids: Option<Vec<SiloId>> = written.value.split_whitespace().map(|word| word.parse().ok().map(SiloId)).collect();
    match ids {
        Some(mut ids) if (1..=RULESET_ENTRIES_PER_KIND_MAX).contains(&ids.len()) => {
            ids.sort_unstable();
            ids.dedup();
            ServedSilos::Only(ids.into())
        }
        _ => {
            at.report_value(
                written,
                format!("give `any`, or 1 to {RULESET_ENTRIES_PER_KIND_MAX} numbers with spaces between them"),
            );
            ServedSilos::Any
        }
    }
}
