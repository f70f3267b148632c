//! Latency tokens of a party, applied to its session.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::auth::fail_points::skips_check;
use crate::auth::receipt_check::RECEIPT_LIFETIME_MS;
use crate::auth::token::{BeaconRoundTrip, LatencyClaim};
use crate::domain::id::UserKey;
use crate::domain::latency::published_vector::PublishedVector;
use crate::domain::locality::Locality;
use crate::domain::queue::seat_vectors::{SeatBeaconVectors, SeatIndex};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::{LatencyEstimatePolicy, LatencyTrust};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::beacons::caller_prefix::is_receipt_valid_for_caller;
use crate::engine::beacons::party_floors::PartyBeaconFloors;
use crate::engine::beacons::proven_regions::apply_beacon_round_trips;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::latency_tokens::LatencyTokens;

/// Floors of a party to beacons, as far as the ruleset trusts them, and the paths of ignored fields, within the session composition.
#[derive(Debug, Default)]
pub(crate) struct AppliedLatencyTokens {
    /// Paths of ignored fields.
    pub(crate) ignored_fields: Vec<String>,
    /// Floors; none unless the ruleset predicts round trips.
    pub(crate) floors: PartyBeaconFloors,
}

/// Applies the latency tokens of a party to its round trips to regions, as the ruleset trusts them.
pub(crate) fn apply_latency_tokens(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    session: &mut Session,
    tokens: &LatencyTokens,
    now: UnixMs,
) -> AppliedLatencyTokens {
    let trust = ruleset.probing.region_latency_trust;
    if tokens.is_empty() && trust == LatencyTrust::Claimed {
        return AppliedLatencyTokens::default();
    }
    let users: Vec<UserKey> = session.players.iter().map(|player| player.user).collect();
    let party = party_round_trips(common, caller, &users, tokens, now);
    let mut ignored_fields = party.ignored;
    ignored_fields.extend(apply_beacon_round_trips(
        common,
        &mut session.region_latencies,
        &party.longest_by_beacon,
        trust,
        now,
    ));
    let predicts = ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1;
    let floors = if predicts {
        PartyBeaconFloors::new(&party.longest_by_beacon, trust, now)
    } else {
        PartyBeaconFloors::default()
    };
    AppliedLatencyTokens { ignored_fields, floors }
}

/// Round trips of a party to beacons, and its ignored tokens.
#[derive(Debug, Default, PartialEq)]
struct PartyRoundTrips {
    /// Of each beacon the longest of the members', by the weakest source; by beacon id.
    longest_by_beacon: Vec<BeaconRoundTrip>,
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
    for (_, entries) in round_trips_by_member(common, caller, players, tokens, now, &mut party.ignored) {
        party.add_member(&entries);
    }
    party
}

/// Round trips that each token of a party proves or claims, with the index of its player; `None` for the caller's own. Adds the paths
/// of ignored tokens to `ignored`.
fn round_trips_by_member(
    common: &Common,
    caller: &Caller,
    players: &[UserKey],
    tokens: &LatencyTokens,
    now: UnixMs,
    ignored: &mut Vec<String>,
) -> Vec<(Option<usize>, Vec<BeaconRoundTrip>)> {
    let mut members = Vec::new();
    if !tokens.own().is_empty() {
        match own_round_trips(common, caller, tokens.own(), now) {
            Some(entries) => members.push((None, entries)),
            None => ignored.push("latency_token".into()),
        }
    }
    for (index, token) in tokens.players().iter().enumerate().filter(|(_, token)| !token.is_empty()) {
        // A member's own address is not known here. Where callers are anonymous, no token names a user.
        let user = players.get(index).copied();
        let is_members = |claim: &LatencyClaim| match claim.subject {
            Some(subject) => Some(subject) == user,
            None => caller.user.is_none(),
        };
        match verified_fresh_entries(common, token, now, is_members) {
            Some(entries) => members.push((Some(index), entries)),
            None => ignored.push(format!("players[{index}].latency_token")),
        }
    }
    members
}

