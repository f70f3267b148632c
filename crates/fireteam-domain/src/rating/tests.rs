//! Properties of all rating systems: numbers stay finite, winners rise, and a match is rated completely or not at all.

use proptest::prelude::*;

use super::*;
use crate::queue::ticket::PlayerRating;
use crate::ruleset::rating::{DecayPeriodFilter, InactiveDeviationGrowth, OpponentsPerRatedGame, StreakChangeFactor};
use crate::time::UnixMs;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
const GLICKO: RatingSystem =
    RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: DAY_MS };
const GLICKO2: RatingSystem =
    RatingSystem::Glicko2 { initial: 1500.0, deviation: 350.0, volatility: 0.06, tau: 0.5, period_ms: DAY_MS };
const TRUESKILL: RatingSystem =
    RatingSystem::TrueSkill { mu: 25.0, sigma: 25.0 / 3.0, beta: 25.0 / 6.0, tau: 25.0 / 300.0, draw_percent: 10.0 };
const PLACKETT_LUCE: RatingSystem =
    RatingSystem::PlackettLuce { mu: 25.0, sigma: 25.0 / 3.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 25.0 / 300.0 };
/// comprl's decay, per second instead of per day (S2-14).
const DECAY: InactiveDeviationGrowth = InactiveDeviationGrowth {
    every_ms: 1_000,
    deviation_per_period: 0.5,
    max_deviation: 8.333,
    periods: DecayPeriodFilter::All,
};
const ALL_SYSTEMS: [RatingSystem; 5] = [ELO, GLICKO, GLICKO2, TRUESKILL, PLACKETT_LUCE];

fn side(players: &[Skill], rank: u32) -> Side {
    Side { players: players.to_vec(), rank }
}

/// Newcomer's skill, shifted by a number of newcomer's deviations.
fn shifted_newcomer(spec: &RatingSpec, by: f64) -> Skill {
    let mut skill = spec.initial_skill();
    skill.estimate.rating += by * skill.estimate.deviation.max(100.0);
    skill
}

/// S1-61, S1-65, S2-2: the winner's rating rises and the loser's falls, and both deviations shrink. A draw brings
/// ratings closer.
#[test]
fn rating_rises_for_winners_and_falls_for_losers_in_every_system() {
    for system in ALL_SYSTEMS {
        let spec = RatingSpec::with_defaults(system);
        let (strong, weak) = (shifted_newcomer(&spec, 0.5), shifted_newcomer(&spec, -0.5));
        let after_match = |ranks: [u32; 2]| {
            let after = spec
                .rate_match(&[side(&[strong], ranks[0]), side(&[weak], ranks[1])], UnixMs(1))
                .expect("match is valid");
            [after[0][0], after[1][0]]
        };
        for ranks in [[1, 2], [2, 1]] {
            let [strong_after, weak_after] = after_match(ranks);
            let sign = if ranks[0] < ranks[1] { 1.0 } else { -1.0 };
            assert!(sign * (strong_after.estimate.rating - strong.estimate.rating) > 0.0, "{system:?} {ranks:?}");
            assert!(sign * (weak.estimate.rating - weak_after.estimate.rating) > 0.0, "{system:?} {ranks:?}");
            // TrueSkill and Plackett-Luce add tau before the update, which an expected result may not compensate.
            assert!(
                strong_after.estimate.deviation <= strong.estimate.deviation.hypot(25.0 / 300.0),
                "{system:?} {ranks:?}"
            );
            assert_eq!((strong_after.match_count, strong_after.last_match_at), (1, Some(UnixMs(1))));
        }
        let [strong_after, weak_after] = after_match([1, 1]);
        assert!(
            strong_after.estimate.rating < strong.estimate.rating && weak.estimate.rating < weak_after.estimate.rating,
            "{system:?}"
        );
        let upset = after_match([2, 1])[0].estimate.rating - strong.estimate.rating;
        let expected_win = after_match([1, 2])[0].estimate.rating - strong.estimate.rating;
        assert!(expected_win.abs() < upset.abs(), "{system:?}: an upset changes more");
    }
}

