//! Why tickets wait, and the least that would have to give.

use crate::expansion::{Expansion, ExpansionStep};
use crate::filter::{Refusal, RefusingSide};
use crate::measure::Measure;
use crate::queue::explain::{ExplainQuery, Explanation, Relaxation, RuleMargin, explain_ticket};
use crate::queue::tests::fixture::{GAUSS_QUALITY, NOW, QueueFixture, UNIT_WINDOW, random_queue_fixture, ticket_id};
use crate::ruleset::queue::{RatingWindow, SatisfactionSpec, WaitBonus, WindowClock};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule};

fn explanation_of(world: &QueueFixture, number: u64) -> Explanation {
    let question = ExplainQuery { ticket_id: ticket_id(number), max_near_misses: 3, max_pair_checks: 100_000 };
    world.with_input(&world.prepared_tickets(), |input| explain_ticket(input, &question)).unwrap()
}

/// A ticket whose range ends two buckets short of the only other.
#[test]
fn explain_reports_the_window_margin() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().window = Some(RatingWindow { start: 2, clock: WindowClock::Ticket, ..UNIT_WINDOW });
    world.add_ticket(&[10.0], 1_000);
    world.add_ticket(&[14.0], 2_000);
    let told = explanation_of(&world, 0);
    assert_eq!((told.candidate_count, told.compatible_count, told.matches_now), (1, 0, false));
    assert_eq!(told.refusal_counts, [(Refusal::RatingWindow, 1)]);
    assert_eq!(told.near_misses[0].margin, Some(RuleMargin { measured: 4.0, limit: 2.0 }));
    assert_eq!(told.situation.bucket_and_range, Some((10, 2)));
    assert_eq!(told.smallest_relaxation, Some(Relaxation::Window { more_buckets: 2 }));
    assert!(told.other_relaxations.contains(&Relaxation::Wait { more_ms: 39_000 }), "{:?}", told.other_relaxations);
    assert!(told.other_relaxations.contains(&Relaxation::MoreTickets { more: 1 }), "{:?}", told.other_relaxations);
}

/// S1-97: who looks further down is told so, and what is missing is told of the side that lacks more.
#[test]
fn explain_reports_the_satisfaction_adjustment() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().window = Some(RatingWindow { start: 2, step: 0, max: Some(2), ..UNIT_WINDOW });
    world.queue_mut().satisfaction =
        Some(SatisfactionSpec { widen: 2.0, shift_down: 3.0, ..SatisfactionSpec::default() });
    world.add_ticket(&[6.0], 0);
    // The second to enter is frustrated: four to either side of 7.
    world.add_ticket(&[10.0], 0);
    let told = explanation_of(&world, 1);
    assert_eq!((told.situation.range_factor, told.situation.rating_shift), (Some(2.0), Some(3.0)));
    assert_eq!(told.situation.bucket_and_range, Some((10, 4)));
    assert_eq!(
        told.near_misses[0].margin,
        Some(RuleMargin { measured: 4.0, limit: 2.0 }),
        "the other looks two up, and it is four off"
    );
    assert_eq!(told.smallest_relaxation, Some(Relaxation::Window { more_buckets: 2 }));
    let told = explanation_of(&world, 0);
    assert_eq!((told.situation.range_factor, told.situation.rating_shift), (None, None));
}

