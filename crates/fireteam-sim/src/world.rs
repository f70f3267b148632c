//! Simulated world: one queue, its players, and a clock that jumps from event to event.
//!
//! The queue is run like the server's queue runner. A pass follows a change, at most one per interval of the ruleset.
//! It runs again when the last report names a time at which something changes.

mod arrivals;
mod matches;
mod passes;

use std::collections::{BTreeMap, VecDeque};

use crate::ScenarioError;
use crate::city_map::CityMap;
use crate::event_queue::{EventQueue, SimEvent};
use crate::latency_matrix::LatencyMatrix;
use crate::population::{HOUR_MS, Population};
use crate::scenario::Scenario;
use crate::tally::{OutlierPartyTally, SimTally};
use fireteam_domain::filter::Refusal;
use fireteam_domain::id::{MatchId, TicketId};
use fireteam_domain::lifecycle::Match;
use fireteam_domain::lifecycle::rules::LifecycleRules;
use fireteam_domain::queue::gate::{GateCounts, LastPass};
use fireteam_domain::queue::pass::{self, PassInput, PassOutcome};
use fireteam_domain::queue::pass_memory::PassMemory;
use fireteam_domain::queue::past_match_log::PastMatchLog;
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::rating::AllUsersMatchActivity;
use fireteam_domain::rating::leaderboard::Leaderboard;
use fireteam_domain::ruleset::queue::{QualitySpec, QueueSpec, RegionUse};
use fireteam_domain::ruleset::teams::TeamsSpec;
use fireteam_domain::ruleset::{HardRule, Ruleset};
use fireteam_domain::time::UnixMs;

/// Midnight UTC of 15 January 2026, the simulated day.
const SIMULATED_DAY: UnixMs = UnixMs(1_768_435_200_000);

const MINUTE_MS: u64 = 60_000;

/// Function that runs a pass: `pass::run_pass_with_memory`, or a wrapper that measures it.
pub type PassFn<'a> = &'a mut dyn FnMut(&PassInput<'_>, &mut PassMemory) -> PassOutcome;

/// Simulated world.
pub struct SimWorld<'a> {
    scenario: &'a Scenario,
    ruleset: &'a Ruleset,
    queue: &'a QueueSpec,
    teams: &'a TeamsSpec,
    lifecycle_rules: LifecycleRules,
    map: &'a CityMap,
    seed: u64,
    /// Start and end of counting.
    counted_span: (UnixMs, UnixMs),
    now: UnixMs,
    event_queue: EventQueue,
    population: Population,
    leaderboard: Leaderboard,
    waiting_tickets: BTreeMap<TicketId, SimTicket>,
    /// Tickets in matches that have not started or are being played.
    matched_tickets: BTreeMap<TicketId, SimTicket>,
    matches: BTreeMap<MatchId, SimMatch>,
    past_matches: PastMatchLog,
    /// Matches in the log by their start, earliest first.
    past_match_starts: VecDeque<(UnixMs, MatchId)>,
    connected_players: u32,
    /// Match activity of the set since the world began, for a decay that depends on it.
    set_activity: AllUsersMatchActivity,
    ticket_count: u64,
    proposal_count: u64,
    runner_state: SimRunnerState,
    tally: SimTally,
}

/// State of the queue runner.
#[derive(Debug, Default)]
struct SimRunnerState {
    last_pass: LastPass,
    last_pass_at: Option<UnixMs>,
    pass_count: u64,
    changed_since_pass: bool,
    pass_memory: PassMemory,
    /// Time of the scheduled pass, so that only one is scheduled.
    planned_pass_at: Option<UnixMs>,
}

/// Ticket of a party.
struct SimTicket {
    prepared_ticket: PreparedTicket,
    party_index: usize,
    /// True if the party's patience ended while it was in a match.
    patience_ended: bool,
    /// Refusal that kept it waiting in the last pass.
    last_refusal: Option<Refusal>,
    /// Number of its matches that did not start.
    return_count: u64,
}

/// Match in any stage.
struct SimMatch {
    match_state: Match,
    /// Number of the match, which names its random stream.
    match_number: u64,
    /// Players by team, as indexes into `Population::players`.
    players_by_team: Vec<Vec<usize>>,
    /// Predicted win probability of each team when the match was proposed.
    win_probabilities: Option<Vec<f64>>,
}

impl<'a> SimWorld<'a> {
    /// World of `seed`, with the population's prior matches played and first play sessions scheduled. Fails for a
    /// ruleset without a queue or an invalid scenario.
    pub fn new(
        scenario: &'a Scenario,
        ruleset: &'a Ruleset,
        map: &'a CityMap,
        seed: u64,
    ) -> Result<Self, ScenarioError> {
        let (Some(queue), Some(teams)) = (&ruleset.queue, &ruleset.teams) else {
            let name = &ruleset.name;
            return Err(ScenarioError(format!("ruleset `{name}` has no <Queue>; use a ruleset with a queue")));
        };
        let counting_starts = SIMULATED_DAY.plus_ms(u64::from(scenario.start_utc_hour) * HOUR_MS);
        let start = UnixMs(counting_starts.0 - (scenario.warm_up_minutes * MINUTE_MS as f64) as u64);
        let end = counting_starts.plus_ms((scenario.hours * HOUR_MS as f64) as u64);
        let population = Population::generate(scenario, ruleset, map, seed, start)?;
        let newcomers = population.players.iter().filter(|player| player.known_skill.is_none()).count() as u64;
        let population_counts = [population.players.len() as u64, population.parties.len() as u64, newcomers];
        let outlier = population.outlier_party.map(|_| OutlierPartyTally::default());
        let mut world = Self {
            scenario,
            ruleset,
            queue,
            teams,
            // Simulated hosts answer at once and are never lost.
            lifecycle_rules: LifecycleRules { hosts_confirm: false, ..LifecycleRules::from_ruleset(ruleset) },
            map,
            seed,
            counted_span: (counting_starts, end),
            now: start,
            event_queue: EventQueue::default(),
            population,
            leaderboard: Leaderboard::default(),
            waiting_tickets: BTreeMap::new(),
            matched_tickets: BTreeMap::new(),
            matches: BTreeMap::new(),
            past_matches: PastMatchLog::default(),
            past_match_starts: VecDeque::new(),
            connected_players: 0,
            set_activity: AllUsersMatchActivity::default(),
            ticket_count: 0,
            proposal_count: 0,
            runner_state: SimRunnerState::default(),
            tally: SimTally {
                world_count: 1,
                account_party_newcomer_counts: population_counts,
                outlier,
                ..SimTally::default()
            },
        };
        world.init_leaderboard();
        world.schedule_first_play_sessions();
        Ok(world)
    }

