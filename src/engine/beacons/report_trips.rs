//! Receipts and claims of a client become a latency token.

use fireteam_probe::AddressPrefix;

use crate::auth::receipt_check::{RECEIPT_LIFETIME_MS, ReceiptContext, ReceiptVerdict, check_receipt};
use crate::auth::token::{BeaconRoundTrip, BeaconRoundTripSource, LATENCY_ENTRIES_MAX, LatencyClaim};
use crate::engine::beacons::BeaconEngine;
use crate::engine::beacons::caller_prefix::is_receipt_valid_for_caller;
use crate::engine::beacons::command::{ReportTripsAnswer, ReportTripsCommand};
use crate::engine::command::Caller;
use crate::engine::error::EngineError;
use crate::telemetry::label::ReceiptLabel;

impl BeaconEngine {
    /// Checks receipts, and signs the least round trip to each beacon as a token. A claim counts only for a beacon without a receipt.
    pub fn report_trips(&self, caller: &Caller, report: &ReportTripsCommand) -> Result<ReportTripsAnswer, EngineError> {
        let common = &self.common;
        let keys = common.beacons.settings.fleet_keys.as_ref().ok_or(EngineError::BeaconsNotConfigured)?;
        let now = common.clock.now();
        let context = ReceiptContext {
            keys,
            subject: caller.user,
            now,
            is_live: &|id| common.beacons.live_beacon(id, now).is_some(),
            is_callers_prefix: &|prefix| is_receipt_valid_for_caller(common, prefix, caller.ip_address),
        };
        let (mut verdicts, mut entries) = (Vec::new(), Vec::new());
        for packet in &report.receipts {
            let (verdict, measured) = check_receipt(packet, &context);
            common.metrics.receipts.get_or_create(&label_of_verdict(verdict)).inc();
            verdicts.push(verdict);
            let source = if verdict == ReceiptVerdict::Proven {
                BeaconRoundTripSource::Proven
            } else {
                BeaconRoundTripSource::Claimed
            };
            entries.extend(measured.map(|measured| {
                BeaconRoundTrip::new(measured.beacon_id, f64::from(measured.round_trip_us) / 1_000.0, source, 0)
            }));
        }
        let live_claims =
            report.claims.iter().filter(|claim| common.beacons.live_beacon(claim.beacon_id, now).is_some());
        entries.extend(
            live_claims
                .map(|claim| BeaconRoundTrip::new(claim.beacon_id, claim.floor_ms, BeaconRoundTripSource::Claimed, 0)),
        );
        // The round trip of the call's own connection, which ends at this server.
        let own_beacon =
            common.beacons.settings.own_beacon_id.filter(|id| common.beacons.live_beacon(*id, now).is_some());
        entries.extend(own_beacon.zip(caller.tcp_floor_us).map(|(id, floor_us)| {
            BeaconRoundTrip::new(id, f64::from(floor_us) / 1_000.0, BeaconRoundTripSource::Observed, 0)
        }));
        let entries = best_of_each_beacon(entries);
        let prefix = caller.ip_address.map_or(AddressPrefix::V4([0; 3]), AddressPrefix::of);
        let regions = entries.iter().filter_map(|entry| {
            let region = common.beacons.live_beacon(entry.beacon_id, now)?.body.region;
            (!region.is_empty()).then_some((region, entry.floor_ms, entry.source == BeaconRoundTripSource::Claimed))
        });
        let mut regions: Vec<(String, f64, bool)> = regions.collect();
        regions.sort_by(|one, other| one.0.cmp(&other.0).then(one.2.cmp(&other.2)).then(one.1.total_cmp(&other.1)));
        regions.dedup_by(|later, first| later.0 == first.0);
        let claim = LatencyClaim { subject: caller.user, prefix, issued_at: now, entries };
        Ok(ReportTripsAnswer {
            latency_token: common.token_signer.sign(&claim),
            fresh_until: now.plus_ms(RECEIPT_LIFETIME_MS),
            verdicts,
            region_round_trips: regions,
        })
    }
}

fn label_of_verdict(verdict: ReceiptVerdict) -> ReceiptLabel {
    match verdict {
        ReceiptVerdict::Proven => ReceiptLabel::Proven,
        ReceiptVerdict::Malformed => ReceiptLabel::Malformed,
        ReceiptVerdict::UnknownBeacon => ReceiptLabel::UnknownBeacon,
        ReceiptVerdict::UnknownKey => ReceiptLabel::UnknownKey,
        ReceiptVerdict::BadMac => ReceiptLabel::BadMac,
        ReceiptVerdict::ForeignBinding => ReceiptLabel::ForeignBinding,
        ReceiptVerdict::Stale => ReceiptLabel::Stale,
        ReceiptVerdict::Future => ReceiptLabel::Future,
        ReceiptVerdict::OutOfRange => ReceiptLabel::OutOfRange,
        ReceiptVerdict::ForeignPrefix => ReceiptLabel::ForeignPrefix,
    }
}

/// Of each beacon the entry of the best source, and of those the least round trip; the nearest beacons if there are too many.
fn best_of_each_beacon(mut entries: Vec<BeaconRoundTrip>) -> Vec<BeaconRoundTrip> {
    entries.sort_by(|one, other| {
        let by_source = one.beacon_id.cmp(&other.beacon_id).then(one.source.cmp(&other.source));
        by_source.then(one.floor_ms.total_cmp(&other.floor_ms))
    });
    entries.dedup_by_key(|entry| entry.beacon_id);
    if LATENCY_ENTRIES_MAX < entries.len() {
        entries.sort_by(|one, other| one.floor_ms.total_cmp(&other.floor_ms));
        entries.truncate(LATENCY_ENTRIES_MAX);
        entries.sort_by_key(|entry| entry.beacon_id);
    }
    entries
}
