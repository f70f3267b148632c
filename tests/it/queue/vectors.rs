//! What the four queue systems' own examples come to: buckets and ranges (Teiserver), distance on a leaderboard (comprl),
//! rating groups (OpenMatchmaking), similarity (the team challenge).

use serde::Deserialize;

use fireteam::domain::queue::gate;
use fireteam::domain::queue::quality::{
    average_similarity, bonus_for_waiting, category_similarity, gaussian_quality, quality_threshold,
};
use fireteam::domain::queue::rating_group::group_of_rating;
use fireteam::domain::queue::window::{bucket_of, range_accepts, range_at};
use fireteam::domain::ruleset::DistanceCurve;
use fireteam::domain::ruleset::queue::{
    BucketRounding, Gate, GateRounding, QualitySpec, RatingGroup, RatingGroups, RatingWindow, WaitBonus,
    WindowBoundChoice, WindowClock, WindowMatchRule,
};
use fireteam::domain::score::apply_curve;
use fireteam::domain::time::UnixMs;

/// Different orders of the same sums differ in the last digits.
fn close(found: f64, wanted: f64) {
    assert!((found - wanted).abs() <= 1e-12 * wanted.abs().max(1.0), "{found} {wanted}");
}

const TEISERVER: RatingWindow = RatingWindow {
    bucket_width: 1.0,
    rounding: BucketRounding::Round,
    start: 0,
    step: 1,
    step_every_ms: 20_000,
    max: Some(10),
    max_percent: None,
    combine: WindowBoundChoice::Smaller,
    reciprocal_percent: 100.0,
    clock: WindowClock::Queue,
    rule: WindowMatchRule::Contain,
};

#[derive(Deserialize)]
struct Buckets {
    round_vectors: Vec<Rounded>,
    walks: Vec<Walk>,
    walk_ranges: Vec<Ranges>,
    reciprocal_cases: Vec<Reciprocal>,
    radius_after_wait_s: Vec<Radius>,
}

#[derive(Deserialize)]
struct Rounded {
    skill: f64,
    bucket: i64,
}

#[derive(Deserialize)]
struct Walk {
    reciprocal_percent: f64,
    matched_at_cycle: u64,
}

#[derive(Deserialize)]
struct Ranges {
    cycle: u64,
    #[serde(rename = "Pawn20")]
    pawn: [i64; 2],
    #[serde(rename = "Grunt17")]
    grunt: Option<[i64; 2]>,
}

#[derive(Deserialize)]
struct Reciprocal {
    searcher: [i64; 2],
    candidate: [i64; 2],
    p100: bool,
    p50: bool,
    p0: bool,
}

#[derive(Deserialize)]
struct Radius {
    wait_s: u64,
    radius: u32,
}

fn buckets() -> Buckets {
    serde_json::from_str(include_str!("../../vectors/bucket_queue.json")).unwrap()
}

/// The first tick of the walk; cycles are 20 s.
const FIRST_TICK: u64 = 1_000_000_000;

/// S0-13: halves go away from zero.
#[test]
fn ratings_fall_into_the_buckets_of_the_design() {
    for Rounded { skill, bucket } in buckets().round_vectors {
        assert_eq!(bucket_of(&TEISERVER, skill), bucket, "{skill}");
    }
}

/// S0-14, S0-15: one bucket more every 20 s, ten at most.
#[test]
fn ranges_grow_as_the_design_says() {
    for Radius { wait_s, radius } in buckets().radius_after_wait_s {
        let (entered, now) = (UnixMs(FIRST_TICK), UnixMs(FIRST_TICK + wait_s * 1_000));
        for clock in [WindowClock::Queue, WindowClock::Ticket] {
            assert_eq!(range_at(&RatingWindow { clock, ..TEISERVER }, 25.0, entered, now), radius, "{wait_s} s");
        }
    }
}

/// S0-11, B-3: cycle by cycle the ranges are those of the walk, and the two meet in cycle 4, 3 and 3.
#[test]
fn the_walk_goes_as_it_is_told() {
    let vectors = buckets();
    let now = |cycle: u64| UnixMs(FIRST_TICK + cycle * 20_000 + 1);
    // Pawn20 is there before the first increase, Grunt17 comes right after it.
    let (pawn, grunt) = (now(0), now(1));
    let range = |entered, cycle| i64::from(range_at(&TEISERVER, 20.0, entered, now(cycle)));
    for Ranges { cycle, pawn: pawns, grunt: grunts } in vectors.walk_ranges {
        let around = |bucket: i64, range: i64| [bucket - range, bucket + range];
        assert_eq!(around(20, range(pawn, cycle)), pawns, "cycle {cycle}");
        if let Some(grunts) = grunts {
            assert_eq!(around(17, range(grunt, cycle)), grunts, "cycle {cycle}");
        }
    }
    for Walk { reciprocal_percent, matched_at_cycle } in vectors.walks {
        let window = RatingWindow { reciprocal_percent, ..TEISERVER };
        let meet = |cycle: &u64| range_accepts(&window, range(pawn, *cycle) as u32, range(grunt, *cycle) as u32, 3);
        assert_eq!((1..).find(meet), Some(matched_at_cycle), "{reciprocal_percent} %");
    }
}

