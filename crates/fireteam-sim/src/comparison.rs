//! Comparison of two rulesets over paired worlds: the difference of each statistic, and whether it is more than chance.
//!
//! Both worlds of a seed have the same players with the same patience at the same times, so the difference is taken
//! within each seed. The interval is Student's for the mean of paired differences (Student, 1908). There is a verdict from
//! [`VERDICT_SEEDS_MIN`] seeds on, and none if the seeds do not scatter: an interval of no width says nothing of other seeds.

use serde::Serialize;

use crate::search_statistics::SearchStatistics;
use crate::statistics::{Percentiles, SimStatistics};

/// Seeds from which on an interval has a verdict. With fewer, Student's t is so large, and the deviation so uncertain, that the interval
/// says little.
pub const VERDICT_SEEDS_MIN: usize = 5;

/// Verdict of the seeds on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeltaVerdict {
    /// Fewer than [`VERDICT_SEEDS_MIN`] seeds.
    TooFewSeeds,
    /// Each seed has the same difference, perhaps none: the interval has no width.
    SameInEachSeed,
    /// The interval includes 0.
    MayBeChance,
    /// The interval excludes 0.
    MoreThanChance,
}

impl DeltaVerdict {
    /// Verdict in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TooFewSeeds => "too few seeds",
            Self::SameInEachSeed => "same in each seed",
            Self::MayBeChance => "may be chance",
            Self::MoreThanChance => "more than chance",
        }
    }

    fn of_difference(difference: f64, margin: Option<f64>, seeds: usize) -> Self {
        // Differences of equal values differ by their rounding.
        let is_zero = |width: f64| width <= 1e-9 * difference.abs().max(1.0);
        match margin {
            _ if seeds < VERDICT_SEEDS_MIN => Self::TooFewSeeds,
            Some(margin) if !is_zero(margin) && difference.abs() > margin => Self::MoreThanChance,
            Some(margin) if !is_zero(margin) => Self::MayBeChance,
            _ => Self::SameInEachSeed,
        }
    }
}

/// Statistic that is compared.
struct ComparedStatistic {
    name: &'static str,
    unit: &'static str,
    value_of: fn(&SimStatistics) -> Option<f64>,
}

