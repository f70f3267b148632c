//! Beacons in memory: those in the store, as this server last read them, and those announced at this server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::auth::receipt_check::BeaconFleetKeys;
use crate::domain::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use crate::domain::latency::predictor_constants::PREDICTOR_V1;
use crate::domain::time::UnixMs;
use crate::store::beacons::StoredBeacon;

/// Time without an announcement after which a beacon is dead, milliseconds.
pub(crate) const BEACON_DEAD_AFTER_MS: u64 = 60_000;

/// Age of the round trips between beacons from which a fleet is made again, milliseconds. It takes time to complete the vectors
/// of all advertisements with the new ones.
const FLEET_REFRESH_MS: u64 = 600_000;

/// Keys of the fleet, and the rule for networks. By default there are no beacons.
#[derive(Clone, Debug, Default)]
pub struct BeaconSettings {
    /// Keys; `None`: the server knows no beacons.
    pub fleet_keys: Option<BeaconFleetKeys>,
    /// Rule by which a network counts as the caller's.
    pub prefix_rule: ReceiptPrefixRule,
    /// Beacon of this server, whose place the round trips of its connections are from; `None` for none.
    pub own_beacon_id: Option<u32>,
}

/// Rule by which the network of a receipt counts as the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiptPrefixRule {
    /// Only if they are the same.
    Strict,
    /// Also if both are located at most 300 km apart.
    #[default]
    Place,
}

/// Beacons with the settings of their checks.
#[derive(Debug)]
pub(crate) struct BeaconDirectory {
    pub(crate) settings: BeaconSettings,
    /// By id.
    beacons: RwLock<Arc<[StoredBeacon]>>,
    /// Fleet of the live beacons, and the time of its round trips.
    fleet: Mutex<Option<FleetSnapshot>>,
    /// Number of times that predictions have got another fleet, or lost theirs.
    fleet_change_count: AtomicU64,
}

/// Fleet that predictions use, until its beacons change or its round trips are old.
#[derive(Debug)]
struct FleetSnapshot {
    fleet: Arc<BeaconFleet>,
    /// Time at which the round trips between its beacons were taken.
    taken_at: UnixMs,
    /// Ids of its beacons, in order. An id is of one place, for ever.
    ids: Vec<u32>,
    /// Announcements that it was made from.
    source_beacons: Arc<[StoredBeacon]>,
}

impl BeaconDirectory {
    pub(crate) fn new(settings: BeaconSettings) -> Self {
        Self {
            settings,
            beacons: RwLock::new(Arc::default()),
            fleet: Mutex::new(None),
            fleet_change_count: AtomicU64::new(0),
        }
    }

    /// Takes the rows of the store.
    pub(crate) fn replace(&self, mut rows: Vec<StoredBeacon>) {
        rows.sort_by_key(|beacon| beacon.id);
        *self.beacons.write() = rows.into();
    }

    /// All beacons, dead ones too, by id.
    pub(crate) fn all(&self) -> Arc<[StoredBeacon]> {
        Arc::clone(&self.beacons.read())
    }

    /// Number of live beacons.
    pub(crate) fn live_count(&self, now: UnixMs) -> usize {
        self.all().iter().filter(|beacon| is_live(beacon, now)).count()
    }

    /// Fleet of the live beacons; `None` if they are too few, or too few of their round trips are known. The same fleet is given
    /// until beacons come or go, or for ten minutes: vectors that were completed with it remain good.
    pub(crate) fn fleet(&self, now: UnixMs) -> Option<Arc<BeaconFleet>> {
        let beacons = self.all();
        let is_member = |beacon: &&StoredBeacon| is_live(beacon, now) && beacon.body.locality().is_some();
        let ids = beacons.iter().filter(is_member).map(|beacon| beacon.id);
        let mut snapshot = self.fleet.lock();
        let is_current = |snapshot: &FleetSnapshot| {
            // A fleet that cannot predict yet is made again with each round of announcements.
            let is_fresh = match snapshot.fleet.check_can_predict() {
                Ok(()) => now.ms_since(snapshot.taken_at) < FLEET_REFRESH_MS,
                Err(_) => Arc::ptr_eq(&snapshot.source_beacons, &beacons),
            };
            is_fresh && ids.clone().eq(snapshot.ids.iter().copied())
        };
        if !snapshot.as_ref().is_some_and(is_current) {
            let live: Vec<&StoredBeacon> = beacons.iter().filter(is_member).collect();
            let fleet = Arc::new(fleet_of(&live));
            let previous = snapshot.as_ref().map(|snapshot| &snapshot.fleet);
            if previous.into_iter().chain([&fleet]).any(|fleet| fleet.check_can_predict().is_ok()) {
                self.fleet_change_count.fetch_add(1, Ordering::Relaxed);
            }
            *snapshot =
                Some(FleetSnapshot { fleet, taken_at: now, ids: ids.collect(), source_beacons: Arc::clone(&beacons) });
        }
        snapshot.as_ref().map(|snapshot| Arc::clone(&snapshot.fleet)).filter(|fleet| fleet.check_can_predict().is_ok())
    }

