//! The population: who is in a party with whom, where they live, how good they are, and what is known of it.

use std::ops::Range;

use rand::Rng as _;
use rand::distr::weighted::WeightedIndex;
use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::ScenarioError;
use crate::city_map::CityMap;
use crate::ground_truth;
use crate::rng::{RngPurpose, SimRng, generated_id, stream_rng};
use crate::scenario::Scenario;
use fireteam_domain::attribute::AttributeSource;
use fireteam_domain::id::UserKey;
use fireteam_domain::lifecycle::penalty::Penalty;
use fireteam_domain::queue::ticket::PlayerRating;
use fireteam_domain::rating::{Side, Skill};
use fireteam_domain::ruleset::Ruleset;
use fireteam_domain::ruleset::rating::RatingSpec;
use fireteam_domain::time::UnixMs;

/// One hour.
pub const HOUR_MS: u64 = 3_600_000;

/// What one names here, for `dice::name`.
pub const USER_ID_KIND: u64 = 1;

/// Time between the matches that players have behind them.
const PRIOR_MATCH_INTERVAL_MS: u64 = 6 * HOUR_MS;

/// A player.
#[derive(Clone, Debug)]
pub struct SimPlayer {
    /// The account, and its one connected client.
    pub user: UserKey,
    /// Where they live: a city of the map.
    pub city: u16,
    /// How good they really are, points of Elo above the mean.
    pub true_skill: f64,
    /// What the set knows of them; none for those who have never played a match.
    pub known_skill: Option<Skill>,
    /// Where they stand for failed checks.
    pub penalty: Option<Penalty>,
}

/// Friends who play together, or somebody alone.
#[derive(Clone, Debug)]
pub struct SimParty {
    /// Its players, in `People::all`.
    pub players: Range<usize>,
    /// Where it lives: a city of the map.
    pub city: u16,
    /// 1 open, 2 moderate, 3 strict.
    pub nat_type: i32,
    /// The sitting that it is in, or was last in; counted from 1.
    pub play_session: u64,
    /// Matches that it still wants to play in this sitting; 0 when it does not sit.
    pub matches_left_in_session: u64,
    /// How often it has entered the queue in this sitting.
    pub queue_visits: u64,
}

/// Everybody.
#[derive(Clone, Debug)]
pub struct Population {
    /// All players.
    pub players: Vec<SimPlayer>,
    /// All parties.
    pub parties: Vec<SimParty>,
    /// The party that is far from everybody: it sits all the time.
    pub outlier_party: Option<usize>,
    /// Rating points for a point of Elo.
    pub rating_points_per_elo: f64,
}

impl Population {
    /// The people of `seed`, with the matches that they have behind them when the world begins at `start`.
    pub fn generate(
        scenario: &Scenario,
        ruleset: &Ruleset,
        map: &CityMap,
        seed: u64,
        start: UnixMs,
    ) -> Result<Self, ScenarioError> {
        let unit = ruleset.rating.as_ref().map_or(1.0, rating_points_per_elo_point);
        let mut people =
            Self { players: Vec::new(), parties: Vec::new(), outlier_party: None, rating_points_per_elo: unit };
        let party_max = ruleset.teams.as_ref().map_or(1, |teams| teams.max_party_size);
        let cannot = |field: &str| ScenarioError(format!("{field}: these weights cannot be drawn from"));
        let sizes = WeightedIndex::new(&scenario.party_percent).map_err(|_| cannot("party_percent"))?;
        let cities =
            WeightedIndex::new(map.cities.iter().map(|city| city.population_weight)).map_err(|_| cannot("cities"))?;
        let nats = WeightedIndex::new(scenario.nat_percent).map_err(|_| cannot("nat_percent"))?;
        if let Some(outlier) = &scenario.outlier {
            let city = map.cities.iter().position(|city| *city.name == *outlier.city).unwrap_or(0);
            people.outlier_party = Some(0);
            people.add_party(seed, city as u16, 1, &[outlier.above], |_| false);
        }
        while people.players.len() < scenario.players as usize {
            let mut dice = stream_rng(seed, RngPurpose::Party, people.parties.len() as u64, 0);
            let left = scenario.players as usize - people.players.len();
            let size = (sizes.sample(&mut dice) + 1).min(party_max.into()).min(left);
            let city = cities.sample(&mut dice) as u16;
            let nat = nats.sample(&mut dice) as i32 + 1;
            let together: f64 = dice.sample(StandardNormal);
            let truth = |dice: &mut SimRng| {
                let own: f64 = dice.sample(StandardNormal);
                let friends = scenario.skill.friends;
                scenario.skill.sd * (friends.sqrt() * together + (1.0 - friends).sqrt() * own)
            };
            let truths: Vec<f64> = (0..size).map(|_| truth(&mut dice)).collect();
            people.add_party(seed, city, nat, &truths, |_| dice.random_bool(scenario.skill.newcomers_percent / 100.0));
        }
        if let Some(spec) = &ruleset.rating {
            people.play_prior_matches(scenario, spec, seed, start);
        }
        Ok(people)
    }

    fn add_party(&mut self, seed: u64, city: u16, nat: i32, truths: &[f64], mut is_new: impl FnMut(usize) -> bool) {
        let first = self.players.len();
        for (place, &truth) in truths.iter().enumerate() {
            let user = UserKey::from_bytes(generated_id(seed, USER_ID_KIND, (first + place) as u64));
            // Whoever is not new gets a skill from their earlier matches.
            let skill = if is_new(place) { None } else { Some(UNKNOWN_SKILL) };
            self.players.push(SimPlayer { user, city, true_skill: truth, known_skill: skill, penalty: None });
        }
        let people = first..self.players.len();
        self.parties.push(SimParty {
            players: people,
            city,
            nat_type: nat,
            play_session: 0,
            matches_left_in_session: 0,
            queue_visits: 0,
        });
    }

