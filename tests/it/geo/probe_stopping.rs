//! Stopping rule of probe runs on measured round trips: floors of few packets against floors of fifty.

use std::fs;

use fireteam_probe::{PACKETS_PER_RUN_MAX, ProbeRun};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::support::shared_data::shared_data;

/// Runs of the replay.
const RUN_COUNT: usize = 6_000;
/// Packets of a long run.
const LONG_RUN_PACKETS: usize = 50;
const LOST_SHARE: f64 = 0.02;
/// Difference of two floors that counts as equal, milliseconds.
const FLOOR_TOLERANCE_MS: f64 = 2.0;
/// Mean of the exponential jitter of a home network, milliseconds.
const HOME_JITTER_MS: f64 = 3.0;

/// Round trips of one day between two hosts, milliseconds.
#[derive(Clone, Copy)]
struct MeasuredPair {
    floor_ms: f64,
    /// Mean above the floor.
    mean_ms: f64,
    deviation_ms: f64,
}

fn measured_pairs() -> Option<Vec<MeasuredPair>> {
    let file = shared_data("latency-wonderproxy")?.join("pings-2020-07-19-2020-07-20-grouped.csv");
    let pair = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse::<f64>().unwrap();
        let (floor_ms, mean_ms) = (number(2), number(3) - number(2));
        (fields[0] != fields[1]).then(|| MeasuredPair { floor_ms, mean_ms, deviation_ms: number(5) })
    };
    Some(fs::read_to_string(file).unwrap().lines().skip(1).filter_map(pair).collect())
}

/// Gamma-distributed number of this mean and deviation (Marsaglia and Tsang 2000).
fn gamma(mean: f64, deviation: f64, rng: &mut Pcg64Mcg) -> f64 {
    if mean <= 0.0 || deviation <= 0.0 {
        return mean.max(0.0);
    }
    let shape = (mean / deviation).powi(2);
    // Below shape 1, the number of shape + 1 is scaled down.
    let (raised, factor) =
        if shape < 1.0 { (shape + 1.0, rng.random::<f64>().powf(1.0 / shape)) } else { (shape, 1.0) };
    let d = raised - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (radius, angle): (f64, f64) = (rng.random(), rng.random());
        let normal = (-2.0 * (1.0 - radius).ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
        let v = (1.0 + c * normal).powi(3);
        if 0.0 < v && (1.0 - rng.random::<f64>()).ln() < normal * normal / 2.0 + d * (1.0 - v + v.ln()) {
            return d * v * factor * mean / shape;
        }
    }
}

/// Share of the runs whose floor is within the tolerance of that of the long run, and median of the packets sent.
fn replay(pairs: &[MeasuredPair], home_jitter_ms: f64) -> (f64, u32) {
    let mut rng = Pcg64Mcg::seed_from_u64(6);
    let (mut near_count, mut sent) = (0, Vec::new());
    for _ in 0..RUN_COUNT {
        let pair = pairs[rng.random_range(0..pairs.len())];
        let packets: Vec<Option<f64>> = (0..LONG_RUN_PACKETS)
            .map(|_| {
                let jitter_ms = -home_jitter_ms * (1.0 - rng.random::<f64>()).ln();
                let ms = pair.floor_ms + gamma(pair.mean_ms, pair.deviation_ms, &mut rng) + jitter_ms;
                (LOST_SHARE <= rng.random::<f64>()).then_some(ms)
            })
            .collect();
        let mut run = ProbeRun::default();
        for packet in &packets {
            run.record_answer_or_loss(*packet);
            if run.has_sent_enough(PACKETS_PER_RUN_MAX) {
                break;
            }
        }
        let long_floor_ms = packets.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        let statistics = run.statistics();
        near_count += usize::from(statistics.floor_ms.is_some_and(|ms| ms - long_floor_ms <= FLOOR_TOLERANCE_MS));
        sent.push(statistics.sent);
    }
    sent.sort_unstable();
    (near_count as f64 / RUN_COUNT as f64, sent[RUN_COUNT / 2])
}

/// LAT-6: a quick run finds the floor of fifty packets within 2 ms in 95 % of the pairs, over a home network in 84 %, after at most
/// five packets in the median.
#[test]
fn quick_probe_run_finds_the_floor_after_few_packets() {
    let Some(pairs) = measured_pairs() else { return };
    for (name, home_jitter_ms, share_min) in [("hosts", 0.0, 0.95), ("homes", HOME_JITTER_MS, 0.84)] {
        let (share, packets) = replay(&pairs, home_jitter_ms);
        println!(
            "LAT-6 {name}: {:.1} % within {FLOOR_TOLERANCE_MS} ms, goal {:.0} %; {packets} packets in the median, goal 5",
            share * 100.0,
            share_min * 100.0
        );
        assert!(share_min <= share && packets <= 5, "{name}: {share} after {packets} packets");
    }
}

/// The generator of the replay has the mean and the deviation that it is given.
#[test]
fn probe_delays_have_the_measured_mean_and_deviation() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    for (mean, deviation) in [(0.4, 1.2), (3.0, 3.0), (8.0, 2.0)] {
        let numbers: Vec<f64> = (0..50_000).map(|_| gamma(mean, deviation, &mut rng)).collect();
        let found = numbers.iter().sum::<f64>() / numbers.len() as f64;
        let variance = numbers.iter().map(|number| (number - found).powi(2)).sum::<f64>() / numbers.len() as f64;
        assert!((found / mean - 1.0).abs() < 0.05, "mean {found}, not {mean}");
        assert!((variance.sqrt() / deviation - 1.0).abs() < 0.05, "deviation {}, not {deviation}", variance.sqrt());
    }
    assert_eq!(gamma(2.0, 0.0, &mut rng), 2.0);
}
