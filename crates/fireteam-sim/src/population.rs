//! Generated population: parties, cities, true skills, and skills as the set knows them.

use std::ops::Range;

use rand::Rng as _;
use rand::distr::weighted::WeightedIndex;
use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::ScenarioError;
use crate::city_map::CityMap;
use crate::ground_truth;
use crate::rng::{RngPurpose, SimRng, generated_id, stream_rng};
use crate::scenario::Scenario;
use fireteam_domain::attribute::SourceField;
use fireteam_domain::id::UserKey;
use fireteam_domain::lifecycle::penalty::Penalty;
use fireteam_domain::queue::ticket::PlayerRating;
use fireteam_domain::rating::{Side, Skill};
use fireteam_domain::ruleset::Ruleset;
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

/// One hour in milliseconds.
pub const HOUR_MS: u64 = 3_600_000;

/// Kind of user ids for `rng::generated_id`.
pub const USER_ID_KIND: u64 = 1;

/// Time between the matches that were played before the world begins.
const PRIOR_MATCH_INTERVAL_MS: u64 = 6 * HOUR_MS;

/// A player.
#[derive(Clone, Debug)]
pub struct SimPlayer {
    /// The account, which has one connected client.
    pub user: UserKey,
    /// Index of the city in the map.
    pub city: u16,
    /// True skill in Elo points above the mean.
    pub true_skill: f64,
    /// Skill as stored by the set; `None` before the first match.
    pub known_skill: Option<Skill>,
    /// Queue cooldown state after failed ready checks.
    pub queue_cooldown: Option<Penalty>,
}

/// Friends who play together, or a single player.
#[derive(Clone, Debug)]
pub struct SimParty {
    /// Its players, as a range of `Population::players`.
    pub players: Range<usize>,
    /// Index of the city in the map.
    pub city: u16,
    /// 1 open, 2 moderate, 3 strict.
    pub nat_type: i32,
    /// Number of its current or last play session; counted from 1.
    pub play_session: u64,
    /// Matches left to play in this session; 0 outside a session.
    pub matches_left_in_session: u64,
    /// Number of queue entries in this session.
    pub queue_visits: u64,
}

/// All players and parties of a world.
#[derive(Clone, Debug)]
pub struct Population {
    /// All players.
    pub players: Vec<SimPlayer>,
    /// All parties.
    pub parties: Vec<SimParty>,
    /// Party of the outlier, which is always in a play session.
    pub outlier_party: Option<usize>,
    /// Rating points per Elo point.
    pub rating_points_per_elo: f64,
}

impl Population {
    /// Population of `seed`, with the matches played before the world begins at `start`. Fails if the scenario's
    /// weights are invalid.
    pub fn generate(
        scenario: &Scenario,
        ruleset: &Ruleset,
        map: &CityMap,
        seed: u64,
        start: UnixMs,
    ) -> Result<Self, ScenarioError> {
        let rating_points_per_elo = ruleset.rating.as_ref().map_or(1.0, rating_points_per_elo_point);
        let mut population =
            Self { players: Vec::new(), parties: Vec::new(), outlier_party: None, rating_points_per_elo };
        let party_max = ruleset.teams.as_ref().map_or(1, |teams| teams.max_party_size);
        let invalid = |field: &str| {
            ScenarioError(format!("{field}: invalid weights; use numbers of 0 or more with a positive sum"))
        };
        let sizes = WeightedIndex::new(&scenario.party_percent).map_err(|_| invalid("party_percent"))?;
        let cities =
            WeightedIndex::new(map.cities.iter().map(|city| city.population_weight)).map_err(|_| invalid("cities"))?;
        let nats = WeightedIndex::new(scenario.nat_percent).map_err(|_| invalid("nat_percent"))?;
        if let Some(outlier) = &scenario.outlier {
            let city = map.cities.iter().position(|city| *city.name == *outlier.city).unwrap_or(0);
            population.outlier_party = Some(0);
            population.add_party(seed, city as u16, 1, &[outlier.rating_offset], |_| false);
        }
        while population.players.len() < scenario.players as usize {
            let mut rng = stream_rng(seed, RngPurpose::Party, population.parties.len() as u64, 0);
            let players_left = scenario.players as usize - population.players.len();
            let size = (sizes.sample(&mut rng) + 1).min(party_max.into()).min(players_left);
            let city = cities.sample(&mut rng) as u16;
            let nat = nats.sample(&mut rng) as i32 + 1;
            let party_skill: f64 = rng.sample(StandardNormal);
            let draw_true_skill = |rng: &mut SimRng| {
                let own_skill: f64 = rng.sample(StandardNormal);
                let friends = scenario.skill.friends;
                scenario.skill.sd * (friends.sqrt() * party_skill + (1.0 - friends).sqrt() * own_skill)
            };
            let true_skills: Vec<f64> = (0..size).map(|_| draw_true_skill(&mut rng)).collect();
            population.add_party(seed, city, nat, &true_skills, |_| {
                rng.random_bool(scenario.skill.newcomers_percent / 100.0)
            });
        }
        if let Some(spec) = &ruleset.rating {
            population.play_prior_matches(scenario, spec, seed, start);
        }
        Ok(population)
    }

