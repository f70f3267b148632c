//! List of all rulesets for operators.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::limit::FORMER_RULESETS_LISTED_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::queues::queue_engine::ruleset_use::RulesetUsage;
use crate::engine::rulesets::report::{RatingListing, RulesetListing, file_name, ruleset_problem};
use crate::rules::catalog::CatalogState;

/// Rulesets by set: the one in force first, then former versions, the one that was loaded last first.
///
/// `ratings_of` gives the ratings that a ruleset uses.
pub(super) fn list_rulesets(
    state: &CatalogState,
    usage: &RulesetUsage,
    ratings_of: &dyn Fn(&Ruleset) -> Option<RatingListing>,
    now: UnixMs,
) -> Vec<RulesetListing> {
    let mut listings = Vec::new();
    let retired_sets = state.retired.iter().map(|retired| retired.ruleset.set_id);
    let in_force_sets = state.active.keys().chain(state.retiring.keys()).copied();
    let copied_sets = state.copies.keys().map(|(set_id, _)| *set_id);
    let sets: BTreeSet<SetId> = in_force_sets.chain(retired_sets).chain(copied_sets).collect();
    let listing = |ruleset: &Ruleset| RulesetListing {
        name: ruleset.name.to_string(),
        set_id: ruleset.set_id,
        hash: ruleset.hash,
        file_name: String::new(),
        is_current: false,
        load: state.load_of(ruleset).cloned(),
        problems: Vec::new(),
        ratings: ratings_of(ruleset),
        retires_in_ms: None,
        live_tickets: 0,
        live_matches: usage.live_match_count_by_ruleset.get(&(ruleset.set_id, ruleset.hash)).copied().unwrap_or(0),
    };
    for set_id in sets {
        if let Some(current) = state.active.get(&set_id) {
            let file = file_name(&current.file);
            let all_problems = state.rejected_diagnostics.iter();
            let problems = all_problems.filter(|problem| file_name(Path::new(&problem.file)) == file);
            listings.push(RulesetListing {
                problems: problems.map(ruleset_problem).collect(),
                file_name: file,
                is_current: true,
                live_tickets: usage.waiting_ticket_count_of_set(set_id),
                ..listing(&current.ruleset)
            });
        } else if let Some(retiring) = state.retiring.get(&set_id) {
            listings.push(RulesetListing {
                file_name: file_name(&retiring.file),
                is_current: true,
                retires_in_ms: Some(retiring.ends_at.ms_since(now)),
                live_tickets: usage.waiting_ticket_count_of_set(set_id),
                ..listing(&retiring.ruleset)
            });
        }
        listings.extend(former_versions(state, set_id).into_iter().map(|ruleset| listing(&ruleset)));
    }
    listings
}

/// Versions of a set that are not in force, the one that was loaded last first; at most `FORMER_RULESETS_LISTED_MAX`.
fn former_versions(state: &CatalogState, set_id: SetId) -> Vec<Arc<Ruleset>> {
    let retired = state.retired.iter().rev().map(|retired| &retired.ruleset);
    let copies = state.copies.values().chain(state.copies_without_index.values());
    let in_force = state.ruleset_in_force(set_id).map(|ruleset| ruleset.hash);
    let mut seen = BTreeSet::new();
    let is_former = |ruleset: &&Arc<Ruleset>| {
        ruleset.set_id == set_id && Some(ruleset.hash) != in_force && seen.insert(ruleset.hash)
    };
    let mut versions: Vec<Arc<Ruleset>> = retired.chain(copies).filter(is_former).cloned().collect();
    versions.sort_by_key(|ruleset| Reverse(state.load_of(ruleset).map(|load| load.at)));
    versions.truncate(FORMER_RULESETS_LISTED_MAX);
    versions
}
