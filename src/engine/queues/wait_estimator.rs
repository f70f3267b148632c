//! How long tickets have lately waited, by set, region and party size; and whether those who were told so were told right.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::id::SetId;
use crate::domain::time::UnixMs;

/// Waits that are kept of one kind of ticket: the latest.
const SAMPLES_PER_CLASS_MAX: usize = 256;

/// Kinds that are told apart; beyond, waits go to the set's own.
const WAIT_CLASSES_MAX: usize = 4_096;

/// For how long a wait counts.
const SAMPLE_WINDOW_MS: u64 = 60 * 60 * 1000;

/// Fewer waits than this say nothing, and could be one player's.
const MIN_SAMPLES: usize = 8;

/// A kind of ticket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitClass {
    /// The set.
    pub(super) set_id: SetId,
    /// Where its match is played, or its nearest region; empty where the ruleset does not go by regions.
    pub(super) region: Box<str>,
    /// Players in it; 0 for all sizes.
    pub(super) party_size: u16,
}

/// Waits of the last hour.
#[derive(Debug, Default)]
pub(super) struct WaitEstimator {
    wait_samples: BTreeMap<WaitClass, VecDeque<(UnixMs, u64)>>,
    /// By set: how good the passes thought the latest matches that have begun.
    quality_samples: BTreeMap<SetId, VecDeque<(UnixMs, f64)>>,
    /// By set: tickets that were told a ninth decile, and those among them that were matched within it.
    estimate_accuracy: BTreeMap<SetId, (u64, u64)>,
}

/// What waits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitEstimate {
    /// Half of them were no longer.
    pub(super) p50_ms: u64,
    /// Nine in ten of them were no longer.
    pub(super) p90_ms: u64,
    /// How many they are.
    pub(super) sample_count: u32,
}

impl WaitEstimator {
    /// Notes that a ticket of this kind was matched at `now` after `waited_ms`.
    pub(super) fn record_wait(&mut self, sort: WaitClass, waited_ms: u64, now: UnixMs) {
        if let Some(estimate) = self.estimate(&sort, now) {
            let (told, right) = self.estimate_accuracy.entry(sort.set_id).or_default();
            *told += 1;
            *right += u64::from(waited_ms <= estimate.p90_ms);
        }
        let whole = WaitClass { region: "".into(), party_size: 0, ..sort.clone() };
        for sort in [sort, whole] {
            if WAIT_CLASSES_MAX <= self.wait_samples.len() && !self.wait_samples.contains_key(&sort) {
                continue;
            }
            let waits = self.wait_samples.entry(sort).or_default();
            if waits.len() == SAMPLES_PER_CLASS_MAX {
                waits.pop_front();
            }
            waits.push_back((now, waited_ms));
        }
    }

    /// Notes that a match of this quality has begun at `now`.
    pub(super) fn record_quality(&mut self, set_id: SetId, quality: f64, now: UnixMs) {
        let qualities = self.quality_samples.entry(set_id).or_default();
        if qualities.len() == SAMPLES_PER_CLASS_MAX {
            qualities.pop_front();
        }
        qualities.push_back((now, quality));
    }

    /// The median quality of the last hour's matches.
    pub(super) fn median_quality(&self, set_id: SetId, now: UnixMs) -> Option<f64> {
        let qualities = self.quality_samples.get(&set_id)?.iter();
        let mut recent: Vec<f64> =
            qualities.filter(|(at, _)| now.ms_since(*at) < SAMPLE_WINDOW_MS).map(|(_, quality)| *quality).collect();
        recent.sort_unstable_by(f64::total_cmp);
        recent.get(recent.len() / 2).copied()
    }

    /// What tickets of this kind wait; of all kinds of the set, where there are too few of this one.
    pub(super) fn estimate(&self, sort: &WaitClass, now: UnixMs) -> Option<WaitEstimate> {
        let whole = WaitClass { region: "".into(), party_size: 0, set_id: sort.set_id };
        self.percentiles_of_class(sort, now).or_else(|| self.percentiles_of_class(&whole, now))
    }

    /// What all tickets of a set wait.
    pub(super) fn estimate_for_set(&self, set_id: SetId, now: UnixMs) -> Option<WaitEstimate> {
        self.percentiles_of_class(&WaitClass { region: "".into(), party_size: 0, set_id }, now)
    }

    /// Of the tickets that were told a ninth decile, how many were matched within it, percent: 90 is right.
    pub(super) fn p90_estimate_met_percent(&self, set_id: SetId) -> Option<f64> {
        let (told, right) = self.estimate_accuracy.get(&set_id).copied().filter(|(told, _)| 0 < *told)?;
        Some(right as f64 * 100.0 / told as f64)
    }

    fn percentiles_of_class(&self, sort: &WaitClass, now: UnixMs) -> Option<WaitEstimate> {
        let waits = self.wait_samples.get(sort)?;
        let mut waits: Vec<u64> =
            waits.iter().filter(|(at, _)| now.ms_since(*at) < SAMPLE_WINDOW_MS).map(|(_, waited)| *waited).collect();
        if waits.len() < MIN_SAMPLES {
            return None;
        }
        waits.sort_unstable();
        let rank = |percent: usize| waits[(waits.len() * percent).div_ceil(100).clamp(1, waits.len()) - 1];
        Some(WaitEstimate {
            p50_ms: rank(50),
            p90_ms: rank(90),
            sample_count: u32::try_from(waits.len()).unwrap_or(u32::MAX),
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
        let mut waits = WaitEstimator::default();
        for second in 1..=10 {
            waits.record_wait(wait_class("eu", 1), second * 1_000, UnixMs(second));
        }
        let told = waits.estimate(&wait_class("eu", 1), UnixMs(20)).unwrap();
        assert_eq!(told, WaitEstimate { p50_ms: 5_000, p90_ms: 9_000, sample_count: 10 });
        let of_the_set = waits.estimate(&wait_class("na", 2), UnixMs(20));
        assert_eq!(of_the_set, Some(told), "too few of their own kind: those of the set");
        assert_eq!(
            waits.estimate(&wait_class("eu", 1), UnixMs(SAMPLE_WINDOW_MS + 11)),
            None,
            "an hour later nobody knows"
        );
        assert_eq!(waits.estimate(&WaitClass { set_id: SetId(2), ..wait_class("eu", 1) }, UnixMs(20)), None);
    }

    #[test]
    fn wait_estimate_accuracy_counts_waits_within_p90() {
        let mut waits = WaitEstimator::default();
        assert_eq!(waits.p90_estimate_met_percent(SetId(1)), None);
        for _ in 0..8 {
            waits.record_wait(wait_class("", 1), 1_000, UnixMs(0));
        }
        for waited in [900, 1_000, 1_001, 5_000] {
            waits.record_wait(wait_class("", 1), waited, UnixMs(0));
        }
        assert_eq!(waits.p90_estimate_met_percent(SetId(1)), Some(50.0));
    }
}
