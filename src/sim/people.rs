//! The population: who is in a party with whom, where they live, how good they are, and what is known of it.

use std::ops::Range;

use rand::Rng as _;
use rand::distr::weighted::WeightedIndex;
use rand_distr::{Distribution, Exp1, StandardNormal};

use crate::domain::attribute::Source;
use crate::domain::id::UserKey;
use crate::domain::life::penalty::Penalty;
use crate::domain::queue::ticket::Rated;
use crate::domain::rating::{Side, Skill};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::sim::Unplayable;
use crate::sim::dice::{About, Dice, dice, name};
use crate::sim::map::Map;
use crate::sim::scenario::Scenario;
use crate::sim::truth;

/// One hour.
pub const HOUR_MS: u64 = 3_600_000;

/// What one names here, for `dice::name`.
pub const PEOPLE: u64 = 1;

/// Time between the matches that players have behind them.
const EARLIER_EVERY_MS: u64 = 6 * HOUR_MS;

/// A player.
#[derive(Clone, Debug)]
pub struct Person {
    /// The account, and its one connected client.
    pub user: UserKey,
    /// Where they live: a city of the map.
    pub city: u16,
    /// How good they really are, points of Elo above the mean.
    pub truth: f64,
    /// What the set knows of them; none for those who have never played a match.
    pub skill: Option<Skill>,
    /// Where they stand for failed checks.
    pub penalty: Option<Penalty>,
}

/// Friends who play together, or somebody alone.
#[derive(Clone, Debug)]
pub struct Party {
    /// Its players, in `People::all`.
    pub people: Range<usize>,
    /// Where it lives: a city of the map.
    pub city: u16,
    /// 1 open, 2 moderate, 3 strict.
    pub nat: i32,
    /// The sitting that it is in, or was last in; counted from 1.
    pub sitting: u64,
    /// Matches that it still wants to play in this sitting; 0 when it does not sit.
    pub matches_left: u64,
    /// How often it has entered the queue in this sitting.
    pub visits: u64,
}

/// Everybody.
#[derive(Clone, Debug)]
pub struct People {
    /// All players.
    pub all: Vec<Person>,
    /// All parties.
    pub parties: Vec<Party>,
    /// The party that is far from everybody: it sits all the time.
    pub outlier: Option<usize>,
    /// Rating points for a point of Elo.
    pub unit: f64,
}

impl People {
    /// The people of `seed`, with the matches that they have behind them when the world begins at `start`.
    pub fn of(scenario: &Scenario, ruleset: &Ruleset, map: &Map, seed: u64, start: UnixMs) -> Result<Self, Unplayable> {
        let unit = ruleset.rating.as_ref().map_or(1.0, unit);
        let mut people = Self { all: Vec::new(), parties: Vec::new(), outlier: None, unit };
        let party_max = ruleset.teams.as_ref().map_or(1, |teams| teams.max_party_size);
        let cannot = |field: &str| Unplayable(format!("{field}: these weights cannot be drawn from"));
        let sizes = WeightedIndex::new(&scenario.party_percent).map_err(|_| cannot("party_percent"))?;
        let cities = WeightedIndex::new(map.cities.iter().map(|city| city.weight)).map_err(|_| cannot("cities"))?;
        let nats = WeightedIndex::new(scenario.nat_percent).map_err(|_| cannot("nat_percent"))?;
        if let Some(outlier) = &scenario.outlier {
            let city = map.cities.iter().position(|city| *city.name == *outlier.city).unwrap_or(0);
            people.outlier = Some(0);
            people.add(seed, city as u16, 1, &[outlier.above], |_| false);
        }
        while people.all.len() < scenario.players as usize {
            let mut dice = dice(seed, About::Party, people.parties.len() as u64, 0);
            let left = scenario.players as usize - people.all.len();
            let size = (sizes.sample(&mut dice) + 1).min(party_max.into()).min(left);
            let city = cities.sample(&mut dice) as u16;
            let nat = nats.sample(&mut dice) as i32 + 1;
            let together: f64 = dice.sample(StandardNormal);
            let truth = |dice: &mut Dice| {
                let own: f64 = dice.sample(StandardNormal);
                let friends = scenario.skill.friends;
                scenario.skill.sd * (friends.sqrt() * together + (1.0 - friends).sqrt() * own)
            };
            let truths: Vec<f64> = (0..size).map(|_| truth(&mut dice)).collect();
            people.add(seed, city, nat, &truths, |_| dice.random_bool(scenario.skill.newcomers_percent / 100.0));
        }
        if let Some(spec) = &ruleset.rating {
            people.play_earlier(scenario, spec, seed, start);
        }
        Ok(people)
    }

    fn add(&mut self, seed: u64, city: u16, nat: i32, truths: &[f64], mut is_new: impl FnMut(usize) -> bool) {
        let first = self.all.len();
        for (place, &truth) in truths.iter().enumerate() {
            let user = UserKey::from_bytes(name(seed, PEOPLE, (first + place) as u64));
            // Whoever is not new gets a skill from their earlier matches.
            let skill = if is_new(place) { None } else { Some(NOBODY) };
            self.all.push(Person { user, city, truth, skill, penalty: None });
        }
        let people = first..self.all.len();
        self.parties.push(Party { people, city, nat, sitting: 0, matches_left: 0, visits: 0 });
    }

