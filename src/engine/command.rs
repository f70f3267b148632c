//! Commands of the engine and their answers, in domain types.

use std::net::IpAddr;
use std::sync::Arc;

use crate::auth::token::ConsentPurpose;
use crate::domain::advertisement::{Advertisement, AdvertisementKind, AllowedRange, ProbeEndpoint};
use crate::domain::attribute::ValueOrigin;
use crate::domain::block_list::BlockListChange;
use crate::domain::chosen_value::ChosenValue;
use crate::domain::filter::Refusal;
use crate::domain::filter::search_round_trip::RoundTripWithSource;
use crate::domain::id::{AdvertisementId, MatchId, ReservationId, RulesetHash, SetId, UserKey};
use crate::domain::matchmaking_action::MatchmakingAction;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::engine::latency_tokens::LatencyTokens;

/// Authenticated caller of a command.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Authenticated subject; `None` for anonymous callers.
    pub subject: Option<UserKey>,
    /// User of a player's game, if authenticated as one. The caller may act only for this user.
    pub user: Option<UserKey>,
    /// Whether the caller is an operator or a viewer. It may read all ratings.
    pub may_read_all: bool,
    /// Kind of program that calls: game client or game server.
    pub program_kind: ValueOrigin,
    /// Client IP address, used for geolocation. Never logged, and stored only as the probe endpoint that the
    /// caller publishes.
    pub ip_address: Option<IpAddr>,
    /// Least round trip of the caller's connection, microseconds, as the server's kernel has measured it; `None` if it is not known, or that of a
    /// proxy.
    pub tcp_floor_us: Option<u32>,
}

/// Consent tokens of party members, sent by the party leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartyConsents {
    /// Request path of the players, for error messages.
    pub players_field_path: &'static str,
    /// One token per player, in player order. Empty if the player gave none; may be shorter than the player list.
    pub consent_tokens: Vec<Vec<u8>>,
}

impl Default for PartyConsents {
    /// No tokens, for the players of the session composition.
    fn default() -> Self {
        Self { players_field_path: "session_composition.players", consent_tokens: Vec::new() }
    }
}

/// Consents to be in another player's party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantConsentCommand {
    /// Leader of the party.
    pub leader: UserKey,
    /// Matchmaking set.
    pub set_id: SetId,
    /// Use of the consent.
    pub purpose: ConsentPurpose,
    /// Whether the leader may answer ready checks for the caller.
    pub may_leader_answer: bool,
}

/// Change of a durable block list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateBlockListCommand {
    /// User whose list it is; `None` for the caller's own.
    pub user: Option<UserKey>,
    /// Change, with the users in the order of the request.
    pub change: BlockListChange,
}

/// Answer to `grant_consent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantConsentAnswer {
    /// Token for the leader; empty for anonymous callers, who need none.
    pub consent_token: Vec<u8>,
    /// Token lifetime, milliseconds.
    pub expires_in_ms: u32,
}

/// Searches a set for sessions.
#[derive(Clone, Debug, Default)]
pub struct SearchCommand {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Ruleset that the client has; `None` for the current one.
    pub ruleset_hash: Option<RulesetHash>,
    /// Searching party.
    pub session: Session,
    /// Consent tokens of its players.
    pub consents: PartyConsents,
    /// Token from this search's previous answer; empty for a new search.
    pub search_token: Vec<u8>,
    /// Advertisements to exclude from the results.
    pub excluded_adverts: Vec<AdvertisementId>,
    /// Rule overrides of a developer.
    pub overrides: Option<SearchOverrides>,
}

/// Rule overrides for one search. Accepted only if the server enables them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchOverrides {
    /// Maximum candidates in the answer.
    pub max_results: Option<u32>,
    /// Maximum index rows to evaluate.
    pub max_evaluated_rows: Option<u32>,
    /// Search age to assume, milliseconds.
    pub searching_for_ms: Option<u64>,
    /// Weights by soft filter name.
    pub soft_filter_weights: Vec<(String, f64)>,
    /// Limits by expansion name.
    pub expansion_limits: Vec<(String, f64)>,
}

