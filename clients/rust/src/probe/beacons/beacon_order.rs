//! Order in which beacons are measured: the nearest first.

use std::net::{IpAddr, SocketAddr};

use fireteam_probe::BeaconTarget;
use rand::Rng;
use rand::rngs::StdRng;

use crate::pb;

/// GeoCoordinates on Earth, degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GeoCoordinates {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
}

impl GeoCoordinates {
    /// Angle between two places, as seen from the center of the Earth, radians.
    fn angle_to(self, other: GeoCoordinates) -> f64 {
        let [from, to] = [self, other].map(|place| (place.latitude.to_radians(), place.longitude.to_radians()));
        let half_sine = |angle: f64| (angle / 2.0).sin().powi(2);
        let chord = half_sine(to.0 - from.0) + from.0.cos() * to.0.cos() * half_sine(to.1 - from.1);
        2.0 * chord.clamp(0.0, 1.0).sqrt().asin()
    }
}

/// Beacons in the order in which to measure them: by their distance from the own place if it is known, else those first that the server
/// calls near. Equal ones are in a random order, so that clients without a place do not all measure the same. Left out are
/// beacons without a usable endpoint or with the id of an earlier one, and all without a binding.
pub(super) fn targets_in_order(
    list: &pb::GetBeaconsResponse,
    own: Option<GeoCoordinates>,
    rng: &mut StdRng,
) -> Vec<BeaconTarget> {
    let Ok(binding) = <[u8; 16]>::try_from(&*list.binding) else { return Vec::new() };
    let keyed = list.beacons.iter().filter_map(|beacon| {
        let target = BeaconTarget { endpoint: endpoint(beacon)?, beacon_id: beacon.id, binding };
        let place = GeoCoordinates { latitude: beacon.latitude, longitude: beacon.longitude };
        let angle = own.map_or(0.0, |own| own.angle_to(place));
        let is_far = own.is_none() && !beacon.measure_first;
        Some((is_far, angle, rng.random::<u64>(), target))
    });
    let mut keyed: Vec<(bool, f64, u64, BeaconTarget)> = keyed.collect();
    keyed.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.cmp(&other.2)));
    let mut targets: Vec<BeaconTarget> = Vec::new();
    for (_, _, _, target) in keyed {
        if targets.iter().all(|known| known.beacon_id != target.beacon_id) {
            targets.push(target);
        }
    }
    targets
}

fn endpoint(beacon: &pb::Beacon) -> Option<SocketAddr> {
    let port = u16::try_from(beacon.port).ok().filter(|port| *port != 0)?;
    let address: IpAddr = match *beacon.address {
        [a, b, c, d] => [a, b, c, d].into(),
        _ => <[u8; 16]>::try_from(&*beacon.address).ok()?.into(),
    };
    (!address.is_unspecified() && !address.is_multicast()).then(|| SocketAddr::new(address, port))
}
