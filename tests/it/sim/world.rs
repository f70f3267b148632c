//! Simulated worlds: equal for equal seeds, every ticket accounted for, and passes and rules as on a server.

use std::collections::BTreeSet;

use fireteam::domain::latency::LatencyModel;
use fireteam::domain::queue::pass::{self, PassInput};
use fireteam::domain::queue::pass_memory::PassMemory;
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::ruleset::queue::FrustratedPlayerSpec;
use fireteam::sim::city_map::CityMap;
use fireteam::sim::latency_matrix::LatencyMatrix;
use fireteam::sim::scenario::Scenario;
use fireteam::sim::statistics::SimStatistics;
use fireteam::sim::tally::SimTally;
use fireteam::sim::world::{SimWorld, build_city_map};

/// A small world: 24 minutes of 400 players.
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

fn run_world(scenario: &Scenario, ruleset: &Ruleset, seed: u64) -> (SimTally, CityMap) {
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

/// The same seed gives the same statistics, byte for byte; another seed gives others.
#[test]
fn world_with_the_same_seed_is_the_same() {
    for name in ["teiserver_duel.xml", "destiny_control_6v6.xml", "comprl_ladder.xml"] {
        let ruleset = bundled(name);
        let json = |seed| {
            let (tally, map) = run_world(&small(), &ruleset, seed);
            serde_json::to_string(&SimStatistics::from_tally(&tally, &map)).unwrap()
        };
        assert_eq!(json(7), json(7), "{name}");
        assert_ne!(json(7), json(8), "{name}");
    }
}

/// Each entered ticket is matched, gave up, failed a ready check, or still waits, in each shipped ruleset.
#[test]
fn world_accounts_for_every_ticket() {
    for name in SYSTEMS {
        let (tally, map) = run_world(&small(), &bundled(name), 1);
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

/// Matches come from the production pass; its proposals are played.
#[test]
fn world_plays_the_proposals_of_its_passes() {
    let (scenario, ruleset) = (small(), bundled("ranked_duel.xml"));
    let map = build_city_map(&scenario, &ruleset, None).unwrap();
    let world = SimWorld::new(&scenario, &ruleset, &map, 3).unwrap();
    let (mut passes, mut proposals) = (0, 0);
    let tally = world.run_with_pass_fn(
        &mut |input, memory| {
            assert!(input.tickets.windows(2).all(|pair| pair[0].ticket.id < pair[1].ticket.id));
            let outcome = pass::run_pass_with_memory(input, memory);
            passes += 1;
            proposals += outcome.proposals.len() as u64;
            outcome
        },
        &mut |_| {},
    );
    // Passes and matches during the warm-up are not counted.
    assert!(tally.pass_counts[0] <= passes && 0 < tally.pass_counts[0]);
    assert!(tally.match_counts[0] <= proposals && 0 < tally.match_counts[0]);
}

/// S1-97: a losing streak marks a party as frustrated in the simulator as on the server, and widens its window.
#[test]
fn world_marks_losing_streaks_as_frustrated() {
    let (scenario, base_ruleset) = (small(), bundled("ranked_duel.xml"));
    let map = build_city_map(&scenario, &base_ruleset, None).unwrap();
    let frustrated = |losing_streak| {
        let mut ruleset = base_ruleset.clone();
        let rule = FrustratedPlayerSpec { losing_streak, window_widen_factor: 2.0, ..FrustratedPlayerSpec::default() };
        ruleset.queue.as_mut().unwrap().frustrated_player_window = Some(rule);
        let world = SimWorld::new(&scenario, &ruleset, &map, 3).unwrap();
        let (mut frustrated_ids, mut all_ids) = (BTreeSet::new(), BTreeSet::new());
        let mut record_pass = |input: &PassInput<'_>, memory: &mut PassMemory| {
            all_ids.extend(input.tickets.iter().map(|it| it.ticket.id));
            frustrated_ids.extend(input.tickets.iter().filter(|it| it.frustrated).map(|it| it.ticket.id));
            pass::run_pass_with_memory(input, memory)
        };
        world.run_with_pass_fn(&mut record_pass, &mut |_| {});
        (frustrated_ids.len(), all_ids.len())
    };
    let (frustrated_count, ticket_count) = frustrated(Some(2));
    assert!(0 < frustrated_count && frustrated_count < ticket_count, "{frustrated_count} of {ticket_count}");
    assert!(frustrated(Some(3)).0 < frustrated_count);
    assert_eq!(frustrated(None).0, 0);
}

/// A player far above all others waits longer than others, or gives up.
#[test]
fn world_outlier_waits_longer() {
    let scenario = Scenario { hours: 1.0, ..Scenario::bundled("outliers_evening").unwrap() };
    let scenario = Scenario { players: 800, warm_up_minutes: 30.0, ..scenario };
    let (tally, map) = run_world(&scenario, &bundled("ranked_duel.xml"), 1);
    let figures = SimStatistics::from_tally(&tally, &map);
    let outlier = figures.outlier.unwrap();
    assert!(0 < outlier.waits_s.count + outlier.gave_up, "the outlier plays or gives up");
    assert!(0 < outlier.gave_up || figures.waits_s.p50 < outlier.waits_s.p50, "{outlier:?} {:?}", figures.waits_s);
}

/// Measured round trips are used if present: ten times the trips give ten times the result, under rules without latency
/// limits.
#[test]
fn world_round_trips_follow_the_matrix() {
    let sites = "id,latitude,longitude\n1,51.5,-0.1\n2,40.7,-74.0\n3,35.7,139.7\n";
    let pings = |scale: u32| {
        let round_trips = [(1, 1, 2), (1, 2, 75), (1, 3, 220), (2, 2, 2), (2, 3, 170), (3, 3, 2)];
        let rows = round_trips.map(|(from, to, ms)| format!("{from},{to},{}\n", ms * scale));
        format!("source,destination,avg\n{}", rows.concat())
    };
    let scenario = Scenario { last_mile_ms: 0.0, ..small() };
    // No latency between a city and its site.
    let no_distance = LatencyModel { intercept_ms: 0.0, ms_per_1000_km: 0.0 };
    let ruleset = Ruleset { latency_model: no_distance, ..bundled("comprl_ladder.xml") };
    let p90 = |scale| {
        let matrix = LatencyMatrix::parse(&pings(scale), sites).unwrap();
        let map = build_city_map(&scenario, &ruleset, Some(&matrix)).unwrap();
        let tally = SimWorld::new(&scenario, &ruleset, &map, 5).unwrap().run(&mut |_| {});
        SimStatistics::from_tally(&tally, &map).round_trip_ms.p90
    };
    let (single, tenfold) = (p90(1), p90(10));
    assert!(0.0 < single && (10.0 * single - tenfold).abs() < 1e-2, "{single} {tenfold}");
}
