//! `<Queue>`: pass gate, rating groups, selection and offer; the other steps have their own files.

use crate::attribute::NumberAggregation;
use crate::id::SetId;
use crate::limit::{RULESET_DURATION_MS_MAX, RULESET_ENTRIES_PER_KIND_MAX};
use crate::ruleset::element_reader::ElementReader;
use crate::ruleset::number_bounds::NumberBounds;
use crate::ruleset::queue::{
    AlternativeSetOffer, AvoidanceRule, DEFAULT_TICKET_TTL_MS, Gate, GateRounding, LookDirection, PassTrigger,
    QualitySpec, QueueSpec, RatingGroup, RatingGroups, SelectionMode, SelectionOrder, SelectionSpec,
};
use crate::ruleset::raw::{Diagnostics, RawElement, quoted_excerpt};
use crate::ruleset::validate::attributes::{ATTRIBUTE_NUMBER_BOUNDS, DeclaredAttributes, NUMBER_AGGREGATION_KEYWORDS};
use crate::ruleset::validate::expansions::DeclaredExpansions;
use crate::ruleset::validate::{avoidance, quality, regions, satisfaction, window};

/// Default time between passes, milliseconds.
const DEFAULT_PASS_INTERVAL_MS: u64 = 250;

/// Default time from a change to the pass that it causes, milliseconds.
const DEFAULT_GATHER_MS: u64 = 5;

/// Maximum time from a change to the pass that it causes, milliseconds.
const GATHER_MS_MAX: u64 = 10_000;

/// Maximum number of matches that one queue may run at the same time.
const CONCURRENT_MATCHES_PER_QUEUE_MAX: u64 = 1_000_000;

/// Ticket TTL: minimum, so that a ticket survives one lost heartbeat, and maximum, one hour; milliseconds.
const TICKET_TTL_MS_RANGE: (u64, u64) = (5_000, 60 * 60 * 1000);

/// Default selection. An exact matching of 1,000 tickets takes about 35 ms.
pub(in crate::ruleset) const DEFAULT_SELECTION: SelectionSpec = SelectionSpec {
    mode: SelectionMode::Nearest,
    start_with: SelectionOrder::LongestWaiting,
    max_candidates: 256,
    exact_up_to_tickets: 1_000,
    look: LookDirection::Both,
};

/// Maximum number of candidates evaluated for one match.
const CANDIDATES_MAX: u64 = 10_000;

/// Maximum number of tickets of an exact matching. The cost grows with the cube; beyond this a pass takes a second.
const EXACT_UP_TO_TICKETS_MAX: u64 = 3_000;

/// Parts of the ruleset that `<Queue>` refers to.
pub(super) struct QueueContext<'a> {
    pub(super) declared: &'a DeclaredAttributes,
    pub(super) expansions: &'a DeclaredExpansions,
    pub(super) set_id: Option<SetId>,
    /// Avoidance rules of the ruleset, which hold in the queue too.
    pub(super) avoid: &'a [AvoidanceRule],
}