/// S0-16, B-6: half of the distance is asked for, not half of the range.
#[test]
fn reciprocity_asks_for_a_share_of_the_distance() {
    for case in buckets().reciprocal_cases {
        let ([here, mine], [there, theirs]) = (case.searcher, case.candidate);
        for (reciprocal_percent, wanted) in [(100.0, case.p100), (50.0, case.p50), (0.0, case.p0)] {
            let window = RatingWindow { reciprocal_percent, ..TEISERVER };
            assert_eq!(range_accepts(&window, mine as u32, theirs as u32, here.abs_diff(there)), wanted);
        }
    }
}

#[derive(Deserialize)]
struct Leaderboard {
    quality_by_distance: Vec<ByDistance>,
    order_mu_minus_sigma: Vec<String>,
    pair_quality_sigma2_z1: Vec<(String, String, f64)>,
    max_distance_above_threshold: Vec<Farthest>,
    waiting_bonus: Vec<Bonus>,
    seconds_until_any_pair_accepted: Vec<Accepted>,
    minimum_waiting: Vec<Minimum>,
    sampling: Vec<Sampling>,
}

#[derive(Deserialize)]
struct ByDistance {
    sigma: f64,
    scale: f64,
    distance: f64,
    quality: f64,
}

#[derive(Deserialize)]
struct Farthest {
    sigma: f64,
    threshold: f64,
    scale: f64,
    max_distance: Option<u32>,
}

#[derive(Deserialize)]
struct Bonus {
    wait1_s: u64,
    wait2_s: u64,
    percental_time_bonus: f64,
    bonus: f64,
}

#[derive(Deserialize)]
struct Accepted {
    distance: f64,
    sigma: f64,
    threshold: f64,
    percental_time_bonus: f64,
    combined_wait_s: f64,
}

#[derive(Deserialize)]
struct Minimum {
    connected: u32,
    fraction: f64,
    doc_min: u32,
    code_min_int_truncation: u32,
}

#[derive(Deserialize)]
struct Sampling {
    qualities: Vec<f64>,
    threshold: f64,
    kept_ge: Vec<f64>,
}

fn leaderboard() -> Leaderboard {
    serde_json::from_str(include_str!("../../vectors/gauss_leaderboard.json")).unwrap()
}

/// S2-9, B-27: quality over the distance in places.
#[test]
fn quality_falls_with_the_distance_in_places() {
    let vectors = leaderboard();
    for it in vectors.quality_by_distance {
        close(gaussian_quality(it.sigma, it.scale, it.distance), it.quality);
    }
    let place = |name: &String| vectors.order_mu_minus_sigma.iter().position(|it| it == name).unwrap() as f64;
    for (one, other, quality) in &vectors.pair_quality_sigma2_z1 {
        close(gaussian_quality(2.0, 0.5, place(one) - place(other)), *quality);
    }
    for Farthest { sigma, threshold, scale, max_distance } in vectors.max_distance_above_threshold {
        let above = (0..1_000).take_while(|&it| threshold < gaussian_quality(sigma, scale, f64::from(it))).last();
        assert_eq!(above, max_distance, "sigma {sigma}, threshold {threshold}");
    }
}

/// S2-11: a tenth a minute of combined waiting, after the first.
#[test]
fn waiting_adds_to_quality() {
    let vectors = leaderboard();
    for it in vectors.waiting_bonus {
        let rule = WaitBonus { per_minute: it.percental_time_bonus, free_minutes: 1.0 };
        close(bonus_for_waiting(&rule, (it.wait1_s + it.wait2_s) * 1_000), it.bonus);
    }
    for it in vectors.seconds_until_any_pair_accepted {
        let rule = WaitBonus { per_minute: it.percental_time_bonus, free_minutes: 1.0 };
        let passes = |wait_s: f64| {
            it.threshold
                <= gaussian_quality(it.sigma, 0.5, it.distance) + bonus_for_waiting(&rule, (wait_s * 1e3) as u64)
        };
        assert!(passes(it.combined_wait_s + 0.002), "{}", it.distance);
        assert!(it.combined_wait_s == 0.0 || !passes(it.combined_wait_s - 0.002), "{}", it.distance);
    }
}

