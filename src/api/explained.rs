//! Why a ticket waits, how queues fare, and ratings to set: between operators and the engine.

use crate::api::convert::{Door, Problems, field, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::attribute::Origin;
use crate::domain::expansion::Expansion;
use crate::domain::filter::Refusal;
use crate::domain::filter::explain::NearMiss;
use crate::domain::id::{SetId, TicketId, UserKey};
use crate::domain::limit;
use crate::domain::queue::explain::{Miss, Remedy};
use crate::domain::queue::gate::Closed;
use crate::domain::rating::RATING_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::queues::command::{Explained, QueueStatistics, RatingGiven, SearchExplained};
use crate::engine::queues::rule_name;

/// Of those who come nearest, how many are named where the operator does not say, and at most.
const NEAREST_DEFAULT: u32 = 5;
const NEAREST_MAX: u32 = 50;

/// What is to be explained.
pub(super) enum About {
    /// Why a ticket waits.
    Ticket(TicketId),
    /// Why a search, in a set and going on for so many milliseconds, finds so little.
    Search(SetId, Box<Session>, u64),
}

/// What is to be explained, and how many of those who come nearest are to be named.
pub(super) fn question(wire: pb::ExplainRequest) -> Result<(About, usize), Rejection> {
    let mut problems = Door::default().problems();
    let nearest = wire.max_nearest.unwrap_or(NEAREST_DEFAULT);
    if NEAREST_MAX < nearest {
        problems.add("max_nearest", format!("is {nearest}, at most {NEAREST_MAX} are allowed"));
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
            let session = session::required(search.session_composition, Origin::Client, &mut problems);
            About::Search(set_id, Box::new(session), search.searching_for_ms)
        }
        None => About::Ticket(TicketId::parse(&wire.ticket_id).unwrap_or_else(|| {
            problems.add("ticket_id", field::bad_id(&wire.ticket_id));
            TicketId::from_bytes([0; 16])
        })),
    };
    problems.finish((about, nearest as usize))
}

/// Why a search finds so little.
pub(super) fn search_explained(set_id: SetId, searching_for_ms: u64, answer: &SearchExplained) -> pb::ExplainResponse {
    let SearchExplained { ruleset, explanation } = answer;
    let limits = ruleset.expansions.iter();
    let limit = |it: &Expansion| pb::ExplainLimit { name: it.name.to_string(), value: it.limit_at(searching_for_ms) };
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: rule_name(ruleset, *refusal),
        count: (*count).into(),
    };
    let miss = |near: &NearMiss| pb::NearMiss {
        advertisement_id: near.id.to_string(),
        rule: rule_name(ruleset, near.refusal),
        failed_rules: near.refusals.into(),
        measured: near.by.map(|(is, _)| is),
        limit: near.by.map(|(_, limit)| limit),
        ..pb::NearMiss::default()
    };
    let wider = explanation.remedy.map(|it| Remedy::Expansion { expansion: it.expansion, from: it.from, to: it.to });
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: searching_for_ms,
        limits: limits.map(limit).collect(),
        candidates: explanation.candidates,
        compatible: explanation.suitable,
        refusals: explanation.refusals.iter().map(count).collect(),
        near_misses: explanation.nearest.iter().map(miss).collect(),
        matches_now: 0 < explanation.suitable,
        smallest_relaxation: wider.map(|it| remedy(ruleset, it)),
        ..pb::ExplainResponse::default()
    }
}

/// Why it still waits.
pub(super) fn explained(answer: Explained) -> pb::ExplainResponse {
    let Explained { set_id, ruleset, explanation } = answer;
    let standing = &explanation.standing;
    let group_name = |group: u16| {
        let groups = ruleset.queue.as_ref()?.groups.as_ref()?;
        Some(groups.groups.get(usize::from(group))?.name.to_string())
    };
    let limits = ruleset.expansions.iter().zip(&standing.limits);
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: rule_name(&ruleset, *refusal),
        count: (*count).into(),
    };
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: standing.waited_ms,
        rating: standing.rating,
        leaderboard_rank: standing.place,
        party_size: standing.size.into(),
        group: standing.group.and_then(|(group, _)| group_name(group)).unwrap_or_default(),
        extra_groups: standing.group.map_or(0, |(_, neighbours)| neighbours.into()),
        range: standing.bucket.map(|(_, range)| range),
        range_factor: standing.widened,
        rating_shift: standing.shifted_down,
        limits: limits.map(|(it, value)| pb::ExplainLimit { name: it.name.to_string(), value: *value }).collect(),
        gate_reason: explanation.closed.map_or("", closed).to_owned(),
        candidates: explanation.candidates,
        compatible: explanation.suitable,
        refusals: explanation.refusals.iter().map(count).collect(),
        near_misses: explanation.nearest.iter().map(|near| miss(&ruleset, near)).collect(),
        matches_now: explanation.matches_now,
        smallest_relaxation: explanation.remedy.map(|it| remedy(&ruleset, it)),
        truncated: explanation.out_of_looks,
    }
}

