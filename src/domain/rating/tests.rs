//! What holds of every system: numbers stay numbers, the better wins, a match is rated whole or not at all.

use proptest::prelude::*;

use super::*;
use crate::domain::ruleset::rating::{Decay, DecayPeriods, GamePer, Momentum};

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
/// comprl's, by the second (S2-14).
const DECAY: Decay = Decay { every_ms: 1_000, deviation: 0.5, max_deviation: 8.333, periods: DecayPeriods::All };
const ALL: [RatingSystem; 5] = [ELO, GLICKO, GLICKO2, TRUESKILL, PLACKETT_LUCE];

fn side(players: &[Skill], rank: u32) -> Side {
    Side { players: players.to_vec(), rank }
}

/// Somebody as a system knows them, moved by so many newcomer's deviations.
fn moved(spec: &RatingSpec, by: f64) -> Skill {
    let mut skill = spec.newcomer();
    skill.rated.rating += by * skill.rated.deviation.max(100.0);
    skill
}

/// S1-61, S1-65, S2-2: who wins goes up, who loses goes down, and both are better known; a draw draws them together.
#[test]
fn winners_rise_and_losers_fall_by_every_system() {
    for system in ALL {
        let spec = RatingSpec::plain(system);
        let (strong, weak) = (moved(&spec, 0.5), moved(&spec, -0.5));
        let played = |ranks: [u32; 2]| {
            let after = spec.rate(&[side(&[strong], ranks[0]), side(&[weak], ranks[1])], UnixMs(1)).expect("sound");
            [after[0][0], after[1][0]]
        };
        for ranks in [[1, 2], [2, 1]] {
            let [one, other] = played(ranks);
            let sign = if ranks[0] < ranks[1] { 1.0 } else { -1.0 };
            assert!(0.0 < sign * (one.rated.rating - strong.rated.rating), "{system:?} {ranks:?}");
            assert!(0.0 < sign * (weak.rated.rating - other.rated.rating), "{system:?} {ranks:?}");
            // TrueSkill and Plackett-Luce add tau before they learn, which an expected result may not make up for.
            assert!(one.rated.deviation <= strong.rated.deviation.hypot(25.0 / 300.0), "{system:?} {ranks:?}");
            assert_eq!((one.matches, one.last), (1, Some(UnixMs(1))));
        }
        let [one, other] = played([1, 1]);
        assert!(one.rated.rating < strong.rated.rating && weak.rated.rating < other.rated.rating, "{system:?}");
        let upset = played([2, 1])[0].rated.rating - strong.rated.rating;
        let expected = played([1, 2])[0].rated.rating - strong.rated.rating;
        assert!(expected.abs() < upset.abs(), "{system:?}: a surprise says more");
    }
}

/// S1-60: counts say little: of two with the same record the one that had the stronger opponents is rated higher, by
/// every system.
#[test]
fn the_same_record_says_more_against_stronger_opponents() {
    for system in ALL {
        let spec = RatingSpec::plain(system);
        let rated = |by: f64| {
            let mut one = spec.newcomer();
            for round in 0..20 {
                let ranks = if round % 2 == 0 { [1, 2] } else { [2, 1] };
                let sides = [side(&[one], ranks[0]), side(&[moved(&spec, by)], ranks[1])];
                one = spec.rate(&sides, UnixMs(round)).expect("sound")[0][0];
            }
            one.rated.rating
        };
        assert!(rated(-1.0) < rated(0.0) && rated(0.0) < rated(1.0), "{system:?}");
    }
}

/// S4-14, B-18: a match of teams is one game's worth, not one for every opponent; as many opponents as one likes say no more than
/// one of them would.
#[test]
fn a_match_of_teams_counts_as_one_game() {
    for system in [ELO, GLICKO, GLICKO2] {
        let spec = RatingSpec::plain(system);
        let new = spec.newcomer();
        let alone = spec.rate(&[side(&[new], 1), side(&[new], 2)], UnixMs(1)).expect("sound")[0][0];
        let team = spec.rate(&[side(&[new; 6], 1), side(&[new; 6], 2)], UnixMs(1)).expect("sound")[0][3];
        assert!((alone.rated.rating - team.rated.rating).abs() < 1e-9, "{system:?} {alone:?} {team:?}");
        assert!((alone.rated.deviation - team.rated.deviation).abs() < 1e-9, "{system:?}");
        let each = RatingSpec { game_per: GamePer::Opponent, ..spec };
        let team = each.rate(&[side(&[new; 6], 1), side(&[new; 6], 2)], UnixMs(1)).expect("sound")[0][3];
        assert!(alone.rated.rating < team.rated.rating, "{system:?}: every opponent by itself says more");
    }
}