/// Reads `<Queue>`.
pub(super) fn read_queue(element: &RawElement, context: &QueueContext<'_>, diagnostics: &Diagnostics) -> QueueSpec {
    let &QueueContext { declared, expansions, set_id: own_set, avoid } = context;
    let mut reader = ElementReader::new(element, diagnostics);
    let (ttl_min, ttl_max) = TICKET_TTL_MS_RANGE;
    let queue = QueueSpec {
        pass_interval_ms: reader.integer_or("PassIntervalMs", 10, 60_000, DEFAULT_PASS_INTERVAL_MS) as u32,
        pass_trigger: read_pass_trigger(&mut reader),
        party_rating: reader
            .optional_keyword("PartyRating", &NUMBER_AGGREGATION_KEYWORDS)
            .unwrap_or(NumberAggregation::Max),
        allow_other_queues: reader.bool_or("AllowOtherQueues", true),
        prefer_same_party_size: reader.bool_or("PreferSamePartySize", false),
        backfill: reader.bool_or("Backfill", false),
        ticket_ttl_ms: reader.integer_or("TicketTtlMs", ttl_min, ttl_max, DEFAULT_TICKET_TTL_MS.into()) as u32,
        gate: read_pass_gate(reader.single_child("Gate"), diagnostics),
        groups: reader.single_child("RatingGroups").map(|element| read_rating_groups(element, diagnostics)),
        regions: reader
            .single_child("Regions")
            .and_then(|element| regions::read_regions(element, declared, expansions, diagnostics)),
        window: reader.single_child("RatingWindow").map(|element| window::read_rating_window(element, diagnostics)),
        quality: reader
            .single_child("Quality")
            .map_or(QualitySpec::Any, |element| quality::read_quality(element, diagnostics)),
        selection: read_selection(reader.single_child("Selection"), diagnostics),
        wait_bonus: reader.single_child("WaitBonus").map(|element| quality::read_wait_bonus(element, diagnostics)),
        avoid: avoidance::read_queue_rules(&reader.children_named(&["Avoid"]), avoid, diagnostics).into(),
        offer: reader
            .single_child("Offer")
            .and_then(|element| read_matchmaking_set_offer(element, own_set, diagnostics)),
        frustrated_player_window: reader
            .single_child("Satisfaction")
            .map(|element| satisfaction::read_queue_satisfaction(element, diagnostics)),
    };
    if let (Some(element), None) = (reader.single_child("Satisfaction"), &queue.window) {
        let problem = "<Satisfaction> adjusts a rating window, and there is none";
        reader.report_at(element.name_span, problem, "add a <RatingWindow>, or remove it");
    }
    reader.report_unread_and_missing();
    queue
}

fn read_pass_trigger(reader: &mut ElementReader<'_>) -> PassTrigger {
    let gather_ms = reader.integer_or("GatherMs", 1, GATHER_MS_MAX, DEFAULT_GATHER_MS) as u32;
    let change = PassTrigger::Change { gather_ms };
    let trigger = reader.optional_keyword("Pass", &[("interval", PassTrigger::Interval), ("on_change", change)]);
    if !matches!(trigger, Some(PassTrigger::Change { .. })) {
        reader.report_without_effect(&["GatherMs"], "it only affects `Pass=\"on_change\"`");
    }
    trigger.unwrap_or_default()
}

fn read_pass_gate(element: Option<&RawElement>, diagnostics: &Diagnostics) -> Gate {
    let mut gate = Gate {
        min_waiting_percent: 0.0,
        rounding: GateRounding::Up,
        max_concurrent_matches: None,
        skip_unchanged: true,
    };
    let Some(element) = element else { return gate };
    let mut reader = ElementReader::new(element, diagnostics);
    gate.min_waiting_percent = reader.number_or("MinWaitingPercent", NumberBounds::PERCENT, 0.0);
    gate.rounding = reader
        .optional_keyword("Rounding", &[("up", GateRounding::Up), ("down", GateRounding::Down)])
        .unwrap_or(GateRounding::Up);
    gate.max_concurrent_matches =
        reader.optional_integer("MaxConcurrentMatches", 1, CONCURRENT_MATCHES_PER_QUEUE_MAX).map(|max| max as u32);
    gate.skip_unchanged = reader.bool_or("SkipUnchanged", true);
    if reader.attribute("MinWaitingPercent").is_none() {
        reader.report_without_effect(&["Rounding"], "it only affects `MinWaitingPercent`");
    }
    reader.report_unread_and_missing();
    gate
}

