//! Encoder of responses with candidates. Writes protobuf into one buffer, without an allocation per candidate.
//!
//! Protobuf fields may come in any order, so the result is a valid message.

use std::net::IpAddr;

use prost::bytes::{Buf, BufMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};

use crate::api::convert::hosting::chosen_values;
use crate::api::pb;
use crate::domain::advertisement::{Advertisement, ProbeEndpoint};
use crate::domain::attribute::Trust;
use crate::domain::filter::search_round_trip::RoundTripWithSource;
use crate::domain::filter::{Refusal, RefusingSide};
use crate::domain::id::AdvertisementId;
use crate::domain::limit;
use crate::domain::location_privacy::{
    DISTANCE_ROUNDING_MILES, ROUND_TRIP_ROUNDING_MS, round_to_step, round_up_to_step,
};
use crate::domain::measure::Measure;
use crate::domain::ruleset::probing::{ProbedPlayers, ProbingSpec, QUICK_PROBE_TIMEOUT_MS};
use crate::domain::ruleset::{AdvertisementIdForm, RefusingRule, Ruleset, SoftFilter};
use crate::engine::command::{CandidateView, LatencyReportSummary, SearchSummary};

/// Size limit of one response, bytes.
pub const CANDIDATES_RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Bytes reserved for fields other than candidates: refusal counts per rule and side, and paths of ignored fields.
const NON_CANDIDATE_BYTES_MAX: usize = 20 * 1024;

/// Size limit of all candidates in one response, bytes.
const CANDIDATES_BYTES_MAX: usize = CANDIDATES_RESPONSE_BYTES_MAX - NON_CANDIDATE_BYTES_MAX;

/// Size limit of one refusal count, bytes: rule name, two enums and a count, with keys and lengths.
const REFUSAL_COUNT_BYTES_MAX: usize = limit::STRING_BYTES_MAX + 24;

// Each hard filter may refuse on either side; 16 covers the reasons that are not rules.
const _: () =
    assert!((2 * limit::RULESET_ENTRIES_PER_KIND_MAX + 16) * REFUSAL_COUNT_BYTES_MAX <= NON_CANDIDATE_BYTES_MAX);

/// Typical size of a candidate, bytes; sizes the initial buffer.
const CANDIDATE_BYTES_TYPICAL: usize = 160;

/// Hexadecimal digits of an id.
const ID_HEX_DIGITS: usize = 32;

/// Encoded id field: key, length and digits.
const ENCODED_ID_BYTES: usize = 2 + ID_HEX_DIGITS;

/// Encoded source of a round trip: key and value.
const ROUND_TRIP_SOURCE_FIELD_BYTES: usize = 2;

/// Message in its encoded form. `build.rs` substitutes it for the generated `MatchmakingSearchResponse` and
/// `MatchmakingReportLatencyResponse`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EncodedCandidatesResponse {
    bytes: Vec<u8>,
}

impl Message for EncodedCandidatesResponse {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.bytes);
    }

    /// Copies the field in its encoded form; nothing here interprets it.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let out = &mut self.bytes;
        match wire_type {
            WireType::Varint => {
                let value = encoding::decode_varint(buf)?;
                encoding::uint64::encode(tag, &value, out);
            }
            WireType::LengthDelimited => {
                let mut value = Vec::new();
                encoding::bytes::merge(wire_type, &mut value, buf, ctx)?;
                encoding::bytes::encode(tag, &value, out);
            }
            WireType::SixtyFourBit => {
                let mut value = 0u64;
                encoding::fixed64::merge(wire_type, &mut value, buf, ctx)?;
                encoding::fixed64::encode(tag, &value, out);
            }
            WireType::ThirtyTwoBit => {
                let mut value = 0u32;
                encoding::fixed32::merge(wire_type, &mut value, buf, ctx)?;
                encoding::fixed32::encode(tag, &value, out);
            }
            WireType::StartGroup | WireType::EndGroup => encoding::skip_field(wire_type, tag, buf, ctx)?,
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.bytes.len()
    }

    fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// Probe endpoint; `hosted` if it is a game server's.
fn probe_to_proto(probe: &ProbeEndpoint, hosted: bool) -> pb::ProbeEndpoint {
    let address = match IpAddr::from(probe.address).to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    pb::ProbeEndpoint { address, port: probe.port.into(), probe_key: probe.key.to_vec(), hosted }
}

