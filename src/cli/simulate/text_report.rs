//! Figures as people read them.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::cli::simulate::input::SimulationInput;
use crate::domain::ruleset::Ruleset;
use crate::sim::comparison::StatisticDelta;
use crate::sim::statistics::{FavoriteCalibration, Percentiles, RuleCount, SimStatistics};

/// Rules that a list names at most.
const RULES_LISTED_MAX: usize = 8;

/// What was simulated.
pub(super) fn format_header(
    stage: &SimulationInput,
    sets: &[(&PathBuf, &Ruleset)],
    seeds: &[u64],
    figures: &SimStatistics,
) -> String {
    let mut text = String::new();
    for (letter, (file, ruleset)) in ["A", "B"].into_iter().zip(sets) {
        let letter = if sets.len() == 1 { String::new() } else { format!("{letter}: ") };
        let _ = writeln!(text, "{letter}{} ({}, hash {})", ruleset.name, file.display(), ruleset.hash);
    }
    let scenario = &stage.scenario;
    let _ = writeln!(text, "{}", scenario.title);
    let (first, last) = (seeds[0], seeds[seeds.len() - 1]);
    let seeds = if first == last { format!("seed {first}") } else { format!("seeds {first} to {last}") };
    let roads = if stage.has_measured_latencies { "measured round trips" } else { "round trips by the ruleset's line" };
    let (hours, settle) = (scenario.hours, scenario.settle_minutes);
    let worlds = u64::from(figures.worlds.max(1));
    let (players, parties, new) = (figures.players / worlds, figures.parties / worlds, figures.newcomers / worlds);
    let _ = writeln!(text, "{seeds}: {hours} h counted after {settle} min to settle; {roads}");
    let _ = writeln!(text, "{players} players in {parties} parties, {new} of them never rated before");
    text
}