fn read_rating_groups(element: &RawElement, diagnostics: &Diagnostics) -> RatingGroups {
    let mut reader = ElementReader::new(element, diagnostics);
    let widen_every_ms = reader.optional_integer("WidenEveryMs", 1, RULESET_DURATION_MS_MAX);
    let max_extra_groups = reader.integer_or(
        "MaxExtraGroups",
        0,
        RULESET_ENTRIES_PER_KIND_MAX as u64,
        RULESET_ENTRIES_PER_KIND_MAX as u64,
    ) as u16;
    if reader.attribute("WidenEveryMs").is_none() {
        reader.report_without_effect(&["MaxExtraGroups"], "without `WidenEveryMs` tickets only meet their own group");
    } else if max_extra_groups == 0 {
        reader.report_without_effect(&["WidenEveryMs"], "`MaxExtraGroups` is 0");
    }
    let mut groups: Vec<RatingGroup> = Vec::new();
    let children = reader.children_named(&["RatingGroup"]);
    if children.is_empty() && element.children.is_empty() {
        reader.report_at(
            element.name_span,
            "<RatingGroups> has no group",
            "add a <RatingGroup Name=\"…\" From=\"…\" To=\"…\"/>, or remove it",
        );
    }
    for child in children {
        let mut reader = ElementReader::new(child, diagnostics);
        let name = reader.required_identifier("Name");
        let (from, to) = (
            reader.required_number("From", ATTRIBUTE_NUMBER_BOUNDS),
            reader.required_number("To", ATTRIBUTE_NUMBER_BOUNDS),
        );
        if let (Some(name), Some(from), Some(to)) = (name, from, to) {
            if to <= from {
                reader.report_at(
                    child.name_span,
                    format!("group {} has `To` less than or equal to `From`", quoted_excerpt(&name.value)),
                    "swap them",
                );
            }
            if groups.iter().any(|group| group.name == name.value) {
                reader.report_at(
                    name.value_span,
                    format!("a second group has the name {}", quoted_excerpt(&name.value)),
                    "rename it",
                );
            }
            if let Some(previous) = groups.last().filter(|previous| previous.to != from) {
                let problem = format!(
                    "{} begins at {from}, but {} ends at {}",
                    quoted_excerpt(&name.value),
                    quoted_excerpt(&previous.name),
                    previous.to
                );
                reader.report_at(
                    child.name_span,
                    problem,
                    format!("write From=\"{}\": groups must be contiguous", previous.to),
                );
            }
            groups.push(RatingGroup { name: name.value.clone(), from, to });
        }
        reader.report_unread_and_missing();
    }
    reader.report_unread_and_missing();
    RatingGroups { groups: groups.into(), widen_every_ms, max_extra_groups }
}

fn read_selection(element: Option<&RawElement>, diagnostics: &Diagnostics) -> SelectionSpec {
    let default = DEFAULT_SELECTION;
    let Some(element) = element else { return default };
    let modes = [
        ("nearest", SelectionMode::Nearest),
        ("weighted_sample", SelectionMode::WeightedSample),
        ("first_window", SelectionMode::FirstWindow),
        ("maximum_weight", SelectionMode::MaximumWeight),
    ];
    let orders = [("longest_waiting", SelectionOrder::LongestWaiting), ("highest_rated", SelectionOrder::HighestRated)];
    let looks = [("both", LookDirection::Both), ("down", LookDirection::Down), ("up", LookDirection::Up)];
    let mut reader = ElementReader::new(element, diagnostics);
    let mode = reader.required_keyword("Mode", &modes);
    let selection = SelectionSpec {
        mode: mode.unwrap_or(default.mode),
        start_with: reader.optional_keyword("StartWith", &orders).unwrap_or(default.start_with),
        max_candidates: reader.integer_or("MaxCandidates", 1, CANDIDATES_MAX, default.max_candidates.into()) as u32,
        exact_up_to_tickets: reader.integer_or(
            "ExactUpToTickets",
            2,
            EXACT_UP_TO_TICKETS_MAX,
            default.exact_up_to_tickets.into(),
        ) as u32,
        look: reader.optional_keyword("Look", &looks).unwrap_or(default.look),
    };
    if mode.is_some_and(|mode| mode != SelectionMode::MaximumWeight) {
        reader.report_without_effect(&["ExactUpToTickets"], "it only affects Mode=\"maximum_weight\"");
    }
    if mode.is_some_and(|mode| mode != SelectionMode::Nearest) {
        reader.report_without_effect(&["Look"], "it only affects Mode=\"nearest\"");
    }
    reader.report_unread_and_missing();
    selection
}

fn read_matchmaking_set_offer(
    element: &RawElement,
    own_set: Option<SetId>,
    diagnostics: &Diagnostics,
) -> Option<AlternativeSetOffer> {
    let mut reader = ElementReader::new(element, diagnostics);
    let after_ms = reader.required_integer("AfterMs", 1, RULESET_DURATION_MS_MAX);
    let set_id = reader.required_integer("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    if let Some(raw) = reader.attribute("SetId").filter(|_| set_id.is_some() && set_id == own_set) {
        reader.report_value(raw, "name another set: waiting tickets are already in this one");
    }
    reader.report_unread_and_missing();
    Some(AlternativeSetOffer { after_ms: after_ms?, set_id: set_id? })
}
