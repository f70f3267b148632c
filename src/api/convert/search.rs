//! Searches, latency reports, role draws and configuration requests from the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::api::convert::{Door, Problems, field, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use crate::domain::limit;
use crate::engine::command::{Caller, LatencyPhase, Overrides, ReportLatency, Search};

impl Door {
    /// A search.
    pub fn search(&self, caller: &Caller, mut wire: pb::SearchRequest) -> Result<Search, Rejection> {
        let mut problems = self.problems();
        let search = Search {
            set_id: self.required_set_id(wire.matchmaking_set_id, &mut problems),
            hash: wire.service_configuration_hash.map(RulesetHash),
            consents: session::consents(wire.session_composition.as_mut(), &mut problems),
            session: session::required(wire.session_composition, caller.origin, &mut problems),
            token: field::token(wire.search_token, "search_token", &mut problems),
            excluded: excluded(&wire.exclude_advertisement_ids, &mut problems),
            overrides: wire.search_config_overrides.map(|wire| overrides(wire, &mut problems)),
        };
        problems.finish(search)
    }

    /// Measured round trips.
    pub fn report_latency(&self, caller: &Caller, wire: pb::ReportLatencyRequest) -> Result<ReportLatency, Rejection> {
        let mut problems = self.problems();
        let phase = match wire.phase() {
            pb::LatencyPhase::Quick => LatencyPhase::Quick,
            pb::LatencyPhase::Involved => LatencyPhase::Involved,
            pb::LatencyPhase::Unspecified => {
                problems.add("phase", "is missing or unknown: say LATENCY_PHASE_QUICK or LATENCY_PHASE_INVOLVED");
                LatencyPhase::Quick
            }
        };
        let token = required_search_token(wire.search_token, &mut problems);
        let report = ReportLatency {
            set_id: self.required_set_id(wire.matchmaking_set_id, &mut problems),
            hash: wire.service_configuration_hash.map(RulesetHash),
            token,
            phase,
            session: session::required(wire.session_composition, caller.origin, &mut problems),
            measurements: measurements(&wire.measurements, &mut problems),
        };
        problems.finish(report)
    }

    /// A set and the size of the party that asks for a role.
    pub fn choose_role(&self, wire: pb::ChooseActionRequest) -> Result<(SetId, u16), Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        let size = i32::try_from(wire.party_size).unwrap_or(i32::MAX);
        let size = field::whole(size, 1, limit::PLAYERS_MAX as i32, "party_size", &mut problems);
        problems.finish((set_id, u16::try_from(size).unwrap_or(1)))
    }

    /// The user who may take the caller along.
    pub fn grant_consent(&self, wire: pb::GrantConsentRequest) -> Result<UserKey, Rejection> {
        let mut problems = self.problems();
        field::name(&wire.leader_user_id, "leader_user_id", &mut problems);
        problems.finish(UserKey::of(&wire.leader_user_id))
    }

    /// A set, and what the client has of it.
    pub fn configuration(&self, wire: pb::GetConfigurationRequest) -> Result<(SetId, Option<RulesetHash>), Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        problems.finish((set_id, wire.service_configuration_hash.map(RulesetHash)))
    }
}

/// A search token that cannot be done without.
pub(super) fn required_search_token(token: Vec<u8>, problems: &mut Problems) -> Vec<u8> {
    if token.is_empty() {
        problems.add("search_token", "is missing: send the one of the search that found it");
    }
    field::token(token, "search_token", problems)
}

/// Sorted, each once: what a filter may search by halves.
fn excluded(wire: &[String], problems: &mut Problems) -> Vec<AdvertisementId> {
    let path = "exclude_advertisement_ids";
    if !field::count(wire.len(), limit::EXCLUDED_MAX, path, problems) {
        return Vec::new();
    }
    let ids = wire.iter().enumerate();
    let ids = ids.filter_map(|(index, id)| field::advertisement_id(id, format_args!("{path}[{index}]"), problems));
    let mut ids: Vec<AdvertisementId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn measurements(wire: &[pb::LatencyMeasurement], problems: &mut Problems) -> Vec<(AdvertisementId, Option<f32>)> {
    if !field::count(wire.len(), limit::MEASUREMENTS_MAX, "measurements", problems) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut measured = Vec::with_capacity(wire.len());
    for (index, measurement) in wire.iter().enumerate() {
        let path = format_args!("measurements[{index}].advertisement_id");
        let Some(id) = field::advertisement_id(&measurement.advertisement_id, path, problems) else { continue };
        if !seen.insert(id) {
            problems.add(path, "is measured twice: each candidate once");
        }
        let path = format_args!("measurements[{index}].round_trip_ms");
        measured.push((id, measurement.round_trip_ms.map(|ms| field::round_trip_ms(ms, path, problems))));
    }
    measured
}

fn overrides(wire: pb::MatchmakingSearchConfigOverrides, problems: &mut Problems) -> Overrides {
    let within = |value: Option<u32>, max: u32, name: &str, problems: &mut Problems| {
        if let Some(value) = value.filter(|value| !(1..=max).contains(value)) {
            let path = format_args!("search_config_overrides.{name}");
            problems.add(path, format!("is {value}, must be from 1 to {max}"));
        }
        value
    };
    Overrides {
        max_results: within(wire.max_results, limit::RESULTS_MAX, "max_results", problems),
        max_evaluated: within(wire.max_evaluated, limit::EVALUATED_MAX, "max_evaluated", problems),
        searching_for_ms: wire.searching_for_ms,
        weights: named_numbers(wire.weights, "search_config_overrides.weights", problems),
        limits: named_numbers(wire.limits, "search_config_overrides.limits", problems),
    }
}

fn named_numbers(
    wire: BTreeMap<String, f64>,
    path: impl Display + Copy,
    problems: &mut Problems,
) -> Vec<(String, f64)> {
    if !field::count(wire.len(), limit::RULES_MAX, path, problems) {
        return Vec::new();
    }
    let named = wire.into_iter().map(|(name, value)| {
        let path = format_args!("{path}[{name:?}]");
        field::name(&name, path, problems);
        let value = field::positive(value, path, problems);
        (name, value)
    });
    named.collect()
}
