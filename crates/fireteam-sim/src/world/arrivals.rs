//! Arrivals: play sessions of parties, queue entries, patience and pauses.

use std::sync::Arc;

use rand::Rng as _;
use rand_distr::{Exp1, Geometric, StandardNormal};

use crate::event_queue::SimEvent;
use crate::population::SimPlayer;
use crate::rng::{RngPurpose, SimRng, generated_id, stream_rng};
use crate::world::{SimTicket, SimWorld};
use fireteam_domain::attribute::{AttributeValue, ShortString, SourceField, ValueOrigin, ValueType};
use fireteam_domain::id::{SiloId, TicketId};
use fireteam_domain::match_result::UserSatisfactionStatistics;
use fireteam_domain::player_standing::PlayerStanding;
use fireteam_domain::queue::entry::{EnteredSession, build_entered_session};
use fireteam_domain::queue::prepared_ticket::PreparedTicket;
use fireteam_domain::queue::ticket::{PlayerRating, Ticket};
use fireteam_domain::rating::leaderboard::LeaderboardEntry;
use fireteam_domain::ruleset::queue::FrustratedPlayerSpec;
use fireteam_domain::ruleset::queue::RegionUse;
use fireteam_domain::session::{Player, Session};
use fireteam_domain::time::UnixMs;

/// Kind of ticket ids for `rng::generated_id`.
const TICKET_ID_KIND: u64 = 2;

/// Maximum number of queue visits in one session with distinct random streams.
const QUEUE_VISITS_PER_SESSION_MAX: u64 = 1 << 20;

/// Standard deviation of the logarithm of patience.
const PATIENCE_LOG_DEVIATION: f64 = 0.6;

/// Silo of all players.
const SIM_SILO: SiloId = SiloId(1);

