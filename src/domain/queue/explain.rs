//! Why a ticket still waits: what each rule refuses it, who comes nearest, and the least that would have to give.

mod miss;
mod remedy;

use crate::domain::filter::Refusal;
use crate::domain::id::TicketId;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::explain::remedy::Trial;
use crate::domain::queue::field::{Field, Row};
use crate::domain::queue::gate::{self, Closed};
use crate::domain::queue::pass::PassInput;

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Which ticket; one of the pass's entrants.
    pub ticket: TicketId,
    /// How many of those who come nearest to name.
    pub nearest: usize,
    /// Pairs that may be judged.
    pub looks_max: u64,
}

/// Why a ticket still waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// How it stands.
    pub standing: Standing,
    /// Why no pass runs, if none does.
    pub closed: Option<Closed>,
    /// Other tickets that were held against it.
    pub candidates: u32,
    /// Of these, how many each rule refused first, in the order of `Refusal::counter`.
    pub refusals: Vec<(Refusal, u32)>,
    /// Of these, how many no rule refused: it would be in a match if there were enough of them, or they are wanted elsewhere.
    pub suitable: u32,
    /// Those who come nearest, nearest first: fewest rules in the way, then the least beyond the limit.
    pub nearest: Vec<Miss>,
    /// It would be in a match as things are, if it were served first and the gate were open.
    pub matches_now: bool,
    /// The least single change that would make a match now, in proportion to what it changes; `None` when there is one
    /// already, or when no single change would do.
    pub remedy: Option<Remedy>,
    /// Other single changes that would, each the least of its kind, in the order of their size.
    pub others: Vec<Remedy>,
    /// Judged no further, for there were no more looks.
    pub out_of_looks: bool,
}

/// How a ticket stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// How long it has waited, milliseconds.
    pub waited_ms: u64,
    /// Its rating.
    pub rating: f64,
    /// Its place on the leaderboard, 0 for the best.
    pub place: Option<f64>,
    /// Its players.
    pub size: u16,
    /// Its rating group and how many further it may look, where there are groups.
    pub group: Option<(u16, u16)>,
    /// Its bucket and how many it looks to either side, where there is a window.
    pub bucket: Option<(i64, u32)>,
    /// By how much it looks further because one of its players is frustrated (S1-97).
    pub widened: Option<f64>,
    /// By how many rating points the middle of where it looks lies below its rating, for the same reason.
    pub shifted_down: Option<f64>,
    /// Its limits by now, in the order of `Ruleset::expansions`.
    pub limits: Vec<f64>,
}

/// Somebody whom a rule keeps from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss {
    /// Who.
    pub candidate: TicketId,
    /// The rule that refuses first.
    pub refusal: Refusal,
    /// How many rules refuse.
    pub refusals: u16,
    /// By how much the first does, for rules that have a measure.
    pub by: Option<Shortfall>,
}

/// What a rule measures, and what it allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortfall {
    /// What was measured: the filter's measure, buckets, groups, or quality.
    pub is: f64,
    /// What the rule allows at most, or of quality at least.
    pub limit: f64,
}

/// A single change that would make a match now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Remedy {
    /// Its limit of an expansion, for everybody.
    Expansion {
        /// A place in `Ruleset::expansions`.
        expansion: usize,
        /// The limit that it has.
        from: f64,
        /// The least limit that would do.
        to: f64,
    },
    /// Wider ranges, for everybody.
    Window {
        /// Buckets more to either side.
        more: u32,
    },
    /// Groups further, for everybody.
    Neighbours {
        /// Groups more to either side.
        more: u16,
    },
    /// A lower bar for quality: its threshold, or its greatest score, or what it requires, in the ruleset's own unit.
    Quality {
        /// As it is.
        from: f64,
        /// What would do, to within a thousandth of the way to what nobody misses.
        to: f64,
    },
    /// Waiting.
    Wait {
        /// How much longer, milliseconds.
        ms: u64,
    },
    /// More tickets like it: so many at least.
    Tickets {
        /// How many.
        more: u16,
    },
}

