//! Near misses: all rules that refuse a pair of tickets, with measured values and limits.

use crate::filter::{Refusal, admit_queue_parties_by_one_filter, measure_for_queue_limit, refusals_by_wishes};
use crate::latency::round_trip_estimate::{ExplainedEstimate, explain_estimate};
use crate::queue::avoidance::have_common_user;
use crate::queue::explain::explanation::{MeasuredAndLimit, NearMissTicket};
use crate::queue::pass_state::PassState;
use crate::queue::quality;
use crate::queue::rating_group;
use crate::queue::region;
use crate::queue::window::{self, BucketRange};
use crate::ruleset::HardRule;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::ruleset::queue::{RatingWindow, WindowPairRule};

/// Candidate and all rules that refuse it.
#[derive(Clone, Debug)]
pub(super) struct FailedRules {
    pub(super) near_miss: NearMissTicket,
    pub(super) refusals_with_margins: Vec<(Refusal, Option<MeasuredAndLimit>)>,
}

impl FailedRules {
    /// Sort key: number of failed rules, then relative excess over the limit. Rules without a measure sort last.
    pub(super) fn closeness_key(&self) -> f64 {
        let excess = match self.near_miss.margin {
            Some(MeasuredAndLimit { measured, limit }) => {
                let share = (measured - limit).abs() / limit.abs().max(1e-9);
                share / (1.0 + share)
            }
            None => 1.0,
        };
        f64::from(self.near_miss.failed_rule_count) * 2.0 + excess
    }
}

/// Rules that keep `other` from `one`. `None` if no rule does.
pub(super) fn failed_rules_between(pass_state: &PassState<'_>, one: u32, other: u32) -> Option<FailedRules> {
    let refusals = all_refusals(pass_state, one, other);
    let &(first_refusal, margin) = refusals.first()?;
    let ticket_id = pass_state.tickets[other as usize].prepared.ticket.id;
    let failed_rule_count = refusals.len() as u16;
    let round_trip = round_trip_between(pass_state, one, other);
    Some(FailedRules {
        near_miss: NearMissTicket { ticket_id, first_refusal, failed_rule_count, margin, round_trip },
        refusals_with_margins: refusals,
    })
}

/// Estimated round trip between two tickets with its terms, if the ruleset predicts round trips.
fn round_trip_between(pass_state: &PassState<'_>, one: u32, other: u32) -> Option<ExplainedEstimate> {
    let ruleset = pass_state.input.ruleset;
    if ruleset.probing.latency_estimate_policy != LatencyEstimatePolicy::PredictedV1 {
        return None;
    }
    let end = |row: u32| pass_state.tickets[row as usize].waiting_session.session.as_estimate_end();
    explain_estimate(&ruleset.latency_model, end(one), end(other))
}

fn all_refusals(pass_state: &PassState<'_>, one: u32, other: u32) -> Vec<(Refusal, Option<MeasuredAndLimit>)> {
    let (input, queue) = (pass_state.input, pass_state.input.queue);
    let (ours, theirs) = (&pass_state.tickets[one as usize], &pass_state.tickets[other as usize]);
    let mut refusals = Vec::new();
    if have_common_user(&ours.prepared.users, &theirs.prepared.users) {
        refusals.push((Refusal::OwnSession, None));
    }
    for filter_index in 0..input.ruleset.hard_filters.len() {
        if let Err(refusal) = admit_queue_parties_by_one_filter(
            input.ruleset,
            filter_index,
            &ours.waiting_session,
            &theirs.waiting_session,
        ) {
            refusals.push((refusal, within_filter_value_and_limit(pass_state, filter_index, one, other)));
        }
    }
    let unmet = refusals_by_wishes(input.ruleset, &ours.waiting_session, &theirs.waiting_session, None);
    refusals.extend(unmet.map(|refusal| (refusal, None)));
    if queue.groups.is_some() {
        let distance = ours.prepared.rating_group.abs_diff(theirs.prepared.rating_group);
        let reach = ours.extra_groups.min(theirs.extra_groups);
        if !rating_group::groups_may_meet(
            (ours.prepared.rating_group, ours.extra_groups),
            (theirs.prepared.rating_group, theirs.extra_groups),
        ) {
            refusals.push((
                Refusal::RatingGroup,
                Some(MeasuredAndLimit { measured: distance.into(), limit: reach.into() }),
            ));
        }
    }
    if queue
        .regions
        .is_some_and(|rule| !region::regions_may_meet(rule, &ours.reachable_regions, &theirs.reachable_regions))
    {
        refusals.push((Refusal::NoCommonRegion, None));
    }
    if let Some(window) = &queue.window {
        let (ours, theirs) = (ours.bucket_range(), theirs.bucket_range());
        if !window::windows_satisfy_pair_rule(window, ours, theirs) {
            refusals.push((Refusal::RatingWindow, Some(window_distance_and_limit(window, ours, theirs))));
        }
    }
    if pass_state.must_not_meet(one, other) {
        refusals.push((Refusal::AvoidedPlayer, None));
    }
    if input.teams.players_per_match() < ours.prepared.player_count.saturating_add(theirs.prepared.player_count) {
        refusals.push((Refusal::TeamsNotFilled, None));
    } else if input.teams.players_per_match() == ours.prepared.player_count + theirs.prepared.player_count {
        // Quality of a pair is the match quality only for matches of two tickets.
        let members = [ours.quality_input(0), theirs.quality_input(1)];
        let quality =
            quality::evaluate_quality(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, 0.0);
        if !quality.passes {
            let threshold = quality::minimum_quality(&queue.quality);
            refusals.push((
                Refusal::LowQuality,
                threshold.map(|threshold| MeasuredAndLimit { measured: quality.quality, limit: threshold.minimum }),
            ));
        }
    }
    refusals
}

/// Distance and limit of two windows, from the side with the larger excess.
fn window_distance_and_limit(window: &RatingWindow, ours: BucketRange, theirs: BucketRange) -> MeasuredAndLimit {
    let from = |one: BucketRange, other: BucketRange| MeasuredAndLimit {
        measured: one.center.abs_diff(other.own_bucket) as f64,
        limit: f64::from(one.range),
    };
    match window.rule {
        WindowPairRule::Contain => {
            let (here, there) = (from(ours, theirs), from(theirs, ours));
            if there.measured - there.limit <= here.measured - here.limit { here } else { there }
        }
        WindowPairRule::Overlap => MeasuredAndLimit {
            measured: ours.center.abs_diff(theirs.center) as f64,
            limit: f64::from(ours.range) + f64::from(theirs.range),
        },
    }
}

/// Measured value of a `Within` filter, and the lower limit of both tickets.
fn within_filter_value_and_limit(
    pass_state: &PassState<'_>,
    filter_index: usize,
    one: u32,
    other: u32,
) -> Option<MeasuredAndLimit> {
    let ruleset = pass_state.input.ruleset;
    let HardRule::Within { measure, expansion, .. } = ruleset.hard_filters[filter_index].rule else { return None };
    let (ours, theirs) =
        (&pass_state.tickets[one as usize].waiting_session, &pass_state.tickets[other as usize].waiting_session);
    let measured = measure_for_queue_limit(ruleset, measure, &ours.session, &theirs.session)?;
    let expansion = &ruleset.expansions[expansion];
    Some(MeasuredAndLimit { measured, limit: ours.limit_of(expansion).min(theirs.limit_of(expansion)) })
}
