//! All that keeps one ticket from another, and by how much.

use crate::domain::filter::{Refusal, measure_between, meet_by};
use crate::domain::queue::avoid::{self, shares};
use crate::domain::queue::explain::{Miss, Shortfall};
use crate::domain::queue::field::Field;
use crate::domain::queue::group;
use crate::domain::queue::quality;
use crate::domain::queue::region;
use crate::domain::queue::window::{self, Look};
use crate::domain::ruleset::HardRule;
use crate::domain::ruleset::queue::{Window, WindowRule};

/// A candidate that was missed, and every rule that is in the way.
#[derive(Clone, Debug)]
pub(super) struct Missed {
    pub(super) miss: Miss,
    pub(super) refusals: Vec<(Refusal, Option<Shortfall>)>,
}

impl Missed {
    /// Fewer rules come first, then the least beyond the limit in proportion; what has no measure comes last.
    pub(super) fn key(&self) -> f64 {
        let beyond = match self.miss.by {
            Some(Shortfall { is, limit }) => {
                let share = (is - limit).abs() / limit.abs().max(1e-9);
                share / (1.0 + share)
            }
            None => 1.0,
        };
        f64::from(self.miss.refusals) * 2.0 + beyond
    }
}

/// What keeps `other` from `one`; `None` when nothing does.
pub(super) fn of(field: &Field<'_>, one: u32, other: u32) -> Option<Missed> {
    let refusals = refusals(field, one, other);
    let &(refusal, by) = refusals.first()?;
    let candidate = field.rows[other as usize].entrant.ticket.id;
    Some(Missed { miss: Miss { candidate, refusal, refusals: refusals.len() as u16, by }, refusals })
}

fn refusals(field: &Field<'_>, one: u32, other: u32) -> Vec<(Refusal, Option<Shortfall>)> {
    let (input, queue) = (field.input, field.input.queue);
    let (ours, theirs) = (&field.rows[one as usize], &field.rows[other as usize]);
    let mut refusals = Vec::new();
    if shares(&ours.entrant.users, &theirs.entrant.users) {
        refusals.push((Refusal::Own, None));
    }
    for filter in 0..input.ruleset.hard.len() {
        if let Err(refusal) = meet_by(input.ruleset, filter, &ours.waits, &theirs.waits) {
            refusals.push((refusal, within(field, filter, one, other)));
        }
    }
    if queue.groups.is_some() {
        let apart = ours.entrant.group.abs_diff(theirs.entrant.group);
        let reach = ours.neighbours.min(theirs.neighbours);
        if !group::may_meet((ours.entrant.group, ours.neighbours), (theirs.entrant.group, theirs.neighbours)) {
            refusals.push((Refusal::Group, Some(Shortfall { is: apart.into(), limit: reach.into() })));
        }
    }
    if queue.regions.is_some_and(|rule| !region::may_meet(rule, &ours.reached, &theirs.reached)) {
        refusals.push((Refusal::Region, None));
    }
    if let Some(window) = &queue.window {
        let (ours, theirs) = (ours.look(), theirs.look());
        if !window::may_meet(window, ours, theirs) {
            refusals.push((Refusal::Window, Some(short_of(window, ours, theirs))));
        }
    }
    if avoid::judge(&queue.avoid, input.meetings, ours.wary(), theirs.wary(), input.now).never {
        refusals.push((Refusal::Avoid, None));
    }
    if input.teams.match_size() < ours.entrant.size.saturating_add(theirs.entrant.size) {
        refusals.push((Refusal::Team, None));
    } else if input.teams.match_size() == ours.entrant.size + theirs.entrant.size {
        // Only of two is their own quality that of the match.
        let members = [ours.member(0), theirs.member(1)];
        let worth = quality::judge(input.ruleset, &queue.quality, queue.wait_bonus.as_ref(), &members, 0.0);
        if !worth.passes {
            let bar = quality::bar(&queue.quality);
            refusals.push((Refusal::Quality, bar.map(|bar| Shortfall { is: worth.quality, limit: bar.least })));
        }
    }
    refusals
}

/// By how much two look past each other: of the side that lacks more.
fn short_of(window: &Window, ours: Look, theirs: Look) -> Shortfall {
    let from = |one: Look, other: Look| Shortfall {
        is: one.centre.abs_diff(other.bucket) as f64,
        limit: f64::from(one.range),
    };
    match window.rule {
        WindowRule::Contain => {
            let (here, there) = (from(ours, theirs), from(theirs, ours));
            if there.is - there.limit <= here.is - here.limit { here } else { there }
        }
        WindowRule::Overlap => Shortfall {
            is: ours.centre.abs_diff(theirs.centre) as f64,
            limit: f64::from(ours.range) + f64::from(theirs.range),
        },
    }
}

/// What a limit measures, and the tighter of both limits.
fn within(field: &Field<'_>, filter: usize, one: u32, other: u32) -> Option<Shortfall> {
    let ruleset = field.input.ruleset;
    let HardRule::Within { measure, expansion, .. } = ruleset.hard[filter].rule else { return None };
    let (ours, theirs) = (&field.rows[one as usize].waits, &field.rows[other as usize].waits);
    let is = measure_between(ruleset, measure, &ours.seen, &theirs.seen, None)?;
    let limit = |waited_ms| ruleset.expansions[expansion].limit_at(waited_ms);
    Some(Shortfall { is, limit: limit(ours.waited_ms).min(limit(theirs.waited_ms)) })
}
