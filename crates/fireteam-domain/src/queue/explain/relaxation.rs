//! What would have to give: each rule by itself is loosened as little as makes a match, by trying.

use std::sync::Arc;

use crate::expansion::{Expansion, ExpansionStep};
use crate::filter::Refusal;
use crate::id::{TicketId, UserKey};
use crate::queue::explain::near_miss::FailedRules;
use crate::queue::explain::{Relaxation, RuleMargin};
use crate::queue::pass::PassInput;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::report;
use crate::queue::rng::SplitMix64;
use crate::queue::select::Selector;
use crate::queue::waiting_list::WaitingList;
use crate::ruleset::HardRule;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QualitySpec, QueueSpec, RegionMode};
use crate::time::UnixMs;

/// Moments that are tried for waiting.
const WAIT_TRIALS_MAX: usize = 64;

/// Halvings on the way to the quality that would do: a thousandth of the way.
const BISECTION_STEPS: u32 = 10;

/// Tries one change after another, on those alone who come nearest.
pub(super) struct RelaxationTrial<'t> {
    input: &'t PassInput<'t>,
    tickets: &'t [&'t PreparedTicket],
    ticket_id: TicketId,
    pair_checks_left: u64,
    /// When something changes next for the trial that was last.
    next_change_at: Option<UnixMs>,
}

/// How a trial differs from things as they are.
#[derive(Clone, Copy, Debug)]
struct TrialChange<'c> {
    ruleset: &'c Ruleset,
    queue: &'c QueueSpec,
    tickets: &'c [&'c PreparedTicket],
    now: UnixMs,
    extra_buckets: u32,
    extra_groups: u16,
}

