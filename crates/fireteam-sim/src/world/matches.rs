//! Matches: ready checks, game servers, play, results and ratings. Each transition is the domain's.

use std::collections::BTreeMap;

use rand::Rng as _;
use rand_distr::{Exp1, StandardNormal};

use crate::event_queue::SimEvent;
use crate::ground_truth;
use crate::population::{HOUR_MS, SimPlayer};
use crate::rng::{RngPurpose, stream_rng};
use crate::tally::{FavoriteSample, WaitSample};
use crate::world::{SimTicket, SimWorld};
use fireteam_domain::id::{MatchId, TicketId, UserKey};
use fireteam_domain::lifecycle::event::{MatchEffect, MatchEvent, Transition};
use fireteam_domain::lifecycle::penalty::next_penalty;
use fireteam_domain::lifecycle::ticket_facts::TicketFacts;
use fireteam_domain::lifecycle::transition::apply_event;
use fireteam_domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage, TicketFate};
use fireteam_domain::queue::ticket::TicketEndReason;
use fireteam_domain::rating::leaderboard::{Leaderboard, LeaderboardEntry};
use fireteam_domain::rating::{AllUsersMatchActivity, Side};
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

/// Facts about the tickets in matches. Simulated players send heartbeats until they leave.
pub(super) struct MatchedTicketFactSource<'a>(pub(super) &'a BTreeMap<TicketId, SimTicket>);

impl TicketFacts for MatchedTicketFactSource<'_> {
    fn has_open_nat(&self, id: TicketId) -> bool {
        self.0.get(&id).is_some_and(|matched| matched.prepared_ticket.ticket.session.nat_type == Some(1))
    }

    fn has_expired(&self, _: TicketId) -> bool {
        false
    }

    fn has_acknowledged_ready_check(&self, _: TicketId, _: UserKey) -> bool {
        true
    }
}

