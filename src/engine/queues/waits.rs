//! How long tickets have lately waited, by set, region and party size; and whether those who were told so were told right.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::id::SetId;
use crate::domain::time::UnixMs;

/// Waits that are kept of one kind of ticket: the latest.
const KEPT_MAX: usize = 256;

/// Kinds that are told apart; beyond, waits go to the set's own.
const KINDS_MAX: usize = 4_096;

/// For how long a wait counts.
const COUNTS_MS: u64 = 60 * 60 * 1000;

/// Fewer waits than this say nothing, and could be one player's.
const LEAST: usize = 8;

/// A kind of ticket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sort {
    /// The set.
    pub(super) set_id: SetId,
    /// Where its match is played, or its nearest region; empty where the ruleset does not go by regions.
    pub(super) region: Box<str>,
    /// Players in it; 0 for all sizes.
    pub(super) party_size: u16,
}

/// Waits of the last hour.
#[derive(Debug, Default)]
pub(super) struct Waits {
    kept: BTreeMap<Sort, VecDeque<(UnixMs, u64)>>,
    /// By set: how good the passes thought the latest matches that have begun.
    qualities: BTreeMap<SetId, VecDeque<(UnixMs, f64)>>,
    /// By set: tickets that were told a ninth decile, and those among them that were matched within it.
    told: BTreeMap<SetId, (u64, u64)>,
}

/// What waits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Half of them were no longer.
    pub(super) p50_ms: u64,
    /// Nine in ten of them were no longer.
    pub(super) p90_ms: u64,
    /// How many they are.
    pub(super) count: u32,
}

impl Waits {
    /// Notes that a ticket of this kind was matched at `now` after `waited_ms`.
    pub(super) fn note(&mut self, sort: Sort, waited_ms: u64, now: UnixMs) {
        if let Some(estimate) = self.estimate(&sort, now) {
            let (told, right) = self.told.entry(sort.set_id).or_default();
            *told += 1;
            *right += u64::from(waited_ms <= estimate.p90_ms);
        }
        let whole = Sort { region: "".into(), party_size: 0, ..sort.clone() };
        for sort in [sort, whole] {
            if KINDS_MAX <= self.kept.len() && !self.kept.contains_key(&sort) {
                continue;
            }
            let waits = self.kept.entry(sort).or_default();
            if waits.len() == KEPT_MAX {
                waits.pop_front();
            }
            waits.push_back((now, waited_ms));
        }
    }

    /// Notes that a match of this quality has begun at `now`.
    pub(super) fn note_quality(&mut self, set_id: SetId, quality: f64, now: UnixMs) {
        let qualities = self.qualities.entry(set_id).or_default();
        if qualities.len() == KEPT_MAX {
            qualities.pop_front();
        }
        qualities.push_back((now, quality));
    }

    /// The median quality of the last hour's matches.
    pub(super) fn quality(&self, set_id: SetId, now: UnixMs) -> Option<f64> {
        let qualities = self.qualities.get(&set_id)?.iter();
        let mut recent: Vec<f64> =
            qualities.filter(|(at, _)| now.since(*at) < COUNTS_MS).map(|(_, quality)| *quality).collect();
        recent.sort_unstable_by(f64::total_cmp);
        recent.get(recent.len() / 2).copied()
    }

    /// What tickets of this kind wait; of all kinds of the set, where there are too few of this one.
    pub(super) fn estimate(&self, sort: &Sort, now: UnixMs) -> Option<Estimate> {
        let whole = Sort { region: "".into(), party_size: 0, set_id: sort.set_id };
        self.of(sort, now).or_else(|| self.of(&whole, now))
    }

    /// What all tickets of a set wait.
    pub(super) fn whole(&self, set_id: SetId, now: UnixMs) -> Option<Estimate> {
        self.of(&Sort { region: "".into(), party_size: 0, set_id }, now)
    }

    /// Of the tickets that were told a ninth decile, how many were matched within it, percent: 90 is right.
    pub(super) fn calibration_percent(&self, set_id: SetId) -> Option<f64> {
        let (told, right) = self.told.get(&set_id).copied().filter(|(told, _)| 0 < *told)?;
        Some(right as f64 * 100.0 / told as f64)
    }

    fn of(&self, sort: &Sort, now: UnixMs) -> Option<Estimate> {
        let waits = self.kept.get(sort)?;
        let mut waits: Vec<u64> =
            waits.iter().filter(|(at, _)| now.since(*at) < COUNTS_MS).map(|(_, waited)| *waited).collect();
        if waits.len() < LEAST {
            return None;
        }
        waits.sort_unstable();
        let rank = |percent: usize| waits[(waits.len() * percent).div_ceil(100).clamp(1, waits.len()) - 1];
        Some(Estimate { p50_ms: rank(50), p90_ms: rank(90), count: u32::try_from(waits.len()).unwrap_or(u32::MAX) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(region: &str, party_size: u16) -> Sort {
        Sort { set_id: SetId(1), region: region.into(), party_size }
    }

    /// S1-96: search times are kept per set, region and party size, as percentiles.
    #[test]
    fn waits_of_the_last_hour_are_told_as_percentiles() {
        let mut waits = Waits::default();
        for second in 1..=10 {
            waits.note(sort("eu", 1), second * 1_000, UnixMs(second));
        }
        let told = waits.estimate(&sort("eu", 1), UnixMs(20)).unwrap();
        assert_eq!(told, Estimate { p50_ms: 5_000, p90_ms: 9_000, count: 10 });
        let of_the_set = waits.estimate(&sort("na", 2), UnixMs(20));
        assert_eq!(of_the_set, Some(told), "too few of their own kind: those of the set");
        assert_eq!(waits.estimate(&sort("eu", 1), UnixMs(COUNTS_MS + 11)), None, "an hour later nobody knows");
        assert_eq!(waits.estimate(&Sort { set_id: SetId(2), ..sort("eu", 1) }, UnixMs(20)), None);
    }

    #[test]
    fn estimates_are_held_against_what_came() {
        let mut waits = Waits::default();
        assert_eq!(waits.calibration_percent(SetId(1)), None);
        for _ in 0..8 {
            waits.note(sort("", 1), 1_000, UnixMs(0));
        }
        for waited in [900, 1_000, 1_001, 5_000] {
            waits.note(sort("", 1), waited, UnixMs(0));
        }
        assert_eq!(waits.calibration_percent(SetId(1)), Some(50.0));
    }
}