impl SimWorld<'_> {
    /// Schedules the first play session of each party; the outlier's starts at once.
    pub(super) fn schedule_first_play_sessions(&mut self) {
        let now = self.now;
        for party in 0..self.population.parties.len() {
            if self.population.outlier_party == Some(party) {
                self.event_queue.schedule(now, SimEvent::PlaySessionStarts(party));
            } else {
                self.schedule_next_play_session(party, now);
            }
        }
    }

    fn schedule_next_play_session(&mut self, party: usize, after: UnixMs) {
        let number = self.population.parties[party].play_session + 1;
        let span = (after, self.counted_span.1);
        if let Some(at) = self.population.next_play_session(self.scenario, self.map, self.seed, (party, number), span) {
            self.event_queue.schedule(at, SimEvent::PlaySessionStarts(party));
        }
    }

    /// Starts a play session, unless the last one still runs. Schedules the next one now, independent of this session.
    pub(super) fn start_play_session(&mut self, party: usize) {
        let mut rng = stream_rng(
            self.seed,
            RngPurpose::PlaySession,
            party as u64,
            u64::MAX - self.population.parties[party].play_session,
        );
        let mean_matches = self.scenario.activity.matches_per_play_session;
        let more_matches = Geometric::new((1.0 / mean_matches).clamp(f64::MIN_POSITIVE, 1.0))
            .map_or(0, |geometric| rng.sample(geometric));
        let is_outlier = self.population.outlier_party == Some(party);
        let session_party = &mut self.population.parties[party];
        session_party.play_session += 1;
        let still_plays = session_party.matches_left_in_session > 0;
        if !still_plays {
            (session_party.matches_left_in_session, session_party.queue_visits) =
                (if is_outlier { u64::MAX } else { 1 + more_matches }, 0);
            self.connected_players += session_party.players.len() as u32;
            self.event_queue.schedule(self.now, SimEvent::PartyEntersQueue(party));
        }
        if !is_outlier {
            self.schedule_next_play_session(party, self.now);
        }
    }

    /// Random stream of a party's current queue visit.
    pub(super) fn queue_visit_rng(&self, party: usize, purpose: RngPurpose) -> SimRng {
        let sim_party = &self.population.parties[party];
        stream_rng(
            self.seed,
            purpose,
            party as u64,
            sim_party.play_session * QUEUE_VISITS_PER_SESSION_MAX
                + sim_party.queue_visits % QUEUE_VISITS_PER_SESSION_MAX,
        )
    }

    /// Enters a party into the queue, or schedules it for the end of its cooldown.
    pub(super) fn enter_queue(&mut self, party: usize) {
        if let Some(until) = self.population.party_cooldown_until(party, self.now) {
            return self.event_queue.schedule(until, SimEvent::PartyEntersQueue(party));
        }
        self.population.parties[party].queue_visits += 1;
        self.ticket_count += 1;
        let id = TicketId::from_bytes(generated_id(self.seed, TICKET_ID_KIND, self.ticket_count));
        let ticket = Arc::new(self.make_ticket(party, id));
        let leaderboard_index = self.mean_leaderboard_index(party, &ticket.player_ratings);
        let frustrated = self.is_frustrated(party, self.queue.frustrated_player_window);
        let wider_limits = self.is_frustrated(party, self.ruleset.frustrated_player_limits);
        let prepared_ticket =
            PreparedTicket { frustrated, ..PreparedTicket::new(self.ruleset, self.queue, ticket, leaderboard_index) };
        let prepared_ticket = prepared_ticket.with_limits_if_frustrated(self.ruleset, wider_limits);
        if self.is_counted(self.now) {
            self.tally.entered_counts[0] += 1;
            self.tally.entered_counts[1] += u64::from(prepared_ticket.player_count);
        }
        self.waiting_tickets.insert(
            id,
            SimTicket {
                prepared_ticket,
                party_index: party,
                patience_ended: false,
                last_refusal: None,
                return_count: 0,
            },
        );
        let mut rng = self.queue_visit_rng(party, RngPurpose::QueueVisit);
        let log_patience: f64 = rng.sample(StandardNormal);
        let minutes = self.scenario.activity.patience_minutes * (PATIENCE_LOG_DEVIATION * log_patience).exp();
        self.event_queue.schedule(self.now.plus_ms((minutes * 60_000.0) as u64), SimEvent::PatienceEnds(id));
        self.mark_queue_changed();
    }

    /// True if a satisfaction rule applies to a player of the party. Simulated players do not leave matches or give
    /// feedback, so only losing streaks count.
    fn is_frustrated(&self, party: usize, rule: Option<FrustratedPlayerSpec>) -> bool {
        let Some(rule) = rule else { return false };
        let players = &self.population.players[self.population.parties[party].players.clone()];
        let no_feedback = UserSatisfactionStatistics::default();
        players
            .iter()
            .filter_map(|player| player.known_skill)
            .any(|skill| rule.is_frustrated(skill.streak, skill.match_count, &no_feedback))
    }

    /// Standing of a player at the simulated server; `None` without a rating system.
    fn player_standing(&self, player: usize) -> Option<PlayerStanding> {
        let spec = self.ruleset.rating.as_ref()?;
        let skill = self.population.players[player].known_skill.unwrap_or_else(|| spec.initial_skill());
        Some(PlayerStanding {
            rating: skill.estimate,
            rated_match_count: skill.match_count,
            disputed_percent: 0.0,
            // Of the party: `is_frustrated`.
            is_frustrated: false,
        })
    }

    /// Ticket of a party, with declared attributes and stored ratings.
    fn make_ticket(&self, party: usize, id: TicketId) -> Ticket {
        let sim_party = &self.population.parties[party];
        // Where the server rates players, no one states a skill.
        let states_skill = self.ruleset.rating.is_none();
        let player = |index: usize| {
            let user = self.population.players[index].user;
            let declared = || self.population.declared_skill(index, self.ruleset);
            Player { stated_skill: states_skill.then(declared).flatten(), ..Player::from_user(user) }
        };
        let players: Vec<Player> = sim_party.players.clone().map(player).collect();
        let standings: Option<Vec<PlayerStanding>> =
            sim_party.players.clone().map(|index| self.player_standing(index)).collect();
        let city = &self.map.cities[usize::from(sim_party.city)];
        let measured = self.map.region_round_trips(sim_party.city);
        let session = Session {
            silo: SIM_SILO,
            party_sizes: [players.len() as u8].into(),
            players,
            nat_type: Some(sim_party.nat_type),
            game_in_progress: Some(false),
            big_party_count: Some(0),
            offered_seats: 0,
            locality: city.coarse_location,
            attributes: self.city_region_attribute_of_party(party),
            region_latencies: if self.uses_region_latencies() {
                self.map.coarse_region_round_trips(sim_party.city).into()
            } else {
                Box::default()
            },
            value_origin: ValueOrigin::GameServer,
            details: None,
        };
        let EnteredSession { session, player_ratings } =
            build_entered_session(self.ruleset, session, standings.as_deref());
        Ticket {
            id,
            set_id: self.ruleset.set_id,
            subject: None,
            entered_at: self.now,
            player_ratings,
            session,
            exact_round_trips_ms: self
                .uses_region_latencies()
                .then(|| measured.iter().map(|latency| latency.round_trip_ms).collect()),
            blocked_users: Vec::new(),
            rating_digest_key: None,
            excludes_other_tickets: !self.queue.allow_other_queues,
            self_answering_users: Vec::new(),
        }
    }

    /// Attribute values of a session: the region of the party's city if the ruleset partitions by region, otherwise
    /// none.
    fn city_region_attribute_of_party(&self, party: usize) -> Vec<(ShortString, AttributeValue)> {
        let Some(RegionUse::Partition { attribute }) = self.queue.regions else { return Vec::new() };
        let attribute = &self.ruleset.attributes[attribute];
        if attribute.source != SourceField::AttributeMap || attribute.value_type != ValueType::String {
            return Vec::new();
        }
        let region = &self.map.cities[usize::from(self.population.parties[party].city)].region;
        vec![(attribute.name.as_ref().into(), AttributeValue::String(region.as_ref().into()))]
    }

    /// Mean leaderboard index of the party's players.
    pub(super) fn mean_leaderboard_index(&self, party: usize, ratings: &[PlayerRating]) -> Option<f64> {
        let spec = self.ruleset.rating.as_ref().filter(|_| self.uses_leaderboard_ranks())?;
        let players = &self.population.players[self.population.parties[party].players.clone()];
        let index_of_player = |(player, rating): (&SimPlayer, &PlayerRating)| match player.known_skill {
            Some(skill) => self.leaderboard.index_of(&LeaderboardEntry {
                user: player.user,
                conservative_rating: spec.conservative_rating(skill.estimate),
            }) as f64,
            None => self.leaderboard.index_of_rating(spec.conservative_rating(*rating)) as f64,
        };
        let sum: f64 = players.iter().zip(ratings).map(index_of_player).sum();
        Some(sum / ratings.len().max(1) as f64)
    }

    /// Ends the wait of an impatient party. A ticket in a match that may still start stays.
    pub(super) fn give_up(&mut self, id: TicketId) {
        if let Some(matched) = self.matched_tickets.get_mut(&id) {
            matched.patience_ended = true;
            return;
        }
        let Some(ticket) = self.waiting_tickets.remove(&id) else { return };
        let waited_ms = self.now.ms_since(ticket.prepared_ticket.ticket.entered_at);
        if self.is_counted(ticket.prepared_ticket.ticket.entered_at) {
            self.tally.abandoned_waits_ms.push(u32::try_from(waited_ms).unwrap_or(u32::MAX));
            self.count_alternative_set_offer(waited_ms);
            let rule = ticket
                .last_refusal
                .map_or_else(|| "not evaluated".to_owned(), |refusal| Self::rule_name(self.ruleset, refusal));
            *self.tally.unmatched_by_rule.entry(rule).or_default() += 1;
        }
        if self.population.outlier_party == Some(ticket.party_index) {
            if let Some(outlier) = self.tally.outlier.as_mut() {
                outlier.gave_up_tickets += 1;
            }
            // The outlier enters again after a pause.
            self.schedule_reentry(ticket.party_index);
        } else {
            self.end_play_session(ticket.party_index);
        }
        self.mark_queue_changed();
    }

    /// Counts a ticket that waited long enough to be offered another set.
    pub(super) fn count_alternative_set_offer(&mut self, waited_ms: u64) {
        self.tally.tickets_offered_another_set +=
            u64::from(self.queue.offer.is_some_and(|offer| offer.after_ms <= waited_ms));
    }

    /// Ends a party's play session.
    pub(super) fn end_play_session(&mut self, party: usize) {
        let sim_party = &mut self.population.parties[party];
        sim_party.matches_left_in_session = 0;
        self.connected_players = self.connected_players.saturating_sub(sim_party.players.len() as u32);
    }

    /// Schedules the party's next queue entry after a pause.
    pub(super) fn schedule_reentry(&mut self, party: usize) {
        let mut rng = self.queue_visit_rng(party, RngPurpose::QueueVisit);
        // The first draw was the patience.
        let _: f64 = rng.sample(StandardNormal);
        let pause: f64 = rng.sample(Exp1);
        let pause_ms = (pause * self.scenario.activity.pause_s * 1_000.0) as u64;
        self.event_queue.schedule(self.now.plus_ms(pause_ms), SimEvent::PartyEntersQueue(party));
    }
}
