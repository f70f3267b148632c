//! Latency tokens of a party, applied to its session.

use crate::auth::fail_points::leaves_out;
use crate::auth::receipt_check::RECEIPT_LIFETIME_MS;
use crate::auth::token::{BeaconRoundTrip, LatencyClaim};
use crate::domain::id::UserKey;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::LatencyTrust;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::beacons::caller_prefix::receipt_counts_for_caller;
use crate::engine::beacons::proven_regions::apply_beacon_round_trips;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::latency_tokens::LatencyTokens;

/// Applies the latency tokens of a party to its round trips to regions, as the ruleset trusts them. Returns the paths of ignored
/// fields, within the session composition.
pub(crate) fn apply_latency_tokens(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    session: &mut Session,
    tokens: &LatencyTokens,
    now: UnixMs,
) -> Vec<String> {
    let trust = ruleset.probing.trust;
    if tokens.is_empty() && trust == LatencyTrust::Claimed {
        return Vec::new();
    }
    let users: Vec<UserKey> = session.players.iter().map(|player| player.user).collect();
    let party = party_round_trips(common, caller, &users, tokens, now);
    let mut ignored = party.ignored;
    ignored.extend(apply_beacon_round_trips(common, &mut session.region_latencies, &party.entries, trust, now));
    ignored
}

/// Round trips of a party to beacons, and its ignored tokens.
#[derive(Debug, Default, PartialEq)]
struct PartyRoundTrips {
    /// Of each beacon the longest of the members', by the weakest source; by beacon id.
    entries: Vec<BeaconRoundTrip>,
    /// Paths of ignored tokens, within the session composition.
    ignored: Vec<String>,
}

/// Round trips to beacons that the tokens of a party prove or claim. Ignored are tokens that are old, forged, another user's, or from
/// a place that is not the caller's.
fn party_round_trips(
    common: &Common,
    caller: &Caller,
    players: &[UserKey],
    tokens: &LatencyTokens,
    now: UnixMs,
) -> PartyRoundTrips {
    let mut party = PartyRoundTrips::default();
    if !tokens.own().is_empty() {
        let is_own = |claim: &LatencyClaim| {
            let is_subject = claim.subject == caller.user || leaves_out("skip_token_subject");
            let is_callers = receipt_counts_for_caller(common, claim.prefix, caller.ip_address);
            is_subject && (is_callers || leaves_out("skip_token_prefix"))
        };
        match fresh_entries(common, tokens.own(), now, is_own) {
            Some(entries) => party.add_member(&entries),
            None => party.ignored.push("latency_token".into()),
        }
    }
    for (index, token) in tokens.players().iter().enumerate().filter(|(_, token)| !token.is_empty()) {
        // A member's own address is not known here. Where callers are anonymous, no token names a user.
        let user = players.get(index).copied();
        let is_members = |claim: &LatencyClaim| match claim.subject {
            Some(subject) => Some(subject) == user,
            None => caller.user.is_none(),
        };
        match fresh_entries(common, token, now, is_members) {
            Some(entries) => party.add_member(&entries),
            None => party.ignored.push(format!("players[{index}].latency_token")),
        }
    }
    party
}

/// Entries of a token that are younger than ten minutes and whose beacon lives; `None` if the token does not count.
fn fresh_entries(
    common: &Common,
    token: &[u8],
    now: UnixMs,
    is_members: impl Fn(&LatencyClaim) -> bool,
) -> Option<Vec<BeaconRoundTrip>> {
    let claim = common.token_signer.verify::<LatencyClaim>(token).filter(is_members)?;
    let age_ms = now.ms_since(claim.issued_at);
    if RECEIPT_LIFETIME_MS <= age_ms {
        return None;
    }
    let is_fresh = |entry: &BeaconRoundTrip| {
        entry.age_ms + age_ms < RECEIPT_LIFETIME_MS && common.beacons.live_beacon(entry.beacon_id, now).is_some()
    };
    let aged = |entry: BeaconRoundTrip| BeaconRoundTrip { age_ms: entry.age_ms + age_ms, ..entry };
    Some(claim.entries.into_iter().filter(is_fresh).map(aged).collect())
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
