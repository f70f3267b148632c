//! `<Queue>`: gate, groups, window, quality, selection and wait bonus.

use crate::domain::attribute::Reduction;
use crate::domain::limit::{DURATION_MS_MAX, RULES_MAX};
use crate::domain::ruleset::Curve;
use crate::domain::ruleset::draft::{Element, Mistakes, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::queue::{
    BucketRounding, CombineBounds, Gate, GateRounding, Group, Groups, Quality, QueueSpec, Selection, SelectionMode,
    StartWith, WaitBonus, Window, WindowClock, WindowRule,
};
use crate::domain::ruleset::validate::attributes::{ANY_NUMBER, REDUCTIONS};
use crate::domain::ruleset::validate::soft::CURVES;

/// How often a pass runs where a file does not say, milliseconds (S0-17).
const DEFAULT_PASS_EVERY_MS: u64 = 250;

/// Matches that one queue may be told to keep running at once.
const PARALLEL_MATCHES_MAX: u64 = 1_000_000;

/// Buckets to either side; enough for any scale of ratings.
const BUCKETS_MAX: u64 = 1_000_000;

/// How long a ticket is kept without a heartbeat where a file does not say, milliseconds.
const DEFAULT_TICKET_LAPSE_MS: u32 = 60_000;

/// Tickets looked at for one match where a file does not say.
const DEFAULT_LOOK_AT: u32 = 256;

/// Tickets up to which a maximum weight matching is exact where a file does not say: some 35 ms.
const DEFAULT_EXACT_UP_TO: u32 = 1_000;

const POSITIVE: Bounds = Bounds::above(0.0, 1e6);

/// Reads `<Queue>`.
pub(super) fn read(element: &Element, mistakes: &Mistakes) -> QueueSpec {
    let mut at = Fields::of(element, mistakes);
    let pass_every_ms = at.whole_or("PassEveryMs", 10, 60_000, DEFAULT_PASS_EVERY_MS) as u32;
    let party_rating = at.word("PartyRating", &REDUCTIONS).unwrap_or(Reduction::Max);
    let queue = QueueSpec {
        pass_every_ms,
        party_rating,
        several_queues: true,
        like_parties_first: false,
        backfill: false,
        ticket_lapse_ms: DEFAULT_TICKET_LAPSE_MS,
        gate: gate(at.child("Gate"), mistakes),
        groups: at.child("Groups").map(|element| groups(element, mistakes)),
        regions: None,
        window: at.child("Window").map(|element| window(element, mistakes)),
        quality: at.child("Quality").map_or(Quality::Any, |element| quality(element, mistakes)),
        selection: selection(at.child("Selection"), mistakes),
        wait_bonus: at.child("WaitBonus").map(|element| wait_bonus(element, mistakes)),
        avoid: Box::default(),
        offer: None,
    };
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
    at.finish();
    gate
}

fn groups(element: &Element, mistakes: &Mistakes) -> Groups {
    let mut at = Fields::of(element, mistakes);
    let neighbour_every_ms = at.whole("NeighbourEveryMs", 1, DURATION_MS_MAX);
    let max_neighbours = at.whole_or("MaxNeighbours", 0, RULES_MAX as u64, RULES_MAX as u64) as u16;
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

/// The defaults are Teiserver's (S0-13 to S0-16).
fn window(element: &Element, mistakes: &Mistakes) -> Window {
    let roundings =
        [("round", BucketRounding::Round), ("floor", BucketRounding::Floor), ("ceiling", BucketRounding::Ceiling)];
    let combines = [("smaller", CombineBounds::Smaller), ("larger", CombineBounds::Larger)];
    let clocks = [("queue", WindowClock::Queue), ("ticket", WindowClock::Ticket)];
    let mut at = Fields::of(element, mistakes);
    let window = Window {
        bucket_width: at.number_or("BucketWidth", POSITIVE, 1.0),
        rounding: at.word("Rounding", &roundings).unwrap_or(BucketRounding::Round),
        start: at.whole_or("Start", 0, BUCKETS_MAX, 0) as u32,
        step: at.whole_or("Step", 0, BUCKETS_MAX, 1) as u32,
        step_every_ms: at.whole_or("StepEveryMs", 1, DURATION_MS_MAX, 20_000),
        max: at.whole("Max", 0, BUCKETS_MAX).map(|max| max as u32),
        max_percent: at.number("MaxPercent", Bounds::within(0.0, 1_000.0)),
        combine: at.word("Combine", &combines).unwrap_or(CombineBounds::Smaller),
        reciprocal_percent: at.number_or("ReciprocalPercent", Bounds::PERCENT, 100.0),
        clock: at.word("Clock", &clocks).unwrap_or(WindowClock::Queue),
        rule: WindowRule::Contain,
    };
    if let (Some(written), Some(max)) = (at.written("Start"), window.max)
        && max < window.start
    {
        at.wrong_value(written, format!("give at most `Max`, which is {max}"));
    }
    at.finish();
    window
}

fn quality(element: &Element, mistakes: &Mistakes) -> Quality {
    const KINDS: [&str; 4] = ["SoftScore", "LeaderboardGauss", "AverageSimilarity", "CategorySimilarity"];
    let mut at = Fields::of(element, mistakes);
    let children = at.children(&KINDS);
    if let Some(second) = children.get(1) {
        at.wrong(second.span, "<Quality> is measured in two ways", "keep one of them");
    }
    if element.children.is_empty() {
        let right = format!("add one of <{}>", KINDS.join(">, <"));
        at.wrong(element.span, "<Quality> does not say what good is", right);
    }
    at.finish();
    children.first().map_or(Quality::Any, |element| quality_of(element, mistakes))
}

fn quality_of(element: &Element, mistakes: &Mistakes) -> Quality {
    let mut at = Fields::of(element, mistakes);
    let quality = match &*element.name {
        "SoftScore" => Quality::SoftScore { max_score: at.required_number("MaxScore", POSITIVE).unwrap_or(1.0) },
        "LeaderboardGauss" => Quality::LeaderboardGauss {
            sigma: at.number_or("Sigma", POSITIVE, 20.0),
            scale: at.number_or("Scale", POSITIVE, 0.5),
            threshold: at.number_or("Threshold", Bounds::within(0.0, 1e6), 0.3),
        },
        "AverageSimilarity" => Quality::AverageSimilarity {
            rating_span: at.required_number("RatingSpan", POSITIVE).unwrap_or(1.0),
            required_percent: at.required_number("RequiredPercent", Bounds::PERCENT).unwrap_or(0.0),
        },
        _ => {
            let categories = at.whole_or("Categories", 2, RULES_MAX as u64, 13);
            let by_span = at.word("DivideBy", &[("count", false), ("span", true)]).unwrap_or(false);
            Quality::CategorySimilarity {
                categories: categories as u16,
                category_width: at.number_or("CategoryWidth", POSITIVE, 200.0),
                divisor: (categories - u64::from(by_span)) as u16,
                curve: at.word("Curve", &CURVES).unwrap_or(Curve::Linear),
                required_percent: at.required_number("RequiredPercent", Bounds::PERCENT).unwrap_or(0.0),
            }
        }
    };
    at.finish();
    quality
}

fn selection(element: Option<&Element>, mistakes: &Mistakes) -> Selection {
    let default = Selection {
        mode: SelectionMode::Nearest,
        start_with: StartWith::LongestWaiting,
        look_at: DEFAULT_LOOK_AT,
        exact_up_to: DEFAULT_EXACT_UP_TO,
    };
    let Some(element) = element else { return default };
    let modes = [
        ("nearest", SelectionMode::Nearest),
        ("weighted_sample", SelectionMode::WeightedSample),
        ("best_window", SelectionMode::BestWindow),
        ("maximum_weight", SelectionMode::MaximumWeight),
    ];
    let starts = [("longest_waiting", StartWith::LongestWaiting), ("highest_rated", StartWith::HighestRated)];
    let mut at = Fields::of(element, mistakes);
    let mode = at.required_word("Mode", &modes).unwrap_or(default.mode);
    let start_with = at.word("StartWith", &starts).unwrap_or(default.start_with);
    at.finish();
    Selection { mode, start_with, ..default }
}

/// comprl's tenth a minute, after one (S2-11, S2-12).
fn wait_bonus(element: &Element, mistakes: &Mistakes) -> WaitBonus {
    let mut at = Fields::of(element, mistakes);
    let per_minute = at.number_or("PerMinute", POSITIVE, 0.1);
    let free_minutes = at.number_or("FreeMinutes", Bounds::within(0.0, 1_440.0), 1.0);
    at.finish();
    WaitBonus { per_minute, free_minutes }
}
