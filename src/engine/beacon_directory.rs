//! Beacons in memory: those in the store, as this server last read them, and those announced at this server.

use std::sync::Arc;

use parking_lot::RwLock;

use crate::auth::receipt_check::FleetKeys;
use crate::domain::time::UnixMs;
use crate::store::beacons::StoredBeacon;

/// Time without an announcement after which a beacon is dead, milliseconds.
pub(crate) const BEACON_DEAD_AFTER_MS: u64 = 60_000;

/// Keys of the fleet, and the rule for networks. By default there are no beacons.
#[derive(Clone, Debug, Default)]
pub struct BeaconSettings {
    /// Keys; `None`: the server knows no beacons.
    pub fleet_keys: Option<FleetKeys>,
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
}

impl BeaconDirectory {
    pub(crate) fn new(settings: BeaconSettings) -> Self {
        Self { settings, beacons: RwLock::new(Arc::default()) }
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

    /// A live beacon.
    pub(crate) fn live_beacon(&self, id: u32, now: UnixMs) -> Option<StoredBeacon> {
        let beacons = self.all();
        let at = beacons.binary_search_by_key(&id, |beacon| beacon.id).ok()?;
        Some(beacons[at].clone()).filter(|beacon| is_live(beacon, now))
    }
}

/// Whether a beacon has announced itself lately.
pub(crate) fn is_live(beacon: &StoredBeacon, now: UnixMs) -> bool {
    now.ms_since(beacon.announced_at) < BEACON_DEAD_AFTER_MS
}
