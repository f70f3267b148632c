//! Map of simulated searches: where players, sessions and beacons are, the true round trips, and the server's estimates.
//!
//! A site is one of the latency matrix, or a city without one. Beacons are at the sites that bring the players nearest to one;
//! sessions run on game servers at the other sites. Players are at cities.

use fireteam_domain::latency::LatencyModel;
use fireteam_domain::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use fireteam_domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor, published_floors};
use fireteam_domain::latency::prediction::{PairPrecision, predict};
use fireteam_domain::latency::predictor_constants::PREDICTOR_V1;
use fireteam_domain::locality::{DEFAULT_LOCATION_GRID_DEGREES, Locality};
use fireteam_domain::location_privacy::snap_to_equal_width_grid;

use crate::ScenarioError;
use crate::city_map::{City, CityMap};
use crate::latency_matrix::LatencyMatrix;
use crate::round_trips::{RoundTrips, RouteEndpoint};
use crate::scenario::{Scenario, SearchSettings};

/// Places, true round trips and estimates, by city of a player and place of a session.
#[derive(Clone, Debug)]
pub struct SearchMap {
    /// Share of the players of each city.
    pub(crate) city_weights: Vec<f64>,
    /// Number of places of sessions.
    pub(crate) place_count: usize,
    /// From city to place, row by row.
    routes: Vec<Route>,
}

/// Way from a city to a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Route {
    /// True round trip, milliseconds.
    pub(crate) round_trip_ms: f64,
    /// Estimate by the distance between the cells of both, milliseconds.
    pub(crate) by_distance_ms: f64,
    /// Prediction from floors to beacons, milliseconds; `None` if it is not possible.
    pub(crate) predicted_ms: Option<f64>,
}

impl SearchMap {
    /// Map of the scenario's searches; `None` if it has none. Round trips are from `matrix`, otherwise by the ruleset's latency
    /// model.
    ///
    /// # Errors
    ///
    /// More beacons than sites, which leaves no place to the sessions.
    pub fn build(
        scenario: &Scenario,
        latency_model: &LatencyModel,
        matrix: Option<&LatencyMatrix>,
        cities: &CityMap,
    ) -> Result<Option<Self>, ScenarioError> {
        let Some(settings) = &scenario.latency else { return Ok(None) };
        let cities = &cities.cities;
        let of_players = RoundTrips { latency_model, matrix, last_mile_ms: scenario.last_mile_ms };
        let of_servers = RoundTrips { latency_model, matrix, last_mile_ms: 0.0 };
        let sites: Vec<RouteEndpoint> = match matrix {
            Some(matrix) => (0..).zip(matrix.sites()).map(site_of_matrix).collect(),
            None => cities.iter().map(|city| of_players.endpoint_at(city.location)).collect(),
        };
        let beacons = beacon_sites(settings, &sites, cities)?;
        let places: Vec<RouteEndpoint> =
            (0..sites.len()).filter(|site| !beacons.contains(site)).map(|site| sites[site]).collect();
        let beacons: Vec<RouteEndpoint> = beacons.into_iter().map(|site| sites[site]).collect();
        let fleet = fleet_of(&of_servers, &beacons);
        let floors_of = |round_trips: &RoundTrips<'_>,
                         endpoint: &RouteEndpoint,
                         place: Locality|
         -> Vec<MeasuredBeaconFloor> {
            let ids = fleet.nearest_ids(place, settings.floors as usize);
            let floor_ms = |id: u32| round_trips.round_trip_between_ms(endpoint, &beacons[id as usize]);
            ids.into_iter().map(|beacon_id| MeasuredBeaconFloor { beacon_id, floor_ms: floor_ms(beacon_id) }).collect()
        };
        let players = cities.iter().map(|city| {
            let endpoint = of_players.endpoint_at(city.location);
            let cell = center_of_cell(city.location, DEFAULT_LOCATION_GRID_DEGREES);
            let vector = CompletedVector::new(&fleet, Some(cell), &floors_of(&of_players, &endpoint, cell)).ok();
            PlayerOrSessionSite { endpoint, cell, vector }
        });
        let sessions = places.iter().map(|endpoint| {
            let (exact, cell) = (endpoint.location, center_of_cell(endpoint.location, scenario.location_grid_degrees));
            let floors = published_floors(&fleet, &floors_of(&of_servers, endpoint, cell), exact, cell);
            PlayerOrSessionSite {
                endpoint: *endpoint,
                cell,
                vector: CompletedVector::new(&fleet, Some(cell), &floors).ok(),
            }
        });
        let sessions: Vec<PlayerOrSessionSite> = sessions.collect();
        let route = |player: &PlayerOrSessionSite, session: &PlayerOrSessionSite| Route {
            round_trip_ms: of_players.round_trip_between_ms(&player.endpoint, &session.endpoint),
            by_distance_ms: latency_model.round_trip_ms(player.cell.chord_miles(session.cell)),
            predicted_ms: predicted_ms(&fleet, player, session),
        };
        let routes =
            players.flat_map(|player| sessions.iter().map(|session| route(&player, session)).collect::<Vec<_>>());
        Ok(Some(Self {
            routes: routes.collect(),
            city_weights: cities.iter().map(|city| city.population_weight).collect(),
            place_count: sessions.len(),
        }))
    }