/// S1-60: win counts alone say little. Of two players with the same record, the one with the stronger opponents is
/// rated higher in every system.
#[test]
fn rating_is_higher_after_the_same_record_against_stronger_opponents() {
    for system in ALL_SYSTEMS {
        let spec = RatingSpec::with_defaults(system);
        let rated = |by: f64| {
            let mut one = spec.initial_skill();
            for round in 0..20 {
                let ranks = if round % 2 == 0 { [1, 2] } else { [2, 1] };
                let sides = [side(&[one], ranks[0]), side(&[shifted_newcomer(&spec, by)], ranks[1])];
                one = spec.rate_match(&sides, UnixMs(round)).expect("match is valid")[0][0];
            }
            one.estimate.rating
        };
        assert!(rated(-1.0) < rated(0.0) && rated(0.0) < rated(1.0), "{system:?}");
    }
}

/// S4-14, B-18: a team match weighs as much as one game, not one game per opponent, however large the teams are.
#[test]
fn team_match_counts_as_one_game() {
    for system in [ELO, GLICKO, GLICKO2] {
        let spec = RatingSpec::with_defaults(system);
        let new = spec.initial_skill();
        let alone = spec.rate_match(&[side(&[new], 1), side(&[new], 2)], UnixMs(1)).expect("match is valid")[0][0];
        let team = spec.rate_match(&[side(&[new; 6], 1), side(&[new; 6], 2)], UnixMs(1)).expect("match is valid")[0][3];
        assert!((alone.estimate.rating - team.estimate.rating).abs() < 1e-9, "{system:?} {alone:?} {team:?}");
        assert!((alone.estimate.deviation - team.estimate.deviation).abs() < 1e-9, "{system:?}");
        let each = RatingSpec { opponents_per_game: OpponentsPerRatedGame::Each, ..spec };
        let team = each.rate_match(&[side(&[new; 6], 1), side(&[new; 6], 2)], UnixMs(1)).expect("match is valid")[0][3];
        assert!(alone.estimate.rating < team.estimate.rating, "{system:?}: one game per opponent changes more");
    }
}

/// S2-14: inactivity raises the deviation up to a limit and keeps the rating. A newcomer has no inactivity.
#[test]
fn deviation_grows_while_a_player_is_inactive() {
    let decay = Some(DECAY);
    let spec = RatingSpec { decay, ..RatingSpec::with_defaults(PLACKETT_LUCE) };
    let idle = Skill {
        estimate: PlayerRating { rating: 30.0, deviation: 2.0 },
        last_match_at: Some(UnixMs(5_000)),
        ..spec.initial_skill()
    };
    for (at, expected) in [(4_000, 2.0), (5_999, 2.0), (6_000, 2.5), (9_999, 4.0), (1_000_000, 8.333)] {
        let found = spec.skill_at(idle, UnixMs(at)).estimate;
        assert!((found.deviation - expected).abs() < 1e-12 && found.rating == 30.0, "{at}: {found:?}");
    }
    let wide = Skill { estimate: PlayerRating { rating: 30.0, deviation: 12.0 }, ..idle };
    assert_eq!(spec.skill_at(wide, UnixMs(1_000_000)).estimate.deviation, 12.0, "decay does not lower a deviation");
    for system in ALL_SYSTEMS {
        let spec = RatingSpec { decay, ..RatingSpec::with_defaults(system) };
        assert_eq!(spec.skill_at(spec.initial_skill(), UnixMs(u64::MAX)), spec.initial_skill());
    }
    let spec = RatingSpec::with_defaults(GLICKO2);
    let idle = Skill {
        estimate: PlayerRating { rating: 1500.0, deviation: 50.0 },
        last_match_at: Some(UnixMs(0)),
        ..spec.initial_skill()
    };
    let half = spec.skill_at(idle, UnixMs(DAY_MS / 2)).estimate.deviation;
    assert!((half - 50.0_f64.hypot(0.06 * 173.7178 * 0.5_f64.sqrt())).abs() < 1e-9, "{half}");
}

