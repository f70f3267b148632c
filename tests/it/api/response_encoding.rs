//! Handwritten response encoding equals the encoding of the generated types.

use std::net::IpAddr;

use proptest::prelude::*;
use prost::Message;

use fireteam::api::response_encoder::{
    CANDIDATES_RESPONSE_BYTES_MAX, CandidatesResponseEncoder, EncodedCandidatesResponse,
};
use fireteam::domain::advertisement::ProbeEndpoint;
use fireteam::domain::attribute::{Trust, ValueOrigin};
use fireteam::domain::chosen_value::ChosenValue;
use fireteam::domain::filter::search_round_trip::RoundTripWithSource;
use fireteam::domain::filter::{Refusal, RefusingSide};
use fireteam::domain::id::AdvertisementId;
use fireteam::domain::probe_result::PredictedRoundTrip;
use fireteam::domain::ruleset::Ruleset;
use fireteam::engine::command::{CandidateView, LatencyReportSummary, SearchSummary};

use crate::support::generated_client;
use crate::support::scripted_engine::{scripted_advertisement, scripted_ruleset};

#[derive(Clone, Debug)]
struct Hit {
    byte: u8,
    party_sizes: Vec<u8>,
    probe: Option<(IpAddr, u16, Vec<u8>)>,
    /// The answer has a handle instead of the id.
    is_sealed: bool,
    score: f64,
    terms: [f64; 2],
    distance_miles: Option<f64>,
    round_trip: Option<RoundTripWithSource>,
    open_seats: u16,
}

prop_compose! {
    fn hits()(hits in prop::collection::vec(hit(), 0..20)) -> Vec<Hit> { hits }
}

prop_compose! {
    fn hit()(
        byte in any::<u8>(),
        party_sizes in prop::collection::vec(1u8..=64, 0..32),
        probe in prop::option::of((any::<IpAddr>(), 1u16.., prop::collection::vec(any::<u8>(), 16..33))),
        is_sealed in any::<bool>(),
        score in score_value(),
        terms in [score_value(), score_value()],
        distance_miles in prop::option::of(0.0..8000.0),
        round_trip in prop::option::of(round_trips()),
        open_seats in 0u16..=1000,
    ) -> Hit {
        Hit { byte, party_sizes, probe, is_sealed, score, terms, distance_miles, round_trip, open_seats }
    }
}

/// Zeros are omitted on the wire, so they must occur often.
fn score_value() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(0.0004), 0.0..1.0, 0.0..1e9]
}

fn round_trips() -> impl Strategy<Value = RoundTripWithSource> {
    prop_oneof![
        (0.0..60_000.0).prop_map(RoundTripWithSource::ByRegion),
        (0.0..60_000.0).prop_map(RoundTripWithSource::ByDistance),
        (0.0..60_000.0, 0.0..100.0, 0.0..100.0).prop_map(|(round_trip_ms, less, more)| {
            let (low_ms, high_ms) = (f64::max(round_trip_ms - less, 0.0), round_trip_ms + more);
            RoundTripWithSource::Predicted(PredictedRoundTrip { round_trip_ms, low_ms, high_ms })
        }),
        (0.0..60_000.0).prop_map(RoundTripWithSource::Measured)
    ]
}

fn reported_round_trip_ms(round_trip: RoundTripWithSource) -> f32 {
    match round_trip {
        RoundTripWithSource::ByRegion(ms) | RoundTripWithSource::ByDistance(ms) => ((ms / 25.0).round() * 25.0) as f32,
        RoundTripWithSource::Predicted(predicted) => ((predicted.round_trip_ms / 25.0).round() * 25.0) as f32,
        RoundTripWithSource::Measured(ms) => ms as f32,
    }
}

fn reported_interval_ms(round_trip: Option<RoundTripWithSource>) -> [Option<f32>; 2] {
    match round_trip {
        Some(RoundTripWithSource::Predicted(predicted)) => {
            let (low, high) = ((predicted.low_ms / 25.0).floor() * 25.0, (predicted.high_ms / 25.0).ceil() * 25.0);
            [Some(low as f32), Some(high as f32)]
        }
        _ => [None, None],
    }
}

fn reported_source(round_trip: RoundTripWithSource) -> generated_client::RoundTripSource {
    match round_trip {
        RoundTripWithSource::ByRegion(_) => generated_client::RoundTripSource::Region,
        RoundTripWithSource::ByDistance(_) => generated_client::RoundTripSource::Distance,
        RoundTripWithSource::Measured(_) => generated_client::RoundTripSource::Measured,
        RoundTripWithSource::Predicted(_) => generated_client::RoundTripSource::Predicted,
    }
}

fn rounded(exact: f64) -> f64 {
    (exact * 1000.0).round() / 1000.0
}