/// Bytes of the key and length of a length-delimited field with a tag below 16.
fn length_prefix_len(length: usize) -> usize {
    1 + encoding::encoded_len_varint(length as u64)
}

/// Writes the key and length of a length-delimited field.
fn put_length_prefix(tag: u32, length: usize, out: &mut Vec<u8>) {
    encoding::encode_key(tag, WireType::LengthDelimited, out);
    encoding::encode_varint(length as u64, out);
}

/// Encoder of a Search or ReportLatency response: candidates, best first, then the other fields.
#[derive(Debug)]
pub struct CandidatesResponseEncoder<'a> {
    bytes: Vec<u8>,
    terms: Vec<ScoreTermEncoder<'a>>,
    /// Term values of the current candidate, rounded for sending.
    term_values: Vec<f64>,
    /// Whether the response is a search's: then candidates tell the probe endpoints of players' machines, and else a list of its own.
    is_search: bool,
    /// Probe endpoints of players' machines.
    player_probes: Vec<pb::CandidateProbe>,
}

/// Fields of a candidate that no search changes.
struct PublishedFields<'a> {
    /// Id of the advertisement, or the handle that stands for it.
    id: AdvertisementId,
    party_sizes: &'a [u8],
    /// Encoded length of the party sizes, bytes, without key and length.
    party_sizes_len: usize,
    /// Probe endpoint of a game server.
    probe: Option<pb::ProbeEndpoint>,
}

/// Encoder of one score term; holds what is the same for each candidate.
#[derive(Debug)]
struct ScoreTermEncoder<'a> {
    name: &'a str,
    /// Whether the value is rounded to thousandths before sending.
    rounded: bool,
    /// Encoded length of the name field, bytes.
    name_field_len: usize,
}

impl<'a> CandidatesResponseEncoder<'a> {
    /// Creates an encoder of a search response, for candidates scored by `ruleset`.
    pub fn new(ruleset: &'a Ruleset) -> Self {
        Self { is_search: true, ..Self::of_latency_report(ruleset) }
    }

    /// Creates an encoder of the response to a latency report, for candidates scored by `ruleset`.
    pub fn of_latency_report(ruleset: &'a Ruleset) -> Self {
        let capacity = ruleset.search_limits.max_results as usize * CANDIDATE_BYTES_TYPICAL + 256;
        let mut terms: Vec<_> =
            ruleset.soft_filters.iter().map(|soft_filter| ScoreTermEncoder::new(ruleset, soft_filter)).collect();
        terms.extend(ruleset.has_search_avoidance_costs().then(ScoreTermEncoder::of_avoidance));
        let term_values = Vec::with_capacity(terms.len());
        Self { bytes: Vec::with_capacity(capacity), term_values, terms, is_search: false, player_probes: Vec::new() }
    }

