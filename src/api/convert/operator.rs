//! Conversions of the Operator service: explanations of tickets and searches, rating import.

pub(crate) mod listing;
pub(crate) mod lookup;
pub(crate) mod overview;
pub(crate) mod ruleset_details;
pub(crate) mod rulesets;
pub(crate) mod statistics;
mod ticket_history;
mod user_adverts;
pub(crate) mod user_data;

use std::net::IpAddr;

use crate::api::convert::{FieldErrors, RequestReader, field_checks, session};
use crate::api::pb;
use crate::api::response_encoder;
use crate::api::status::Rejection;
use crate::domain::attribute::ValueOrigin;
use crate::domain::expansion::Expansion;
use crate::domain::filter::Refusal;
use crate::domain::filter::explain::{CompatibleAdvert, NearMiss};
use crate::domain::filter::search_round_trip::{ExplainedRoundTrip, RoundTripWithSource};
use crate::domain::id::{SetId, TicketId, UserKey};
use crate::domain::latency::prediction_terms::PredictionTerms;
use crate::domain::latency::round_trip_estimate::{EstimateSource, ExplainedEstimate, RoundTripEstimate};
use crate::domain::limit;
use crate::domain::queue::explain::{NearMissTicket, Relaxation};
use crate::domain::queue::gate::GateReason;
use crate::domain::rating::RATING_MAX;
use crate::domain::ruleset::Ruleset;
use crate::engine::queues::command::{ExplainSearchAnswer, ExplainSearchCommand, ExplainTicketAnswer, ImportedRating};

/// Default of `max_nearest`.
const NEAR_MISSES_DEFAULT: u32 = 5;
/// Limit of `max_nearest`.
const NEAR_MISSES_MAX: u32 = 50;

/// Subject of an Explain request.
pub(crate) enum ExplainSubject {
    /// Waiting ticket.
    Ticket(TicketId),
    /// Search.
    Search(Box<ExplainSearchCommand>),
}

/// Reads the subject and the number of near misses to list.
pub(crate) fn explain_query(wire: pb::ExplainRequest) -> Result<(ExplainSubject, usize), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let max_nearest = wire.max_nearest.unwrap_or(NEAR_MISSES_DEFAULT);
    if max_nearest > NEAR_MISSES_MAX {
        problems.add("max_nearest", format!("is {max_nearest}; at most {NEAR_MISSES_MAX} are allowed"));
    }
    let subject = match wire.search {
        Some(search) => {
            if !wire.ticket_id.is_empty() {
                problems.add("ticket_id", "is set together with search; set one of the two");
            }
            let (search, of_search) = search_to_explain(search, max_nearest as usize);
            problems.extend(of_search);
            ExplainSubject::Search(Box::new(search))
        }
        None => ExplainSubject::Ticket(TicketId::parse(&wire.ticket_id).unwrap_or_else(|| {
            problems.add(
                "ticket_id",
                field_checks::invalid_id_message(&wire.ticket_id, field_checks::TICKET_ID_OBTAINED_FROM),
            );
            TicketId::from_bytes([0; 16])
        })),
    };
    problems.into_result((subject, max_nearest as usize))
}

/// Reads a search to explain, and its problems.
fn search_to_explain(mut wire: pb::ExplainSearch, max_listed: usize) -> (ExplainSearchCommand, FieldErrors) {
    let entry_point = RequestReader { field_prefix: "search.", ..RequestReader::default() };
    let mut problems = entry_point.new_field_errors();
    if wire.matchmaking_set_id.is_none() {
        problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
    }
    let caller_address = Some(&wire.caller_address).filter(|address| !address.is_empty()).and_then(|address| {
        let address = address.parse::<IpAddr>().ok();
        if address.is_none() {
            problems.add("caller_address", "is not an IP address; send an IPv4 or IPv6 address without a port");
        }
        Some(address?.to_canonical())
    });
    let latency_tokens = session::take_latency_tokens(wire.session_composition.as_mut(), &mut problems);
    // The operator describes a player's session, so values have the trust of a client.
    let session = session::required_session(wire.session_composition, ValueOrigin::Client, &mut problems);
    let search = ExplainSearchCommand {
        set_id: SetId(wire.matchmaking_set_id.unwrap_or_default()),
        session,
        latency_tokens,
        caller_address,
        searching_for_ms: wire.searching_for_ms,
        max_listed,
    };
    (search, problems)
}

