//! `<Queue>`: gate, groups, selection and offer, and what the other steps are called.

use crate::domain::attribute::Reduction;
use crate::domain::id::SetId;
use crate::domain::limit::{DURATION_MS_MAX, RULES_MAX};
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::queue::{
    Gate, GateRounding, Group, Groups, Offer, Quality, QueueSpec, Satisfaction, Selection, SelectionMode, StartWith,
};
use crate::domain::ruleset::validate::attributes::{ANY_NUMBER, Declared, REDUCTIONS};
use crate::domain::ruleset::validate::expansions::Expansions;
use crate::domain::ruleset::validate::{avoid, quality, regions, window};

/// How often a pass runs where a file does not say, milliseconds (S0-17).
const DEFAULT_PASS_EVERY_MS: u64 = 250;

/// Matches that one queue may be told to keep running at once.
const PARALLEL_MATCHES_MAX: u64 = 1_000_000;

/// How long a ticket is kept without a heartbeat where a file does not say, milliseconds.
pub(in crate::domain::ruleset) const DEFAULT_TICKET_LAPSE_MS: u64 = 60_000;

/// The shortest that a ticket may be kept, so that one lost heartbeat costs nobody a place, and the longest: an hour.
const TICKET_LAPSE_MS: (u64, u64) = (5_000, 60 * 60 * 1000);

/// Which matches are made where a file does not say. Exact up to 1,000 tickets costs some 35 ms.
pub(in crate::domain::ruleset) const DEFAULT_SELECTION: Selection =
    Selection { mode: SelectionMode::Nearest, start_with: StartWith::LongestWaiting, look_at: 256, exact_up_to: 1_000 };

/// Tickets that may be looked at for one match.
const LOOK_AT_MAX: u64 = 10_000;

/// Tickets up to which a matching may be exact: its cost grows with the cube, and beyond these a pass takes a second.
const EXACT_UP_TO_MAX: u64 = 3_000;

/// Matches in a row that somebody may have to lose before a queue looks after them.
const LOSING_STREAK_MAX: u64 = 1_000;

/// The share of matches that somebody may have to leave, percent.
const ABANDONED_PERCENT: Bounds = Bounds::above(0.0, 100.0);

/// Scores are 1 to 5: nobody's mean is below 1.
const SCORE_BELOW: Bounds = Bounds::above(1.0, 5.0);

/// Matches that a share of them, and scores that their mean, may have to be made of.
const MIN_MATCHES_MAX: u64 = 1_000;

/// How much wider a window may become for them.
const WIDEN: Bounds = Bounds::within(1.0, 100.0);

/// Factors, widths and weights: more than nothing.
pub(super) const POSITIVE: Bounds = Bounds::above(0.0, 1e6);

/// Reads `<Queue>`.
pub(super) fn read(
    element: &Element,
    declared: &Declared,
    expansions: &Expansions,
    own_set: Option<SetId>,
    mistakes: &Mistakes,
) -> QueueSpec {
    let mut at = Fields::of(element, mistakes);
    let (lapse_min, lapse_max) = TICKET_LAPSE_MS;
    let queue = QueueSpec {
        pass_every_ms: at.whole_or("PassEveryMs", 10, 60_000, DEFAULT_PASS_EVERY_MS) as u32,
        party_rating: at.word("PartyRating", &REDUCTIONS).unwrap_or(Reduction::Max),
        several_queues: at.flag_or("SeveralQueues", true),
        like_parties_first: at.flag_or("LikePartiesFirst", false),
        backfill: at.flag_or("Backfill", false),
        ticket_lapse_ms: at.whole_or("TicketLapseMs", lapse_min, lapse_max, DEFAULT_TICKET_LAPSE_MS) as u32,
        gate: gate(at.child("Gate"), mistakes),
        groups: at.child("Groups").map(|element| groups(element, mistakes)),
        regions: at.child("Regions").and_then(|element| regions::read(element, declared, expansions, mistakes)),
        window: at.child("Window").map(|element| window::read(element, mistakes)),
        quality: at.child("Quality").map_or(Quality::Any, |element| quality::read(element, mistakes)),
        selection: selection(at.child("Selection"), mistakes),
        wait_bonus: at.child("WaitBonus").map(|element| quality::wait_bonus(element, mistakes)),
        avoid: avoid::read(&at.children(&["Avoid"]), mistakes).into(),
        offer: at.child("Offer").and_then(|element| offer(element, own_set, mistakes)),
        satisfaction: at.child("Satisfaction").map(|element| satisfaction(element, mistakes)),
    };
    if let (Some(element), None) = (at.child("Satisfaction"), &queue.window) {
        let what = "<Satisfaction> widens or moves a window, and there is none";
        at.wrong(element.span, what, "add a <Window>, or leave it out");
    }
    at.finish();
    queue
}

fn gate(element: Option<&Element>, mistakes: &Mistakes) -> Gate {
    let mut gate =
        Gate { min_waiting_percent: 0.0, rounding: GateRounding::Up, max_parallel_matches: None, skip_unchanged: true };
    let Some(element) = element else { return gate };
    let mut at = Fields::of(element, mistakes);
    gate.min_waiting_percent = at.number_or("MinWaitingPercent", Bounds::PERCENT, 0.0);
    gate.rounding =
        at.word("Rounding", &[("up", GateRounding::Up), ("down", GateRounding::Down)]).unwrap_or(GateRounding::Up);
    gate.max_parallel_matches = at.whole("MaxParallelMatches", 1, PARALLEL_MATCHES_MAX).map(|max| max as u32);
    gate.skip_unchanged = at.flag_or("SkipUnchanged", true);
    if at.written("MinWaitingPercent").is_none() {
        at.idle(&["Rounding"], "it rounds the players that `MinWaitingPercent` asks for");
    }
    at.finish();
    gate
}

