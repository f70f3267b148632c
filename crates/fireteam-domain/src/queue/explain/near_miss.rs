//! All that keeps one ticket from another, and by how much.

use crate::filter::{Refusal, admit_mutually_by_filter, measure_between};
use crate::queue::avoidance::{self, have_common_user};
use crate::queue::explain::{NearMissTicket, RuleMargin};
use crate::queue::pass_state::PassState;
use crate::queue::quality;
use crate::queue::rating_group;
use crate::queue::region;
use crate::queue::window::{self, BucketRange};
use crate::ruleset::HardRule;
use crate::ruleset::queue::{RatingWindow, WindowMatchRule};

/// A candidate that was missed, and every rule that is in the way.
#[derive(Clone, Debug)]
pub(super) struct FailedRules {
    pub(super) near_miss: NearMissTicket,
    pub(super) refusals_with_margins: Vec<(Refusal, Option<RuleMargin>)>,
}

impl FailedRules {
    /// Fewer rules come first, then the least beyond the limit in proportion; what has no measure comes last.
    pub(super) fn closeness_key(&self) -> f64 {
        let beyond = match self.near_miss.margin {
            Some(RuleMargin { measured: is, limit }) => {
                let share = (is - limit).abs() / limit.abs().max(1e-9);
                share / (1.0 + share)
            }
            None => 1.0,
        };
        f64::from(self.near_miss.failed_rule_count) * 2.0 + beyond
    }
}

/// What keeps `other` from `one`; `None` when nothing does.
pub(super) fn failed_rules_between(field: &PassState<'_>, one: u32, other: u32) -> Option<FailedRules> {
    let refusals = all_refusals(field, one, other);
    let &(refusal, by) = refusals.first()?;
    let candidate = field.tickets[other as usize].prepared.ticket.id;
    Some(FailedRules {
        near_miss: NearMissTicket {
            ticket_id: candidate,
            first_refusal: refusal,
            failed_rule_count: refusals.len() as u16,
            margin: by,
        },
        refusals_with_margins: refusals,
    })
}

fn all_refusals(field: &PassState<'_>, one: u32, other: u32) -> Vec<(Refusal, Option<RuleMargin>)> {
    let (input, queue) = (field.input, field.input.queue);
    let (ours, theirs) = (&field.tickets[one as usize], &field.tickets[other as usize]);
    let mut refusals = Vec::new();
    if have_common_user(&ours.prepared.users, &theirs.prepared.users) {
        refusals.push((Refusal::OwnSession, None));
    }
    for filter in 0..input.ruleset.hard_filters.len() {
        if let Err(refusal) =
            admit_mutually_by_filter(input.ruleset, filter, &ours.waiting_session, &theirs.waiting_session)
        {
            refusals.push((refusal, limit_margin(field, filter, one, other)));
        }
    }
    if queue.groups.is_some() {
        let apart = ours.prepared.rating_group.abs_diff(theirs.prepared.rating_group);
        let reach = ours.extra_groups.min(theirs.extra_groups);
        if !rating_group::groups_may_meet(
            (ours.prepared.rating_group, ours.extra_groups),
            (theirs.prepared.rating_group, theirs.extra_groups),
        ) {
            refusals.push((Refusal::RatingGroup, Some(RuleMargin { measured: apart.into(), limit: reach.into() })));
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
        if !window::windows_may_meet(window, ours, theirs) {
            refusals.push((Refusal::RatingWindow, Some(window_margin(window, ours, theirs))));
        }
    }
    if avoidance::evaluate_avoidance(
        &queue.avoid,
        input.past_matches,
        ours.avoidance_side(),
        theirs.avoidance_side(),
        input.now,
    )
    .never_meet
    {
        refusals.push((Refusal::AvoidedPlayer, None));
    }
    if input.teams.players_per_match() < ours.prepared.player_count.saturating_add(theirs.prepared.player_count) {
        refusals.push((Refusal::TeamsNotFilled, None));
    } else if input.teams.players_per_match() == ours.prepared.player_count + theirs.prepared.player_count {
        // Only of two is their own quality that of the match.
        let members = [ours.quality_input(0), theirs.quality_input(1)];
        let worth = quality::evaluate_quality(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, 0.0);
        if !worth.passes {
            let bar = quality::quality_threshold(&queue.quality);
            refusals
                .push((Refusal::LowQuality, bar.map(|bar| RuleMargin { measured: worth.quality, limit: bar.minimum })));
        }
    }
    refusals
}

/// By how much two look past each other: of the side that lacks more.
fn window_margin(window: &RatingWindow, ours: BucketRange, theirs: BucketRange) -> RuleMargin {
    let from = |one: BucketRange, other: BucketRange| RuleMargin {
        measured: one.center.abs_diff(other.bucket) as f64,
        limit: f64::from(one.range),
    };
    match window.rule {
        WindowMatchRule::Contain => {
            let (here, there) = (from(ours, theirs), from(theirs, ours));
            if there.measured - there.limit <= here.measured - here.limit { here } else { there }
        }
        WindowMatchRule::Overlap => RuleMargin {
            measured: ours.center.abs_diff(theirs.center) as f64,
            limit: f64::from(ours.range) + f64::from(theirs.range),
        },
    }
}

/// What a limit measures, and the tighter of both limits.
fn limit_margin(field: &PassState<'_>, filter: usize, one: u32, other: u32) -> Option<RuleMargin> {
    let ruleset = field.input.ruleset;
    let HardRule::Within { measure, expansion, .. } = ruleset.hard_filters[filter].rule else { return None };
    let (ours, theirs) = (&field.tickets[one as usize].waiting_session, &field.tickets[other as usize].waiting_session);
    let is = measure_between(ruleset, measure, &ours.session, &theirs.session, None)?;
    let limit = |waited_ms| ruleset.expansions[expansion].limit_at(waited_ms);
    Some(RuleMargin { measured: is, limit: limit(ours.waited_ms).min(limit(theirs.waited_ms)) })
}
