//! Simulated worlds: the same seed is the same world, nobody is lost in it, and its people do what the ruleset lets
//! them.

use std::collections::BTreeSet;

use fireteam::domain::latency::LatencyModel;
use fireteam::domain::queue::pass::{self, PassInput};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::queue::SatisfactionSpec;
use fireteam::sim::city_map::CityMap;
use fireteam::sim::latency_matrix::LatencyMatrix;
use fireteam::sim::scenario::Scenario;
use fireteam::sim::statistics::SimStatistics;
use fireteam::sim::tally::SimTally;
use fireteam::sim::world::{SimWorld, build_city_map};

/// A small world: a quarter of an hour of a few hundred.
fn small() -> Scenario {
    let text = "players = 400\nhours = 0.4\nwarm_up_minutes = 20.0\n\
                [skill]\nprior_matches = 8\n[activity]\nplay_sessions_per_day = 6.0";
    Scenario::parse("small.toml", text).unwrap()
}

fn bundled(name: &str) -> Ruleset {
    let all = fireteam::rules::bundled::load_bundled().unwrap();
    let found = all.into_iter().find(|(path, _)| path.ends_with(name)).unwrap();
    (*found.1).clone()
}

fn play(scenario: &Scenario, ruleset: &Ruleset, seed: u64) -> (SimTally, CityMap) {
    let map = build_city_map(scenario, ruleset, None).unwrap();
    let tally = SimWorld::new(scenario, ruleset, &map, seed).unwrap().run(&mut |_| {});
    (tally, map)
}

const SYSTEMS: [&str; 7] = [
    "casual_quickplay.xml",
    "challenge_5v5.xml",
    "comprl_ladder.xml",
    "destiny_control_6v6.xml",
    "openmatchmaking_leagues.xml",
    "ranked_duel.xml",
    "teiserver_duel.xml",
];

/// The same seed is the same world to the byte, and another is another.
#[test]
fn the_same_seed_is_the_same_world() {
    for name in ["teiserver_duel.xml", "destiny_control_6v6.xml", "comprl_ladder.xml"] {
        let ruleset = bundled(name);
        let json = |seed| {
            let (tally, map) = play(&small(), &ruleset, seed);
            serde_json::to_string(&SimStatistics::from_tally(&tally, &map)).unwrap()
        };
        assert_eq!(json(7), json(7), "{name}");
        assert_ne!(json(7), json(8), "{name}");
    }
}

/// Every ticket that entered is matched, has given up, failed a check, or still waits: in each of the shipped rulesets.
#[test]
fn nobody_is_lost() {
    for name in SYSTEMS {
        let (tally, map) = play(&small(), &bundled(name), 1);
        let figures = SimStatistics::from_tally(&tally, &map);
        let it = &figures.tickets;
        assert!(0 < it.entered && 0 < it.matched, "{name}: {it:?}");
        assert_eq!(it.entered, it.matched + it.gave_up + it.checked_out + it.unmatched, "{name}: {it:?}");
        let reasons: u64 = figures.kept_waiting.iter().map(|it| it.count).sum();
        assert!(reasons <= it.gave_up + it.unmatched, "{name}: {:?}", figures.kept_waiting);
        assert!(
            figures.regret_ms.count == figures.round_trip_ms.count
                && figures.regret_ms.max <= figures.round_trip_ms.max
        );
    }
}

/// The passes are the server's own: whoever runs them sees what they are given, and what they propose is played.
#[test]
fn matches_are_those_that_passes_propose() {
    let (scenario, ruleset) = (small(), bundled("ranked_duel.xml"));
    let map = build_city_map(&scenario, &ruleset, None).unwrap();
    let world = SimWorld::new(&scenario, &ruleset, &map, 3).unwrap();
    let (mut passes, mut proposals) = (0, 0);
    let tally = world.run_with_pass_fn(
        &mut |input| {
            assert!(input.tickets.windows(2).all(|pair| pair[0].ticket.id < pair[1].ticket.id));
            let outcome = pass::run_pass(input);
            passes += 1;
            proposals += outcome.proposals.len() as u64;
            outcome
        },
        &mut |_| {},
    );
    // What happens while the world settles is not counted.
    assert!(tally.pass_counts[0] <= passes && 0 < tally.pass_counts[0]);
    assert!(tally.match_counts[0] <= proposals && 0 < tally.match_counts[0]);
}

