//! Cities where players live, regions with game servers, and the round trips between them.

use serde::Deserialize;

use crate::ScenarioError;
use crate::latency_matrix::LatencyMatrix;
use crate::round_trips::{RoundTrips, RouteEndpoint};
use crate::scenario::Scenario;
use fireteam_domain::latency::LatencyModel;
use fireteam_domain::locality::Locality;
use fireteam_domain::location_privacy::{RegionPlaces, coarsen_region_latencies, snap_to_equal_width_grid};
use fireteam_domain::session::RegionLatency;

/// Bundled table of cities.
const CITIES_CSV: &str = include_str!("../../../scenarios/cities.csv");

/// Name, latitude and longitude of each region's game servers.
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

/// City where players live.
#[derive(Clone, Debug, PartialEq)]
pub struct City {
    /// Name.
    pub name: Box<str>,
    /// Region.
    pub region: Box<str>,
    /// Location by which the server judges parties of the city.
    pub coarse_location: Option<Locality>,
    /// Offset from UTC in hours.
    pub utc_offset_hours: f64,
    /// Share of all players.
    pub population_weight: f64,
    /// Exact location.
    pub(crate) location: Locality,
}

/// Cities, regions and round trips.
#[derive(Clone, Debug)]
pub struct CityMap {
    /// Cities with players.
    pub cities: Vec<City>,
    /// Milliseconds from city to city, row by row.
    round_trips_ms: Vec<f32>,
    /// For each city, all cities by round trip, nearest first.
    cities_by_round_trip: Vec<Vec<u16>>,
    /// For each city, the round trips to the regions in the order of region names.
    region_round_trips: Vec<Box<[RegionLatency]>>,
    /// The same, as others may know them.
    coarse_region_round_trips: Vec<Box<[RegionLatency]>>,
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
    /// Map of the cities in the scenario's regions. Round trips are from `matrix`, otherwise by the ruleset's latency
    /// model.
    pub fn build(
        scenario: &Scenario,
        latency_model: &LatencyModel,
        matrix: Option<&LatencyMatrix>,
    ) -> Result<Self, ScenarioError> {
        let unknown =
            scenario.regions.iter().find(|name| REGION_LOCATIONS.iter().all(|region| region.0 != name.as_str()));
        if let Some(unknown) = unknown {
            let names: Vec<&str> = REGION_LOCATIONS.iter().map(|region| region.0).collect();
            return Err(ScenarioError(format!("regions: unknown region `{unknown}`; use {}", names.join(", "))));
        }
        let all_cities = read_cities(scenario.location_grid_degrees)?;
        let outlier = scenario.outlier.as_ref().map(|outlier| outlier.city.as_str());
        if let Some(name) = outlier
            && all_cities.iter().all(|city| &*city.name != name)
        {
            return Err(ScenarioError(format!("outlier.city: unknown city `{name}`; use one of scenarios/cities.csv")));
        }
        let has_players =
            |city: &City| scenario.regions.is_empty() || scenario.regions.iter().any(|name| **name == *city.region);
        let selected = all_cities.into_iter().filter(|city| has_players(city) || outlier == Some(&*city.name));
        let weighted = selected.map(|city| City {
            population_weight: if has_players(&city) { city.population_weight } else { 0.0 },
            ..city
        });
        let cities: Vec<City> = weighted.collect();
        if cities.iter().all(|city| city.population_weight == 0.0) {
            return Err(ScenarioError::new("regions: no city has players; use regions of scenarios/cities.csv"));
        }
        let round_trips = RoundTrips { latency_model, matrix, last_mile_ms: scenario.last_mile_ms };
        let endpoints: Vec<RouteEndpoint> = cities.iter().map(|city| round_trips.endpoint_at(city.location)).collect();
        let round_trips_ms: Vec<f32> = endpoints
            .iter()
            .flat_map(|from| endpoints.iter().map(|to| round_trips.round_trip_between_ms(from, to) as f32))
            .collect();
        let count = cities.len();
        let nearest_first = |from: usize| {
            let mut order: Vec<u16> = (0..count as u16).collect();
            order.sort_by(|one, other| {
                round_trips_ms[from * count + usize::from(*one)]
                    .total_cmp(&round_trips_ms[from * count + usize::from(*other)])
            });
            order
        };
        let nearest_first = (0..count).map(nearest_first).collect();
        let regions = REGION_LOCATIONS.iter().filter_map(|&(name, latitude, longitude)| {
            Some((name, round_trips.endpoint_at(Locality::from_degrees(latitude, longitude)?)))
        });
        let regions: Vec<(&str, RouteEndpoint)> = regions.collect();
        let to_regions = endpoints.iter().map(|from| {
            let to_region = |(name, to): &(&str, RouteEndpoint)| RegionLatency {
                region: (*name).into(),
                round_trip_ms: round_trips.round_trip_between_ms(from, to) as f32,
            };
            regions.iter().map(to_region).collect()
        });
        let region_round_trips: Vec<Box<[RegionLatency]>> = to_regions.collect();
        let coarse_region_round_trips = if scenario.location_grid_degrees == 0.0 {
            region_round_trips.clone()
        } else {
            let of_cities = cities.iter().zip(&region_round_trips);
            of_cities.map(|(city, exact)| coarse_round_trips(city, exact.clone())).collect()
        };
        Ok(Self {
            region_round_trips,
            coarse_region_round_trips,
            cities,
            round_trips_ms,
            cities_by_round_trip: nearest_first,
        })
    }

