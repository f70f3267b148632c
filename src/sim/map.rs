//! Where people live, where game regions are, and how long a round trip between them takes.

use serde::Deserialize;

use crate::domain::latency::LatencyLine;
use crate::domain::locality::{DEFAULT_CELL_DEGREES, KM_PER_MILE, Locality, snap_to_cell};
use crate::domain::session::RegionLatency;
use crate::sim::Unplayable;
use crate::sim::latencies::Matrix;
use crate::sim::scenario::Scenario;

/// The cities, as shipped.
const CITIES: &str = include_str!("../../scenarios/cities.csv");

/// Where the machines of a region stand: its name, latitude and longitude.
const REGIONS: [(&str, f64, f64); 11] = [
    ("af-south", -26.2, 28.05),
    ("ap-northeast", 35.69, 139.69),
    ("ap-south", 19.07, 72.88),
    ("ap-southeast", 1.35, 103.82),
    ("eu-central", 50.11, 8.68),
    ("eu-west", 51.51, -0.13),
    ("me-central", 25.2, 55.27),
    ("oceania", -33.87, 151.21),
    ("sa-east", -23.55, -46.63),
    ("us-east", 39.04, -77.49),
    ("us-west", 37.34, -121.89),
];

/// A city.
#[derive(Clone, Debug, PartialEq)]
pub struct City {
    /// Its name.
    pub name: Box<str>,
    /// Its region.
    pub region: Box<str>,
    /// Where the server thinks that its people are.
    pub believed: Option<Locality>,
    /// Hours that its clocks are ahead of UTC.
    pub utc_hours: f64,
    /// Its share of all players.
    pub weight: f64,
    at: Locality,
}

/// Cities, regions and round trips.
#[derive(Clone, Debug)]
pub struct Map {
    /// The cities whose people play.
    pub cities: Vec<City>,
    /// From city to city, milliseconds, row by row.
    trips: Vec<f32>,
    /// For each city all cities, nearest first by round trip.
    near: Vec<Vec<u16>>,
    /// For each city its round trips to the regions, in the order of their names.
    to_regions: Vec<Box<[RegionLatency]>>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: Box<str>,
    latitude: f64,
    longitude: f64,
    utc_hours: f64,
    region: Box<str>,
    weight: f64,
}

impl Map {
    /// The cities of the scenario's regions, with round trips from `matrix` or else by the ruleset's line.
    pub fn of(scenario: &Scenario, line: &LatencyLine, matrix: Option<&Matrix>) -> Result<Self, Unplayable> {
        let unknown = scenario.regions.iter().find(|name| REGIONS.iter().all(|it| it.0 != name.as_str()));
        if let Some(unknown) = unknown {
            let names: Vec<&str> = REGIONS.iter().map(|it| it.0).collect();
            return Err(Unplayable(format!("regions: `{unknown}` is none: they are {}", names.join(", "))));
        }
        let all = read()?;
        let outlier = scenario.outlier.as_ref().map(|it| it.city.as_str());
        if let Some(name) = outlier
            && all.iter().all(|city| &*city.name != name)
        {
            return Err(Unplayable(format!("outlier.city: `{name}` is not in scenarios/cities.csv")));
        }
        let plays = |city: &City| scenario.regions.is_empty() || scenario.regions.iter().any(|it| **it == *city.region);
        let kept = all.into_iter().filter(|city| plays(city) || outlier == Some(&*city.name));
        let weighed = kept.map(|city| City { weight: if plays(&city) { city.weight } else { 0.0 }, ..city });
        let cities: Vec<City> = weighed.collect();
        if cities.iter().all(|city| city.weight == 0.0) {
            return Err(Unplayable::because("regions: nobody lives there: name regions that scenarios/cities.csv has"));
        }
        let roads = Roads { line, matrix, last_mile_ms: scenario.last_mile_ms };
        let ends: Vec<Stop> = cities.iter().map(|city| roads.stop(city.at)).collect();
        let trips: Vec<f32> =
            ends.iter().flat_map(|from| ends.iter().map(|to| roads.trip_ms(from, to) as f32)).collect();
        let count = cities.len();
        let near = |from: usize| {
            let mut order: Vec<u16> = (0..count as u16).collect();
            order.sort_by(|one, other| {
                trips[from * count + usize::from(*one)].total_cmp(&trips[from * count + usize::from(*other)])
            });
            order
        };
        let near = (0..count).map(near).collect();
        let regions = REGIONS.iter().filter_map(|&(name, latitude, longitude)| {
            Some((name, roads.stop(Locality::from_degrees(latitude, longitude)?)))
        });
        let regions: Vec<(&str, Stop)> = regions.collect();
        let to_regions = ends.iter().map(|from| {
            let trip = |(name, to): &(&str, Stop)| RegionLatency {
                region: (*name).into(),
                round_trip_ms: roads.trip_ms(from, to) as f32,
            };
            regions.iter().map(trip).collect()
        });
        Ok(Self { to_regions: to_regions.collect(), cities, trips, near })
    }

