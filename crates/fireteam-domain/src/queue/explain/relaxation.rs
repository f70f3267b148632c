//! Smallest relaxations: loosens one rule at a time by trial, and finds the least change that gives a match.

use std::sync::Arc;

use crate::expansion::{Expansion, ExpansionStep};
use crate::filter::Refusal;
use crate::id::{TicketId, UserKey};
use crate::queue::explain::explanation::{MeasuredAndLimit, Relaxation};
use crate::queue::explain::near_miss::FailedRules;
use crate::queue::input::PassInput;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::report;
use crate::queue::rng::SplitMix64;
use crate::queue::select::Selector;
use crate::queue::select::failed_searches::SearchTrace;
use crate::queue::waiting_list::WaitingList;
use crate::ruleset::HardRule;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QualitySpec, QueueSpec, RegionUse};
use crate::time::UnixMs;

/// Maximum number of wait times tried.
const WAIT_TRIALS_MAX: usize = 64;

/// Bisection steps for the quality threshold, which give a precision of 1/1024.
const QUALITY_BISECTION_STEPS: u32 = 10;

/// Tries changes one after another, on the nearest tickets only.
pub(super) struct SingleRelaxationSearch<'t> {
    input: &'t PassInput<'t>,
    tickets: &'t [&'t PreparedTicket],
    ticket_id: TicketId,
    pair_checks_left: u64,
    /// Next time of a change, from the last trial.
    next_change_at: Option<UnixMs>,
}

/// Changed settings of one trial.
#[derive(Clone, Copy, Debug)]
struct TrialChange<'c> {
    ruleset: &'c Ruleset,
    queue: &'c QueueSpec,
    tickets: &'c [&'c PreparedTicket],
    now: UnixMs,
    extra_buckets: u32,
    extra_groups: u16,
}

