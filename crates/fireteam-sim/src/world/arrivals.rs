//! Parties sit down, enter the queue, have enough of waiting, and go.

use std::sync::Arc;

use rand::Rng as _;
use rand_distr::{Exp1, Geometric, StandardNormal};

use crate::event_queue::ScheduledEvent;
use crate::population::SimPlayer;
use crate::rng::{RngPurpose, SimRng, generated_id, stream_rng};
use crate::world::{SimTicket, SimWorld};
use fireteam_domain::attribute::{AttributeSource, AttributeValue, ValueOrigin, ValueType};
use fireteam_domain::id::{SiloId, TicketId};
use fireteam_domain::match_result::SatisfactionStats;
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::queue::ticket::{PlayerRating, Ticket};
use fireteam_domain::rating::leaderboard::LeaderboardEntry;
use fireteam_domain::ruleset::queue::RegionMode;
use fireteam_domain::session::{Player, Session};
use fireteam_domain::time::UnixMs;

/// What one names here, for `dice::name`.
const TICKET_ID_KIND: u64 = 2;

/// Visits of one sitting that dice tell apart.
const QUEUE_VISITS_PER_SESSION_MAX: u64 = 1 << 20;

/// How far patience differs from party to party: the deviation of its logarithm.
const PATIENCE_LOG_DEVIATION: f64 = 0.6;

/// The silo in which everybody plays.
const SIM_SILO: SiloId = SiloId(1);

