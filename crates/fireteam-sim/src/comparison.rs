//! Two rulesets on the same people, seed by seed: what differs, and whether that is more than chance.
//!
//! Both worlds of a seed have the same people with the same patience at the same hours, so what is compared is the
//! difference within each seed. The interval is Student's for the mean of paired differences (Student, 1908).

use serde::Serialize;

use crate::statistics::SimStatistics;

/// A figure that is compared.
struct ComparedStatistic {
    name: &'static str,
    unit: &'static str,
    value_of: fn(&SimStatistics) -> Option<f64>,
}

/// What is compared, in the order of the table.
const COMPARED_STATISTICS: &[ComparedStatistic] = &[
    ComparedStatistic {
        name: "wait, median",
        unit: "s",
        value_of: |it| value_if_any(it.waits_s.count, it.waits_s.p50),
    },
    ComparedStatistic { name: "wait, p90", unit: "s", value_of: |it| value_if_any(it.waits_s.count, it.waits_s.p90) },
    ComparedStatistic { name: "wait, p99", unit: "s", value_of: |it| value_if_any(it.waits_s.count, it.waits_s.p99) },
    ComparedStatistic {
        name: "gave up",
        unit: "% of tickets",
        value_of: |it| percentage(it.tickets.gave_up, it.tickets.entered),
    },
    ComparedStatistic { name: "matches begun", unit: "", value_of: |it| Some(it.matches.begun as f64) },
    ComparedStatistic {
        name: "checks failed",
        unit: "% of matches",
        value_of: |it| percentage(it.matches.declined + it.matches.unanswered, it.matches.proposed),
    },
    ComparedStatistic {
        name: "rating gap, median",
        unit: "points",
        value_of: |it| value_if_any(it.rating_gap.count, it.rating_gap.p50),
    },
    ComparedStatistic {
        name: "rating gap, p90",
        unit: "points",
        value_of: |it| value_if_any(it.rating_gap.count, it.rating_gap.p90),
    },
    ComparedStatistic {
        name: "team gap, median",
        unit: "points",
        value_of: |it| value_if_any(it.team_gap.count, it.team_gap.p50),
    },
    ComparedStatistic {
        name: "favourite by true skill, mean",
        unit: "%",
        value_of: |it| value_if_any(it.true_favourite_percent.count, it.true_favourite_percent.mean),
    },
    ComparedStatistic {
        name: "favourite won",
        unit: "% of matches",
        value_of: |it| it.fairness.as_ref().map(|fair| fair.favourite_won_percent),
    },
    ComparedStatistic {
        name: "round trip, median",
        unit: "ms",
        value_of: |it| value_if_any(it.round_trip_ms.count, it.round_trip_ms.p50),
    },
    ComparedStatistic {
        name: "round trip, p90",
        unit: "ms",
        value_of: |it| value_if_any(it.round_trip_ms.count, it.round_trip_ms.p90),
    },
    ComparedStatistic {
        name: "round trip regret, mean",
        unit: "ms",
        value_of: |it| value_if_any(it.regret_ms.count, it.regret_ms.mean),
    },
];

/// One figure of two rulesets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticDelta {
    /// What is compared.
    pub name: &'static str,
    /// Its unit; may be empty.
    pub unit: &'static str,
    /// Under the first ruleset, mean over seeds.
    pub first: f64,
    /// Under the second.
    pub second: f64,
    /// Second less first, mean over seeds.
    pub difference: f64,
    /// Half the width of its 95 % interval; none with one seed.
    pub margin: Option<f64>,
    /// Seeds that had the figure under both.
    pub seeds: usize,
    /// The interval does not reach to 0.
    pub is_more_than_chance: bool,
}

/// What differs between worlds of the same seeds, in the same order; figures that no seed has under both are left out.
pub fn compare_statistics(first: &[SimStatistics], second: &[SimStatistics]) -> Vec<StatisticDelta> {
    COMPARED_STATISTICS.iter().filter_map(|measure| paired_difference(measure, first, second)).collect()
}