    /// Appends a candidate, unless the response would exceed its size limit. Candidates come best first, so only the
    /// worst are left out.
    pub fn push_candidate(&mut self, candidate: &CandidateView<'_>) {
        let score = round_to_thousandths(candidate.score);
        let Self { terms, term_values, .. } = self;
        term_values.clear();
        let exact_terms = candidate.score_terms.iter().chain(std::iter::once(&candidate.avoidance_cost));
        term_values.extend(terms.iter().zip(exact_terms).map(|(term, &exact)| term.value_to_send(exact)));
        // Without avoided players there is no such term.
        if terms.len() > candidate.score_terms.len() && term_values.last() == Some(&0.0) {
            term_values.pop();
        }
        let distance_miles = candidate.distance_miles.map(|distance| round_to_step(distance, DISTANCE_ROUNDING_MILES));
        let round_trip_ms = candidate.round_trip.map(disclosed_round_trip_ms);
        let published = PublishedFields::of_candidate(candidate);
        let source = candidate.round_trip.map(round_trip_source);
        let interval = candidate.round_trip.and_then(disclosed_interval_ms);
        let player_probe = candidate.player_probe.map(|probe| probe_to_proto(probe, false));
        let (player_probe, later_probe) = if self.is_search { (player_probe, None) } else { (None, player_probe) };
        let chosen = chosen_values(candidate.chosen);
        let length = published.encoded_len()
            + double_field_len(score)
            + terms.iter().zip(&*term_values).map(|(term, &value)| term.encoded_len(value)).sum::<usize>()
            + optional_float_field_len(distance_miles)
            + optional_float_field_len(round_trip_ms)
            + source.map_or(0, |_| ROUND_TRIP_SOURCE_FIELD_BYTES)
            + interval.map_or(0, |[low_ms, high_ms]| {
                optional_float_field_len(Some(low_ms)) + optional_float_field_len(Some(high_ms))
            })
            + player_probe.as_ref().map_or(0, |probe| encoding::message::encoded_len(9, probe))
            + open_seats_field_len(candidate.open_seats)
            + if chosen.is_empty() { 0 } else { encoding::message::encoded_len_repeated(10, &chosen) };
        if self.bytes.len() + length > CANDIDATES_BYTES_MAX {
            return;
        }
        let out = &mut self.bytes;
        encoding::encode_key(1, WireType::LengthDelimited, out);
        encoding::encode_varint(length as u64, out);
        published.encode(out);
        put_double_field(2, score, out);
        for (term, &value) in terms.iter().zip(&*term_values) {
            term.encode(value, out);
        }
        put_optional_float_field(4, distance_miles, out);
        put_optional_float_field(5, round_trip_ms, out);
        if candidate.open_seats != 0 {
            encoding::uint32::encode(6, &u32::from(candidate.open_seats), out);
        }
        if let Some(probe) = &player_probe {
            encoding::message::encode(9, probe, out);
        }
        encoding::message::encode_repeated(10, &chosen, out);
        if let Some(source) = source {
            encoding::int32::encode(11, &source.into(), out);
        }
        if let Some([low_ms, high_ms]) = interval {
            put_optional_float_field(12, Some(low_ms), out);
            put_optional_float_field(13, Some(high_ms), out);
        }
        if let Some(probe) = later_probe {
            let advertisement_id = candidate.advertisement.id.to_string();
            self.player_probes.push(pb::CandidateProbe { advertisement_id, probe: Some(probe) });
        }
    }

    /// Appends the other fields of a search response.
    pub fn finish_search_response(self, answer: SearchSummary) -> EncodedCandidatesResponse {
        let has_candidates = !self.bytes.is_empty();
        let mut bytes = self.bytes;
        let out = &mut bytes;
        encoding::uint32::encode(2, &answer.evaluated_rows, out);
        encoding::bool::encode(3, &answer.is_truncated, out);
        for (refusal, count) in &answer.refusal_counts {
            encoding::message::encode(4, &refusal_count(&answer.ruleset, *refusal, *count), out);
        }
        encoding::uint32::encode(5, &answer.ruleset.hash.0, out);
        encoding::bytes::encode(6, &answer.search_token, out);
        encoding::uint64::encode(7, &answer.searching_for_ms, out);
        if let Some(ms) = answer.next_expansion_in_ms {
            encoding::uint64::encode(8, &ms, out);
        }
        if let Some(ms) = answer.store_staleness_ms {
            encoding::uint64::encode(9, &ms, out);
        }
        encoding::string::encode_repeated(10, &prefix_with_session_composition(&answer.ignored_fields), out);
        if has_candidates && answer.ruleset.advertisement_id_form == AdvertisementIdForm::Ids {
            encoding::message::encode(11, &latency_plan(&answer.ruleset.probing), out);
        }
        EncodedCandidatesResponse { bytes }
    }

    /// Appends the other fields of a latency response.
    pub fn finish_latency_response(self, answer: &LatencyReportSummary) -> EncodedCandidatesResponse {
        let mut bytes = self.bytes;
        encoding::bool::encode(2, &answer.involved_phase_may_start, &mut bytes);
        let mut ignored_fields = prefix_with_session_composition(&answer.ignored_fields);
        ignored_fields.extend(
            answer.implausible_measurement_indices.iter().map(|index| format!("measurements[{index}].round_trip_ms")),
        );
        encoding::string::encode_repeated(3, &ignored_fields, &mut bytes);
        encoding::bytes::encode(4, &answer.search_token, &mut bytes);
        encoding::uint32::encode(5, &(answer.answered_count as u32), &mut bytes);
        encoding::uint32::encode(6, &(answer.probed_count as u32), &mut bytes);
        encoding::message::encode_repeated(7, &self.player_probes, &mut bytes);
        EncodedCandidatesResponse { bytes }
    }
}