    /// Matches of one against one between those who are about as good, as the set knew them then.
    fn play_earlier(&mut self, scenario: &Scenario, spec: &RatingSpec, seed: u64, start: UnixMs) {
        let mut skill = spec.newcomer();
        skill.rated.rating += scenario.skill.centre * self.unit;
        let mut old: Vec<usize> = Vec::new();
        for (place, person) in self.all.iter_mut().enumerate().filter(|(_, person)| person.skill.is_some()) {
            person.skill = Some(skill);
            old.push(place);
        }
        let rounds = u64::from(scenario.skill.earlier_matches);
        for round in 0..rounds {
            let mut dice = dice(seed, About::Earlier, round, 0);
            let at = UnixMs(start.0.saturating_sub((rounds - round) * EARLIER_EVERY_MS));
            let mut order: Vec<(f64, usize)> = Vec::with_capacity(old.len());
            for &place in &old {
                let noise: f64 = dice.sample(StandardNormal);
                let rating = self.all[place].skill.map_or(0.0, |skill| skill.rated.rating);
                order.push((rating + 0.5 * scenario.skill.sd * self.unit * noise, place));
            }
            order.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
            for pair in order.chunks_exact(2) {
                let (one, other) = (pair[0].1, pair[1].1);
                let wins = dice.random_bool(truth::beats(self.all[one].truth, self.all[other].truth));
                let (Some(mine), Some(theirs)) = (self.all[one].skill, self.all[other].skill) else { continue };
                let side = |skill, won: bool| Side { players: vec![skill], rank: if won { 1 } else { 2 } };
                let Ok(after) = spec.rate(&[side(mine, wins), side(theirs, !wins)], at) else { continue };
                (self.all[one].skill, self.all[other].skill) = (Some(after[0][0]), Some(after[1][0]));
            }
        }
    }

    /// What somebody says of their own skill: the truth, on the ruleset's scale, six deviations of it wide.
    pub fn said(&self, person: usize, ruleset: &Ruleset) -> Option<f64> {
        let attribute = ruleset.attributes.iter().find(|attribute| attribute.source == Source::Skill)?;
        let (least, most) = attribute.range?;
        let middle = f64::midpoint(least, most);
        Some((middle + self.all[person].truth * (most - least) / 1_800.0).clamp(least, most))
    }

    /// Until when a party may not queue, if it may not.
    pub fn barred(&self, party: usize, now: UnixMs) -> Option<UnixMs> {
        let people = &self.all[self.parties[party].people.clone()];
        people.iter().filter_map(|person| person.penalty?.bars(now)).max()
    }

    /// When a party sits down for the `number`-th time, if it does before `end`: by chance, at hours that it likes,
    /// whatever happened before.
    pub fn next_sitting(
        &self,
        scenario: &Scenario,
        map: &Map,
        seed: u64,
        (party, number): (usize, u64),
        (after, end): (UnixMs, UnixMs),
    ) -> Option<UnixMs> {
        let hours = &scenario.rhythm.by_hour;
        let total: f64 = hours.iter().sum();
        let ahead_ms = (map.cities[usize::from(self.parties[party].city)].utc_hours * HOUR_MS as f64) as i64;
        let mut left: f64 = dice(seed, About::Sitting, party as u64, number).sample(Exp1);
        let mut at = after;
        while at < end {
            let local = at.0.saturating_add_signed(ahead_ms);
            let hour_left_ms = HOUR_MS - local % HOUR_MS;
            let weight = hours[(local / HOUR_MS % 24) as usize];
            let per_ms = scenario.rhythm.sittings_a_day * weight / total / HOUR_MS as f64;
            if left < per_ms * hour_left_ms as f64 {
                return Some(at.after((left / per_ms) as u64)).filter(|at| *at < end);
            }
            left -= per_ms * hour_left_ms as f64;
            at = at.after(hour_left_ms);
        }
        None
    }
}

/// Nothing known of anybody: where a set rates nobody, and until the earlier matches have been played.
pub(in crate::sim) const NOBODY: Skill = Skill {
    rated: Rated { rating: 0.0, deviation: 0.0 },
    volatility: 0.0,
    matches: 0,
    last: None,
    streak: 0,
    played: 0,
};

/// Rating points for a point of Elo: what makes the odds ten to one between two of whom all is known, in 400 parts.
/// Asked of the rating system itself.
fn unit(spec: &RatingSpec) -> f64 {
    let mut one = spec.newcomer();
    one.rated.deviation = 0.0;
    let chance = |ahead: f64| {
        let mut better = one;
        better.rated.rating += ahead;
        spec.win_chances(&[vec![better], vec![one]]).map_or(0.5, |chances| chances[0])
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
    use crate::domain::ruleset::rating::RatingSystem;

    #[test]
    fn a_point_of_elo_is_a_point_of_elo() {
        let spec = RatingSpec::plain(RatingSystem::Elo { initial: 1000.0, k: 16.0, scale: 400.0 });
        assert!((unit(&spec) - 1.0).abs() < 1e-9);
        let half = RatingSpec::plain(RatingSystem::Elo { initial: 1000.0, k: 16.0, scale: 200.0 });
        assert!((unit(&half) - 0.5).abs() < 1e-9);
    }
}
