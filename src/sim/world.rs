//! A world: one queue, those who come to it, and a clock that jumps from one thing that happens to the next.
//!
//! The queue is run as the server's runner runs it: a pass when something has changed, never two within the ruleset's
//! interval, again when the last one's report says that something changes by itself.

mod coming;
mod passing;
mod playing;

use std::collections::{BTreeMap, VecDeque};

use crate::domain::filter::Refusal;
use crate::domain::id::{MatchId, TicketId};
use crate::domain::life::Match;
use crate::domain::life::rules::LifeRules;
use crate::domain::queue::avoid::{Meeting, Meetings};
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::gate::{Crowd, LastPass};
use crate::domain::queue::pass::{self, PassInput, PassOutcome};
use crate::domain::rating::Played;
use crate::domain::rating::board::Board;
use crate::domain::ruleset::queue::{Quality, QueueSpec, Regions};
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::ruleset::{HardRule, Ruleset};
use crate::domain::time::UnixMs;
use crate::sim::Unplayable;
use crate::sim::agenda::{Agenda, Due};
use crate::sim::latencies::Matrix;
use crate::sim::map::Map;
use crate::sim::people::{HOUR_MS, People};
use crate::sim::scenario::Scenario;
use crate::sim::tally::{Outlier, Tally};

/// Midnight in UTC of 15 January 2026: the day on which everything is simulated.
const DAY: UnixMs = UnixMs(1_768_435_200_000);

const MINUTE_MS: u64 = 60_000;

/// Runs a pass: `pass::run`, or that with a stopwatch.
pub type Look<'a> = &'a mut dyn FnMut(&PassInput<'_>) -> PassOutcome;

/// One world.
pub struct World<'a> {
    scenario: &'a Scenario,
    ruleset: &'a Ruleset,
    queue: &'a QueueSpec,
    teams: &'a TeamsSpec,
    life: LifeRules,
    map: &'a Map,
    seed: u64,
    /// When counting begins, and when all is over.
    span: (UnixMs, UnixMs),
    now: UnixMs,
    agenda: Agenda,
    people: People,
    board: Board,
    waiting: BTreeMap<TicketId, Waiting>,
    /// Tickets in matches that have not begun, or are being played.
    taken: BTreeMap<TicketId, Waiting>,
    plays: BTreeMap<MatchId, Play>,
    meetings: VecDeque<Meeting>,
    /// The same, for passes; none when somebody has met since. Meetings that lie too far back are told by their time.
    met: Option<Meetings>,
    connected: u32,
    /// How far the set has been played since the world began, for decay that counts it.
    played: Played,
    tickets: u64,
    proposals: u64,
    queue_state: QueueState,
    tally: Tally,
}

/// What the runner remembers.
#[derive(Debug, Default)]
struct QueueState {
    last: LastPass,
    last_at: Option<UnixMs>,
    passes: u64,
    changed: bool,
    /// For when a pass is planned, so that only one is.
    planned: Option<UnixMs>,
}

/// A party that waits.
struct Waiting {
    entrant: Entrant,
    party: usize,
    /// Whether its patience has ended while it was in a match.
    impatient: bool,
    /// What kept it waiting at the last pass.
    why: Option<Refusal>,
    /// Matches that it has been in and that did not come about.
    returns: u64,
}

/// A match.
struct Play {
    life: Match,
    /// For dice.
    number: u64,
    /// The place in `People::all` of each player, by team.
    teams: Vec<Vec<usize>>,
    /// Each team's chance by the rating system, at the time it was made.
    chances: Option<Vec<f64>>,
}

