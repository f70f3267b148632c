//! Validation of the settings of the server's own beacon.

use crate::config::beacon::{
    BEACON_PACKETS_PER_SECOND_RANGE, BeaconPlace, DEFAULT_BEACON_PACKETS_PER_SECOND, OwnBeacon, check_region_syntax,
    parse_announce_address,
};
use crate::config::raw::RawSettings;
use crate::config::validate::ConfigErrors;

impl ConfigErrors {
    /// Checks the settings of the server's own beacon: all that it needs, or none.
    pub(super) fn check_own_beacon(&mut self, settings: &RawSettings) -> Option<OwnBeacon> {
        let Some(listen) = settings.beacon_listen.clone() else {
            self.reject_without_listen(settings);
            return None;
        };
        let path = settings.beacon_fleet_key_file.as_ref().map(Ok);
        self.require_for_beacon(
            "beacon_fleet_key_file",
            path,
            "name the keys of all beacons with --beacon-fleet-key-file",
        );
        let id = settings.beacon_id.map(|id| match id {
            0 => Err("0 is out of range; use 1 to 4294967295".into()),
            id => Ok(id),
        });
        let id = self.require_for_beacon("beacon_id", id, "give it a number of its own with --beacon-id");
        let region = Some(settings.beacon_region.as_deref().map_or(Ok(String::new()), check_region_syntax));
        let region = self.require_for_beacon("beacon_region", region, "");
        let place = settings.beacon_place.as_deref().map(BeaconPlace::parse);
        let how = "give the place of the machine with --beacon-place LATITUDE/LONGITUDE";
        let place = self.require_for_beacon("beacon_place", place, how);
        let address = settings.beacon_announce_address.as_deref().map(parse_announce_address);
        let how = "give the address at which clients reach it with --beacon-announce-address";
        let announce_address = self.require_for_beacon("beacon_announce_address", address, how);
        let packets_per_second = self.check_range(
            "beacon_packets_per_second",
            settings.beacon_packets_per_second.unwrap_or(DEFAULT_BEACON_PACKETS_PER_SECOND),
            BEACON_PACKETS_PER_SECOND_RANGE,
        );
        let (id, region, place) = (id?, region?, place?);
        Some(OwnBeacon { listen, id, region, place, announce_address: announce_address?, packets_per_second })
    }

    /// Reports the settings of a beacon that listens nowhere.
    fn reject_without_listen(&mut self, settings: &RawSettings) {
        for (key, is_set) in [
            ("beacon_id", settings.beacon_id.is_some()),
            ("beacon_region", settings.beacon_region.is_some()),
            ("beacon_place", settings.beacon_place.is_some()),
            ("beacon_announce_address", settings.beacon_announce_address.is_some()),
            ("beacon_packets_per_second", settings.beacon_packets_per_second.is_some()),
        ] {
            if is_set {
                let message = "needs --beacon-listen; give the UDP address of the server's own beacon, or remove it";
                self.add_invalid_value(key, message.into());
            }
        }
    }

    /// Value of a setting that a beacon needs; reports it if it is missing or invalid. `how` says how to give it.
    fn require_for_beacon<T>(&mut self, key: &'static str, value: Option<Result<T, String>>, how: &str) -> Option<T> {
        let problem = match value {
            Some(Ok(value)) => return Some(value),
            Some(Err(problem)) => problem,
            None => format!("required with --beacon-listen; {how}"),
        };
        self.add_invalid_value(key, problem);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete() -> RawSettings {
        RawSettings {
            beacon_fleet_key_file: Some("fleet-key".into()),
            beacon_listen: Some("0.0.0.0:7777".parse().unwrap()),
            beacon_id: Some(7),
            beacon_region: Some("eu".into()),
            beacon_place: Some("-33.9/151.2".into()),
            beacon_announce_address: Some("::ffff:192.0.2.7".into()),
            ..RawSettings::default()
        }
    }

    fn errors_of(settings: &RawSettings) -> String {
        let mut errors = ConfigErrors(Vec::new());
        let beacon = errors.check_own_beacon(settings);
        assert!(beacon.is_none() || errors.0.is_empty());
        errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn beacon_of_a_server_has_the_given_place_and_address() {
        let mut errors = ConfigErrors(Vec::new());
        let beacon = errors.check_own_beacon(&complete()).unwrap();
        assert_eq!((beacon.id, &*beacon.region, beacon.packets_per_second), (7, "eu", 50_000));
        assert_eq!(
            (beacon.place.to_string(), beacon.announce_address.to_string()),
            ("-33.9/151.2".into(), "192.0.2.7".into())
        );
        assert!(errors.0.is_empty());
        assert_eq!(errors_of(&RawSettings::default()), "");
    }

    #[test]
    fn beacon_errors_name_each_missing_flag() {
        let only_listen = RawSettings { beacon_listen: complete().beacon_listen, ..RawSettings::default() };
        let expected = "beacon_fleet_key_file: required with --beacon-listen; name the keys of all beacons with \
                        --beacon-fleet-key-file
beacon_id: required with --beacon-listen; give it a number of its own with --beacon-id
beacon_place: required with --beacon-listen; give the place of the machine with --beacon-place LATITUDE/LONGITUDE
beacon_announce_address: required with --beacon-listen; give the address at which clients reach it with \
                        --beacon-announce-address";
        assert_eq!(errors_of(&only_listen), expected);
        let no_listen = errors_of(&RawSettings { beacon_listen: None, ..complete() });
        assert_eq!(no_listen.matches("needs --beacon-listen").count(), 4, "{no_listen}");
    }

    #[test]
    fn invalid_beacon_settings_are_reported_together() {
        let invalid = RawSettings {
            beacon_id: Some(0),
            beacon_region: Some("x".repeat(65)),
            beacon_place: Some("91/0".into()),
            beacon_announce_address: Some("0.0.0.0".into()),
            beacon_packets_per_second: Some(99),
            ..complete()
        };
        let errors = errors_of(&invalid);
        for expected in [
            "beacon_id: 0 is out of range; use 1 to 4294967295",
            "beacon_region: not valid; give 1 to 64 bytes",
            "beacon_place: `91/0` is not a place; write LATITUDE/LONGITUDE",
            "beacon_announce_address: 0.0.0.0 is not the address of a machine",
            "beacon_packets_per_second: 99 is out of range; use 100 to 1000000",
        ] {
            assert!(errors.contains(expected), "{errors}");
        }
        for address in ["host", "224.0.0.1", "255.255.255.255", "::", "192.0.2.7:1"] {
            assert!(parse_announce_address(address).is_err(), "{address}");
        }
    }
}
