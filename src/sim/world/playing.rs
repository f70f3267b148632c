//! Matches live: players answer, servers are found, games are played and rated. Every step is the domain's.

use rand::Rng as _;
use rand_distr::{Exp1, StandardNormal};

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::life::event::{Effect, Event, Step};
use crate::domain::life::penalty::penalise;
use crate::domain::life::step::step;
use crate::domain::life::{Fate, Match, Outcome, Place, Stage};
use crate::domain::queue::ticket::Ending;
use crate::domain::rating::board::{Board, Standing};
use crate::domain::rating::{Played, Side};
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::sim::agenda::Due;
use crate::sim::dice::{About, dice};
use crate::sim::people::Person;
use crate::sim::tally::{Predicted, Wait};
use crate::sim::truth;
use crate::sim::world::World;

impl World<'_> {
    /// Something happens to a match.
    fn event(&mut self, id: MatchId, event: Event) {
        let Some(play) = self.plays.get_mut(&id) else { return };
        let taken = &self.taken;
        let open = |ticket| taken.get(&ticket).is_some_and(|it| it.entrant.ticket.session.nat_type == Some(1));
        let step = step(&self.life, &play.life, event, &open, self.now);
        if let Some(next) = &step.next {
            play.life = next.clone();
        }
        self.follow(id, step);
    }

    /// Does what a step says.
    pub(super) fn follow(&mut self, id: MatchId, step: Step) {
        let Some(life) = step.next else { return };
        self.punish(id, &step.punished);
        match &life.stage {
            Stage::ReadyCheck { deadline } => {
                // An answer leaves the stage as it is: what is planned for it is planned already.
                if life.edition == 1 {
                    self.plan_answers(&life);
                    self.agenda.plan(*deadline, Due::Deadline(id));
                }
            }
            Stage::Placing { deadline } => self.agenda.plan(*deadline, Due::Deadline(id)),
            Stage::Playing { until, .. } => self.begins(id, &life, *until),
            Stage::Over { outcome, .. } => {
                self.ends(*outcome, life.proposed);
                self.plays.remove(&id);
            }
        }
        if step.effects.contains(&Effect::WantServer) {
            self.agenda.plan(self.now.after(self.scenario.server_ms), Due::Hosted(id));
        }
        for (ticket, fate) in step.fates {
            self.settle(ticket, fate);
        }
        self.changed();
    }

    fn plan_answers(&mut self, life: &Match) {
        for member in &life.members {
            let Some(taken) = self.taken.get(&member.ticket) else { continue };
            let mut dice = self.visit_dice(taken.party, About::Answer);
            // Each further check of one visit is answered anew.
            for _ in 0..taken.returns {
                let _: u64 = dice.random();
            }
            let delay: f64 = dice.sample(Exp1);
            let delay_ms = (delay * self.scenario.ready.answer_s * 1_000.0) as u64;
            self.agenda.plan(self.now.after(delay_ms), Due::Answers(life.id, member.ticket));
        }
    }

    /// A party answers, or does not; all of it together.
    pub(super) fn answers(&mut self, id: MatchId, ticket: TicketId) {
        let Some(taken) = self.taken.get(&ticket) else { return };
        let mut dice = self.visit_dice(taken.party, About::Answer);
        for _ in 0..=taken.returns {
            let _: u64 = dice.random();
        }
        let said = 100.0 * dice.random::<f64>();
        let ready = &self.scenario.ready;
        let accept = said < ready.accept_percent;
        if !accept && ready.accept_percent + ready.decline_percent <= said {
            return;
        }
        let users: Vec<UserKey> = taken.entrant.ticket.session.players.iter().map(|player| player.user).collect();
        self.event(id, Event::Answered { ticket, users, accept });
    }

    /// A stage may be at its end.
    pub(super) fn deadline(&mut self, id: MatchId) {
        self.event(id, Event::DeadlinePassed);
    }

    /// A game server has been found.
    pub(super) fn hosted(&mut self, id: MatchId) {
        self.event(id, Event::ServerFound(Place::Nowhere));
    }

    /// Play begins: those who waited have waited so long.
    fn begins(&mut self, id: MatchId, life: &Match, until: UnixMs) {
        let Some(play) = self.plays.get(&id) else { return };
        let (number, teams) = (play.number, play.teams.clone());
        let mut dice = dice(self.seed, About::Match, number, 0);
        let longer: f64 = dice.sample(StandardNormal);
        let minutes = self.scenario.rhythm.match_minutes * (1.0 + 0.2 * longer).clamp(0.3, 2.0);
        let ends = self.now.after((minutes * 60_000.0) as u64);
        match ends < until {
            true => self.agenda.plan(ends, Due::Played(id)),
            false => self.agenda.plan(until, Due::Deadline(id)),
        }
        if 0 < self.life.meetings_ms {
            self.meetings.extend(life.meetings());
            self.met = None;
        }
        if self.counts(self.now) {
            self.tally.matches[1] += 1;
            let mut ratings = vec![Vec::new(); teams.len()];
            for member in &life.members {
                let Some(taken) = self.taken.get(&member.ticket) else { continue };
                ratings[usize::from(member.team)].extend(taken.entrant.ratings.iter().copied());
            }
            self.count_gaps(&teams, &ratings);
        }
        for member in &life.members {
            self.count_wait(member.ticket, usize::from(member.team), id);
        }
    }

    fn count_wait(&mut self, ticket: TicketId, team: usize, id: MatchId) {
        let Some(taken) = self.taken.get(&ticket) else { return };
        let entered = taken.entrant.ticket.entered;
        let (party, size) = (taken.party, taken.entrant.size);
        if !self.counts(entered) {
            return;
        }
        let waited_ms = self.now.since(entered);
        let ms = u32::try_from(waited_ms).unwrap_or(u32::MAX);
        self.tally.waits.push(Wait { ms, party: size, city: self.people.parties[party].city });
        self.count_offer(waited_ms);
        if self.people.outlier == Some(party)
            && let Some(outlier) = self.tally.outlier.as_mut()
        {
            outlier.waits_ms.push(ms);
            let chances = self.plays.get(&id).and_then(|play| play.chances.as_ref());
            outlier.chances.extend(chances.and_then(|chances| chances.get(team)));
        }
    }

    /// A match has been played: what came of it, and what it changes.
    pub(super) fn played(&mut self, id: MatchId) {
        let Some(play) = self.plays.get(&id) else { return };
        let (number, teams, chances) = (play.number, play.teams.clone(), play.chances.clone());
        let ranks = truth::ranks(&self.strengths(&teams), &mut dice(self.seed, About::Match, number, 1));
        if let Some(chances) = chances.filter(|_| self.counts(self.now)) {
            let favourite = (0..chances.len()).max_by(|&one, &other| chances[one].total_cmp(&chances[other]));
            if let Some(favourite) = favourite {
                self.tally.predicted.push(Predicted { chance: chances[favourite], won: ranks[favourite] == 1 });
            }
        }
        if let Some(spec) = &self.ruleset.rating {
            self.rate(spec, &teams, &ranks);
        }
        self.event(id, Event::Reported { by: None });
    }

    fn rate(&mut self, spec: &RatingSpec, teams: &[Vec<usize>], ranks: &[u32]) {
        let stored = |person: &usize| self.people.all[*person].skill.unwrap_or_else(|| spec.newcomer());
        let side = |(team, &rank): (&Vec<usize>, &u32)| Side { players: team.iter().map(stored).collect(), rank };
        let sides: Vec<Side> = teams.iter().zip(ranks).map(side).collect();
        let Ok(after) = spec.rate_in(&sides, self.now, self.played) else { return };
        self.played = after.iter().flatten().fold(self.played, Played::with);
        for (&person, skill) in teams.iter().flatten().zip(after.into_iter().flatten()) {
            let person = &mut self.people.all[person];
            let user = person.user;
            if let Some(before) = person.skill.replace(skill) {
                self.board.remove(&Standing { user, score: spec.score(before.rated) });
            }
            self.board.insert(Standing { user, score: spec.score(skill.rated) });
        }
    }

    /// Puts everybody who has played before onto the leaderboard.
    pub(super) fn rank_everybody(&mut self) {
        let Some(spec) = self.ruleset.rating.as_ref() else { return };
        let standing = |person: &Person| Some(Standing { user: person.user, score: spec.score(person.skill?.rated) });
        self.board = Board::of(self.people.all.iter().filter_map(standing).collect());
    }

    fn ends(&mut self, outcome: Outcome, proposed: UnixMs) {
        if !self.counts(proposed) {
            return;
        }
        let which = match outcome {
            Outcome::Played | Outcome::Lapsed => 2,
            Outcome::Declined | Outcome::Cancelled => 3,
            Outcome::Unanswered => 4,
            Outcome::NoServer | Outcome::ServerFailed => 5,
        };
        self.tally.matches[which] += 1;
    }

    fn punish(&mut self, id: MatchId, users: &[UserKey]) {
        let Some(check) = self.ruleset.ready_check.as_ref().filter(|_| !users.is_empty()) else { return };
        let Some(play) = self.plays.get(&id) else { return };
        for &person in play.teams.iter().flatten() {
            let person = &mut self.people.all[person];
            if users.contains(&person.user) {
                let penalty = penalise(&check.penalties_ms, check.reset_after_ms, person.penalty, self.now);
                person.penalty = Some(penalty);
            }
        }
    }

    /// What becomes of a ticket whose match is over.
    fn settle(&mut self, ticket: TicketId, fate: Fate) {
        let Some(mut taken) = self.taken.remove(&ticket) else { return };
        let party = taken.party;
        match fate {
            Fate::Returns => {
                taken.returns += 1;
                let impatient = taken.impatient;
                self.waiting.insert(ticket, taken);
                if impatient {
                    self.gives_up(ticket);
                }
            }
            Fate::Ends(Ending::Played) => {
                let it = &mut self.people.parties[party];
                it.matches_left = it.matches_left.saturating_sub(1);
                match it.matches_left {
                    0 => self.leaves(party),
                    _ => self.pauses(party),
                }
            }
            Fate::Ends(_) => {
                self.tally.checked_out += u64::from(self.counts(taken.entrant.ticket.entered));
                match self.people.outlier == Some(party) {
                    true => self.pauses(party),
                    false => self.leaves(party),
                }
            }
        }
    }
}