/// One candidate, borrowed while the index is locked. Copy what you need and return.
#[derive(Clone, Copy, Debug)]
pub struct CandidateView<'a> {
    /// Advertisement.
    pub advertisement: &'a Advertisement,
    /// Handle that the answer has instead of the id and without probe endpoint; `None` where searchers receive ids.
    pub handle: Option<AdvertisementId>,
    /// Exact score; lower is better.
    pub score: f64,
    /// Exact terms of the score, in the order of the ruleset's soft filters.
    pub score_terms: &'a [f64],
    /// Part of the score for avoided players, after the terms.
    pub avoidance_cost: f64,
    /// Distance in miles, if both locations are known.
    pub distance_miles: Option<f64>,
    /// Round trip, if measured or estimable.
    pub round_trip: Option<RoundTripWithSource>,
    /// Seats that no reservation holds.
    pub open_seats: u16,
    /// Entries of string lists that the party and the session would play with.
    pub chosen: &'a [ChosenValue],
    /// Probe endpoint of a player's own machine; of the best candidates of a quick probe only.
    pub player_probe: Option<&'a ProbeEndpoint>,
}

/// Result of a search, without its candidates: those went to the caller's closure.
#[derive(Clone, Debug)]
pub struct SearchSummary {
    /// Ruleset that was applied.
    pub ruleset: Arc<Ruleset>,
    /// Index rows evaluated.
    pub evaluated_rows: u32,
    /// The row limit ended the search early.
    pub is_truncated: bool,
    /// Refusals among the evaluated rows.
    pub refusal_counts: Vec<(Refusal, u32)>,
    /// Token for the next search.
    pub search_token: Vec<u8>,
    /// Search age, milliseconds.
    pub searching_for_ms: u64,
    /// Milliseconds until the next expansion step, if any.
    pub next_expansion_in_ms: Option<u64>,
    /// Milliseconds since the shared store last answered, if above the staleness threshold.
    pub store_staleness_ms: Option<u64>,
    /// Paths of ignored fields, relative to the session composition.
    pub ignored_fields: Vec<String>,
}

/// Publishes or replaces an advertisement, or sends its heartbeat.
#[derive(Clone, Debug, Default)]
pub struct PublishOrHeartbeatAdvertCommand {
    /// Id and token of an existing advertisement; `None` creates one.
    pub existing_advert: Option<(AdvertisementId, Vec<u8>)>,
    /// Complete session; `None` for a heartbeat.
    pub session: Option<Session>,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Consent tokens of its players.
    pub consents: PartyConsents,
    /// Matchmaking set; required for a new advertisement.
    pub set_id: Option<SetId>,
    /// Ruleset that the client has; `None` for the current one.
    pub ruleset_hash: Option<RulesetHash>,
    /// Requested TTL, milliseconds; clamped to the settings.
    pub ttl_ms: Option<u32>,
    /// Opaque connection data for parties that have reserved or are matched.
    pub connect_data: Vec<u8>,
    /// Attribute ranges that limit matching searches.
    pub allowed_ranges: Vec<AllowedRange>,
    /// Endpoint for latency probes.
    pub probe: Option<ProbeEndpoint>,
    /// Session or game server; `None` for the default or current kind.
    pub kind: Option<AdvertisementKind>,
    /// Reservations whose parties the host expects; they stop expiring.
    pub confirmed_reservations: Vec<ReservationId>,
    /// Reservations whose parties have joined; they end.
    pub joined_reservations: Vec<ReservationId>,
    /// Key that makes a retried create return the same advertisement.
    pub idempotency_key: Option<String>,
    /// Nonce of the request envelope; replaces the idempotency key for authenticated callers.
    pub envelope_nonce: Option<u64>,
}

