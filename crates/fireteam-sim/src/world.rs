//! A world: one queue, those who come to it, and a clock that jumps from one thing that happens to the next.
//!
//! The queue is run as the server's runner runs it: a pass when something has changed, never two within the ruleset's
//! interval, again when the last one's report says that something changes by itself.

mod arrivals;
mod matches;
mod passes;

use std::collections::{BTreeMap, VecDeque};

use crate::ScenarioError;
use crate::city_map::CityMap;
use crate::event_queue::{EventQueue, ScheduledEvent};
use crate::latency_matrix::LatencyMatrix;
use crate::population::{HOUR_MS, Population};
use crate::scenario::Scenario;
use crate::tally::{OutlierTally, SimTally};
use fireteam_domain::filter::Refusal;
use fireteam_domain::id::{MatchId, TicketId};
use fireteam_domain::lifecycle::Match;
use fireteam_domain::lifecycle::rules::LifecycleRules;
use fireteam_domain::queue::avoidance::{PastMatch, PastMatches};
use fireteam_domain::queue::gate::{LastPass, QueueCounts};
use fireteam_domain::queue::pass::{self, PassInput, PassOutcome};
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::rating::SetActivity;
use fireteam_domain::rating::leaderboard::Leaderboard;
use fireteam_domain::ruleset::queue::{QualitySpec, QueueSpec, RegionMode};
use fireteam_domain::ruleset::teams::TeamsSpec;
use fireteam_domain::ruleset::{HardRule, Ruleset};
use fireteam_domain::time::UnixMs;

/// Midnight in UTC of 15 January 2026: the day on which everything is simulated.
const SIMULATED_DAY: UnixMs = UnixMs(1_768_435_200_000);

const MINUTE_MS: u64 = 60_000;

/// Runs a pass: `pass::run`, or that with a stopwatch.
pub type PassFn<'a> = &'a mut dyn FnMut(&PassInput<'_>) -> PassOutcome;

/// One world.
pub struct SimWorld<'a> {
    scenario: &'a Scenario,
    ruleset: &'a Ruleset,
    queue: &'a QueueSpec,
    teams: &'a TeamsSpec,
    lifecycle_rules: LifecycleRules,
    map: &'a CityMap,
    seed: u64,
    /// When counting begins, and when all is over.
    counted_span: (UnixMs, UnixMs),
    now: UnixMs,
    event_queue: EventQueue,
    population: Population,
    leaderboard: Leaderboard,
    waiting_tickets: BTreeMap<TicketId, SimTicket>,
    /// Tickets in matches that have not begun, or are being played.
    matched_tickets: BTreeMap<TicketId, SimTicket>,
    matches: BTreeMap<MatchId, SimMatch>,
    past_matches: VecDeque<PastMatch>,
    /// The same, for passes; none when somebody has met since. Meetings that lie too far back are told by their time.
    past_matches_cache: Option<PastMatches>,
    connected_players: u32,
    /// How far the set has been played since the world began, for decay that counts it.
    set_activity: SetActivity,
    ticket_count: u64,
    proposal_count: u64,
    runner_state: SimRunnerState,
    tally: SimTally,
}

/// What the runner remembers.
#[derive(Debug, Default)]
struct SimRunnerState {
    last_pass: LastPass,
    last_pass_at: Option<UnixMs>,
    pass_count: u64,
    changed_since_pass: bool,
    /// For when a pass is planned, so that only one is.
    planned_pass_at: Option<UnixMs>,
}

/// A party that waits.
struct SimTicket {
    prepared_ticket: PreparedTicket,
    party_index: usize,
    /// Whether its patience has ended while it was in a match.
    patience_ended: bool,
    /// What kept it waiting at the last pass.
    last_refusal: Option<Refusal>,
    /// Matches that it has been in and that did not come about.
    return_count: u64,
}

/// A match.
struct SimMatch {
    match_state: Match,
    /// For dice.
    number: u64,
    /// The place in `People::all` of each player, by team.
    players_by_team: Vec<Vec<usize>>,
    /// Each team's chance by the rating system, at the time it was made.
    win_probabilities: Option<Vec<f64>>,
}

