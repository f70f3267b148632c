//! Cost of passes on change: the same worlds are simulated with passes at the interval.

use std::fmt::Write as _;

use crate::cli::simulate::input::{RulesetWithCityMap, SimulationInput};
use crate::cli::simulate::parallel_worlds;
use crate::domain::ruleset::queue::PassTrigger;
use crate::sim::ScenarioError;
use crate::sim::comparison::{StatisticDelta, compare_statistics};
use crate::sim::statistics::SimStatistics;

/// Statistics that earlier passes change: waits get shorter, and there are fewer tickets to choose from.
const COMPARED_STATISTICS: [&str; 6] =
    ["wait, median", "wait, p90", "rating gap, median", "rating gap, p90", "round trip, median", "round trip, p90"];

/// Differences of passes on change from passes at the interval; `None` if the ruleset has no passes on change. `on_change` are the
/// statistics of the seeds.
pub(super) fn compare_with_interval(
    input: &SimulationInput,
    seeds: &[u64],
    on_change: &[SimStatistics],
) -> Result<Option<Vec<StatisticDelta>>, ScenarioError> {
    let RulesetWithCityMap { file, ruleset, city_map, .. } = &input.rulesets[0];
    let mut at_interval = ruleset.clone();
    let Some(queue) = &mut at_interval.queue else { return Ok(None) };
    if queue.pass_trigger == PassTrigger::Interval {
        return Ok(None);
    }
    queue.pass_trigger = PassTrigger::Interval;
    let without_searches = RulesetWithCityMap {
        file: file.clone(),
        ruleset: at_interval,
        city_map: city_map.clone(),
        search_map: None,
        latency_sources: Vec::new(),
    };
    let tallies = parallel_worlds::run_worlds(&input.scenario, &[without_searches], seeds)?.remove(0);
    let at_interval: Vec<SimStatistics> =
        tallies.iter().map(|tally| SimStatistics::from_tally(tally, city_map)).collect();
    let mut differences = compare_statistics(&at_interval, on_change);
    differences.retain(|delta| COMPARED_STATISTICS.contains(&delta.name));
    Ok(Some(differences))
}

/// Table of the differences. `interval_ms` is the time between passes at the interval.
pub(super) fn format_differences(differences: &[StatisticDelta], interval_ms: u32) -> String {
    let mut text = format!("\npasses on change, beside passes every {interval_ms} ms in the same worlds\n");
    let _ = writeln!(text, "{:<32}{:>12}{:>12}{:>12}", "", "at interval", "on change", "difference");
    for StatisticDelta { name, unit, first, second, difference, .. } in differences {
        let _ = writeln!(text, "{:<32}{first:>12.3}{second:>12.3}{difference:>+12.3}", format!("  {name}, {unit}"));
    }
    text
}
