//! Parties sit down, enter the queue, have enough of waiting, and go.

use std::sync::Arc;

use rand::Rng as _;
use rand_distr::{Exp1, Geometric, StandardNormal};

use crate::domain::attribute::{Origin, Source, Value, ValueKind};
use crate::domain::id::{SiloId, TicketId};
use crate::domain::queue::entrant::Entrant;
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::rating::board::Standing;
use crate::domain::result::Satisfaction;
use crate::domain::ruleset::queue::Regions;
use crate::domain::session::{Player, Session};
use crate::domain::time::UnixMs;
use crate::sim::agenda::Due;
use crate::sim::dice::{About, Dice, dice, name};
use crate::sim::people::Person;
use crate::sim::world::{Waiting, World};

/// What one names here, for `dice::name`.
const TICKETS: u64 = 2;

/// Visits of one sitting that dice tell apart.
const VISITS_MAX: u64 = 1 << 20;

/// How far patience differs from party to party: the deviation of its logarithm.
const PATIENCE_SPREAD: f64 = 0.6;

/// The silo in which everybody plays.
const SILO: SiloId = SiloId(1);

impl World<'_> {
    /// Plans when each party first sits down; the outlier does at once.
    pub(super) fn plan_arrivals(&mut self) {
        let begin = self.now;
        for party in 0..self.people.parties.len() {
            match self.people.outlier == Some(party) {
                true => self.agenda.plan(begin, Due::Arrives(party)),
                false => self.plan_arrival(party, begin),
            }
        }
    }

    fn plan_arrival(&mut self, party: usize, after: UnixMs) {
        let number = self.people.parties[party].sitting + 1;
        let span = (after, self.span.1);
        if let Some(at) = self.people.next_sitting(self.scenario, self.map, self.seed, (party, number), span) {
            self.agenda.plan(at, Due::Arrives(party));
        }
    }

    /// A party sits down, unless it still sits. When it next does is decided now, whatever comes of this sitting.
    pub(super) fn arrives(&mut self, party: usize) {
        let mut dice = dice(self.seed, About::Sitting, party as u64, u64::MAX - self.people.parties[party].sitting);
        let mean = self.scenario.rhythm.matches_a_sitting;
        let more = Geometric::new((1.0 / mean).clamp(f64::MIN_POSITIVE, 1.0)).map_or(0, |more| dice.sample(more));
        let is_outlier = self.people.outlier == Some(party);
        let it = &mut self.people.parties[party];
        it.sitting += 1;
        let sits = 0 < it.matches_left;
        if !sits {
            (it.matches_left, it.visits) = (if is_outlier { u64::MAX } else { 1 + more }, 0);
            self.connected += it.people.len() as u32;
            self.agenda.plan(self.now, Due::Enters(party));
        }
        if !is_outlier {
            self.plan_arrival(party, self.now);
        }
    }

    /// The dice of a party's present visit to the queue.
    pub(super) fn visit_dice(&self, party: usize, what: About) -> Dice {
        let it = &self.people.parties[party];
        dice(self.seed, what, party as u64, it.sitting * VISITS_MAX + it.visits % VISITS_MAX)
    }

    /// A party enters the queue; later, if it may not yet.
    pub(super) fn enters(&mut self, party: usize) {
        if let Some(until) = self.people.barred(party, self.now) {
            return self.agenda.plan(until, Due::Enters(party));
        }
        self.people.parties[party].visits += 1;
        self.tickets += 1;
        let id = TicketId::from_bytes(name(self.seed, TICKETS, self.tickets));
        let ticket = Arc::new(self.ticket(party, id));
        let place = self.place(party, &ticket.ratings);
        let frustrated = self.is_frustrated(party);
        let entrant = Entrant { frustrated, ..Entrant::of(self.ruleset, self.queue, ticket, place) };
        if self.counts(self.now) {
            self.tally.entered[0] += 1;
            self.tally.entered[1] += u64::from(entrant.size);
        }
        self.waiting.insert(id, Waiting { entrant, party, impatient: false, why: None, returns: 0 });
        let mut dice = self.visit_dice(party, About::Visit);
        let spread: f64 = dice.sample(StandardNormal);
        let minutes = self.scenario.rhythm.patience_minutes * (PATIENCE_SPREAD * spread).exp();
        self.agenda.plan(self.now.after((minutes * 60_000.0) as u64), Due::GivesUp(id));
        self.changed();
    }

    /// Whether the queue looks after somebody of a party (S1-97). Nobody leaves a match here, and nobody scores one: streaks alone
    /// tell.
    fn is_frustrated(&self, party: usize) -> bool {
        let Some(rule) = &self.queue.satisfaction else { return false };
        let people = &self.people.all[self.people.parties[party].people.clone()];
        let unknown = Satisfaction::default();
        people.iter().filter_map(|person| person.skill).any(|it| rule.looks_after(it.streak, it.matches, &unknown))
    }

    /// What a party says of itself, and what is known of it.
    fn ticket(&self, party: usize, id: TicketId) -> Ticket {
        let it = &self.people.parties[party];
        let origin = Origin::Server;
        let player = |place: usize| {
            let user = self.people.all[place].user;
            Player { user, player: user, skill: self.people.said(place, self.ruleset) }
        };
        let players: Vec<Player> = it.people.clone().map(player).collect();
        let known = |place: usize| {
            let spec = self.ruleset.rating.as_ref()?;
            Some(self.people.all[place].skill.unwrap_or_else(|| spec.newcomer()).rated)
        };
        let rated = it.people.clone().zip(&players);
        let ratings = rated.map(|(place, player)| Rated::at_entry(self.ruleset, known(place), player.skill, origin));
        let city = &self.map.cities[usize::from(it.city)];
        Ticket {
            id,
            set_id: self.ruleset.set_id,
            subject: None,
            entered: self.now,
            ratings: ratings.collect(),
            session: Session {
                silo: SILO,
                party_sizes: vec![players.len() as u8],
                players,
                nat_type: Some(it.nat),
                game_in_progress: Some(false),
                big_party_count: Some(0),
                join_seats: 0,
                locality: city.believed,
                attributes: self.attributes(party),
                regions: if self.goes_by_regions() { self.map.to_regions(it.city).into() } else { Box::default() },
                origin,
            },
            blocked: Vec::new(),
            alone: !self.queue.several_queues,
        }
    }

    /// Of the game's own attributes only the region is known, where regions are separate: that of the party's city.
    fn attributes(&self, party: usize) -> Vec<(Box<str>, Value)> {
        let Some(Regions::Separate { attribute }) = self.queue.regions else { return Vec::new() };
        let attribute = &self.ruleset.attributes[attribute];
        if attribute.source != Source::Map || attribute.kind != ValueKind::Text {
            return Vec::new();
        }
        let region = &self.map.cities[usize::from(self.people.parties[party].city)].region;
        vec![(attribute.name.clone(), Value::Text(region.clone()))]
    }

    /// A party's place on the leaderboard: the mean of its players'.
    pub(super) fn place(&self, party: usize, ratings: &[Rated]) -> Option<f64> {
        let spec = self.ruleset.rating.as_ref().filter(|_| self.goes_by_places())?;
        let people = &self.people.all[self.people.parties[party].people.clone()];
        let place = |(person, rated): (&Person, &Rated)| match person.skill {
            Some(skill) => self.board.place(&Standing { user: person.user, score: spec.score(skill.rated) }) as f64,
            None => self.board.place_of_score(spec.score(*rated)) as f64,
        };
        let sum: f64 = people.iter().zip(ratings).map(place).sum();
        Some(sum / ratings.len().max(1) as f64)
    }

    /// A party has had enough. In a match that may yet come about it hopes on.
    pub(super) fn gives_up(&mut self, id: TicketId) {
        if let Some(taken) = self.taken.get_mut(&id) {
            taken.impatient = true;
            return;
        }
        let Some(waiting) = self.waiting.remove(&id) else { return };
        let waited_ms = self.now.since(waiting.entrant.ticket.entered);
        if self.counts(waiting.entrant.ticket.entered) {
            self.tally.gave_up_ms.push(u32::try_from(waited_ms).unwrap_or(u32::MAX));
            self.count_offer(waited_ms);
            let why = waiting.why.map_or_else(|| "not looked at".to_owned(), |why| Self::rule(self.ruleset, why));
            *self.tally.kept_waiting.entry(why).or_default() += 1;
        }
        if self.people.outlier == Some(waiting.party) {
            if let Some(outlier) = self.tally.outlier.as_mut() {
                outlier.gave_up += 1;
            }
            // It grumbles and tries again.
            self.pauses(waiting.party);
        } else {
            self.leaves(waiting.party);
        }
        self.changed();
    }

    /// Counts a ticket that waited long enough to be offered another set (S4-16).
    pub(super) fn count_offer(&mut self, waited_ms: u64) {
        self.tally.offered += u64::from(self.queue.offer.is_some_and(|offer| offer.after_ms <= waited_ms));
    }

    /// A party goes home.
    pub(super) fn leaves(&mut self, party: usize) {
        let it = &mut self.people.parties[party];
        it.matches_left = 0;
        self.connected = self.connected.saturating_sub(it.people.len() as u32);
    }

    /// A party comes back after a while.
    pub(super) fn pauses(&mut self, party: usize) {
        let mut dice = self.visit_dice(party, About::Visit);
        // The first throw was patience.
        let _: f64 = dice.sample(StandardNormal);
        let pause: f64 = dice.sample(Exp1);
        let pause_ms = (pause * self.scenario.rhythm.pause_s * 1_000.0) as u64;
        self.agenda.plan(self.now.after(pause_ms), Due::Enters(party));
    }
}