/// The reference: generated messages, filled field by field.
fn generated_candidates(ruleset: &Ruleset, hits: &[Hit]) -> Vec<generated_client::Candidate> {
    let candidate = |hit: &Hit| generated_client::Candidate {
        chosen: vec![generated_client::ChosenValue { attribute: "maps".into(), value: "bay".into() }],
        advertisement_id: format!("{:02x}", if hit.is_sealed { !hit.byte } else { hit.byte }).repeat(16),
        score: rounded(hit.score),
        terms: ruleset
            .soft_filters
            .iter()
            .zip(hit.terms)
            .map(|(soft, exact)| {
                let value = if &*soft.name == "skill" { exact } else { rounded(exact) };
                generated_client::ScoreTerm { name: soft.name.to_string(), value }
            })
            .collect(),
        distance_miles: hit
            .distance_miles
            .map(|miles| ((miles * 1.609_344 / 500.0).round() * 500.0 / 1.609_344) as f32),
        round_trip_ms: hit.round_trip.map(reported_round_trip_ms),
        round_trip_source: hit.round_trip.map_or(0, |round_trip| reported_source(round_trip).into()),
        round_trip_low_ms: reported_interval_ms(hit.round_trip)[0],
        round_trip_high_ms: reported_interval_ms(hit.round_trip)[1],
        open_seats: u32::from(hit.open_seats),
        party_size_composition: hit.party_sizes.iter().map(|&size| i32::from(size)).collect(),
        probe: hit.probe.clone().filter(|_| !hit.is_sealed).map(|(address, port, probe_key)| {
            let address = match address.to_canonical() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            generated_client::ProbeEndpoint { address, port: port.into(), probe_key, hosted: true }
        }),
    };
    hits.iter().map(candidate).collect()
}

fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn encode_candidates<'a>(ruleset: &'a Ruleset, hits: &[Hit]) -> CandidatesResponseEncoder<'a> {
    let mut writer = CandidatesResponseEncoder::new(ruleset);
    for hit in hits {
        let mut published = scripted_advertisement(hit.byte);
        published.session.party_sizes = hit.party_sizes.as_slice().into();
        published.session.value_origin = ValueOrigin::GameServer;
        published.connect_data = [7; 512].into();
        let probe = hit.probe.clone();
        published.probe = probe
            .map(|(address, port, key)| Box::new(ProbeEndpoint { address: mapped(address), port, key: key.into() }));
        let chosen = [ChosenValue { attribute: "maps".into(), value: "bay".into() }];
        writer.push_candidate(&CandidateView {
            chosen: &chosen,
            player_probe: None,
            avoidance_cost: 0.0,
            advertisement: &published,
            handle: hit.is_sealed.then(|| AdvertisementId::from_bytes([!hit.byte; 16])),
            score: hit.score,
            score_terms: &hit.terms,
            distance_miles: hit.distance_miles,
            round_trip: hit.round_trip,
            open_seats: hit.open_seats,
        });
    }
    writer
}

fn empty_search_answer(ruleset: Ruleset) -> SearchSummary {
    SearchSummary {
        ruleset: ruleset.into(),
        evaluated_rows: 0,
        is_truncated: false,
        refusal_counts: vec![],
        search_token: vec![],
        searching_for_ms: 0,
        next_expansion_in_ms: None,
        store_staleness_ms: None,
        ignored_fields: vec![],
    }
}

proptest! {
    /// Spliced candidates decode to the generated ones, and a decoded response equals the original. Distances are
    /// rounded to 500 km, estimated round trips to 25 ms.
    #[test]
    fn spliced_response_equals_the_generated_response(hits in hits(), evaluated in any::<u32>(), truncated: bool) {
        let ruleset = scripted_ruleset();
        let found = SearchSummary { evaluated_rows: evaluated, is_truncated: truncated, ..empty_search_answer(ruleset.clone()) };
        let encoded = encode_candidates(&ruleset, &hits).finish_search_response(found);
        let bytes = encoded.encode_to_vec();
        prop_assert_eq!(bytes.len(), encoded.encoded_len());
        let expected = generated_client::MatchmakingSearchResponse {
            candidates: generated_candidates(&ruleset, &hits),
            evaluated,
            truncated,
            service_configuration_hash: ruleset.hash.0,
            latency_plan: (!hits.is_empty()).then(default_latency_plan),
            ..Default::default()
        };
        prop_assert_eq!(generated_client::MatchmakingSearchResponse::decode(&*bytes).unwrap(), expected);
        prop_assert_eq!(EncodedCandidatesResponse::decode(&*bytes).unwrap(), encoded);
    }

    /// Any message survives encoding to `EncodedCandidatesResponse` and back.
    #[test]
    fn encoded_response_round_trips(score in any::<f64>(), miles in any::<f32>(), text in ".{0,20}", count: u32) {
        prop_assume!(!score.is_nan() && !miles.is_nan());
        let message = generated_client::Candidate {
            advertisement_id: text,
            score,
            distance_miles: Some(miles),
            open_seats: count,
            ..Default::default()
        };
        let encoded = EncodedCandidatesResponse::decode(&*message.encode_to_vec()).unwrap();
        prop_assert_eq!(generated_client::Candidate::decode(&*encoded.encode_to_vec()).unwrap(), message);
    }
}

