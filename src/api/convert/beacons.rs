//! Conversion of GetBeacons, ReportTrips and AnnounceBeacon.

use std::net::IpAddr;

use crate::api::convert::{FieldErrors, RequestReader, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::receipt_check::{RECEIPT_LIFETIME_MS, ReceiptVerdict};
use crate::domain::limit;
use crate::domain::locality::Locality;
use crate::engine::beacons::{
    ANNOUNCE_INTERVAL_MS, AnnounceBeaconCommand, BEACON_LIST_GOOD_FOR_MS, BEACONS_WANTED, BeaconList,
    ClaimedBeaconRoundTrip, ListedBeacon, ReportTripsAnswer, ReportTripsCommand,
};

/// Maximum number of receipts in one report: eight rounds of the twelve nearest beacons.
const RECEIPTS_MAX: usize = 96;

/// Maximum number of claims in one report: the beacons of a latency token.
const CLAIMS_MAX: usize = 32;

/// Maximum number of round trips in one announcement.
const ANNOUNCED_TRIPS_MAX: usize = 256;

impl RequestReader {
    /// Reads the receipts and claims of a client. A receipt that is malformed gets a verdict of its own.
    pub fn report_trips_command(&self, wire: pb::ReportTripsRequest) -> Result<ReportTripsCommand, Rejection> {
        let mut problems = self.new_field_errors();
        field_checks::check_list_len(wire.receipts.len(), RECEIPTS_MAX, "receipts", &mut problems);
        field_checks::check_list_len(wire.claims.len(), CLAIMS_MAX, "claims", &mut problems);
        let mut claims = Vec::new();
        for (index, claim) in wire.claims.iter().enumerate().take(CLAIMS_MAX) {
            let path = format!("claims[{index}].statistics.floor_ms");
            let floor_ms = claim.statistics.as_ref().and_then(|statistics| statistics.floor_ms);
            match floor_ms {
                Some(ms) => {
                    let ms = field_checks::checked_round_trip_ms(ms, &*path, &mut problems);
                    claims.push(ClaimedBeaconRoundTrip { beacon_id: claim.beacon_id, floor_ms: ms.into() });
                }
                None => problems.add(path, "is missing; send the least round trip"),
            }
        }
        problems.into_result(ReportTripsCommand { receipts: wire.receipts, claims })
    }

    /// Reads the sign of life of a beacon.
    pub fn announce_beacon_command(&self, wire: pb::AnnounceBeaconRequest) -> Result<AnnounceBeaconCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let beacon = wire.beacon.unwrap_or_default();
        if beacon.id == 0 {
            problems.add("beacon.id", "is missing; each beacon has an id of its own, from 1");
        }
        field_checks::check_byte_len(beacon.region.len(), limit::STRING_BYTES_MAX, "beacon.region", &mut problems);
        let port = u16::try_from(beacon.port).unwrap_or(0);
        if port == 0 {
            problems.add("beacon.port", format!("is {}; must be from 1 to 65535", beacon.port));
        }
        if Locality::from_degrees(beacon.latitude, beacon.longitude).is_none() {
            let (latitude, longitude) = (beacon.latitude, beacon.longitude);
            problems.add("beacon.latitude", format!("{latitude} and longitude {longitude} are no place on Earth"));
        }
        let address = read_address(&beacon.address, &mut problems);
        let key_id = <[u8; 4]>::try_from(&*wire.key_id).unwrap_or_else(|_| {
            problems.add("key_id", format!("has {} bytes; must have 4", wire.key_id.len()));
            [0; 4]
        });
        field_checks::check_list_len(wire.trips.len(), ANNOUNCED_TRIPS_MAX, "trips", &mut problems);
        let trips = wire.trips.iter().enumerate().take(ANNOUNCED_TRIPS_MAX);
        let round_trips = trips.map(|(index, trip)| {
            let path = format_args!("trips[{index}].floor_ms");
            (trip.beacon_id, field_checks::checked_round_trip_ms(trip.floor_ms, path, &mut problems))
        });
        let round_trips = round_trips.collect();
        problems.into_result(AnnounceBeaconCommand {
            id: beacon.id,
            region: beacon.region,
            address,
            port,
            latitude: beacon.latitude,
            longitude: beacon.longitude,
            key_id,
            round_trips,
        })
    }
}

fn read_address(bytes: &[u8], problems: &mut FieldErrors) -> IpAddr {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(bytes), _) => IpAddr::from(bytes),
        (_, Ok(bytes)) => IpAddr::from(bytes).to_canonical(),
        _ => {
            problems.add("beacon.address", format!("has {} bytes; must have 4 or 16", bytes.len()));
            IpAddr::from([0; 4])
        }
    }
}

/// Answer to GetBeacons.
pub fn beacons_response(list: BeaconList) -> pb::GetBeaconsResponse {
    let beacons = list.beacons.into_iter().map(beacon_to_proto);
    pb::GetBeaconsResponse {
        beacons: beacons.collect(),
        binding: list.binding.map(Vec::from).unwrap_or_default(),
        good_for_ms: BEACON_LIST_GOOD_FOR_MS,
        beacons_wanted: BEACONS_WANTED as u32,
    }
}

fn beacon_to_proto(beacon: ListedBeacon) -> pb::Beacon {
    let address = match beacon.address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    pb::Beacon {
        id: beacon.id,
        region: beacon.region,
        address,
        port: beacon.port.into(),
        latitude: beacon.latitude,
        longitude: beacon.longitude,
        measure_first: beacon.measure_first,
    }
}

/// Answer to ReportTrips.
pub fn report_trips_response(answer: ReportTripsAnswer) -> pb::ReportTripsResponse {
    let regions = answer.region_round_trips.into_iter().map(|(region, round_trip_ms, claimed)| pb::RegionRoundTrip {
        region,
        round_trip_ms: round_trip_ms as f32,
        claimed,
    });
    pb::ReportTripsResponse {
        latency_token: answer.latency_token,
        good_for_ms: RECEIPT_LIFETIME_MS as u32,
        verdicts: answer.verdicts.into_iter().map(|verdict| verdict_to_proto(verdict).into()).collect(),
        regions: regions.collect(),
        fresh_until_ms: answer.fresh_until.0,
    }
}

/// Answer to AnnounceBeacon.
pub fn announce_beacon_response() -> pb::AnnounceBeaconResponse {
    pb::AnnounceBeaconResponse { announce_again_in_ms: ANNOUNCE_INTERVAL_MS }
}

fn verdict_to_proto(verdict: ReceiptVerdict) -> pb::ReceiptVerdict {
    match verdict {
        ReceiptVerdict::Proven => pb::ReceiptVerdict::Proven,
        ReceiptVerdict::Malformed => pb::ReceiptVerdict::Malformed,
        ReceiptVerdict::UnknownBeacon => pb::ReceiptVerdict::UnknownBeacon,
        ReceiptVerdict::UnknownKey => pb::ReceiptVerdict::UnknownKey,
        ReceiptVerdict::BadMac => pb::ReceiptVerdict::BadMac,
        ReceiptVerdict::ForeignBinding => pb::ReceiptVerdict::ForeignBinding,
        ReceiptVerdict::Stale => pb::ReceiptVerdict::Stale,
        ReceiptVerdict::Future => pb::ReceiptVerdict::Future,
        ReceiptVerdict::OutOfRange => pb::ReceiptVerdict::OutOfRange,
        ReceiptVerdict::ForeignPrefix => pb::ReceiptVerdict::ForeignPrefix,
    }
}