impl<'t> RelaxationTrial<'t> {
    pub(super) fn new(
        input: &'t PassInput<'t>,
        entrants: &'t [&'t PreparedTicket],
        ticket: TicketId,
        looks_left: u64,
    ) -> Self {
        Self { input, tickets: entrants, ticket_id: ticket, pair_checks_left: looks_left, next_change_at: None }
    }

    pub(super) fn is_truncated(&self) -> bool {
        self.pair_checks_left == 0
    }

    pub(super) fn matches_unchanged(&mut self) -> bool {
        let change = self.unchanged();
        self.matches_after(&change)
    }

    /// The least change of each kind, the least in proportion first.
    pub(super) fn smallest_relaxations(&mut self, misses: &[FailedRules]) -> Vec<Relaxation> {
        let next_change = self.next_change_at;
        let expansions: Vec<usize> = (0..self.input.ruleset.expansions.len()).collect();
        let mut found: Vec<(f64, Relaxation)> =
            expansions.into_iter().filter_map(|expansion| self.relax_expansion(expansion, misses)).collect();
        found.extend(self.relax_window(misses));
        found.extend(self.relax_groups(misses));
        found.extend(self.relax_quality());
        found.extend(self.relax_by_waiting(next_change));
        found.extend(self.relax_by_more_tickets());
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        found.into_iter().map(|(_, remedy)| remedy).collect()
    }

    fn unchanged(&self) -> TrialChange<'t> {
        let PassInput { ruleset, queue, now, .. } = *self.input;
        TrialChange { ruleset, queue, tickets: self.tickets, now, extra_buckets: 0, extra_groups: 0 }
    }

    /// Whether the ticket would be in a match after a change.
    fn matches_after(&mut self, change: &TrialChange<'_>) -> bool {
        let TrialChange { ruleset, queue, tickets: entrants, now, .. } = *change;
        let input =
            PassInput { ruleset, queue, tickets: entrants, now, max_pair_checks: self.pair_checks_left, ..*self.input };
        let mut field = PassState::new(&input);
        for row in &mut field.tickets {
            row.window_range = row.window_range.saturating_add(change.extra_buckets);
            row.extra_groups = row.extra_groups.saturating_add(change.extra_groups);
        }
        field.max_window_reach = field.max_window_reach.saturating_add(change.extra_buckets);
        let Some(row) = field.tickets.iter().position(|row| row.prepared.ticket.id == self.ticket_id) else {
            return false;
        };
        let pools = field.partition_into_pools();
        let mut line = WaitingList::new(&field, &pools);
        let mut desk = PassProgress::new(field.tickets.len(), ruleset.hard_filters.len(), self.pair_checks_left);
        let mut dice = SplitMix64(input.rng_seed);
        let (line, desk) = (&mut line, &mut desk);
        let mut work = Selector {
            pass_state: &field,
            waiting_list: line,
            progress: desk,
            rng: &mut dice,
            matches_left: 1,
            matches: Vec::new(),
        };
        let matches = work.find_match_for(row as u32).is_some();
        self.pair_checks_left = self.pair_checks_left.saturating_sub(work.progress.pair_checks.max(1));
        self.next_change_at = report::next_change_at(&field, work.waiting_list, work.progress);
        matches
    }

    /// The place of the least of some sizes, ascending, with which a change makes a match. More never does worse.
    fn smallest_sufficient<T: Copy>(
        &mut self,
        sizes: &[T],
        mut matches: impl FnMut(&mut Self, T) -> bool,
    ) -> Option<T> {
        let last = *sizes.last()?;
        if !matches(self, last) {
            return None;
        }
        let (mut low, mut high) = (0, sizes.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if matches(self, sizes[middle]) { high = middle } else { low = middle + 1 }
        }
        Some(sizes[high])
    }

    fn relax_expansion(&mut self, expansion: usize, misses: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let input = self.input;
        let mut wanted = self.limits_to_try(expansion, misses);
        let own = self.tickets.last()?;
        let from = input.ruleset.expansions[expansion].limit_at(input.now.ms_since(own.ticket.entered_at));
        wanted.retain(|limit| from < *limit);
        wanted.sort_by(f64::total_cmp);
        wanted.dedup();
        let to = self.smallest_sufficient(&wanted, |trial, to| {
            let ruleset = ruleset_with_limit(input.ruleset, expansion, to);
            let change = TrialChange { ruleset: &ruleset, ..trial.unchanged() };
            trial.matches_after(&change)
        })?;
        Some(((to - from) / from.abs().max(1e-9), Relaxation::Expansion { expansion, current: from, required: to }))
    }

    /// The limits with which one more candidate or region would do.
    fn limits_to_try(&self, expansion: usize, misses: &[FailedRules]) -> Vec<f64> {
        let hard = &self.input.ruleset.hard_filters;
        let concerns = |refusal: Refusal| match refusal {
            Refusal::HardFilter { filter_index: filter, .. } => {
                matches!(hard.get(filter).map(|it| &it.rule), Some(HardRule::Within { expansion: it, .. }) if *it == expansion)
            }
            _ => false,
        };
        let short =
            misses.iter().flat_map(|miss| &miss.refusals_with_margins).filter(|(refusal, _)| concerns(*refusal));
        let mut wanted: Vec<f64> = short.filter_map(|(_, by)| by.map(|RuleMargin { measured: is, .. }| is)).collect();
        if let Some(RegionMode::Stage { expansion: stage }) = self.input.queue.regions
            && stage == expansion
        {
            let trips = self.tickets.iter().flat_map(|it| &it.ticket.session.region_latencies);
            wanted.extend(trips.map(|trip| f64::from(trip.round_trip_ms)));
        }
        wanted
    }

    fn relax_window(&mut self, misses: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let more = self.excess_over_limit(Refusal::RatingWindow, misses);
        let more = self.smallest_sufficient(&more, |trial, buckets| {
            let change = TrialChange { extra_buckets: buckets, ..trial.unchanged() };
            trial.matches_after(&change)
        })?;
        Some((f64::from(more) / 10.0, Relaxation::Window { more_buckets: more }))
    }

    fn relax_groups(&mut self, misses: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let more = self.excess_over_limit(Refusal::RatingGroup, misses);
        let more = self.smallest_sufficient(&more, |trial, groups| {
            let change = TrialChange { extra_groups: groups as u16, ..trial.unchanged() };
            trial.matches_after(&change)
        })?;
        Some((f64::from(more), Relaxation::ExtraGroups { more: more as u16 }))
    }

    /// By how much a rule that counts refused, ascending, each once.
    fn excess_over_limit(&self, rule: Refusal, misses: &[FailedRules]) -> Vec<u32> {
        let short = misses.iter().flat_map(|miss| &miss.refusals_with_margins).filter(|(refusal, _)| *refusal == rule);
        let mut more: Vec<u32> = short
            .filter_map(|(_, by)| by.map(|RuleMargin { measured: is, limit }| (is - limit).ceil().max(1.0) as u32))
            .collect();
        more.sort_unstable();
        more.dedup();
        more
    }

    fn relax_quality(&mut self) -> Option<(f64, Relaxation)> {
        let from = threshold_of(&self.input.queue.quality)?;
        let loosest = match self.input.queue.quality {
            // No score exceeds the sum of all weights.
            QualitySpec::SoftScore { .. } => {
                self.input.ruleset.soft_filters.iter().map(|it| it.weight).sum::<f64>().max(from)
            }
            _ => -1e-9,
        };
        let would_do = |trial: &mut Self, bar: f64| {
            let mut queue = trial.input.queue.clone();
            set_threshold(&mut queue.quality, bar);
            let change = TrialChange { queue: &queue, ..trial.unchanged() };
            trial.matches_after(&change)
        };
        if !would_do(self, loosest) {
            return None;
        }
        let (mut fails, mut does) = (from, loosest);
        for _ in 0..BISECTION_STEPS {
            let middle = f64::midpoint(fails, does);
            if would_do(self, middle) { does = middle } else { fails = middle }
        }
        Some(((does - from).abs() / from.abs().max(1e-9), Relaxation::Quality { from, to: does }))
    }

    fn relax_by_waiting(&mut self, first: Option<UnixMs>) -> Option<(f64, Relaxation)> {
        let (now, mut next) = (self.input.now, first);
        for _ in 0..WAIT_TRIALS_MAX {
            let moment = next?;
            let change = TrialChange { now: moment, ..self.unchanged() };
            if self.matches_after(&change) {
                let ms = moment.ms_since(now);
                return Some((ms as f64 / 60_000.0, Relaxation::Wait { more_ms: ms }));
            }
            next = self.next_change_at.filter(|next| moment < *next);
        }
        None
    }

    /// Others like it, whom nobody has blocked and nobody has met.
    fn relax_by_more_tickets(&mut self) -> Option<(f64, Relaxation)> {
        let own = *self.tickets.last()?;
        let most = self.input.teams.players_per_match();
        let twins: Vec<PreparedTicket> = (1..most).map(|number| synthetic_ticket(own, number)).collect();
        let sizes: Vec<u16> = (1..most).collect();
        let more = self.smallest_sufficient(&sizes, |trial, more| {
            let entrants: Vec<&PreparedTicket> =
                trial.tickets.iter().copied().chain(&twins[..usize::from(more)]).collect();
            let change = TrialChange { tickets: &entrants, ..trial.unchanged() };
            trial.matches_after(&change)
        })?;
        // Players cannot be had by turning a screw: the last resort.
        Some((f64::MAX, Relaxation::MoreTickets { more }))
    }
}