#[test]
fn search_and_latency_responses_encode_all_fields() {
    let rules = scripted_ruleset();
    let found = SearchSummary {
        evaluated_rows: 7,
        is_truncated: true,
        refusal_counts: vec![
            (Refusal::OwnSession, 1),
            (Refusal::HardFilter { filter_index: 9, side: RefusingSide::Searcher }, 3),
        ],
        search_token: vec![1, 2],
        searching_for_ms: 10,
        next_expansion_in_ms: Some(0),
        store_staleness_ms: Some(5),
        ignored_fields: vec!["nat_type".into()],
        ..empty_search_answer(rules.clone())
    };
    let bytes = CandidatesResponseEncoder::new(&rules).finish_search_response(found).encode_to_vec();
    let decoded = generated_client::MatchmakingSearchResponse::decode(&*bytes).unwrap();
    let own = generated_client::RefusalCount {
        count: 1,
        kind: generated_client::RefusalKind::Own.into(),
        ..Default::default()
    };
    let allowed = generated_client::RefusalCount {
        rule: "allowed_range".into(),
        count: 3,
        kind: generated_client::RefusalKind::Filter.into(),
        side: generated_client::RefusalSide::Searcher.into(),
    };
    let expected = generated_client::MatchmakingSearchResponse {
        candidates: vec![],
        evaluated: 7,
        truncated: true,
        refusals: vec![own, allowed],
        service_configuration_hash: rules.hash.0,
        search_token: vec![1, 2],
        searching_for_ms: 10,
        next_expansion_in_ms: Some(0),
        stale_for_ms: Some(5),
        ignored_fields: vec!["session_composition.nat_type".into()],
        latency_plan: None,
    };
    assert_eq!(decoded, expected);
    let report = LatencyReportSummary {
        ruleset: rules.clone().into(),
        involved_phase_may_start: true,
        search_token: vec![7; 900],
        answered_count: 3,
        probed_count: 5,
        ignored_fields: vec!["players[0].skill".into()],
        implausible_measurement_indices: vec![3],
    };
    let bytes = CandidatesResponseEncoder::new(&rules).finish_latency_response(&report).encode_to_vec();
    let decoded = generated_client::MatchmakingReportLatencyResponse::decode(&*bytes).unwrap();
    assert!(decoded.involved_phase_may_start && decoded.candidates.is_empty());
    assert_eq!((decoded.search_token, decoded.answered, decoded.probed), (vec![7; 900], 3, 5));
    assert_eq!(decoded.ignored_fields, ["session_composition.players[0].skill", "measurements[3].round_trip_ms"]);
}

/// A term that clients do not state themselves is rounded, for every name.
#[test]
fn score_terms_not_stated_by_clients_are_rounded() {
    let check = |trust: Trust, expected: f64| {
        let mut rules = scripted_ruleset();
        rules.attributes[0].trust = trust;
        let hit = Hit { score: 0.123_456, terms: [0.123_456, 0.987_654], ..default_hit() };
        let bytes = encode_candidates(&rules, &[hit])
            .finish_search_response(empty_search_answer(rules.clone()))
            .encode_to_vec();
        let decoded = generated_client::MatchmakingSearchResponse::decode(&*bytes).unwrap();
        let values: Vec<f64> = decoded.candidates[0].terms.iter().map(|term| term.value).collect();
        assert_eq!((decoded.candidates[0].score, values), (0.123, vec![expected, 0.988]));
    };
    check(Trust::Client, 0.123_456);
    check(Trust::GameServer, 0.123);
    check(Trust::TokenClaim, 0.123);
}

/// SEC-10: a response stays within its size limit for any number of candidates; the best candidates stay.
#[test]
fn search_response_stays_within_its_size_limit() {
    let rules = scripted_ruleset();
    let probe = Some((IpAddr::from([0; 16]), u16::MAX, vec![0; 32]));
    let hits: Vec<Hit> =
        (0..1_000).map(|_| Hit { probe: probe.clone(), party_sizes: vec![1; 32], ..default_hit() }).collect();
    let encoded = encode_candidates(&rules, &hits).finish_search_response(empty_search_answer(rules.clone()));
    assert!(encoded.encoded_len() <= CANDIDATES_RESPONSE_BYTES_MAX, "{} bytes", encoded.encoded_len());
    let decoded = generated_client::MatchmakingSearchResponse::decode(&*encoded.encode_to_vec()).unwrap();
    assert!(70 < decoded.candidates.len(), "{}", decoded.candidates.len());
}

/// Plan of a ruleset without `<Latency>`.
fn default_latency_plan() -> generated_client::LatencyPlan {
    generated_client::LatencyPlan {
        quick: 8,
        involved: 3,
        probe_players: generated_client::ProbePlayers::Never.into(),
        quick_timeout_ms: 3_000,
    }
}

fn default_hit() -> Hit {
    Hit {
        byte: 1,
        party_sizes: vec![1],
        probe: None,
        is_sealed: false,
        score: 0.5,
        terms: [0.25, 0.25],
        distance_miles: None,
        round_trip: None,
        open_seats: 1,
    }
}
