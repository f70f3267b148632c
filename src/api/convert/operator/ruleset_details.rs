//! Conversion of one ruleset: its limits over the time waited, the weights of its soft filters, and its trial on waiting tickets.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::api::convert::RequestReader;
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::expansion::Expansion;
use crate::domain::id::{RulesetHash, SetId, TicketId};
use crate::domain::measure::Measure;
use crate::domain::queue::trial::RulesetTrial;
use crate::domain::ruleset::queue::RatingWindow;
use crate::domain::ruleset::tradeoff::tradeoffs_with_latency_or_first_filter;
use crate::domain::ruleset::{Ruleset, SoftFilter};
use crate::engine::queues::ruleset_trial::RulesetTrialAnswer;

/// Maximum number of steps of a rating window that are listed.
const WINDOW_STEPS_MAX: u32 = 100;

/// Maximum number of tickets in each list of a trial.
const LISTED_TICKETS_MAX: usize = 50;

/// Reads which ruleset to return.
pub(crate) fn get_ruleset_query(wire: &pb::GetRulesetRequest) -> Result<(SetId, Option<RulesetHash>), Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    if wire.matchmaking_set_id.is_none() {
        problems.add("matchmaking_set_id", "is missing; set it to the SetId of a loaded ruleset");
    }
    let set_id = SetId(wire.matchmaking_set_id.unwrap_or_default());
    problems.into_result((set_id, wire.service_configuration_hash.map(RulesetHash)))
}

/// Converts a ruleset.
pub(crate) fn ruleset_response(ruleset: &Ruleset) -> pb::GetRulesetResponse {
    let expansion_curve = |expansion: &Expansion| pb::LimitCurve {
        name: expansion.name.to_string(),
        unit: unit_of(ruleset, expansion.measure).to_owned(),
        steps: expansion
            .steps()
            .iter()
            .map(|step| pb::LimitStep { from_ms: step.start_ms, limit: step.limit })
            .collect(),
        grows_further: false,
    };
    let window = ruleset.queue.as_ref().and_then(|queue| queue.window.as_ref());
    let weight = |filter: &SoftFilter| pb::SoftFilterWeight {
        name: filter.name.to_string(),
        weight: filter.weight,
        unit: unit_of(ruleset, filter.measure).to_owned(),
        min: filter.min,
        max: filter.max,
    };
    let amount = |amount: f64, filter: &SoftFilter| {
        let (decimals, unit) = (if amount < 10.0 { 2 } else { 0 }, unit_of(ruleset, filter.measure));
        let space = if unit.is_empty() { "" } else { " " };
        format!("{amount:.decimals$}{space}{unit} of {}", filter.name)
    };
    let tradeoffs = tradeoffs_with_latency_or_first_filter(ruleset).into_iter().map(|tradeoff| pb::WeightTradeoff {
        amount: amount(tradeoff.base_amount, tradeoff.base_filter),
        equivalent: amount(tradeoff.equivalent_amount, tradeoff.other_filter),
        is_linear: tradeoff.is_linear,
    });
    pb::GetRulesetResponse {
        name: ruleset.name.to_string(),
        service_configuration_hash: ruleset.hash.0,
        ruleset_xml: ruleset.file_xml.to_string(),
        limits: ruleset.expansions.iter().map(expansion_curve).chain(window.map(window_curve)).collect(),
        soft_filters: ruleset.soft_filters.iter().map(weight).collect(),
        tradeoffs: tradeoffs.collect(),
    }
}

/// Unit of a measure; empty if the ruleset states none.
fn unit_of(ruleset: &Ruleset, measure: Measure) -> &str {
    match measure {
        Measure::Latency | Measure::DeltaPing | Measure::Jitter => "ms",
        Measure::Distance => "miles",
        Measure::PacketLoss => "%",
        Measure::AttributeDifference(index) => ruleset.attributes.get(index).map_or("", |attribute| &attribute.unit),
    }
}

/// Half-width of the window over the time waited, without the bound by the party's own rating.
fn window_curve(window: &RatingWindow) -> pb::LimitCurve {
    let max = window.max_half_width.unwrap_or(u32::MAX);
    let width_after = |steps: u32| window.initial_half_width.saturating_add(window.step.saturating_mul(steps)).min(max);
    let mut steps = vec![pb::LimitStep { from_ms: 0, limit: width_after(0).into() }];
    let mut grows_further = window.step != 0 && width_after(0) < max;
    for number in 1..WINDOW_STEPS_MAX {
        if !grows_further {
            break;
        }
        let width = width_after(number);
        let from_ms = window.step_every_ms.saturating_mul(number.into());
        steps.push(pb::LimitStep { from_ms, limit: width.into() });
        grows_further = width < max;
    }
    pb::LimitCurve { name: "window".to_owned(), unit: "buckets".to_owned(), steps, grows_further }
}

/// Converts a trial.
pub(crate) fn trial_response(answer: &RulesetTrialAnswer) -> pb::TryRulesetResponse {
    let RulesetTrialAnswer { silo, tickets, is_truncated, current, tried } = answer;
    let matched =
        |(_, trial): &(Arc<Ruleset>, RulesetTrial)| trial.matched_tickets.iter().copied().collect::<BTreeSet<_>>();
    let (by_current, by_tried) = (matched(current), matched(tried));
    let only_in = |one: &BTreeSet<TicketId>, other: &BTreeSet<TicketId>| {
        let only = tickets.iter().filter(|(id, _)| one.contains(id) && !other.contains(id)).take(LISTED_TICKETS_MAX);
        only.map(|(id, waited_ms)| pb::TriedTicket { ticket_id: id.to_string(), waited_ms: *waited_ms }).collect()
    };
    pb::TryRulesetResponse {
        problems: Vec::new(),
        matchmaking_set_id: tried.0.set_id.0,
        silo_id: silo.0,
        service_configuration_hash: tried.0.hash.0,
        tickets: u32::try_from(tickets.len()).unwrap_or(u32::MAX),
        truncated: *is_truncated,
        pairs: tried.1.pair_count,
        newly_matched: only_in(&by_tried, &by_current),
        no_longer_matched: only_in(&by_current, &by_tried),
        current: Some(trial_outcome(current)),
        tried: Some(trial_outcome(tried)),
    }
}

fn trial_outcome((ruleset, trial): &(Arc<Ruleset>, RulesetTrial)) -> pb::RulesetTrialOutcome {
    let mut refusals: Vec<pb::RuleCount> = trial
        .refusal_counts
        .iter()
        .map(|(refusal, count)| pb::RuleCount { rule: refusal.rule_name(ruleset).into_owned(), count: *count })
        .collect();
    refusals.sort_by_key(|refusal| std::cmp::Reverse(refusal.count));
    pb::RulesetTrialOutcome {
        service_configuration_hash: ruleset.hash.0,
        allowed_pairs: trial.allowed_pair_count,
        tickets_with_partner: trial.tickets_with_partner,
        matched_tickets: u32::try_from(trial.matched_tickets.len()).unwrap_or(u32::MAX),
        refusals,
    }
}
