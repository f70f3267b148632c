//! Placement: which game servers may host a match, and in which order they are tried.
//!
//! A placement keeps what the players agreed on. A server in another region than the match's is not taken, and neither
//! is one that is too far from any of the players.

use std::hash::{Hash, Hasher};

use crate::attribute::AttributeValue;
use crate::id::{AdvertisementId, MatchId};
use crate::latency::LatencyEndpoint;
use crate::latency::round_trip_estimate::{EstimateEnd, PredictionEnd, estimated_round_trip_ms};
use crate::ruleset::Ruleset;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::ruleset::queue::RegionUse;
use crate::ruleset::teams::GameServerOrder;
use crate::session::{RegionLatency, Session};

/// Game server with enough open seats that the ruleset's filters admit.
#[derive(Clone, Copy, Debug)]
pub struct ServerCandidate<'a> {
    /// Advertisement of the server.
    pub id: AdvertisementId,
    /// Session that the server published.
    pub session: &'a Session,
    /// Seats that are neither taken nor reserved.
    pub open_seats: u16,
    /// Its vector; `None`: nothing is predicted.
    pub prediction_end: Option<PredictionEnd<'a>>,
    /// Score by the ruleset; lower is better.
    pub score: f64,
    /// Whether the server was not heard for longer than it may take to confirm a match.
    pub is_heartbeat_overdue: bool,
}

/// Match to place.
#[derive(Clone, Copy, Debug)]
pub struct MatchToPlace<'a> {
    /// Match id: servers of equal rank are tried in an order that depends on it, so that matches spread.
    pub id: MatchId,
    /// Region that the players agreed on, if any.
    pub region: Option<&'a str>,
    /// Parties of the match, as ends of network paths.
    pub parties: &'a [EstimateEnd<'a>],
    /// Game servers that did not confirm this match.
    pub unconfirmed_servers: &'a [AdvertisementId],
}

/// Reason why no server may host a match, in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlacementProblem {
    /// No game server has enough open seats, or the ruleset's filters refuse all that have.
    NoServer,
    /// The servers with seats did not confirm the match.
    NotConfirmed,
    /// The servers with seats are in other regions.
    OtherRegion,
    /// The servers with seats are too far from a player.
    TooFar,
}

impl PlacementProblem {
    /// Name in statuses.
    pub fn as_str(self) -> &'static str {
        match self {
            PlacementProblem::NoServer => "no_game_server",
            PlacementProblem::NotConfirmed => "not_confirmed",
            PlacementProblem::OtherRegion => "region",
            PlacementProblem::TooFar => "round_trip",
        }
    }
}

