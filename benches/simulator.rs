//! Goals PM: speed of the simulator in players per second of wall-clock time, and the share of the passes in it.

use fireteam::domain::queue::pass;
use fireteam::domain::ruleset::Ruleset;
use fireteam::rules::bundled;
use fireteam::sim::scenario::Scenario;
use fireteam::sim::world::{SimWorld, build_city_map};

use crate::harness::{clock, report};

/// Simulated worlds of each ruleset, each with a seed of its own.
const SEEDS: u64 = 3;

/// Required players per second (PM1).
const PLAYERS_A_SECOND: f64 = 1_000.0;

/// The five shipped rulesets.
const SYSTEMS: [&str; 5] = [
    "rulesets/challenge_5v5.xml",
    "rulesets/comprl_ladder.xml",
    "rulesets/destiny_control_6v6.xml",
    "rulesets/openmatchmaking_leagues.xml",
    "rulesets/teiserver_duel.xml",
];

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("PM1") && !wanted("PM2") {
        return;
    }
    let rulesets = bundled::load_bundled().expect("the bundled rulesets are valid");
    for (scenario, hours) in [("normal", 2.0), ("launch_day", 1.0)] {
        // Without a warm-up, so that all players are counted.
        let scenario = Scenario { hours, warm_up_minutes: 0.0, ..Scenario::bundled(scenario).expect("it ships") };
        for (path, ruleset) in rulesets.iter().filter(|(path, _)| SYSTEMS.iter().any(|name| path.ends_with(name))) {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            world(&format!("{name}, {}", scenario.title), &scenario, ruleset);
        }
    }
}

fn world(what: &str, scenario: &Scenario, ruleset: &Ruleset) {
    let map = build_city_map(scenario, ruleset, None).expect("a map");
    let (mut speeds, mut shares) = (Vec::new(), Vec::new());
    for seed in 1..=SEEDS {
        let begin = clock();
        let world = SimWorld::new(scenario, ruleset, &map, seed).expect("a world");
        let mut in_passes = 0.0;
        let tally = world.run_with_pass_fn(
            &mut |input, memory| {
                let begin = clock();
                let outcome = pass::run_pass_with_memory(input, memory);
                in_passes += begin.elapsed().as_secs_f64() * 1e6;
                outcome
            },
            &mut |_| {},
        );
        let whole = begin.elapsed().as_secs_f64() * 1e6;
        speeds.push((tally.entered_counts[1] as f64 / whole * 1e6, PLAYERS_A_SECOND));
        shares.push((whole, in_passes));
    }
    report("PM1", &format!("{what}: players a second"), "1,000", &speeds, 0.0);
    report("PM2", &format!("{what}: a world"), "its passes alone", &shares, 0.0);
}