    /// Runs the world to its end with the server's pass, and returns its tally. Calls `progress` with the elapsed share
    /// of time.
    pub fn run(self, progress: &mut dyn FnMut(f64)) -> SimTally {
        self.run_with_pass_fn(&mut pass::run_pass_with_memory, progress)
    }

    /// Same as [`SimWorld::run`], with passes run by `run_pass`.
    pub fn run_with_pass_fn(mut self, run_pass: PassFn<'_>, progress: &mut dyn FnMut(f64)) -> SimTally {
        let (start, end) = (self.now, self.counted_span.1);
        let mut minute = self.counted_span.0;
        while let Some((at, event)) = self.event_queue.pop_before(end) {
            while minute <= at {
                self.tally.samples_per_minute.push([self.waiting_tickets.len() as u32, self.matches.len() as u32]);
                minute = minute.plus_ms(MINUTE_MS);
                progress(minute.ms_since(start) as f64 / end.ms_since(start).max(1) as f64);
            }
            self.now = at;
            self.handle_event(event, run_pass);
        }
        self.finish()
    }

    fn handle_event(&mut self, event: SimEvent, run_pass: PassFn<'_>) {
        match event {
            SimEvent::PlaySessionStarts(party) => self.start_play_session(party),
            SimEvent::PartyEntersQueue(party) => self.enter_queue(party),
            SimEvent::PatienceEnds(ticket) => self.give_up(ticket),
            SimEvent::PassDue => self.run_due_pass(run_pass),
            SimEvent::ReadyCheckResponse(id, ticket) => self.respond_to_ready_check(id, ticket),
            SimEvent::MatchDeadline(id) => self.stage_deadline_passed(id),
            SimEvent::GameServerFound(id) => self.on_game_server_found(id),
            SimEvent::MatchFinished(id) => self.finish_match(id),
        }
    }

    /// True if events of a ticket that entered, or a match proposed, at `at` are counted.
    fn is_counted(&self, at: UnixMs) -> bool {
        at >= self.counted_span.0
    }

    /// Counts that the queue's gate compares.
    fn gate_counts(&self) -> GateCounts {
        GateCounts { connected_players: self.connected_players, active_matches: self.matches.len() as u32 }
    }

    /// True if match quality uses leaderboard ranks.
    fn uses_leaderboard_ranks(&self) -> bool {
        matches!(self.queue.quality, QualitySpec::LeaderboardGauss { .. })
    }

    /// True if clients measure round trips to regions.
    fn uses_region_latencies(&self) -> bool {
        matches!(self.queue.regions, Some(RegionUse::Filter { .. } | RegionUse::Quality { .. }))
    }

    /// Display name of a refusal.
    fn rule_name(ruleset: &Ruleset, refusal: Refusal) -> String {
        match refusal {
            Refusal::HardFilter { filter_index: index, .. } => match ruleset.hard_filters.get(index) {
                Some(filter) => match filter.rule {
                    HardRule::Within { .. } => format!("filter {} (limit)", filter.name),
                    _ => format!("filter {}", filter.name),
                },
                None => ruleset.rule_of_filter_index(index).name().into_owned(),
            },
            other => other.as_str().into(),
        }
    }

    /// Counts the tickets left at the end as unmatched.
    fn finish(mut self) -> SimTally {
        // Tickets in started matches were matched.
        let playing = self.matches.values().filter(|sim_match| sim_match.match_state.stage.started_at().is_some());
        let matched: Vec<TicketId> =
            playing.flat_map(|sim_match| sim_match.match_state.tickets.iter().map(|ticket| ticket.ticket_id)).collect();
        for id in matched {
            self.matched_tickets.remove(&id);
        }
        let unmatched = self.waiting_tickets.values().chain(self.matched_tickets.values());
        for ticket in unmatched.filter(|ticket| ticket.prepared_ticket.ticket.entered_at >= self.counted_span.0) {
            self.tally.unmatched_tickets += 1;
            if let Some(refusal) = ticket.last_refusal {
                *self.tally.unmatched_by_rule.entry(Self::rule_name(self.ruleset, refusal)).or_default() += 1;
            }
        }
        self.tally
    }
}

/// City map of a world, the same for all seeds.
pub fn build_city_map(
    scenario: &Scenario,
    ruleset: &Ruleset,
    matrix: Option<&LatencyMatrix>,
) -> Result<CityMap, ScenarioError> {
    CityMap::build(scenario, &ruleset.latency_model, matrix)
}