/// S2-14: idle time makes less sure, up to a limit, and leaves the rating alone; a newcomer has not been idle.
#[test]
fn idle_players_become_less_certain() {
    let decay = Some(DECAY);
    let spec = RatingSpec { decay, ..RatingSpec::plain(PLACKETT_LUCE) };
    let idle = Skill { rated: Rated { rating: 30.0, deviation: 2.0 }, last: Some(UnixMs(5_000)), ..spec.newcomer() };
    for (at, wanted) in [(4_000, 2.0), (5_999, 2.0), (6_000, 2.5), (9_999, 4.0), (1_000_000, 8.333)] {
        let found = spec.at(idle, UnixMs(at)).rated;
        assert!((found.deviation - wanted).abs() < 1e-12 && found.rating == 30.0, "{at}: {found:?}");
    }
    let wide = Skill { rated: Rated { rating: 30.0, deviation: 12.0 }, ..idle };
    assert_eq!(spec.at(wide, UnixMs(1_000_000)).rated.deviation, 12.0, "decay makes nobody surer");
    for system in ALL {
        let spec = RatingSpec { decay, ..RatingSpec::plain(system) };
        assert_eq!(spec.at(spec.newcomer(), UnixMs(u64::MAX)), spec.newcomer());
    }
    let spec = RatingSpec::plain(GLICKO2);
    let idle = Skill { rated: Rated { rating: 1500.0, deviation: 50.0 }, last: Some(UnixMs(0)), ..spec.newcomer() };
    let half = spec.at(idle, UnixMs(DAY_MS / 2)).rated.deviation;
    assert!((half - 50.0_f64.hypot(0.06 * 173.7178 * 0.5_f64.sqrt())).abs() < 1e-9, "{half}");
}

/// S2-14: a period makes the idle less sure if any game was played in it, once, however many were; who played in it is not idle,
/// nor is it over before its end.
#[test]
fn nobody_forgets_anything_while_nobody_plays() {
    let decay = Some(Decay { periods: DecayPeriods::Played, ..DECAY });
    let spec = RatingSpec { decay, ..RatingSpec::plain(PLACKETT_LUCE) };
    let mut players = [spec.newcomer(); 4];
    let mut played = Played::default();
    let mut play = |one: usize, other: usize, at: u64, players: &mut [Skill; 4]| {
        let sides = [side(&[players[one]], 1), side(&[players[other]], 2)];
        let after = spec.rate_in(&sides, UnixMs(at), played).expect("sound");
        played = after.iter().flatten().fold(played, Played::with);
        (players[one], players[other]) = (after[0][0], after[1][0]);
        played
    };
    let mut now = play(0, 1, 10_100, &mut players);
    let idle = Skill { rated: Rated { rating: 30.0, deviation: 2.0 }, ..players[0] };
    let steps = |at: u64, played: Played| {
        let grown = spec.at_in(idle, UnixMs(at), played).rated.deviation - idle.rated.deviation;
        (grown / 0.5).round() as u64
    };
    assert_eq!(steps(9_000_000, now), 0, "a night in which nobody plays");
    for (at, within, after) in [
        // In the very period of the last match.
        (10_900, 0, 0),
        (20_000, 0, 1),
        // Again, and by a clock that goes slow.
        (20_999, 0, 1),
        (19_000, 0, 1),
        (50_500, 1, 2),
    ] {
        now = play(2, 3, at, &mut players);
        assert_eq!((steps(at.max(20_000), now), steps(1_000_000, now)), (within, after), "{at}");
    }
    assert_eq!((now.periods(), players[2].played, players[1].played), (3, 3, 1));
    assert_eq!(
        spec.at_in(players[2], UnixMs(9_000_000), now),
        players[2],
        "who played in the last of them is not idle"
    );
    for at in 100..120 {
        now = play(2, 3, 1_000 * at, &mut players);
    }
    assert_eq!(spec.at_in(idle, UnixMs(9_000_000), now).rated.deviation, 8.333);
    assert_eq!(spec.at_in(idle, UnixMs(9_000_000), now).rated.rating, idle.rated.rating);
    // A match counts what was idle before it, once.
    let shown = Skill { last: None, ..spec.at_in(idle, UnixMs(200_000), now) };
    let of = |skill: Skill| {
        let sides = [side(&[skill], 1), side(&[players[2]], 2)];
        spec.rate_in(&sides, UnixMs(200_000), now).expect("sound")[0][0]
    };
    assert_eq!(of(idle).rated, of(shown).rated);
    assert_eq!(spec.at_in(of(idle), UnixMs(200_500), now.with(&of(idle))), of(idle));
    let always = RatingSpec { decay: Some(DECAY), ..spec };
    assert!(spec.counts_played() && !always.counts_played());
}

