//! Why a ticket waits, how queues fare, and ratings to set: between operators and the engine.

use crate::api::convert::{EntryPoint, FieldErrors, field_checks, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute::ValueOrigin;
use crate::domain::expansion::Expansion;
use crate::domain::filter::Refusal;
use crate::domain::filter::explain::NearMiss;
use crate::domain::id::{SetId, TicketId, UserKey};
use crate::domain::limit;
use crate::domain::queue::explain::{NearMissTicket, Relaxation};
use crate::domain::queue::gate::GateReason;
use crate::domain::rating::RATING_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::queues::command::{ExplainSearchAnswer, ExplainTicketAnswer, ImportedRating, QueueStatistics};
use crate::engine::queues::rule_name;

/// Of those who come nearest, how many are named where the operator does not say, and at most.
const NEAR_MISSES_DEFAULT: u32 = 5;
const NEAR_MISSES_MAX: u32 = 50;

/// What is to be explained.
pub(super) enum ExplainSubject {
    /// Why a ticket waits.
    Ticket(TicketId),
    /// Why a search, in a set and going on for so many milliseconds, finds so little.
    Search(SetId, Box<Session>, u64),
}

/// What is to be explained, and how many of those who come nearest are to be named.
pub(super) fn explain_query(wire: pb::ExplainRequest) -> Result<(ExplainSubject, usize), Rejection> {
    let mut problems = EntryPoint::default().field_errors();
    let nearest = wire.max_nearest.unwrap_or(NEAR_MISSES_DEFAULT);
    if NEAR_MISSES_MAX < nearest {
        problems.add("max_nearest", format!("is {nearest}, at most {NEAR_MISSES_MAX} are allowed"));
    }
    let about = match wire.search {
        Some(search) => {
            if !wire.ticket_id.is_empty() {
                problems.add("ticket_id", "is not the only question: ask about a ticket or about a search");
            }
            if search.matchmaking_set_id.is_none() {
                problems.add("search.matchmaking_set_id", "is missing: say which playlist");
            }
            let set_id = SetId(search.matchmaking_set_id.unwrap_or_default());
            // An operator says what a player's game would say, and is believed as far.
            let session = session::required_session(search.session_composition, ValueOrigin::Client, &mut problems);
            ExplainSubject::Search(set_id, Box::new(session), search.searching_for_ms)
        }
        None => ExplainSubject::Ticket(TicketId::parse(&wire.ticket_id).unwrap_or_else(|| {
            problems.add("ticket_id", field_checks::invalid_id_message(&wire.ticket_id));
            TicketId::from_bytes([0; 16])
        })),
    };
    problems.into_result((about, nearest as usize))
}

/// Why a search finds so little.
pub(super) fn explain_search_response(
    set_id: SetId,
    searching_for_ms: u64,
    answer: &ExplainSearchAnswer,
) -> pb::ExplainResponse {
    let ExplainSearchAnswer { ruleset, explanation } = answer;
    let limits = ruleset.expansions.iter();
    let limit = |it: &Expansion| pb::ExplainLimit { name: it.name.to_string(), value: it.limit_at(searching_for_ms) };
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: rule_name(ruleset, *refusal),
        count: (*count).into(),
    };
    let miss = |near: &NearMiss| pb::NearMiss {
        advertisement_id: near.advertisement_id.to_string(),
        rule: rule_name(ruleset, near.first_refusal),
        failed_rules: near.refusal_count.into(),
        measured: near.measured_and_limit.map(|(is, _)| is),
        limit: near.measured_and_limit.map(|(_, limit)| limit),
        ..pb::NearMiss::default()
    };
    let wider = explanation.smallest_relaxation.map(|it| Relaxation::Expansion {
        expansion: it.expansion_index,
        current: it.current_limit,
        required: it.required_limit,
    });
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: searching_for_ms,
        limits: limits.map(limit).collect(),
        candidates: explanation.candidate_count,
        compatible: explanation.compatible_count,
        refusals: explanation.refusal_counts.iter().map(count).collect(),
        near_misses: explanation.near_misses.iter().map(miss).collect(),
        matches_now: 0 < explanation.compatible_count,
        smallest_relaxation: wider.map(|it| relaxation(ruleset, it)),
        ..pb::ExplainResponse::default()
    }
}

/// Why it still waits.
pub(super) fn explain_ticket_response(answer: ExplainTicketAnswer) -> pb::ExplainResponse {
    let ExplainTicketAnswer { set_id, ruleset, explanation } = answer;
    let standing = &explanation.situation;
    let group_name = |group: u16| {
        let groups = ruleset.queue.as_ref()?.groups.as_ref()?;
        Some(groups.groups.get(usize::from(group))?.name.to_string())
    };
    let limits = ruleset.expansions.iter().zip(&standing.expansion_limits);
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: rule_name(&ruleset, *refusal),
        count: (*count).into(),
    };
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: standing.waited_ms,
        rating: standing.party_rating,
        leaderboard_rank: standing.leaderboard_position,
        party_size: standing.player_count.into(),
        group: standing.group_and_extra_groups.and_then(|(group, _)| group_name(group)).unwrap_or_default(),
        extra_groups: standing.group_and_extra_groups.map_or(0, |(_, neighbours)| neighbours.into()),
        range: standing.bucket_and_range.map(|(_, range)| range),
        range_factor: standing.range_factor,
        rating_shift: standing.rating_shift,
        limits: limits.map(|(it, value)| pb::ExplainLimit { name: it.name.to_string(), value: *value }).collect(),
        gate_reason: explanation.gate_reason.map_or("", gate_reason).to_owned(),
        candidates: explanation.candidate_count,
        compatible: explanation.compatible_count,
        refusals: explanation.refusal_counts.iter().map(count).collect(),
        near_misses: explanation.near_misses.iter().map(|near| near_miss(&ruleset, near)).collect(),
        matches_now: explanation.matches_now,
        smallest_relaxation: explanation.smallest_relaxation.map(|it| relaxation(&ruleset, it)),
        truncated: explanation.truncated,
    }
}

