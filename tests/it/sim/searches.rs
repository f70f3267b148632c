//! Simulated searches: equal for equal seeds, every search accounted for, and the gain of probes where distance says little.

use fireteam::domain::ruleset::Ruleset;
use fireteam::sim::city_map::CityMap;
use fireteam::sim::latency_matrix::LatencyMatrix;
use fireteam::sim::latency_source::LatencySource;
use fireteam::sim::scenario::{Scenario, SearchSettings};
use fireteam::sim::search_map::SearchMap;
use fireteam::sim::search_statistics::SearchStatistics;
use fireteam::sim::search_tally::SearchTally;
use fireteam::sim::search_world::SearchWorld;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

const SITES: u32 = 70;

/// Sites around the world. Each is some milliseconds off the straight way, at random, to every other one.
fn matrix_with_detours() -> LatencyMatrix {
    let mut rng = Pcg64Mcg::seed_from_u64(3);
    let places: Vec<(f64, f64, f64)> = (0..SITES)
        .map(|_| (rng.random_range(-40.0..60.0), rng.random_range(-180.0..180.0), rng.random_range(0.0..40.0)))
        .collect();
    let mut sites = "id,latitude,longitude\n".to_owned();
    let mut pings = "source,destination,avg\n".to_owned();
    for (one, (latitude, longitude, detour_ms)) in places.iter().enumerate() {
        sites.push_str(&format!("{one},{latitude},{longitude}\n"));
        for (other, there) in places[..one].iter().enumerate() {
            let degrees =
                (latitude - there.0).hypot((longitude - there.1).abs().min(360.0 - (longitude - there.1).abs()));
            pings.push_str(&format!("{one},{other},{}\n", 5.0 + 2.0 * degrees + detour_ms + there.2));
        }
    }
    LatencyMatrix::parse(&pings, &sites).unwrap()
}

fn ruleset() -> Ruleset {
    let all = fireteam::rules::bundled::load_bundled().unwrap();
    let found = all.into_iter().find(|(path, _)| path.ends_with("casual_quickplay.xml")).unwrap();
    (*found.1).clone()
}

fn run(settings: &SearchSettings, hours: f64, source: LatencySource, seed: u64) -> SearchTally {
    let scenario = Scenario { latency: Some(settings.clone()), hours, ..Scenario::default() };
    let (ruleset, matrix) = (ruleset(), matrix_with_detours());
    let cities = CityMap::build(&scenario, &ruleset.latency_model, Some(&matrix)).unwrap();
    let map = SearchMap::build(&scenario, &ruleset.latency_model, Some(&matrix), &cities).unwrap().unwrap();
    SearchWorld::new(&scenario, &ruleset, &map, source, seed).unwrap().run()
}

fn few() -> SearchSettings {
    SearchSettings { searches: 120, ..SearchSettings::default() }
}

/// The same seed gives the same searches; another seed gives others.
#[test]
fn searches_with_the_same_seed_are_the_same() {
    for source in LatencySource::ALL {
        let tally = run(&few(), 0.5, source, 5);
        assert_eq!(tally, run(&few(), 0.5, source, 5));
        assert_ne!(tally, run(&few(), 0.5, source, 6));
        assert_eq!((tally.begun, tally.joined.len() as u64 + tally.gave_up), (120, 120), "{source:?}");
    }
}

/// Without packets that are late or lost, a search that probes all sessions joins the best of them. Without probes it sends nothing.
#[test]
fn search_that_probes_all_sessions_joins_the_best() {
    let settings = SearchSettings { sessions: 8, loss: 0.0, jitter_ms: 0.0, searches: 30, ..SearchSettings::default() };
    let tally = run(&settings, 2.0, LatencySource::Measured, 5);
    assert_eq!(tally.joined.len(), 30);
    for search in &tally.joined {
        // Measured in whole microseconds.
        assert!((0.0..0.01).contains(&search.regret_ms), "{search:?}");
        assert!((24..=160).contains(&search.quick_packets) && 0.0 < search.probing_ms, "{search:?}");
        assert_eq!(search.source, LatencySource::Measured);
    }
    for source in [LatencySource::Distance, LatencySource::Predicted] {
        for search in &run(&settings, 2.0, source, 5).joined {
            let found = (search.quick_packets, search.involved_packets, search.probing_ms, search.gain_ms);
            assert_eq!((found, search.source), ((0, 0, 0.0, 0.0), source));
            assert!(0.0 <= search.regret_ms);
        }
    }
}

/// LAT-2: where distance says little, an order by predictions has less regret, and probes still less, by more than the packets' jitter.
#[test]
fn searches_regret_less_by_predictions_and_least_by_probes() {
    let settings = SearchSettings { searches: 400, ..SearchSettings::default() };
    let [distance, predicted, measured] =
        LatencySource::ALL.map(|source| SearchStatistics::from_tally(source, &run(&settings, 2.0, source, 1)));
    let regrets = [&distance, &predicted, &measured].map(|searches| searches.regret_ms.mean);
    println!("mean regret by distance, predicted and measured: {regrets:?} ms");
    assert!(regrets[1] < 0.9 * regrets[0] && regrets[2] < 0.5 * regrets[1], "{regrets:?}");
    assert!(0.0 < measured.gain_ms.mean && measured.joined_by_measured > 380, "{measured:?}");
    assert_eq!((predicted.joined_by_predicted, distance.joined_by_distance), (400, 400));
}

/// With too few beacons, searches by predictions are those by distance.
#[test]
fn searches_without_a_fleet_are_those_by_distance() {
    let settings = SearchSettings { beacons: 11, ..few() };
    let of = |source| run(&settings, 0.5, source, 9);
    assert_eq!(of(LatencySource::Predicted), of(LatencySource::Distance));
}

/// Seats end: of many searches for one session, most give up, and no more join than there are seats.
#[test]
fn searches_give_up_where_no_seat_is_open() {
    let settings = SearchSettings { sessions: 1, ..few() };
    let tally = run(&settings, 0.02, LatencySource::Measured, 2);
    assert_eq!(tally.joined.len() as u64 + tally.gave_up, 120);
    // Eight seats, each for several minutes, in the 72 s of the start and the patience of six minutes.
    assert!((8..=24).contains(&tally.joined.len()), "{}", tally.joined.len());
}

/// Lost packets are repeated, and where most are lost, sessions stay unmeasured.
#[test]
fn searches_with_loss_send_more_packets_and_measure_less() {
    let with_loss = |loss| {
        let settings = SearchSettings { loss, ..few() };
        SearchStatistics::from_tally(LatencySource::Measured, &run(&settings, 0.5, LatencySource::Measured, 4))
    };
    let (none, most) = (with_loss(0.0), with_loss(0.8));
    assert!(most.regret_ms.mean > 2.0 * none.regret_ms.mean, "{} {}", most.regret_ms.mean, none.regret_ms.mean);
    assert!(most.seeking_s.mean > none.seeking_s.mean);
}