/// Round trips that a caller's own token proves or claims; `None` if it is old, forged, another user's, or from a place that is not the
/// caller's.
fn own_round_trips(common: &Common, caller: &Caller, token: &[u8], now: UnixMs) -> Option<Vec<BeaconRoundTrip>> {
    let is_own = |claim: &LatencyClaim| {
        let is_subject = claim.subject == caller.user || skips_check("skip_token_subject");
        let is_callers = is_receipt_valid_for_caller(common, claim.prefix, caller.ip_address);
        is_subject && (is_callers || skips_check("skip_token_prefix"))
    };
    verified_fresh_entries(common, token, now, is_own)
}

/// Caller of a search that an operator describes: the player of the party to whom the party's own token belongs, at `ip_address`.
pub(crate) fn caller_described_by_operator(
    common: &Common,
    session: &Session,
    tokens: &LatencyTokens,
    ip_address: Option<IpAddr>,
) -> Caller {
    let subject = common.token_signer.verify::<LatencyClaim>(tokens.own()).and_then(|claim| claim.subject);
    let user = subject.filter(|user| session.players.iter().any(|player| player.user == *user));
    Caller { user, ip_address, ..Caller::default() }
}

/// Published vectors of the players of a party that enters a queue, by the tokens that came with it. The caller's own token is of its
/// player; of the first one, if the caller is none. None unless the ruleset predicts round trips.
pub(crate) fn published_player_vectors(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    (players, tokens): (&[UserKey], &LatencyTokens),
    place_and_center: Option<(Locality, Locality)>,
    now: UnixMs,
) -> SeatBeaconVectors {
    if tokens.is_empty() || ruleset.probing.latency_estimate_policy != LatencyEstimatePolicy::PredictedV1 {
        return SeatBeaconVectors::default();
    }
    let caller_index = || players.iter().position(|user| Some(*user) == caller.user).unwrap_or(0);
    let mut by_player: BTreeMap<usize, PartyRoundTrips> = BTreeMap::new();
    for (index, entries) in round_trips_by_member(common, caller, players, tokens, now, &mut Vec::new()) {
        by_player.entry(index.unwrap_or_else(caller_index)).or_default().add_member(&entries);
    }
    SeatBeaconVectors::new(by_player.into_iter().filter_map(|(index, player)| {
        let floors = PartyBeaconFloors::new(&player.longest_by_beacon, ruleset.probing.region_latency_trust, now);
        Some((
            SeatIndex(u8::try_from(index).ok()?),
            floors.to_published_vector(&common.beacons, place_and_center, now)?,
        ))
    }))
}

/// Published vector of a caller's own token, as if measured from the center of the grid cell of the caller's address. `None` if the token
/// does not count, the caller has no place, or the ruleset predicts no round trips.
pub(crate) fn published_caller_vector(
    common: &Common,
    caller: &Caller,
    ruleset: &Ruleset,
    token: &[u8],
    now: UnixMs,
) -> Option<PublishedVector> {
    if ruleset.probing.latency_estimate_policy != LatencyEstimatePolicy::PredictedV1 {
        return None;
    }
    let entries = own_round_trips(common, caller, token, now)?;
    PartyBeaconFloors::new(&entries, ruleset.probing.region_latency_trust, now).to_published_vector(
        &common.beacons,
        common.place_and_cell_center_of(caller),
        now,
    )
}

/// Entries of a token that are younger than ten minutes and whose beacon lives; `None` if the token does not count.
fn verified_fresh_entries(
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
            match self.longest_by_beacon.binary_search_by_key(&entry.beacon_id, |known| known.beacon_id) {
                Ok(at) => {
                    let known = &mut self.longest_by_beacon[at];
                    known.floor_ms = known.floor_ms.max(entry.floor_ms);
                    known.source = known.source.max(entry.source);
                    known.age_ms = known.age_ms.max(entry.age_ms);
                }
                Err(at) => self.longest_by_beacon.insert(at, *entry),
            }
        }
    }
}