fn gate_reason(closed: GateReason) -> &'static str {
    match closed {
        GateReason::TooFewWaiting { .. } => "too_few_waiting",
        GateReason::TooManyMatches { .. } => "too_many_matches",
    }
}

fn near_miss(ruleset: &Ruleset, near: &NearMissTicket) -> pb::NearMiss {
    pb::NearMiss {
        ticket_id: near.ticket_id.to_string(),
        rule: rule_name(ruleset, near.first_refusal),
        failed_rules: near.failed_rule_count.into(),
        measured: near.margin.map(|by| by.measured),
        limit: near.margin.map(|by| by.limit),
        ..pb::NearMiss::default()
    }
}

fn relaxation(ruleset: &Ruleset, remedy: Relaxation) -> pb::Relaxation {
    let (kind, from, to, text) = match remedy {
        Relaxation::Expansion { expansion, current: from, required: to } => {
            let name = ruleset.expansions.get(expansion).map_or("", |it| &it.name);
            ("expansion", Some(from), to, format!("expansion `{name}` from {from} to {to}"))
        }
        Relaxation::Window { more_buckets: more } => {
            ("window", None, f64::from(more), format!("a window {more} buckets wider to either side"))
        }
        Relaxation::ExtraGroups { more } => ("neighbours", None, f64::from(more), format!("{more} groups further")),
        Relaxation::Quality { from, to } => {
            ("quality", Some(from), to, format!("the bar of quality from {from} to {to}"))
        }
        Relaxation::MoreTickets { more } => {
            ("tickets", None, f64::from(more), format!("{more} more parties that suit"))
        }
        Relaxation::Wait { more_ms: ms } => ("wait", None, ms as f64, format!("{ms} ms more of waiting")),
    };
    pb::Relaxation { message: text, kind: kind.to_owned(), current: from, required: to }
}

/// How queues fare.
pub(super) fn statistics_response(queues: Vec<QueueStatistics>) -> pb::GetStatisticsResponse {
    let wire = |it: QueueStatistics| pb::QueueStatistics {
        matchmaking_set_id: it.set_id.0,
        silo_id: it.silo.0,
        waiting_tickets: it.waiting_tickets,
        waiting_players: it.waiting_players,
        matches: it.running_matches,
        longest_wait_ms: it.longest_wait_ms,
        runs_here: it.runs_on_this_replica,
        passes: it.pass_count,
        last_pass_ms: it.last_pass_ms,
        refusals: it
            .refusal_counts
            .iter()
            .map(|(rule, count)| pb::RuleCount { rule: rule.to_string(), count: *count })
            .collect(),
        wait_p50_ms: it.wait_percentiles_ms.map(|(p50, ..)| p50),
        wait_p90_ms: it.wait_percentiles_ms.map(|(_, p90, _)| p90),
        wait_samples: it.wait_percentiles_ms.map_or(0, |(.., count)| count),
        quality_p50: it.median_quality,
        p90_estimate_met_percent: it.p90_estimate_met_percent,
    };
    pb::GetStatisticsResponse { queues: queues.into_iter().map(wire).collect() }
}

/// A number that a match can be rated by.
fn checked_rating_magnitude(value: f64, path: &str, problems: &mut FieldErrors) -> f64 {
    if RATING_MAX < value.abs() {
        problems.add(path, format!("is {value}, must be a number from -{RATING_MAX:e} to {RATING_MAX:e}"));
    }
    value
}

/// Ratings to set.
pub(super) fn import_ratings_command(
    wire: pb::ImportRatingsRequest,
) -> Result<(SetId, Vec<ImportedRating>), Rejection> {
    let mut problems = EntryPoint::default().field_errors();
    let Some(set_id) = wire.matchmaking_set_id else {
        problems.add("matchmaking_set_id", "is missing: say which playlist");
        return problems.into_result((SetId::default(), Vec::new()));
    };
    if wire.ratings.is_empty() {
        problems.add("ratings", "is empty: give at least one");
    }
    if !field_checks::check_list_len(wire.ratings.len(), limit::RATINGS_PER_TRANSACTION_MAX, "ratings", &mut problems) {
        return problems.into_result((SetId::default(), Vec::new()));
    }
    let mut users = std::collections::BTreeSet::new();
    let mut given = Vec::with_capacity(wire.ratings.len());
    for (index, row) in wire.ratings.iter().enumerate() {
        let path = |name: &str| format!("ratings[{index}].{name}");
        field_checks::check_required_text(&row.user_id, &*path("user_id"), &mut problems);
        if !users.insert(&row.user_id) {
            problems.add(path("user_id"), "is here a second time: each user once");
        }
        let Some(rating) = row.rating else {
            problems.add(path("rating"), "is missing");
            continue;
        };
        let mut positive = |value: Option<f64>, name: &str| {
            value.map(|it| {
                checked_rating_magnitude(
                    field_checks::checked_non_negative_number(it, &*path(name), &mut problems),
                    &path(name),
                    &mut problems,
                )
            })
        };
        let (deviation, volatility) = (positive(row.deviation, "deviation"), positive(row.volatility, "volatility"));
        given.push(ImportedRating {
            user: UserKey::from_name(&row.user_id),
            rating: checked_rating_magnitude(
                field_checks::checked_number(rating, &*path("rating"), &mut problems),
                &path("rating"),
                &mut problems,
            ),
            deviation,
            volatility,
            matches: row.matches,
        });
    }
    problems.into_result((SetId(set_id), given))
}
