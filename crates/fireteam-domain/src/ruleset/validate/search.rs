//! `<AdvertiseChances>`, `<Limits>`, `<Latency>` and `<Party>`: settings of a search.

use crate::latency::{DEFAULT_LATENCY_MODEL, LatencyModel};
use crate::limit::{
    PLAYERS_PER_SESSION_MAX, RULESET_ENTRIES_PER_KIND_MAX, SEARCH_EVALUATED_ROWS_MAX, SEARCH_RESULTS_MAX,
};
use crate::matchmaking_action::{ADVERTISE_PERCENT_MAX, AdvertiseChances};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::probing::{
    DEFAULT_PROBING, LatencyEstimatePolicy, LatencyTrust, ProbedPlayers, ProbingSpec, RoundTripFigure,
};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::teams::TeamsSpec;
use crate::ruleset::{AdvertisementIdForm, HardFilter, HardMissingPolicy, HardRule, PartyConsentPolicy, SearchLimits};

/// Largest game size of the rule of thumb: its largest party is half the game.
const ADVERTISE_CHANCES_GAME_SIZE_MAX: u64 = PLAYERS_PER_SESSION_MAX as u64;

/// Default maximum numbers of candidates in an answer and of evaluated rows.
const DEFAULT_SEARCH_LIMITS: SearchLimits = SearchLimits { max_results: 50, max_evaluated: 20_000 };

/// Maximum clients of one account that advertise and reserve at the same time.
const CLIENTS_PER_ACCOUNT_MAX: u64 = 64;

/// Maximum of both constants of the latency model, milliseconds and milliseconds per 1000 km: more than a satellite
/// round trip.
const LATENCY_MODEL_MS_MAX: f64 = 1_000.0;

/// Maximum number of best candidates that get the quick probe.
const QUICK_PROBED_CANDIDATES_MAX: u64 = 50;

/// Maximum number of best candidates that get the involved probe: each learns the searcher's address.
const INVOLVED_PROBED_CANDIDATES_MAX: u64 = 10;

/// Maximum of `MaxJitterMs`, milliseconds: the longest round trip that a client may report.
const MAX_JITTER_MS_MAX: f64 = 60_000.0;

/// Newest version of the round trip predictor.
const PREDICTOR_VERSION_MAX: u64 = 1;

/// Default share of candidates that must answer the quick probe, percent.
const DEFAULT_ANSWERED_PERCENT_FOR_INVOLVED_PHASE: f64 = 50.0;

/// Chance to advertise, percent, if a file gives neither chances nor teams: half of the parties search.
const DEFAULT_ADVERTISE_CHANCE_PERCENT: f64 = 50.0;

/// Settings of `<Limits>`.
pub(super) struct LimitSettings {
    pub(super) search_limits: SearchLimits,
    pub(super) clients_per_account: u32,
    pub(super) advertisement_id_form: AdvertisementIdForm,
}

const DEFAULT_LIMITS: LimitSettings = LimitSettings {
    search_limits: DEFAULT_SEARCH_LIMITS,
    clients_per_account: 1,
    advertisement_id_form: AdvertisementIdForm::Ids,
};

/// Reads `<Limits>`.
pub(super) fn read_limits(element: Option<&RawElement>, diagnostics: &Diagnostics) -> LimitSettings {
    let Some(element) = element else { return DEFAULT_LIMITS };
    let mut reader = ElementReader::new(element, diagnostics);
    let max_results =
        reader.integer_or("MaxResults", 1, SEARCH_RESULTS_MAX.into(), DEFAULT_SEARCH_LIMITS.max_results.into()) as u32;
    let max_evaluated = reader.integer_or(
        "MaxEvaluated",
        1,
        SEARCH_EVALUATED_ROWS_MAX.into(),
        DEFAULT_SEARCH_LIMITS.max_evaluated.into(),
    ) as u32;
    let clients_per_account = reader.integer_or("ClientsPerAccount", 1, CLIENTS_PER_ACCOUNT_MAX, 1) as u32;
    let keywords = [("ids", AdvertisementIdForm::Ids), ("per_searcher", AdvertisementIdForm::PerSearcher)];
    let handles = reader.optional_keyword("Handles", &keywords).unwrap_or_default();
    reader.report_unread_and_missing();
    LimitSettings {
        search_limits: SearchLimits { max_results, max_evaluated },
        clients_per_account,
        advertisement_id_form: handles,
    }
}

