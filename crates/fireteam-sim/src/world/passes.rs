//! Passes over the queue at the times at which the server would run them, and the matches they propose.

use std::time::Duration;

use crate::event_queue::SimEvent;
use crate::ground_truth;
use crate::population::UNKNOWN_SKILL;
use crate::rng::{RngPurpose, generated_id, stream_seed};
use crate::world::matches::MatchedTicketFactSource;
use crate::world::{PassFn, SimMatch, SimWorld};
use fireteam_domain::id::MatchId;
use fireteam_domain::lifecycle::MatchTicket;
use fireteam_domain::lifecycle::event::NewMatch;
use fireteam_domain::lifecycle::transition::create_match;
use fireteam_domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use fireteam_domain::queue::avoidance::PastMatches;
use fireteam_domain::queue::gate::{LastPass, next_pass_may_find_match};
use fireteam_domain::queue::pass::{PassInput, PassOutcome};
use fireteam_domain::queue::pass_timing::{PassHistory, time_to_next_pass};
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::queue::proposal::Proposal;
use fireteam_domain::rating::Skill;
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

/// Kind of match ids for `rng::generated_id`.
const MATCH_ID_KIND: u64 = 3;

impl SimWorld<'_> {
    /// Marks the queue as changed, so that a pass is scheduled.
    pub(super) fn mark_queue_changed(&mut self) {
        self.runner_state.changed_since_pass = true;
        self.schedule_pass(self.now, Some(Duration::ZERO));
    }

    /// Schedules a pass at `at` or at the earliest time that the ruleset allows. Keeps the earliest of several.
    fn schedule_pass(&mut self, at: UnixMs, since_first_change: Option<Duration>) {
        let state = &mut self.runner_state;
        let history = PassHistory {
            since_last_pass: state.last_pass_at.map(|last| Duration::from_millis(self.now.ms_since(last))),
            // Simulated passes take no time.
            last_pass_cpu_time: Duration::ZERO,
            last_pass_found_nothing: false,
            since_first_change,
            since_failure: None,
        };
        let wait_ms = time_to_next_pass(self.queue, &history).as_millis() as u64;
        let at = at.max(self.now.plus_ms(wait_ms));
        if state.planned_pass_at.is_none_or(|planned| at < planned) {
            state.planned_pass_at = Some(at);
            self.event_queue.schedule(at, SimEvent::PassDue);
        }
    }

    /// Runs a pass if it is due and may find a match.
    pub(super) fn run_due_pass(&mut self, run_pass: PassFn<'_>) {
        if self.runner_state.planned_pass_at != Some(self.now) {
            return;
        }
        self.runner_state.planned_pass_at = None;
        self.runner_state.last_pass_at = Some(self.now);
        let gate_counts = self.gate_counts();
        let changed = self.runner_state.changed_since_pass;
        if !next_pass_may_find_match(&self.queue.gate, &self.runner_state.last_pass, changed, gate_counts, self.now) {
            self.tally.pass_counts[1] += u64::from(self.is_counted(self.now));
            return self.schedule_next_pass(false);
        }
        self.runner_state.changed_since_pass = false;
        self.runner_state.pass_count += 1;
        self.refresh_leaderboard_indexes();
        let past_matches = self.recent_past_matches();
        let tickets: Vec<&PreparedTicket> =
            self.waiting_tickets.values().map(|ticket| &ticket.prepared_ticket).collect();
        let pass_input = PassInput {
            ruleset: self.ruleset,
            queue: self.queue,
            teams: self.teams,
            tickets: &tickets,
            open_sessions: &[],
            past_matches: &past_matches,
            gate_counts,
            now: self.now,
            rng_seed: stream_seed(self.seed, RngPurpose::Pass, self.runner_state.pass_count, 0),
            max_pair_checks: PAIR_CHECKS_PER_PASS_MAX,
        };
        let PassOutcome { proposals, report } = run_pass(&pass_input, &mut self.runner_state.pass_memory);
        drop(tickets);
        self.runner_state.last_pass = LastPass {
            found_nothing: proposals.is_empty() && !report.truncated,
            next_change_at: report.next_change_at,
            gate_counts,
        };
        if self.is_counted(self.now) {
            let ruleset = self.ruleset;
            self.tally.count_pass(&report, |refusal| Self::rule_name(ruleset, refusal));
        }
        for unmatched in &report.unmatched {
            if let Some(ticket) = self.waiting_tickets.get_mut(&unmatched.ticket_id) {
                ticket.last_refusal = Some(unmatched.refusal);
            }
        }
        let has_proposals = !proposals.is_empty();
        if has_proposals {
            let waiting_by_city = self.waiting_players_by_city();
            proposals.into_iter().for_each(|proposal| self.start_match(proposal, &waiting_by_city));
        }
        self.schedule_next_pass(has_proposals);
    }

    /// Schedules the next pass for the case that no event occurs before.
    fn schedule_next_pass(&mut self, has_proposals: bool) {
        let next_change_at = self.runner_state.last_pass.next_change_at;
        let runs_unchanged = !self.queue.gate.skip_unchanged && !self.waiting_tickets.is_empty();
        if has_proposals || self.runner_state.changed_since_pass || runs_unchanged {
            self.schedule_pass(self.now, None);
        }
        if let Some(next_change_at) = next_change_at {
            self.schedule_pass(next_change_at, None);
        }
    }

    /// Updates leaderboard indexes, which change while parties wait.
    fn refresh_leaderboard_indexes(&mut self) {
        if !self.uses_leaderboard_ranks() {
            return;
        }
        let mut tickets = std::mem::take(&mut self.waiting_tickets);
        for (id, ticket) in &mut tickets {
            let position =
                self.mean_leaderboard_index(ticket.party_index, &ticket.prepared_ticket.ticket.player_ratings);
            if std::mem::replace(&mut ticket.prepared_ticket.leaderboard_position, position) != position {
                self.runner_state.pass_memory.forget(*id);
            }
        }
        self.waiting_tickets = tickets;
    }

    /// Past matches of the waiting players with each other, as far back as the ruleset needs.
    fn recent_past_matches(&mut self) -> PastMatches {
        let retention_ms = self.lifecycle_rules.past_match_retention_ms;
        while let Some(&(started_at, id)) = self.past_match_starts.front()
            && retention_ms <= self.now.ms_since(started_at)
        {
            self.past_matches.remove(id);
            self.past_match_starts.pop_front();
        }
        let tickets = self.waiting_tickets.values();
        let users = tickets.flat_map(|ticket| ticket.prepared_ticket.users.iter().copied());
        self.past_matches.recent_meetings_among(users, &self.queue.avoid, self.now)
    }

    /// Number of waiting players in each city.
    fn waiting_players_by_city(&self) -> Vec<u32> {
        let mut players_by_city = vec![0; self.map.cities.len()];
        for ticket in self.waiting_tickets.values() {
            let city = self.population.parties[ticket.party_index].city;
            players_by_city[usize::from(city)] += u32::from(ticket.prepared_ticket.player_count);
        }
        players_by_city
    }

    /// Starts a match from a proposal. `waiting_by_city` is the number of players who waited when the pass ran.
    fn start_match(&mut self, proposal: Proposal, waiting_by_city: &[u32]) {
        self.proposal_count += 1;
        let id = MatchId::from_bytes(generated_id(self.seed, MATCH_ID_KIND, self.proposal_count));
        let mut tickets = Vec::new();
        let mut teams: Vec<Vec<usize>> = Vec::new();
        for (team, proposed_tickets) in proposal.teams.iter().enumerate() {
            teams.push(Vec::new());
            for proposed in proposed_tickets {
                let Some(ticket) = self.waiting_tickets.remove(&proposed.ticket_id) else { continue };
                teams[team].extend(self.population.parties[ticket.party_index].players.clone());
                tickets.push(MatchTicket::from_ticket(&ticket.prepared_ticket.ticket, team as u16, &proposed.roles));
                self.matched_tickets.insert(proposed.ticket_id, ticket);
            }
        }
        if self.is_counted(self.now) {
            self.tally.match_counts[0] += 1;
            self.count_round_trips(&teams, proposal.region.as_deref(), waiting_by_city);
        }
        let win_probabilities = self.predict_win_probabilities(&teams);
        let new_match = NewMatch {
            id,
            set_id: self.ruleset.set_id,
            silo: Default::default(),
            ruleset_hash: self.ruleset.hash,
            tickets,
            quality: proposal.quality,
            region: proposal.region,
            backfilled_session: proposal.backfilled_session,
            chosen_values: proposal.chosen,
            bots_by_team: proposal.bots_by_team,
            worst_pair: None,
        };
        let tickets = MatchedTicketFactSource(&self.matched_tickets);
        let transition = create_match(&self.lifecycle_rules, new_match, &tickets, self.now);
        let match_number = self.proposal_count;
        if let Some(match_state) = transition.next_match.clone() {
            self.matches.insert(id, SimMatch { match_state, match_number, players_by_team: teams, win_probabilities });
        }
        self.apply_transition(id, transition);
    }

    /// Win probabilities of the teams by the rating system.
    fn predict_win_probabilities(&self, teams: &[Vec<usize>]) -> Option<Vec<f64>> {
        let spec = self.ruleset.rating.as_ref()?;
        let skills =
            |team: &Vec<usize>| -> Vec<Skill> { team.iter().map(|&player| self.current_skill(player)).collect() };
        let sides: Vec<Vec<Skill>> = teams.iter().map(skills).collect();
        spec.win_probabilities(&sides).ok()
    }

    /// Current skill of a player as the set knows it.
    pub(super) fn current_skill(&self, player: usize) -> Skill {
        let spec = self.ruleset.rating.as_ref();
        let known_skill = self.population.players[player].known_skill;
        let initial_skill = || spec.map(RatingSpec::initial_skill);
        let skill = known_skill.or_else(initial_skill).unwrap_or(UNKNOWN_SKILL);
        spec.map_or(skill, |spec| spec.skill_at_with_activity(skill, self.now, self.set_activity))
    }

    /// Counts the players' round trips, and their excess over the best possible ones.
    fn count_round_trips(&mut self, teams: &[Vec<usize>], region: Option<&str>, waiting_by_city: &[u32]) {
        let cities: Vec<u16> = teams.iter().flatten().map(|&player| self.population.players[player].city).collect();
        let others = cities.len() as u32 - 1;
        for &city in &cities {
            let region_round_trips = self.map.region_round_trips(city);
            let to_region =
                region.and_then(|name| region_round_trips.iter().find(|round_trip| *round_trip.region == *name));
            let (round_trip_ms, best_ms) = match to_region {
                Some(to_region) => {
                    let best_ms = region_round_trips
                        .iter()
                        .map(|round_trip| round_trip.round_trip_ms)
                        .fold(f32::INFINITY, f32::min);
                    (f64::from(to_region.round_trip_ms), f64::from(best_ms))
                }
                None => {
                    let farthest_ms =
                        cities.iter().map(|&other| self.map.round_trip_ms(city, other)).fold(0.0, f64::max);
                    (
                        farthest_ms,
                        self.map
                            .round_trip_to_nth_nearest_player_ms(city, waiting_by_city, others)
                            .unwrap_or(farthest_ms),
                    )
                }
            };
            self.tally.round_trips_ms.push(round_trip_ms as f32);
            self.tally.round_trip_regrets_ms.push((round_trip_ms - best_ms).max(0.0) as f32);
        }
    }

    /// Mean true skill of each team.
    pub(super) fn mean_true_skill_by_team(&self, teams: &[Vec<usize>]) -> Vec<f64> {
        let mean = |team: &Vec<usize>| {
            team.iter().map(|&player| self.population.players[player].true_skill).sum::<f64>()
                / team.len().max(1) as f64
        };
        teams.iter().map(mean).collect()
    }

    /// Counts the rating differences within a started match.
    pub(super) fn count_rating_gaps(&mut self, teams: &[Vec<usize>], ratings: &[Vec<f64>]) {
        let range = |values: &mut dyn Iterator<Item = f64>| {
            let (lowest, highest) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(lowest, highest), value| {
                (lowest.min(value), highest.max(value))
            });
            highest - lowest
        };
        let mean = |team: &Vec<f64>| team.iter().sum::<f64>() / team.len().max(1) as f64;
        self.tally.rating_gaps.push(range(&mut ratings.iter().flatten().copied()));
        self.tally.team_mean_gaps.push(range(&mut ratings.iter().map(mean)));
        let favorite =
            ground_truth::win_probabilities(&self.mean_true_skill_by_team(teams)).into_iter().fold(0.0, f64::max);
        self.tally.true_favorite_probabilities.push(favorite);
    }
}
