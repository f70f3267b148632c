//! Text report of simulation statistics.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::cli::simulate::input::SimulationInput;
use crate::cli::simulate::search_report;
use crate::domain::ruleset::Ruleset;
use crate::sim::comparison::{StatisticDelta, VERDICT_SEEDS_MIN};
use crate::sim::statistics::{FavoriteCalibration, Percentiles, RuleCount, SimStatistics};

/// Maximum number of rules in a list.
const RULES_LISTED_MAX: usize = 8;

/// Header: rulesets, scenario, seeds and population.
pub(super) fn format_header(
    input: &SimulationInput,
    rulesets: &[(&PathBuf, &Ruleset)],
    seeds: &[u64],
    statistics: &SimStatistics,
) -> String {
    let mut text = String::new();
    for (file, ruleset) in rulesets {
        let _ = writeln!(text, "{} ({}, hash {})", ruleset.name, file.display(), ruleset.hash);
    }
    let scenario = &input.scenario;
    let _ = writeln!(text, "{}", scenario.title);
    let (first, last) = (seeds[0], seeds[seeds.len() - 1]);
    let seeds = if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") };
    let latency_source = if input.has_measured_latencies {
        "measured round trips"
    } else {
        "round trips by the ruleset's latency model"
    };
    let (hours, warm_up) = (scenario.hours, scenario.warm_up_minutes);
    let worlds = u64::from(statistics.worlds.max(1));
    let (players, parties, newcomers) =
        (statistics.players / worlds, statistics.parties / worlds, statistics.newcomers / worlds);
    let _ = writeln!(text, "{seeds}: {hours} h counted after {warm_up} min of warm-up; {latency_source}");
    if statistics.worlds > 0 {
        let _ = writeln!(text, "{players} players in {parties} parties, {newcomers} of them never rated before");
    }
    if let Some(searches) = &scenario.latency {
        text.push_str(&search_report::format_settings(searches));
    }
    text
}

/// All statistics of a ruleset: those of its queue, if it has one, and those of the searches.
pub(super) fn format_statistics(statistics: &SimStatistics) -> String {
    let of_queue = if statistics.worlds > 0 { format_queue_statistics(statistics) } else { String::new() };
    let between = if of_queue.is_empty() || statistics.searches.is_empty() { "" } else { "\n" };
    format!("{of_queue}{between}{}", search_report::format_searches(&statistics.searches))
}

fn format_queue_statistics(statistics: &SimStatistics) -> String {
    let mut text = String::new();
    let (tickets, matches) = (&statistics.tickets, &statistics.matches);
    let share = |part: u64| 100.0 * part as f64 / tickets.entered.max(1) as f64;
    let _ = writeln!(text, "tickets   {} entered, {} players in them", tickets.entered, tickets.players);
    let ends = [
        ("matched", tickets.matched),
        ("gave up", tickets.gave_up),
        ("ended by a ready check", tickets.checked_out),
        ("unmatched at the end", tickets.unmatched),
    ];
    for (label, count) in ends {
        let _ = writeln!(text, "          {count:>7} {label} ({:.1} %)", share(count));
    }
    if tickets.offered > 0 {
        let _ = writeln!(text, "          {:>7} were offered another set", tickets.offered);
    }
    let _ = writeln!(
        text,
        "matches   {} proposed, {} begun, {} played; {} declined, {} unanswered, {} without a server\n",
        matches.proposed, matches.begun, matches.played, matches.declined, matches.unanswered, matches.no_server
    );
    let _ = writeln!(text, "{:<32}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "p50", "p90", "p99", "max", "mean", "count");
    write_percentiles_row(&mut text, "wait, s", &statistics.waits_s);
    for (size, percentiles) in &statistics.waits_s_by_party {
        write_percentiles_row(&mut text, &format!("  party of {size}"), percentiles);
    }
    for (region, percentiles) in &statistics.waits_s_by_region {
        write_percentiles_row(&mut text, &format!("  {region}"), percentiles);
    }
    write_percentiles_row(&mut text, "gave up after, s", &statistics.gave_up_after_s);
    write_percentiles_row(&mut text, "rating gap in a match, points", &statistics.rating_gap);
    write_percentiles_row(&mut text, "gap of team means, points", &statistics.team_gap);
    write_percentiles_row(&mut text, "favourite by true skill, %", &statistics.true_favourite_percent);
    write_percentiles_row(&mut text, "round trip, ms", &statistics.round_trip_ms);
    write_percentiles_row(&mut text, "its regret, ms", &statistics.regret_ms);
    text.push('\n');
    if let Some(calibration) = &statistics.fairness {
        write_calibration(&mut text, calibration);
    }
    write_rule_counts(&mut text, "refusals of pairs by rule", &statistics.refusals);
    write_rule_counts(&mut text, "unmatched tickets by last refusal", &statistics.kept_waiting);
    let passes = &statistics.passes;
    let (run, skipped, mean) = (passes.run, passes.skipped, passes.tickets_mean);
    let _ = writeln!(text, "passes    {run} run over {mean:.1} tickets on average, {skipped} skipped");
    for (count, label) in [
        (passes.out_of_looks, "reached the limit of evaluated pairs"),
        (passes.fell_back, "fell back to the nearest selection"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "          {count} {label}");
        }
    }
    if let Some(outlier) = &statistics.outlier {
        let _ = writeln!(text, "\nthe outlier, which gave up {} times", outlier.gave_up);
        write_percentiles_row(&mut text, "  wait, s", &outlier.waits_s);
        write_percentiles_row(&mut text, "  its team's chance, %", &outlier.chance_percent);
    }
    text
}

