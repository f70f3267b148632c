//! Conversions of ruleset listings and problems.

use crate::api::pb;
use crate::engine::rulesets::{RulesetListing, RulesetProblem};

/// Converts a cached ruleset.
pub(crate) fn ruleset_status(listing: RulesetListing) -> pb::RulesetStatus {
    let state = if listing.is_current { pb::RulesetState::Current } else { pb::RulesetState::Retired };
    pb::RulesetStatus {
        name: listing.name,
        matchmaking_set_id: listing.set_id.0,
        service_configuration_hash: listing.hash.0,
        file_name: listing.file_name,
        state: state.into(),
        loaded_at_unix_ms: listing.loaded_at.0,
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
    }
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
