//! Where people live, where game regions are, and how long a round trip between them takes.

use serde::Deserialize;

use crate::ScenarioError;
use crate::latency_matrix::LatencyMatrix;
use crate::scenario::Scenario;
use fireteam_domain::latency::LatencyModel;
use fireteam_domain::locality::{DEFAULT_LOCATION_GRID_DEGREES, KM_PER_MILE, Locality, snap_to_degree_grid};
use fireteam_domain::session::RegionLatency;

/// The cities, as shipped.
const CITIES_CSV: &str = include_str!("../../../scenarios/cities.csv");

/// Where the machines of a region stand: its name, latitude and longitude.
const REGION_LOCATIONS: [(&str, f64, f64); 11] = [
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
    pub estimated_location: Option<Locality>,
    /// Hours that its clocks are ahead of UTC.
    pub utc_offset_hours: f64,
    /// Its share of all players.
    pub population_weight: f64,
    location: Locality,
}

/// Cities, regions and round trips.
#[derive(Clone, Debug)]
pub struct CityMap {
    /// The cities whose people play.
    pub cities: Vec<City>,
    /// From city to city, milliseconds, row by row.
    round_trips_ms: Vec<f32>,
    /// For each city all cities, nearest first by round trip.
    cities_by_round_trip: Vec<Vec<u16>>,
    /// For each city its round trips to the regions, in the order of their names.
    region_round_trips: Vec<Box<[RegionLatency]>>,
}

#[derive(Debug, Deserialize)]
struct CityRow {
    name: Box<str>,
    latitude: f64,
    longitude: f64,
    utc_hours: f64,
    region: Box<str>,
    weight: f64,
}

impl CityMap {
    /// The cities of the scenario's regions, with round trips from `matrix` or else by the ruleset's line.
    pub fn build(
        scenario: &Scenario,
        line: &LatencyModel,
        matrix: Option<&LatencyMatrix>,
    ) -> Result<Self, ScenarioError> {
        let unknown = scenario.regions.iter().find(|name| REGION_LOCATIONS.iter().all(|it| it.0 != name.as_str()));
        if let Some(unknown) = unknown {
            let names: Vec<&str> = REGION_LOCATIONS.iter().map(|it| it.0).collect();
            return Err(ScenarioError(format!("regions: `{unknown}` is none: they are {}", names.join(", "))));
        }
        let all = read_cities()?;
        let outlier = scenario.outlier.as_ref().map(|it| it.city.as_str());
        if let Some(name) = outlier
            && all.iter().all(|city| &*city.name != name)
        {
            return Err(ScenarioError(format!("outlier.city: `{name}` is not in scenarios/cities.csv")));
        }
        let plays = |city: &City| scenario.regions.is_empty() || scenario.regions.iter().any(|it| **it == *city.region);
        let kept = all.into_iter().filter(|city| plays(city) || outlier == Some(&*city.name));
        let weighed = kept
            .map(|city| City { population_weight: if plays(&city) { city.population_weight } else { 0.0 }, ..city });
        let cities: Vec<City> = weighed.collect();
        if cities.iter().all(|city| city.population_weight == 0.0) {
            return Err(ScenarioError::new("regions: nobody lives there: name regions that scenarios/cities.csv has"));
        }
        let roads = RoundTrips { latency_model: line, matrix, last_mile_ms: scenario.last_mile_ms };
        let ends: Vec<RouteEndpoint> = cities.iter().map(|city| roads.endpoint_at(city.location)).collect();
        let trips: Vec<f32> =
            ends.iter().flat_map(|from| ends.iter().map(|to| roads.round_trip_between_ms(from, to) as f32)).collect();
        let count = cities.len();
        let near = |from: usize| {
            let mut order: Vec<u16> = (0..count as u16).collect();
            order.sort_by(|one, other| {
                trips[from * count + usize::from(*one)].total_cmp(&trips[from * count + usize::from(*other)])
            });
            order
        };
        let near = (0..count).map(near).collect();
        let regions = REGION_LOCATIONS.iter().filter_map(|&(name, latitude, longitude)| {
            Some((name, roads.endpoint_at(Locality::from_degrees(latitude, longitude)?)))
        });
        let regions: Vec<(&str, RouteEndpoint)> = regions.collect();
        let to_regions = ends.iter().map(|from| {
            let trip = |(name, to): &(&str, RouteEndpoint)| RegionLatency {
                region: (*name).into(),
                round_trip_ms: roads.round_trip_between_ms(from, to) as f32,
            };
            regions.iter().map(trip).collect()
        });
        Ok(Self { region_round_trips: to_regions.collect(), cities, round_trips_ms: trips, cities_by_round_trip: near })
    }

