//! Matches live: players answer, servers are found, games are played and rated. Every step is the domain's.

use rand::Rng as _;
use rand_distr::{Exp1, StandardNormal};

use crate::event_queue::ScheduledEvent;
use crate::ground_truth;
use crate::population::SimPlayer;
use crate::rng::{RngPurpose, stream_rng};
use crate::tally::{FavoritePrediction, WaitSample};
use crate::world::SimWorld;
use fireteam_domain::id::{MatchId, TicketId, UserKey};
use fireteam_domain::lifecycle::event::{MatchEffect, MatchEvent, Transition};
use fireteam_domain::lifecycle::penalty::next_penalty;
use fireteam_domain::lifecycle::transition::apply_event;
use fireteam_domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage, TicketFate};
use fireteam_domain::queue::ticket::TicketEndReason;
use fireteam_domain::rating::leaderboard::{Leaderboard, LeaderboardEntry};
use fireteam_domain::rating::{SetActivity, Side};
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

impl SimWorld<'_> {
    /// Something happens to a match.
    fn apply_match_event(&mut self, id: MatchId, event: MatchEvent) {
        let Some(play) = self.matches.get_mut(&id) else { return };
        let taken = &self.matched_tickets;
        let open = |ticket| taken.get(&ticket).is_some_and(|it| it.prepared_ticket.ticket.session.nat_type == Some(1));
        let step = apply_event(&self.lifecycle_rules, &play.match_state, event, &open, self.now);
        if let Some(next) = &step.next_match {
            play.match_state = next.clone();
        }
        self.apply_transition(id, step);
    }

    /// Does what a step says.
    pub(super) fn apply_transition(&mut self, id: MatchId, step: Transition) {
        let Some(life) = step.next_match else { return };
        self.apply_penalties(id, &step.penalized_users);
        match &life.stage {
            MatchStage::ReadyCheck { deadline } => {
                // An answer leaves the stage as it is: what is planned for it is planned already.
                if life.version == 1 {
                    self.schedule_ready_check_responses(&life);
                    self.event_queue.schedule(*deadline, ScheduledEvent::MatchDeadline(id));
                }
            }
            MatchStage::Placing { deadline } => self.event_queue.schedule(*deadline, ScheduledEvent::MatchDeadline(id)),
            MatchStage::Playing { times_out_at: until, .. } => self.start_playing(id, &life, *until),
            MatchStage::Ended { end_reason: outcome, .. } => {
                self.count_match_end(*outcome, life.proposed_at);
                self.matches.remove(&id);
            }
        }
        if step.effects.contains(&MatchEffect::FindServer) {
            self.event_queue.schedule(self.now.plus_ms(self.scenario.server_ms), ScheduledEvent::GameServerFound(id));
        }
        for (ticket, fate) in step.ticket_fates {
            self.resolve_ticket_fate(ticket, fate);
        }
        self.mark_queue_changed();
    }

    fn schedule_ready_check_responses(&mut self, life: &Match) {
        for member in &life.tickets {
            let Some(taken) = self.matched_tickets.get(&member.ticket_id) else { continue };
            let mut dice = self.queue_visit_rng(taken.party_index, RngPurpose::ReadyCheckResponse);
            // Each further check of one visit is answered anew.
            for _ in 0..taken.return_count {
                let _: u64 = dice.random();
            }
            let delay: f64 = dice.sample(Exp1);
            let delay_ms = (delay * self.scenario.ready.answer_s * 1_000.0) as u64;
            self.event_queue
                .schedule(self.now.plus_ms(delay_ms), ScheduledEvent::ReadyCheckResponse(life.id, member.ticket_id));
        }
    }

    /// A party answers, or does not; all of it together.
    pub(super) fn respond_to_ready_check(&mut self, id: MatchId, ticket: TicketId) {
        let Some(taken) = self.matched_tickets.get(&ticket) else { return };
        let mut dice = self.queue_visit_rng(taken.party_index, RngPurpose::ReadyCheckResponse);
        for _ in 0..=taken.return_count {
            let _: u64 = dice.random();
        }
        let said = 100.0 * dice.random::<f64>();
        let ready = &self.scenario.ready;
        let accept = said < ready.accept_percent;
        if !accept && ready.accept_percent + ready.decline_percent <= said {
            return;
        }
        let users: Vec<UserKey> =
            taken.prepared_ticket.ticket.session.players.iter().map(|player| player.user).collect();
        self.apply_match_event(id, MatchEvent::Responded { ticket_id: ticket, users, accepted: accept });
    }

    /// A stage may be at its end.
    pub(super) fn match_deadline_passed(&mut self, id: MatchId) {
        self.apply_match_event(id, MatchEvent::DeadlinePassed);
    }

    /// A game server has been found.
    pub(super) fn game_server_found(&mut self, id: MatchId) {
        self.apply_match_event(id, MatchEvent::ServerFound(Assignment::Unhosted));
    }

    /// Play begins: those who waited have waited so long.
    fn start_playing(&mut self, id: MatchId, life: &Match, until: UnixMs) {
        let Some(play) = self.matches.get(&id) else { return };
        let (number, teams) = (play.number, play.players_by_team.clone());
        let mut dice = stream_rng(self.seed, RngPurpose::MatchPlay, number, 0);
        let longer: f64 = dice.sample(StandardNormal);
        let minutes = self.scenario.rhythm.match_minutes * (1.0 + 0.2 * longer).clamp(0.3, 2.0);
        let ends = self.now.plus_ms((minutes * 60_000.0) as u64);
        match ends < until {
            true => self.event_queue.schedule(ends, ScheduledEvent::MatchFinished(id)),
            false => self.event_queue.schedule(until, ScheduledEvent::MatchDeadline(id)),
        }
        if 0 < self.lifecycle_rules.past_match_retention_ms {
            self.past_matches.extend(life.past_matches());
            self.past_matches_cache = None;
        }
        if self.is_counted(self.now) {
            self.tally.match_counts[1] += 1;
            let mut ratings = vec![Vec::new(); teams.len()];
            for member in &life.tickets {
                let Some(taken) = self.matched_tickets.get(&member.ticket_id) else { continue };
                ratings[usize::from(member.team)].extend(taken.prepared_ticket.player_ratings.iter().copied());
            }
            self.count_rating_gaps(&teams, &ratings);
        }
        for member in &life.tickets {
            self.count_matched_wait(member.ticket_id, usize::from(member.team), id);
        }
    }

    fn count_matched_wait(&mut self, ticket: TicketId, team: usize, id: MatchId) {
        let Some(taken) = self.matched_tickets.get(&ticket) else { return };
        let entered = taken.prepared_ticket.ticket.entered_at;
        let (party, size) = (taken.party_index, taken.prepared_ticket.player_count);
        if !self.is_counted(entered) {
            return;
        }
        let waited_ms = self.now.ms_since(entered);
        let ms = u32::try_from(waited_ms).unwrap_or(u32::MAX);
        self.tally.matched_waits.push(WaitSample {
            waited_ms: ms,
            party_size: size,
            city: self.population.parties[party].city,
        });
        self.count_other_set_offer(waited_ms);
        if self.population.outlier_party == Some(party)
            && let Some(outlier) = self.tally.outlier.as_mut()
        {
            outlier.matched_waits_ms.push(ms);
            let chances = self.matches.get(&id).and_then(|play| play.win_probabilities.as_ref());
            outlier.win_probabilities.extend(chances.and_then(|chances| chances.get(team)));
        }
    }

    /// A match has been played: what came of it, and what it changes.
    pub(super) fn finish_match(&mut self, id: MatchId) {
        let Some(play) = self.matches.get(&id) else { return };
        let (number, teams, chances) = (play.number, play.players_by_team.clone(), play.win_probabilities.clone());
        let ranks = ground_truth::draw_ranks(
            &self.true_team_skills(&teams),
            &mut stream_rng(self.seed, RngPurpose::MatchPlay, number, 1),
        );
        if let Some(chances) = chances.filter(|_| self.is_counted(self.now)) {
            let favourite = (0..chances.len()).max_by(|&one, &other| chances[one].total_cmp(&chances[other]));
            if let Some(favourite) = favourite {
                self.tally
                    .favorite_predictions
                    .push(FavoritePrediction { win_probability: chances[favourite], won: ranks[favourite] == 1 });
            }
        }
        if let Some(spec) = &self.ruleset.rating {
            self.update_ratings(spec, &teams, &ranks);
        }
        self.apply_match_event(id, MatchEvent::EndReported { reported_by: None });
    }

    fn update_ratings(&mut self, spec: &RatingSpec, teams: &[Vec<usize>], ranks: &[u32]) {
        let stored =
            |person: &usize| self.population.players[*person].known_skill.unwrap_or_else(|| spec.initial_skill());
        let side = |(team, &rank): (&Vec<usize>, &u32)| Side { players: team.iter().map(stored).collect(), rank };
        let sides: Vec<Side> = teams.iter().zip(ranks).map(side).collect();
        let Ok(after) = spec.rate_match_with_activity(&sides, self.now, self.set_activity) else { return };
        self.set_activity = after.iter().flatten().fold(self.set_activity, SetActivity::including_skill);
        for (&person, skill) in teams.iter().flatten().zip(after.into_iter().flatten()) {
            let person = &mut self.population.players[person];
            let user = person.user;
            if let Some(before) = person.known_skill.replace(skill) {
                self.leaderboard
                    .remove(&LeaderboardEntry { user, conservative_rating: spec.conservative_rating(before.estimate) });
            }
            self.leaderboard
                .insert(LeaderboardEntry { user, conservative_rating: spec.conservative_rating(skill.estimate) });
        }
    }

    /// Puts everybody who has played before onto the leaderboard.
    pub(super) fn fill_leaderboard(&mut self) {
        let Some(spec) = self.ruleset.rating.as_ref() else { return };
        let standing = |person: &SimPlayer| {
            Some(LeaderboardEntry {
                user: person.user,
                conservative_rating: spec.conservative_rating(person.known_skill?.estimate),
            })
        };
        self.leaderboard = Leaderboard::from_entries(self.population.players.iter().filter_map(standing).collect());
    }

    fn count_match_end(&mut self, outcome: MatchEndReason, proposed: UnixMs) {
        if !self.is_counted(proposed) {
            return;
        }
        let which = match outcome {
            MatchEndReason::Played | MatchEndReason::TimedOut => 2,
            MatchEndReason::Declined | MatchEndReason::Cancelled => 3,
            MatchEndReason::NotAcceptedInTime => 4,
            MatchEndReason::NoServer | MatchEndReason::ServerFailed => 5,
        };
        self.tally.match_counts[which] += 1;
    }

    fn apply_penalties(&mut self, id: MatchId, users: &[UserKey]) {
        let Some(check) = self.ruleset.ready_check.as_ref().filter(|_| !users.is_empty()) else { return };
        let Some(play) = self.matches.get(&id) else { return };
        for &person in play.players_by_team.iter().flatten() {
            let person = &mut self.population.players[person];
            if users.contains(&person.user) {
                let penalty = next_penalty(&check.penalty_cooldowns_ms, check.reset_after_ms, person.penalty, self.now);
                person.penalty = Some(penalty);
            }
        }
    }

    /// What becomes of a ticket whose match is over.
    fn resolve_ticket_fate(&mut self, ticket: TicketId, fate: TicketFate) {
        let Some(mut taken) = self.matched_tickets.remove(&ticket) else { return };
        let party = taken.party_index;
        match fate {
            TicketFate::Requeued => {
                taken.return_count += 1;
                let impatient = taken.patience_ended;
                self.waiting_tickets.insert(ticket, taken);
                if impatient {
                    self.give_up(ticket);
                }
            }
            TicketFate::Ended(TicketEndReason::Played) => {
                let it = &mut self.population.parties[party];
                it.matches_left_in_session = it.matches_left_in_session.saturating_sub(1);
                match it.matches_left_in_session {
                    0 => self.end_play_session(party),
                    _ => self.schedule_reentry(party),
                }
            }
            TicketFate::Ended(_) => {
                self.tally.tickets_ended_by_ready_check +=
                    u64::from(self.is_counted(taken.prepared_ticket.ticket.entered_at));
                match self.population.outlier_party == Some(party) {
                    true => self.schedule_reentry(party),
                    false => self.end_play_session(party),
                }
            }
        }
    }
}
