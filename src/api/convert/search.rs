//! Conversion of Search, ReportLatency, ChooseAction, GrantConsent, RevokeConsent and GetConfiguration requests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use crate::api::convert::{FieldErrors, RequestReader, field_checks, session};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::token::ConsentPurpose;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, UserKey};
use crate::domain::limit;
use crate::engine::command::{
    Caller, GrantConsentCommand, LatencyTestPhase, ProbeStatistics, ReportLatencyCommand, ReportedFinding,
    SearchCommand, SearchOverrides,
};

impl RequestReader {
    /// Reads a search.
    pub fn search_command(&self, caller: &Caller, mut wire: pb::SearchRequest) -> Result<SearchCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let search = SearchCommand {
            set_id: self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems),
            ruleset_hash: wire.service_configuration_hash.map(RulesetHash),
            consents: session::take_consent_tokens(wire.session_composition.as_mut(), &mut problems),
            latency_tokens: session::take_latency_tokens(wire.session_composition.as_mut(), &mut problems),
            session: session::required_session(wire.session_composition, caller.program_kind, &mut problems),
            search_token: field_checks::size_checked_token(wire.search_token, "search_token", &mut problems),
            excluded_adverts: excluded_advertisement_ids(&wire.exclude_advertisement_ids, &mut problems),
            overrides: wire.search_config_overrides.map(|wire| search_config_overrides(wire, &mut problems)),
        };
        problems.into_result(search)
    }

    /// Reads a latency report.
    pub fn report_latency_command(
        &self,
        caller: &Caller,
        mut wire: pb::ReportLatencyRequest,
    ) -> Result<ReportLatencyCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let phase = match wire.phase() {
            pb::LatencyPhase::Quick => LatencyTestPhase::Quick,
            pb::LatencyPhase::Involved => LatencyTestPhase::Involved,
            pb::LatencyPhase::Unspecified => {
                problems.add("phase", "is missing or unknown; set it to LATENCY_PHASE_QUICK or LATENCY_PHASE_INVOLVED");
                LatencyTestPhase::Quick
            }
        };
        let search_token = required_search_token(wire.search_token, &mut problems);
        let latency_tokens = session::take_latency_tokens(wire.session_composition.as_mut(), &mut problems);
        let report = ReportLatencyCommand {
            latency_tokens,
            set_id: self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems),
            ruleset_hash: wire.service_configuration_hash.map(RulesetHash),
            search_token,
            phase,
            session: session::required_session(wire.session_composition, caller.program_kind, &mut problems),
            candidate_findings: latency_measurements(&wire.measurements, &mut problems),
        };
        problems.into_result(report)
    }

    /// Reads the set and the size of the party that asks for an action.
    pub fn choose_action_query(&self, wire: pb::ChooseActionRequest) -> Result<(SetId, u16), Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        let size = i32::try_from(wire.party_size).unwrap_or(i32::MAX);
        let size = field_checks::check_and_clamp_integer(
            size,
            1,
            limit::PLAYERS_PER_TICKET_MAX as i32,
            "party_size",
            &mut problems,
        );
        problems.into_result((set_id, u16::try_from(size).unwrap_or(1)))
    }

    /// Reads who may include the caller in a party, and for what.
    pub fn grant_party_consent_command(&self, wire: pb::GrantConsentRequest) -> Result<GrantConsentCommand, Rejection> {
        let mut problems = self.new_field_errors();
        field_checks::check_required_text(&wire.leader_user_id, "leader_user_id", &mut problems);
        let purpose = match wire.r#use() {
            pb::ConsentUse::Queue => Some(ConsentPurpose::Queue),
            pb::ConsentUse::Search => Some(ConsentPurpose::Search),
            pb::ConsentUse::Unspecified => None,
        };
        if purpose.is_none() {
            problems.add("use", "is missing; send CONSENT_USE_QUEUE or CONSENT_USE_SEARCH");
        }
        let grant = GrantConsentCommand {
            leader: UserKey::from_name(&wire.leader_user_id),
            set_id: self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems),
            purpose: purpose.unwrap_or(ConsentPurpose::Queue),
            may_leader_answer: wire.may_answer,
        };
        problems.into_result(grant)
    }

    /// Reads the consent token to revoke.
    pub fn unverified_consent_token_to_revoke(&self, wire: pb::RevokeConsentRequest) -> Result<Vec<u8>, Rejection> {
        let mut problems = self.new_field_errors();
        if wire.consent_token.is_empty() {
            problems.add("consent_token", "is missing; send the token that GrantConsent returned");
        }
        let token = field_checks::size_checked_token(wire.consent_token, "consent_token", &mut problems);
        problems.into_result(token)
    }

    /// Reads the set and the hash of the ruleset that the client has.
    pub fn configuration_query(
        &self,
        wire: pb::GetConfigurationRequest,
    ) -> Result<(SetId, Option<RulesetHash>), Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        problems.into_result((set_id, wire.service_configuration_hash.map(RulesetHash)))
    }
}

