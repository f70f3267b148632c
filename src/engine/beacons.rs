//! Beacons: which are live, what their receipts are worth, and the round trips that players prove by them.

mod announce;
mod caller_prefix;
mod command;
pub(crate) mod party_latency;
mod proven_regions;
pub(crate) mod refresh_task;
mod report_trips;

use std::fmt;
use std::sync::Arc;

use crate::engine::common::Common;

pub use self::command::{
    ANNOUNCE_INTERVAL_MS, AnnounceBeaconCommand, BEACON_LIST_GOOD_FOR_MS, BEACONS_WANTED, BeaconList,
    ClaimedBeaconRoundTrip, ListedBeacon, ReportTripsAnswer, ReportTripsCommand,
};

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

impl fmt::Debug for BeaconEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BeaconEngine").finish_non_exhaustive()
    }
}