#[test]
fn explain_reports_the_limit_margin() {
    let mut world = QueueFixture::one_vs_one();
    let steps = [(0, 150.0), (30_000, 400.0)].map(|(start_ms, value)| ExpansionStep { start_ms, limit: value });
    world.ruleset.expansions =
        [Expansion::new("skill", Measure::AttributeDifference(0), steps.to_vec()).unwrap()].into();
    let rule = HardRule::Within { measure: Measure::AttributeDifference(0), expansion: 0, reciprocal_percent: 100.0 };
    world.ruleset.hard_filters = [HardFilter { name: "skill".into(), missing: HardMissingPolicy::Pass, rule }].into();
    world.add_ticket(&[1_000.0], 10_000);
    world.add_ticket(&[1_210.0], 40_000);
    world.add_ticket(&[1_900.0], 40_000);
    let told = explanation_of(&world, 0);
    assert_eq!(told.near_misses[0].ticket_id, ticket_id(1));
    assert_eq!(
        told.near_misses[0].first_refusal,
        Refusal::HardFilter { filter_index: 0, side: RefusingSide::Searcher }
    );
    assert_eq!(told.near_misses[0].margin, Some(RuleMargin { measured: 210.0, limit: 150.0 }));
    let widened = Relaxation::Expansion { expansion: 0, current: 150.0, required: 210.0 };
    let waited = Relaxation::Wait { more_ms: 20_000 };
    assert!(told.smallest_relaxation == Some(waited) && told.other_relaxations.contains(&widened), "{told:?}");
}

#[test]
fn explain_reports_the_quality_margin() {
    let mut world = QueueFixture::one_vs_one();
    world.queue_mut().quality = GAUSS_QUALITY;
    world.queue_mut().wait_bonus = Some(WaitBonus { per_minute: 0.1, free_minutes: 1.0 });
    for place in [100.0, 121.0] {
        world.add_ticket(&[place], 20_000);
        *world.leaderboard_positions.last_mut().unwrap() = Some(place);
    }
    let told = explanation_of(&world, 1);
    assert_eq!(told.refusal_counts, [(Refusal::LowQuality, 1)]);
    // 21 places are worth 0.28809; the document says 67.13 s of combined waiting, 40 of which have gone by.
    assert!(
        matches!(told.smallest_relaxation, Some(Relaxation::Quality { from, to }) if from == 0.3 && (0.2875..0.2881).contains(&to)),
        "{told:?}"
    );
    let waited = told.other_relaxations.iter().find_map(|it| match it {
        Relaxation::Wait { more_ms: ms } => Some(*ms),
        _ => None,
    });
    assert!(waited.is_some_and(|ms| (13_565..13_569).contains(&ms)), "{told:?}");
}

#[test]
fn explain_suggests_more_tickets_when_too_few_wait() {
    let mut world = QueueFixture::one_vs_one();
    world.set_team_sizes(&[2, 2]);
    world.add_ticket(&[1.0], 0);
    let told = explanation_of(&world, 0);
    assert_eq!((told.candidate_count, told.smallest_relaxation), (0, Some(Relaxation::MoreTickets { more: 3 })));
    world.add_ticket(&[1.0, 1.0], 0);
    assert_eq!(explanation_of(&world, 0).smallest_relaxation, Some(Relaxation::MoreTickets { more: 1 }));
    world.add_ticket(&[2.0], 0);
    let told = explanation_of(&world, 0);
    assert!(told.matches_now && told.smallest_relaxation.is_none() && told.compatible_count == 2, "{told:?}");
}

/// Whatever the ruleset: who would be in a match is told so, looks are kept to, and nobody is held against himself.
#[test]
fn explain_respects_its_pair_check_budget() {
    for seed in 0..300 {
        let world = random_queue_fixture(seed, 12);
        world.with_input(&world.prepared_tickets(), |input| {
            for looks_max in [0, 5, 2_000] {
                let ticket = input.tickets[0].ticket.id;
                let told = explain_ticket(
                    input,
                    &ExplainQuery { ticket_id: ticket, max_near_misses: 5, max_pair_checks: looks_max },
                )
                .unwrap();
                assert!(told.candidate_count as u64 <= looks_max && told.near_misses.len() <= 5);
                assert!(told.near_misses.iter().all(|it| it.ticket_id != ticket));
                assert!(!(told.matches_now && told.smallest_relaxation.is_some()), "seed {seed}");
                if let Some(Relaxation::Wait { more_ms: ms }) = told.smallest_relaxation {
                    assert!(0 < ms && NOW < input.now.plus_ms(ms));
                }
            }
            let nobody = ExplainQuery { ticket_id: ticket_id(u64::MAX), max_near_misses: 1, max_pair_checks: 9 };
            assert_eq!(explain_ticket(input, &nobody), None);
        });
    }
}