fn write_percentiles_row(text: &mut String, label: &str, percentiles: &Percentiles) {
    let Percentiles { count, mean, p50, p90, p99, max } = percentiles;
    if *count == 0 {
        let _ = writeln!(text, "{label:<32}{:>9}", "none");
        return;
    }
    let _ = writeln!(text, "{label:<32}{p50:>9.1}{p90:>9.1}{p99:>9.1}{max:>9.1}{mean:>9.1}{count:>9}");
}

fn write_calibration(text: &mut String, calibration: &FavoriteCalibration) {
    let FavoriteCalibration { favourite_percent, favourite_won_percent, brier, bands } = calibration;
    let _ = writeln!(
        text,
        "fairness  the favourite was given {favourite_percent:.1} % and won {favourite_won_percent:.1} %"
    );
    let _ = writeln!(text, "          Brier score {brier:.4}; a coin has 0.25");
    let _ = writeln!(text, "          {:<12}{:>9}{:>9}{:>9}", "given", "matches", "mean", "won");
    for band in bands {
        let from = band.from_percent;
        let to = from + 10.0;
        let _ = writeln!(
            text,
            "          {:<12}{:>9}{:>7.1} %{:>7.1} %",
            format!("{from:.0} to {to:.0} %"),
            band.matches,
            band.predicted_percent,
            band.won_percent
        );
    }
    text.push('\n');
}

fn write_rule_counts(text: &mut String, label: &str, counts: &[RuleCount]) {
    let total: u64 = counts.iter().map(|rule_count| rule_count.count).sum();
    let _ = writeln!(text, "{label}: {total}");
    for RuleCount { rule, count } in counts.iter().take(RULES_LISTED_MAX) {
        let _ =
            writeln!(text, "          {rule:<28}{count:>12} ({:.1} %)", 100.0 * *count as f64 / total.max(1) as f64);
    }
    if counts.len() > RULES_LISTED_MAX {
        let _ = writeln!(text, "          and {} more", counts.len() - RULES_LISTED_MAX);
    }
    text.push('\n');
}

/// Table of two compared rulesets, whose names are `[first, second]`.
pub(super) fn format_differences([first, second]: &[String; 2], differences: &[StatisticDelta]) -> String {
    let mut text = String::new();
    // The columns are as wide as the names.
    let width_of = |name: &String| (name.chars().count() + 2).max(10);
    let (one, two) = (width_of(first), width_of(second));
    let _ = writeln!(text, "{:<46}{first:>one$}{second:>two$}{:>12}   95 % interval", "", "difference");
    for delta in differences {
        let label =
            if delta.unit.is_empty() { delta.name.to_owned() } else { format!("{}, {}", delta.name, delta.unit) };
        let _ = write!(text, "{label:<46}{:>one$.2}{:>two$.2}{:>+12.2}", delta.first, delta.second, delta.difference);
        let _ = match delta.margin {
            Some(margin) => {
                let (low, high) = (delta.difference - margin, delta.difference + margin);
                writeln!(text, "   {:<22} {}", format!("{low:+.2} to {high:+.2}"), delta.verdict.as_str())
            }
            None => writeln!(text, "   one seed, no interval"),
        };
    }
    let seeds = differences.iter().map(|delta| delta.seeds).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{seeds} seeds, each simulated with both rulesets; differences are within a seed (Student's t, 95 %)."
    );
    if seeds < VERDICT_SEEDS_MIN {
        let _ = writeln!(text, "Fewer than {VERDICT_SEEDS_MIN} seeds give no verdict.");
    } else {
        let _ = writeln!(text, "On average, 1 of 20 statistics without a difference is called more than chance.");
    }
    text
}
