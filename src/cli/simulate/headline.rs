//! Headline of a comparison: what the second ruleset changes, in words.

use crate::sim::comparison::{DeltaVerdict, StatisticDelta, VERDICT_SEEDS_MIN};

/// Statistic of the headline, with its words for more and for less.
struct HeadlineStatistic {
    name: &'static str,
    label: &'static str,
    more: &'static str,
    less: &'static str,
    /// The change is given in percent of the first value, not in the statistic's unit.
    is_relative: bool,
}

const HEADLINE_STATISTICS: [HeadlineStatistic; 6] = [
    HeadlineStatistic {
        name: "wait, median",
        label: "median wait",
        more: "longer",
        less: "shorter",
        is_relative: true,
    },
    HeadlineStatistic {
        name: "gave up",
        label: "tickets that gave up",
        more: "more",
        less: "fewer",
        is_relative: true,
    },
    HeadlineStatistic {
        name: "round trip, median",
        label: "median round trip",
        more: "longer",
        less: "shorter",
        is_relative: false,
    },
    // The favourite's chance by true skill: 50 % is a fair match.
    HeadlineStatistic {
        name: "favourite by true skill, mean",
        label: "favourite's chance",
        more: "higher, so less fair",
        less: "lower, so fairer",
        is_relative: false,
    },
    HeadlineStatistic {
        name: "searches: round trip, mean",
        label: "mean round trip of searches",
        more: "longer",
        less: "shorter",
        is_relative: false,
    },
    HeadlineStatistic {
        name: "searches: time to a session, mean",
        label: "mean time to a session",
        more: "longer",
        less: "shorter",
        is_relative: false,
    },
];

/// Headline of the differences between `[first, second]`, their names.
pub(super) fn headline([first, second]: &[String; 2], differences: &[StatisticDelta]) -> String {
    let found = |statistic: &HeadlineStatistic| differences.iter().find(|delta| delta.name == statistic.name);
    let known: Vec<(&HeadlineStatistic, &StatisticDelta)> =
        HEADLINE_STATISTICS.iter().filter_map(|statistic| Some((statistic, found(statistic)?))).collect();
    let against = format!("{second} against {first}");
    let Some(seeds) = known.iter().map(|(_, delta)| delta.seeds).max() else {
        return format!("{against}: nothing to compare");
    };
    if seeds < VERDICT_SEEDS_MIN {
        let plural = if seeds == 1 { "" } else { "s" };
        return format!("{against}: no verdict from {seeds} seed{plural}; use --seeds {VERDICT_SEEDS_MIN} or more");
    }
    let with = |verdict: DeltaVerdict| known.iter().filter(move |(_, delta)| delta.verdict == verdict);
    let mut parts: Vec<String> =
        with(DeltaVerdict::MoreThanChance).map(|(statistic, delta)| change(statistic, delta)).collect();
    // Such a difference has no interval; the headline gives it as it is.
    let is_different = |delta: &StatisticDelta| delta.difference.abs() > 1e-9;
    let constant = with(DeltaVerdict::SameInEachSeed).filter(|(_, delta)| is_different(delta));
    parts.extend(constant.map(|(statistic, delta)| format!("{} in each seed", change(statistic, delta))));
    let by_chance: Vec<&str> = with(DeltaVerdict::MayBeChance).map(|(statistic, _)| statistic.label).collect();
    let equal = with(DeltaVerdict::SameInEachSeed).filter(|(_, delta)| !is_different(delta));
    let equal: Vec<&str> = equal.map(|(statistic, _)| statistic.label).collect();
    parts.extend(list(&by_chance).map(|list| format!("no difference beyond chance in {list}")));
    parts.extend(list(&equal).map(|list| format!("no difference in any seed in {list}")));
    format!("{against}: {}", parts.join("; "))
}

/// Labels with commas and `and`; `None` without a label.
fn list(labels: &[&str]) -> Option<String> {
    let (last, others) = labels.split_last()?;
    Some(if others.is_empty() { (*last).to_owned() } else { format!("{} and {last}", others.join(", ")) })
}

/// Change of one statistic, as `median wait 57 % shorter`.
fn change(statistic: &HeadlineStatistic, delta: &StatisticDelta) -> String {
    let word = if delta.difference > 0.0 { statistic.more } else { statistic.less };
    let amount = delta.difference.abs();
    if statistic.is_relative && delta.first.abs() > f64::EPSILON {
        return format!("{} {:.0} % {word}", statistic.label, 100.0 * amount / delta.first.abs());
    }
    // A change of shares is in points of percent.
    let unit = if delta.unit.starts_with('%') { "points" } else { delta.unit };
    let digits = usize::from(amount < 10.0);
    format!("{} {amount:.digits$} {unit} {word}", statistic.label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(name: &'static str, unit: &'static str, first: f64, difference: f64, margin: f64) -> StatisticDelta {
        let verdict = match (margin, difference.abs() > margin) {
            (0.0, _) => DeltaVerdict::SameInEachSeed,
            (_, true) => DeltaVerdict::MoreThanChance,
            (_, false) => DeltaVerdict::MayBeChance,
        };
        StatisticDelta {
            name,
            unit,
            first,
            second: first + difference,
            difference,
            margin: Some(margin),
            seeds: 8,
            verdict,
        }
    }

    fn headline_of(differences: &[StatisticDelta]) -> String {
        headline(&["Old".to_owned(), "New".to_owned()], differences)
    }

    #[test]
    fn headline_names_changes_beyond_chance_and_lists_the_others() {
        let differences = [
            delta("wait, median", "s", 40.0, -22.8, 3.0),
            delta("wait, p99", "s", 400.0, -100.0, 3.0),
            delta("round trip, median", "ms", 60.0, 9.04, 1.0),
            delta("gave up", "% of tickets", 4.0, 0.1, 0.6),
            delta("favourite by true skill, mean", "%", 61.0, -0.2, 0.6),
        ];
        assert_eq!(
            headline_of(&differences),
            "New against Old: median wait 57 % shorter; median round trip 9.0 ms longer; no difference beyond chance in \
             tickets that gave up and favourite's chance"
        );
    }

    #[test]
    fn headline_has_no_verdict_without_seeds_or_scatter() {
        let few = StatisticDelta {
            seeds: 4,
            verdict: DeltaVerdict::TooFewSeeds,
            ..delta("wait, median", "s", 4.0, 1.0, 0.1)
        };
        assert_eq!(headline_of(&[few]), "New against Old: no verdict from 4 seeds; use --seeds 5 or more");
        assert_eq!(headline_of(&[]), "New against Old: nothing to compare");
        let constant = [delta("wait, median", "s", 4.0, 1.0, 0.0), delta("gave up", "% of tickets", 0.0, 0.0, 0.0)];
        assert_eq!(
            headline_of(&constant),
            "New against Old: median wait 25 % longer in each seed; no difference in any seed in tickets that gave up"
        );
    }
}