impl<'a> PublishedFields<'a> {
    fn of_candidate(candidate: &CandidateView<'a>) -> Self {
        let Advertisement { id, session, .. } = candidate.advertisement;
        // With a handle, the answer has neither the id nor the probe endpoint, by which searchers could compare.
        let (id, probe) = match candidate.handle {
            Some(handle) => (handle, None),
            None => (*id, candidate.advertisement.game_server_probe()),
        };
        let encoded_len = |&size: &u8| encoding::encoded_len_varint(size.into());
        Self {
            id,
            party_sizes: &session.party_sizes,
            party_sizes_len: session.party_sizes.iter().map(encoded_len).sum(),
            probe: probe.map(|probe| probe_to_proto(probe, true)),
        }
    }

    fn encoded_len(&self) -> usize {
        ENCODED_ID_BYTES
            + length_prefix_len(self.party_sizes_len)
            + self.party_sizes_len
            + self.probe.as_ref().map_or(0, |probe| encoding::message::encoded_len(9, probe))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_length_prefix(1, ID_HEX_DIGITS, out);
        out.extend_from_slice(&self.id.to_hex());
        put_length_prefix(7, self.party_sizes_len, out);
        self.party_sizes.iter().for_each(|&size| encoding::encode_varint(size.into(), out));
        if let Some(probe) = &self.probe {
            encoding::message::encode(9, probe, out);
        }
    }
}

impl<'a> ScoreTermEncoder<'a> {
    fn new(ruleset: &Ruleset, soft: &'a SoftFilter) -> Self {
        Self::named(&soft.name, must_round_term(ruleset, soft.measure))
    }

    /// Encoder of the cost of avoided players.
    fn of_avoidance() -> Self {
        Self::named(Refusal::AvoidedPlayer.as_str(), true)
    }

    fn named(name: &'a str, rounded: bool) -> Self {
        let name_field_len = 1 + encoding::encoded_len_varint(name.len() as u64) + name.len();
        Self { name, rounded, name_field_len }
    }

    fn value_to_send(&self, exact: f64) -> f64 {
        if self.rounded { round_to_thousandths(exact) } else { exact }
    }

    fn body_len(&self, value: f64) -> usize {
        self.name_field_len + double_field_len(value)
    }

    /// Encoded length of the whole term with its key, bytes.
    fn encoded_len(&self, value: f64) -> usize {
        let body = self.body_len(value);
        1 + encoding::encoded_len_varint(body as u64) + body
    }

    fn encode(&self, value: f64, out: &mut Vec<u8>) {
        encoding::encode_key(3, WireType::LengthDelimited, out);
        encoding::encode_varint(self.body_len(value) as u64, out);
        encoding::encode_key(1, WireType::LengthDelimited, out);
        encoding::encode_varint(self.name.len() as u64, out);
        out.extend_from_slice(self.name.as_bytes());
        put_double_field(2, value, out);
    }
}

/// Whether a term is rounded, because a location or rating could be computed from it. Terms of attributes that clients
/// set themselves are exact.
fn must_round_term(ruleset: &Ruleset, measure: Measure) -> bool {
    match measure {
        Measure::AttributeDifference(index) => {
            let attribute = &ruleset.attributes[index];
            let may_be_rating = ruleset.rating.is_some() && attribute.source.depends_on_standings();
            may_be_rating || attribute.trust != Trust::Client
        }
        Measure::Latency | Measure::DeltaPing | Measure::Distance => true,
        // The searcher has measured them itself.
        Measure::PacketLoss | Measure::Jitter => false,
    }
}

/// Field paths as in a typed request.
fn prefix_with_session_composition(paths: &[String]) -> Vec<String> {
    paths.iter().map(|path| format!("session_composition.{path}")).collect()
}

/// Settings of a ruleset for probes of candidates.
fn latency_plan(probing: &ProbingSpec) -> pb::LatencyPlan {
    let probe_players = match probing.players {
        ProbedPlayers::Never => pb::ProbePlayers::Never,
        ProbedPlayers::Involved => pb::ProbePlayers::Involved,
        ProbedPlayers::Quick => pb::ProbePlayers::Quick,
    };
    pb::LatencyPlan {
        quick: probing.quick_probe_candidates.into(),
        involved: probing.involved_probe_candidates.into(),
        probe_players: probe_players.into(),
        quick_timeout_ms: QUICK_PROBE_TIMEOUT_MS,
    }
}