/// S2-7, B-25: fractions of a player are rounded as the ruleset says.
#[test]
fn enough_must_wait() {
    for Minimum { connected, fraction, doc_min, code_min_int_truncation } in leaderboard().minimum_waiting {
        let gate = |rounding| Gate {
            min_waiting_percent: fraction * 100.0,
            rounding,
            max_concurrent_matches: None,
            skip_unchanged: true,
        };
        let wanted = |rounding| gate::required_waiting_players(&gate(rounding), connected);
        assert_eq!(wanted(GateRounding::Up), doc_min, "{connected} at {fraction}");
        assert_eq!(wanted(GateRounding::Down), code_min_int_truncation, "{connected} at {fraction}");
    }
}

/// S2-6, B-24: what reaches the threshold is kept.
#[test]
fn qualities_at_the_threshold_pass() {
    for Sampling { qualities, threshold, kept_ge } in leaderboard().sampling {
        let bar = quality_threshold(&QualitySpec::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold }).unwrap();
        let kept: Vec<f64> = qualities.into_iter().filter(|it| bar.minimum <= *it).collect();
        assert_eq!((kept, bar.exclusive), (kept_ge, false));
    }
}

#[derive(Deserialize)]
struct Leagues {
    groups: Vec<(f64, f64, String)>,
    cases: Vec<League>,
}

#[derive(Deserialize)]
struct League {
    rating: f64,
    group: String,
}

/// S3-2, S3-3, B-29: half-open groups, and whoever is beyond the edges is in the nearest.
#[test]
fn everybody_is_in_one_group() {
    let vectors: Leagues = serde_json::from_str(include_str!("../../vectors/rating_groups.json")).unwrap();
    let group = |(from, to, name): (f64, f64, String)| RatingGroup { name: name.into(), from, to };
    let groups = vectors.groups.into_iter().map(group).collect();
    let groups = RatingGroups { groups, widen_every_ms: None, max_extra_groups: 0 };
    for League { rating, group } in vectors.cases {
        assert_eq!(*groups.groups[usize::from(group_of_rating(&groups, rating))].name, *group, "{rating}");
    }
}

#[derive(Deserialize)]
struct Similarity {
    max_rating: f64,
    max_category: u16,
    by_rating: Vec<ByRating>,
    by_category: Vec<ByCategory>,
    distw: Vec<Weight>,
    windows: Vec<Lobby>,
}

#[derive(Deserialize)]
struct ByRating {
    ratings: Vec<f64>,
    group_min: f64,
}

#[derive(Deserialize)]
struct ByCategory {
    categories: Vec<u16>,
    linear_div: f64,
    linear_minus1: f64,
    quadratic_div: f64,
    quadratic_minus1: f64,
    sqrt_div: f64,
    sqrt_minus1: f64,
}

#[derive(Deserialize)]
struct Weight {
    diff: f64,
    linear: f64,
    quadratic: f64,
    sqrt: f64,
}

#[derive(Deserialize)]
struct Lobby {
    lobby: Vec<f64>,
    team_size: usize,
    threshold: f64,
    window_similarity: Vec<f64>,
    first_window_above: Option<usize>,
}

fn similarity() -> Similarity {
    serde_json::from_str(include_str!("../../vectors/similarity.json")).unwrap()
}

/// S4-6, S4-9: a match is as alike as its least similar player.
#[test]
fn players_are_alike_by_rating() {
    let vectors = similarity();
    for ByRating { ratings, group_min } in vectors.by_rating {
        close(average_similarity(vectors.max_rating, ratings.into_iter()), group_min);
    }
    for it in vectors.windows {
        let windows = it.lobby.windows(2 * it.team_size);
        let alike: Vec<f64> = windows.map(|it| average_similarity(vectors.max_rating, it.iter().copied())).collect();
        alike.iter().zip(&it.window_similarity).for_each(|(found, wanted)| close(*found, *wanted));
        assert_eq!(alike.len(), it.window_similarity.len());
        assert_eq!(alike.iter().position(|found| it.threshold < *found), it.first_window_above);
    }
}

/// S4-7, S4-8, B-21, B-22: three weightings, two ways to normalise.
#[test]
fn players_are_alike_by_category() {
    let vectors = similarity();
    let count = vectors.max_category;
    for it in vectors.by_category {
        let of = |divisor, curve| category_similarity(divisor, curve, it.categories.iter().copied());
        close(of(count, DistanceCurve::Linear), it.linear_div);
        close(of(count - 1, DistanceCurve::Linear), it.linear_minus1);
        close(of(count, DistanceCurve::Quadratic), it.quadratic_div);
        close(of(count - 1, DistanceCurve::Quadratic), it.quadratic_minus1);
        close(of(count, DistanceCurve::SquareRoot), it.sqrt_div);
        close(of(count - 1, DistanceCurve::SquareRoot), it.sqrt_minus1);
    }
    for Weight { diff, linear, quadratic, sqrt } in vectors.distw {
        let of = |curve| 1.0 - apply_curve(curve, diff / f64::from(count));
        close(of(DistanceCurve::Linear), linear);
        close(of(DistanceCurve::Quadratic), quadratic);
        close(of(DistanceCurve::SquareRoot), sqrt);
    }
}