/// Answer to an update.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateAdvertAnswer {
    /// Advertisement.
    pub id: AdvertisementId,
    /// Token for the next update.
    pub advertisement_token: Vec<u8>,
    /// The advertisement is new.
    pub is_new_advert: bool,
    /// Remaining TTL, milliseconds.
    pub expires_in_ms: u32,
    /// Ruleset under which it is published.
    pub ruleset_hash: RulesetHash,
    /// Milliseconds until the next expansion step, if any.
    pub next_expansion_in_ms: Option<u64>,
    /// Reservations that hold seats.
    pub reservations: Vec<ReservationView>,
    /// Accepted in memory but not yet durable, because the store is unavailable.
    pub not_yet_durable: bool,
    /// Paths of ignored fields, relative to the session composition.
    pub ignored_fields: Vec<String>,
    /// Matches that the advertisement hosts or must confirm.
    pub hosted_match_ids: Vec<MatchId>,
    /// Milliseconds until its next heartbeat, if queues may give it matches.
    pub next_beat_in_ms: Option<u64>,
}

/// Reservation as clients see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationView {
    /// Reservation.
    pub id: ReservationId,
    /// Token that releases it; empty unless the reader made the reservation.
    pub reservation_token: Vec<u8>,
    /// Number of seats.
    pub seats: u16,
    /// Milliseconds until the hold expires; `None` once confirmed.
    pub expires_in_ms: Option<u32>,
}

/// Deletes an advertisement.
#[derive(Clone, Debug)]
pub struct DeleteAdvertCommand {
    /// Advertisement.
    pub id: AdvertisementId,
    /// Token that proves ownership.
    pub advertisement_token: Vec<u8>,
}

/// Reserves seats in an advertisement.
#[derive(Clone, Debug)]
pub struct ReserveCommand {
    /// Advertisement.
    pub advertisement_id: AdvertisementId,
    /// Expected matchmaking set, if given; must be that of the search.
    pub set_id: Option<SetId>,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Party to seat: `players` of the request if given, else those of its composition.
    pub session: Session,
    /// Consent tokens of its players.
    pub consents: PartyConsents,
    /// Key that makes a retried reserve return the same reservation.
    pub idempotency_key: String,
    /// Requested hold time, milliseconds; clamped to the settings.
    pub hold_for_ms: Option<u32>,
    /// Token of the search that found the advertisement; required.
    pub search_token: Vec<u8>,
}

/// Answer to a reserve.
#[derive(Clone, Debug, PartialEq)]
pub struct ReserveAnswer {
    /// Reservation.
    pub reservation: ReservationView,
    /// Opaque connection data of the host.
    pub connect_data: Vec<u8>,
}

/// Releases a reservation, or the caller's seat in one.
#[derive(Clone, Debug)]
pub enum ReleaseReservationOrSeatCommand {
    /// The caller's own reservation.
    Reservation(ReservationIdAndToken),
    /// The seat that a reservation in this advertisement holds for the caller's user.
    OwnSeat(AdvertisementId),
}

/// Releases a reservation of the caller.
#[derive(Clone, Debug)]
pub struct ReservationIdAndToken {
    /// Reservation.
    pub id: ReservationId,
    /// Token that proves ownership.
    pub reservation_token: Vec<u8>,
}

/// Reports measured round trips of a search's candidates.
#[derive(Clone, Debug)]
pub struct ReportLatencyCommand {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Latency tokens of the party.
    pub latency_tokens: LatencyTokens,
    /// Ruleset that the search used.
    pub ruleset_hash: Option<RulesetHash>,
    /// Token of the search; required.
    pub search_token: Vec<u8>,
    /// Searching party.
    pub session: Session,
    /// Phase that was measured.
    pub phase: LatencyTestPhase,
    /// Finding of every candidate in the last answer; `None` if the client states neither an outcome nor a round trip.
    pub candidate_findings: Vec<(AdvertisementId, Option<ReportedFinding>)>,
}