/// Compared statistics, in the order of the table.
const COMPARED_STATISTICS: &[ComparedStatistic] = &[
    ComparedStatistic {
        name: "wait, median",
        unit: "s",
        value_of: |statistics| value_if_any(statistics.waits_s.count, statistics.waits_s.p50),
    },
    ComparedStatistic {
        name: "wait, p90",
        unit: "s",
        value_of: |statistics| value_if_any(statistics.waits_s.count, statistics.waits_s.p90),
    },
    ComparedStatistic {
        name: "wait, p99",
        unit: "s",
        value_of: |statistics| value_if_any(statistics.waits_s.count, statistics.waits_s.p99),
    },
    ComparedStatistic {
        name: "gave up",
        unit: "% of tickets",
        value_of: |statistics| percentage(statistics.tickets.gave_up, statistics.tickets.entered),
    },
    ComparedStatistic {
        name: "matches begun",
        unit: "",
        value_of: |statistics| value_if_any(statistics.worlds.into(), statistics.matches.begun as f64),
    },
    ComparedStatistic {
        name: "checks failed",
        unit: "% of matches",
        value_of: |statistics| {
            percentage(statistics.matches.declined + statistics.matches.unanswered, statistics.matches.proposed)
        },
    },
    ComparedStatistic {
        name: "rating gap, median",
        unit: "points",
        value_of: |statistics| value_if_any(statistics.rating_gap.count, statistics.rating_gap.p50),
    },
    ComparedStatistic {
        name: "rating gap, p90",
        unit: "points",
        value_of: |statistics| value_if_any(statistics.rating_gap.count, statistics.rating_gap.p90),
    },
    ComparedStatistic {
        name: "team gap, median",
        unit: "points",
        value_of: |statistics| value_if_any(statistics.team_gap.count, statistics.team_gap.p50),
    },
    ComparedStatistic {
        name: "favourite by true skill, mean",
        unit: "%",
        value_of: |statistics| {
            value_if_any(statistics.true_favourite_percent.count, statistics.true_favourite_percent.mean)
        },
    },
    ComparedStatistic {
        name: "favourite won",
        unit: "% of matches",
        value_of: |statistics| statistics.fairness.as_ref().map(|calibration| calibration.favourite_won_percent),
    },
    ComparedStatistic {
        name: "round trip, median",
        unit: "ms",
        value_of: |statistics| value_if_any(statistics.round_trip_ms.count, statistics.round_trip_ms.p50),
    },
    ComparedStatistic {
        name: "round trip, p90",
        unit: "ms",
        value_of: |statistics| value_if_any(statistics.round_trip_ms.count, statistics.round_trip_ms.p90),
    },
    ComparedStatistic {
        name: "round trip regret, mean",
        unit: "ms",
        value_of: |statistics| value_if_any(statistics.regret_ms.count, statistics.regret_ms.mean),
    },
    ComparedStatistic {
        name: "searches: round trip, mean",
        unit: "ms",
        value_of: |statistics| mean_of_searches(statistics, |searches| searches.round_trip_ms),
    },
    ComparedStatistic {
        name: "searches: round trip, p90",
        unit: "ms",
        value_of: |statistics| {
            let round_trip_ms = statistics.searches.first()?.round_trip_ms;
            value_if_any(round_trip_ms.count, round_trip_ms.p90)
        },
    },
    ComparedStatistic {
        name: "searches: round trip regret, mean",
        unit: "ms",
        value_of: |statistics| mean_of_searches(statistics, |searches| searches.regret_ms),
    },
    ComparedStatistic {
        name: "searches: probes, mean",
        unit: "packets",
        value_of: |statistics| {
            let quick = mean_of_searches(statistics, |searches| searches.quick_packets)?;
            Some(quick + mean_of_searches(statistics, |searches| searches.involved_packets)?)
        },
    },
    ComparedStatistic {
        name: "searches: time to a session, mean",
        unit: "s",
        value_of: |statistics| mean_of_searches(statistics, |searches| searches.seeking_s),
    },
];

/// Mean of a statistic of the searches. Each ruleset of a comparison has at most one source.
fn mean_of_searches(statistics: &SimStatistics, values: fn(&SearchStatistics) -> Percentiles) -> Option<f64> {
    let values = values(statistics.searches.first()?);
    value_if_any(values.count, values.mean)
}

/// One statistic under two rulesets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticDelta {
    /// Name of the statistic.
    pub name: &'static str,
    /// Unit; may be empty.
    pub unit: &'static str,
    /// Mean over seeds under the first ruleset.
    pub first: f64,
    /// Mean over seeds under the second ruleset.
    pub second: f64,
    /// Second less first, mean over seeds.
    pub difference: f64,
    /// Half the width of the 95 % interval; `None` with one seed.
    pub margin: Option<f64>,
    /// Number of seeds with a value under both rulesets.
    pub seeds: usize,
    /// Verdict of the interval.
    pub verdict: DeltaVerdict,
}

/// Differences between worlds of the same seeds, in the same order. Leaves out statistics that no seed has under both
/// rulesets.
pub fn compare_statistics(first: &[SimStatistics], second: &[SimStatistics]) -> Vec<StatisticDelta> {
    COMPARED_STATISTICS.iter().filter_map(|statistic| paired_difference(statistic, first, second)).collect()
}

