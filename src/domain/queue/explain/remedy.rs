//! What would have to give: each rule by itself is loosened as little as makes a match, by trying.

use std::sync::Arc;

use crate::domain::expansion::{Expansion, Step};
use crate::domain::filter::Refusal;
use crate::domain::id::{TicketId, UserKey};
use crate::domain::queue::desk::Desk;
use crate::domain::queue::dice::Dice;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::explain::miss::Missed;
use crate::domain::queue::explain::{Remedy, Shortfall};
use crate::domain::queue::field::Field;
use crate::domain::queue::line::Line;
use crate::domain::queue::pass::PassInput;
use crate::domain::queue::report;
use crate::domain::queue::select::Work;
use crate::domain::ruleset::HardRule;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::{Quality, QueueSpec, Regions};
use crate::domain::time::UnixMs;

/// Moments that are tried for waiting.
const MOMENTS_MAX: usize = 64;

/// Halvings on the way to the quality that would do: a thousandth of the way.
const HALVINGS: u32 = 10;

/// Tries one change after another, on those alone who come nearest.
pub(super) struct Trial<'t> {
    input: &'t PassInput<'t>,
    entrants: &'t [&'t Entrant],
    ticket: TicketId,
    looks_left: u64,
    /// When something changes next for the trial that was last.
    next_change: Option<UnixMs>,
}

/// How a trial differs from things as they are.
#[derive(Clone, Copy, Debug)]
struct Change<'c> {
    ruleset: &'c Ruleset,
    queue: &'c QueueSpec,
    entrants: &'c [&'c Entrant],
    now: UnixMs,
    buckets: u32,
    groups: u16,
}