/// Finding of a client's latency probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReportedFinding {
    /// The host answered.
    Answered(ProbeStatistics),
    /// The host did not answer.
    Silent,
    /// The full test found the host incompatible.
    Incompatible,
    /// The host answered that it is full.
    Full,
    /// No packet was sent.
    NotProbed,
}

/// Round trips of an answered probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeStatistics {
    /// Median, milliseconds.
    pub p50_ms: f64,
    /// Minimum, milliseconds.
    pub floor_ms: f64,
    /// 90th percentile less the median, milliseconds; `None` if unknown.
    pub jitter_ms: Option<f64>,
    /// Packets sent, and of them answered; `None` if unknown.
    pub packets: Option<(u32, u32)>,
}

/// Answer to a latency report, without its candidates.
#[derive(Clone, Debug)]
pub struct LatencyReportSummary {
    /// Ruleset that was applied.
    pub ruleset: Arc<Ruleset>,
    /// Enough candidates responded in the quick phase. Always false after the involved phase.
    pub involved_phase_may_start: bool,
    /// Token that carries what was measured.
    pub search_token: Vec<u8>,
    /// Candidates of the search that have answered.
    pub answered_count: usize,
    /// Candidates of the search that were probed.
    pub probed_count: usize,
    /// Paths of ignored fields, relative to the session composition.
    pub ignored_fields: Vec<String>,
    /// Indices of measurements below the speed-of-light minimum.
    pub implausible_measurement_indices: Vec<usize>,
}

/// Latency measurement phases that follow the locality search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyTestPhase {
    /// A few packets to each candidate.
    Quick,
    /// Longer test that carries game data.
    Involved,
}

/// Chosen action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooseActionAnswer {
    /// Action to take next.
    pub action: MatchmakingAction,
    /// Probability of advertising that was used, percent.
    pub advertise_percent: f64,
}

/// Result of a consistency check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// Advertisements compared, from memory or store.
    pub advertisement_count: u64,
    /// Reservations that hold seats in memory's advertisements.
    pub reservation_count: u64,
    /// Advertisements not compared: accepted while the store was unavailable and not yet written.
    pub unwritten_count: u64,
    /// Advertisements not compared: they changed during every recheck.
    pub changing_count: u64,
    /// Advertisements with an inconsistency.
    pub inconsistency_count: u64,
    /// First inconsistencies found, in no order.
    pub inconsistencies: Vec<Inconsistency>,
    /// Everything except unwritten advertisements was compared.
    pub is_complete: bool,
    /// Duration of the check, milliseconds.
    pub duration_ms: u64,
}

/// Advertisement for which memory differs from the store or from an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// Advertisement.
    pub id: AdvertisementId,
    /// Kinds of inconsistency; at least one.
    pub kinds: Vec<InconsistencyKind>,
}

/// Kind of inconsistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InconsistencyKind {
    /// In the store, not in memory.
    MissingInMemory,
    /// In memory, not in the store.
    MissingInStore,
    /// The versions differ.
    Version,
    /// The published contents differ.
    Content,
    /// The reservations that hold seats differ.
    Reservations,
    /// The stored expiry differs from memory's copy, or is before the acknowledged expiry.
    Expiry,
    /// They disagree on whether this replica received the last heartbeat.
    HeartbeatOwner,
    /// A ruleset's index differs from memory.
    Index,
    /// The stored row cannot be decoded.
    Unreadable,
}

/// Reservation event for the host of an advertisement.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationEvent {
    /// Advertisement.
    pub advertisement_id: AdvertisementId,
    /// Reservation.
    pub reservation: ReservationView,
    /// Change of the reservation.
    pub change: ReservationChange,
}

/// Change of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationChange {
    /// Seats were reserved.
    Held,
    /// The host confirmed it.
    Confirmed,
    /// It was released.
    Released,
    /// The hold expired.
    Expired,
}