fn paired_difference(
    statistic: &ComparedStatistic,
    first: &[SimStatistics],
    second: &[SimStatistics],
) -> Option<StatisticDelta> {
    let pairs = first
        .iter()
        .zip(second)
        .filter_map(|(first, second)| (statistic.value_of)(first).zip((statistic.value_of)(second)));
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let count = pairs.len();
    if count == 0 {
        return None;
    }
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count as f64;
    let difference = mean(&mut pairs.iter().map(|(first, second)| second - first));
    let margin = (count > 1).then(|| {
        let squares: f64 = pairs.iter().map(|(first, second)| (second - first - difference).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        student_t_975(count - 1) * deviation / (count as f64).sqrt()
    });
    Some(StatisticDelta {
        name: statistic.name,
        unit: statistic.unit,
        first: mean(&mut pairs.iter().map(|pair| pair.0)),
        second: mean(&mut pairs.iter().map(|pair| pair.1)),
        difference,
        margin,
        seeds: count,
        verdict: DeltaVerdict::of_difference(difference, margin, count),
    })
}

fn value_if_any(count: u64, value: f64) -> Option<f64> {
    (count > 0).then_some(value)
}

fn percentage(part: u64, whole: u64) -> Option<f64> {
    value_if_any(whole, 100.0 * part as f64 / whole.max(1) as f64)
}

/// 97.5 % quantile of Student's t. Exact to three decimals up to ten degrees of freedom, then by its expansion about
/// the normal quantile (Abramowitz and Stegun 26.7.5).
fn student_t_975(degrees_of_freedom: usize) -> f64 {
    const PUBLISHED_TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(exact) = degrees_of_freedom.checked_sub(1).and_then(|index| PUBLISHED_TABLE.get(index)) {
        return *exact;
    }
    let (z, n): (f64, f64) = (1.959_964, degrees_of_freedom.max(1) as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / n + second / n.powi(2) + third / n.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::city_map::CityMap;
    use crate::scenario::Scenario;
    use crate::tally::{SimTally, WaitSample};

    fn statistics_of_waits(waits: &[u32]) -> Vec<SimStatistics> {
        let map = CityMap::build(&Scenario::default(), &fireteam_domain::latency::DEFAULT_LATENCY_MODEL, None).unwrap();
        let statistics = |&waited_ms: &u32| {
            SimStatistics::from_tally(
                &SimTally {
                    world_count: 1,
                    matched_waits: vec![WaitSample { waited_ms, party_size: 1, city: 0, utc_hour: 20 }],
                    ..SimTally::default()
                },
                &map,
            )
        };
        waits.iter().map(statistics).collect()
    }

    fn median_wait_difference(first: &[u32], second: &[u32]) -> StatisticDelta {
        compare_statistics(&statistics_of_waits(first), &statistics_of_waits(second))
            .into_iter()
            .find(|delta| delta.name == "wait, median")
            .unwrap()
    }

    #[test]
    fn comparison_of_consistent_seeds_is_more_than_chance() {
        // Seeds differ by minutes. Within each seed, the second ruleset waits about 1 s longer.
        let first = [10_000, 70_000, 130_000, 300_000, 20_000];
        let second = [11_000, 71_100, 130_900, 301_000, 21_000];
        let delta = median_wait_difference(&first, &second);
        assert!((delta.difference - 1.0).abs() < 1e-9, "{delta:?}");
        assert_eq!(delta.verdict, DeltaVerdict::MoreThanChance, "{delta:?}");
        let delta = median_wait_difference(&first[..4], &second[..4]);
        assert_eq!(delta.verdict, DeltaVerdict::TooFewSeeds, "{delta:?}");
    }

    #[test]
    fn comparison_of_scattered_seeds_may_be_chance() {
        let delta = median_wait_difference(&[10_000; 6], &[15_000, 5_000, 12_000, 9_000, 10_500, 9_800]);
        assert_eq!(delta.verdict, DeltaVerdict::MayBeChance, "{delta:?}");
        let delta = median_wait_difference(&[10_000], &[99_000]);
        assert_eq!((delta.verdict, delta.margin), (DeltaVerdict::TooFewSeeds, None), "{delta:?}");
    }

    #[test]
    fn comparison_of_seeds_that_do_not_scatter_has_no_verdict() {
        for second in [10_000, 10_100, 25_300] {
            let delta = median_wait_difference(&[10_000; 7], &[second; 7]);
            assert_eq!(delta.verdict, DeltaVerdict::SameInEachSeed, "{delta:?}");
        }
    }

    #[test]
    fn student_t_equals_the_published_table() {
        for (degrees_of_freedom, expected) in [(1, 12.706), (9, 2.262), (11, 2.201), (29, 2.045), (120, 1.980)] {
            assert!(
                (student_t_975(degrees_of_freedom) - expected).abs() < 2e-3,
                "{degrees_of_freedom}: {}",
                student_t_975(degrees_of_freedom)
            );
        }
    }
}