    /// Number of changes of the fleet that predictions use, until `now`. A fleet that cannot predict, before and after, is no change.
    pub(crate) fn fleet_change_count(&self, now: UnixMs) -> u64 {
        let _ = self.fleet(now);
        self.fleet_change_count.load(Ordering::Relaxed)
    }

    /// A live beacon.
    pub(crate) fn live_beacon(&self, id: u32, now: UnixMs) -> Option<StoredBeacon> {
        let beacons = self.all();
        let at = beacons.binary_search_by_key(&id, |beacon| beacon.id).ok()?;
        Some(beacons[at].clone()).filter(|beacon| is_live(beacon, now))
    }
}

/// Fleet of these beacons, with what they have measured of each other.
fn fleet_of(live: &[&StoredBeacon]) -> BeaconFleet {
    let members = live.iter().filter_map(|beacon| Some(Beacon { id: beacon.id, place: beacon.body.locality()? }));
    let measured = live.iter().flat_map(|beacon| {
        let trips = beacon.body.round_trips.iter();
        trips.map(|&(to, ms)| BeaconPairRoundTrip { from: beacon.id, to, round_trip_ms: f64::from(ms) })
    });
    BeaconFleet::new(&members.collect::<Vec<_>>(), &measured.collect::<Vec<_>>(), PREDICTOR_V1)
}

/// Whether a beacon has announced itself lately.
pub(crate) fn is_live(beacon: &StoredBeacon, now: UnixMs) -> bool {
    now.ms_since(beacon.announced_at) < BEACON_DEAD_AFTER_MS
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::store::beacons::BeaconJson;

    fn beacons(count: u32, announced_at: UnixMs, round_trip_ms: Option<f32>) -> Vec<StoredBeacon> {
        let beacon = |id: u32| StoredBeacon {
            id,
            announced_at,
            body: BeaconJson {
                region: String::new(),
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                port: 1,
                latitude: f64::from(id),
                longitude: 0.0,
                key_id: [0; 4],
                round_trips: round_trip_ms.iter().flat_map(|ms| (1..id).map(move |to| (to, *ms))).collect(),
            },
        };
        (1..=count).map(beacon).collect()
    }

    #[test]
    fn fleet_is_the_same_until_beacons_change_or_round_trips_are_old() {
        let directory = BeaconDirectory::new(BeaconSettings::default());
        assert!(directory.fleet(UnixMs(1)).is_none(), "no beacons");
        directory.replace(beacons(12, UnixMs(1), None));
        assert!(directory.fleet(UnixMs(1)).is_none(), "no round trips");
        directory.replace(beacons(12, UnixMs(1), Some(20.0)));
        let fleet = directory.fleet(UnixMs(1)).unwrap();
        directory.replace(beacons(12, UnixMs(590_000), Some(21.0)));
        assert!(Arc::ptr_eq(&fleet, &directory.fleet(UnixMs(590_000)).unwrap()));
        assert!(!Arc::ptr_eq(&fleet, &directory.fleet(UnixMs(600_001)).unwrap()), "old round trips");
        directory.replace(beacons(13, UnixMs(600_001), Some(21.0)));
        assert_eq!(directory.fleet(UnixMs(600_001)).unwrap().beacons().len(), 13);
        directory.replace(beacons(11, UnixMs(600_001), Some(21.0)));
        assert!(directory.fleet(UnixMs(600_001)).is_none(), "too few");
        assert_eq!(
            directory.fleet_change_count(UnixMs(600_001)),
            4,
            "made, again with new round trips, a beacon more, too few"
        );
        directory.replace(beacons(10, UnixMs(600_001), Some(21.0)));
        assert_eq!(directory.fleet_change_count(UnixMs(600_001)), 4, "still too few");
        directory.replace(beacons(12, UnixMs(600_001), Some(21.0)));
        assert!(directory.fleet(UnixMs(660_000)).is_some() && directory.fleet(UnixMs(660_001)).is_none(), "dead");
    }
}