fn paired_difference(
    measure: &ComparedStatistic,
    first: &[SimStatistics],
    second: &[SimStatistics],
) -> Option<StatisticDelta> {
    let pairs = first
        .iter()
        .zip(second)
        .filter_map(|(first, second)| (measure.value_of)(first).zip((measure.value_of)(second)));
    let pairs: Vec<(f64, f64)> = pairs.collect();
    let count = pairs.len();
    if count == 0 {
        return None;
    }
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count as f64;
    let difference = mean(&mut pairs.iter().map(|(first, second)| second - first));
    let margin = (1 < count).then(|| {
        let squares: f64 = pairs.iter().map(|(first, second)| (second - first - difference).powi(2)).sum();
        let deviation = (squares / (count - 1) as f64).sqrt();
        student_t_975(count - 1) * deviation / (count as f64).sqrt()
    });
    Some(StatisticDelta {
        name: measure.name,
        unit: measure.unit,
        first: mean(&mut pairs.iter().map(|it| it.0)),
        second: mean(&mut pairs.iter().map(|it| it.1)),
        difference,
        margin,
        seeds: count,
        is_more_than_chance: margin.is_some_and(|margin| margin < difference.abs()),
    })
}

fn value_if_any(count: u64, value: f64) -> Option<f64> {
    (0 < count).then_some(value)
}

fn percentage(part: u64, whole: u64) -> Option<f64> {
    value_if_any(whole, 100.0 * part as f64 / whole.max(1) as f64)
}

/// The 97.5 % point of Student's t: exact to three decimals up to ten degrees of freedom, then by its expansion about
/// the normal distribution's (Abramowitz and Stegun 26.7.5).
fn student_t_975(freedom: usize) -> f64 {
    const PUBLISHED_TABLE: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(exact) = freedom.checked_sub(1).and_then(|at| PUBLISHED_TABLE.get(at)) {
        return *exact;
    }
    let (z, n): (f64, f64) = (1.959_964, freedom.max(1) as f64);
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
        let world = |&ms: &u32| {
            SimStatistics::from_tally(
                &SimTally {
                    matched_waits: vec![WaitSample { waited_ms: ms, party_size: 1, city: 0 }],
                    ..SimTally::default()
                },
                &map,
            )
        };
        waits.iter().map(world).collect()
    }

    fn median_wait_difference(first: &[u32], second: &[u32]) -> StatisticDelta {
        compare_statistics(&statistics_of_waits(first), &statistics_of_waits(second))
            .into_iter()
            .find(|it| it.name == "wait, median")
            .unwrap()
    }

    #[test]
    fn comparison_of_consistent_seeds_is_more_than_chance() {
        // The seeds differ by minutes; within each the second waits 1 s longer, or nearly.
        let it = median_wait_difference(&[10_000, 70_000, 130_000, 300_000], &[11_000, 71_100, 130_900, 301_000]);
        assert!((it.difference - 1.0).abs() < 1e-9 && it.is_more_than_chance, "{it:?}");
    }

    #[test]
    fn comparison_of_scattered_seeds_or_one_seed_is_not_more_than_chance() {
        let it = median_wait_difference(&[10_000, 10_000, 10_000], &[15_000, 5_000, 12_000]);
        assert!(!it.is_more_than_chance, "{it:?}");
        let it = median_wait_difference(&[10_000], &[99_000]);
        assert!(!it.is_more_than_chance && it.margin.is_none(), "{it:?}");
    }

    #[test]
    fn student_t_equals_the_published_table() {
        for (freedom, wanted) in [(1, 12.706), (9, 2.262), (11, 2.201), (29, 2.045), (120, 1.980)] {
            assert!((student_t_975(freedom) - wanted).abs() < 2e-3, "{freedom}: {}", student_t_975(freedom));
        }
    }
}