impl<'a> SimWorld<'a> {
    /// The world of `seed`: everybody is born, has a past, and is about to come.
    pub fn new(
        scenario: &'a Scenario,
        ruleset: &'a Ruleset,
        map: &'a CityMap,
        seed: u64,
    ) -> Result<Self, ScenarioError> {
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            let name = &ruleset.name;
            return Err(ScenarioError(format!("ruleset `{name}` has no <Queue>: only queues are simulated")));
        };
        let counted = SIMULATED_DAY.plus_ms(u64::from(scenario.start_utc_hour) * HOUR_MS);
        let start = UnixMs(counted.0 - (scenario.settle_minutes * MINUTE_MS as f64) as u64);
        let end = counted.plus_ms((scenario.hours * HOUR_MS as f64) as u64);
        let people = Population::generate(scenario, ruleset, map, seed, start)?;
        let newcomers = people.players.iter().filter(|person| person.known_skill.is_none()).count() as u64;
        let population = [people.players.len() as u64, people.parties.len() as u64, newcomers];
        let outlier = people.outlier_party.map(|_| OutlierTally::default());
        let mut world = Self {
            scenario,
            ruleset,
            queue,
            teams,
            lifecycle_rules: LifecycleRules::from_ruleset(ruleset),
            map,
            seed,
            counted_span: (counted, end),
            now: start,
            event_queue: EventQueue::default(),
            population: people,
            leaderboard: Leaderboard::default(),
            waiting_tickets: BTreeMap::new(),
            matched_tickets: BTreeMap::new(),
            matches: BTreeMap::new(),
            past_matches: VecDeque::new(),
            past_matches_cache: None,
            connected_players: 0,
            set_activity: SetActivity::default(),
            ticket_count: 0,
            proposal_count: 0,
            runner_state: SimRunnerState::default(),
            tally: SimTally { world_count: 1, population_counts: population, outlier, ..SimTally::default() },
        };
        world.fill_leaderboard();
        world.schedule_first_play_sessions();
        Ok(world)
    }

    /// Lets everything happen, with the passes that the server runs, and says what was seen. `progress` hears now and
    /// then which share of the time has gone by.
    pub fn run(self, progress: &mut dyn FnMut(f64)) -> SimTally {
        self.run_with_pass_fn(&mut pass::run_pass, progress)
    }

    /// The same, with passes run by `look`.
    pub fn run_with_pass_fn(mut self, look: PassFn<'_>, progress: &mut dyn FnMut(f64)) -> SimTally {
        let (start, end) = (self.now, self.counted_span.1);
        let mut minute = self.counted_span.0;
        while let Some((at, due)) = self.event_queue.pop_before(end) {
            while minute <= at {
                self.tally.samples_per_minute.push([self.waiting_tickets.len() as u32, self.matches.len() as u32]);
                minute = minute.plus_ms(MINUTE_MS);
                progress(minute.ms_since(start) as f64 / end.ms_since(start).max(1) as f64);
            }
            self.now = at;
            self.handle_event(due, look);
        }
        self.finish()
    }

    fn handle_event(&mut self, due: ScheduledEvent, look: PassFn<'_>) {
        match due {
            ScheduledEvent::PlaySessionStarts(party) => self.start_play_session(party),
            ScheduledEvent::PartyEntersQueue(party) => self.enter_queue(party),
            ScheduledEvent::PatienceEnds(ticket) => self.give_up(ticket),
            ScheduledEvent::PassDue => self.run_due_pass(look),
            ScheduledEvent::ReadyCheckResponse(play, ticket) => self.respond_to_ready_check(play, ticket),
            ScheduledEvent::MatchDeadline(play) => self.match_deadline_passed(play),
            ScheduledEvent::GameServerFound(play) => self.game_server_found(play),
            ScheduledEvent::MatchFinished(play) => self.finish_match(play),
        }
    }

    /// Whether what happens to somebody who has waited since `at` is counted.
    fn is_counted(&self, at: UnixMs) -> bool {
        self.counted_span.0 <= at
    }

    /// What the gate counts.
    fn queue_counts(&self) -> QueueCounts {
        QueueCounts { connected_players: self.connected_players, active_matches: self.matches.len() as u32 }
    }

    /// Whether places on the leaderboard mean anything.
    fn uses_leaderboard_ranks(&self) -> bool {
        matches!(self.queue.quality, QualitySpec::LeaderboardGauss { .. })
    }

    /// Whether clients measure round trips to regions.
    fn uses_region_latencies(&self) -> bool {
        matches!(self.queue.regions, Some(RegionMode::Stage { .. } | RegionMode::Quality { .. }))
    }

    /// What a refusal is called.
    fn rule_name(ruleset: &Ruleset, refusal: Refusal) -> String {
        match refusal {
            Refusal::HardFilter { filter_index: filter, .. } => match ruleset.hard_filters.get(filter) {
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
    fn finish(mut self) -> SimTally {
        // Matches that are played are over for their tickets.
        let playing = self.matches.values().filter(|play| play.match_state.stage.started_at().is_some());
        let begun: Vec<TicketId> =
            playing.flat_map(|play| play.match_state.tickets.iter().map(|it| it.ticket_id)).collect();
        for id in begun {
            self.matched_tickets.remove(&id);
        }
        let left = self.waiting_tickets.values().chain(self.matched_tickets.values());
        for waiting in left.filter(|it| self.counted_span.0 <= it.prepared_ticket.ticket.entered_at) {
            self.tally.unmatched_tickets += 1;
            if let Some(why) = waiting.last_refusal {
                *self.tally.unmatched_by_rule.entry(Self::rule_name(self.ruleset, why)).or_default() += 1;
            }
        }
        self.tally
    }
}

/// What a world is made with beside its seed: round trips, for every seed the same.
pub fn build_city_map(
    scenario: &Scenario,
    ruleset: &Ruleset,
    matrix: Option<&LatencyMatrix>,
) -> Result<CityMap, ScenarioError> {
    CityMap::build(scenario, &ruleset.latency_model, matrix)
}
