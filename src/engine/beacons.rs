//! Beacons: which are live, what their receipts are worth, and the round trips that players prove by them.

mod announce;
mod command;
mod directory;
mod party_latency;
mod proven_regions;
mod refresh_task;
mod round_trips;

use std::net::IpAddr;
use std::sync::Arc;

use fireteam_probe::AddressPrefix;

use crate::auth::receipt_check::FleetKeys;
use crate::engine::common::Common;

pub use self::announce::{ANNOUNCE_INTERVAL_MS, BEACON_LIST_GOOD_FOR_MS, BEACONS_WANTED};
pub use self::command::{
    AnnounceBeaconCommand, BeaconClaim, BeaconList, LatencyTokens, ReceiptPrefixRule, ReportTripsAnswer,
    ReportTripsCommand,
};
pub(crate) use self::directory::BeaconDirectory;
pub(crate) use self::refresh_task::run_beacon_refresh;

/// Keys of the fleet, and how near a receipt's network must be. By default there are no beacons.
#[derive(Clone, Debug, Default)]
pub struct BeaconSettings {
    /// Keys; `None`: the server knows no beacons.
    pub fleet_keys: Option<FleetKeys>,
    /// When a network counts as the caller's.
    pub prefix_rule: ReceiptPrefixRule,
}

/// Commands about beacons. Clones share their state.
#[derive(Clone)]
pub struct BeaconEngine {
    common: Arc<Common>,
}

impl BeaconEngine {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        Self { common }
    }
}

impl std::fmt::Debug for BeaconEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BeaconEngine").finish_non_exhaustive()
    }
}

/// Distance up to which two networks count as one place, kilometers: carriers send a player's packets by several networks, and calls by
/// another family of addresses.
const SAME_PLACE_KM_MAX: f64 = 300.0;

impl Common {
    /// Whether a receipt of this network counts for a caller at `address`.
    pub(crate) fn is_prefix_of_caller(&self, prefix: AddressPrefix, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return false };
        if AddressPrefix::of(address) == prefix {
            return true;
        }
        if self.beacons.settings.prefix_rule == ReceiptPrefixRule::Strict {
            return false;
        }
        let places = (self.geo_locator.locate(prefix.first_address()), self.geo_locator.locate(address));
        let (Some(one), Some(other)) = places else { return false };
        crate::domain::location_privacy::arc_km(one, other) <= SAME_PLACE_KM_MAX
    }
}
