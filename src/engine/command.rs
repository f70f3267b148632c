//! What the engine is asked and what it answers, in the domain's words.

use std::net::IpAddr;
use std::sync::Arc;

use crate::domain::advertisement::{AdvertisementKind, AllowedRange};
use crate::domain::attribute::ValueOrigin;
use crate::domain::filter::Refusal;
use crate::domain::id::{AdvertisementId, ReservationId, RulesetHash, SetId, UserKey};
use crate::domain::matchmaking_action::MatchmakingAction;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;

/// Who is calling.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// The authenticated subject; none when anonymous.
    pub subject: Option<UserKey>,
    /// The user that it plays for, where it is a player's game and has shown whose: it speaks for nobody else.
    pub user: Option<UserKey>,
    /// What kind of program it is.
    pub origin: ValueOrigin,
    /// Its address, for locality alone. Never logged, never stored.
    pub ip_address: Option<IpAddr>,
}

/// What players have said of coming along, as the leader of their party shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartyConsents {
    /// Where the players stand in the request.
    pub players_field_path: &'static str,
    /// A token for each player, in their order, empty for those without; shorter where the rest have none.
    pub consent_tokens: Vec<Vec<u8>>,
}

impl Default for PartyConsents {
    /// None, of the players of a session composition.
    fn default() -> Self {
        Self { players_field_path: "session_composition.players", consent_tokens: Vec::new() }
    }
}

/// Consent to be taken along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantConsentAnswer {
    /// For the leader; empty where nobody asks for it.
    pub consent_token: Vec<u8>,
    /// How long it is good.
    pub expires_in_ms: u32,
}

/// Look for sessions.
#[derive(Clone, Debug, Default)]
pub struct SearchCommand {
    /// The set.
    pub set_id: SetId,
    /// The ruleset the client was given; the current one when absent.
    pub ruleset_hash: Option<RulesetHash>,
    /// Who looks.
    pub session: Session,
    /// What they have said of coming along.
    pub consents: PartyConsents,
    /// From the previous answer of this search; empty for a new one.
    pub search_token: Vec<u8>,
    /// Advertisements not to show.
    pub excluded_adverts: Vec<AdvertisementId>,
    /// A developer's changes to the rules.
    pub overrides: Option<SearchOverrides>,
}

/// A developer's changes to one search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchOverrides {
    /// Candidates in the answer.
    pub max_results: Option<u32>,
    /// Rows looked at.
    pub max_evaluated_rows: Option<u32>,
    /// Evaluate as if the search had been running this long.
    pub searching_for_ms: Option<u64>,
    /// Weights by soft filter name.
    pub soft_filter_weights: Vec<(String, f64)>,
    /// Limits by expansion name.
    pub expansion_limits: Vec<(String, f64)>,
}

/// A round trip, milliseconds, and how it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RoundTrip {
    /// From regions or places.
    Estimated(f64),
    /// By the one who asks.
    Measured(f64),
}

impl RoundTrip {
    /// Milliseconds, however they are known.
    pub fn millis(self) -> f64 {
        match self {
            Self::Estimated(ms) | Self::Measured(ms) => ms,
        }
    }
}

/// One candidate, while the index is held: borrow, copy out, let go.
#[derive(Clone, Copy, Debug)]
pub struct CandidateView<'a> {
    /// Which.
    pub id: AdvertisementId,
    /// What was encoded when it was published.
    pub encoded_advert: &'a [u8],
    /// Exact.
    pub score: f64,
    /// Exact, in the order of `Ruleset::soft`.
    pub score_terms: &'a [f64],
    /// When both places are known, miles.
    pub distance_miles: Option<f64>,
    /// When anything is known of it.
    pub round_trip: Option<RoundTrip>,
    /// Seats that nobody holds.
    pub open_seats: u16,
}

