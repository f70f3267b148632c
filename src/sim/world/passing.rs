//! Passes over the queue, when the server's runner would run them, and the matches that come of them.

use crate::domain::id::MatchId;
use crate::domain::life::Member;
use crate::domain::life::event::Fresh;
use crate::domain::life::step::begin;
use crate::domain::limit::PASS_LOOKS_MAX;
use crate::domain::queue::avoid::Meetings;
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::gate::{LastPass, is_worth_running};
use crate::domain::queue::pass::{PassInput, PassOutcome};
use crate::domain::queue::proposal::Proposal;
use crate::domain::rating::Skill;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::sim::agenda::Due;
use crate::sim::dice::{About, name, number};
use crate::sim::people::NOBODY;
use crate::sim::truth;
use crate::sim::world::{Look, Play, World};

/// What one names here, for `dice::name`.
const MATCHES: u64 = 3;

impl World<'_> {
    /// Somebody came, went, came back or was taken: the queue is worth another look.
    pub(super) fn changed(&mut self) {
        self.queue_state.changed = true;
        self.plan_pass(self.now);
    }

    /// Plans a pass at `at`, or as soon after as the ruleset's interval allows; of several the soonest.
    fn plan_pass(&mut self, at: UnixMs) {
        let state = &mut self.queue_state;
        let every = u64::from(self.queue.pass_every_ms);
        let at = state.last_at.map_or(at, |last| at.max(last.after(every))).max(self.now);
        if state.planned.is_none_or(|planned| at < planned) {
            state.planned = Some(at);
            self.agenda.plan(at, Due::Pass);
        }
    }

    /// Runs a pass, if it is time and may find anything.
    pub(super) fn pass(&mut self, look: Look<'_>) {
        if self.queue_state.planned != Some(self.now) {
            return;
        }
        self.queue_state.planned = None;
        self.queue_state.last_at = Some(self.now);
        let crowd = self.crowd();
        let changed = self.queue_state.changed;
        if !is_worth_running(&self.queue.gate, &self.queue_state.last, changed, crowd, self.now) {
            self.tally.passes[1] += u64::from(self.counts(self.now));
            return self.plan_next(false);
        }
        self.queue_state.changed = false;
        self.queue_state.passes += 1;
        self.look_up_places();
        let meetings = self.met.take().unwrap_or_else(|| self.remembered());
        let entrants: Vec<&Entrant> = self.waiting.values().map(|waiting| &waiting.entrant).collect();
        let PassOutcome { proposals, report } = look(&PassInput {
            ruleset: self.ruleset,
            queue: self.queue,
            teams: self.teams,
            entrants: &entrants,
            sessions: &[],
            meetings: &meetings,
            crowd,
            now: self.now,
            seed: number(self.seed, About::Pass, self.queue_state.passes, 0),
            looks_max: PASS_LOOKS_MAX,
        });
        drop(entrants);
        self.met = Some(meetings);
        self.queue_state.last = LastPass {
            found_nothing: proposals.is_empty() && !report.out_of_looks,
            next_change: report.next_change,
            crowd,
        };
        if self.counts(self.now) {
            let ruleset = self.ruleset;
            self.tally.pass(&report, |refusal| Self::rule(ruleset, refusal));
        }
        for left in &report.left {
            if let Some(waiting) = self.waiting.get_mut(&left.ticket) {
                waiting.why = Some(left.refusal);
            }
        }
        let any = !proposals.is_empty();
        if any {
            let about = self.about();
            proposals.into_iter().for_each(|proposal| self.propose(proposal, &about));
        }
        self.plan_next(any);
    }

    /// When the queue is looked at again if nothing happens before.
    fn plan_next(&mut self, any: bool) {
        let next = self.queue_state.last.next_change;
        let looks_anyway = !self.queue.gate.skip_unchanged && !self.waiting.is_empty();
        if any || self.queue_state.changed || looks_anyway {
            self.plan_pass(self.now);
        }
        if let Some(next) = next {
            self.plan_pass(next);
        }
    }

    /// Places change while parties wait.
    fn look_up_places(&mut self) {
        if !self.goes_by_places() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        for it in waiting.values_mut() {
            it.entrant.place = self.place(it.party, &it.entrant.ticket.ratings);
        }
        self.waiting = waiting;
    }

    /// Who has met whom, as far back as the ruleset asks.
    fn remembered(&mut self) -> Meetings {
        let back_ms = self.life.meetings_ms;
        while self.meetings.front().is_some_and(|met| back_ms <= self.now.since(met.began)) {
            self.meetings.pop_front();
        }
        Meetings::of(self.meetings.iter().copied())
    }

    /// How many players wait in each city.
    fn about(&self) -> Vec<u32> {
        let mut about = vec![0; self.map.cities.len()];
        for waiting in self.waiting.values() {
            let city = self.people.parties[waiting.party].city;
            about[usize::from(city)] += u32::from(waiting.entrant.size);
        }
        about
    }

    /// Makes a match of a proposal; `about` says who waited where when the pass ran.
    fn propose(&mut self, proposal: Proposal, about: &[u32]) {
        self.proposals += 1;
        let id = MatchId::from_bytes(name(self.seed, MATCHES, self.proposals));
        let mut members = Vec::new();
        let mut teams: Vec<Vec<usize>> = Vec::new();
        for (team, placed) in proposal.teams.iter().enumerate() {
            teams.push(Vec::new());
            for it in placed {
                let Some(waiting) = self.waiting.remove(&it.ticket) else { continue };
                teams[team].extend(self.people.parties[waiting.party].people.clone());
                members.push(Member::of(&waiting.entrant.ticket, team as u16, &it.roles));
                self.taken.insert(it.ticket, waiting);
            }
        }
        if self.counts(self.now) {
            self.tally.matches[0] += 1;
            self.count_trips(&teams, proposal.region.as_deref(), about);
        }
        let chances = self.predict(&teams);
        let fresh = Fresh {
            id,
            set_id: self.ruleset.set_id,
            silo: Default::default(),
            hash: self.ruleset.hash,
            members,
            quality: proposal.quality,
            region: proposal.region,
            backfills: proposal.backfills,
        };
        let taken = &self.taken;
        let open = |ticket| taken.get(&ticket).is_some_and(|it| it.entrant.ticket.session.nat_type == Some(1));
        let step = begin(&self.life, fresh, &open, self.now);
        let number = self.proposals;
        if let Some(life) = step.next.clone() {
            self.plays.insert(id, Play { life, number, teams, chances });
        }
        self.follow(id, step);
    }

    /// The teams' chances as the rating system sees them.
    fn predict(&self, teams: &[Vec<usize>]) -> Option<Vec<f64>> {
        let spec = self.ruleset.rating.as_ref()?;
        let skills = |team: &Vec<usize>| -> Vec<Skill> { team.iter().map(|&person| self.skill(person)).collect() };
        let sides: Vec<Vec<Skill>> = teams.iter().map(skills).collect();
        spec.win_chances(&sides).ok()
    }

    /// What the set knows of a person by now.
    pub(super) fn skill(&self, person: usize) -> Skill {
        let spec = self.ruleset.rating.as_ref();
        let stored = self.people.all[person].skill;
        let newcomer = || spec.map(RatingSpec::newcomer);
        let skill = stored.or_else(newcomer).unwrap_or(NOBODY);
        spec.map_or(skill, |spec| spec.at_in(skill, self.now, self.played))
    }

    /// Counts what the players' round trips are, and how much better they could have been.
    fn count_trips(&mut self, teams: &[Vec<usize>], region: Option<&str>, about: &[u32]) {
        let cities: Vec<u16> = teams.iter().flatten().map(|&person| self.people.all[person].city).collect();
        let others = cities.len() as u32 - 1;
        for &city in &cities {
            let trips = self.map.to_regions(city);
            let there = region.and_then(|name| trips.iter().find(|trip| *trip.region == *name));
            let (trip, best) = match there {
                Some(there) => {
                    let best = trips.iter().map(|trip| trip.round_trip_ms).fold(f32::INFINITY, f32::min);
                    (f64::from(there.round_trip_ms), f64::from(best))
                }
                None => {
                    let farthest = cities.iter().map(|&other| self.map.trip_ms(city, other)).fold(0.0, f64::max);
                    (farthest, self.map.reach_ms(city, about, others).unwrap_or(farthest))
                }
            };
            self.tally.round_trips_ms.push(trip as f32);
            self.tally.regrets_ms.push((trip - best).max(0.0) as f32);
        }
    }

    /// Every team's true strength.
    pub(super) fn strengths(&self, teams: &[Vec<usize>]) -> Vec<f64> {
        let mean = |team: &Vec<usize>| {
            team.iter().map(|&person| self.people.all[person].truth).sum::<f64>() / team.len().max(1) as f64
        };
        teams.iter().map(mean).collect()
    }

    /// Counts how far apart those are who begin a match.
    pub(super) fn count_gaps(&mut self, teams: &[Vec<usize>], ratings: &[Vec<f64>]) {
        let span = |values: &mut dyn Iterator<Item = f64>| {
            let (least, most) = values
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
            most - least
        };
        let mean = |team: &Vec<f64>| team.iter().sum::<f64>() / team.len().max(1) as f64;
        self.tally.rating_gaps.push(span(&mut ratings.iter().flatten().copied()));
        self.tally.team_gaps.push(span(&mut ratings.iter().map(mean)));
        let best = truth::chances(&self.strengths(teams)).into_iter().fold(0.0, f64::max);
        self.tally.true_favourites.push(best);
    }
}
