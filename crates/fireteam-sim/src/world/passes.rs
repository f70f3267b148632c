//! Passes over the queue, when the server's runner would run them, and the matches that come of them.

use crate::event_queue::ScheduledEvent;
use crate::ground_truth;
use crate::population::UNKNOWN_SKILL;
use crate::rng::{RngPurpose, generated_id, stream_seed};
use crate::world::{PassFn, SimMatch, SimWorld};
use fireteam_domain::id::MatchId;
use fireteam_domain::lifecycle::MatchTicket;
use fireteam_domain::lifecycle::event::NewMatch;
use fireteam_domain::lifecycle::transition::create_match;
use fireteam_domain::limit::PAIR_CHECKS_PER_PASS_MAX;
use fireteam_domain::queue::avoidance::PastMatches;
use fireteam_domain::queue::gate::{LastPass, should_run_pass};
use fireteam_domain::queue::pass::{PassInput, PassOutcome};
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::queue::proposal::Proposal;
use fireteam_domain::rating::Skill;
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

/// What one names here, for `dice::name`.
const MATCH_ID_KIND: u64 = 3;

impl SimWorld<'_> {
    /// Somebody came, went, came back or was taken: the queue is worth another look.
    pub(super) fn mark_queue_changed(&mut self) {
        self.runner_state.changed_since_pass = true;
        self.schedule_pass(self.now);
    }

    /// Plans a pass at `at`, or as soon after as the ruleset's interval allows; of several the soonest.
    fn schedule_pass(&mut self, at: UnixMs) {
        let state = &mut self.runner_state;
        let every = u64::from(self.queue.pass_every_ms);
        let at = state.last_pass_at.map_or(at, |last| at.max(last.plus_ms(every))).max(self.now);
        if state.planned_pass_at.is_none_or(|planned| at < planned) {
            state.planned_pass_at = Some(at);
            self.event_queue.schedule(at, ScheduledEvent::PassDue);
        }
    }

    /// Runs a pass, if it is time and may find anything.
    pub(super) fn run_due_pass(&mut self, look: PassFn<'_>) {
        if self.runner_state.planned_pass_at != Some(self.now) {
            return;
        }
        self.runner_state.planned_pass_at = None;
        self.runner_state.last_pass_at = Some(self.now);
        let crowd = self.queue_counts();
        let changed = self.runner_state.changed_since_pass;
        if !should_run_pass(&self.queue.gate, &self.runner_state.last_pass, changed, crowd, self.now) {
            self.tally.pass_counts[1] += u64::from(self.is_counted(self.now));
            return self.schedule_next_pass(false);
        }
        self.runner_state.changed_since_pass = false;
        self.runner_state.pass_count += 1;
        self.refresh_leaderboard_indexes();
        let meetings = self.past_matches_cache.take().unwrap_or_else(|| self.recent_past_matches());
        let entrants: Vec<&PreparedTicket> =
            self.waiting_tickets.values().map(|waiting| &waiting.prepared_ticket).collect();
        let PassOutcome { proposals, report } = look(&PassInput {
            ruleset: self.ruleset,
            queue: self.queue,
            teams: self.teams,
            tickets: &entrants,
            open_sessions: &[],
            past_matches: &meetings,
            queue_counts: crowd,
            now: self.now,
            rng_seed: stream_seed(self.seed, RngPurpose::Pass, self.runner_state.pass_count, 0),
            max_pair_checks: PAIR_CHECKS_PER_PASS_MAX,
        });
        drop(entrants);
        self.past_matches_cache = Some(meetings);
        self.runner_state.last_pass = LastPass {
            found_nothing: proposals.is_empty() && !report.truncated,
            next_change_at: report.next_change_at,
            queue_counts: crowd,
        };
        if self.is_counted(self.now) {
            let ruleset = self.ruleset;
            self.tally.count_pass(&report, |refusal| Self::rule_name(ruleset, refusal));
        }
        for left in &report.unmatched {
            if let Some(waiting) = self.waiting_tickets.get_mut(&left.ticket_id) {
                waiting.last_refusal = Some(left.refusal);
            }
        }
        let any = !proposals.is_empty();
        if any {
            let about = self.waiting_players_by_city();
            proposals.into_iter().for_each(|proposal| self.start_match(proposal, &about));
        }
        self.schedule_next_pass(any);
    }

    /// When the queue is looked at again if nothing happens before.
    fn schedule_next_pass(&mut self, any: bool) {
        let next = self.runner_state.last_pass.next_change_at;
        let looks_anyway = !self.queue.gate.skip_unchanged && !self.waiting_tickets.is_empty();
        if any || self.runner_state.changed_since_pass || looks_anyway {
            self.schedule_pass(self.now);
        }
        if let Some(next) = next {
            self.schedule_pass(next);
        }
    }

    /// Places change while parties wait.
    fn refresh_leaderboard_indexes(&mut self) {
        if !self.uses_leaderboard_ranks() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting_tickets);
        for it in waiting.values_mut() {
            it.prepared_ticket.leaderboard_position =
                self.mean_leaderboard_index(it.party_index, &it.prepared_ticket.ticket.player_ratings);
        }
        self.waiting_tickets = waiting;
    }

    /// Who has met whom, as far back as the ruleset asks.
    fn recent_past_matches(&mut self) -> PastMatches {
        let back_ms = self.lifecycle_rules.past_match_retention_ms;
        while self.past_matches.front().is_some_and(|met| back_ms <= self.now.ms_since(met.started_at)) {
            self.past_matches.pop_front();
        }
        PastMatches::latest_of(self.past_matches.iter().copied())
    }

    /// How many players wait in each city.
    fn waiting_players_by_city(&self) -> Vec<u32> {
        let mut about = vec![0; self.map.cities.len()];
        for waiting in self.waiting_tickets.values() {
            let city = self.population.parties[waiting.party_index].city;
            about[usize::from(city)] += u32::from(waiting.prepared_ticket.player_count);
        }
        about
    }

    /// Makes a match of a proposal; `about` says who waited where when the pass ran.
    fn start_match(&mut self, proposal: Proposal, about: &[u32]) {
        self.proposal_count += 1;
        let id = MatchId::from_bytes(generated_id(self.seed, MATCH_ID_KIND, self.proposal_count));
        let mut members = Vec::new();
        let mut teams: Vec<Vec<usize>> = Vec::new();
        for (team, placed) in proposal.teams.iter().enumerate() {
            teams.push(Vec::new());
            for it in placed {
                let Some(waiting) = self.waiting_tickets.remove(&it.ticket_id) else { continue };
                teams[team].extend(self.population.parties[waiting.party_index].players.clone());
                members.push(MatchTicket::from_ticket(&waiting.prepared_ticket.ticket, team as u16, &it.roles));
                self.matched_tickets.insert(it.ticket_id, waiting);
            }
        }
        if self.is_counted(self.now) {
            self.tally.match_counts[0] += 1;
            self.count_round_trips(&teams, proposal.region.as_deref(), about);
        }
        let chances = self.predict_win_probabilities(&teams);
        let fresh = NewMatch {
            id,
            set_id: self.ruleset.set_id,
            silo: Default::default(),
            ruleset_hash: self.ruleset.hash,
            tickets: members,
            quality: proposal.quality,
            region: proposal.region,
            backfilled_session: proposal.backfilled_session,
        };
        let taken = &self.matched_tickets;
        let open = |ticket| taken.get(&ticket).is_some_and(|it| it.prepared_ticket.ticket.session.nat_type == Some(1));
        let step = create_match(&self.lifecycle_rules, fresh, &open, self.now);
        let number = self.proposal_count;
        if let Some(life) = step.next_match.clone() {
            self.matches
                .insert(id, SimMatch { match_state: life, number, players_by_team: teams, win_probabilities: chances });
        }
        self.apply_transition(id, step);
    }

    /// The teams' chances as the rating system sees them.
    fn predict_win_probabilities(&self, teams: &[Vec<usize>]) -> Option<Vec<f64>> {
        let spec = self.ruleset.rating.as_ref()?;
        let skills =
            |team: &Vec<usize>| -> Vec<Skill> { team.iter().map(|&person| self.current_skill(person)).collect() };
        let sides: Vec<Vec<Skill>> = teams.iter().map(skills).collect();
        spec.win_probabilities(&sides).ok()
    }

    /// What the set knows of a person by now.
    pub(super) fn current_skill(&self, person: usize) -> Skill {
        let spec = self.ruleset.rating.as_ref();
        let stored = self.population.players[person].known_skill;
        let newcomer = || spec.map(RatingSpec::initial_skill);
        let skill = stored.or_else(newcomer).unwrap_or(UNKNOWN_SKILL);
        spec.map_or(skill, |spec| spec.skill_at_with_activity(skill, self.now, self.set_activity))
    }

    /// Counts what the players' round trips are, and how much better they could have been.
    fn count_round_trips(&mut self, teams: &[Vec<usize>], region: Option<&str>, about: &[u32]) {
        let cities: Vec<u16> = teams.iter().flatten().map(|&person| self.population.players[person].city).collect();
        let others = cities.len() as u32 - 1;
        for &city in &cities {
            let trips = self.map.region_round_trips(city);
            let there = region.and_then(|name| trips.iter().find(|trip| *trip.region == *name));
            let (trip, best) = match there {
                Some(there) => {
                    let best = trips.iter().map(|trip| trip.round_trip_ms).fold(f32::INFINITY, f32::min);
                    (f64::from(there.round_trip_ms), f64::from(best))
                }
                None => {
                    let farthest = cities.iter().map(|&other| self.map.round_trip_ms(city, other)).fold(0.0, f64::max);
                    (farthest, self.map.round_trip_to_nth_nearest_ms(city, about, others).unwrap_or(farthest))
                }
            };
            self.tally.round_trips_ms.push(trip as f32);
            self.tally.round_trip_regrets_ms.push((trip - best).max(0.0) as f32);
        }
    }

    /// Every team's true strength.
    pub(super) fn true_team_skills(&self, teams: &[Vec<usize>]) -> Vec<f64> {
        let mean = |team: &Vec<usize>| {
            team.iter().map(|&person| self.population.players[person].true_skill).sum::<f64>()
                / team.len().max(1) as f64
        };
        teams.iter().map(mean).collect()
    }

    /// Counts how far apart those are who begin a match.
    pub(super) fn count_rating_gaps(&mut self, teams: &[Vec<usize>], ratings: &[Vec<f64>]) {
        let span = |values: &mut dyn Iterator<Item = f64>| {
            let (least, most) = values
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
            most - least
        };
        let mean = |team: &Vec<f64>| team.iter().sum::<f64>() / team.len().max(1) as f64;
        self.tally.rating_gaps.push(span(&mut ratings.iter().flatten().copied()));
        self.tally.team_mean_gaps.push(span(&mut ratings.iter().map(mean)));
        let best = ground_truth::win_probabilities(&self.true_team_skills(teams)).into_iter().fold(0.0, f64::max);
        self.tally.true_favorite_probabilities.push(best);
    }
}
