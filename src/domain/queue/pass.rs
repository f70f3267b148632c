//! One pass over one queue: tickets, a ruleset, a moment and dice in; proposals and a report out. Same input, same answer,
//! byte for byte, in whatever order the tickets come.

use crate::domain::filter::Refusal;
use crate::domain::id::AdvertisementId;
use crate::domain::queue::avoid::Meetings;
use crate::domain::queue::backfill::{self, OpenSession};
use crate::domain::queue::desk::Desk;
use crate::domain::queue::dice::Dice;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::field::Field;
use crate::domain::queue::gate::{self, Closed, Crowd};
use crate::domain::queue::line::Line;
use crate::domain::queue::made::Made;
use crate::domain::queue::proposal::Proposal;
use crate::domain::queue::report::{self, Left, PassReport};
use crate::domain::queue::select::Work;
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
    let tickets = input.entrants.len() as u32;
    let players = input.entrants.iter().fold(0_u32, |sum, it| sum.saturating_add(it.size.into()));
    let room = match gate::open(&input.queue.gate, players, input.crowd) {
        Ok(room) => room.map_or(usize::MAX, |room| room as usize),
        Err(Closed::TooManyMatches { .. }) if fills(input) => 0,
        Err(closed) => return PassOutcome { proposals: Vec::new(), report: closed_report(input, closed) },
    };
    let field = Field::of(input);
    let pools = field.pools();
    let mut line = Line::of(field.rows.len(), &pools);
    let mut desk = Desk::new(field.rows.len(), input.ruleset.hard.len(), input.looks_max);
    let filled = if fills(input) { backfill::fill(&field, &mut line, &mut desk) } else { Vec::new() };
    let (made, at_capacity) = select(&field, &pools, &mut line, &mut desk, room);
    let placed = filled.iter().map(|it| &it.1).chain(&made).flat_map(Made::rows).count() as u32;
    let report = PassReport {
        closed: None,
        tickets,
        placed,
        left: left(&field, &line, &desk, at_capacity),
        refusals: report::counted(&desk.counts),
        looks: desk.looks,
        out_of_looks: desk.out_of_looks,
        fell_back: desk.fell_back,
        narrowed: desk.narrowed,
        at_capacity,
        next_change: report::next_change(&field, &line, &desk),
        widest_range: field.widest,
    };
    let none: Option<AdvertisementId> = None;
    let all = filled.into_iter().map(|(id, made)| (Some(id), made)).chain(made.into_iter().map(|made| (none, made)));
    PassOutcome { proposals: all.map(|(backfills, made)| made.proposal(&field, backfills)).collect(), report }
}

/// Whether there is anything to fill up.
fn fills(input: &PassInput<'_>) -> bool {
    input.queue.backfill && !input.sessions.is_empty()
}

/// Makes matches pool by pool; each pool has its share of the looks that are left. Also says whether no more could be made.
fn select<'a>(
    field: &Field<'a>,
    pools: &[Vec<u32>],
    line: &mut Line,
    desk: &mut Desk,
    room: usize,
) -> (Vec<Made<'a>>, bool) {
    let looks_max = desk.looks_max;
    let mut dice = Dice(field.input.seed);
    let mut work = Work { field, line, desk, dice: &mut dice, room, made: Vec::new() };
    let (mut rows_left, mut ran_out) = (field.rows.len() as u64, false);
    for pool in pools {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| work.line.is_waiting(row)).collect();
        let looks_left = u128::from(looks_max.saturating_sub(work.desk.looks));
        let share = looks_left * pool.len() as u128 / u128::from(rows_left.max(1));
        work.desk.looks_max = work.desk.looks.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        rows_left -= pool.len() as u64;
        work.desk.out_of_looks = false;
        if 0 < work.room && !waiting.is_empty() {
            work.run(&waiting);
        }
        ran_out |= work.desk.out_of_looks;
    }
    let (room_left, made) = (work.room, work.made);
    (desk.looks_max, desk.out_of_looks) = (looks_max, ran_out);
    (made, room_left == 0)
}

fn left(field: &Field<'_>, line: &Line, desk: &Desk, at_capacity: bool) -> Vec<Left> {
    let otherwise = if at_capacity {
        Refusal::Gate
    } else if desk.out_of_looks {
        Refusal::Unseen
    } else {
        Refusal::Taken
    };
    let waiting = (0..field.rows.len() as u32).filter(|&row| line.is_waiting(row));
    let of = |row: u32| Left {
        ticket: field.rows[row as usize].entrant.ticket.id,
        refusal: desk.why(row).unwrap_or(otherwise),
    };
    let mut left: Vec<Left> = waiting.map(of).collect();
    left.sort_unstable_by_key(|it| it.ticket);
    left
}

fn closed_report(input: &PassInput<'_>, closed: Closed) -> PassReport {
    let mut left: Vec<Left> =
        input.entrants.iter().map(|it| Left { ticket: it.ticket.id, refusal: Refusal::Gate }).collect();
    left.sort_unstable_by_key(|it| it.ticket);
    PassReport { closed: Some(closed), tickets: left.len() as u32, left, ..PassReport::default() }
}
