//! `<AdvertiseChances>`, `<Limits>`, `<Latency>` and `<Party>`: how a set is searched.

use crate::latency::{DEFAULT_LATENCY_MODEL, LatencyModel};
use crate::limit::{
    PLAYERS_PER_SESSION_MAX, RULESET_ENTRIES_PER_KIND_MAX, SEARCH_EVALUATED_ROWS_MAX, SEARCH_RESULTS_MAX,
};
use crate::matchmaking_action::{ADVERTISE_PERCENT_MAX, AdvertiseChances};
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::raw::{Diagnostics, RawElement};
use crate::ruleset::teams::TeamsSpec;
use crate::ruleset::{PartyConsentPolicy, SearchLimits};

/// Players in the largest game that the rule of thumb is for: the largest party has half of them.
const ADVERTISE_GAME_SIZE_MAX: u64 = 2 * PLAYERS_PER_SESSION_MAX as u64;

/// Candidates in an answer, and rows looked at, where a file does not say (SEC-10).
const DEFAULT_SEARCH_LIMITS: SearchLimits = SearchLimits { max_results: 50, max_evaluated: 20_000 };

/// Milliseconds at no distance, and per 1000 km, that a line may have at most: a satellite's round trip and more.
const LATENCY_MODEL_MS_MAX: f64 = 1_000.0;

/// Share of candidates that must answer the quick probe, percent, where a file does not say.
const DEFAULT_INVOLVED_PHASE_PERCENT: f64 = 50.0;

/// What everyone's chance is where a file says neither chances nor teams, percent: as many look as wait.
const DEFAULT_ADVERTISE_CHANCE_PERCENT: f64 = 50.0;

/// Reads `<Limits>`.
pub(super) fn read_search_limits(element: Option<&RawElement>, mistakes: &Diagnostics) -> SearchLimits {
    let Some(element) = element else { return DEFAULT_SEARCH_LIMITS };
    let mut at = ElementReader::new(element, mistakes);
    let max_results =
        at.integer_or("MaxResults", 1, SEARCH_RESULTS_MAX.into(), DEFAULT_SEARCH_LIMITS.max_results.into()) as u32;
    let max_evaluated =
        at.integer_or("MaxEvaluated", 1, SEARCH_EVALUATED_ROWS_MAX.into(), DEFAULT_SEARCH_LIMITS.max_evaluated.into())
            as u32;
    at.report_unread();
    SearchLimits { max_results, max_evaluated }
}

/// Reads `<Latency>`: the line from distance to milliseconds, and when the involved phase starts (S1-29).
pub(super) fn read_latency(element: Option<&RawElement>, mistakes: &Diagnostics) -> (LatencyModel, f64) {
    let Some(element) = element else { return (DEFAULT_LATENCY_MODEL, DEFAULT_INVOLVED_PHASE_PERCENT) };
    let mut at = ElementReader::new(element, mistakes);
    let bounds = NumberBounds::inclusive(0.0, LATENCY_MODEL_MS_MAX);
    let intercept_ms = at.number_or("InterceptMs", bounds, DEFAULT_LATENCY_MODEL.intercept_ms);
    let ms_per_1000_km = at.number_or("MsPer1000Km", bounds, DEFAULT_LATENCY_MODEL.ms_per_1000_km);
    let involved = at.number_or("InvolvedPhasePercent", NumberBounds::PERCENT, DEFAULT_INVOLVED_PHASE_PERCENT);
    at.report_unread();
    (LatencyModel { intercept_ms, ms_per_1000_km }, involved)
}

/// Reads `<Party>`: whether its members must have said that they come along.
pub(super) fn read_party_consent(element: Option<&RawElement>, mistakes: &Diagnostics) -> PartyConsentPolicy {
    let Some(element) = element else { return PartyConsentPolicy::default() };
    let mut at = ElementReader::new(element, mistakes);
    let words = [("assumed", PartyConsentPolicy::Assumed), ("required", PartyConsentPolicy::Required)];
    let consent = at.optional_keyword("Consent", &words).unwrap_or_default();
    at.report_unread();
    consent
}

/// Reads `<AdvertiseChances>`: a table, or the rule of thumb for a size of game (S1-6 to S1-8). Without one, the rule of
/// thumb for the match that `teams` make; without either, even chances.
pub(super) fn read_advertise_chances(
    element: Option<&RawElement>,
    teams: Option<&TeamsSpec>,
    mistakes: &Diagnostics,
) -> AdvertiseChances {
    let default = match teams {
        Some(teams) => AdvertiseChances::from_game_size(teams.players_per_match().min(ADVERTISE_GAME_SIZE_MAX as u16)),
        None => AdvertiseChances::constant(DEFAULT_ADVERTISE_CHANCE_PERCENT),
    };
    let Some(element) = element else { return default };
    let mut at = ElementReader::new(element, mistakes);
    let game_size = at.attribute("GameSize");
    let rule = at
        .optional_integer("GameSize", 2, ADVERTISE_GAME_SIZE_MAX)
        .map(|size| AdvertiseChances::from_game_size(size as u16));
    let rows = at.children_named(&["Chance"]);
    let chances = match (game_size, rows.as_slice()) {
        (None, []) => {
            if element.children.is_empty() {
                let right = "add GameSize=\"…\", or a <Chance PartySize=\"1\" Percent=\"…\"/> for every size of party";
                at.report(element.name_span, "<AdvertiseChances> has no chances", right);
            }
            None
        }
        (Some(_), []) => rule,
        (None, rows) => read_advertise_chance_table(rows, mistakes),
        (Some(game_size), _) => {
            at.report(game_size.name_span, "there is a rule of thumb and a table", "keep one of them");
            None
        }
    };
    at.report_unread();
    chances.unwrap_or(default)
}

fn read_advertise_chance_table(rows: &[&RawElement], mistakes: &Diagnostics) -> Option<AdvertiseChances> {
    let mut percents = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut at = ElementReader::new(row, mistakes);
        let expected = index as u64 + 1;
        let size = at.required_integer("PartySize", 1, RULESET_ENTRIES_PER_KIND_MAX as u64);
        if let Some(written) = at.attribute("PartySize").filter(|_| size.is_some_and(|size| size != expected)) {
            at.report_value(written, format!("give {expected}: the table lists every size from 1 up, in order"));
        }
        let percent = at
            .required_attribute("Percent")
            .map(|written| (written, at.optional_number("Percent", NumberBounds::PERCENT)));
        if let Some((written, Some(_))) = percent.filter(|(_, it)| it.is_some_and(|it| ADVERTISE_PERCENT_MAX < it)) {
            let right =
                format!("give at most {ADVERTISE_PERCENT_MAX}: two full parties that only advertise never meet");
            at.report_value(written, right);
        }
        percents.extend(percent.and_then(|(_, percent)| percent));
        at.report_unread();
    }
    AdvertiseChances::from_table(percents)
}