impl<'t> Trial<'t> {
    pub(super) fn new(
        input: &'t PassInput<'t>,
        entrants: &'t [&'t Entrant],
        ticket: TicketId,
        looks_left: u64,
    ) -> Self {
        Self { input, entrants, ticket, looks_left, next_change: None }
    }

    pub(super) fn is_out_of_looks(&self) -> bool {
        self.looks_left == 0
    }

    pub(super) fn matches_as_it_is(&mut self) -> bool {
        let change = self.no_change();
        self.matches(&change)
    }

    /// The least change of each kind, the least in proportion first.
    pub(super) fn remedies(&mut self, misses: &[Missed]) -> Vec<Remedy> {
        let next_change = self.next_change;
        let expansions: Vec<usize> = (0..self.input.ruleset.expansions.len()).collect();
        let mut found: Vec<(f64, Remedy)> =
            expansions.into_iter().filter_map(|expansion| self.expansion(expansion, misses)).collect();
        found.extend(self.window(misses));
        found.extend(self.groups(misses));
        found.extend(self.quality());
        found.extend(self.wait(next_change));
        found.extend(self.company());
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        found.into_iter().map(|(_, remedy)| remedy).collect()
    }

    fn no_change(&self) -> Change<'t> {
        let PassInput { ruleset, queue, now, .. } = *self.input;
        Change { ruleset, queue, entrants: self.entrants, now, buckets: 0, groups: 0 }
    }

    /// Whether the ticket would be in a match after a change.
    fn matches(&mut self, change: &Change<'_>) -> bool {
        let Change { ruleset, queue, entrants, now, .. } = *change;
        let input = PassInput { ruleset, queue, entrants, now, looks_max: self.looks_left, ..*self.input };
        let mut field = Field::of(&input);
        for row in &mut field.rows {
            row.range = row.range.saturating_add(change.buckets);
            row.neighbours = row.neighbours.saturating_add(change.groups);
        }
        field.widest = field.widest.saturating_add(change.buckets);
        let Some(row) = field.rows.iter().position(|row| row.entrant.ticket.id == self.ticket) else { return false };
        let pools = field.pools();
        let mut line = Line::of(&field, &pools);
        let mut desk = Desk::new(field.rows.len(), ruleset.hard.len(), self.looks_left);
        let mut dice = Dice(input.seed);
        let (line, desk) = (&mut line, &mut desk);
        let mut work = Work { field: &field, line, desk, dice: &mut dice, room: 1, made: Vec::new() };
        let matches = work.serve(row as u32).is_some();
        self.looks_left = self.looks_left.saturating_sub(work.desk.looks.max(1));
        self.next_change = report::next_change(&field, work.line, work.desk);
        matches
    }

    /// The place of the least of some sizes, ascending, with which a change makes a match. More never does worse.
    fn least<T: Copy>(&mut self, sizes: &[T], mut matches: impl FnMut(&mut Self, T) -> bool) -> Option<T> {
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

    fn expansion(&mut self, expansion: usize, misses: &[Missed]) -> Option<(f64, Remedy)> {
        let input = self.input;
        let mut wanted = self.wanted_limits(expansion, misses);
        let own = self.entrants.last()?;
        let from = input.ruleset.expansions[expansion].limit_at(input.now.since(own.ticket.entered));
        wanted.retain(|limit| from < *limit);
        wanted.sort_by(f64::total_cmp);
        wanted.dedup();
        let to = self.least(&wanted, |trial, to| {
            let ruleset = with_limit(input.ruleset, expansion, to);
            let change = Change { ruleset: &ruleset, ..trial.no_change() };
            trial.matches(&change)
        })?;
        Some(((to - from) / from.abs().max(1e-9), Remedy::Expansion { expansion, from, to }))
    }

    /// The limits with which one more candidate or region would do.
    fn wanted_limits(&self, expansion: usize, misses: &[Missed]) -> Vec<f64> {
        let hard = &self.input.ruleset.hard;
        let concerns = |refusal: Refusal| match refusal {
            Refusal::Filter { filter, .. } => {
                matches!(hard.get(filter).map(|it| &it.rule), Some(HardRule::Within { expansion: it, .. }) if *it == expansion)
            }
            _ => false,
        };
        let short = misses.iter().flat_map(|miss| &miss.refusals).filter(|(refusal, _)| concerns(*refusal));
        let mut wanted: Vec<f64> = short.filter_map(|(_, by)| by.map(|Shortfall { is, .. }| is)).collect();
        if let Some(Regions::Stage { expansion: stage }) = self.input.queue.regions
            && stage == expansion
        {
            let trips = self.entrants.iter().flat_map(|it| &it.ticket.session.regions);
            wanted.extend(trips.map(|trip| f64::from(trip.round_trip_ms)));
        }
        wanted
    }

    fn window(&mut self, misses: &[Missed]) -> Option<(f64, Remedy)> {
        let more = self.excess(Refusal::Window, misses);
        let more = self.least(&more, |trial, buckets| {
            let change = Change { buckets, ..trial.no_change() };
            trial.matches(&change)
        })?;
        Some((f64::from(more) / 10.0, Remedy::Window { more }))
    }

    fn groups(&mut self, misses: &[Missed]) -> Option<(f64, Remedy)> {
        let more = self.excess(Refusal::Group, misses);
        let more = self.least(&more, |trial, groups| {
            let change = Change { groups: groups as u16, ..trial.no_change() };
            trial.matches(&change)
        })?;
        Some((f64::from(more), Remedy::Neighbours { more: more as u16 }))
    }

    /// By how much a rule that counts refused, ascending, each once.
    fn excess(&self, rule: Refusal, misses: &[Missed]) -> Vec<u32> {
        let short = misses.iter().flat_map(|miss| &miss.refusals).filter(|(refusal, _)| *refusal == rule);
        let mut more: Vec<u32> =
            short.filter_map(|(_, by)| by.map(|Shortfall { is, limit }| (is - limit).ceil().max(1.0) as u32)).collect();
        more.sort_unstable();
        more.dedup();
        more
    }

    fn quality(&mut self) -> Option<(f64, Remedy)> {
        let from = bar_of(&self.input.queue.quality)?;
        let loosest = match self.input.queue.quality {
            // No score exceeds the sum of all weights.
            Quality::SoftScore { .. } => self.input.ruleset.soft.iter().map(|it| it.weight).sum::<f64>().max(from),
            _ => -1e-9,
        };
        let would_do = |trial: &mut Self, bar: f64| {
            let mut queue = trial.input.queue.clone();
            set_bar(&mut queue.quality, bar);
            let change = Change { queue: &queue, ..trial.no_change() };
            trial.matches(&change)
        };
        if !would_do(self, loosest) {
            return None;
        }
        let (mut fails, mut does) = (from, loosest);
        for _ in 0..HALVINGS {
            let middle = f64::midpoint(fails, does);
            if would_do(self, middle) { does = middle } else { fails = middle }
        }
        Some(((does - from).abs() / from.abs().max(1e-9), Remedy::Quality { from, to: does }))
    }

    fn wait(&mut self, first: Option<UnixMs>) -> Option<(f64, Remedy)> {
        let (now, mut next) = (self.input.now, first);
        for _ in 0..MOMENTS_MAX {
            let moment = next?;
            let change = Change { now: moment, ..self.no_change() };
            if self.matches(&change) {
                let ms = moment.since(now);
                return Some((ms as f64 / 60_000.0, Remedy::Wait { ms }));
            }
            next = self.next_change.filter(|next| moment < *next);
        }
        None
    }

    /// Others like it, whom nobody has blocked and nobody has met.
    fn company(&mut self) -> Option<(f64, Remedy)> {
        let own = *self.entrants.last()?;
        let most = self.input.teams.match_size();
        let twins: Vec<Entrant> = (1..most).map(|number| twin(own, number)).collect();
        let sizes: Vec<u16> = (1..most).collect();
        let more = self.least(&sizes, |trial, more| {
            let entrants: Vec<&Entrant> = trial.entrants.iter().copied().chain(&twins[..usize::from(more)]).collect();
            let change = Change { entrants: &entrants, ..trial.no_change() };
            trial.matches(&change)
        })?;
        // Players cannot be had by turning a screw: the last resort.
        Some((f64::MAX, Remedy::Tickets { more }))
    }
}

