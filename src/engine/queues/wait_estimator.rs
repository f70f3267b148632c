//! Wait time estimates by set, region and party size, and their accuracy.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::id::SetId;
use crate::domain::time::UnixMs;

/// Samples kept per class; the oldest is dropped.
const SAMPLES_PER_CLASS_MAX: usize = 256;

/// Maximum number of classes; waits of further ones count only for the set.
const WAIT_CLASSES_MAX: usize = 4_096;

/// Age limit of samples, milliseconds.
const SAMPLE_WINDOW_MS: u64 = 60 * 60 * 1000;

/// Fewer samples give no estimate, and could reveal a single player's wait.
const MIN_SAMPLES: usize = 8;

/// Class of tickets with a common estimate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WaitClass {
    /// Matchmaking set.
    pub(crate) set_id: SetId,
    /// Nearest region; empty if the party measured none.
    pub(crate) region: Box<str>,
    /// Players in the ticket; 0 for all sizes.
    pub(crate) party_size: u16,
}

/// Waits and match qualities of the last hour.
#[derive(Debug, Default)]
pub(crate) struct WaitEstimator {
    wait_samples: BTreeMap<WaitClass, VecDeque<(UnixMs, u64)>>,
    /// Qualities of recently started matches, by set.
    quality_samples: BTreeMap<SetId, VecDeque<(UnixMs, f64)>>,
    /// Tickets with an estimate, and those matched within its 90th percentile, by set.
    estimate_accuracy: BTreeMap<SetId, (u64, u64)>,
}

/// Percentiles of recent waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitEstimate {
    /// Median, milliseconds.
    pub(crate) p50_ms: u64,
    /// 90th percentile, milliseconds.
    pub(crate) p90_ms: u64,
    /// Number of samples.
    pub(crate) sample_count: u32,
}

impl WaitEstimator {
    /// Records that a ticket was matched at `now` after `waited_ms`.
    pub(crate) fn record_wait(&mut self, class: WaitClass, waited_ms: u64, now: UnixMs) {
        if let Some(estimate) = self.estimate(&class, now) {
            let (estimated, within_p90) = self.estimate_accuracy.entry(class.set_id).or_default();
            *estimated += 1;
            *within_p90 += u64::from(waited_ms <= estimate.p90_ms);
        }
        let set_class = WaitClass { region: "".into(), party_size: 0, ..class.clone() };
        for class in [class, set_class] {
            if self.wait_samples.len() >= WAIT_CLASSES_MAX && !self.wait_samples.contains_key(&class) {
                continue;
            }
            let samples = self.wait_samples.entry(class).or_default();
            if samples.len() == SAMPLES_PER_CLASS_MAX {
                samples.pop_front();
            }
            samples.push_back((now, waited_ms));
        }
    }

    /// Records the quality of a match that started at `now`.
    pub(crate) fn record_quality(&mut self, set_id: SetId, quality: f64, now: UnixMs) {
        let samples = self.quality_samples.entry(set_id).or_default();
        if samples.len() == SAMPLES_PER_CLASS_MAX {
            samples.pop_front();
        }
        samples.push_back((now, quality));
    }

    /// Median quality of the last hour's matches.
    pub(crate) fn median_quality(&self, set_id: SetId, now: UnixMs) -> Option<f64> {
        let samples = self.quality_samples.get(&set_id)?.iter();
        let mut recent: Vec<f64> = samples
            .filter(|(recorded_at, _)| now.ms_since(*recorded_at) < SAMPLE_WINDOW_MS)
            .map(|(_, quality)| *quality)
            .collect();
        recent.sort_unstable_by(f64::total_cmp);
        recent.get(recent.len() / 2).copied()
    }

    /// Estimate for a class; for the whole set if the class has too few samples.
    pub(crate) fn estimate(&self, class: &WaitClass, now: UnixMs) -> Option<WaitEstimate> {
        let set_class = WaitClass { region: "".into(), party_size: 0, set_id: class.set_id };
        self.percentiles_of_class(class, now).or_else(|| self.percentiles_of_class(&set_class, now))
    }

    /// Estimate over all tickets of a set.
    pub(crate) fn estimate_for_set(&self, set_id: SetId, now: UnixMs) -> Option<WaitEstimate> {
        self.percentiles_of_class(&WaitClass { region: "".into(), party_size: 0, set_id }, now)
    }

    /// Percentage of tickets matched within their 90th-percentile estimate; 90 is ideal.
    pub(crate) fn p90_estimate_met_percent(&self, set_id: SetId) -> Option<f64> {
        let (estimated, within_p90) =
            self.estimate_accuracy.get(&set_id).copied().filter(|(estimated, _)| *estimated > 0)?;
        Some(within_p90 as f64 * 100.0 / estimated as f64)
    }

    fn percentiles_of_class(&self, class: &WaitClass, now: UnixMs) -> Option<WaitEstimate> {
        let samples = self.wait_samples.get(class)?;
        let mut samples: Vec<u64> = samples
            .iter()
            .filter(|(recorded_at, _)| now.ms_since(*recorded_at) < SAMPLE_WINDOW_MS)
            .map(|(_, waited_ms)| *waited_ms)
            .collect();
        if samples.len() < MIN_SAMPLES {
            return None;
        }
        samples.sort_unstable();
        let percentile = |percent: usize| samples[(samples.len() * percent).div_ceil(100).clamp(1, samples.len()) - 1];
        Some(WaitEstimate {
            p50_ms: percentile(50),
            p90_ms: percentile(90),
            sample_count: u32::try_from(samples.len()).unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_class(region: &str, party_size: u16) -> WaitClass {
        WaitClass { set_id: SetId(1), region: region.into(), party_size }
    }

    /// S1-96: search times are kept per set, region and party size, as percentiles.
    #[test]
    fn wait_estimates_are_percentiles_of_the_last_hour() {
        let mut estimator = WaitEstimator::default();
        for second in 1..=10 {
            estimator.record_wait(wait_class("eu", 1), second * 1_000, UnixMs(second));
        }
        let estimate = estimator.estimate(&wait_class("eu", 1), UnixMs(20)).unwrap();
        assert_eq!(estimate, WaitEstimate { p50_ms: 5_000, p90_ms: 9_000, sample_count: 10 });
        let set_estimate = estimator.estimate(&wait_class("na", 2), UnixMs(20));
        assert_eq!(set_estimate, Some(estimate), "falls back to the set");
        assert_eq!(
            estimator.estimate(&wait_class("eu", 1), UnixMs(SAMPLE_WINDOW_MS + 11)),
            None,
            "samples expire after an hour"
        );
        assert_eq!(estimator.estimate(&WaitClass { set_id: SetId(2), ..wait_class("eu", 1) }, UnixMs(20)), None);
    }

    #[test]
    fn wait_estimate_accuracy_counts_waits_within_p90() {
        let mut estimator = WaitEstimator::default();
        assert_eq!(estimator.p90_estimate_met_percent(SetId(1)), None);
        for _ in 0..8 {
            estimator.record_wait(wait_class("", 1), 1_000, UnixMs(0));
        }
        for waited_ms in [900, 1_000, 1_001, 5_000] {
            estimator.record_wait(wait_class("", 1), waited_ms, UnixMs(0));
        }
        assert_eq!(estimator.p90_estimate_met_percent(SetId(1)), Some(50.0));
    }
}