/// Tickets that are held against one, the nearest of all. Whoever is further has nearer ones to explain it.
const CANDIDATES_MAX: usize = 512;

/// Explains a ticket; `None` when it is not among the pass's entrants.
pub fn explain(input: &PassInput<'_>, question: &Question) -> Option<Explanation> {
    let field = Field::of(input);
    let place = field.rows.iter().position(|row| row.entrant.ticket.id == question.ticket)?;
    let row = place as u32;
    let most = CANDIDATES_MAX.min(usize::try_from(question.looks_max).unwrap_or(usize::MAX));
    let near = nearest_rows(&field, row, most);
    let mut counts = vec![0; Refusal::counters(input.ruleset.hard.len())];
    let mut misses = Vec::new();
    let mut suitable = 0;
    for &other in &near {
        match miss::of(&field, row, other) {
            None => suitable += 1,
            Some(miss) => {
                counts[miss.miss.refusal.counter()] += 1;
                misses.push(miss);
            }
        }
    }
    misses.sort_by(|one, other| one.key().total_cmp(&other.key()));
    let counted = counts.iter().enumerate().filter(|(_, count)| 0 < **count);
    let looks_left = question.looks_max.saturating_sub(near.len() as u64);
    let entrants: Vec<&Entrant> = near.iter().chain([&row]).map(|&row| field.rows[row as usize].entrant).collect();
    let mut trial = Trial::new(input, &entrants, question.ticket, looks_left);
    let matches_now = trial.matches_as_it_is();
    let mut remedies = if matches_now { Vec::new() } else { trial.remedies(&misses) }.into_iter();
    let players = input.entrants.iter().fold(0_u32, |sum, it| sum.saturating_add(it.size.into()));
    Some(Explanation {
        standing: standing(input, &field.rows[place]),
        closed: gate::open(&input.queue.gate, players, input.crowd).err(),
        candidates: near.len() as u32,
        refusals: counted.map(|(counter, &count)| (Refusal::of_counter(counter), count)).collect(),
        suitable,
        nearest: misses.iter().take(question.nearest).map(|it| it.miss).collect(),
        matches_now,
        remedy: remedies.next(),
        others: remedies.collect(),
        out_of_looks: trial.is_out_of_looks() || near.len() + 1 < field.rows.len(),
    })
}

/// The rows nearest to one, nearest first.
fn nearest_rows(field: &Field<'_>, row: u32, most: usize) -> Vec<u32> {
    let (mut low, mut high) = (row.checked_sub(1), Some(row + 1).filter(|&it| (it as usize) < field.rows.len()));
    let mut near = Vec::new();
    while near.len() < most {
        let far = |side: Option<u32>| side.map_or(f64::INFINITY, |it| field.nearness(row, it));
        let goes_down = match (low, high) {
            (None, None) => break,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(_), Some(_)) => far(low) <= far(high),
        };
        if goes_down {
            near.extend(low);
            low = low.and_then(|it| it.checked_sub(1));
        } else {
            near.extend(high);
            high = high.map(|it| it + 1).filter(|&it| (it as usize) < field.rows.len());
        }
    }
    near
}

fn standing(input: &PassInput<'_>, row: &Row<'_>) -> Standing {
    let (entrant, waited_ms) = (row.entrant, row.waits.waited_ms);
    Standing {
        waited_ms,
        rating: entrant.rating,
        place: entrant.place,
        size: entrant.size,
        group: input.queue.groups.as_ref().map(|_| (entrant.group, row.neighbours)),
        bucket: input.queue.window.as_ref().map(|_| (entrant.bucket, row.range)),
        widened: entrant.widened(input.queue),
        shifted_down: entrant.shifted_down(input.queue),
        limits: input.ruleset.expansions.iter().map(|it| it.limit_at(waited_ms)).collect(),
    }
}