/// Checks a required search token.
pub(super) fn required_search_token(token: Vec<u8>, problems: &mut FieldErrors) -> Vec<u8> {
    if token.is_empty() {
        problems.add("search_token", "is missing; send the token of the search that found the candidate");
    }
    field_checks::size_checked_token(token, "search_token", problems)
}

/// Reads excluded ids, sorted and without duplicates, so that a filter can use binary search.
fn excluded_advertisement_ids(wire: &[String], problems: &mut FieldErrors) -> Vec<AdvertisementId> {
    let path = "exclude_advertisement_ids";
    if !field_checks::check_list_len(wire.len(), limit::EXCLUDED_ADVERTISEMENTS_MAX, path, problems) {
        return Vec::new();
    }
    let ids = wire.iter().enumerate();
    let ids = ids
        .filter_map(|(index, id)| field_checks::parse_advertisement_id(id, format_args!("{path}[{index}]"), problems));
    let mut ids: Vec<AdvertisementId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn latency_measurements(
    wire: &[pb::LatencyMeasurement],
    problems: &mut FieldErrors,
) -> Vec<(AdvertisementId, Option<ReportedFinding>)> {
    if !field_checks::check_list_len(wire.len(), limit::CANDIDATE_MEASUREMENTS_PER_REPORT_MAX, "measurements", problems)
    {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let mut measured = Vec::with_capacity(wire.len());
    for (index, measurement) in wire.iter().enumerate() {
        let path = format_args!("measurements[{index}].advertisement_id");
        let Some(id) = field_checks::parse_advertisement_id(&measurement.advertisement_id, path, problems) else {
            continue;
        };
        if !seen.insert(id) {
            problems.add(path, "is listed twice; list each candidate once");
        }
        measured.push((id, reported_finding(measurement, index, problems)));
    }
    measured
}

/// Reads the finding of a probe; `None` if the client states neither an outcome nor a round trip.
fn reported_finding(
    wire: &pb::LatencyMeasurement,
    index: usize,
    problems: &mut FieldErrors,
) -> Option<ReportedFinding> {
    let round_trip_ms = wire.round_trip_ms.map(|ms| {
        let path = format_args!("measurements[{index}].round_trip_ms");
        f64::from(field_checks::checked_round_trip_ms(ms, path, problems))
    });
    let of_packets = wire.statistics.as_ref().and_then(|statistics| probe_statistics(statistics, index, problems));
    let of_round_trip =
        round_trip_ms.map(|ms| ProbeStatistics { p50_ms: ms, floor_ms: ms, jitter_ms: None, packets: None });
    let answered = of_packets.or(of_round_trip).map(ReportedFinding::Answered);
    let outcome = pb::ProbeOutcome::try_from(wire.outcome).unwrap_or_else(|_| {
        problems.add(format_args!("measurements[{index}].outcome"), "is unknown; leave it out, or use a known outcome");
        pb::ProbeOutcome::Unspecified
    });
    let without_answer = match outcome {
        pb::ProbeOutcome::Unspecified => return answered,
        pb::ProbeOutcome::Answered => {
            if answered.is_none() {
                let path = format_args!("measurements[{index}].round_trip_ms");
                problems.add(path, "is missing; an answered probe has round_trip_ms, or statistics with an answer");
            }
            return answered;
        }
        pb::ProbeOutcome::Silent => ReportedFinding::Silent,
        pb::ProbeOutcome::NotProbed => ReportedFinding::NotProbed,
        // These hosts have answered, so there may be a round trip.
        pb::ProbeOutcome::Incompatible => return Some(ReportedFinding::Incompatible),
        pb::ProbeOutcome::Full => return Some(ReportedFinding::Full),
    };
    if answered.is_some() {
        let path = format_args!("measurements[{index}].outcome");
        problems.add(path, "is silent or not probed, but there is a round trip; send one of the two");
    }
    Some(without_answer)
}

/// Reads the packets of a probe; `None` if none was answered.
fn probe_statistics(
    wire: &pb::RoundTripStatistics,
    index: usize,
    problems: &mut FieldErrors,
) -> Option<ProbeStatistics> {
    let path = |field: &'static str| format!("measurements[{index}].statistics.{field}");
    if !(1..=limit::PACKETS_PER_REPORTED_PROBE_MAX).contains(&wire.sent) {
        problems.add(
            path("sent"),
            format!("is {}; must be from 1 to {}", wire.sent, limit::PACKETS_PER_REPORTED_PROBE_MAX),
        );
    }
    if wire.sent < wire.answered {
        problems.add(path("answered"), format!("is {}, more than sent ({})", wire.answered, wire.sent));
    }
    let mut read = |ms: Option<f32>, field| {
        ms.map(|ms| f64::from(field_checks::checked_round_trip_ms(ms, &*path(field), problems)))
    };
    let (floor_ms, p50_ms) = (read(wire.floor_ms, "floor_ms"), read(wire.p50_ms, "p50_ms"));
    let jitter_ms = read(wire.jitter_ms, "jitter_ms");
    if wire.answered == 0 {
        return None;
    }
    let (Some(floor_ms), Some(p50_ms)) = (floor_ms, p50_ms) else {
        let field = if floor_ms.is_none() { "floor_ms" } else { "p50_ms" };
        problems.add(path(field), "is missing; it is required if a packet was answered");
        return None;
    };
    if p50_ms < floor_ms {
        problems.add(path("p50_ms"), format!("is {p50_ms}, less than floor_ms ({floor_ms})"));
    }
    Some(ProbeStatistics { p50_ms, floor_ms, jitter_ms, packets: Some((wire.sent, wire.answered)) })
}

fn search_config_overrides(wire: pb::MatchmakingSearchConfigOverrides, problems: &mut FieldErrors) -> SearchOverrides {
    let in_range = |value: Option<u32>, max: u32, name: &str, problems: &mut FieldErrors| {
        if let Some(value) = value.filter(|value| !(1..=max).contains(value)) {
            let path = format_args!("search_config_overrides.{name}");
            problems.add(path, format!("is {value}; must be from 1 to {max}"));
        }
        value
    };
    SearchOverrides {
        max_results: in_range(wire.max_results, limit::SEARCH_RESULTS_MAX, "max_results", problems),
        max_evaluated_rows: in_range(wire.max_evaluated, limit::SEARCH_EVALUATED_ROWS_MAX, "max_evaluated", problems),
        searching_for_ms: wire.searching_for_ms,
        soft_filter_weights: named_non_negative_numbers(wire.weights, "search_config_overrides.weights", problems),
        expansion_limits: named_non_negative_numbers(wire.limits, "search_config_overrides.limits", problems),
    }
}

fn named_non_negative_numbers(
    wire: BTreeMap<String, f64>,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Vec<(String, f64)> {
    if !field_checks::check_list_len(wire.len(), limit::RULESET_ENTRIES_PER_KIND_MAX, path, problems) {
        return Vec::new();
    }
    let numbers = wire.into_iter().map(|(name, value)| {
        let path = format_args!("{path}[{name:?}]");
        field_checks::check_required_text(&name, path, problems);
        let value = field_checks::checked_non_negative_number(value, path, problems);
        (name, value)
    });
    numbers.collect()
}
