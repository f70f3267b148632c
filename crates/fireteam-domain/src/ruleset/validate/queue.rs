//! `<Queue>`: gate, groups, selection and offer, and what the other steps are called.

use crate::attribute::PartyAggregation;
use crate::id::SetId;
use crate::limit::{RULESET_DURATION_MS_MAX, RULESET_ENTRIES_PER_KIND_MAX};
use crate::ruleset::element_reader::{ElementReader, NumberBounds};
use crate::ruleset::queue::{
    AlternativeSetOffer, Gate, GateRounding, QualitySpec, QueueSpec, RatingGroup, RatingGroups, SatisfactionSpec,
    SelectionMode, SelectionOrder, SelectionSpec,
};
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::{ATTRIBUTE_NUMBER_BOUNDS, DeclaredAttributes, PARTY_AGGREGATION_KEYWORDS};
use crate::ruleset::validate::expansions::DeclaredExpansions;
use crate::ruleset::validate::{avoidance, quality, regions, window};

/// How often a pass runs where a file does not say, milliseconds (S0-17).
const DEFAULT_PASS_INTERVAL_MS: u64 = 250;

/// Matches that one queue may be told to keep running at once.
const CONCURRENT_MATCHES_MAX: u64 = 1_000_000;

/// How long a ticket is kept without a heartbeat where a file does not say, milliseconds.
pub(in crate::ruleset) const DEFAULT_TICKET_TTL_MS: u64 = 60_000;

/// The shortest that a ticket may be kept, so that one lost heartbeat costs nobody a place, and the longest: an hour.
const TICKET_TTL_MS_RANGE: (u64, u64) = (5_000, 60 * 60 * 1000);

/// Which matches are made where a file does not say. Exact up to 1,000 tickets costs some 35 ms.
pub(in crate::ruleset) const DEFAULT_SELECTION: SelectionSpec = SelectionSpec {
    mode: SelectionMode::Nearest,
    start_with: SelectionOrder::LongestWaiting,
    look_at: 256,
    exact_up_to: 1_000,
};

/// Tickets that may be looked at for one match.
const CANDIDATES_MAX: u64 = 10_000;

/// Tickets up to which a matching may be exact: its cost grows with the cube, and beyond these a pass takes a second.
const EXACT_UP_TO_TICKETS_MAX: u64 = 3_000;

/// Matches in a row that somebody may have to lose before a queue looks after them.
const LOSING_STREAK_MAX: u64 = 1_000;

/// The share of matches that somebody may have to leave, percent.
const ABANDONED_PERCENT_BOUNDS: NumberBounds = NumberBounds::greater_than(0.0, 100.0);

/// Scores are 1 to 5: nobody's mean is below 1.
const FEEDBACK_BELOW_BOUNDS: NumberBounds = NumberBounds::greater_than(1.0, 5.0);

/// Matches that a share of them, and scores that their mean, may have to be made of.
const SATISFACTION_MIN_MATCHES_MAX: u64 = 1_000;

/// How much wider a window may become for them.
const WIDEN_FACTOR_BOUNDS: NumberBounds = NumberBounds::inclusive(1.0, 100.0);

/// Factors, widths and weights: more than nothing.
pub(super) const POSITIVE_NUMBER: NumberBounds = NumberBounds::greater_than(0.0, 1e6);