fn with_limit(ruleset: &Ruleset, expansion: usize, to: f64) -> Ruleset {
    let mut ruleset = ruleset.clone();
    let old = &ruleset.expansions[expansion];
    let wider = |step: &Step| Step { value: step.value.max(to), ..*step };
    let steps = old.steps().iter().map(wider).collect();
    if let Some(new) = Expansion::new(&old.name, old.measure, steps) {
        ruleset.expansions[expansion] = new;
    }
    ruleset
}

/// What a designer wrote as the bar of quality.
fn bar_of(quality: &Quality) -> Option<f64> {
    match *quality {
        Quality::Any | Quality::WinProbability { .. } => None,
        Quality::SoftScore { max_score } => Some(max_score),
        Quality::LeaderboardGauss { threshold, .. } | Quality::DrawProbability { threshold } => Some(threshold),
        Quality::AverageSimilarity { required_percent, .. } | Quality::CategorySimilarity { required_percent, .. } => {
            Some(required_percent)
        }
    }
}

fn set_bar(quality: &mut Quality, to: f64) {
    match quality {
        Quality::Any | Quality::WinProbability { .. } => {}
        Quality::SoftScore { max_score } => *max_score = to,
        Quality::LeaderboardGauss { threshold, .. } | Quality::DrawProbability { threshold } => *threshold = to,
        Quality::AverageSimilarity { required_percent, .. } | Quality::CategorySimilarity { required_percent, .. } => {
            *required_percent = to;
        }
    }
}

fn twin(own: &Entrant, number: u16) -> Entrant {
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
    Entrant { ticket: Arc::new(ticket), users: users.into(), ..own.clone() }
}
