//! Two rulesets on the same people, seed by seed: what differs, and whether that is more than chance.
//!
//! Both worlds of a seed have the same people with the same patience at the same hours, so what is compared is the
//! difference within each seed. The interval is Student's for the mean of paired differences (Student, 1908).

use serde::Serialize;

use crate::sim::figures::Figures;

/// A figure that is compared.
struct Measure {
    name: &'static str,
    unit: &'static str,
    of: fn(&Figures) -> Option<f64>,
}

/// What is compared, in the order of the table.
const MEASURES: &[Measure] = &[
    Measure { name: "wait, median", unit: "s", of: |it| some(it.waits_s.count, it.waits_s.p50) },
    Measure { name: "wait, p90", unit: "s", of: |it| some(it.waits_s.count, it.waits_s.p90) },
    Measure { name: "wait, p99", unit: "s", of: |it| some(it.waits_s.count, it.waits_s.p99) },
    Measure { name: "gave up", unit: "% of tickets", of: |it| percent(it.tickets.gave_up, it.tickets.entered) },
    Measure { name: "matches begun", unit: "", of: |it| Some(it.matches.begun as f64) },
    Measure {
        name: "checks failed",
        unit: "% of matches",
        of: |it| percent(it.matches.declined + it.matches.unanswered, it.matches.proposed),
    },
    Measure { name: "rating gap, median", unit: "points", of: |it| some(it.rating_gap.count, it.rating_gap.p50) },
    Measure { name: "rating gap, p90", unit: "points", of: |it| some(it.rating_gap.count, it.rating_gap.p90) },
    Measure { name: "team gap, median", unit: "points", of: |it| some(it.team_gap.count, it.team_gap.p50) },
    Measure {
        name: "favourite by true skill, mean",
        unit: "%",
        of: |it| some(it.true_favourite_percent.count, it.true_favourite_percent.mean),
    },
    Measure {
        name: "favourite won",
        unit: "% of matches",
        of: |it| it.fairness.as_ref().map(|fair| fair.favourite_won_percent),
    },
    Measure { name: "round trip, median", unit: "ms", of: |it| some(it.round_trip_ms.count, it.round_trip_ms.p50) },
    Measure { name: "round trip, p90", unit: "ms", of: |it| some(it.round_trip_ms.count, it.round_trip_ms.p90) },
    Measure { name: "round trip regret, mean", unit: "ms", of: |it| some(it.regret_ms.count, it.regret_ms.mean) },
];

/// One figure of two rulesets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
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
pub fn differences(first: &[Figures], second: &[Figures]) -> Vec<Difference> {
    MEASURES.iter().filter_map(|measure| difference(measure, first, second)).collect()
}

fn difference(measure: &Measure, first: &[Figures], second: &[Figures]) -> Option<Difference> {
    let pairs = first.iter().zip(second).filter_map(|(first, second)| (measure.of)(first).zip((measure.of)(second)));
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
        student(count - 1) * deviation / (count as f64).sqrt()
    });
    Some(Difference {
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

fn some(count: u64, value: f64) -> Option<f64> {
    (0 < count).then_some(value)
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    some(whole, 100.0 * part as f64 / whole.max(1) as f64)
}

/// The 97.5 % point of Student's t: exact to three decimals up to ten degrees of freedom, then by its expansion about
/// the normal distribution's (Abramowitz and Stegun 26.7.5).
fn student(freedom: usize) -> f64 {
    const EXACT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(exact) = freedom.checked_sub(1).and_then(|at| EXACT.get(at)) {
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
    use crate::sim::map::Map;
    use crate::sim::scenario::Scenario;
    use crate::sim::tally::{Tally, Wait};

    fn worlds(waits: &[u32]) -> Vec<Figures> {
        let map = Map::of(&Scenario::default(), &crate::domain::latency::DEFAULT_LINE, None).unwrap();
        let world =
            |&ms: &u32| Figures::of(&Tally { waits: vec![Wait { ms, party: 1, city: 0 }], ..Tally::default() }, &map);
        waits.iter().map(world).collect()
    }

    fn median_of(first: &[u32], second: &[u32]) -> Difference {
        differences(&worlds(first), &worlds(second)).into_iter().find(|it| it.name == "wait, median").unwrap()
    }

    #[test]
    fn a_difference_that_all_seeds_agree_on_is_more_than_chance() {
        // The seeds differ by minutes; within each the second waits 1 s longer, or nearly.
        let it = median_of(&[10_000, 70_000, 130_000, 300_000], &[11_000, 71_100, 130_900, 301_000]);
        assert!((it.difference - 1.0).abs() < 1e-9 && it.is_more_than_chance, "{it:?}");
    }

    #[test]
    fn what_seeds_do_not_agree_on_is_chance_and_one_seed_says_nothing() {
        let it = median_of(&[10_000, 10_000, 10_000], &[15_000, 5_000, 12_000]);
        assert!(!it.is_more_than_chance, "{it:?}");
        let it = median_of(&[10_000], &[99_000]);
        assert!(!it.is_more_than_chance && it.margin.is_none(), "{it:?}");
    }

    #[test]
    fn students_points_are_those_of_the_tables() {
        for (freedom, wanted) in [(1, 12.706), (9, 2.262), (11, 2.201), (29, 2.045), (120, 1.980)] {
            assert!((student(freedom) - wanted).abs() < 2e-3, "{freedom}: {}", student(freedom));
        }
    }
}