/// Converts the explanation of a search.
pub(crate) fn explain_search_response(
    set_id: SetId,
    searching_for_ms: u64,
    answer: &ExplainSearchAnswer,
) -> pb::ExplainResponse {
    let ExplainSearchAnswer { ruleset, explanation, frustration_limit_factor: limit_factor, ignored_fields } = answer;
    let rule_name = |refusal: Option<Refusal>| refusal.map(|it| it.rule_name(ruleset).into_owned()).unwrap_or_default();
    let limits = ruleset.expansions.iter();
    let limit = |expansion: &Expansion| pb::ExplainLimit {
        name: expansion.name.to_string(),
        value: expansion.limit_at(searching_for_ms) * limit_factor,
    };
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: refusal.rule_name(ruleset).into_owned(),
        count: (*count).into(),
    };
    let miss = |near: &NearMiss| pb::NearMiss {
        advertisement_id: near.advertisement_id.to_string(),
        rule: near.first_refusal.rule_name(ruleset).into_owned(),
        failed_rules: near.failed_rule_count.into(),
        measured: near.measured_and_limit.map(|(measured, _)| measured),
        limit: near.measured_and_limit.map(|(_, limit)| limit),
        round_trip: near.round_trip.map(explained_round_trip),
        ..pb::NearMiss::default()
    };
    let compatible = |advert: &CompatibleAdvert| pb::CompatibleAdvertisement {
        advertisement_id: advert.advertisement_id.to_string(),
        score: advert.score,
        round_trip: advert.round_trip.map(explained_round_trip),
    };
    let smallest = explanation.smallest_relaxation.map(|remedy| Relaxation::Expansion {
        expansion: remedy.expansion_index,
        current: remedy.current_limit,
        required: remedy.required_limit,
    });
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: searching_for_ms,
        limits: limits.map(limit).collect(),
        candidates: explanation.candidate_count,
        compatible: explanation.compatible_count,
        refusals: explanation.first_refusal_counts.iter().map(count).collect(),
        near_misses: explanation.near_misses.iter().map(miss).collect(),
        matches_now: explanation.compatible_count > 0,
        blocking_rule: rule_name(explanation.most_frequent_refusal_if_none_compatible()),
        smallest_relaxation: smallest.map(|remedy| smallest_relaxation(ruleset, remedy)),
        limit_factor: Some(*limit_factor).filter(|factor| *factor != 1.0),
        compatible_advertisements: explanation.compatible_adverts.iter().map(compatible).collect(),
        ignored_fields: ignored_fields.iter().map(|path| format!("search.session_composition.{path}")).collect(),
        ..pb::ExplainResponse::default()
    }
}