/// Idle time counts once: what is stored is rated as if it had been shown first.
#[test]
fn a_match_counts_the_time_before_it() {
    let spec = RatingSpec::plain(GLICKO);
    let sure = Skill { rated: Rated { rating: 1500.0, deviation: 50.0 }, last: Some(UnixMs(0)), ..spec.newcomer() };
    let at = UnixMs(10 * DAY_MS);
    let shown = Skill { last: None, ..spec.at(sure, at) };
    let of = |skill: Skill| spec.rate(&[side(&[skill], 1), side(&[skill], 2)], at).expect("sound")[0][0].rated;
    assert_eq!(of(sure), of(shown));
    assert!(of(sure).deviation > 100.0);
    let late = Skill { last: Some(UnixMs(99)), ..sure };
    let after = spec.rate(&[side(&[late], 1), side(&[sure], 2)], UnixMs(7)).expect("sound");
    assert_eq!(
        (after[0][0].last, after[1][0].last),
        (Some(UnixMs(99)), Some(UnixMs(7))),
        "a late result turns no clock back"
    );
}

/// S4-16: a streak of the length named, gone on with, moves further by the factor; what ends it counts once.
#[test]
fn momentum_carries_streaks_further() {
    let momentum = Some(Momentum { after: 2, factor: 1.5 });
    let (plain, carried) = (RatingSpec::plain(ELO), RatingSpec { momentum, ..RatingSpec::plain(ELO) });
    for (streak, rank, factor) in
        [(0, 1, 1.0), (1, 1, 1.0), (2, 1, 1.5), (9, 1, 1.5), (2, 3, 1.0), (-2, 3, 1.5), (-2, 1, 1.0), (2, 2, 1.0)]
    {
        let one = Skill { streak, ..plain.newcomer() };
        let sides = [side(&[one], rank), side(&[moved(&plain, 1.0)], 2)];
        let change = |spec: &RatingSpec| spec.rate(&sides, UnixMs(1)).expect("sound")[0][0].rated.rating - 1500.0;
        assert!((change(&carried) - factor * change(&plain)).abs() < 1e-9, "{streak} {rank}");
    }
    let streak_after = |streak: i32, rank: u32| {
        let one = Skill { streak, ..plain.newcomer() };
        plain.rate(&[side(&[one], rank), side(&[plain.newcomer()], 2)], UnixMs(1)).expect("sound")[0][0].streak
    };
    let after = [streak_after(3, 1), streak_after(3, 2), streak_after(3, 3), streak_after(-3, 3), streak_after(-3, 1)];
    assert_eq!(after, [4, 0, -1, -4, 1]);
    // Second of three is neither won nor lost.
    let three = [1, 2, 3].map(|rank| side(&[plain.newcomer()], rank));
    let streaks: Vec<i32> = plain.rate(&three, UnixMs(1)).expect("sound").iter().map(|side| side[0].streak).collect();
    assert_eq!(streaks, [1, 0, -1]);
}

#[test]
fn the_first_matches_are_provisional() {
    let spec = RatingSpec { placement_matches: 2, ..RatingSpec::plain(ELO) };
    let after = |matches| spec.is_provisional(&Skill { matches, ..spec.newcomer() });
    assert_eq!([after(0), after(1), after(2), after(u32::MAX)], [true, true, false, false]);
    assert!(!RatingSpec::plain(ELO).is_provisional(&spec.newcomer()));
}