    fn add_party(
        &mut self,
        seed: u64,
        city: u16,
        nat_type: i32,
        true_skills: &[f64],
        mut is_new: impl FnMut(usize) -> bool,
    ) {
        let first = self.players.len();
        for (index, &true_skill) in true_skills.iter().enumerate() {
            let user = UserKey::from_bytes(generated_id(seed, USER_ID_KIND, (first + index) as u64));
            // A player who is not new gets a skill from prior matches.
            let known_skill = if is_new(index) { None } else { Some(UNKNOWN_SKILL) };
            self.players.push(SimPlayer { user, city, true_skill, known_skill, queue_cooldown: None });
        }
        let players = first..self.players.len();
        self.parties.push(SimParty {
            players,
            city,
            nat_type,
            play_session: 0,
            matches_left_in_session: 0,
            queue_visits: 0,
        });
    }

    /// Plays 1v1 matches between players with similar ratings, before the world begins.
    fn play_prior_matches(&mut self, scenario: &Scenario, spec: &RatingSpec, seed: u64, start: UnixMs) {
        let mut skill = spec.initial_skill();
        skill.estimate.rating += scenario.skill.centre * self.rating_points_per_elo;
        let mut experienced: Vec<usize> = Vec::new();
        for (index, player) in self.players.iter_mut().enumerate().filter(|(_, player)| player.known_skill.is_some()) {
            player.known_skill = Some(skill);
            experienced.push(index);
        }
        let rounds = u64::from(scenario.skill.prior_matches);
        for round in 0..rounds {
            let mut rng = stream_rng(seed, RngPurpose::PriorMatches, round, 0);
            let at = UnixMs(start.0.saturating_sub((rounds - round) * PRIOR_MATCH_INTERVAL_MS));
            let mut by_noisy_rating: Vec<(f64, usize)> = Vec::with_capacity(experienced.len());
            for &index in &experienced {
                let noise: f64 = rng.sample(StandardNormal);
                let rating = self.players[index].known_skill.map_or(0.0, |skill| skill.estimate.rating);
                by_noisy_rating.push((rating + 0.5 * scenario.skill.sd * self.rating_points_per_elo * noise, index));
            }
            by_noisy_rating.sort_by(|first, second| first.0.total_cmp(&second.0).then(first.1.cmp(&second.1)));
            for pair in by_noisy_rating.chunks_exact(2) {
                let (first, second) = (pair[0].1, pair[1].1);
                let first_wins = rng.random_bool(ground_truth::pair_win_probability(
                    self.players[first].true_skill,
                    self.players[second].true_skill,
                ));
                let (Some(first_skill), Some(second_skill)) =
                    (self.players[first].known_skill, self.players[second].known_skill)
                else {
                    continue;
                };
                let side = |skill, won: bool| Side { players: vec![skill], rank: if won { 1 } else { 2 } };
                let Ok(after) = spec.rate_match(&[side(first_skill, first_wins), side(second_skill, !first_wins)], at)
                else {
                    continue;
                };
                (self.players[first].known_skill, self.players[second].known_skill) =
                    (Some(after[0][0]), Some(after[1][0]));
            }
        }
    }