    /// Round trip between two cities in milliseconds.
    pub fn round_trip_ms(&self, from: u16, to: u16) -> f64 {
        f64::from(self.round_trips_ms[usize::from(from) * self.cities.len() + usize::from(to)])
    }

    /// Round trips of a city to the regions, in the order of region names.
    pub fn region_round_trips(&self, city: u16) -> &[RegionLatency] {
        &self.region_round_trips[usize::from(city)]
    }

    /// Round trips of a city to the regions as the server judges its parties by them.
    pub fn coarse_region_round_trips(&self, city: u16) -> &[RegionLatency] {
        &self.coarse_region_round_trips[usize::from(city)]
    }

    /// Round trip in milliseconds to the farthest of the `others` nearest players, where `players_by_city[c]` players
    /// are in city c. The player in `city` is one of them. `None` with fewer players.
    pub fn round_trip_to_nth_nearest_player_ms(&self, city: u16, players_by_city: &[u32], others: u32) -> Option<f64> {
        let mut players = 0;
        for &other_city in &self.cities_by_round_trip[usize::from(city)] {
            players += players_by_city[usize::from(other_city)].saturating_sub(u32::from(other_city == city));
            if players >= others {
                return Some(self.round_trip_ms(city, other_city));
            }
        }
        None
    }
}

/// Round trips from a city to regions, as from the center of its grid cell and rounded.
fn coarse_round_trips(city: &City, mut round_trips: Box<[RegionLatency]>) -> Box<[RegionLatency]> {
    let places = REGION_LOCATIONS
        .iter()
        .filter_map(|&(name, latitude, longitude)| Some((name.into(), Locality::from_degrees(latitude, longitude)?)));
    let place_and_center = city.coarse_location.map(|center| (city.location, center));
    let places = RegionPlaces::new(places);
    coarsen_region_latencies(&mut round_trips, place_and_center, |region| places.place_of(region));
    round_trips
}

fn read_cities(location_grid_degrees: f64) -> Result<Vec<City>, ScenarioError> {
    let mut reader = csv::ReaderBuilder::new().comment(Some(b'#')).from_reader(CITIES_CSV.as_bytes());
    let city = |row: Result<CityRow, csv::Error>| {
        let row = row.map_err(|error| ScenarioError(format!("scenarios/cities.csv: {error}")))?;
        let location = Locality::from_degrees(row.latitude, row.longitude);
        let (latitude, longitude) = snap_to_equal_width_grid(row.latitude, row.longitude, location_grid_degrees);
        Ok(City {
            location: location.ok_or_else(|| {
                ScenarioError(format!("scenarios/cities.csv: coordinates of {} are out of range", row.name))
            })?,
            coarse_location: Locality::from_degrees(latitude, longitude),
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
        let players_by_city = vec![1; map.cities.len()];
        let round_trip_to = |others| map.round_trip_to_nth_nearest_player_ms(0, &players_by_city, others);
        assert!(round_trip_to(1) <= round_trip_to(5) && round_trip_to(5) <= round_trip_to(u32::from(count) - 1));
        assert_eq!(round_trip_to(u32::from(count)), None, "there are fewer players");
        assert!(map.region_round_trips(0).is_sorted_by(|one, other| one.region < other.region));
    }

    #[test]
    fn city_map_error_names_the_unknown_region() {
        let scenario = Scenario { regions: vec!["moon".into()], ..Scenario::default() };
        let error = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, None).unwrap_err().to_string();
        assert!(error.contains("`moon`") && error.contains("oceania"), "{error}");
    }
}