/// Servers that may host the match, in the order in which to try them. If there are none: the problem of the candidate
/// that came closest.
pub fn rank_servers(
    ruleset: &Ruleset,
    to_place: &MatchToPlace<'_>,
    candidates: &[ServerCandidate<'_>],
) -> Result<Vec<AdvertisementId>, PlacementProblem> {
    let mut closest_problem = PlacementProblem::NoServer;
    let mut ranked: Vec<(SortKey, AdvertisementId)> = Vec::new();
    for candidate in candidates {
        match sort_key(ruleset, to_place, candidate) {
            Ok(key) => ranked.push((key, candidate.id)),
            Err(problem) => closest_problem = closest_problem.max(problem),
        }
    }
    if ranked.is_empty() {
        return Err(closest_problem);
    }
    ranked.sort_unstable_by(|(one, _), (other, _)| {
        let by_contact = one.is_heartbeat_overdue.cmp(&other.is_heartbeat_overdue);
        let by_choice =
            one.region_is_unknown.cmp(&other.region_is_unknown).then(one.order_cost.total_cmp(&other.order_cost));
        by_contact.then(by_choice).then(one.spread.cmp(&other.spread))
    });
    Ok(ranked.into_iter().map(|(_, id)| id).collect())
}

/// Rank of a server; lower is tried first.
struct SortKey {
    is_heartbeat_overdue: bool,
    region_is_unknown: bool,
    order_cost: f64,
    spread: u64,
}

fn sort_key(
    ruleset: &Ruleset,
    to_place: &MatchToPlace<'_>,
    candidate: &ServerCandidate<'_>,
) -> Result<SortKey, PlacementProblem> {
    if to_place.unconfirmed_servers.contains(&candidate.id) {
        return Err(PlacementProblem::NotConfirmed);
    }
    let server_region = region_of_server(ruleset, candidate.session);
    if let (Some(agreed), Some(own)) = (to_place.region, server_region)
        && agreed != own
    {
        return Err(PlacementProblem::OtherRegion);
    }
    let slowest_ms = slowest_round_trip_ms(ruleset, to_place.parties, candidate.session, candidate.prediction_end);
    if exceeds_max_round_trip(ruleset, slowest_ms) {
        return Err(PlacementProblem::TooFar);
    }
    let choice = match ruleset.hosting.game_server_order {
        GameServerOrder::BestScore => candidate.score,
        GameServerOrder::Closest => slowest_ms.unwrap_or(f64::INFINITY),
        GameServerOrder::Emptiest => -f64::from(candidate.open_seats),
        GameServerOrder::Fullest => f64::from(candidate.open_seats),
    };
    let region_is_unknown = to_place.region.is_some() && server_region.is_none();
    let is_silent = candidate.is_heartbeat_overdue;
    Ok(SortKey {
        is_heartbeat_overdue: is_silent,
        region_is_unknown,
        order_cost: choice,
        spread: tie_break_hash(to_place.id, candidate.id),
    })
}

/// Whether a session is farther from a party than the ruleset allows, as far as the round trip is known.
pub(super) fn round_trip_to_session_exceeds_limit(
    ruleset: &Ruleset,
    party: EstimateEnd<'_>,
    session: &Session,
    prediction: Option<PredictionEnd<'_>>,
) -> bool {
    exceeds_max_round_trip(ruleset, slowest_round_trip_ms(ruleset, &[party], session, prediction))
}

fn exceeds_max_round_trip(ruleset: &Ruleset, round_trip_ms: Option<f64>) -> bool {
    let limit_ms = ruleset.hosting.max_round_trip_ms;
    limit_ms.zip(round_trip_ms).is_some_and(|(limit_ms, round_trip_ms)| round_trip_ms > f64::from(limit_ms))
}

/// Region of a game server or session: the one that it published as attribute if the ruleset partitions by it, otherwise the one
/// with the shortest round trip. `None` if it published neither.
pub(super) fn region_of_server<'a>(ruleset: &Ruleset, session: &'a Session) -> Option<&'a str> {
    if let Some(RegionUse::Partition { attribute }) = ruleset.queue.as_ref().and_then(|queue| queue.regions.as_ref())
        && let Some(definition) = ruleset.attributes.get(*attribute)
        && let Some(AttributeValue::String(region)) = session.stated_attribute_value(&definition.name)
    {
        return Some(region);
    }
    let by_round_trip =
        |one: &&RegionLatency, other: &&RegionLatency| one.round_trip_ms.total_cmp(&other.round_trip_ms);
    session.region_latencies.iter().min_by(by_round_trip).map(|nearest| &*nearest.region)
}

/// Longest expected round trip of a party to the server, milliseconds; `None` if none is known.
fn slowest_round_trip_ms(
    ruleset: &Ruleset,
    parties: &[EstimateEnd<'_>],
    session: &Session,
    prediction: Option<PredictionEnd<'_>>,
) -> Option<f64> {
    let predicts = ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1;
    let region = region_of_server(ruleset, session).filter(|_| predicts);
    let endpoint = LatencyEndpoint { locality: session.locality, region_latencies: &session.region_latencies };
    let server = EstimateEnd { locality_and_region_latencies: endpoint, prediction_end: prediction };
    let expected_ms = |party: &EstimateEnd<'_>| {
        // A measured round trip to the server's region is better than a prediction.
        let to_region = party
            .locality_and_region_latencies
            .region_latencies
            .iter()
            .find(|latency| Some(&*latency.region) == region);
        match to_region {
            Some(latency) => Some(f64::from(latency.round_trip_ms)),
            None => estimated_round_trip_ms(&ruleset.latency_model, *party, server),
        }
    };
    parties.iter().filter_map(expected_ms).max_by(f64::total_cmp)
}

/// Order of servers of equal rank: another one for each match, and the same at each attempt.
fn tie_break_hash(match_id: MatchId, server: AdvertisementId) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    (match_id.as_bytes(), server.as_bytes()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