fn groups(element: &Element, mistakes: &Mistakes) -> Groups {
    let mut at = Fields::of(element, mistakes);
    let neighbour_every_ms = at.whole("NeighbourEveryMs", 1, DURATION_MS_MAX);
    let max_neighbours = at.whole_or("MaxNeighbours", 0, RULES_MAX as u64, RULES_MAX as u64) as u16;
    if at.written("NeighbourEveryMs").is_none() {
        at.idle(&["MaxNeighbours"], "without `NeighbourEveryMs` nobody ever meets a neighbour");
    } else if max_neighbours == 0 {
        at.idle(&["NeighbourEveryMs"], "`MaxNeighbours` lets nobody meet a neighbour");
    }
    let mut groups: Vec<Group> = Vec::new();
    let children = at.children(&["Group"]);
    if children.is_empty() && element.children.is_empty() {
        at.wrong(
            element.span,
            "<Groups> has no group",
            "add a <Group Name=\"…\" From=\"…\" To=\"…\"/>, or leave it out",
        );
    }
    for child in children {
        let mut at = Fields::of(child, mistakes);
        let name = at.handle("Name");
        let (from, to) = (at.required_number("From", ANY_NUMBER), at.required_number("To", ANY_NUMBER));
        if let (Some(name), Some(from), Some(to)) = (name, from, to) {
            if to <= from {
                at.wrong(
                    child.span,
                    format!("group {} ends before it begins", quoted(&name.value)),
                    "swap From and To",
                );
            }
            if groups.iter().any(|group| group.name == name.value) {
                at.wrong(name.value_span, format!("a second group is called {}", quoted(&name.value)), "rename it");
            }
            if let Some(before) = groups.last().filter(|before| before.to != from) {
                let what =
                    format!("{} begins at {from}, {} ends at {}", quoted(&name.value), quoted(&before.name), before.to);
                at.wrong(
                    child.span,
                    what,
                    format!("write From=\"{}\": groups follow each other without gaps", before.to),
                );
            }
            groups.push(Group { name: name.value.clone(), from, to });
        }
        at.finish();
    }
    at.finish();
    Groups { groups: groups.into(), neighbour_every_ms, max_neighbours }
}

fn selection(element: Option<&Element>, mistakes: &Mistakes) -> Selection {
    let default = DEFAULT_SELECTION;
    let Some(element) = element else { return default };
    let modes = [
        ("nearest", SelectionMode::Nearest),
        ("weighted_sample", SelectionMode::WeightedSample),
        ("best_window", SelectionMode::BestWindow),
        ("maximum_weight", SelectionMode::MaximumWeight),
    ];
    let starts = [("longest_waiting", StartWith::LongestWaiting), ("highest_rated", StartWith::HighestRated)];
    let mut at = Fields::of(element, mistakes);
    let mode = at.required_word("Mode", &modes);
    let selection = Selection {
        mode: mode.unwrap_or(default.mode),
        start_with: at.word("StartWith", &starts).unwrap_or(default.start_with),
        look_at: at.whole_or("LookAt", 1, LOOK_AT_MAX, default.look_at.into()) as u32,
        exact_up_to: at.whole_or("ExactUpTo", 2, EXACT_UP_TO_MAX, default.exact_up_to.into()) as u32,
    };
    if mode.is_some_and(|mode| mode != SelectionMode::MaximumWeight) {
        at.idle(&["ExactUpTo"], "only Mode=\"maximum_weight\" makes all matches at once");
    }
    at.finish();
    selection
}

/// Which signs count, and what is done: at least one of each.
fn satisfaction(element: &Element, mistakes: &Mistakes) -> Satisfaction {
    let plain = Satisfaction::default();
    let mut at = Fields::of(element, mistakes);
    let satisfaction = Satisfaction {
        losing_streak: at.whole("LosingStreak", 1, LOSING_STREAK_MAX).map(|least| least as u32),
        abandoned_percent: at.number("AbandonedPercent", ABANDONED_PERCENT),
        score_below: at.number("ScoreBelow", SCORE_BELOW),
        min_matches: at.whole_or("MinMatches", 1, MIN_MATCHES_MAX, plain.min_matches.into()) as u32,
        widen: at.number_or("Widen", WIDEN, plain.widen),
        shift_down: at.number_or("ShiftDown", POSITIVE, plain.shift_down),
    };
    at.required_any(&["LosingStreak", "AbandonedPercent", "ScoreBelow"]);
    at.required_any(&["Widen", "ShiftDown"]);
    if at.written("AbandonedPercent").is_none() && at.written("ScoreBelow").is_none() {
        at.idle(&["MinMatches"], "a streak says itself how many matches it takes");
    }
    at.finish();
    satisfaction
}

fn offer(element: &Element, own_set: Option<SetId>, mistakes: &Mistakes) -> Option<Offer> {
    let mut at = Fields::of(element, mistakes);
    let after_ms = at.required_whole("AfterMs", 1, DURATION_MS_MAX);
    let set_id = at.required_whole("SetId", 0, u32::MAX.into()).map(|id| SetId(id as u32));
    if let Some(written) = at.written("SetId").filter(|_| set_id.is_some() && set_id == own_set) {
        at.wrong_value(written, "name another set: those who wait are in this one already");
    }
    at.finish();
    Some(Offer { after_ms: after_ms?, set_id: set_id? })
}