/// Reads `<Queue>`.
pub(super) fn read_queue(
    element: &RawElement,
    declared: &DeclaredAttributes,
    expansions: &DeclaredExpansions,
    own_set: Option<SetId>,
    mistakes: &Diagnostics,
) -> QueueSpec {
    let mut at = ElementReader::new(element, mistakes);
    let (lapse_min, lapse_max) = TICKET_TTL_MS_RANGE;
    let queue = QueueSpec {
        pass_every_ms: at.integer_or("PassEveryMs", 10, 60_000, DEFAULT_PASS_INTERVAL_MS) as u32,
        party_rating: at.optional_keyword("PartyRating", &PARTY_AGGREGATION_KEYWORDS).unwrap_or(PartyAggregation::Max),
        several_queues: at.bool_or("SeveralQueues", true),
        like_parties_first: at.bool_or("LikePartiesFirst", false),
        backfill: at.bool_or("Backfill", false),
        ticket_lapse_ms: at.integer_or("TicketLapseMs", lapse_min, lapse_max, DEFAULT_TICKET_TTL_MS) as u32,
        gate: read_gate(at.single_child("Gate"), mistakes),
        groups: at.single_child("Groups").map(|element| read_rating_groups(element, mistakes)),
        regions: at
            .single_child("Regions")
            .and_then(|element| regions::read_regions(element, declared, expansions, mistakes)),
        window: at.single_child("Window").map(|element| window::read_rating_window(element, mistakes)),
        quality: at
            .single_child("Quality")
            .map_or(QualitySpec::Any, |element| quality::read_quality(element, mistakes)),
        selection: read_selection(at.single_child("Selection"), mistakes),
        wait_bonus: at.single_child("WaitBonus").map(|element| quality::read_wait_bonus(element, mistakes)),
        avoid: avoidance::read_avoidance_rules(&at.children_named(&["Avoid"]), mistakes).into(),
        offer: at.single_child("Offer").and_then(|element| read_alternative_set_offer(element, own_set, mistakes)),
        satisfaction: at.single_child("Satisfaction").map(|element| read_satisfaction(element, mistakes)),
    };
    if let (Some(element), None) = (at.single_child("Satisfaction"), &queue.window) {
        let what = "<Satisfaction> widens or moves a window, and there is none";
        at.report(element.name_span, what, "add a <Window>, or leave it out");
    }
    at.report_unread();
    queue
}

fn read_gate(element: Option<&RawElement>, mistakes: &Diagnostics) -> Gate {
    let mut gate =
        Gate { min_waiting_percent: 0.0, rounding: GateRounding::Up, max_parallel_matches: None, skip_unchanged: true };
    let Some(element) = element else { return gate };
    let mut at = ElementReader::new(element, mistakes);
    gate.min_waiting_percent = at.number_or("MinWaitingPercent", NumberBounds::PERCENT, 0.0);
    gate.rounding = at
        .optional_keyword("Rounding", &[("up", GateRounding::Up), ("down", GateRounding::Down)])
        .unwrap_or(GateRounding::Up);
    gate.max_parallel_matches =
        at.optional_integer("MaxParallelMatches", 1, CONCURRENT_MATCHES_MAX).map(|max| max as u32);
    gate.skip_unchanged = at.bool_or("SkipUnchanged", true);
    if at.attribute("MinWaitingPercent").is_none() {
        at.report_without_effect(&["Rounding"], "it rounds the players that `MinWaitingPercent` asks for");
    }
    at.report_unread();
    gate
}

fn read_rating_groups(element: &RawElement, mistakes: &Diagnostics) -> RatingGroups {
    let mut at = ElementReader::new(element, mistakes);
    let neighbour_every_ms = at.optional_integer("NeighbourEveryMs", 1, RULESET_DURATION_MS_MAX);
    let max_neighbours =
        at.integer_or("MaxNeighbours", 0, RULESET_ENTRIES_PER_KIND_MAX as u64, RULESET_ENTRIES_PER_KIND_MAX as u64)
            as u16;
    if at.attribute("NeighbourEveryMs").is_none() {
        at.report_without_effect(&["MaxNeighbours"], "without `NeighbourEveryMs` nobody ever meets a neighbour");
    } else if max_neighbours == 0 {
        at.report_without_effect(&["NeighbourEveryMs"], "`MaxNeighbours` lets nobody meet a neighbour");
    }
    let mut groups: Vec<RatingGroup> = Vec::new();
    let children = at.children_named(&["Group"]);
    if children.is_empty() && element.children.is_empty() {
        at.report(
            element.name_span,
            "<Groups> has no group",
            "add a <Group Name=\"…\" From=\"…\" To=\"…\"/>, or leave it out",
        );
    }
    for child in children {
        let mut at = ElementReader::new(child, mistakes);
        let name = at.required_identifier("Name");
        let (from, to) =
            (at.required_number("From", ATTRIBUTE_NUMBER_BOUNDS), at.required_number("To", ATTRIBUTE_NUMBER_BOUNDS));
        if let (Some(name), Some(from), Some(to)) = (name, from, to) {
            if to <= from {
                at.report(
                    child.name_span,
                    format!("group {} ends before it begins", quoted_excerpt(&name.value)),
                    "swap From and To",
                );
            }
            if groups.iter().any(|group| group.name == name.value) {
                at.report(
                    name.value_span,
                    format!("a second group is called {}", quoted_excerpt(&name.value)),
                    "rename it",
                );
            }
            if let Some(before) = groups.last().filter(|before| before.to != from) {
                let what = format!(
                    "{} begins at {from}, {} ends at {}",
                    quoted_excerpt(&name.value),
                    quoted_excerpt(&before.name),
                    before.to
                );
                at.report(
                    child.name_span,
                    what,
                    format!("write From=\"{}\": groups follow each other without gaps", before.to),
                );
            }
            groups.push(RatingGroup { name: name.value.clone(), from, to });
        }
        at.report_unread();
    }
    at.report_unread();
    RatingGroups { groups: groups.into(), neighbour_every_ms, max_neighbours }
}