/// S1-97: who has lost often is looked after in a world as at the server: a party enters frustrated, and looks further for it.
#[test]
fn who_has_lost_often_is_looked_after() {
    let (scenario, plain) = (small(), bundled("ranked_duel.xml"));
    let map = build_city_map(&scenario, &plain, None).unwrap();
    let frustrated = |losing_streak| {
        let mut ruleset = plain.clone();
        let rule = SatisfactionSpec { losing_streak, widen: 2.0, ..SatisfactionSpec::default() };
        ruleset.queue.as_mut().unwrap().satisfaction = Some(rule);
        let world = SimWorld::new(&scenario, &ruleset, &map, 3).unwrap();
        let (mut seen, mut all) = (BTreeSet::new(), BTreeSet::new());
        let mut look = |input: &PassInput<'_>| {
            all.extend(input.tickets.iter().map(|it| it.ticket.id));
            seen.extend(input.tickets.iter().filter(|it| it.frustrated).map(|it| it.ticket.id));
            pass::run_pass(input)
        };
        world.run_with_pass_fn(&mut look, &mut |_| {});
        (seen.len(), all.len())
    };
    let (seen, all) = frustrated(Some(2));
    assert!(0 < seen && seen < all, "{seen} of {all}");
    assert!(frustrated(Some(3)).0 < seen);
    assert_eq!(frustrated(None).0, 0);
}

/// One player far above everybody waits longer than others do, and is told that it wins.
#[test]
fn an_outlier_waits_longer() {
    let scenario = Scenario { hours: 1.0, ..Scenario::bundled("outliers_evening").unwrap() };
    let scenario = Scenario { players: 800, warm_up_minutes: 30.0, ..scenario };
    let (tally, map) = play(&scenario, &bundled("ranked_duel.xml"), 1);
    let figures = SimStatistics::from_tally(&tally, &map);
    let outlier = figures.outlier.unwrap();
    assert!(0 < outlier.waits_s.count + outlier.gave_up, "it plays or gives up");
    assert!(0 < outlier.gave_up || figures.waits_s.p50 < outlier.waits_s.p50, "{outlier:?} {:?}", figures.waits_s);
}

/// Measured round trips count where there are any: a world with every trip ten times as slow sees just that, under rules that do not
/// look at round trips.
#[test]
fn round_trips_come_from_the_matrix() {
    let sites = "id,latitude,longitude\n1,51.5,-0.1\n2,40.7,-74.0\n3,35.7,139.7\n";
    let pings = |scale: u32| {
        let trips = [(1, 1, 2), (1, 2, 75), (1, 3, 220), (2, 2, 2), (2, 3, 170), (3, 3, 2)];
        let rows = trips.map(|(from, to, ms)| format!("{from},{to},{}\n", ms * scale));
        format!("source,destination,avg\n{}", rows.concat())
    };
    let scenario = Scenario { last_mile_ms: 0.0, ..small() };
    // Nothing for the way from a city to its site.
    let line = LatencyModel { intercept_ms: 0.0, ms_per_1000_km: 0.0 };
    let ruleset = Ruleset { latency_model: line, ..bundled("comprl_ladder.xml") };
    let ninth_decile = |scale| {
        let matrix = LatencyMatrix::parse(&pings(scale), sites).unwrap();
        let map = build_city_map(&scenario, &ruleset, Some(&matrix)).unwrap();
        let tally = SimWorld::new(&scenario, &ruleset, &map, 5).unwrap().run(&mut |_| {});
        SimStatistics::from_tally(&tally, &map).round_trip_ms.p90
    };
    let (once, tenfold) = (ninth_decile(1), ninth_decile(10));
    assert!(0.0 < once && (10.0 * once - tenfold).abs() < 1e-2, "{once} {tenfold}");
}