/// Converts the explanation of a waiting ticket.
pub(crate) fn explain_ticket_response(answer: ExplainTicketAnswer) -> pb::ExplainResponse {
    let (history, next_widening) = (ticket_history::ticket_history(&answer), ticket_history::next_widening(&answer));
    let ExplainTicketAnswer { set_id, ruleset, explanation, .. } = answer;
    let situation = &explanation.situation;
    let rule_name =
        |refusal: Option<Refusal>| refusal.map(|it| it.rule_name(&ruleset).into_owned()).unwrap_or_default();
    let group_name = |group: u16| {
        let groups = ruleset.queue.as_ref()?.groups.as_ref()?;
        Some(groups.groups.get(usize::from(group))?.name.to_string())
    };
    let limits = ruleset.expansions.iter().zip(&situation.expansion_limits);
    let count = |(refusal, count): &(Refusal, u32)| pb::RuleCount {
        rule: refusal.rule_name(&ruleset).into_owned(),
        count: (*count).into(),
    };
    pb::ExplainResponse {
        matchmaking_set_id: set_id.0,
        service_configuration_hash: ruleset.hash.0,
        waited_ms: situation.waited_ms,
        rating: situation.party_rating,
        leaderboard_rank: situation.leaderboard_position,
        party_size: situation.player_count.into(),
        group: situation.group_and_extra_groups.and_then(|(group, _)| group_name(group)).unwrap_or_default(),
        extra_groups: situation.group_and_extra_groups.map_or(0, |(_, extra_groups)| extra_groups.into()),
        range: situation.bucket_and_range.map(|(_, range)| range),
        range_factor: situation.range_factor,
        rating_shift: situation.rating_shift,
        limit_factor: situation.limit_factor,
        limits: limits
            .map(|(expansion, value)| pb::ExplainLimit { name: expansion.name.to_string(), value: *value })
            .collect(),
        gate_reason: explanation.gate_reason.map_or(pb::GateReason::Unspecified, closed_gate_reason).into(),
        candidates: explanation.candidate_count,
        compatible: explanation.compatible_count,
        refusals: explanation.refusal_counts.iter().map(count).collect(),
        near_misses: explanation.near_misses.iter().map(|near| near_miss(&ruleset, near)).collect(),
        matches_now: explanation.matches_now,
        blocking_rule: rule_name(explanation.blocking_refusal),
        smallest_relaxation: explanation.smallest_relaxation.map(|remedy| smallest_relaxation(&ruleset, remedy)),
        truncated: explanation.truncated,
        history,
        next_widening,
        ..pb::ExplainResponse::default()
    }
}

fn closed_gate_reason(closed: GateReason) -> pb::GateReason {
    match closed {
        GateReason::TooFewWaiting { .. } => pb::GateReason::TooFewWaiting,
        GateReason::TooManyMatches { .. } => pb::GateReason::TooManyMatches,
    }
}

fn near_miss(ruleset: &Ruleset, near: &NearMissTicket) -> pb::NearMiss {
    pb::NearMiss {
        ticket_id: near.ticket_id.to_string(),
        rule: near.first_refusal.rule_name(ruleset).into_owned(),
        failed_rules: near.failed_rule_count.into(),
        measured: near.margin.map(|margin| margin.measured),
        limit: near.margin.map(|margin| margin.limit),
        round_trip: near.round_trip.map(|ExplainedEstimate { estimate, prediction_terms: prediction }| {
            pb::ExplainedRoundTrip { prediction: prediction.map(prediction_terms), ..explained_estimate(estimate) }
        }),
        ..pb::NearMiss::default()
    }
}

fn explained_round_trip(
    ExplainedRoundTrip { round_trip, prediction_terms: prediction }: ExplainedRoundTrip,
) -> pb::ExplainedRoundTrip {
    let interval = match round_trip {
        RoundTripWithSource::Predicted(predicted) => Some((predicted.low_ms, predicted.high_ms)),
        RoundTripWithSource::Measured(_) | RoundTripWithSource::ByRegion(_) | RoundTripWithSource::ByDistance(_) => {
            None
        }
    };
    pb::ExplainedRoundTrip {
        round_trip_ms: round_trip.millis(),
        source: response_encoder::round_trip_source(round_trip).into(),
        low_ms: interval.map(|(low_ms, _)| low_ms),
        high_ms: interval.map(|(_, high_ms)| high_ms),
        prediction: prediction.map(prediction_terms),
    }
}

fn prediction_terms(terms: PredictionTerms) -> pb::PredictionTerms {
    let PredictionTerms { arc_km, far_share, distance_part_ms, beacon_part_ms, near, far } = terms;
    pb::PredictionTerms {
        distance_km: arc_km,
        far_share,
        distance_part_ms,
        beacon_part_ms,
        near_distance_ms: near.distance_ms,
        near_access_ms: near.access_ms,
        near_ms: near.clipped_sum_ms,
        far_distance_ms: far.distance_ms,
        far_route_ms: far.route_ms,
        far_detour_ms: far.detour_ms,
        far_ms: far.clipped_sum_ms,
    }
}