/// Wrong matches are refused with what would be right, by rating and by prediction alike.
#[test]
fn what_cannot_be_rated_is_refused_whole() {
    let spec = RatingSpec::plain(GLICKO2);
    let new = spec.newcomer();
    let with =
        |rating: f64, deviation: f64, volatility: f64| Skill { rated: Rated { rating, deviation }, volatility, ..new };
    let told = |sides: &[Side]| spec.rate(sides, UnixMs(1)).expect_err("wrong").to_string();
    for (sides, wanted) in [
        (vec![], "a match has 2 to 64 sides, not 0"),
        (vec![side(&[new], 1)], "a match has 2 to 64 sides, not 1"),
        (vec![side(&[new], 1); 65], "a match has 2 to 64 sides, not 65"),
        (vec![side(&[new], 1), side(&[], 2)], "side 1 has no players: every side has one or more"),
        (
            vec![side(&[new], 1), side(&[new], 0)],
            "side 1 has rank 0: ranks are 1 for the best, 2 and so on, equal for a draw",
        ),
        (vec![side(&[new; 1_000], 1), side(&[new; 25], 2)], "a match has at most 1024 players, not 1025"),
        (
            vec![side(&[new, with(f64::NAN, 1.0, 0.06)], 1), side(&[new], 2)],
            "player 1 of side 0 has the rating NaN: it is a number between -1000000000 and 1000000000",
        ),
        (
            vec![side(&[new], 1), side(&[with(1.0, -1.0, 0.06)], 2)],
            "player 0 of side 1 has the deviation -1: it is a number between 0 and 1000000000",
        ),
        (
            vec![side(&[new], 1), side(&[with(1.0, 1.0, f64::INFINITY)], 2)],
            "player 0 of side 1 has the volatility inf: it is a number between 0 and 1000000000",
        ),
    ] {
        assert_eq!(told(&sides), wanted);
    }
    assert_eq!(spec.win_chances(&[vec![new], vec![]]), Err(RateError::EmptySide { side: 1 }));
}

/// Glicko-2 for somebody of whom no volatility is known, as after an import: a newcomer's.
#[test]
fn an_unknown_volatility_is_a_newcomers() {
    let spec = RatingSpec::plain(GLICKO2);
    let unknown = Skill { volatility: 0.0, ..spec.newcomer() };
    let of =
        |skill: Skill| spec.rate(&[side(&[skill], 1), side(&[spec.newcomer()], 2)], UnixMs(1)).expect("sound")[0][0];
    assert_eq!(of(unknown), of(spec.newcomer()));
}

/// A number as skills may have it, the largest and the least included.
fn extreme(most: f64, negative: bool) -> impl Strategy<Value = f64> {
    let sign = move |number: f64, minus: bool| if negative && minus { -number } else { number };
    let large = (-12.0_f64..9.0).prop_map(|power| 10.0_f64.powf(power));
    let any = prop_oneof![Just(0.0), Just(1e-300), Just(most), large, 0.0..3_000.0];
    (any, any_bool()).prop_map(move |(number, minus)| sign(number.min(most), minus))
}

fn any_bool() -> impl Strategy<Value = bool> {
    any::<bool>()
}

fn skills() -> impl Strategy<Value = Skill> {
    let numbers = (extreme(RATING_MAX, true), extreme(RATING_MAX, false), extreme(10.0, false));
    (numbers, 0_u32..5, -5_i32..5, proptest::option::of(0_u64..u64::MAX)).prop_map(
        |(numbers, matches, streak, last)| {
            let (rating, deviation, volatility) = numbers;
            Skill { rated: Rated { rating, deviation }, volatility, matches, last: last.map(UnixMs), streak, played: 0 }
        },
    )
}

fn sides() -> impl Strategy<Value = Vec<Side>> {
    let side = (proptest::collection::vec(skills(), 1..=16), 1_u32..=16);
    proptest::collection::vec(side.prop_map(|(players, rank)| Side { players, rank }), 2..=16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever skills meet, in whatever numbers: everybody comes out with numbers, and chances add up.
    #[test]
    fn numbers_stay_numbers(sides in sides(), at in 0_u64..u64::MAX, each in any_bool()) {
        for system in ALL {
            let game_per = if each { GamePer::Opponent } else { GamePer::Match };
            let spec = RatingSpec { game_per, momentum: Some(Momentum { after: 1, factor: 10.0 }), ..RatingSpec::plain(system) };
            let after = spec.rate(&sides, UnixMs(at)).expect("sound");
            prop_assert_eq!(after.len(), sides.len());
            for (side, skills) in sides.iter().zip(&after) {
                prop_assert_eq!(skills.len(), side.players.len());
                for skill in skills {
                    let sound = (-RATING_MAX..=RATING_MAX).contains(&skill.rated.rating)
                        && (0.0..=RATING_MAX).contains(&skill.rated.deviation)
                        && (0.0..=RATING_MAX).contains(&skill.volatility);
                    prop_assert!(sound, "{:?}: {:?}", system, skill);
                }
            }
            let players: Vec<Vec<Skill>> = sides.iter().map(|side| side.players.clone()).collect();
            let chances = spec.win_chances(&players).expect("sound");
            let sum: f64 = chances.iter().sum();
            prop_assert!((sum - 1.0).abs() < 1e-9 && chances.iter().all(|it| (0.0..=1.0).contains(it)), "{:?}: {:?}", system, chances);
        }
    }
}
