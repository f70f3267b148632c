//! Vectors from the four documented queue systems: buckets and ranges (Teiserver), leaderboard distance (comprl),
//! rating groups (OpenMatchmaking), similarity (the team challenge).

use serde::Deserialize;

use fireteam::domain::queue::gate;
use fireteam::domain::queue::quality::{
    bonus_for_waiting, leaderboard_distance_quality, min_player_category_similarity, min_similarity_to_mean,
    minimum_quality,
};
use fireteam::domain::queue::rating_group::group_of_rating;
use fireteam::domain::queue::window::{bucket_of, range_accepts, range_at};
use fireteam::domain::ruleset::DistanceCurve;
use fireteam::domain::ruleset::queue::{
    BucketRounding, Gate, GateRounding, MaxRangeCombination, QualitySpec, RatingGroup, RatingGroups, RatingWindow,
    WaitBonus, WindowClock, WindowPairRule,
};
use fireteam::domain::score::apply_curve;
use fireteam::domain::time::UnixMs;

/// Sums in another order differ in the last digits.
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{found} {expected}");
}

const TEISERVER: RatingWindow = RatingWindow {
    bucket_boundaries: None,
    bucket_width: 1.0,
    rounding: BucketRounding::Round,
    initial_half_width: 0,
    step: 1,
    step_every_ms: 20_000,
    max_half_width: Some(10),
    max_percent_of_rating: None,
    combine: MaxRangeCombination::Smaller,
    other_range_cover_percent: 100.0,
    clock: WindowClock::Queue,
    rule: WindowPairRule::Contain,
};