/// What a search found, but for the candidates, which went to the caller's closure one by one.
#[derive(Clone, Debug)]
pub struct SearchAnswer {
    /// The rules it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Rows looked at.
    pub evaluated_rows: u32,
    /// The evaluation limit cut it short.
    pub truncated: bool,
    /// Refusals among the rows looked at.
    pub refusal_counts: Vec<(Refusal, u32)>,
    /// To send with the next search.
    pub search_token: Vec<u8>,
    /// How long it has been running.
    pub searching_for_ms: u64,
    /// When limits next relax.
    pub next_expansion_in_ms: Option<u64>,
    /// How old the picture is, when the store is out of reach.
    pub store_staleness_ms: Option<u64>,
    /// Paths, relative to the session composition, that were not believed.
    pub ignored_fields: Vec<String>,
}

/// Publish, replace or keep alive.
#[derive(Clone, Debug, Default)]
pub struct UpdateAdvertCommand {
    /// Which one and the proof that it is the caller's; none for a new one.
    pub existing_advert: Option<(AdvertisementId, Vec<u8>)>,
    /// The whole session; none for a heartbeat.
    pub session: Option<Session>,
    /// What its players have said of coming along.
    pub consents: PartyConsents,
    /// The set; required for a new one.
    pub set_id: Option<SetId>,
    /// The ruleset the client was given.
    pub ruleset_hash: Option<RulesetHash>,
    /// How long to believe it.
    pub ttl_ms: Option<u32>,
    /// For whoever finds it.
    pub connect_data: Vec<u8>,
    /// Tighter ranges.
    pub allowed_ranges: Vec<AllowedRange>,
    /// Who waits; none when not said.
    pub kind: Option<AdvertisementKind>,
    /// Reservations whose parties the host has seen coming.
    pub confirmed_reservations: Vec<ReservationId>,
    /// Reservations whose parties are now among the players.
    pub joined_reservations: Vec<ReservationId>,
    /// Makes a retried create the same advertisement.
    pub idempotency_key: Option<String>,
    /// The envelope's nonce, which stands in for the key of an identified caller.
    pub envelope_nonce: Option<u64>,
}

/// What an update did.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateAdvertAnswer {
    /// Which advertisement.
    pub id: AdvertisementId,
    /// Proof for the next update.
    pub advertisement_token: Vec<u8>,
    /// It was not there before.
    pub created: bool,
    /// How long it is believed from now.
    pub expires_in_ms: u32,
    /// The ruleset it is published under.
    pub ruleset_hash: RulesetHash,
    /// When its limits next relax.
    pub next_expansion_in_ms: Option<u64>,
    /// Seats held by others.
    pub reservations: Vec<ReservationView>,
    /// Accepted in memory, not yet durable.
    pub not_yet_durable: bool,
    /// Paths, relative to the session composition, that were not believed.
    pub ignored_fields: Vec<String>,
}

/// A reservation as clients see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationView {
    /// Which.
    pub id: ReservationId,
    /// Proof of who may release it; empty for anyone but the reserver.
    pub reservation_token: Vec<u8>,
    /// How many seats.
    pub seats: u16,
    /// When it lapses; none when confirmed.
    pub expires_in_ms: Option<u32>,
}

/// Withdraw.
#[derive(Clone, Debug)]
pub struct DeleteAdvertCommand {
    /// Which.
    pub id: AdvertisementId,
    /// Proof that it is the caller's.
    pub advertisement_token: Vec<u8>,
}

/// Take seats.
#[derive(Clone, Debug)]
pub struct ReserveCommand {
    /// Where.
    pub advertisement_id: AdvertisementId,
    /// The set, when said.
    pub set_id: Option<SetId>,
    /// The party that will sit: `players` of the request where given, else those of its composition.
    pub session: Session,
    /// What they have said of coming along.
    pub consents: PartyConsents,
    /// The same key twice is the same reservation.
    pub idempotency_key: String,
    /// How long to hold.
    pub hold_for_ms: Option<u32>,
    /// From the search that found it.
    pub search_token: Vec<u8>,
}

