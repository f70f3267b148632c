//! Conversions of ruleset listings, problems, changes and swaps.

use std::collections::BTreeMap;

use crate::api::convert::operator::lookup::check_reason;
use crate::api::convert::{RequestReader, field_checks};
use crate::api::pb;
use crate::api::pb::swap_ruleset_request::Replacement;
use crate::api::status::Rejection;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::limit::RULESET_FILE_BYTES_MAX;
use crate::engine::rulesets::{ReloadReport, RulesetListing, RulesetProblem, RulesetReplacement, RulesetSwap};

/// Converts a cached ruleset.
pub(crate) fn ruleset_status(listing: RulesetListing) -> pb::RulesetStatus {
    let state = if listing.is_current { pb::RulesetState::Current } else { pb::RulesetState::Retired };
    let (loaded_at, loaded_by) = listing.load.map(|load| (load.at.0, load.by.to_string())).unwrap_or_default();
    pb::RulesetStatus {
        name: listing.name,
        matchmaking_set_id: listing.set_id.0,
        service_configuration_hash: listing.hash.0,
        file_name: listing.file_name,
        state: state.into(),
        loaded_at_unix_ms: loaded_at,
        problems: ruleset_problems(listing.problems),
        ratings: listing.ratings.map(|ratings| pb::RulesetRatings {
            scale: ratings.scale,
            pool: ratings.pool,
            rating_count: ratings.rating_count,
        }),
        retired: listing.retires_in_ms.is_some(),
        ends_in_ms: listing.retires_in_ms,
        live_tickets: listing.live_tickets,
        live_matches: listing.live_matches,
        loaded_by,
    }
}

/// Reads a swap, and its reason for the audit log.
pub(crate) fn swap_command(wire: pb::SwapRulesetRequest) -> Result<(RulesetSwap, String), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    if wire.matchmaking_set_id.is_none() {
        problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
    }
    if wire.expected_hash.is_none() {
        problems.add("expected_hash", "is missing; set it to the hash of the ruleset in force");
    }
    let replacement = match wire.replacement {
        Some(Replacement::RulesetXml(text)) => {
            field_checks::check_byte_len(text.len(), RULESET_FILE_BYTES_MAX, "ruleset_xml", &mut problems);
            RulesetReplacement::Text(text.into())
        }
        Some(Replacement::FormerHash(hash)) => RulesetReplacement::FormerVersion(RulesetHash(hash)),
        None => {
            problems.add("replacement", "is missing; set ruleset_xml or former_hash");
            RulesetReplacement::FormerVersion(RulesetHash(0))
        }
    };
    check_reason(&wire.reason, &mut problems);
    let set_id = SetId(wire.matchmaking_set_id.unwrap_or_default());
    let expected_hash = RulesetHash(wire.expected_hash.unwrap_or_default());
    problems.into_result((RulesetSwap { set_id, expected_hash, replacement }, wire.reason))
}

/// Object of a swap in the audit log.
pub(crate) fn swap_target(swap: &RulesetSwap, file_name: &str, report: &ReloadReport, reason: &str) -> String {
    let replacement = match &swap.replacement {
        RulesetReplacement::Text(_) => "an edited text".to_owned(),
        RulesetReplacement::FormerVersion(hash) => format!("former version {hash}"),
    };
    let (set_id, problems) = (swap.set_id, report.problems.len());
    format!("set {set_id}, {file_name}, {replacement}, {problems} problems: {reason}")
}

/// Converts the changes of a load.
pub(crate) fn ruleset_changes(report: &ReloadReport) -> Vec<pb::RulesetChange> {
    let mut rating_changes: BTreeMap<SetId, String> = report.rating_changes.iter().cloned().collect();
    let changes = report.changes.iter().map(|(set, previous, current)| pb::RulesetChange {
        matchmaking_set_id: set.0,
        previous_hash: previous.map(|hash| hash.0),
        current_hash: current.map(|hash| hash.0),
        rating_change: rating_changes.remove(set).unwrap_or_default(),
    });
    changes.collect()
}

/// Converts the problems of ruleset files.
pub(crate) fn ruleset_problems(problems: Vec<RulesetProblem>) -> Vec<pb::RulesetProblem> {
    let messages = problems.into_iter().map(|problem| pb::RulesetProblem {
        file_name: problem.file_name,
        line: problem.line,
        column: problem.column,
        message: problem.message,
    });
    messages.collect()
}
