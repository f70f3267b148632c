//! Explanations of waiting tickets and their smallest relaxations.

use crate::expansion::{Expansion, ExpansionStep};
use crate::filter::{Refusal, RefusingSide};
use crate::measure::Measure;
use crate::queue::explain::{ExplainQuery, Explanation, MeasuredAndLimit, Relaxation, explain_ticket};
use crate::queue::tests::fixture::{GAUSS_QUALITY, NOW, QueueFixture, UNIT_WINDOW, random_queue_fixture, ticket_id};
use crate::ruleset::queue::{FrustratedPlayerSpec, RatingWindow, WaitBonus, WindowClock};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule};

fn explanation_of(fixture: &QueueFixture, number: u64) -> Explanation {
    let query = ExplainQuery { ticket_id: ticket_id(number), max_near_misses: 3, max_pair_checks: 100_000 };
    fixture.with_input(&fixture.prepared_tickets(), |input| explain_ticket(input, &query)).unwrap()
}

/// The range ends two buckets short of the only other ticket.
#[test]
fn explain_reports_the_window_margin() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().window =
        Some(RatingWindow { initial_half_width: 2, clock: WindowClock::Ticket, ..UNIT_WINDOW });
    fixture.add_ticket(&[10.0], 1_000);
    fixture.add_ticket(&[14.0], 2_000);
    let explanation = explanation_of(&fixture, 0);
    assert_eq!((explanation.candidate_count, explanation.compatible_count, explanation.matches_now), (1, 0, false));
    assert_eq!(explanation.refusal_counts, [(Refusal::RatingWindow, 1)]);
    assert_eq!(explanation.near_misses[0].margin, Some(MeasuredAndLimit { measured: 4.0, limit: 2.0 }));
    assert_eq!(explanation.situation.bucket_and_range, Some((10, 2)));
    assert_eq!(explanation.smallest_relaxation, Some(Relaxation::Window { more_buckets: 2 }));
    assert!(
        explanation.other_relaxations.contains(&Relaxation::Wait { more_ms: 39_000 }),
        "{:?}",
        explanation.other_relaxations
    );
    assert!(
        explanation.other_relaxations.contains(&Relaxation::MoreTickets { more_tickets: 1 }),
        "{:?}",
        explanation.other_relaxations
    );
}

/// S1-97: the explanation shows the lower window center, and the margin of the side that lacks more.
#[test]
fn explain_reports_the_satisfaction_adjustment() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().window =
        Some(RatingWindow { initial_half_width: 2, step: 0, max_half_width: Some(2), ..UNIT_WINDOW });
    fixture.queue_mut().frustrated_player_window = Some(FrustratedPlayerSpec {
        window_widen_factor: 2.0,
        window_shift_down_points: 3.0,
        ..FrustratedPlayerSpec::default()
    });
    fixture.add_ticket(&[6.0], 0);
    // The second ticket is frustrated: its window covers four buckets to either side of 7.
    fixture.add_ticket(&[10.0], 0);
    let explanation = explanation_of(&fixture, 1);
    assert_eq!((explanation.situation.range_factor, explanation.situation.rating_shift), (Some(2.0), Some(3.0)));
    assert_eq!(explanation.situation.bucket_and_range, Some((10, 4)));
    assert_eq!(
        explanation.near_misses[0].margin,
        Some(MeasuredAndLimit { measured: 4.0, limit: 2.0 }),
        "the other ticket reaches two buckets up, and the distance is four"
    );
    assert_eq!(explanation.smallest_relaxation, Some(Relaxation::Window { more_buckets: 2 }));
    let explanation = explanation_of(&fixture, 0);
    assert_eq!((explanation.situation.range_factor, explanation.situation.rating_shift), (None, None));
}

