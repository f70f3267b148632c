//! Tests of the map of searches: its sites, true round trips and estimates.

use fireteam_domain::latency::DEFAULT_LATENCY_MODEL;

use super::*;

/// Sites on a ring, 15 degrees apart, with round trips of 10 ms and 1.5 ms per degree between them.
fn ring_matrix(count: u32) -> LatencyMatrix {
    let mut sites = "id,latitude,longitude\n".to_owned();
    let mut pings = "source,destination,avg\n".to_owned();
    for one in 0..count {
        sites.push_str(&format!("{one},{},{}\n", 40.0 - f64::from(one), f64::from(one) * 15.0 - 180.0));
        for other in 0..one {
            pings.push_str(&format!("{one},{other},{}\n", 10.0 + 1.5 * 15.0 * f64::from(one - other)));
        }
    }
    LatencyMatrix::parse(&pings, &sites).unwrap()
}

fn build(settings: SearchSettings, matrix: Option<&LatencyMatrix>) -> Result<SearchMap, ScenarioError> {
    let scenario = Scenario { latency: Some(settings), ..Scenario::default() };
    let cities = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, matrix)?;
    Ok(SearchMap::build(&scenario, &DEFAULT_LATENCY_MODEL, matrix, &cities)?.expect("a scenario with searches"))
}

#[test]
fn search_map_needs_a_site_that_is_no_beacon() {
    let matrix = ring_matrix(14);
    let settings = |beacons| SearchSettings { beacons, ..SearchSettings::default() };
    let error = build(settings(14), Some(&matrix)).unwrap_err().to_string();
    assert_eq!(error, "latency.beacons is 14; of 14 sites use at most 13 for beacons");
    assert_eq!(build(settings(13), Some(&matrix)).unwrap().place_count, 1);
    let scenario = Scenario::default();
    let cities = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, None).unwrap();
    assert!(SearchMap::build(&scenario, &DEFAULT_LATENCY_MODEL, None, &cities).unwrap().is_none());
}

/// A route has the measured round trip with the last mile, once. Without a matrix it is the model's.
#[test]
fn search_map_round_trips_are_measured_ones_with_the_last_mile() {
    let matrix = ring_matrix(20);
    let settings = SearchSettings { beacons: 12, ..SearchSettings::default() };
    let scenario = Scenario { latency: Some(settings.clone()), ..Scenario::default() };
    let cities = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, Some(&matrix)).unwrap();
    let map = build(settings.clone(), Some(&matrix)).unwrap();
    let endpoints: Vec<RouteEndpoint> = (0..).zip(matrix.sites()).map(site_of_matrix).collect();
    let beacons = beacon_sites(&settings, &endpoints, &cities.cities).unwrap();
    let places: Vec<usize> = (0..20).filter(|site| !beacons.contains(site)).collect();
    assert_eq!((places.len(), map.place_count), (8, 8));
    for (number, city) in cities.cities.iter().enumerate() {
        let (site, miles) = matrix.nearest_site(city.location);
        for (place, &site_of_place) in places.iter().enumerate() {
            let Some(measured_ms) = matrix.round_trip_ms(site, site_of_place) else { continue };
            let expected_ms = measured_ms + 17.0 + 16.0 * miles * 1.609_344 / 1_000.0;
            let found_ms = map.route(number, place).round_trip_ms;
            assert!((found_ms - expected_ms).abs() < 1e-3, "{found_ms}, not {expected_ms}");
        }
    }
    let by_model = build(SearchSettings::default(), None).unwrap();
    let route = by_model.route(0, 0);
    // Cells of 1 and 3 degrees are at most 250 km from the exact places.
    assert!((route.round_trip_ms - route.by_distance_ms).abs() < 16.0 * 0.5, "{route:?}");
}

/// With too few beacons or floors, no round trip is predicted; with enough, each is.
#[test]
fn search_map_predicts_from_twelve_beacons_and_eight_floors_on() {
    for (beacons, floors, are_predicted) in [(11, 11, false), (12, 7, false), (12, 8, true), (0, 0, false)] {
        let map = build(SearchSettings { beacons, floors, ..SearchSettings::default() }, None).unwrap();
        let is_predicted = |route: &Route| route.predicted_ms.is_some();
        assert!(map.routes.iter().all(|route| is_predicted(route) == are_predicted), "{beacons} {floors}");
    }
}

/// The first beacon is the site with the least mean distance to a player, and each further one makes that mean less.
#[test]
fn search_map_beacons_are_near_the_players() {
    let scenario = Scenario::default();
    let cities = CityMap::build(&scenario, &DEFAULT_LATENCY_MODEL, None).unwrap().cities;
    let sites: Vec<RouteEndpoint> =
        cities.iter().map(|city| RouteEndpoint { location: city.location, nearest_site: (0, 0.0) }).collect();
    let mean_miles = |beacons: &[usize]| {
        let nearest = |city: &City| {
            let miles = beacons.iter().map(|&site| city.location.chord_miles(sites[site].location));
            miles.fold(f64::INFINITY, f64::min) * city.population_weight
        };
        cities.iter().map(nearest).sum::<f64>()
    };
    let settings = SearchSettings { beacons: 6, ..SearchSettings::default() };
    let beacons = beacon_sites(&settings, &sites, &cities).unwrap();
    for count in 1..=beacons.len() {
        let means = (0..sites.len()).map(|site| mean_miles(&[&beacons[..count - 1], &[site]].concat()));
        let least = means.fold(f64::INFINITY, f64::min);
        assert!((mean_miles(&beacons[..count]) - least).abs() < 1e-6, "beacon {count}");
    }
}
