//! Least round trips to the other beacons in the last hour.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::beacon::registry::PeerTrip;

/// Time for which a round trip counts, microseconds.
const KEPT_US: u64 = 3_600_000_000;

/// Round trips of one announcement: the nearest beacons. The server takes no more.
const TRIPS_MAX: usize = 256;

/// Round trips to other beacons, at most one per beacon and minute.
#[derive(Debug, Default)]
pub(super) struct PeerTrips {
    by_id: BTreeMap<u32, PeerRecord>,
}

#[derive(Debug, Default)]
struct PeerRecord {
    /// Time and round trip of each measurement, microseconds, the oldest first.
    measured: VecDeque<(u64, u32)>,
    /// Time until which the beacon asked to be left alone.
    busy_until_us: u64,
}

impl PeerTrips {
    /// Whether a beacon may be measured: it has not asked for a pause that still lasts.
    pub(super) fn may_measure(&self, id: u32, now_us: u64) -> bool {
        self.by_id.get(&id).is_none_or(|record| record.busy_until_us <= now_us)
    }

    /// Records a measurement: the least round trip, if a packet was answered, and the pause that the beacon asked for.
    pub(super) fn record(&mut self, id: u32, now_us: u64, floor_us: Option<u32>, pause: Duration) {
        let record = self.by_id.entry(id).or_default();
        record.measured.extend(floor_us.map(|floor_us| (now_us, floor_us)));
        record.busy_until_us = now_us.saturating_add(u64::try_from(pause.as_micros()).unwrap_or(u64::MAX));
    }

    /// Least round trips of the last hour, of the nearest beacons, nearest first. Older measurements are forgotten.
    pub(super) fn least(&mut self, now_us: u64) -> Vec<PeerTrip> {
        for record in self.by_id.values_mut() {
            while record.measured.front().is_some_and(|(at_us, _)| KEPT_US <= now_us.saturating_sub(*at_us)) {
                record.measured.pop_front();
            }
        }
        self.by_id.retain(|_, record| !record.measured.is_empty() || now_us < record.busy_until_us);
        let mut trips: Vec<PeerTrip> = self.by_id.iter().filter_map(|(id, record)| record.trip(*id, now_us)).collect();
        trips.sort_by(|one, other| one.floor_ms.total_cmp(&other.floor_ms));
        trips.truncate(TRIPS_MAX);
        trips
    }
}

impl PeerRecord {
    fn trip(&self, beacon_id: u32, now_us: u64) -> Option<PeerTrip> {
        let floor_us = self.measured.iter().map(|(_, floor_us)| *floor_us).min()?;
        let (last_us, _) = self.measured.back()?;
        let age_ms = u32::try_from(now_us.saturating_sub(*last_us) / 1_000).unwrap_or(u32::MAX);
        Some(PeerTrip { beacon_id, floor_ms: floor_us as f32 / 1_000.0, age_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_US: u64 = 60_000_000;

    fn trip(beacon_id: u32, floor_ms: f32, age_ms: u32) -> PeerTrip {
        PeerTrip { beacon_id, floor_ms, age_ms }
    }

    #[test]
    fn peer_trips_are_the_least_of_the_last_hour() {
        let mut trips = PeerTrips::default();
        trips.record(7, MINUTE_US, Some(20_500), Duration::ZERO);
        trips.record(7, 2 * MINUTE_US, Some(30_000), Duration::ZERO);
        trips.record(8, 2 * MINUTE_US, Some(1_000), Duration::ZERO);
        trips.record(9, 2 * MINUTE_US, None, Duration::ZERO);
        assert_eq!(trips.least(3 * MINUTE_US), [trip(8, 1.0, 60_000), trip(7, 20.5, 60_000)]);
        assert_eq!(trips.least(61 * MINUTE_US), [trip(8, 1.0, 59 * 60_000), trip(7, 30.0, 59 * 60_000)]);
        assert_eq!(trips.least(62 * MINUTE_US), []);
        assert!(trips.by_id.is_empty());
    }

    #[test]
    fn peer_that_asks_for_a_pause_is_left_alone_for_its_time() {
        let mut trips = PeerTrips::default();
        assert!(trips.may_measure(7, 0));
        trips.record(7, MINUTE_US, None, Duration::from_secs(30));
        assert!(!trips.may_measure(7, MINUTE_US + 29_999_999));
        assert_eq!(trips.least(MINUTE_US + 29_999_999), []);
        assert!(trips.may_measure(7, MINUTE_US + 30_000_000));
    }

    #[test]
    fn announcement_has_the_nearest_peers() {
        let mut trips = PeerTrips::default();
        (1..=300).for_each(|id| trips.record(id, 0, Some(301 - id), Duration::ZERO));
        let least = trips.least(1);
        assert_eq!((least.len(), least[0].beacon_id, least[255].beacon_id), (256, 300, 45));
    }
}