impl SimWorld<'_> {
    /// Plans when each party first sits down; the outlier does at once.
    pub(super) fn schedule_first_play_sessions(&mut self) {
        let begin = self.now;
        for party in 0..self.population.parties.len() {
            match self.population.outlier_party == Some(party) {
                true => self.event_queue.schedule(begin, ScheduledEvent::PlaySessionStarts(party)),
                false => self.schedule_next_play_session(party, begin),
            }
        }
    }

    fn schedule_next_play_session(&mut self, party: usize, after: UnixMs) {
        let number = self.population.parties[party].play_session + 1;
        let span = (after, self.counted_span.1);
        if let Some(at) = self.population.next_play_session(self.scenario, self.map, self.seed, (party, number), span) {
            self.event_queue.schedule(at, ScheduledEvent::PlaySessionStarts(party));
        }
    }

    /// A party sits down, unless it still sits. When it next does is decided now, whatever comes of this sitting.
    pub(super) fn start_play_session(&mut self, party: usize) {
        let mut dice = stream_rng(
            self.seed,
            RngPurpose::PlaySession,
            party as u64,
            u64::MAX - self.population.parties[party].play_session,
        );
        let mean = self.scenario.rhythm.matches_a_sitting;
        let more = Geometric::new((1.0 / mean).clamp(f64::MIN_POSITIVE, 1.0)).map_or(0, |more| dice.sample(more));
        let is_outlier = self.population.outlier_party == Some(party);
        let it = &mut self.population.parties[party];
        it.play_session += 1;
        let sits = 0 < it.matches_left_in_session;
        if !sits {
            (it.matches_left_in_session, it.queue_visits) = (if is_outlier { u64::MAX } else { 1 + more }, 0);
            self.connected_players += it.players.len() as u32;
            self.event_queue.schedule(self.now, ScheduledEvent::PartyEntersQueue(party));
        }
        if !is_outlier {
            self.schedule_next_play_session(party, self.now);
        }
    }

    /// The dice of a party's present visit to the queue.
    pub(super) fn queue_visit_rng(&self, party: usize, what: RngPurpose) -> SimRng {
        let it = &self.population.parties[party];
        stream_rng(
            self.seed,
            what,
            party as u64,
            it.play_session * QUEUE_VISITS_PER_SESSION_MAX + it.queue_visits % QUEUE_VISITS_PER_SESSION_MAX,
        )
    }

    /// A party enters the queue; later, if it may not yet.
    pub(super) fn enter_queue(&mut self, party: usize) {
        if let Some(until) = self.population.cooldown_until(party, self.now) {
            return self.event_queue.schedule(until, ScheduledEvent::PartyEntersQueue(party));
        }
        self.population.parties[party].queue_visits += 1;
        self.ticket_count += 1;
        let id = TicketId::from_bytes(generated_id(self.seed, TICKET_ID_KIND, self.ticket_count));
        let ticket = Arc::new(self.make_ticket(party, id));
        let place = self.mean_leaderboard_index(party, &ticket.player_ratings);
        let frustrated = self.is_frustrated(party);
        let entrant = PreparedTicket { frustrated, ..PreparedTicket::new(self.ruleset, self.queue, ticket, place) };
        if self.is_counted(self.now) {
            self.tally.entered_counts[0] += 1;
            self.tally.entered_counts[1] += u64::from(entrant.player_count);
        }
        self.waiting_tickets.insert(
            id,
            SimTicket {
                prepared_ticket: entrant,
                party_index: party,
                patience_ended: false,
                last_refusal: None,
                return_count: 0,
            },
        );
        let mut dice = self.queue_visit_rng(party, RngPurpose::QueueVisit);
        let spread: f64 = dice.sample(StandardNormal);
        let minutes = self.scenario.rhythm.patience_minutes * (PATIENCE_LOG_DEVIATION * spread).exp();
        self.event_queue.schedule(self.now.plus_ms((minutes * 60_000.0) as u64), ScheduledEvent::PatienceEnds(id));
        self.mark_queue_changed();
    }

    /// Whether the queue looks after somebody of a party (S1-97). Nobody leaves a match here, and nobody scores one: streaks alone
    /// tell.
    fn is_frustrated(&self, party: usize) -> bool {
        let Some(rule) = &self.queue.satisfaction else { return false };
        let people = &self.population.players[self.population.parties[party].players.clone()];
        let unknown = SatisfactionStats::default();
        people
            .iter()
            .filter_map(|person| person.known_skill)
            .any(|it| rule.is_frustrated(it.streak, it.match_count, &unknown))
    }

    /// What a party says of itself, and what is known of it.
    fn make_ticket(&self, party: usize, id: TicketId) -> Ticket {
        let it = &self.population.parties[party];
        let origin = ValueOrigin::GameServer;
        let player = |place: usize| {
            let user = self.population.players[place].user;
            Player { user, client_key: user, stated_skill: self.population.declared_skill(place, self.ruleset) }
        };
        let players: Vec<Player> = it.players.clone().map(player).collect();
        let known = |place: usize| {
            let spec = self.ruleset.rating.as_ref()?;
            Some(self.population.players[place].known_skill.unwrap_or_else(|| spec.initial_skill()).estimate)
        };
        let rated = it.players.clone().zip(&players);
        let ratings = rated.map(|(place, player)| {
            PlayerRating::at_queue_entry(self.ruleset, known(place), player.stated_skill, origin)
        });
        let city = &self.map.cities[usize::from(it.city)];
        Ticket {
            id,
            set_id: self.ruleset.set_id,
            subject: None,
            entered_at: self.now,
            player_ratings: ratings.collect(),
            session: Session {
                silo: SIM_SILO,
                party_sizes: vec![players.len() as u8],
                players,
                nat_type: Some(it.nat_type),
                game_in_progress: Some(false),
                big_party_count: Some(0),
                join_seats: 0,
                locality: city.estimated_location,
                attributes: self.session_attributes(party),
                region_latencies: if self.uses_region_latencies() {
                    self.map.region_round_trips(it.city).into()
                } else {
                    Box::default()
                },
                origin,
            },
            blocked_users: Vec::new(),
            exclusive: !self.queue.several_queues,
        }
    }

    /// Of the game's own attributes only the region is known, where regions are separate: that of the party's city.
    fn session_attributes(&self, party: usize) -> Vec<(Box<str>, AttributeValue)> {
        let Some(RegionMode::Separate { attribute }) = self.queue.regions else { return Vec::new() };
        let attribute = &self.ruleset.attributes[attribute];
        if attribute.source != AttributeSource::AttributeMap || attribute.value_type != ValueType::String {
            return Vec::new();
        }
        let region = &self.map.cities[usize::from(self.population.parties[party].city)].region;
        vec![(attribute.name.clone(), AttributeValue::String(region.clone()))]
    }

    /// A party's place on the leaderboard: the mean of its players'.
    pub(super) fn mean_leaderboard_index(&self, party: usize, ratings: &[PlayerRating]) -> Option<f64> {
        let spec = self.ruleset.rating.as_ref().filter(|_| self.uses_leaderboard_ranks())?;
        let people = &self.population.players[self.population.parties[party].players.clone()];
        let place = |(person, rated): (&SimPlayer, &PlayerRating)| match person.known_skill {
            Some(skill) => self.leaderboard.index_of(&LeaderboardEntry {
                user: person.user,
                conservative_rating: spec.conservative_rating(skill.estimate),
            }) as f64,
            None => self.leaderboard.index_of_rating(spec.conservative_rating(*rated)) as f64,
        };
        let sum: f64 = people.iter().zip(ratings).map(place).sum();
        Some(sum / ratings.len().max(1) as f64)
    }

    /// A party has had enough. In a match that may yet come about it hopes on.
    pub(super) fn give_up(&mut self, id: TicketId) {
        if let Some(taken) = self.matched_tickets.get_mut(&id) {
            taken.patience_ended = true;
            return;
        }
        let Some(waiting) = self.waiting_tickets.remove(&id) else { return };
        let waited_ms = self.now.ms_since(waiting.prepared_ticket.ticket.entered_at);
        if self.is_counted(waiting.prepared_ticket.ticket.entered_at) {
            self.tally.abandoned_waits_ms.push(u32::try_from(waited_ms).unwrap_or(u32::MAX));
            self.count_other_set_offer(waited_ms);
            let why = waiting
                .last_refusal
                .map_or_else(|| "not looked at".to_owned(), |why| Self::rule_name(self.ruleset, why));
            *self.tally.unmatched_by_rule.entry(why).or_default() += 1;
        }
        if self.population.outlier_party == Some(waiting.party_index) {
            if let Some(outlier) = self.tally.outlier.as_mut() {
                outlier.gave_up_count += 1;
            }
            // It grumbles and tries again.
            self.schedule_reentry(waiting.party_index);
        } else {
            self.end_play_session(waiting.party_index);
        }
        self.mark_queue_changed();
    }

    /// Counts a ticket that waited long enough to be offered another set (S4-16).
    pub(super) fn count_other_set_offer(&mut self, waited_ms: u64) {
        self.tally.tickets_offered_another_set +=
            u64::from(self.queue.offer.is_some_and(|offer| offer.after_ms <= waited_ms));
    }

    /// A party goes home.
    pub(super) fn end_play_session(&mut self, party: usize) {
        let it = &mut self.population.parties[party];
        it.matches_left_in_session = 0;
        self.connected_players = self.connected_players.saturating_sub(it.players.len() as u32);
    }

    /// A party comes back after a while.
    pub(super) fn schedule_reentry(&mut self, party: usize) {
        let mut dice = self.queue_visit_rng(party, RngPurpose::QueueVisit);
        // The first throw was patience.
        let _: f64 = dice.sample(StandardNormal);
        let pause: f64 = dice.sample(Exp1);
        let pause_ms = (pause * self.scenario.rhythm.pause_s * 1_000.0) as u64;
        self.event_queue.schedule(self.now.plus_ms(pause_ms), ScheduledEvent::PartyEntersQueue(party));
    }
}