fn closed(closed: Closed) -> &'static str {
    match closed {
        Closed::TooFewWaiting { .. } => "too_few_waiting",
        Closed::TooManyMatches { .. } => "too_many_matches",
    }
}

fn miss(ruleset: &Ruleset, near: &Miss) -> pb::NearMiss {
    pb::NearMiss {
        ticket_id: near.candidate.to_string(),
        rule: rule_name(ruleset, near.refusal),
        failed_rules: near.refusals.into(),
        measured: near.by.map(|by| by.is),
        limit: near.by.map(|by| by.limit),
        ..pb::NearMiss::default()
    }
}

fn remedy(ruleset: &Ruleset, remedy: Remedy) -> pb::Relaxation {
    let (kind, from, to, text) = match remedy {
        Remedy::Expansion { expansion, from, to } => {
            let name = ruleset.expansions.get(expansion).map_or("", |it| &it.name);
            ("expansion", Some(from), to, format!("expansion `{name}` from {from} to {to}"))
        }
        Remedy::Window { more } => {
            ("window", None, f64::from(more), format!("a window {more} buckets wider to either side"))
        }
        Remedy::Neighbours { more } => ("neighbours", None, f64::from(more), format!("{more} groups further")),
        Remedy::Quality { from, to } => ("quality", Some(from), to, format!("the bar of quality from {from} to {to}")),
        Remedy::Tickets { more } => ("tickets", None, f64::from(more), format!("{more} more parties that suit")),
        Remedy::Wait { ms } => ("wait", None, ms as f64, format!("{ms} ms more of waiting")),
    };
    pb::Relaxation { message: text, kind: kind.to_owned(), current: from, required: to }
}

/// How queues fare.
pub(super) fn statistics(queues: Vec<QueueStatistics>) -> pb::GetStatisticsResponse {
    let wire = |it: QueueStatistics| pb::QueueStatistics {
        matchmaking_set_id: it.set_id.0,
        silo_id: it.silo.0,
        waiting_tickets: it.waiting,
        waiting_players: it.players,
        matches: it.matches,
        longest_wait_ms: it.longest_wait_ms,
        runs_here: it.here,
        passes: it.passes,
        last_pass_ms: it.last_pass_ms,
        refusals: it
            .refusals
            .iter()
            .map(|(rule, count)| pb::RuleCount { rule: rule.to_string(), count: *count })
            .collect(),
        wait_p50_ms: it.waits.map(|(p50, ..)| p50),
        wait_p90_ms: it.waits.map(|(_, p90, _)| p90),
        wait_samples: it.waits.map_or(0, |(.., count)| count),
        quality_p50: it.quality,
        p90_estimate_met_percent: it.calibration_percent,
    };
    pb::GetStatisticsResponse { queues: queues.into_iter().map(wire).collect() }
}

/// A number that a match can be rated by.
fn ratable(value: f64, path: &str, problems: &mut Problems) -> f64 {
    if RATING_MAX < value.abs() {
        problems.add(path, format!("is {value}, must be a number from -{RATING_MAX:e} to {RATING_MAX:e}"));
    }
    value
}

/// Ratings to set.
pub(super) fn ratings(wire: pb::ImportRatingsRequest) -> Result<(SetId, Vec<RatingGiven>), Rejection> {
    let mut problems = Door::default().problems();
    let Some(set_id) = wire.matchmaking_set_id else {
        problems.add("matchmaking_set_id", "is missing: say which playlist");
        return problems.finish((SetId::default(), Vec::new()));
    };
    if wire.ratings.is_empty() {
        problems.add("ratings", "is empty: give at least one");
    }
    if !field::count(wire.ratings.len(), limit::RATINGS_BATCH_MAX, "ratings", &mut problems) {
        return problems.finish((SetId::default(), Vec::new()));
    }
    let mut users = std::collections::BTreeSet::new();
    let mut given = Vec::with_capacity(wire.ratings.len());
    for (index, row) in wire.ratings.iter().enumerate() {
        let path = |name: &str| format!("ratings[{index}].{name}");
        field::name(&row.user_id, &*path("user_id"), &mut problems);
        if !users.insert(&row.user_id) {
            problems.add(path("user_id"), "is here a second time: each user once");
        }
        let Some(rating) = row.rating else {
            problems.add(path("rating"), "is missing");
            continue;
        };
        let mut positive = |value: Option<f64>, name: &str| {
            value.map(|it| ratable(field::positive(it, &*path(name), &mut problems), &path(name), &mut problems))
        };
        let (deviation, volatility) = (positive(row.deviation, "deviation"), positive(row.volatility, "volatility"));
        given.push(RatingGiven {
            user: UserKey::of(&row.user_id),
            rating: ratable(field::number(rating, &*path("rating"), &mut problems), &path("rating"), &mut problems),
            deviation,
            volatility,
            matches: row.matches,
        });
    }
    problems.finish((SetId(set_id), given))
}