fn ruleset_with_limit(ruleset: &Ruleset, expansion: usize, to: f64) -> Ruleset {
    let mut ruleset = ruleset.clone();
    let old = &ruleset.expansions[expansion];
    let wider = |step: &ExpansionStep| ExpansionStep { limit: step.limit.max(to), ..*step };
    let steps = old.steps().iter().map(wider).collect();
    if let Some(new) = Expansion::new(&old.name, old.measure, steps) {
        ruleset.expansions[expansion] = new;
    }
    ruleset
}

/// What a designer wrote as the bar of quality.
fn threshold_of(quality: &QualitySpec) -> Option<f64> {
    match *quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => None,
        QualitySpec::SoftScore { max_score } => Some(max_score),
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => Some(threshold),
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => Some(required_percent),
    }
}

fn set_threshold(quality: &mut QualitySpec, to: f64) {
    match quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => {}
        QualitySpec::SoftScore { max_score } => *max_score = to,
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => *threshold = to,
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => {
            *required_percent = to;
        }
    }
}

fn synthetic_ticket(own: &PreparedTicket, number: u16) -> PreparedTicket {
    let mut ticket = (*own.ticket).clone();
    let changed = |bytes: &[u8; 16]| {
        let [high, low] = number.to_be_bytes();
        let mut bytes = *bytes;
        (bytes[0], bytes[1]) = (bytes[0] ^ 0xa5 ^ high, bytes[1] ^ low);
        bytes
    };
    ticket.id = TicketId::from_bytes(changed(ticket.id.as_bytes()));
    let mut users: Vec<UserKey> = own.users.iter().map(|it| UserKey::from_bytes(changed(it.as_bytes()))).collect();
    users.sort_unstable();
    PreparedTicket { ticket: Arc::new(ticket), users: users.into(), ..own.clone() }
}
