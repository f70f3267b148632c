//! One pass over one queue: tickets, a ruleset, a moment and dice in; proposals and a report out. Same input, same answer,
//! byte for byte, in whatever order the tickets come.

use crate::domain::queue::avoid::Meetings;
use crate::domain::queue::backfill::OpenSession;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::gate::Crowd;
use crate::domain::queue::proposal::Proposal;
use crate::domain::queue::report::PassReport;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::time::UnixMs;

/// What a pass goes by.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// The rules.
    pub ruleset: &'a Ruleset,
    /// Its queue.
    pub queue: &'a QueueSpec,
    /// Its teams.
    pub teams: &'a TeamsSpec,
    /// Everyone who waits, in any order, all of one silo. Tickets with a user in a match are left out.
    pub entrants: &'a [&'a Entrant],
    /// Sessions with open seats; looked at where the queue fills them.
    pub sessions: &'a [OpenSession],
    /// Who met whom lately; looked at where the queue avoids anybody.
    pub meetings: &'a Meetings,
    /// What the gate counts.
    pub crowd: Crowd,
    /// The moment.
    pub now: UnixMs,
    /// Dice.
    pub seed: u64,
    /// Pairs that the pass may judge, all together: its budget of time.
    pub looks_max: u64,
}

/// What comes of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PassOutcome {
    /// Matches, sessions that are filled up first. No ticket is in two.
    pub proposals: Vec<Proposal>,
    /// What it did.
    pub report: PassReport,
}

/// Runs a pass.
pub fn run(input: &PassInput<'_>) -> PassOutcome {
    let _ = input;
    PassOutcome::default()
}
