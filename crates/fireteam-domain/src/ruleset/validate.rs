//! Ruleset validation: turns a raw XML tree into a ruleset, or reports all problems at once.
//!
//! Each section has its own file. After reporting a problem, a section continues with a harmless value so that later
//! problems are found too; no ruleset results from it.

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
mod satisfaction;
mod search;
mod soft_filters;
mod statistics;
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
use crate::ruleset::{Ruleset, RulesetSilos};

/// Expansions outside a ruleset, in the form that the thesis prints. The meaning of their types is up to a ruleset.
#[derive(Clone, Debug, PartialEq)]
pub struct StandaloneExpansions {
    /// Attribute names that the expansions limit; `Measure::AttributeDifference` is an index into them.
    pub attribute_names: Box<[Box<str>]>,
    /// Expansions, in file order.
    pub expansions: Box<[Expansion]>,
}

/// Validates a ruleset. `source_xml` is the text that `root` was read from; the caller sets `file_xml` if that has more. Returns all problems, in file order.
pub fn validate_ruleset(root: &RawElement, source_xml: Arc<str>) -> Result<Ruleset, Vec<Diagnostic>> {
    let diagnostics = Diagnostics::default();
    if &*root.name != "Ruleset" {
        let fix = suggestion(&root.name, ["Ruleset"]);
        diagnostics.report(root.name_span, format!("the root element is {}", quoted_excerpt(&root.name)), fix);
        return Err(diagnostics.into_sorted());
    }
    let ruleset = read_ruleset(root, &diagnostics, source_xml);
    if diagnostics.is_empty() {
        Ok(Ruleset { hash: ruleset_hash(&ruleset), ..ruleset })
    } else {
        Err(diagnostics.into_sorted())
    }
}

/// Validates an `<ExpansionConfigs>` outside a ruleset. Returns all problems, in file order.
pub fn validate_standalone_expansions(root: &RawElement) -> Result<StandaloneExpansions, Vec<Diagnostic>> {
    let diagnostics = Diagnostics::default();
    let fragment = expansions::read_standalone_expansions(root, &diagnostics);
    if diagnostics.is_empty() { Ok(fragment) } else { Err(diagnostics.into_sorted()) }
}

fn read_ruleset(root: &RawElement, diagnostics: &Diagnostics, source_xml: Arc<str>) -> Ruleset {
    let mut reader = ElementReader::new(root, diagnostics);
    if let Some(name) = reader.required_attribute("Name").filter(|name| name.value.trim().is_empty()) {
        reader.report_value(name, "give the playlist a name");
    }
    let name = reader.display_text("Name");
    let set_id = reader.required_integer("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    let silos = read_silos(&mut reader);
    let declared = attributes::read_attributes(reader.single_child("Attributes"), diagnostics);
    let hard_filters = reader.single_child("HardFilters");
    let soft_filters = reader.single_child("SoftFilters");
    let mut expansions = expansions::read_expansions(reader.single_child("ExpansionConfigs"), &declared, diagnostics);
    let mut hard = hard_filters::read_hard_filters(hard_filters, &declared, &mut expansions, diagnostics);
    let soft = soft_filters::read_soft_filters(soft_filters, &declared, diagnostics);
    let chances = reader.single_child("AdvertiseChances");
    let search::LimitSettings { search_limits, clients_per_account, advertisement_id_form: handles } =
        search::read_limits(reader.single_child("Limits"), diagnostics);
    let mut latency = search::read_latency(reader.single_child("Latency"), diagnostics);
    hard.append(&mut latency.hard_filters);
    let consent = search::read_party_consent(reader.single_child("Party"), diagnostics);
    let problems_before = diagnostics.count();
    let teams = reader.single_child("Teams").map(|element| teams::read_teams(element, &declared, diagnostics));
    let chances = search::read_advertise_chances(chances, teams.as_ref(), diagnostics);
    let avoid = avoidance::read_common_rules(&reader.children_named(&["Avoid"]), diagnostics);
    let context = queue::QueueContext { declared: &declared, expansions: &expansions, set_id, avoid: &avoid };
    let queue = reader.single_child("Queue").map(|element| queue::read_queue(element, &context, diagnostics));
    let satisfaction = reader
        .single_child("Satisfaction")
        .map(|element| satisfaction::read_ruleset_satisfaction(element, diagnostics));
    let ready_check =
        reader.single_child("ReadyCheck").map(|element| lifecycle::read_ready_check(element, diagnostics));
    let hosting = lifecycle::read_hosting(reader.single_child("Hosting"), diagnostics);
    let stated_rating = reader.single_child("Rating").map(|element| rating::read_rating(element, diagnostics));
    let rating = stated_rating.as_ref().map(|stated| stated.current);
    let statistics_regions = statistics::read_statistics_regions(reader.single_child("Statistics"), diagnostics);
    // Cross-checks need valid sections; otherwise they would report the same problem twice.
    if diagnostics.count() == problems_before {
        cross_checks::check_sections_agree(&reader, teams.as_ref(), queue.as_ref(), rating.as_ref());
    }
    cross_checks::check_required_sections(&reader);
    reader.report_unread_and_missing();
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
        search_limits,
        clients_per_account,
        advertisement_id_form: handles,
        latency_model: latency.model,
        answered_percent_for_involved_phase: latency.answered_percent_for_involved_phase,
        probing: latency.probing,
        allows_latency_wishes: latency.allows_latency_wishes,
        consent,
        avoid: avoid.into(),
        frustrated_player_limits: satisfaction,
        teams,
        queue,
        ready_check,
        hosting,
        rating,
        former_rating: stated_rating.as_ref().and_then(|stated| stated.former),
        rating_pool: stated_rating.and_then(|stated| stated.pool),
        statistics_regions,
        file_xml: Arc::clone(&source_xml),
        source_xml,
    }
}

/// Reads `Silos`: `any`, the default, or silo ids separated by spaces.
fn read_silos(reader: &mut ElementReader<'_>) -> RulesetSilos {
    let Some(raw) = reader.attribute("Silos").filter(|raw| raw.value.trim() != "any") else {
        return RulesetSilos::Any;
    };
    let ids: Option<Vec<SiloId>> = raw.value.split_whitespace().map(|id| id.parse().ok().map(SiloId)).collect();
    match ids {
        Some(mut ids) if (1..=RULESET_ENTRIES_PER_KIND_MAX).contains(&ids.len()) => {
            ids.sort_unstable();
            ids.dedup();
            RulesetSilos::Only(ids.into())
        }
        _ => {
            reader.report_value(
                raw,
                format!("give `any`, or 1 to {RULESET_ENTRIES_PER_KIND_MAX} numbers separated by spaces"),
            );
            RulesetSilos::Any
        }
    }
}