/// S2-14: an active period raises the deviation of inactive players once, however many matches it has. It does not
/// affect a player who played in it, and it does not count before its end.
#[test]
fn decay_by_active_periods_stops_while_no_match_is_played() {
    let decay = Some(InactiveDeviationGrowth { periods: DecayPeriodFilter::Played, ..DECAY });
    let spec = RatingSpec { decay, ..RatingSpec::with_defaults(PLACKETT_LUCE) };
    let mut players = [spec.initial_skill(); 4];
    let mut activity_so_far = AllUsersMatchActivity::default();
    let mut play = |one: usize, other: usize, at: u64, players: &mut [Skill; 4]| {
        let sides = [side(&[players[one]], 1), side(&[players[other]], 2)];
        let after = spec.rate_match_with_activity(&sides, UnixMs(at), activity_so_far).expect("match is valid");
        activity_so_far = after.iter().flatten().fold(activity_so_far, AllUsersMatchActivity::including_last_match_of);
        (players[one], players[other]) = (after[0][0], after[1][0]);
        activity_so_far
    };
    let mut activity = play(0, 1, 10_100, &mut players);
    let idle = Skill { estimate: PlayerRating { rating: 30.0, deviation: 2.0 }, ..players[0] };
    let steps = |at: u64, activity_so_far: AllUsersMatchActivity| {
        let grown =
            spec.skill_at_with_activity(idle, UnixMs(at), activity_so_far).estimate.deviation - idle.estimate.deviation;
        (grown / 0.5).round() as u64
    };
    assert_eq!(steps(9_000_000, activity), 0, "a night without matches");
    for (at, during, after) in [
        // In the period of the last match.
        (10_900, 0, 0),
        (20_000, 0, 1),
        // In the same period again, and with a clock that lags.
        (20_999, 0, 1),
        (19_000, 0, 1),
        (50_500, 1, 2),
    ] {
        activity = play(2, 3, at, &mut players);
        assert_eq!((steps(at.max(20_000), activity), steps(1_000_000, activity)), (during, after), "{at}");
    }
    assert_eq!(
        (activity.active_periods(), players[2].last_match_active_period, players[1].last_match_active_period),
        (3, 3, 1)
    );
    assert_eq!(
        spec.skill_at_with_activity(players[2], UnixMs(9_000_000), activity),
        players[2],
        "no decay after playing in the last active period"
    );
    for at in 100..120 {
        activity = play(2, 3, 1_000 * at, &mut players);
    }
    assert_eq!(spec.skill_at_with_activity(idle, UnixMs(9_000_000), activity).estimate.deviation, 8.333);
    assert_eq!(spec.skill_at_with_activity(idle, UnixMs(9_000_000), activity).estimate.rating, idle.estimate.rating);
    // A match includes the inactivity before it, once.
    let shown = Skill { last_match_at: None, ..spec.skill_at_with_activity(idle, UnixMs(200_000), activity) };
    let of = |skill: Skill| {
        let sides = [side(&[skill], 1), side(&[players[2]], 2)];
        spec.rate_match_with_activity(&sides, UnixMs(200_000), activity).expect("match is valid")[0][0]
    };
    assert_eq!(of(idle).estimate, of(shown).estimate);
    assert_eq!(
        spec.skill_at_with_activity(of(idle), UnixMs(200_500), activity.including_last_match_of(&of(idle))),
        of(idle)
    );
    let always = RatingSpec { decay: Some(DECAY), ..spec };
    assert!(spec.decays_by_active_periods() && !always.decays_by_active_periods());
}

/// Inactivity counts once: a stored skill is rated like the skill shown at that time.
#[test]
fn match_rating_includes_the_inactivity_before_it() {
    let spec = RatingSpec::with_defaults(GLICKO);
    let sure = Skill {
        estimate: PlayerRating { rating: 1500.0, deviation: 50.0 },
        last_match_at: Some(UnixMs(0)),
        ..spec.initial_skill()
    };
    let at = UnixMs(10 * DAY_MS);
    let shown = Skill { last_match_at: None, ..spec.skill_at(sure, at) };
    let of = |skill: Skill| {
        spec.rate_match(&[side(&[skill], 1), side(&[skill], 2)], at).expect("match is valid")[0][0].estimate
    };
    assert_eq!(of(sure), of(shown));
    assert!(of(sure).deviation > 100.0);
    let late = Skill { last_match_at: Some(UnixMs(99)), ..sure };
    let after = spec.rate_match(&[side(&[late], 1), side(&[sure], 2)], UnixMs(7)).expect("match is valid");
    assert_eq!(
        (after[0][0].last_match_at, after[1][0].last_match_at),
        (Some(UnixMs(99)), Some(UnixMs(7))),
        "a late result does not move the last match back"
    );
}