fn read_selection(element: Option<&RawElement>, mistakes: &Diagnostics) -> SelectionSpec {
    let default = DEFAULT_SELECTION;
    let Some(element) = element else { return default };
    let modes = [
        ("nearest", SelectionMode::Nearest),
        ("weighted_sample", SelectionMode::WeightedSample),
        ("best_window", SelectionMode::BestWindow),
        ("maximum_weight", SelectionMode::MaximumWeight),
    ];
    let starts = [("longest_waiting", SelectionOrder::LongestWaiting), ("highest_rated", SelectionOrder::HighestRated)];
    let mut at = ElementReader::new(element, mistakes);
    let mode = at.required_keyword("Mode", &modes);
    let selection = SelectionSpec {
        mode: mode.unwrap_or(default.mode),
        start_with: at.optional_keyword("StartWith", &starts).unwrap_or(default.start_with),
        look_at: at.integer_or("LookAt", 1, CANDIDATES_MAX, default.look_at.into()) as u32,
        exact_up_to: at.integer_or("ExactUpTo", 2, EXACT_UP_TO_TICKETS_MAX, default.exact_up_to.into()) as u32,
    };
    if mode.is_some_and(|mode| mode != SelectionMode::MaximumWeight) {
        at.report_without_effect(&["ExactUpTo"], "only Mode=\"maximum_weight\" makes all matches at once");
    }
    at.report_unread();
    selection
}

/// Which signs count, and what is done: at least one of each.
fn read_satisfaction(element: &RawElement, mistakes: &Diagnostics) -> SatisfactionSpec {
    let plain = SatisfactionSpec::default();
    let mut at = ElementReader::new(element, mistakes);
    let satisfaction = SatisfactionSpec {
        losing_streak: at.optional_integer("LosingStreak", 1, LOSING_STREAK_MAX).map(|least| least as u32),
        abandoned_percent: at.optional_number("AbandonedPercent", ABANDONED_PERCENT_BOUNDS),
        score_below: at.optional_number("ScoreBelow", FEEDBACK_BELOW_BOUNDS),
        min_matches: at.integer_or("MinMatches", 1, SATISFACTION_MIN_MATCHES_MAX, plain.min_matches.into()) as u32,
        widen: at.number_or("Widen", WIDEN_FACTOR_BOUNDS, plain.widen),
        shift_down: at.number_or("ShiftDown", POSITIVE_NUMBER, plain.shift_down),
    };
    at.require_any_attribute(&["LosingStreak", "AbandonedPercent", "ScoreBelow"]);
    at.require_any_attribute(&["Widen", "ShiftDown"]);
    if at.attribute("AbandonedPercent").is_none() && at.attribute("ScoreBelow").is_none() {
        at.report_without_effect(&["MinMatches"], "a streak says itself how many matches it takes");
    }
    at.report_unread();
    satisfaction
}

fn read_alternative_set_offer(
    element: &RawElement,
    own_set: Option<SetId>,
    mistakes: &Diagnostics,
) -> Option<AlternativeSetOffer> {
    let mut at = ElementReader::new(element, mistakes);
    let after_ms = at.required_integer("AfterMs", 1, RULESET_DURATION_MS_MAX);
    let set_id = at.required_integer("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    if let Some(written) = at.attribute("SetId").filter(|_| set_id.is_some() && set_id == own_set) {
        at.report_value(written, "name another set: those who wait are in this one already");
    }
    at.report_unread();
    Some(AlternativeSetOffer { after_ms: after_ms?, set_id: set_id? })
}