    /// Matches of one against one between those who are about as good, as the set knew them then.
    fn play_prior_matches(&mut self, scenario: &Scenario, spec: &RatingSpec, seed: u64, start: UnixMs) {
        let mut skill = spec.initial_skill();
        skill.estimate.rating += scenario.skill.centre * self.rating_points_per_elo;
        let mut old: Vec<usize> = Vec::new();
        for (place, person) in self.players.iter_mut().enumerate().filter(|(_, person)| person.known_skill.is_some()) {
            person.known_skill = Some(skill);
            old.push(place);
        }
        let rounds = u64::from(scenario.skill.earlier_matches);
        for round in 0..rounds {
            let mut dice = stream_rng(seed, RngPurpose::PriorMatches, round, 0);
            let at = UnixMs(start.0.saturating_sub((rounds - round) * PRIOR_MATCH_INTERVAL_MS));
            let mut order: Vec<(f64, usize)> = Vec::with_capacity(old.len());
            for &place in &old {
                let noise: f64 = dice.sample(StandardNormal);
                let rating = self.players[place].known_skill.map_or(0.0, |skill| skill.estimate.rating);
                order.push((rating + 0.5 * scenario.skill.sd * self.rating_points_per_elo * noise, place));
            }
            order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            for pair in order.chunks_exact(2) {
                let (one, other) = (pair[0].1, pair[1].1);
                let wins = dice.random_bool(ground_truth::pair_win_probability(
                    self.players[one].true_skill,
                    self.players[other].true_skill,
                ));
                let (Some(mine), Some(theirs)) = (self.players[one].known_skill, self.players[other].known_skill)
                else {
                    continue;
                };
                let side = |skill, won: bool| Side { players: vec![skill], rank: if won { 1 } else { 2 } };
                let Ok(after) = spec.rate_match(&[side(mine, wins), side(theirs, !wins)], at) else { continue };
                (self.players[one].known_skill, self.players[other].known_skill) =
                    (Some(after[0][0]), Some(after[1][0]));
            }
        }
    }

    /// What somebody says of their own skill: the truth, on the ruleset's scale, six deviations of it wide.
    pub fn declared_skill(&self, person: usize, ruleset: &Ruleset) -> Option<f64> {
        let attribute = ruleset.attributes.iter().find(|attribute| attribute.source == AttributeSource::Skill)?;
        let (least, most) = attribute.normalization_range?;
        let middle = f64::midpoint(least, most);
        Some((middle + self.players[person].true_skill * (most - least) / 1_800.0).clamp(least, most))
    }

    /// Until when a party may not queue, if it may not.
    pub fn cooldown_until(&self, party: usize, now: UnixMs) -> Option<UnixMs> {
        let people = &self.players[self.parties[party].players.clone()];
        people.iter().filter_map(|person| person.penalty?.active_cooldown(now)).max()
    }

    /// When a party sits down for the `number`-th time, if it does before `end`: by chance, at hours that it likes,
    /// whatever happened before.
    pub fn next_play_session(
        &self,
        scenario: &Scenario,
        map: &CityMap,
        seed: u64,
        (party, number): (usize, u64),
        (after, end): (UnixMs, UnixMs),
    ) -> Option<UnixMs> {
        let hours = &scenario.rhythm.by_hour;
        let total: f64 = hours.iter().sum();
        let ahead_ms = (map.cities[usize::from(self.parties[party].city)].utc_offset_hours * HOUR_MS as f64) as i64;
        let mut left: f64 = stream_rng(seed, RngPurpose::PlaySession, party as u64, number).sample(Exp1);
        let mut at = after;
        while at < end {
            let local = at.0.saturating_add_signed(ahead_ms);
            let hour_left_ms = HOUR_MS - local % HOUR_MS;
            let weight = hours[(local / HOUR_MS % 24) as usize];
            let per_ms = scenario.rhythm.sittings_a_day * weight / total / HOUR_MS as f64;
            if left < per_ms * hour_left_ms as f64 {
                return Some(at.plus_ms((left / per_ms) as u64)).filter(|at| *at < end);
            }
            left -= per_ms * hour_left_ms as f64;
            at = at.plus_ms(hour_left_ms);
        }
        None
    }
}

/// Nothing known of anybody: where a set rates nobody, and until the earlier matches have been played.
pub(crate) const UNKNOWN_SKILL: Skill = Skill {
    estimate: PlayerRating { rating: 0.0, deviation: 0.0 },
    volatility: 0.0,
    match_count: 0,
    last_match_at: None,
    streak: 0,
    active_periods: 0,
};

/// Rating points for a point of Elo: what makes the odds ten to one between two of whom all is known, in 400 parts.
/// Asked of the rating system itself.
fn rating_points_per_elo_point(spec: &RatingSpec) -> f64 {
    let mut one = spec.initial_skill();
    one.estimate.deviation = 0.0;
    let chance = |ahead: f64| {
        let mut better = one;
        better.estimate.rating += ahead;
        spec.win_probabilities(&[vec![better], vec![one]]).map_or(0.5, |chances| chances[0])
    };
    let (mut low, mut high) = (0.0, 1e5);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        *(if chance(middle) < 10.0 / 11.0 { &mut low } else { &mut high }) = middle;
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
        let half = RatingSpec::with_defaults(RatingSystem::Elo { initial: 1000.0, k: 16.0, scale: 200.0 });
        assert!((rating_points_per_elo_point(&half) - 0.5).abs() < 1e-9);
    }
}