    /// Skill that a player declares: the true skill on the ruleset's scale, six standard deviations wide.
    pub fn declared_skill(&self, player: usize, ruleset: &Ruleset) -> Option<f64> {
        let attribute = ruleset.attributes.iter().find(|attribute| attribute.source == SourceField::Skill)?;
        let (lowest, highest) = attribute.normalization_range?;
        let middle = f64::midpoint(lowest, highest);
        Some((middle + self.players[player].true_skill * (highest - lowest) / 1_800.0).clamp(lowest, highest))
    }

    /// End of the party's queue cooldown, if any.
    pub fn party_cooldown_until(&self, party: usize, now: UnixMs) -> Option<UnixMs> {
        let players = &self.players[self.parties[party].players.clone()];
        players.iter().filter_map(|player| player.queue_cooldown?.active_cooldown_end(now)).max()
    }

    /// Start of the `number`-th play session of a party, if it is before `end`. Random, weighted by local hour, and
    /// independent of earlier events.
    pub fn next_play_session(
        &self,
        scenario: &Scenario,
        map: &CityMap,
        seed: u64,
        (party, number): (usize, u64),
        (after, end): (UnixMs, UnixMs),
    ) -> Option<UnixMs> {
        let hours = &scenario.activity.by_hour;
        let total: f64 = hours.iter().sum();
        let utc_offset_ms =
            (map.cities[usize::from(self.parties[party].city)].utc_offset_hours * HOUR_MS as f64) as i64;
        let mut remaining: f64 = stream_rng(seed, RngPurpose::PlaySession, party as u64, number).sample(Exp1);
        let mut time = after;
        while time < end {
            let local_ms = time.0.saturating_add_signed(utc_offset_ms);
            let hour_left_ms = HOUR_MS - local_ms % HOUR_MS;
            let weight = hours[(local_ms / HOUR_MS % 24) as usize];
            let per_ms = scenario.activity.play_sessions_per_day * weight / total / HOUR_MS as f64;
            if remaining < per_ms * hour_left_ms as f64 {
                return Some(time.plus_ms((remaining / per_ms) as u64)).filter(|time| *time < end);
            }
            remaining -= per_ms * hour_left_ms as f64;
            time = time.plus_ms(hour_left_ms);
        }
        None
    }
}

/// Placeholder skill, for a set without ratings and before prior matches are played.
pub(crate) const UNKNOWN_SKILL: Skill = Skill {
    estimate: PlayerRating { rating: 0.0, deviation: 0.0 },
    volatility: 0.0,
    match_count: 0,
    last_match_at: None,
    streak: 0,
    last_match_active_period: 0,
};

/// Rating points per Elo point: 1/400 of the difference that gives odds of ten to one between two players with certain
/// ratings. Computed from the rating system's own predictions.
fn rating_points_per_elo_point(spec: &RatingSpec) -> f64 {
    let mut reference = spec.initial_skill();
    reference.estimate.deviation = 0.0;
    let win_probability = |points: f64| {
        let mut stronger = reference;
        stronger.estimate.rating += points;
        spec.win_probabilities(&[vec![stronger], vec![reference]]).map_or(0.5, |probabilities| probabilities[0])
    };
    let (mut low, mut high) = (0.0, 1e5);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        *(if win_probability(middle) < 10.0 / 11.0 { &mut low } else { &mut high }) = middle;
    }
    high / 400.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use fireteam_domain::ruleset::rating::RatingSystem;

    #[test]
    fn rating_points_per_elo_point_follow_the_elo_scale() {
        let spec = RatingSpec::with_defaults(RatingSystem::Elo { initial: 1000.0, k: 16.0, scale: 400.0 });
        assert!((rating_points_per_elo_point(&spec) - 1.0).abs() < 1e-9);
        let half_scale = RatingSpec::with_defaults(RatingSystem::Elo { initial: 1000.0, k: 16.0, scale: 200.0 });
        assert!((rating_points_per_elo_point(&half_scale) - 0.5).abs() < 1e-9);
    }
}