    /// The round trip between two cities, milliseconds.
    pub fn trip_ms(&self, from: u16, to: u16) -> f64 {
        f64::from(self.trips[usize::from(from) * self.cities.len() + usize::from(to)])
    }

    /// A city's round trips to the regions, in the order of their names.
    pub fn to_regions(&self, city: u16) -> &[RegionLatency] {
        &self.to_regions[usize::from(city)]
    }

    /// How long the round trip to the farthest of the `others` nearest people is, where `about[c]` people are in city
    /// c, the one who asks among them; `None` when there are not so many.
    pub fn reach_ms(&self, city: u16, about: &[u32], others: u32) -> Option<f64> {
        let mut seen = 0;
        for &near in &self.near[usize::from(city)] {
            seen += about[usize::from(near)].saturating_sub(u32::from(near == city));
            if others <= seen {
                return Some(self.trip_ms(city, near));
            }
        }
        None
    }
}

/// Round trips from place to place.
struct Roads<'a> {
    line: &'a LatencyLine,
    matrix: Option<&'a Matrix>,
    last_mile_ms: f64,
}

/// A place and, with a matrix, the site that stands for it and how far that is, miles.
struct Stop {
    at: Locality,
    site: (usize, f64),
}

impl Roads<'_> {
    fn stop(&self, at: Locality) -> Stop {
        Stop { at, site: self.matrix.map_or((0, 0.0), |matrix| matrix.nearest(at)) }
    }

    fn trip_ms(&self, from: &Stop, to: &Stop) -> f64 {
        let measured = self.matrix.and_then(|matrix| matrix.trip_ms(from.site.0, to.site.0));
        match measured {
            // What lies between a place and its site goes by the line's slope.
            Some(ms) => {
                let aside = (from.site.1 + to.site.1) * KM_PER_MILE / 1000.0;
                ms + self.last_mile_ms + self.line.ms_per_1000_km * aside
            }
            None => self.line.round_trip_ms(from.at.chord_miles(to.at)),
        }
    }
}

fn read() -> Result<Vec<City>, Unplayable> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(CITIES.as_bytes());
    let city = |row: Result<Row, csv::Error>| {
        let row = row.map_err(|error| Unplayable(format!("scenarios/cities.csv: {error}")))?;
        let at = Locality::from_degrees(row.latitude, row.longitude);
        let (latitude, longitude) = snap_to_cell(row.latitude, row.longitude, DEFAULT_CELL_DEGREES);
        Ok(City {
            at: at.ok_or_else(|| Unplayable(format!("scenarios/cities.csv: {} is nowhere on Earth", row.name)))?,
            believed: Locality::from_degrees(latitude, longitude),
            name: row.name,
            region: row.region,
            utc_hours: row.utc_hours,
            weight: row.weight,
        })
    };
    reader.deserialize().map(city).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::latency::DEFAULT_LINE;

    #[test]
    fn round_trips_are_symmetric_and_reach_grows_with_the_company() {
        let map = Map::of(&Scenario::default(), &DEFAULT_LINE, None).unwrap();
        let count = map.cities.len() as u16;
        for (one, other) in [(0, 1), (2, count - 1)] {
            assert!((map.trip_ms(one, other) - map.trip_ms(other, one)).abs() < 1e-3);
        }
        let about = vec![1; map.cities.len()];
        let reach = |others| map.reach_ms(0, &about, others);
        assert!(reach(1) <= reach(5) && reach(5) <= reach(u32::from(count) - 1));
        assert_eq!(reach(u32::from(count)), None, "there are not so many");
        assert!(map.to_regions(0).is_sorted_by(|one, other| one.region < other.region));
    }

    #[test]
    fn a_region_that_is_none_is_named() {
        let scenario = Scenario { regions: vec!["moon".into()], ..Scenario::default() };
        let why = Map::of(&scenario, &DEFAULT_LINE, None).unwrap_err().to_string();
        assert!(why.contains("`moon`") && why.contains("oceania"), "{why}");
    }
}
