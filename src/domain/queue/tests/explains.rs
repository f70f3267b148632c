//! Why tickets wait, and the least that would have to give.

use crate::domain::expansion::{Expansion, Step};
use crate::domain::filter::{Refusal, Side};
use crate::domain::measure::Measure;
use crate::domain::queue::explain::{Explanation, Question, Remedy, Shortfall, explain};
use crate::domain::queue::tests::world::{GAUSS, NOW, WINDOW, World, random, ticket_id};
use crate::domain::ruleset::queue::{Satisfaction, WaitBonus, Window, WindowClock};
use crate::domain::ruleset::{HardFilter, HardRule, MissingHard};

fn explained(world: &World, number: u64) -> Explanation {
    let question = Question { ticket: ticket_id(number), nearest: 3, looks_max: 100_000 };
    world.with(&world.entrants(), |input| explain(input, &question)).unwrap()
}

/// A ticket whose range ends two buckets short of the only other.
#[test]
fn a_range_that_is_too_narrow_is_told_by_how_much() {
    let mut world = World::plain();
    world.queue().window = Some(Window { start: 2, clock: WindowClock::Ticket, ..WINDOW });
    world.enters(&[10.0], 1_000);
    world.enters(&[14.0], 2_000);
    let told = explained(&world, 0);
    assert_eq!((told.candidates, told.suitable, told.matches_now), (1, 0, false));
    assert_eq!(told.refusals, [(Refusal::Window, 1)]);
    assert_eq!(told.nearest[0].by, Some(Shortfall { is: 4.0, limit: 2.0 }));
    assert_eq!(told.standing.bucket, Some((10, 2)));
    assert_eq!(told.remedy, Some(Remedy::Window { more: 2 }));
    assert!(told.others.contains(&Remedy::Wait { ms: 39_000 }), "{:?}", told.others);
    assert!(told.others.contains(&Remedy::Tickets { more: 1 }), "{:?}", told.others);
}

/// S1-97: who looks further down is told so, and what is missing is told of the side that lacks more.
#[test]
fn who_looks_further_down_is_told_so() {
    let mut world = World::plain();
    world.queue().window = Some(Window { start: 2, step: 0, max: Some(2), ..WINDOW });
    world.queue().satisfaction = Some(Satisfaction { widen: 2.0, shift_down: 3.0, ..Satisfaction::default() });
    world.enters(&[6.0], 0);
    // The second to enter is frustrated: four to either side of 7.
    world.enters(&[10.0], 0);
    let told = explained(&world, 1);
    assert_eq!((told.standing.widened, told.standing.shifted_down), (Some(2.0), Some(3.0)));
    assert_eq!(told.standing.bucket, Some((10, 4)));
    assert_eq!(
        told.nearest[0].by,
        Some(Shortfall { is: 4.0, limit: 2.0 }),
        "the other looks two up, and it is four off"
    );
    assert_eq!(told.remedy, Some(Remedy::Window { more: 2 }));
    let told = explained(&world, 0);
    assert_eq!((told.standing.widened, told.standing.shifted_down), (None, None));
}

#[test]
fn a_limit_that_is_too_tight_is_told_by_how_much() {
    let mut world = World::plain();
    let steps = [(0, 150.0), (30_000, 400.0)].map(|(start_ms, value)| Step { start_ms, value });
    world.ruleset.expansions = [Expansion::new("skill", Measure::Attribute(0), steps.to_vec()).unwrap()].into();
    let rule = HardRule::Within { measure: Measure::Attribute(0), expansion: 0, reciprocal_percent: 100.0 };
    world.ruleset.hard = [HardFilter { name: "skill".into(), missing: MissingHard::Pass, rule }].into();
    world.enters(&[1_000.0], 10_000);
    world.enters(&[1_210.0], 40_000);
    world.enters(&[1_900.0], 40_000);
    let told = explained(&world, 0);
    assert_eq!(told.nearest[0].candidate, ticket_id(1));
    assert_eq!(told.nearest[0].refusal, Refusal::Filter { filter: 0, side: Side::Searcher });
    assert_eq!(told.nearest[0].by, Some(Shortfall { is: 210.0, limit: 150.0 }));
    let widened = Remedy::Expansion { expansion: 0, from: 150.0, to: 210.0 };
    let waited = Remedy::Wait { ms: 20_000 };
    assert!(told.remedy == Some(waited) && told.others.contains(&widened), "{told:?}");
}

#[test]
fn a_bar_that_is_too_high_is_told_by_how_much() {
    let mut world = World::plain();
    world.queue().quality = GAUSS;
    world.queue().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for place in [100.0, 121.0] {
        world.enters(&[place], 20_000);
        *world.places.last_mut().unwrap() = Some(place);
    }
    let told = explained(&world, 1);
    assert_eq!(told.refusals, [(Refusal::Quality, 1)]);
    // 21 places are worth 0.28809; the document says 67.13 s of combined waiting, 40 of which have gone by.
    assert!(
        matches!(told.remedy, Some(Remedy::Quality { from, to }) if from == 0.3 && (0.2875..0.2881).contains(&to)),
        "{told:?}"
    );
    let waited = told.others.iter().find_map(|it| match it {
        Remedy::Wait { ms } => Some(*ms),
        _ => None,
    });
    assert!(waited.is_some_and(|ms| (13_565..13_569).contains(&ms)), "{told:?}");
}

#[test]
fn whoever_is_alone_lacks_company() {
    let mut world = World::plain();
    world.sizes(&[2, 2]);
    world.enters(&[1.0], 0);
    let told = explained(&world, 0);
    assert_eq!((told.candidates, told.remedy), (0, Some(Remedy::Tickets { more: 3 })));
    world.enters(&[1.0, 1.0], 0);
    assert_eq!(explained(&world, 0).remedy, Some(Remedy::Tickets { more: 1 }));
    world.enters(&[2.0], 0);
    let told = explained(&world, 0);
    assert!(told.matches_now && told.remedy.is_none() && told.suitable == 2, "{told:?}");
}

/// Whatever the ruleset: who would be in a match is told so, looks are kept to, and nobody is held against himself.
#[test]
fn explaining_has_an_end() {
    for seed in 0..300 {
        let world = random(seed, 12);
        world.with(&world.entrants(), |input| {
            for looks_max in [0, 5, 2_000] {
                let ticket = input.entrants[0].ticket.id;
                let told = explain(input, &Question { ticket, nearest: 5, looks_max }).unwrap();
                assert!(told.candidates as u64 <= looks_max && told.nearest.len() <= 5);
                assert!(told.nearest.iter().all(|it| it.candidate != ticket));
                assert!(!(told.matches_now && told.remedy.is_some()), "seed {seed}");
                if let Some(Remedy::Wait { ms }) = told.remedy {
                    assert!(0 < ms && NOW < input.now.after(ms));
                }
            }
            let nobody = Question { ticket: ticket_id(u64::MAX), nearest: 1, looks_max: 9 };
            assert_eq!(explain(input, &nobody), None);
        });
    }
}