impl<'a> World<'a> {
    /// The world of `seed`: everybody is born, has a past, and is about to come.
    pub fn new(scenario: &'a Scenario, ruleset: &'a Ruleset, map: &'a Map, seed: u64) -> Result<Self, Unplayable> {
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            let name = &ruleset.name;
            return Err(Unplayable(format!("ruleset `{name}` has no <Queue>: only queues are simulated")));
        };
        let counted = DAY.after(u64::from(scenario.start_utc_hour) * HOUR_MS);
        let start = UnixMs(counted.0 - (scenario.settle_minutes * MINUTE_MS as f64) as u64);
        let end = counted.after((scenario.hours * HOUR_MS as f64) as u64);
        let people = People::of(scenario, ruleset, map, seed, start)?;
        let newcomers = people.all.iter().filter(|person| person.skill.is_none()).count() as u64;
        let population = [people.all.len() as u64, people.parties.len() as u64, newcomers];
        let outlier = people.outlier.map(|_| Outlier::default());
        let mut world = Self {
            scenario,
            ruleset,
            queue,
            teams,
            life: LifeRules::of(ruleset),
            map,
            seed,
            span: (counted, end),
            now: start,
            agenda: Agenda::default(),
            people,
            board: Board::default(),
            waiting: BTreeMap::new(),
            taken: BTreeMap::new(),
            plays: BTreeMap::new(),
            meetings: VecDeque::new(),
            met: None,
            connected: 0,
            played: Played::default(),
            tickets: 0,
            proposals: 0,
            queue_state: QueueState::default(),
            tally: Tally { worlds: 1, population, outlier, ..Tally::default() },
        };
        world.rank_everybody();
        world.plan_arrivals();
        Ok(world)
    }

    /// Lets everything happen, with the passes that the server runs, and says what was seen. `progress` hears now and
    /// then which share of the time has gone by.
    pub fn run(self, progress: &mut dyn FnMut(f64)) -> Tally {
        self.run_with(&mut pass::run, progress)
    }

    /// The same, with passes run by `look`.
    pub fn run_with(mut self, look: Look<'_>, progress: &mut dyn FnMut(f64)) -> Tally {
        let (start, end) = (self.now, self.span.1);
        let mut minute = self.span.0;
        while let Some((at, due)) = self.agenda.next(end) {
            while minute <= at {
                self.tally.minutes.push([self.waiting.len() as u32, self.plays.len() as u32]);
                minute = minute.after(MINUTE_MS);
                progress(minute.since(start) as f64 / end.since(start).max(1) as f64);
            }
            self.now = at;
            self.happens(due, look);
        }
        self.close()
    }

    fn happens(&mut self, due: Due, look: Look<'_>) {
        match due {
            Due::Arrives(party) => self.arrives(party),
            Due::Enters(party) => self.enters(party),
            Due::GivesUp(ticket) => self.gives_up(ticket),
            Due::Pass => self.pass(look),
            Due::Answers(play, ticket) => self.answers(play, ticket),
            Due::Deadline(play) => self.deadline(play),
            Due::Hosted(play) => self.hosted(play),
            Due::Played(play) => self.played(play),
        }
    }

    /// Whether what happens to somebody who has waited since `at` is counted.
    fn counts(&self, at: UnixMs) -> bool {
        self.span.0 <= at
    }

    /// What the gate counts.
    fn crowd(&self) -> Crowd {
        Crowd { connected_players: self.connected, running_matches: self.plays.len() as u32 }
    }

    /// Whether places on the leaderboard mean anything.
    fn goes_by_places(&self) -> bool {
        matches!(self.queue.quality, Quality::LeaderboardGauss { .. })
    }

    /// Whether clients measure round trips to regions.
    fn goes_by_regions(&self) -> bool {
        matches!(self.queue.regions, Some(Regions::Stage { .. } | Regions::Quality { .. }))
    }

    /// What a refusal is called.
    fn rule(ruleset: &Ruleset, refusal: Refusal) -> String {
        match refusal {
            Refusal::Filter { filter, .. } => match ruleset.hard.get(filter) {
                Some(hard) => match hard.rule {
                    HardRule::Within { .. } => format!("filter {} (limit)", hard.name),
                    _ => format!("filter {}", hard.name),
                },
                None => "filter".into(),
            },
            other => other.as_str().into(),
        }
    }

    /// Everybody who still waits has not been matched.
    fn close(mut self) -> Tally {
        // Matches that are played are over for their tickets.
        let playing = self.plays.values().filter(|play| play.life.stage.began().is_some());
        let begun: Vec<TicketId> = playing.flat_map(|play| play.life.members.iter().map(|it| it.ticket)).collect();
        for id in begun {
            self.taken.remove(&id);
        }
        let left = self.waiting.values().chain(self.taken.values());
        for waiting in left.filter(|it| self.span.0 <= it.entrant.ticket.entered) {
            self.tally.unmatched += 1;
            if let Some(why) = waiting.why {
                *self.tally.kept_waiting.entry(Self::rule(self.ruleset, why)).or_default() += 1;
            }
        }
        self.tally
    }
}

/// What a world is made with beside its seed: round trips, for every seed the same.
pub fn map(scenario: &Scenario, ruleset: &Ruleset, matrix: Option<&Matrix>) -> Result<Map, Unplayable> {
    Map::of(scenario, &ruleset.line, matrix)
}
