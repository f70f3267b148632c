//! Receipts and claims of a client become a latency token; tokens of a party become its round trips to beacons.

use fireteam_probe::AddressPrefix;

use crate::auth::receipt_check::{RECEIPT_LIFETIME_MS, ReceiptContext, ReceiptVerdict, check_receipt};
use crate::auth::token::{BeaconRoundTrip, FloorSource, LATENCY_ENTRIES_MAX, LatencyClaim};
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;
use crate::engine::beacons::BeaconEngine;
use crate::engine::beacons::command::{LatencyTokens, ReportTripsAnswer, ReportTripsCommand};
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::telemetry::label::ReceiptLabel;

impl BeaconEngine {
    /// Checks receipts, and signs the least round trip to each beacon as a token. A claim counts only for a beacon without a receipt.
    pub fn report_trips(&self, caller: &Caller, report: &ReportTripsCommand) -> Result<ReportTripsAnswer, EngineError> {
        let common = &self.common;
        let keys = common.beacons.settings.fleet_keys.as_ref().ok_or(EngineError::NoBeacons)?;
        let now = common.clock.now();
        let context = ReceiptContext {
            keys,
            subject: caller.user,
            now,
            is_live: &|id| common.beacons.live(id, now).is_some(),
            is_callers_prefix: &|prefix| common.is_prefix_of_caller(prefix, caller.ip_address),
        };
        let (mut verdicts, mut entries) = (Vec::new(), Vec::new());
        for packet in &report.receipts {
            let (verdict, measured) = check_receipt(packet, &context);
            common.metrics.receipts.get_or_create(&label_of_verdict(verdict)).inc();
            verdicts.push(verdict);
            let source = if verdict == ReceiptVerdict::Proven { FloorSource::Proven } else { FloorSource::Claimed };
            entries.extend(measured.map(|measured| {
                BeaconRoundTrip::new(measured.beacon_id, f64::from(measured.round_trip_us) / 1_000.0, source, 0)
            }));
        }
        let live_claims = report.claims.iter().filter(|claim| common.beacons.live(claim.beacon_id, now).is_some());
        entries.extend(
            live_claims.map(|claim| BeaconRoundTrip::new(claim.beacon_id, claim.floor_ms, FloorSource::Claimed, 0)),
        );
        let entries = best_of_each_beacon(entries);
        let prefix = caller.ip_address.map_or(AddressPrefix::V4([0; 3]), AddressPrefix::of);
        let regions = entries.iter().filter_map(|entry| {
            let region = common.beacons.live(entry.beacon_id, now)?.body.region;
            (!region.is_empty()).then_some((region, entry.floor_ms, entry.source == FloorSource::Claimed))
        });
        let mut regions: Vec<(String, f64, bool)> = regions.collect();
        regions.sort_by(|one, other| one.0.cmp(&other.0).then(one.2.cmp(&other.2)).then(one.1.total_cmp(&other.1)));
        regions.dedup_by(|later, first| later.0 == first.0);
        let claim = LatencyClaim { subject: caller.user, prefix, issued_at: now, entries };
        Ok(ReportTripsAnswer {
            latency_token: common.token_signer.sign(&claim),
            fresh_until: now.plus_ms(RECEIPT_LIFETIME_MS),
            verdicts,
            regions,
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

/// Round trips of a party, and which of its tokens are ignored.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PartyRoundTrips {
    /// Of each beacon the longest of the members', by the weakest source; by beacon id.
    pub(crate) entries: Vec<BeaconRoundTrip>,
    /// Paths of ignored tokens, within the session composition.
    pub(crate) ignored: Vec<String>,
}

impl Common {
    /// Round trips to beacons that the tokens of a party prove or claim. Ignored are tokens that are old, forged, another user's, or from
    /// a place that is not the caller's.
    pub(crate) fn party_round_trips(
        &self,
        caller: &Caller,
        players: &[UserKey],
        tokens: &LatencyTokens,
        now: UnixMs,
    ) -> PartyRoundTrips {
        let mut party = PartyRoundTrips::default();
        if !tokens.own.is_empty() {
            let is_own = |claim: &LatencyClaim| {
                claim.subject == caller.user && self.is_prefix_of_caller(claim.prefix, caller.ip_address)
            };
            match self.fresh_entries(&tokens.own, now, is_own) {
                Some(entries) => party.add_member(&entries),
                None => party.ignored.push("latency_token".into()),
            }
        }
        for (index, token) in tokens.players.iter().enumerate().filter(|(_, token)| !token.is_empty()) {
            // A member's own address is not known here. Where callers are anonymous, no token names a user.
            let user = players.get(index).copied();
            let is_members = |claim: &LatencyClaim| match claim.subject {
                Some(subject) => Some(subject) == user,
                None => caller.user.is_none(),
            };
            match self.fresh_entries(token, now, is_members) {
                Some(entries) => party.add_member(&entries),
                None => party.ignored.push(format!("players[{index}].latency_token")),
            }
        }
        party
    }

    /// Entries of a token that are younger than ten minutes and whose beacon lives; `None` if the token does not count.
    fn fresh_entries(
        &self,
        token: &[u8],
        now: UnixMs,
        is_members: impl Fn(&LatencyClaim) -> bool,
    ) -> Option<Vec<BeaconRoundTrip>> {
        let claim = self.token_signer.verify::<LatencyClaim>(token).filter(is_members)?;
        let age_ms = now.ms_since(claim.issued_at);
        if RECEIPT_LIFETIME_MS <= age_ms {
            return None;
        }
        let is_fresh = |entry: &BeaconRoundTrip| {
            entry.age_ms + age_ms < RECEIPT_LIFETIME_MS && self.beacons.live(entry.beacon_id, now).is_some()
        };
        let aged = |entry: BeaconRoundTrip| BeaconRoundTrip { age_ms: entry.age_ms + age_ms, ..entry };
        Some(claim.entries.into_iter().filter(is_fresh).map(aged).collect())
    }
}

impl PartyRoundTrips {
    fn add_member(&mut self, entries: &[BeaconRoundTrip]) {
        for entry in entries {
            match self.entries.binary_search_by_key(&entry.beacon_id, |known| known.beacon_id) {
                Ok(at) => {
                    let known = &mut self.entries[at];
                    known.floor_ms = known.floor_ms.max(entry.floor_ms);
                    known.source = known.source.max(entry.source);
                    known.age_ms = known.age_ms.max(entry.age_ms);
                }
                Err(at) => self.entries.insert(at, *entry),
            }
        }
    }
}