impl<'t> SingleRelaxationSearch<'t> {
    pub(super) fn new(
        input: &'t PassInput<'t>,
        tickets: &'t [&'t PreparedTicket],
        ticket_id: TicketId,
        pair_checks_left: u64,
    ) -> Self {
        Self { input, tickets, ticket_id, pair_checks_left, next_change_at: None }
    }

    pub(super) fn is_out_of_pair_checks(&self) -> bool {
        self.pair_checks_left == 0
    }

    pub(super) fn matches_at_baseline(&mut self) -> bool {
        let change = self.baseline();
        self.matches_after(&change)
    }

    /// Smallest sufficient change of each kind, sorted by relative size.
    pub(super) fn smallest_relaxation_of_each_kind(&mut self, refused: &[FailedRules]) -> Vec<Relaxation> {
        let next_change_at = self.next_change_at;
        let expansions: Vec<usize> = (0..self.input.ruleset.expansions.len()).collect();
        let mut found: Vec<(f64, Relaxation)> =
            expansions.into_iter().filter_map(|expansion| self.relax_expansion(expansion, refused)).collect();
        found.extend(self.relax_window(refused));
        found.extend(self.relax_groups(refused));
        found.extend(self.relax_quality());
        found.extend(self.relax_by_waiting(next_change_at));
        found.extend(self.relax_by_more_tickets());
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        found.into_iter().map(|(_, relaxation)| relaxation).collect()
    }

    fn baseline(&self) -> TrialChange<'t> {
        let PassInput { ruleset, queue, now, .. } = *self.input;
        TrialChange { ruleset, queue, tickets: self.tickets, now, extra_buckets: 0, extra_groups: 0 }
    }

    /// Whether the ticket would match after a change.
    fn matches_after(&mut self, change: &TrialChange<'_>) -> bool {
        let TrialChange { ruleset, queue, tickets, now, .. } = *change;
        let input = PassInput { ruleset, queue, tickets, now, max_pair_checks: self.pair_checks_left, ..*self.input };
        let mut pass_state = PassState::new(&input);
        for ticket in &mut pass_state.tickets {
            ticket.window_range = ticket.window_range.saturating_add(change.extra_buckets);
            ticket.extra_groups = ticket.extra_groups.saturating_add(change.extra_groups);
        }
        pass_state.max_window_reach = pass_state.max_window_reach.saturating_add(change.extra_buckets);
        let Some(row) = pass_state.tickets.iter().position(|ticket| ticket.prepared.ticket.id == self.ticket_id) else {
            return false;
        };
        let pools = pass_state.partition_by_region_and_equal_values();
        let mut waiting_list = WaitingList::new(&pass_state, &pools);
        let mut progress = PassProgress::new(pass_state.tickets.len(), ruleset, self.pair_checks_left);
        let mut rng = SplitMix64(input.rng_seed);
        let (waiting_list, progress) = (&mut waiting_list, &mut progress);
        let mut selector = Selector {
            pass_state: &pass_state,
            waiting_list,
            progress,
            rng: &mut rng,
            queue_before_newcomers: None,
            searches: None,
            search_trace: SearchTrace::default(),
            matches_left: 1,
            matches: Vec::new(),
        };
        let matches = selector.find_match_for(row as u32).is_some();
        self.pair_checks_left = self.pair_checks_left.saturating_sub(selector.progress.pair_checks.max(1));
        self.next_change_at = report::next_change_at(&pass_state, selector.waiting_list, selector.progress);
        matches
    }

    /// Smallest of the ascending `sizes` with which a change gives a match. A larger change never does worse.
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

    fn relax_expansion(&mut self, expansion: usize, refused: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let input = self.input;
        let mut limits = self.limits_to_try(expansion, refused);
        let own = self.tickets.last()?;
        let current = input.ruleset.expansions[expansion].limit_at(input.now.ms_since(own.ticket.entered_at));
        // The limits of a frustrated party are wider than those of the ruleset.
        let of_ruleset: Vec<f64> = limits.iter().map(|limit| limit / own.attribute_values.limit_factor()).collect();
        limits.extend(of_ruleset);
        limits.retain(|limit| current < *limit);
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        let required = self.smallest_sufficient(&limits, |trial, required| {
            let ruleset = ruleset_with_limit(input.ruleset, expansion, required);
            let change = TrialChange { ruleset: &ruleset, ..trial.baseline() };
            trial.matches_after(&change)
        })?;
        Some(((required - current) / current.abs().max(1e-9), Relaxation::Expansion { expansion, current, required }))
    }

    /// Limits at which one more candidate or region would fit.
    fn limits_to_try(&self, expansion: usize, refused: &[FailedRules]) -> Vec<f64> {
        let hard_filters = &self.input.ruleset.hard_filters;
        let uses_expansion = |refusal: Refusal| match refusal {
            Refusal::HardFilter { filter_index, .. } => {
                matches!(hard_filters.get(filter_index).map(|it| &it.rule), Some(HardRule::Within { expansion: it, .. }) if *it == expansion)
            }
            _ => false,
        };
        let margins = refused
            .iter()
            .flat_map(|failed| &failed.refusals_with_margins)
            .filter(|(refusal, _)| uses_expansion(*refusal));
        let mut limits: Vec<f64> =
            margins.filter_map(|(_, margin)| margin.map(|MeasuredAndLimit { measured, .. }| measured)).collect();
        if let Some(RegionUse::Filter { expansion: region_expansion }) = self.input.queue.regions
            && region_expansion == expansion
        {
            for ticket in self.tickets.iter().map(|prepared| &prepared.ticket) {
                let count = ticket.session.region_latencies.len();
                limits.extend((0..count).map(|index| f64::from(ticket.measured_round_trip_to_region_ms(index))));
            }
        }
        limits
    }

    fn relax_window(&mut self, refused: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let buckets = self.excesses_over_limit(Refusal::RatingWindow, refused);
        let buckets = self.smallest_sufficient(&buckets, |trial, buckets| {
            let change = TrialChange { extra_buckets: buckets, ..trial.baseline() };
            trial.matches_after(&change)
        })?;
        Some((f64::from(buckets) / 10.0, Relaxation::Window { more_buckets: buckets }))
    }

    fn relax_groups(&mut self, refused: &[FailedRules]) -> Option<(f64, Relaxation)> {
        let groups = self.excesses_over_limit(Refusal::RatingGroup, refused);
        let groups = self.smallest_sufficient(&groups, |trial, groups| {
            let change = TrialChange { extra_groups: groups as u16, ..trial.baseline() };
            trial.matches_after(&change)
        })?;
        Some((f64::from(groups), Relaxation::ExtraGroups { more_groups: groups as u16 }))
    }

    /// Excess over the limit for each refusal by `rule`, ascending and unique.
    fn excesses_over_limit(&self, rule: Refusal, refused: &[FailedRules]) -> Vec<u32> {
        let margins =
            refused.iter().flat_map(|failed| &failed.refusals_with_margins).filter(|(refusal, _)| *refusal == rule);
        let mut excess: Vec<u32> = margins
            .filter_map(|(_, margin)| {
                margin.map(|MeasuredAndLimit { measured, limit }| (measured - limit).ceil().max(1.0) as u32)
            })
            .collect();
        excess.sort_unstable();
        excess.dedup();
        excess
    }

    fn relax_quality(&mut self) -> Option<(f64, Relaxation)> {
        let current = quality_threshold(&self.input.queue.quality)?;
        let loosest = match self.input.queue.quality {
            // A score is at most the sum of all weights.
            QualitySpec::SoftScore { .. } => {
                self.input.ruleset.soft_filters.iter().map(|it| it.weight).sum::<f64>().max(current)
            }
            _ => -1e-9,
        };
        let matches_with = |trial: &mut Self, threshold: f64| {
            let mut queue = trial.input.queue.clone();
            set_quality_threshold(&mut queue.quality, threshold);
            let change = TrialChange { queue: &queue, ..trial.baseline() };
            trial.matches_after(&change)
        };
        if !matches_with(self, loosest) {
            return None;
        }
        let (mut failing, mut sufficient) = (current, loosest);
        for _ in 0..QUALITY_BISECTION_STEPS {
            let middle = f64::midpoint(failing, sufficient);
            if matches_with(self, middle) { sufficient = middle } else { failing = middle }
        }
        Some((
            (sufficient - current).abs() / current.abs().max(1e-9),
            Relaxation::Quality { current, required: sufficient },
        ))
    }

    fn relax_by_waiting(&mut self, first_at: Option<UnixMs>) -> Option<(f64, Relaxation)> {
        let (now, mut next) = (self.input.now, first_at);
        for _ in 0..WAIT_TRIALS_MAX {
            let at = next?;
            let change = TrialChange { now: at, ..self.baseline() };
            if self.matches_after(&change) {
                let more_ms = at.ms_since(now);
                return Some((more_ms as f64 / 60_000.0, Relaxation::Wait { more_ms }));
            }
            next = self.next_change_at.filter(|next| at < *next);
        }
        None
    }

    /// Adds copies of the ticket with other users, who are neither blocked nor in recent matches.
    fn relax_by_more_tickets(&mut self) -> Option<(f64, Relaxation)> {
        let own = *self.tickets.last()?;
        let match_size = self.input.teams.players_per_match();
        let copies: Vec<PreparedTicket> = (1..match_size).map(|number| synthetic_ticket(own, number)).collect();
        let sizes: Vec<u16> = (1..match_size).collect();
        let more_tickets = self.smallest_sufficient(&sizes, |trial, more_tickets| {
            let tickets: Vec<&PreparedTicket> =
                trial.tickets.iter().copied().chain(&copies[..usize::from(more_tickets)]).collect();
            let change = TrialChange { tickets: &tickets, ..trial.baseline() };
            trial.matches_after(&change)
        })?;
        // A designer cannot add players, so this relaxation comes last.
        Some((f64::MAX, Relaxation::MoreTickets { more_tickets }))
    }
}