/// S4-16: a streak of the given length multiplies further changes by the factor. The match that ends the streak counts
/// once.
#[test]
fn momentum_multiplies_rating_changes_in_a_streak() {
    let momentum = Some(StreakChangeFactor { after: 2, factor: 1.5 });
    let (without_momentum, with_momentum) =
        (RatingSpec::with_defaults(ELO), RatingSpec { momentum, ..RatingSpec::with_defaults(ELO) });
    for (streak, rank, factor) in
        [(0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.5), (9, 1, 1.5), (2, 3, 1.0), (-2, 3, 1.5), (-2, 1, 1.0), (2, 2, 1.0)]
    {
        let player = Skill { streak, ..without_momentum.initial_skill() };
        let sides = [side(&[player], rank), side(&[shifted_newcomer(&without_momentum, 1.0)], 2)];
        let change = |spec: &RatingSpec| {
            spec.rate_match(&sides, UnixMs(1)).expect("match is valid")[0][0].estimate.rating - 1500.0
        };
        assert!((change(&with_momentum) - factor * change(&without_momentum)).abs() < 1e-9, "{streak} {rank}");
    }
    let streak_after = |streak: i32, rank: u32| {
        let player = Skill { streak, ..without_momentum.initial_skill() };
        without_momentum
            .rate_match(&[side(&[player], rank), side(&[without_momentum.initial_skill()], 2)], UnixMs(1))
            .expect("match is valid")[0][0]
            .streak
    };
    let after = [streak_after(3, 1), streak_after(3, 2), streak_after(3, 3), streak_after(-3, 3), streak_after(-3, 1)];
    assert_eq!(after, [4, 0, -1, -4, 1]);
    // Second of three sides is neither a win nor a loss.
    let three = [1, 2, 3].map(|rank| side(&[without_momentum.initial_skill()], rank));
    let streaks: Vec<i32> = without_momentum
        .rate_match(&three, UnixMs(1))
        .expect("match is valid")
        .iter()
        .map(|side| side[0].streak)
        .collect();
    assert_eq!(streaks, [1, 0, -1]);
}

#[test]
fn rating_is_provisional_during_placement_matches() {
    let spec = RatingSpec { placement_matches: 2, ..RatingSpec::with_defaults(ELO) };
    let after = |matches| spec.is_provisional(&Skill { match_count: matches, ..spec.initial_skill() });
    assert_eq!([after(0), after(1), after(2), after(u32::MAX)], [true, true, false, false]);
    assert!(!RatingSpec::with_defaults(ELO).is_provisional(&spec.initial_skill()));
}

/// Invalid matches are rejected with the valid range, by rating and by prediction.
#[test]
fn invalid_match_is_rejected_with_a_reason() {
    let spec = RatingSpec::with_defaults(GLICKO2);
    let new = spec.initial_skill();
    let with = |rating: f64, deviation: f64, volatility: f64| Skill {
        estimate: PlayerRating { rating, deviation },
        volatility,
        ..new
    };
    let error_of = |sides: &[Side]| spec.rate_match(sides, UnixMs(1)).expect_err("match is invalid").to_string();
    for (sides, expected) in [
        (vec![], "match has 0 sides; use 2 to 128"),
        (vec![side(&[new], 1)], "match has 1 sides; use 2 to 128"),
        (vec![side(&[new], 1); 129], "match has 129 sides; use 2 to 128"),
        (vec![side(&[new], 1), side(&[], 2)], "side 1 has no players; add one or more"),
        (
            vec![side(&[new], 1), side(&[new], 0)],
            "side 1 has rank 0; use 1 for the best side and equal ranks for a draw",
        ),
        (vec![side(&[new; 1_000], 1), side(&[new; 25], 2)], "match has 1025 players; use at most 1024"),
        (
            vec![side(&[new, with(f64::NAN, 1.0, 0.06)], 1), side(&[new], 2)],
            "player 1 of side 0 has rating NaN; use a number between -1000000000 and 1000000000",
        ),
        (
            vec![side(&[new], 1), side(&[with(1.0, -1.0, 0.06)], 2)],
            "player 0 of side 1 has deviation -1; use a number between 0 and 1000000000",
        ),
        (
            vec![side(&[new], 1), side(&[with(1.0, 1.0, f64::INFINITY)], 2)],
            "player 0 of side 1 has volatility inf; use a number between 0 and 1000000000",
        ),
    ] {
        assert_eq!(error_of(&sides), expected);
    }
    assert_eq!(spec.win_probabilities(&[vec![new], vec![]]), Err(RatingError::EmptySide { side: 1 }));
}

