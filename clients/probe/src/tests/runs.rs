//! Statistics of runs and the rule by which they end, against computed values and a plain definition.

use proptest::prelude::*;
use serde::Deserialize;

use crate::*;

#[derive(Deserialize)]
struct Vectors {
    statistics: Vec<StatisticsCase>,
    stopping: Vec<StoppingCase>,
}

#[derive(Deserialize)]
struct StatisticsCase {
    sent: u32,
    answers_ms: Vec<f64>,
    floor_ms: Option<f64>,
    p50_ms: Option<f64>,
    jitter_ms: Option<f64>,
    loss: f64,
    loss_low: f64,
    loss_high: f64,
}

#[derive(Deserialize)]
struct StoppingCase {
    probes: Vec<Option<f64>>,
    stopped_after: u32,
    silent: bool,
    floor_ms: Option<f64>,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../../tests/vectors/probe_packets.json")).unwrap()
}

fn assert_close(got: Option<f64>, expected: Option<f64>) {
    match (got, expected) {
        (Some(got), Some(expected)) => assert!((got - expected).abs() <= 1e-6, "{got} is not {expected}"),
        _ => assert_eq!(got, expected),
    }
}

#[test]
fn run_statistics_equal_the_computed_ones() {
    for case in vectors().statistics {
        let mut run = ProbeRun::default();
        for number in 0..case.sent {
            run.record_answer_or_loss(case.answers_ms.get(number as usize).copied());
        }
        let found = run.statistics();
        assert_eq!((found.sent, found.answered), (case.sent, case.answers_ms.len() as u32));
        assert_close(found.floor_ms, case.floor_ms);
        assert_close(found.p50_ms, case.p50_ms);
        assert_close(found.jitter_ms, case.jitter_ms);
        for (got, expected) in
            [(found.loss.share, case.loss), (found.loss.low, case.loss_low), (found.loss.high, case.loss_high)]
        {
            assert_close(Some(got), Some(expected));
        }
    }
}

#[test]
fn run_ends_when_it_has_been_probed_enough() {
    for case in vectors().stopping {
        let mut run = ProbeRun::default();
        for probe in &case.probes {
            if run.has_sent_enough(PACKETS_PER_RUN_MAX) {
                break;
            }
            run.record_answer_or_loss(*probe);
        }
        let found = run.statistics();
        assert_eq!((found.sent, run.is_silent()), (case.stopped_after, case.silent), "{:?}", case.probes);
        assert_close(found.floor_ms, case.floor_ms);
    }
}

/// A figure that is not known is not 0.
#[test]
fn run_without_packets_knows_nothing() {
    let none = ProbeRun::default();
    let found = none.statistics();
    assert_eq!((found.floor_ms, found.p50_ms, found.jitter_ms), (None, None, None));
    assert_eq!(found.loss, LossInterval { share: 0.0, low: 0.0, high: 1.0 });
    assert!(!none.has_sent_enough(PACKETS_PER_RUN_MAX) && !none.is_silent());
    assert_eq!(
        [0.0, 100.0, 300.0, 600.0, f64::NAN].map(answer_timeout_from_estimate_ms),
        [250.0, 250.0, 600.0, 1_000.0, 250.0]
    );
}

proptest! {
    /// Percentiles are those of the sorted answers, in any order of arrival, and the interval contains the lost share.
    #[test]
    fn run_statistics_equal_the_definition(probes in proptest::collection::vec(proptest::option::of(0.0..2_000.0_f64), 1..40)) {
        let mut run = ProbeRun::default();
        probes.iter().for_each(|probe| run.record_answer_or_loss(*probe));
        let mut answers: Vec<f64> = probes.iter().flatten().copied().collect();
        answers.sort_by(f64::total_cmp);
        let nearest = |share: f64| {
            let least = |value: f64| answers.iter().filter(|answer| **answer <= value).count() as f64;
            answers.iter().copied().find(|value| share * answers.len() as f64 <= least(*value) + 1e-9)
        };
        let found = run.statistics();
        prop_assert_eq!(found.floor_ms, answers.first().copied());
        prop_assert_eq!(found.p50_ms, nearest(0.5));
        let jitter = nearest(0.9).zip(nearest(0.5)).map(|(p90, p50)| p90 - p50).filter(|_| 2 <= answers.len());
        prop_assert_eq!(found.jitter_ms, jitter);
        let loss = found.loss;
        prop_assert!((0.0..=loss.share).contains(&loss.low) && (loss.share..=1.0).contains(&loss.high));
        prop_assert!(run.has_sent_enough(probes.len() as u32));
    }
}
