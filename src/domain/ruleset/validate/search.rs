//! `<AdvertiseChances>`, `<Limits>`, `<Latency>` and `<Party>`: how a set is searched.

use crate::domain::latency::{DEFAULT_LINE, LatencyLine};
use crate::domain::limit::{EVALUATED_MAX, PLAYERS_MAX, RESULTS_MAX, RULES_MAX};
use crate::domain::role::{AdvertiseChances, CHANCE_PERCENT_MAX};
use crate::domain::ruleset::draft::{Element, Mistakes};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::ruleset::{Consent, SearchLimits};

/// Players in the largest game that the rule of thumb is for: the largest party has half of them.
const GAME_SIZE_MAX: u64 = 2 * PLAYERS_MAX as u64;

/// Candidates in an answer, and rows looked at, where a file does not say (SEC-10).
const DEFAULT_LIMITS: SearchLimits = SearchLimits { max_results: 50, max_evaluated: 20_000 };

/// Milliseconds at no distance, and per 1000 km, that a line may have at most: a satellite's round trip and more.
const LINE_MS_MAX: f64 = 1_000.0;

/// Share of candidates that must answer the quick probe, percent, where a file does not say.
const DEFAULT_INVOLVED_PHASE_PERCENT: f64 = 50.0;

/// What everyone's chance is where a file says neither chances nor teams, percent: as many look as wait.
const EVEN_CHANCE_PERCENT: f64 = 50.0;

/// Reads `<Limits>`.
pub(super) fn limits(element: Option<&Element>, mistakes: &Mistakes) -> SearchLimits {
    let Some(element) = element else { return DEFAULT_LIMITS };
    let mut at = Fields::of(element, mistakes);
    let max_results = at.whole_or("MaxResults", 1, RESULTS_MAX.into(), DEFAULT_LIMITS.max_results.into()) as u32;
    let max_evaluated =
        at.whole_or("MaxEvaluated", 1, EVALUATED_MAX.into(), DEFAULT_LIMITS.max_evaluated.into()) as u32;
    at.finish();
    SearchLimits { max_results, max_evaluated }
}

/// Reads `<Latency>`: the line from distance to milliseconds, and when the involved phase starts (S1-29).
pub(super) fn latency(element: Option<&Element>, mistakes: &Mistakes) -> (LatencyLine, f64) {
    let Some(element) = element else { return (DEFAULT_LINE, DEFAULT_INVOLVED_PHASE_PERCENT) };
    let mut at = Fields::of(element, mistakes);
    let bounds = Bounds::within(0.0, LINE_MS_MAX);
    let intercept_ms = at.number_or("InterceptMs", bounds, DEFAULT_LINE.intercept_ms);
    let ms_per_1000_km = at.number_or("MsPer1000Km", bounds, DEFAULT_LINE.ms_per_1000_km);
    let involved = at.number_or("InvolvedPhasePercent", Bounds::PERCENT, DEFAULT_INVOLVED_PHASE_PERCENT);
    at.finish();
    (LatencyLine { intercept_ms, ms_per_1000_km }, involved)
}

/// Reads `<Party>`: whether its members must have said that they come along.
pub(super) fn consent(element: Option<&Element>, mistakes: &Mistakes) -> Consent {
    let Some(element) = element else { return Consent::default() };
    let mut at = Fields::of(element, mistakes);
    let words = [("assumed", Consent::Assumed), ("required", Consent::Required)];
    let consent = at.word("Consent", &words).unwrap_or_default();
    at.finish();
    consent
}

/// Reads `<AdvertiseChances>`: a table, or the rule of thumb for a size of game (S1-6 to S1-8). Without one, the rule of
/// thumb for the match that `teams` make; without either, even chances.
pub(super) fn chances(element: Option<&Element>, teams: Option<&TeamsSpec>, mistakes: &Mistakes) -> AdvertiseChances {
    let default = match teams {
        Some(teams) => AdvertiseChances::rule_of_thumb(teams.match_size().min(GAME_SIZE_MAX as u16)),
        None => AdvertiseChances::constant(EVEN_CHANCE_PERCENT),
    };
    let Some(element) = element else { return default };
    let mut at = Fields::of(element, mistakes);
    let game_size = at.written("GameSize");
    let rule = at.whole("GameSize", 2, GAME_SIZE_MAX).map(|size| AdvertiseChances::rule_of_thumb(size as u16));
    let rows = at.children(&["Chance"]);
    let chances = match (game_size, rows.as_slice()) {
        (None, []) => {
            if element.children.is_empty() {
                let right = "add GameSize=\"…\", or a <Chance PartySize=\"1\" Percent=\"…\"/> for every size of party";
                at.wrong(element.span, "<AdvertiseChances> has no chances", right);
            }
            None
        }
        (Some(_), []) => rule,
        (None, rows) => table(rows, mistakes),
        (Some(game_size), _) => {
            at.wrong(game_size.name_span, "there is a rule of thumb and a table", "keep one of them");
            None
        }
    };
    at.finish();
    chances.unwrap_or(default)
}

fn table(rows: &[&Element], mistakes: &Mistakes) -> Option<AdvertiseChances> {
    let mut percents = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let mut at = Fields::of(row, mistakes);
        let expected = index as u64 + 1;
        let size = at.required_whole("PartySize", 1, RULES_MAX as u64);
        if let Some(written) = at.written("PartySize").filter(|_| size.is_some_and(|size| size != expected)) {
            at.wrong_value(written, format!("give {expected}: the table lists every size from 1 up, in order"));
        }
        let percent = at.required("Percent").map(|written| (written, at.number("Percent", Bounds::PERCENT)));
        if let Some((written, Some(_))) = percent.filter(|(_, it)| it.is_some_and(|it| CHANCE_PERCENT_MAX < it)) {
            let right = format!("give at most {CHANCE_PERCENT_MAX}: two full parties that only advertise never meet");
            at.wrong_value(written, right);
        }
        percents.extend(percent.and_then(|(_, percent)| percent));
        at.finish();
    }
    AdvertiseChances::from_table(percents)
}
