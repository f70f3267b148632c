//! Round trips to regions by what beacons have proven: a client can seem farther from a region than it is, never nearer.

use crate::auth::token::{BeaconRoundTrip, BeaconRoundTripSource};
use crate::domain::limit::REGIONS_PER_SESSION_MAX;
use crate::domain::ruleset::probing::LatencyTrust;
use crate::domain::session::RegionLatency;
use crate::domain::time::UnixMs;
use crate::engine::common::Common;

/// Applies round trips to beacons to the stated round trips to their regions.
///
/// A stated round trip counts as at least what is proven for its region; a region with a proven round trip and no stated one has the
/// proven one. Stated ones that `trust` does not accept are removed. Returns the paths of ignored fields.
pub(super) fn apply_beacon_round_trips(
    common: &Common,
    region_latencies: &mut Box<[RegionLatency]>,
    entries: &[BeaconRoundTrip],
    trust: LatencyTrust,
    now: UnixMs,
) -> Vec<String> {
    let accepted = |source: BeaconRoundTripSource| match trust {
        LatencyTrust::Proven => source == BeaconRoundTripSource::Proven,
        LatencyTrust::Observed => source != BeaconRoundTripSource::Claimed,
        LatencyTrust::Claimed => true,
    };
    let mut proven: Vec<(String, f32)> = Vec::new();
    for entry in entries.iter().filter(|entry| accepted(entry.source)) {
        let Some(beacon) = common.beacons.live_beacon(entry.beacon_id, now) else { continue };
        let region = beacon.body.region;
        if region.is_empty() {
            continue;
        }
        // Several beacons of a region: the nearest one.
        match proven.iter_mut().find(|(known, _)| *known == region) {
            Some((_, floor_ms)) => *floor_ms = floor_ms.min(entry.floor_ms as f32),
            None => proven.push((region, entry.floor_ms as f32)),
        }
    }
    if proven.is_empty() && trust == LatencyTrust::Claimed {
        return Vec::new();
    }
    let mut ignored = Vec::new();
    let mut kept: Vec<RegionLatency> = Vec::new();
    for (index, stated) in region_latencies.iter().enumerate() {
        let floor_ms = proven.iter().find(|(region, _)| **region == *stated.region).map(|(_, floor_ms)| *floor_ms);
        match floor_ms {
            Some(floor_ms) => kept.push(RegionLatency {
                region: stated.region.clone(),
                round_trip_ms: stated.round_trip_ms.max(floor_ms),
            }),
            None if trust == LatencyTrust::Claimed => kept.push(stated.clone()),
            None => ignored.push(format!("region_latencies[{index}]")),
        }
    }
    for (region, round_trip_ms) in proven {
        if !kept.iter().any(|known| *known.region == *region) && kept.len() < REGIONS_PER_SESSION_MAX {
            kept.push(RegionLatency { region: region.into(), round_trip_ms });
        }
    }
    kept.sort_by(|one, other| one.region.cmp(&other.region));
    *region_latencies = kept.into();
    ignored
}