/// A round trip between two tickets, without terms. Only a predicted one has an interval.
fn explained_estimate(estimate: RoundTripEstimate) -> pb::ExplainedRoundTrip {
    let interval = (estimate.source == EstimateSource::Predicted).then_some(estimate.interval_ms);
    let source = match estimate.source {
        EstimateSource::Predicted => pb::RoundTripSource::Predicted,
        EstimateSource::Region => pb::RoundTripSource::Region,
        EstimateSource::Distance => pb::RoundTripSource::Distance,
    };
    pb::ExplainedRoundTrip {
        round_trip_ms: estimate.round_trip_ms,
        source: source.into(),
        low_ms: interval.map(|[low_ms, _]| low_ms),
        high_ms: interval.map(|[_, high_ms]| high_ms),
        prediction: None,
    }
}

fn smallest_relaxation(ruleset: &Ruleset, remedy: Relaxation) -> pb::Relaxation {
    use pb::RelaxationKind;
    let (kind, from, to, text) = match remedy {
        Relaxation::Expansion { expansion, current: from, required: to } => {
            let name = ruleset.expansions.get(expansion).map_or("", |expansion| &expansion.name);
            (RelaxationKind::Expansion, Some(from), to, format!("expansion `{name}` from {from} to {to}"))
        }
        Relaxation::Window { more_buckets: more } => (
            RelaxationKind::Window,
            None,
            f64::from(more),
            format!("rating window {more} buckets wider to either side"),
        ),
        Relaxation::ExtraGroups { more_groups: more } => {
            (RelaxationKind::ExtraGroups, None, f64::from(more), format!("{more} more rating groups"))
        }
        Relaxation::Quality { current: from, required: to } => {
            (RelaxationKind::Quality, Some(from), to, format!("quality threshold from {from} to {to}"))
        }
        Relaxation::MoreTickets { more_tickets: more } => {
            (RelaxationKind::Tickets, None, f64::from(more), format!("{more} more compatible tickets"))
        }
        Relaxation::Wait { more_ms: ms } => (RelaxationKind::Wait, None, ms as f64, format!("wait {ms} ms longer")),
    };
    pb::Relaxation { message: text, kind: kind.into(), current: from, required: to }
}

/// Checks that a rating or deviation is within the range that rating systems can compute with.
fn checked_rating_magnitude(value: f64, path: &str, problems: &mut FieldErrors) -> f64 {
    if value.abs() > RATING_MAX {
        problems.add(path, format!("is {value}; must be from -{RATING_MAX:e} to {RATING_MAX:e}"));
    }
    value
}

/// Reads the matchmaking set and the ratings to import.
pub(crate) fn import_ratings_command(
    wire: pb::ImportRatingsRequest,
) -> Result<(SetId, Vec<ImportedRating>), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let Some(set_id) = wire.matchmaking_set_id else {
        problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
        return problems.into_result((SetId::default(), Vec::new()));
    };
    if wire.ratings.is_empty() {
        problems.add("ratings", "is empty; send at least one rating");
    }
    if !field_checks::check_list_len(wire.ratings.len(), limit::RATINGS_PER_TRANSACTION_MAX, "ratings", &mut problems) {
        return problems.into_result((SetId::default(), Vec::new()));
    }
    let mut users = std::collections::BTreeSet::new();
    let mut imported = Vec::with_capacity(wire.ratings.len());
    for (index, row) in wire.ratings.iter().enumerate() {
        let path = |name: &str| format!("ratings[{index}].{name}");
        field_checks::check_required_text(&row.user_id, &*path("user_id"), &mut problems);
        if !users.insert(&row.user_id) {
            problems.add(path("user_id"), "is listed twice; list each user once");
        }
        let Some(rating) = row.rating else {
            problems.add(path("rating"), "is missing; set the rating to import");
            continue;
        };
        let mut non_negative = |value: Option<f64>, name: &str| {
            value.map(|value| {
                checked_rating_magnitude(
                    field_checks::checked_non_negative_number(value, &*path(name), &mut problems),
                    &path(name),
                    &mut problems,
                )
            })
        };
        let (deviation, volatility) =
            (non_negative(row.deviation, "deviation"), non_negative(row.volatility, "volatility"));
        imported.push(ImportedRating {
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
    problems.into_result((SetId(set_id), imported))
}