    /// Way from a city to a place.
    pub(crate) fn route(&self, city: usize, place: usize) -> &Route {
        &self.routes[city * self.place_count + place]
    }
}

/// Player or session, as it is and as the server knows it.
struct PlayerOrSessionSite {
    endpoint: RouteEndpoint,
    cell: Locality,
    vector: Option<CompletedVector>,
}

fn predicted_ms(fleet: &BeaconFleet, player: &PlayerOrSessionSite, session: &PlayerOrSessionSite) -> Option<f64> {
    let (own, theirs) = (player.vector.as_ref()?, session.vector.as_ref()?);
    predict(fleet, own, theirs, PairPrecision::Search).ok().map(|prediction| prediction.round_trip_ms)
}

fn site_of_matrix((site, location): (usize, &Locality)) -> RouteEndpoint {
    RouteEndpoint { location: *location, nearest_site: (site, 0.0) }
}

fn center_of_cell(location: Locality, grid_degrees: f64) -> Locality {
    let (latitude, longitude) = location.to_degrees();
    let (latitude, longitude) = snap_to_equal_width_grid(latitude, longitude, grid_degrees);
    Locality::from_degrees(latitude, longitude).unwrap_or(location)
}

/// Sites of the beacons. Each next one is where it most reduces the mean distance of a player to the nearest beacon.
fn beacon_sites(
    settings: &SearchSettings,
    sites: &[RouteEndpoint],
    cities: &[City],
) -> Result<Vec<usize>, ScenarioError> {
    let most = sites.len().saturating_sub(1);
    if settings.beacons as usize > most {
        let (beacons, sites) = (settings.beacons, sites.len());
        let message = format!("latency.beacons is {beacons}; of {sites} sites use at most {most} for beacons");
        return Err(ScenarioError(message));
    }
    let miles_to = |city: &City, site: usize| city.location.chord_miles(sites[site].location);
    let mut nearest_miles = vec![f64::from(f32::MAX); cities.len()];
    let mut chosen = Vec::new();
    for _ in 0..settings.beacons {
        let mean_with = |site: usize| {
            let of_cities = cities.iter().zip(&nearest_miles);
            of_cities.map(|(city, nearest)| city.population_weight * nearest.min(miles_to(city, site))).sum::<f64>()
        };
        let free = (0..sites.len()).filter(|site| !chosen.contains(site));
        let best = free.map(|site| (mean_with(site), site)).min_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, site)) = best else { break };
        chosen.push(site);
        nearest_miles.iter_mut().zip(cities).for_each(|(nearest, city)| *nearest = nearest.min(miles_to(city, site)));
    }
    Ok(chosen)
}

/// Fleet of beacons whose ids are their positions.
fn fleet_of(round_trips: &RoundTrips<'_>, beacons: &[RouteEndpoint]) -> BeaconFleet {
    let live: Vec<Beacon> = (0..).zip(beacons).map(|(id, endpoint)| Beacon { id, place: endpoint.location }).collect();
    let mut known = Vec::new();
    for (from, one) in (0..).zip(beacons) {
        for (to, other) in (0..).zip(beacons).filter(|(to, _)| *to != from) {
            known.push(BeaconPairRoundTrip { from, to, round_trip_ms: round_trips.round_trip_between_ms(one, other) });
        }
    }
    BeaconFleet::new(&live, &known, PREDICTOR_V1)
}

#[cfg(test)]
mod tests;
