//! Announcements of beacons, and the list that clients measure.

use std::net::SocketAddr;

use crate::domain::time::UnixMs;
use crate::engine::beacon_directory::is_live;
use crate::engine::beacons::BeaconEngine;
use crate::engine::beacons::command::{AnnounceBeaconCommand, BEACONS_WANTED, BeaconList, ListedBeacon};
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::beacons::{BeaconAnnouncement, BeaconJson, StoredBeacon};

/// Maximum number of beacons.
const BEACONS_MAX: usize = 1_024;

/// Rows of beacons that are dead for so long are deleted, milliseconds.
const PURGE_AFTER_MS: u64 = 24 * 60 * 60 * 1_000;

impl BeaconEngine {
    /// Live beacons, and the caller's binding. The nearest to the caller come first in measuring.
    pub fn beacon_list(&self, caller: &Caller) -> BeaconList {
        let common = &self.common;
        let Some(keys) = &common.beacons.settings.fleet_keys else {
            return BeaconList { beacons: Vec::new(), binding: None };
        };
        let now = common.clock.now();
        let live: Vec<StoredBeacon> =
            common.beacons.all().iter().filter(|beacon| is_live(beacon, now)).cloned().collect();
        let place = caller.ip_address.and_then(|address| common.geo_locator.locate(address));
        let distance = |beacon: &StoredBeacon| {
            place.zip(beacon.body.locality()).map_or(0.0, |(place, beacon_place)| place.chord_miles(beacon_place))
        };
        let mut by_distance: Vec<(f64, u32)> = live.iter().map(|beacon| (distance(beacon), beacon.id)).collect();
        by_distance.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        by_distance.truncate(BEACONS_WANTED);
        let is_near = |id: u32| by_distance.iter().any(|(_, near)| *near == id);
        let listed = |StoredBeacon { id, body, .. }: StoredBeacon| ListedBeacon {
            id,
            region: body.region,
            address: body.address,
            port: body.port,
            latitude: body.latitude,
            longitude: body.longitude,
            measure_first: is_near(id),
        };
        let beacons = live.into_iter().map(listed).collect();
        BeaconList { beacons, binding: Some(keys.receipt_binding_of_user_and_day(caller.user, now)) }
    }

    /// Id and endpoint of each live beacon, by id.
    pub fn live_endpoints(&self) -> Vec<(u32, SocketAddr)> {
        let (now, beacons) = (self.common.clock.now(), self.common.beacons.all());
        let live = beacons.iter().filter(|beacon| is_live(beacon, now));
        live.map(|beacon| (beacon.id, SocketAddr::new(beacon.body.address, beacon.body.port))).collect()
    }

    /// Takes the sign of life of a beacon. Durable on return.
    ///
    /// Fails if the server has no fleet keys, if the key id does not follow from them, and if another beacon has the id.
    pub async fn announce_beacon(&self, command: AnnounceBeaconCommand) -> Result<(), EngineError> {
        let common = &self.common;
        let keys = common.beacons.settings.fleet_keys.as_ref().ok_or(EngineError::BeaconsNotConfigured)?;
        if keys.beacon_key(command.id, command.key_id).is_none() {
            let problem = "is not the id of this beacon's key; make the key with `fireteam beacon-key`";
            return Err(field_error("key_id", problem));
        }
        let now = common.clock.now();
        let AnnounceBeaconCommand { id, region, address, port, latitude, longitude, key_id, round_trips } = command;
        let body = BeaconJson { region, address, port, latitude, longitude, key_id, round_trips };
        let known = common.beacons.all();
        if BEACONS_MAX <= known.len() && !known.iter().any(|beacon| beacon.id == id) {
            return Err(field_error("beacon.id", format!("would be one of more than {BEACONS_MAX} beacons")));
        }
        let beacon = StoredBeacon { id, announced_at: now, body };
        let purge_before = UnixMs(now.0.saturating_sub(PURGE_AFTER_MS));
        let announcement = BeaconAnnouncement { beacon, purge_before };
        let rows = common.store.announce_beacon(&announcement).await.map_err(|error| {
            tracing::error!(%error, "failed to store a beacon");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })?;
        let is_refused = rows.iter().any(|row| row.id == id && !row.body.has_place_of(&announcement.beacon.body));
        common.beacons.replace(rows);
        if is_refused {
            let problem = "is the id of a beacon at another place; give each beacon an id of its own, and a new one when it moves";
            return Err(field_error("beacon.id", problem));
        }
        Ok(())
    }
}