impl SimWorld<'_> {
    /// Applies an event to a match.
    fn apply_match_event(&mut self, id: MatchId, event: MatchEvent) {
        let Some(sim_match) = self.matches.get_mut(&id) else { return };
        let tickets = MatchedTicketFactSource(&self.matched_tickets);
        let transition = apply_event(&self.lifecycle_rules, &sim_match.match_state, event, &tickets, self.now);
        if let Some(match_state) = &transition.next_match {
            sim_match.match_state = match_state.clone();
        }
        self.apply_transition(id, transition);
    }

    /// Applies the result of a transition.
    pub(super) fn apply_transition(&mut self, id: MatchId, transition: Transition) {
        let Some(match_state) = transition.next_match else { return };
        self.apply_penalties(id, &transition.penalized_users);
        match &match_state.stage {
            MatchStage::ReadyCheck { deadline } => {
                // A response does not change the stage; its events are already scheduled.
                if match_state.version == 1 {
                    self.schedule_ready_check_responses(&match_state);
                    self.event_queue.schedule(*deadline, SimEvent::MatchDeadline(id));
                }
            }
            MatchStage::Placing { deadline } | MatchStage::Confirming { confirm_by: deadline, .. } => {
                self.event_queue.schedule(*deadline, SimEvent::MatchDeadline(id));
            }
            MatchStage::Playing { times_out_at, .. } => self.start_playing(id, &match_state, *times_out_at),
            MatchStage::Ended { end_reason, .. } => {
                self.count_match_end(*end_reason, match_state.proposed_at);
                self.matches.remove(&id);
            }
        }
        if transition.effects.contains(&MatchEffect::FindServer) {
            self.event_queue.schedule(self.now.plus_ms(self.scenario.server_ms), SimEvent::GameServerFound(id));
        }
        for (ticket, fate) in transition.ticket_fates {
            self.resolve_ticket_fate(ticket, fate);
        }
        self.mark_queue_changed();
    }

    fn schedule_ready_check_responses(&mut self, match_state: &Match) {
        for match_ticket in &match_state.tickets {
            let Some(ticket) = self.matched_tickets.get(&match_ticket.ticket_id) else { continue };
            let mut rng = self.queue_visit_rng(ticket.party_index, RngPurpose::ReadyCheckResponse);
            // Each further ready check of a visit uses the next number.
            for _ in 0..ticket.return_count {
                let _: u64 = rng.random();
            }
            let delay: f64 = rng.sample(Exp1);
            let delay_ms = (delay * self.scenario.ready.response_s * 1_000.0) as u64;
            self.event_queue.schedule(
                self.now.plus_ms(delay_ms),
                SimEvent::ReadyCheckResponse(match_state.id, match_ticket.ticket_id),
            );
        }
    }

    /// Responds to a ready check for the whole party, or does not respond.
    pub(super) fn respond_to_ready_check(&mut self, id: MatchId, ticket_id: TicketId) {
        let Some(sim_ticket) = self.matched_tickets.get(&ticket_id) else { return };
        let mut rng = self.queue_visit_rng(sim_ticket.party_index, RngPurpose::ReadyCheckResponse);
        for _ in 0..=sim_ticket.return_count {
            let _: u64 = rng.random();
        }
        let drawn_percent = 100.0 * rng.random::<f64>();
        let behavior = &self.scenario.ready;
        let accepted = drawn_percent < behavior.accept_percent;
        if !accepted && drawn_percent >= behavior.accept_percent + behavior.decline_percent {
            return;
        }
        let users: Vec<UserKey> =
            sim_ticket.prepared_ticket.ticket.session.players.iter().map(|player| player.user).collect();
        self.apply_match_event(id, MatchEvent::Responded { ticket_id, users, accepted, answered_by: None });
    }

    /// The deadline of the current stage has passed.
    pub(super) fn stage_deadline_passed(&mut self, id: MatchId) {
        self.apply_match_event(id, MatchEvent::DeadlinePassed);
    }

    /// A game server has been found.
    pub(super) fn on_game_server_found(&mut self, id: MatchId) {
        self.apply_match_event(id, MatchEvent::ServerFound(Assignment::Unhosted));
    }

    /// Starts play: counts waits and schedules the end of the match.
    fn start_playing(&mut self, id: MatchId, match_state: &Match, times_out_at: UnixMs) {
        let Some(sim_match) = self.matches.get(&id) else { return };
        let (match_number, teams) = (sim_match.match_number, sim_match.players_by_team.clone());
        let mut rng = stream_rng(self.seed, RngPurpose::MatchPlay, match_number, 0);
        let deviation: f64 = rng.sample(StandardNormal);
        let minutes = self.scenario.activity.match_minutes * (1.0 + 0.2 * deviation).clamp(0.3, 2.0);
        let ends_at = self.now.plus_ms((minutes * 60_000.0) as u64);
        if ends_at < times_out_at {
            self.event_queue.schedule(ends_at, SimEvent::MatchFinished(id));
        } else {
            self.event_queue.schedule(times_out_at, SimEvent::MatchDeadline(id));
        }
        if self.lifecycle_rules.past_match_retention_ms > 0 {
            self.past_matches.record_match_state(match_state);
            self.past_match_starts.push_back((self.now, id));
        }
        if self.is_counted(self.now) {
            self.tally.match_counts[1] += 1;
            let mut ratings = vec![Vec::new(); teams.len()];
            for match_ticket in &match_state.tickets {
                let Some(ticket) = self.matched_tickets.get(&match_ticket.ticket_id) else { continue };
                ratings[usize::from(match_ticket.team)].extend(ticket.prepared_ticket.matching_ratings.iter().copied());
            }
            self.count_rating_gaps(&teams, &ratings);
        }
        for match_ticket in &match_state.tickets {
            self.count_matched_wait(match_ticket.ticket_id, usize::from(match_ticket.team), id);
        }
    }

    fn count_matched_wait(&mut self, ticket: TicketId, team: usize, id: MatchId) {
        let Some(sim_ticket) = self.matched_tickets.get(&ticket) else { return };
        let entered_at = sim_ticket.prepared_ticket.ticket.entered_at;
        let (party, party_size) = (sim_ticket.party_index, sim_ticket.prepared_ticket.player_count);
        if !self.is_counted(entered_at) {
            return;
        }
        let waited_ms = self.now.ms_since(entered_at);
        let counted_ms = u32::try_from(waited_ms).unwrap_or(u32::MAX);
        self.tally.matched_waits.push(WaitSample {
            waited_ms: counted_ms,
            party_size,
            city: self.population.parties[party].city,
            utc_hour: u8::try_from(entered_at.0 / HOUR_MS % 24).unwrap_or(0),
        });
        self.count_alternative_set_offer(waited_ms);
        if self.population.outlier_party == Some(party)
            && let Some(outlier) = self.tally.outlier.as_mut()
        {
            outlier.matched_waits_ms.push(counted_ms);
            let probabilities = self.matches.get(&id).and_then(|sim_match| sim_match.win_probabilities.as_ref());
            outlier.win_probabilities.extend(probabilities.and_then(|probabilities| probabilities.get(team)));
        }
    }

    /// Ends play: draws the result, counts the prediction and updates ratings.
    pub(super) fn finish_match(&mut self, id: MatchId) {
        let Some(sim_match) = self.matches.get(&id) else { return };
        let (match_number, teams, probabilities) =
            (sim_match.match_number, sim_match.players_by_team.clone(), sim_match.win_probabilities.clone());
        let has_bots = !sim_match.match_state.bots_by_team.is_empty();
        let ranks = ground_truth::draw_ranks(
            &self.mean_true_skill_by_team(&teams),
            &mut stream_rng(self.seed, RngPurpose::MatchPlay, match_number, 1),
        );
        if let Some(probabilities) = probabilities.filter(|_| self.is_counted(self.now)) {
            let favorite = (0..probabilities.len())
                .max_by(|&first, &second| probabilities[first].total_cmp(&probabilities[second]));
            if let Some(favorite) = favorite {
                self.tally
                    .favorite_predictions
                    .push(FavoriteSample { win_probability: probabilities[favorite], won: ranks[favorite] == 1 });
            }
        }
        if let Some(spec) = &self.ruleset.rating
            && !has_bots
        {
            self.update_ratings(spec, &teams, &ranks);
        }
        self.apply_match_event(id, MatchEvent::EndReported { reported_by: None });
    }

    fn update_ratings(&mut self, spec: &RatingSpec, teams: &[Vec<usize>], ranks: &[u32]) {
        let stored_skill =
            |index: &usize| self.population.players[*index].known_skill.unwrap_or_else(|| spec.initial_skill());
        let side = |(team, &rank): (&Vec<usize>, &u32)| Side { players: team.iter().map(stored_skill).collect(), rank };
        let sides: Vec<Side> = teams.iter().zip(ranks).map(side).collect();
        let Ok(after) = spec.rate_match_with_activity(&sides, self.now, self.set_activity) else { return };
        self.set_activity =
            after.iter().flatten().fold(self.set_activity, AllUsersMatchActivity::including_last_match_of);
        for (&index, skill) in teams.iter().flatten().zip(after.into_iter().flatten()) {
            let player = &mut self.population.players[index];
            let user = player.user;
            if let Some(before) = player.known_skill.replace(skill) {
                self.leaderboard
                    .remove(&LeaderboardEntry { user, conservative_rating: spec.conservative_rating(before.estimate) });
            }
            self.leaderboard
                .insert(LeaderboardEntry { user, conservative_rating: spec.conservative_rating(skill.estimate) });
        }
    }

    /// Fills the leaderboard with all players who have a skill.
    pub(super) fn init_leaderboard(&mut self) {
        let Some(spec) = self.ruleset.rating.as_ref() else { return };
        let entry = |player: &SimPlayer| {
            Some(LeaderboardEntry {
                user: player.user,
                conservative_rating: spec.conservative_rating(player.known_skill?.estimate),
            })
        };
        self.leaderboard = Leaderboard::from_entries(self.population.players.iter().filter_map(entry).collect());
    }

    fn count_match_end(&mut self, end_reason: MatchEndReason, proposed_at: UnixMs) {
        if !self.is_counted(proposed_at) {
            return;
        }
        let index = match end_reason {
            MatchEndReason::Played | MatchEndReason::TimedOut | MatchEndReason::Abandoned => 2,
            MatchEndReason::Declined | MatchEndReason::Cancelled => 3,
            MatchEndReason::NotAcceptedInTime => 4,
            MatchEndReason::NoServer | MatchEndReason::ServerFailed | MatchEndReason::HostLost => 5,
        };
        self.tally.match_counts[index] += 1;
    }

    fn apply_penalties(&mut self, id: MatchId, users: &[UserKey]) {
        let Some(ready_check) = self.ruleset.ready_check.as_ref().filter(|_| !users.is_empty()) else { return };
        let Some(sim_match) = self.matches.get(&id) else { return };
        for &index in sim_match.players_by_team.iter().flatten() {
            let player = &mut self.population.players[index];
            if users.contains(&player.user) {
                let penalty = next_penalty(
                    &ready_check.penalty_cooldowns_ms,
                    ready_check.reset_after_ms,
                    player.queue_cooldown,
                    self.now,
                );
                player.queue_cooldown = Some(penalty);
            }
        }
    }

    /// Handles a ticket after its match: it waits again, plays another match or ends its session.
    fn resolve_ticket_fate(&mut self, ticket: TicketId, fate: TicketFate) {
        let Some(mut sim_ticket) = self.matched_tickets.remove(&ticket) else { return };
        let party = sim_ticket.party_index;
        match fate {
            TicketFate::Requeued => {
                sim_ticket.return_count += 1;
                let patience_ended = sim_ticket.patience_ended;
                self.waiting_tickets.insert(ticket, sim_ticket);
                if patience_ended {
                    self.give_up(ticket);
                }
            }
            TicketFate::Ended(TicketEndReason::Played) => {
                let sim_party = &mut self.population.parties[party];
                sim_party.matches_left_in_session = sim_party.matches_left_in_session.saturating_sub(1);
                match sim_party.matches_left_in_session {
                    0 => self.end_play_session(party),
                    _ => self.schedule_reentry(party),
                }
            }
            TicketFate::Ended(_) => {
                self.tally.tickets_ended_by_ready_check +=
                    u64::from(self.is_counted(sim_ticket.prepared_ticket.ticket.entered_at));
                if self.population.outlier_party == Some(party) {
                    self.schedule_reentry(party);
                } else {
                    self.end_play_session(party);
                }
            }
        }
    }
}