/// Settings of `<Latency>`.
#[derive(Debug)]
pub(super) struct LatencySettings {
    /// Estimates latency from distance.
    pub(super) model: LatencyModel,
    /// Share of candidates that must answer the quick probe before the involved phase starts, percent.
    pub(super) answered_percent_for_involved_phase: f64,
    /// Probes of candidates.
    pub(super) probing: ProbingSpec,
    /// Limits on lost packets and jitter, which follow the hard filters of the file.
    pub(super) hard_filters: Vec<HardFilter>,
    /// Parties may state which round trips they accept.
    pub(super) allows_latency_wishes: bool,
}

/// Reads `<Latency>`: the latency model, the start of the involved phase, and probes of players' machines.
pub(super) fn read_latency(element: Option<&RawElement>, diagnostics: &Diagnostics) -> LatencySettings {
    let Some(element) = element else {
        return LatencySettings {
            model: DEFAULT_LATENCY_MODEL,
            answered_percent_for_involved_phase: DEFAULT_ANSWERED_PERCENT_FOR_INVOLVED_PHASE,
            probing: DEFAULT_PROBING,
            hard_filters: Vec::new(),
            allows_latency_wishes: false,
        };
    };
    let mut reader = ElementReader::new(element, diagnostics);
    let bounds = NumberBounds::new_inclusive(0.0, LATENCY_MODEL_MS_MAX);
    let intercept_ms = reader.number_or("InterceptMs", bounds, DEFAULT_LATENCY_MODEL.intercept_ms);
    let ms_per_1000_km = reader.number_or("MsPer1000Km", bounds, DEFAULT_LATENCY_MODEL.ms_per_1000_km);
    let involved_phase_percent =
        reader.number_or("InvolvedPhasePercent", NumberBounds::PERCENT, DEFAULT_ANSWERED_PERCENT_FOR_INVOLVED_PHASE);
    let wishes = reader.bool_or("Wishes", false);
    let probing = read_probing(&mut reader);
    let max_loss = reader.optional_number("MaxLossPercent", NumberBounds::PERCENT);
    let max_jitter = reader.optional_number("MaxJitterMs", NumberBounds::new_inclusive(0.0, MAX_JITTER_MS_MAX));
    let limit = |name: &str, rule| HardFilter { name: name.into(), rule, missing: HardMissingPolicy::Pass };
    let max_loss = max_loss.map(|percent| limit("max_packet_loss", HardRule::MaxPacketLoss { percent }));
    let max_jitter = max_jitter.map(|ms| limit("max_jitter", HardRule::MaxJitter { ms }));
    reader.report_unread_and_missing();
    LatencySettings {
        model: LatencyModel { intercept_ms, ms_per_1000_km },
        answered_percent_for_involved_phase: involved_phase_percent,
        probing,
        hard_filters: max_loss.into_iter().chain(max_jitter).collect(),
        allows_latency_wishes: wishes,
    }
}

/// Reads what `<Latency>` says of probes and of estimates: all of [`ProbingSpec`].
fn read_probing(reader: &mut ElementReader<'_>) -> ProbingSpec {
    let players =
        [("never", ProbedPlayers::Never), ("involved", ProbedPlayers::Involved), ("quick", ProbedPlayers::Quick)];
    let trusts =
        [("proven", LatencyTrust::Proven), ("observed", LatencyTrust::Observed), ("claimed", LatencyTrust::Claimed)];
    let figures = [("p50", RoundTripFigure::Median), ("floor", RoundTripFigure::Floor)];
    let sources = [
        ("distance", LatencyEstimatePolicy::Distance),
        ("predicted", LatencyEstimatePolicy::PredictedV1),
        ("measured", LatencyEstimatePolicy::Measured),
    ];
    let source = reader.optional_keyword("Source", &sources).unwrap_or_default();
    let predictor = reader.optional_integer("Predictor", 1, PREDICTOR_VERSION_MAX);
    let is_cautious = reader.optional_keyword("Cautious", &[("false", false), ("true", true)]);
    for (name, is_given) in [("Predictor", predictor.is_some()), ("Cautious", is_cautious.is_some())] {
        if let Some(raw) = reader.attribute(name).filter(|_| is_given && source != LatencyEstimatePolicy::PredictedV1) {
            reader.report_at(
                raw.name_span,
                format!("`{name}` has no effect"),
                "remove it, or set Source=\"predicted\"",
            );
        }
    }
    // Estimates that others depend on need proof, unless the file says otherwise.
    let default_trust = if source == LatencyEstimatePolicy::Distance {
        DEFAULT_PROBING.region_latency_trust
    } else {
        LatencyTrust::Proven
    };
    let probing = ProbingSpec {
        quick_probe_candidates: reader.integer_or(
            "QuickProbe",
            1,
            QUICK_PROBED_CANDIDATES_MAX,
            DEFAULT_PROBING.quick_probe_candidates.into(),
        ) as u8,
        involved_probe_candidates: reader.integer_or(
            "InvolvedProbe",
            0,
            INVOLVED_PROBED_CANDIDATES_MAX,
            DEFAULT_PROBING.involved_probe_candidates.into(),
        ) as u8,
        players: reader.optional_keyword("ProbePlayers", &players).unwrap_or_default(),
        figure: reader.optional_keyword("Figure", &figures).unwrap_or_default(),
        region_latency_trust: reader.optional_keyword("Trust", &trusts).unwrap_or(default_trust),
        latency_estimate_policy: source,
        filters_by_interval_high_end: is_cautious.unwrap_or(false),
        must_measure: reader.optional_keyword("Join", &[("any", false), ("measured", true)]).unwrap_or(false),
    };
    if let Some(raw) = reader
        .attribute("InvolvedProbe")
        .filter(|_| probing.players == ProbedPlayers::Involved && probing.involved_probe_candidates == 0)
    {
        reader.report_value(raw, "with ProbePlayers=\"involved\" at least 1");
    }
    probing
}