/// All figures of a ruleset.
pub(super) fn format_statistics(figures: &SimStatistics) -> String {
    let mut text = String::new();
    let (tickets, matches) = (&figures.tickets, &figures.matches);
    let share = |part: u64| 100.0 * part as f64 / tickets.entered.max(1) as f64;
    let _ = writeln!(text, "tickets   {} entered, {} players in them", tickets.entered, tickets.players);
    let ends = [
        ("matched", tickets.matched),
        ("gave up", tickets.gave_up),
        ("ended by a ready check", tickets.checked_out),
        ("unmatched at the end", tickets.unmatched),
    ];
    for (what, count) in ends {
        let _ = writeln!(text, "          {count:>7} {what} ({:.1} %)", share(count));
    }
    if 0 < tickets.offered {
        let _ = writeln!(text, "          {:>7} were offered another set", tickets.offered);
    }
    let _ = writeln!(
        text,
        "matches   {} proposed, {} begun, {} played; {} declined, {} unanswered, {} without a server\n",
        matches.proposed, matches.begun, matches.played, matches.declined, matches.unanswered, matches.no_server
    );
    let _ = writeln!(text, "{:<32}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "p50", "p90", "p99", "max", "mean", "count");
    write_percentiles_row(&mut text, "wait, s", &figures.waits_s);
    for (size, spread) in &figures.waits_s_by_party {
        write_percentiles_row(&mut text, &format!("  party of {size}"), spread);
    }
    for (region, spread) in &figures.waits_s_by_region {
        write_percentiles_row(&mut text, &format!("  {region}"), spread);
    }
    write_percentiles_row(&mut text, "gave up after, s", &figures.gave_up_after_s);
    write_percentiles_row(&mut text, "rating gap in a match, points", &figures.rating_gap);
    write_percentiles_row(&mut text, "gap of team means, points", &figures.team_gap);
    write_percentiles_row(&mut text, "favourite by true skill, %", &figures.true_favourite_percent);
    write_percentiles_row(&mut text, "round trip, ms", &figures.round_trip_ms);
    write_percentiles_row(&mut text, "its regret, ms", &figures.regret_ms);
    text.push('\n');
    if let Some(fair) = &figures.fairness {
        write_calibration(&mut text, fair);
    }
    write_rule_counts(&mut text, "refusals of pairs by rule", &figures.refusals);
    write_rule_counts(&mut text, "tickets never matched, by what kept them waiting", &figures.kept_waiting);
    let passes = &figures.passes;
    let (run, skipped, mean) = (passes.run, passes.skipped, passes.tickets_mean);
    let _ = writeln!(text, "passes    {run} run over {mean:.1} tickets on average, {skipped} not worth running");
    for (count, what) in
        [(passes.out_of_looks, "ran out of looks"), (passes.fell_back, "took the nearest instead of the best")]
    {
        if 0 < count {
            let _ = writeln!(text, "          {count} {what}");
        }
    }
    if let Some(outlier) = &figures.outlier {
        let _ = writeln!(text, "\nthe outlier, who gave up {} times", outlier.gave_up);
        write_percentiles_row(&mut text, "  wait, s", &outlier.waits_s);
        write_percentiles_row(&mut text, "  its team's chance, %", &outlier.chance_percent);
    }
    text
}

fn write_percentiles_row(text: &mut String, what: &str, spread: &Percentiles) {
    let Percentiles { count, mean, p50, p90, p99, max } = spread;
    if *count == 0 {
        let _ = writeln!(text, "{what:<32}{:>9}", "none");
        return;
    }
    let _ = writeln!(text, "{what:<32}{p50:>9.1}{p90:>9.1}{p99:>9.1}{max:>9.1}{mean:>9.1}{count:>9}");
}

fn write_calibration(text: &mut String, fair: &FavoriteCalibration) {
    let FavoriteCalibration { favourite_percent, favourite_won_percent, brier, bands } = fair;
    let _ = writeln!(
        text,
        "fairness  the favourite was given {favourite_percent:.1} % and won {favourite_won_percent:.1} %"
    );
    let _ = writeln!(text, "          Brier score {brier:.4}; a coin's between two is 0.25");
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

fn write_rule_counts(text: &mut String, what: &str, counts: &[RuleCount]) {
    let total: u64 = counts.iter().map(|it| it.count).sum();
    let _ = writeln!(text, "{what}: {total}");
    for RuleCount { rule, count } in counts.iter().take(RULES_LISTED_MAX) {
        let _ =
            writeln!(text, "          {rule:<28}{count:>12} ({:.1} %)", 100.0 * *count as f64 / total.max(1) as f64);
    }
    if RULES_LISTED_MAX < counts.len() {
        let _ = writeln!(text, "          and {} more", counts.len() - RULES_LISTED_MAX);
    }
    text.push('\n');
}

/// Two rulesets side by side.
pub(super) fn format_differences(differences: &[StatisticDelta]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:<46}{:>10}{:>10}{:>10}   95 % interval", "", "A", "B", "B - A");
    for it in differences {
        let what = if it.unit.is_empty() { it.name.to_owned() } else { format!("{}, {}", it.name, it.unit) };
        let _ = write!(text, "{what:<46}{:>10.2}{:>10.2}{:>+10.2}", it.first, it.second, it.difference);
        let _ = match it.margin {
            Some(margin) => {
                let (low, high) = (it.difference - margin, it.difference + margin);
                let verdict = if it.is_more_than_chance { "more than chance" } else { "may be chance" };
                writeln!(text, "   {:<22} {verdict}", format!("{low:+.2} to {high:+.2}"))
            }
            None => writeln!(text, "   one seed says nothing of chance"),
        };
    }
    let seeds = differences.iter().map(|it| it.seeds).max().unwrap_or(0);
    let _ = writeln!(text, "\n{seeds} seeds, each played by both: differences are within a seed (Student's t, 95 %).");
    let _ = writeln!(text, "Of twenty such differences one is called more than chance by chance alone.");
    text
}