/// Glicko-2 player without a known volatility, as after an import: the initial volatility is used.
#[test]
fn volatility_unknown_is_replaced_by_the_initial_one() {
    let spec = RatingSpec::with_defaults(GLICKO2);
    let unknown = Skill { volatility: 0.0, ..spec.initial_skill() };
    let of = |skill: Skill| {
        spec.rate_match(&[side(&[skill], 1), side(&[spec.initial_skill()], 2)], UnixMs(1)).expect("match is valid")[0]
            [0]
    };
    assert_eq!(of(unknown), of(spec.initial_skill()));
}

/// Numbers in the range of skills, including the largest and the smallest.
fn any_number_up_to(max: f64, negative: bool) -> impl Strategy<Value = f64> {
    let sign = move |number: f64, is_negative: bool| if negative && is_negative { -number } else { number };
    let large = (-12.0_f64..9.0).prop_map(|power| 10.0_f64.powf(power));
    let any = prop_oneof![Just(0.0), Just(1e-300), Just(max), large, 0.0..3_000.0];
    (any, any_bool()).prop_map(move |(number, is_negative)| sign(number.min(max), is_negative))
}

fn any_bool() -> impl Strategy<Value = bool> {
    any::<bool>()
}

fn any_skill() -> impl Strategy<Value = Skill> {
    let numbers =
        (any_number_up_to(RATING_MAX, true), any_number_up_to(RATING_MAX, false), any_number_up_to(10.0, false));
    (numbers, 0_u32..5, -5_i32..5, proptest::option::of(0_u64..u64::MAX)).prop_map(
        |(numbers, matches, streak, last)| {
            let (rating, deviation, volatility) = numbers;
            Skill {
                estimate: PlayerRating { rating, deviation },
                volatility,
                match_count: matches,
                last_match_at: last.map(UnixMs),
                streak,
                last_match_active_period: 0,
            }
        },
    )
}

fn any_sides() -> impl Strategy<Value = Vec<Side>> {
    let side = (proptest::collection::vec(any_skill(), 1..=16), 1_u32..=16);
    proptest::collection::vec(side.prop_map(|(players, rank)| Side { players, rank }), 2..=16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any skills and any number of sides: all results are finite, and probabilities sum to 1.
    #[test]
    fn ratings_stay_finite_and_win_probabilities_sum_to_one(sides in any_sides(), at in 0_u64..u64::MAX, per_opponent in any_bool()) {
        for system in ALL_SYSTEMS {
            let games_per = if per_opponent { OpponentsPerRatedGame::Each } else { OpponentsPerRatedGame::All };
            let spec = RatingSpec { opponents_per_game: games_per, momentum: Some(StreakChangeFactor { after: 1, factor: 10.0 }), ..RatingSpec::with_defaults(system) };
            let after = spec.rate_match(&sides, UnixMs(at)).expect("match is valid");
            prop_assert_eq!(after.len(), sides.len());
            for (side, skills) in sides.iter().zip(&after) {
                prop_assert_eq!(skills.len(), side.players.len());
                for skill in skills {
                    let in_range = (-RATING_MAX..=RATING_MAX).contains(&skill.estimate.rating)
                        && (0.0..=RATING_MAX).contains(&skill.estimate.deviation)
                        && (0.0..=RATING_MAX).contains(&skill.volatility);
                    prop_assert!(in_range, "{:?}: {:?}", system, skill);
                }
            }
            let players: Vec<Vec<Skill>> = sides.iter().map(|side| side.players.clone()).collect();
            let probabilities = spec.win_probabilities(&players).expect("match is valid");
            let sum: f64 = probabilities.iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9 && probabilities.iter().all(|probability| (0.0..=1.0).contains(probability)), "{:?}: {:?}", system, probabilities);
        }
    }
}