/// Reads `<Party>`: whether its members must consent.
pub(super) fn read_party_consent(element: Option<&RawElement>, diagnostics: &Diagnostics) -> PartyConsentPolicy {
    let Some(element) = element else { return PartyConsentPolicy::default() };
    let mut reader = ElementReader::new(element, diagnostics);
    let keywords = [("assumed", PartyConsentPolicy::Assumed), ("required", PartyConsentPolicy::Required)];
    let consent = reader.optional_keyword("Consent", &keywords).unwrap_or_default();
    reader.report_unread_and_missing();
    consent
}

/// Reads `<AdvertiseChances>`: a table, or the rule of thumb for a game size. Default: the rule of thumb for the match
/// size of `teams`; without teams, a constant chance.
pub(super) fn read_advertise_chances(
    element: Option<&RawElement>,
    teams: Option<&TeamsSpec>,
    diagnostics: &Diagnostics,
) -> AdvertiseChances {
    let default = match teams {
        Some(teams) => {
            AdvertiseChances::from_game_size(teams.players_per_match().min(ADVERTISE_CHANCES_GAME_SIZE_MAX as u16))
        }
        None => AdvertiseChances::constant(DEFAULT_ADVERTISE_CHANCE_PERCENT),
    };
    let Some(element) = element else { return default };
    let mut reader = ElementReader::new(element, diagnostics);
    let game_size = reader.attribute("GameSize");
    let from_game_size = reader
        .optional_integer("GameSize", 2, ADVERTISE_CHANCES_GAME_SIZE_MAX)
        .map(|size| AdvertiseChances::from_game_size(size as u16));
    let rows = reader.children_named(&["Chance"]);
    let chances = match (game_size, rows.as_slice()) {
        (None, []) => {
            if element.children.is_empty() {
                let fix = "add GameSize=\"…\", or a <Chance PartySize=\"1\" Percent=\"…\"/> for each party size";
                reader.report_at(element.name_span, "<AdvertiseChances> has no chances", fix);
            }
            None
        }
        (Some(_), []) => from_game_size,
        (None, rows) => read_advertise_chances_by_party_size(rows, diagnostics),
        (Some(game_size), _) => {
            reader.report_at(
                game_size.name_span,
                "<AdvertiseChances> has both `GameSize` and a table",
                "keep one of them",
            );
            None
        }
    };
    reader.report_unread_and_missing();
    chances.unwrap_or(default)
}

fn read_advertise_chances_by_party_size(rows: &[&RawElement], diagnostics: &Diagnostics) -> Option<AdvertiseChances> {
    let mut percents = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut reader = ElementReader::new(row, diagnostics);
        let expected = index as u64 + 1;
        let size = reader.required_integer("PartySize", 1, RULESET_ENTRIES_PER_KIND_MAX as u64);
        if let Some(raw) = reader.attribute("PartySize").filter(|_| size.is_some_and(|size| size != expected)) {
            reader.report_value(raw, format!("give {expected}: the table lists each party size from 1, in order"));
        }
        let percent = reader
            .required_attribute("Percent")
            .map(|raw| (raw, reader.optional_number("Percent", NumberBounds::PERCENT)));
        if let Some((raw, Some(_))) =
            percent.filter(|(_, percent)| percent.is_some_and(|percent| percent > ADVERTISE_PERCENT_MAX))
        {
            let fix = format!("give at most {ADVERTISE_PERCENT_MAX}: parties that always advertise never meet");
            reader.report_value(raw, fix);
        }
        percents.extend(percent.and_then(|(_, percent)| percent));
        reader.report_unread_and_missing();
    }
    AdvertiseChances::from_percents_by_party_size(percents)
}