#[test]
fn explain_reports_the_limit_margin() {
    let mut fixture = QueueFixture::one_vs_one();
    let steps = [(0, 150.0), (30_000, 400.0)].map(|(start_ms, value)| ExpansionStep { start_ms, limit: value });
    fixture.ruleset.expansions =
        [Expansion::new("skill", Measure::AttributeDifference(0), steps.to_vec()).unwrap()].into();
    let rule = HardRule::Within { measure: Measure::AttributeDifference(0), expansion: 0, reciprocal_percent: 100.0 };
    fixture.ruleset.hard_filters = [HardFilter { name: "skill".into(), missing: HardMissingPolicy::Pass, rule }].into();
    fixture.add_ticket(&[1_000.0], 10_000);
    fixture.add_ticket(&[1_210.0], 40_000);
    fixture.add_ticket(&[1_900.0], 40_000);
    let explanation = explanation_of(&fixture, 0);
    assert_eq!(explanation.near_misses[0].ticket_id, ticket_id(1));
    assert_eq!(
        explanation.near_misses[0].first_refusal,
        Refusal::HardFilter { filter_index: 0, side: RefusingSide::Searcher }
    );
    assert_eq!(explanation.near_misses[0].margin, Some(MeasuredAndLimit { measured: 210.0, limit: 150.0 }));
    let expansion = Relaxation::Expansion { expansion: 0, current: 150.0, required: 210.0 };
    let wait = Relaxation::Wait { more_ms: 20_000 };
    assert!(
        explanation.smallest_relaxation == Some(wait) && explanation.other_relaxations.contains(&expansion),
        "{explanation:?}"
    );
}

#[test]
fn explain_reports_the_quality_margin() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = GAUSS_QUALITY;
    fixture.queue_mut().wait_bonus = Some(WaitBonus { per_combined_minute: 0.1, free_combined_minutes: 1.0 });
    for position in [100.0, 121.0] {
        fixture.add_ticket(&[position], 20_000);
        *fixture.leaderboard_positions.last_mut().unwrap() = Some(position);
    }
    let explanation = explanation_of(&fixture, 1);
    assert_eq!(explanation.refusal_counts, [(Refusal::LowQuality, 1)]);
    // 21 positions give 0.28809. 67.13 s of combined wait are needed, of which 40 s have passed.
    assert!(
        matches!(explanation.smallest_relaxation, Some(Relaxation::Quality { current, required }) if current == 0.3 && (0.2875..0.2881).contains(&required)),
        "{explanation:?}"
    );
    let more_ms = explanation.other_relaxations.iter().find_map(|it| match it {
        Relaxation::Wait { more_ms: ms } => Some(*ms),
        _ => None,
    });
    assert!(more_ms.is_some_and(|ms| (13_565..13_569).contains(&ms)), "{explanation:?}");
}

#[test]
fn explain_suggests_more_tickets_when_too_few_wait() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(&[2, 2]);
    fixture.add_ticket(&[1.0], 0);
    let explanation = explanation_of(&fixture, 0);
    assert_eq!(
        (explanation.candidate_count, explanation.smallest_relaxation),
        (0, Some(Relaxation::MoreTickets { more_tickets: 3 }))
    );
    fixture.add_ticket(&[1.0, 1.0], 0);
    assert_eq!(explanation_of(&fixture, 0).smallest_relaxation, Some(Relaxation::MoreTickets { more_tickets: 1 }));
    fixture.add_ticket(&[2.0], 0);
    let explanation = explanation_of(&fixture, 0);
    assert!(
        explanation.matches_now && explanation.smallest_relaxation.is_none() && explanation.compatible_count == 2,
        "{explanation:?}"
    );
}

/// For any ruleset: a ticket that matches has no relaxation, the budget holds, and a ticket is not its own candidate.
#[test]
fn explain_respects_its_pair_check_budget() {
    for seed in 0..300 {
        let fixture = random_queue_fixture(seed, 12);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            for max_pair_checks in [0, 5, 2_000] {
                let ticket_id = input.tickets[0].ticket.id;
                let explanation =
                    explain_ticket(input, &ExplainQuery { ticket_id, max_near_misses: 5, max_pair_checks }).unwrap();
                assert!(explanation.candidate_count as u64 <= max_pair_checks && explanation.near_misses.len() <= 5);
                assert!(explanation.near_misses.iter().all(|it| it.ticket_id != ticket_id));
                assert!(!(explanation.matches_now && explanation.smallest_relaxation.is_some()), "seed {seed}");
                if let Some(Relaxation::Wait { more_ms: ms }) = explanation.smallest_relaxation {
                    assert!(ms > 0 && input.now.plus_ms(ms) > NOW);
                }
            }
            let unknown = ExplainQuery { ticket_id: ticket_id(u64::MAX), max_near_misses: 1, max_pair_checks: 9 };
            assert_eq!(explain_ticket(input, &unknown), None);
        });
    }
}