fn ruleset_with_limit(ruleset: &Ruleset, expansion: usize, limit: f64) -> Ruleset {
    let mut ruleset = ruleset.clone();
    let old = &ruleset.expansions[expansion];
    let wider = |step: &ExpansionStep| ExpansionStep { limit: step.limit.max(limit), ..*step };
    let steps = old.steps().iter().map(wider).collect();
    if let Some(new) = Expansion::new(&old.name, old.measure, steps) {
        ruleset.expansions[expansion] = new;
    }
    ruleset
}

/// Quality threshold as written in the ruleset.
fn quality_threshold(quality: &QualitySpec) -> Option<f64> {
    match *quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => None,
        QualitySpec::SoftScore { max_score } => Some(max_score),
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => Some(threshold),
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => Some(required_percent),
    }
}

fn set_quality_threshold(quality: &mut QualitySpec, value: f64) {
    match quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => {}
        QualitySpec::SoftScore { max_score } => *max_score = value,
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => {
            *threshold = value
        }
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => {
            *required_percent = value;
        }
    }
}

fn synthetic_ticket(own: &PreparedTicket, number: u16) -> PreparedTicket {
    let mut ticket = (*own.ticket).clone();
    let new_id = |bytes: &[u8; 16]| {
        let [high, low] = number.to_be_bytes();
        let mut bytes = *bytes;
        (bytes[0], bytes[1]) = (bytes[0] ^ 0xa5 ^ high, bytes[1] ^ low);
        bytes
    };
    ticket.id = TicketId::from_bytes(new_id(ticket.id.as_bytes()));
    let mut users: Vec<UserKey> = own.users.iter().map(|it| UserKey::from_bytes(new_id(it.as_bytes()))).collect();
    users.sort_unstable();
    PreparedTicket { ticket: Arc::new(ticket), users: users.into(), ..own.clone() }
}
