//! Charts of the page of a simulation, as JSON for the page's script, `console/src/report`.

use serde::Serialize;

use crate::sim::comparison::{DeltaVerdict, StatisticDelta};
use crate::sim::statistics::Percentiles;

/// Maximum number of points of a line; more are not visible.
const LINE_POINTS_MAX: usize = 200;

/// Minimum number of values for a distribution.
const DISTRIBUTION_VALUES_MIN: usize = 20;

/// Percentiles that are marked on a distribution.
const MARKED_PERCENTILES: [usize; 3] = [50, 90, 99];

/// One chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Chart {
    /// Lines through points.
    Lines {
        /// Title of the chart.
        title: String,
        /// Label of the horizontal axis, with the unit.
        x: String,
        /// Label of the vertical axis, with the unit.
        y: String,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Percentiles of groups: regions, sizes of parties, hours.
    Groups {
        /// Title of the chart.
        title: String,
        /// Unit of the percentiles.
        unit: String,
        /// Names of the groups, from left to right.
        groups: Vec<String>,
        /// Percentiles of each ruleset.
        series: Vec<GroupPercentiles>,
    },
    /// Differences with their intervals.
    Intervals {
        /// Title of the chart.
        title: String,
        /// Label of the axis.
        unit: String,
        /// One row for each statistic.
        rows: Vec<IntervalRow>,
    },
}

/// Line of a chart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
    /// Marked percentiles.
    pub marks: Vec<PercentileMark>,
}

/// Percentile on the line of a distribution.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PercentileMark {
    /// Name, as `p90`.
    pub name: String,
    /// Value.
    pub x: f64,
    /// Percent of values up to it.
    pub y: f64,
}

/// Percentiles of the groups of one ruleset; `None` for a group without values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupPercentiles {
    /// Name of the ruleset, or of the population.
    pub name: String,
    /// Median of each group.
    pub p50: Vec<Option<f64>>,
    /// 90th percentile of each group.
    pub p90: Vec<Option<f64>>,
}

/// Difference of a statistic, percent of its value under the first ruleset.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IntervalRow {
    name: String,
    percent: f64,
    low: f64,
    high: f64,
    /// Difference and interval in the statistic's unit.
    text: String,
    verdict: &'static str,
    is_more_than_chance: bool,
}

impl Chart {
    /// Lines through points; `None` without a point.
    pub fn of_lines(title: &str, (x, y): (&str, &str), lines: Vec<Line>) -> Option<Self> {
        let lines: Vec<Line> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
        (!lines.is_empty()).then(|| Self::Lines { title: title.into(), x: x.into(), y: y.into(), lines })
    }

    /// Cumulative distributions of values; `None` if each has too few.
    pub(super) fn of_distributions(title: &str, unit: &str, lines: Vec<Line>) -> Option<Self> {
        Self::of_lines(title, (unit, "% of them, at most"), lines)
    }

    /// Percentiles of groups; `None` with fewer than two groups.
    pub(super) fn of_groups(
        title: &str,
        unit: &str,
        groups: Vec<String>,
        series: Vec<GroupPercentiles>,
    ) -> Option<Self> {
        (groups.len() > 1).then(|| Self::Groups { title: title.into(), unit: unit.into(), groups, series })
    }

    /// Differences, those with an interval and a value to compare with; `None` if there are none.
    pub(super) fn of_differences(title: &str, differences: &[StatisticDelta]) -> Option<Self> {
        let rows: Vec<IntervalRow> = differences.iter().filter_map(IntervalRow::from_delta).collect();
        let unit = "% of its value before, 95 % interval".into();
        (!rows.is_empty()).then(|| Self::Intervals { title: title.into(), unit, rows })
    }
}

impl Line {
    /// Line without marks.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, marks: Vec::new() }
    }

    /// Cumulative distribution of values up to the 99th percentile; the tail would compress the rest. Without points if there are fewer
    /// than `DISTRIBUTION_VALUES_MIN` values.
    pub(super) fn of_distribution(name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.len() < DISTRIBUTION_VALUES_MIN {
            return Self::new(name, Vec::new());
        }
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let index_of = |percent: usize| (count * percent).div_ceil(100).clamp(1, count) - 1;
        let shown = index_of(99) + 1;
        let step = shown.div_ceil(LINE_POINTS_MAX);
        let share = |index: usize| 100.0 * (index + 1) as f64 / count as f64;
        let mut points: Vec<(f64, f64)> = Vec::new();
        for index in (0..shown).step_by(step).chain([shown - 1]) {
            // Of equal values the last one has the share.
            let last_equal = values.partition_point(|value| *value <= values[index]) - 1;
            points.pop_if(|last| last.0 == values[index]);
            points.push((values[index], share(last_equal)));
        }
        let mark = |percent: usize| {
            let x = values[index_of(percent)];
            PercentileMark { name: format!("p{percent}"), x, y: share(values.partition_point(|value| *value <= x) - 1) }
        };
        Self { name: name.into(), points, marks: MARKED_PERCENTILES.map(mark).into() }
    }
}

impl GroupPercentiles {
    /// Percentiles of `groups` by the lookup `percentiles_of`.
    pub(super) fn of_groups<'a, K>(
        name: impl Into<String>,
        groups: &[K],
        percentiles_of: impl Fn(&K) -> Option<&'a Percentiles>,
    ) -> Self {
        let of = |value: fn(&Percentiles) -> f64| groups.iter().map(|group| percentiles_of(group).map(value)).collect();
        Self { name: name.into(), p50: of(|percentiles| percentiles.p50), p90: of(|percentiles| percentiles.p90) }
    }
}

impl IntervalRow {
    /// `None` for a difference without an interval, or from nothing.
    fn from_delta(delta: &StatisticDelta) -> Option<Self> {
        let margin = delta.margin?;
        if delta.first.abs() < f64::EPSILON {
            return None;
        }
        let percent = |difference: f64| 100.0 * difference / delta.first.abs();
        let (low, high) = (delta.difference - margin, delta.difference + margin);
        let unit = if delta.unit.is_empty() { String::new() } else { format!(" {}", delta.unit) };
        Some(Self {
            name: delta.name.to_owned(),
            percent: percent(delta.difference),
            low: percent(low),
            high: percent(high),
            text: format!("{:+.2} ({low:+.2} to {high:+.2}){unit}", delta.difference),
            verdict: delta.verdict.as_str(),
            is_more_than_chance: delta.verdict == DeltaVerdict::MoreThanChance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_ends_at_its_99th_percentile_and_marks_nearest_ranks() {
        let line = Line::of_distribution("waits", (1..=1_000).map(f64::from));
        assert!(line.points.len() <= LINE_POINTS_MAX + 1, "{}", line.points.len());
        assert_eq!((line.points[0], *line.points.last().unwrap()), ((1.0, 0.1), (990.0, 99.0)));
        let marks: Vec<(&str, f64, f64)> = line.marks.iter().map(|mark| (&*mark.name, mark.x, mark.y)).collect();
        assert_eq!(marks, [("p50", 500.0, 50.0), ("p90", 900.0, 90.0), ("p99", 990.0, 99.0)]);
        assert!(line.points.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    }

    #[test]
    fn distribution_of_equal_values_is_one_point_and_of_few_none() {
        let line = Line::of_distribution("waits", [3.0; 40]);
        assert_eq!(line.points, [(3.0, 100.0)]);
        assert!(line.marks.iter().all(|mark| (mark.x, mark.y) == (3.0, 100.0)), "marks are on the line: {line:?}");
        assert_eq!(Line::of_distribution("waits", [3.0; 19]).points, []);
    }
}