#[derive(Deserialize)]
struct Buckets {
    round_vectors: Vec<Rounded>,
    walks: Vec<WindowExample>,
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
struct WindowExample {
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

/// First tick of the example; a cycle is 20 s.
const FIRST_TICK: u64 = 1_000_000_000;

/// S0-13: halves are rounded away from zero.
#[test]
fn rating_buckets_round_as_documented() {
    for Rounded { skill, bucket } in buckets().round_vectors {
        assert_eq!(bucket_of(&TEISERVER, skill), bucket, "{skill}");
    }
}

/// S0-14, S0-15: one bucket more every 20 s, ten at most.
#[test]
fn rating_range_grows_as_documented() {
    for Radius { wait_s, radius } in buckets().radius_after_wait_s {
        let (entered, now) = (UnixMs(FIRST_TICK), UnixMs(FIRST_TICK + wait_s * 1_000));
        for clock in [WindowClock::Queue, WindowClock::Ticket] {
            assert_eq!(range_at(&RatingWindow { clock, ..TEISERVER }, 25.0, entered, now), radius, "{wait_s} s");
        }
    }
}

/// S0-11, B-3: the ranges of each cycle equal the document's, and the two match in cycle 4, 3 and 3.
#[test]
fn rating_window_equals_the_documented_example() {
    let vectors = buckets();
    let now = |cycle: u64| UnixMs(FIRST_TICK + cycle * 20_000 + 1);
    // Pawn20 waits before the first increase, Grunt17 enters right after it.
    let (pawn, grunt) = (now(0), now(1));
    let range = |entered, cycle| i64::from(range_at(&TEISERVER, 20.0, entered, now(cycle)));
    for Ranges { cycle, pawn: pawns, grunt: grunt_range } in vectors.walk_ranges {
        let around = |bucket: i64, range: i64| [bucket - range, bucket + range];
        assert_eq!(around(20, range(pawn, cycle)), pawns, "cycle {cycle}");
        if let Some(grunt_range) = grunt_range {
            assert_eq!(around(17, range(grunt, cycle)), grunt_range, "cycle {cycle}");
        }
    }
    for WindowExample { reciprocal_percent, matched_at_cycle } in vectors.walks {
        let window = RatingWindow { other_range_cover_percent: reciprocal_percent, ..TEISERVER };
        let accepts = |cycle: &u64| range_accepts(&window, range(pawn, *cycle) as u32, range(grunt, *cycle) as u32, 3);
        assert_eq!((1..).find(accepts), Some(matched_at_cycle), "{reciprocal_percent} %");
    }
}

/// S0-16, B-6: reciprocity is a share of the distance, not of the range.
#[test]
fn reciprocity_is_a_share_of_the_distance() {
    for case in buckets().reciprocal_cases {
        let ([here, own_range], [there, other_range]) = (case.searcher, case.candidate);
        for (reciprocal_percent, expected) in [(100.0, case.p100), (50.0, case.p50), (0.0, case.p0)] {
            let window = RatingWindow { other_range_cover_percent: reciprocal_percent, ..TEISERVER };
            assert_eq!(range_accepts(&window, own_range as u32, other_range as u32, here.abs_diff(there)), expected);
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

/// S2-9, B-27: quality by distance in places.
#[test]
fn leaderboard_quality_falls_with_distance() {
    let vectors = leaderboard();
    for it in vectors.quality_by_distance {
        assert_close(leaderboard_distance_quality(it.sigma, it.scale, it.distance), it.quality);
    }
    let place = |name: &String| vectors.order_mu_minus_sigma.iter().position(|it| it == name).unwrap() as f64;
    for (one, other, quality) in &vectors.pair_quality_sigma2_z1 {
        assert_close(leaderboard_distance_quality(2.0, 0.5, place(one) - place(other)), *quality);
    }
    for Farthest { sigma, threshold, scale, max_distance } in vectors.max_distance_above_threshold {
        let above =
            (0..1_000).take_while(|&it| threshold < leaderboard_distance_quality(sigma, scale, f64::from(it))).last();
        assert_eq!(above, max_distance, "sigma {sigma}, threshold {threshold}");
    }
}

/// S2-11: a tenth per minute of combined waiting, after the first minute.
#[test]
fn wait_bonus_grows_with_combined_waiting() {
    let vectors = leaderboard();
    for it in vectors.waiting_bonus {
        let rule = WaitBonus { per_combined_minute: it.percental_time_bonus, free_combined_minutes: 1.0 };
        assert_close(bonus_for_waiting(&rule, (it.wait1_s + it.wait2_s) * 1_000), it.bonus);
    }
    for it in vectors.seconds_until_any_pair_accepted {
        let rule = WaitBonus { per_combined_minute: it.percental_time_bonus, free_combined_minutes: 1.0 };
        let passes = |wait_s: f64| {
            it.threshold
                <= leaderboard_distance_quality(it.sigma, 0.5, it.distance)
                    + bonus_for_waiting(&rule, (wait_s * 1e3) as u64)
        };
        assert!(passes(it.combined_wait_s + 0.002), "{}", it.distance);
        assert!(it.combined_wait_s == 0.0 || !passes(it.combined_wait_s - 0.002), "{}", it.distance);
    }
}

/// S2-7, B-25: fractions of a player are rounded as the ruleset says.
#[test]
fn gate_rounds_required_players() {
    for Minimum { connected, fraction, doc_min, code_min_int_truncation } in leaderboard().minimum_waiting {
        let gate = |rounding| Gate {
            min_waiting_percent: fraction * 100.0,
            rounding,
            max_concurrent_matches: None,
            skip_unchanged: true,
        };
        let expected = |rounding| gate::required_waiting_players(&gate(rounding), connected);
        assert_eq!(expected(GateRounding::Up), doc_min, "{connected} at {fraction}");
        assert_eq!(expected(GateRounding::Down), code_min_int_truncation, "{connected} at {fraction}");
    }
}

/// S2-6, B-24: a quality equal to the threshold is accepted.
#[test]
fn quality_threshold_includes_its_value() {
    for Sampling { qualities, threshold, kept_ge } in leaderboard().sampling {
        let threshold_spec =
            minimum_quality(&QualitySpec::LeaderboardGauss { sigma: 20.0, scale: 0.5, threshold }).unwrap();
        let kept: Vec<f64> = qualities.into_iter().filter(|it| threshold_spec.minimum <= *it).collect();
        assert_eq!((kept, threshold_spec.exclusive), (kept_ge, false));
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

/// S3-2, S3-3, B-29: groups are half-open; a rating beyond the edges is in the nearest group.
#[test]
fn rating_groups_cover_all_ratings() {
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

/// S4-6, S4-9: a match has the similarity of its least similar player.
#[test]
fn average_similarity_equals_the_vectors() {
    let vectors = similarity();
    for ByRating { ratings, group_min } in vectors.by_rating {
        assert_close(min_similarity_to_mean(vectors.max_rating, ratings.into_iter()), group_min);
    }
    for it in vectors.windows {
        let windows = it.lobby.windows(2 * it.team_size);
        let alike: Vec<f64> =
            windows.map(|it| min_similarity_to_mean(vectors.max_rating, it.iter().copied())).collect();
        alike.iter().zip(&it.window_similarity).for_each(|(found, expected)| assert_close(*found, *expected));
        assert_eq!(alike.len(), it.window_similarity.len());
        assert_eq!(alike.iter().position(|found| it.threshold < *found), it.first_window_above);
    }
}

/// S4-7, S4-8, B-21, B-22: three curves, two normalisations.
#[test]
fn category_similarity_equals_the_vectors() {
    let vectors = similarity();
    let count = vectors.max_category;
    for it in vectors.by_category {
        let of = |divisor, curve| min_player_category_similarity(divisor, curve, it.categories.iter().copied());
        assert_close(of(count, DistanceCurve::Linear), it.linear_div);
        assert_close(of(count - 1, DistanceCurve::Linear), it.linear_minus1);
        assert_close(of(count, DistanceCurve::Quadratic), it.quadratic_div);
        assert_close(of(count - 1, DistanceCurve::Quadratic), it.quadratic_minus1);
        assert_close(of(count, DistanceCurve::SquareRoot), it.sqrt_div);
        assert_close(of(count - 1, DistanceCurve::SquareRoot), it.sqrt_minus1);
    }
    for Weight { diff, linear, quadratic, sqrt } in vectors.distw {
        let of = |curve| 1.0 - apply_curve(curve, diff / f64::from(count));
        assert_close(of(DistanceCurve::Linear), linear);
        assert_close(of(DistanceCurve::Quadratic), quadratic);
        assert_close(of(DistanceCurve::SquareRoot), sqrt);
    }
}