pub(crate) fn round_trip_source(round_trip: RoundTripWithSource) -> pb::RoundTripSource {
    match round_trip {
        RoundTripWithSource::Measured(_) => pb::RoundTripSource::Measured,
        RoundTripWithSource::Predicted(_) => pb::RoundTripSource::Predicted,
        RoundTripWithSource::ByRegion(_) => pb::RoundTripSource::Region,
        RoundTripWithSource::ByDistance(_) => pb::RoundTripSource::Distance,
    }
}

/// Interval of a predicted round trip as the caller may see it: outward to steps, so that it still holds nine of ten.
fn disclosed_interval_ms(round_trip: RoundTripWithSource) -> Option<[f64; 2]> {
    let RoundTripWithSource::Predicted(predicted) = round_trip else { return None };
    let step = ROUND_TRIP_ROUNDING_MS;
    Some([(predicted.low_ms / step).floor() * step, round_up_to_step(predicted.high_ms, step)])
}

/// Round trip as the caller may see it: its own measurements exactly, estimates in steps, for location privacy.
fn disclosed_round_trip_ms(round_trip: RoundTripWithSource) -> f64 {
    match round_trip {
        RoundTripWithSource::Measured(ms) => ms,
        RoundTripWithSource::Predicted(predicted) => round_to_step(predicted.round_trip_ms, ROUND_TRIP_ROUNDING_MS),
        RoundTripWithSource::ByRegion(ms) | RoundTripWithSource::ByDistance(ms) => {
            round_to_step(ms, ROUND_TRIP_ROUNDING_MS)
        }
    }
}

fn round_to_thousandths(exact: f64) -> f64 {
    (exact * 1000.0).round() / 1000.0
}

fn double_field_len(value: f64) -> usize {
    if value == 0.0 { 0 } else { 9 }
}

fn put_double_field(tag: u32, value: f64, out: &mut Vec<u8>) {
    if value != 0.0 {
        encoding::double::encode(tag, &value, out);
    }
}

fn optional_float_field_len(value: Option<f64>) -> usize {
    if value.is_some() { 5 } else { 0 }
}

fn put_optional_float_field(tag: u32, value: Option<f64>, out: &mut Vec<u8>) {
    if let Some(value) = value {
        encoding::float::encode(tag, &(value as f32), out);
    }
}

fn open_seats_field_len(seats: u16) -> usize {
    if seats == 0 { 0 } else { 1 + encoding::encoded_len_varint(u64::from(seats)) }
}

fn refusal_count(ruleset: &Ruleset, refusal: Refusal, count: u32) -> pb::RefusalCount {
    use pb::RefusalKind as Kind;
    let plain = |kind: Kind| (kind, pb::RefusalSide::Unspecified, String::new());
    let (kind, side, rule) = match refusal {
        Refusal::Silo => plain(Kind::Silo),
        Refusal::OwnSession => plain(Kind::Own),
        Refusal::Excluded => plain(Kind::Excluded),
        Refusal::Expired => plain(Kind::Expired),
        Refusal::NotEnoughSeats => plain(Kind::Full),
        Refusal::Silent => plain(Kind::Silent),
        Refusal::HardFilter { filter_index: filter, side } => {
            let rule = ruleset.rule_of_filter_index(filter);
            let kind = if matches!(rule, RefusingRule::Wish(_)) { Kind::Wish } else { Kind::Filter };
            (kind, refusal_side(side), rule.name().into_owned())
        }
        // Queue refusals do not occur in a search.
        other => (Kind::Unspecified, pb::RefusalSide::Unspecified, other.as_str().to_owned()),
    };
    pb::RefusalCount { rule, count, kind: kind.into(), side: side.into() }
}

fn refusal_side(side: RefusingSide) -> pb::RefusalSide {
    match side {
        RefusingSide::Searcher => pb::RefusalSide::Searcher,
        RefusingSide::Advertiser => pb::RefusalSide::Advertiser,
    }
}