    /// The round trip between two cities, milliseconds.
    pub fn round_trip_ms(&self, from: u16, to: u16) -> f64 {
        f64::from(self.round_trips_ms[usize::from(from) * self.cities.len() + usize::from(to)])
    }

    /// A city's round trips to the regions, in the order of their names.
    pub fn region_round_trips(&self, city: u16) -> &[RegionLatency] {
        &self.region_round_trips[usize::from(city)]
    }

    /// How long the round trip to the farthest of the `others` nearest people is, where `about[c]` people are in city
    /// c, the one who asks among them; `None` when there are not so many.
    pub fn round_trip_to_nth_nearest_ms(&self, city: u16, about: &[u32], others: u32) -> Option<f64> {
        let mut seen = 0;
        for &near in &self.cities_by_round_trip[usize::from(city)] {
            seen += about[usize::from(near)].saturating_sub(u32::from(near == city));
            if others <= seen {
                return Some(self.round_trip_ms(city, near));
            }
        }
        None
    }
}

/// Round trips from place to place.
struct RoundTrips<'a> {
    latency_model: &'a LatencyModel,
    matrix: Option<&'a LatencyMatrix>,
    last_mile_ms: f64,
}

/// A place and, with a matrix, the site that stands for it and how far that is, miles.
struct RouteEndpoint {
    location: Locality,
    nearest_site: (usize, f64),
}

impl RoundTrips<'_> {
    fn endpoint_at(&self, at: Locality) -> RouteEndpoint {
        RouteEndpoint { location: at, nearest_site: self.matrix.map_or((0, 0.0), |matrix| matrix.nearest_site(at)) }
    }

    fn round_trip_between_ms(&self, from: &RouteEndpoint, to: &RouteEndpoint) -> f64 {
        let measured = self.matrix.and_then(|matrix| matrix.round_trip_ms(from.nearest_site.0, to.nearest_site.0));
        match measured {
            // What lies between a place and its site goes by the line's slope.
            Some(ms) => {
                let aside = (from.nearest_site.1 + to.nearest_site.1) * KM_PER_MILE / 1000.0;
                ms + self.last_mile_ms + self.latency_model.ms_per_1000_km * aside
            }
            None => self.latency_model.round_trip_ms(from.location.chord_miles(to.location)),
        }
    }
}

fn read_cities() -> Result<Vec<City>, ScenarioError> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(CITIES_CSV.as_bytes());
    let city = |row: Result<CityRow, csv::Error>| {
        let row = row.map_err(|error| ScenarioError(format!("scenarios/cities.csv: {error}")))?;
        let at = Locality::from_degrees(row.latitude, row.longitude);
        let (latitude, longitude) = snap_to_degree_grid(row.latitude, row.longitude, DEFAULT_LOCATION_GRID_DEGREES);
        Ok(City {
            location: at
                .ok_or_else(|| ScenarioError(format!("scenarios/cities.csv: {} is nowhere on Earth", row.name)))?,
            estimated_location: Locality::from_degrees(latitude, longitude),
            name: row.name,
            region: row.region,
            utc_offset_hours: row.utc_hours,
            population_weight: row.weight,
        })
    };
    reader.deserialize().map(city).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fireteam_domain::latency::DEFAULT_LATENCY_MODEL;

    #[test]
    fn city_map_round_trips_are_symmetric_and_grow_with_the_group() {
        let map = CityMap::build(&Scenario::default(), &DEFAULT_LATENCY_MODEL, None).unwrap();
        let count = map.cities.len() as u16;
        for (one, other) in [(0, 1), (2, count - 1)] {
            assert!((map.round_trip_ms(one, other) - map.round_trip_ms(other, one)).abs() < 1e-3);
        }
        let about = vec![1; map.cities.len()];
        let reach = |others| map.round_trip_to_nth_nearest_ms(0, &about, others);
        assert!(reach(1) <= reach(5) && reach(5) <= reach(u32::from(count) - 1));
        assert_eq!(reach(u32::from(count)), None, "there are not so many");
        assert!(map.region_round_trips(0).is_sorted_by(|one, other| one.region < other.region));
    }

    #[test]
    fn city_map_error_names_the_unknown_region() {
        let scenario = Scenario { regions: vec!["moon".into()], ..Scenario::default() };
        let why = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, None).unwrap_err().to_string();
        assert!(why.contains("`moon`") && why.contains("oceania"), "{why}");
    }
}