/// Seats taken.
#[derive(Clone, Debug, PartialEq)]
pub struct ReserveAnswer {
    /// The seats.
    pub reservation: ReservationView,
    /// How to reach the host.
    pub connect_data: Vec<u8>,
}

/// Give seats back.
#[derive(Clone, Debug)]
pub struct ReleaseReservationCommand {
    /// Which reservation.
    pub id: ReservationId,
    /// Proof of who reserved.
    pub reservation_token: Vec<u8>,
}

/// Measured round trips (S1-28, S1-29).
#[derive(Clone, Debug)]
pub struct ReportLatencyCommand {
    /// The set.
    pub set_id: SetId,
    /// The ruleset the search used.
    pub ruleset_hash: Option<RulesetHash>,
    /// From the search that found them.
    pub search_token: Vec<u8>,
    /// Who measured.
    pub session: Session,
    /// Which test was made.
    pub phase: LatencyPhase,
    /// Every candidate of the last answer; none when it did not answer.
    pub measurements: Vec<(AdvertisementId, Option<f32>)>,
}

/// What a report changes.
#[derive(Clone, Debug)]
pub struct ReportLatencyAnswer {
    /// The rules it was judged by.
    pub ruleset: Arc<Ruleset>,
    /// Enough have answered the quick probe; never after the involved one, which has begun.
    pub involved_phase_may_start: bool,
    /// Paths, relative to the session composition, that were not believed.
    pub ignored_fields: Vec<String>,
    /// Measurements that were not believed, by their places in the report: faster than light.
    pub implausible_measurements: Vec<usize>,
}

/// The two tests that follow locality (S1-28, S1-29).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyPhase {
    /// A few packets to each candidate.
    Quick,
    /// The fuller test, which carries game data.
    Involved,
}

/// A drawn role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooseActionAnswer {
    /// What to do next.
    pub action: MatchmakingAction,
    /// The chance it was drawn with.
    pub advertise_percent: f64,
}

/// What came of comparing memory with the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsistencyReport {
    /// Advertisements that were compared, on whichever side they are.
    pub advertisement_count: u64,
    /// Reservations that hold seats in those that memory has.
    pub reservation_count: u64,
    /// Not compared: kept alive while the store was out of reach, which has yet to be told.
    pub unwritten_count: u64,
    /// Not compared: they had changed whenever they were looked at.
    pub changing_count: u64,
    /// Advertisements about which the two differ.
    pub inconsistency_count: u64,
    /// The first of those, in no order.
    pub inconsistencies: Vec<Inconsistency>,
    /// Everything was compared, but for what is pending.
    pub is_complete: bool,
    /// How long it took, milliseconds.
    pub duration_ms: u64,
}

/// An advertisement about which memory and store differ, or memory and one of its indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// Which.
    pub id: AdvertisementId,
    /// In what; one at least.
    pub kinds: Vec<InconsistencyKind>,
}

/// In what two pictures of an advertisement differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InconsistencyKind {
    /// The store has it, memory has not.
    MissingInMemory,
    /// Memory has it, the store has not.
    MissingInStore,
    /// They are of different versions.
    Version,
    /// What was published differs.
    Content,
    /// Reservations that hold seats differ.
    Reservations,
    /// The stored expiry is not what memory believes to be stored, or lies before what the host was promised.
    Expiry,
    /// They differ about whether this server took the last heartbeat.
    HeartbeatOwner,
    /// A ruleset's index does not show it as it is in memory, or shows what is not there.
    Index,
    /// The store has it, in a row that makes no sense.
    Unreadable,
}

/// Something that the host of an advertisement must hear.
#[derive(Clone, Debug, PartialEq)]
pub struct ReservationEvent {
    /// Whose.
    pub advertisement_id: AdvertisementId,
    /// The seats.
    pub reservation: ReservationView,
    /// What happened to them.
    pub change: ReservationChange,
}

/// What happened to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservationChange {
    /// Taken.
    Held,
    /// Confirmed by the host.
    Confirmed,
    /// Given back.
    Released,
    /// Lapsed.
    Expired,
}
