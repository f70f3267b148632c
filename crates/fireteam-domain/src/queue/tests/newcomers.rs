//! Passes that examine only the windows of newcomers, compared with passes over the whole queue.

use std::sync::Arc;

use crate::filter::Refusal;
use crate::queue::pass::{self, PassInput, PassOutcome};
use crate::queue::pass_memory::PassMemory;
use crate::queue::queue_without_matches::QueueWithoutMatches;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, one_in, pick_random, random_below, random_queue_fixture};
use crate::queue::ticket::Ticket;
use crate::ruleset::queue::{QualitySpec, SelectionMode, SelectionOrder, SelectionSpec};
use crate::ruleset::{HardMissingPolicy, HardRule};

fn evaluated_queue(fixture: &QueueFixture, outcome: &PassOutcome) -> Option<QueueWithoutMatches> {
    let (queue, teams) = (fixture.ruleset.queue.as_ref().unwrap(), fixture.ruleset.teams.as_ref().unwrap());
    QueueWithoutMatches::reusable_after_pass(queue, teams, &outcome.report)
}

/// Pass over a queue that is known to have been without a match.
fn run_after(input: &PassInput<'_>, evaluated: &QueueWithoutMatches) -> PassOutcome {
    let mut memory = PassMemory { queue_without_matches: Some(evaluated.clone()), ..PassMemory::default() };
    pass::run_pass_with_memory(input, &mut memory)
}

/// Random queue that selects windows, without rules for which the next pass must examine all.
fn random_window_fixture(seed: u64) -> (QueueFixture, SplitMix64) {
    let mut fixture = random_queue_fixture(seed, 40);
    let mut rng = SplitMix64(!seed);
    let queue = fixture.queue_mut();
    queue.avoid = [].into();
    queue.selection.mode = SelectionMode::FirstWindow;
    queue.selection.max_candidates = pick_random(&mut rng, &[2, 5, 256]);
    (fixture, rng)
}

/// Moves the tickets for which `stays` is `false` out of the queue.
fn take_out(fixture: &mut QueueFixture, mut stays: impl FnMut(&Ticket) -> bool) -> Vec<(Arc<Ticket>, Option<f64>)> {
    let positions = std::mem::take(&mut fixture.leaderboard_positions);
    let tickets = std::mem::take(&mut fixture.tickets).into_iter().zip(positions);
    let (staying, leaving): (Vec<_>, Vec<_>) = tickets.partition(|(ticket, _)| stays(ticket));
    (fixture.tickets, fixture.leaderboard_positions) = staying.into_iter().unzip();
    leaving
}

/// S4-16: a pass of newcomers makes the matches of a pass over the whole queue, refuses by the same rules and waits no longer, for any
/// ruleset, with less work.
#[test]
fn pass_of_newcomers_equals_a_pass_over_the_whole_queue() {
    let (mut compared, mut matches, mut checks, mut checks_of_all) = (0, 0, 0, 0);
    for seed in 0..6_000 {
        let (mut fixture, mut rng) = random_window_fixture(seed);
        let mut newcomers = take_out(&mut fixture, |_| !one_in(&mut rng, 3));
        // Passes over those who wait, until they find nothing.
        let evaluated = loop {
            let outcome = fixture.run_pass();
            if outcome.proposals.is_empty() {
                break evaluated_queue(&fixture, &outcome);
            }
            let gone: Vec<_> =
                outcome.proposals.iter().flat_map(|it| it.teams.iter().flatten()).map(|it| it.ticket_id).collect();
            take_out(&mut fixture, |ticket| !gone.contains(&ticket.id));
        };
        let evaluated = evaluated.unwrap();
        let left_before = fixture.tickets.len();
        newcomers.truncate(1 + random_below(&mut rng, 5) as usize);
        for (ticket, position) in newcomers {
            fixture.tickets.push(ticket);
            fixture.leaderboard_positions.push(position);
        }
        // Limits may have grown since.
        fixture.now.0 += pick_random(&mut rng, &[0, 1, 400, 30_000]);
        if fixture.tickets.len() == left_before {
            continue;
        }
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let all = pass::run_pass(input);
            let some = run_after(input, &evaluated);
            assert_eq!(some.proposals, all.proposals, "seed {seed}");
            // Never too late. It may be too early for a window that a newcomer has changed. The time at which a wait bonus suffices is
            // rounded up from the time of the pass, and this pass may keep that of an earlier one: a millisecond of rounding.
            let change_at = |outcome: &PassOutcome| outcome.report.next_change_at.map_or(u64::MAX, |at| at.0);
            assert!(change_at(&some) <= change_at(&all).saturating_add(1), "seed {seed}");
            // A filter that passes missing values divides the queue until a newcomer comes without one.
            let divides = input.ruleset.hard_filters.iter().any(|filter| {
                matches!(filter.rule, HardRule::Equal { .. }) && filter.missing == HardMissingPolicy::Pass
            });
            if !divides {
                assert_eq!(some.report.unmatched, all.report.unmatched, "seed {seed}");
            }
            compared += 1;
            matches += all.proposals.len();
            checks += some.report.pair_checks;
            checks_of_all += all.report.pair_checks;
        });
    }
    assert!(5_000 < compared && 500 < matches, "{compared} passes, {matches} matches");
    assert!(checks * 10 < checks_of_all * 9, "{checks} of {checks_of_all}");
}

/// S4-16: beside a thousand tickets that do not match, a newcomer costs the windows around it.
#[test]
fn newcomer_costs_the_windows_that_it_touches() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 2_900.0, required_percent: 99.95 };
    fixture.queue_mut().selection = SelectionSpec {
        mode: SelectionMode::FirstWindow,
        start_with: SelectionOrder::HighestRated,
        max_candidates: 8,
        exact_up_to_tickets: 0,
        look: Default::default(),
    };
    for number in 0..1_000 {
        fixture.add_ticket(&[f64::from(number) * 10.0], 0);
    }
    let first = fixture.run_pass();
    let evaluated = evaluated_queue(&fixture, &first).unwrap();
    let newcomer = fixture.add_ticket(&[5_005.0], 0);
    let run =
        |fixture: &QueueFixture| fixture.with_input(&fixture.prepared_tickets(), |input| run_after(input, &evaluated));
    let report = run(&fixture).report;
    assert!(report.pair_checks < 20 && first.report.pair_checks > 900, "{report:?}");
    assert_eq!((report.unmatched.len(), report.unmatched.last().unwrap().ticket_id), (1_001, newcomer));
    // The window of the lowest one is empty.
    let refused = report.unmatched.iter().filter(|it| it.refusal == Refusal::LowQuality).count();
    assert_eq!(refused, 1_000, "{report:?}");
    // Close enough to one of them: their match, and no one else's.
    fixture.add_ticket(&[5_006.0], 0);
    assert_eq!(run(&fixture).proposals.len(), 1);
}

/// S4-16: a pass that left something open does not stand for the next one.
#[test]
fn only_a_complete_pass_without_a_match_lets_the_next_one_examine_newcomers() {
    let (mut fixture, _) = random_window_fixture(1);
    fixture.tickets.clear();
    fixture.leaderboard_positions.clear();
    let outcome = fixture.run_pass();
    assert!(evaluated_queue(&fixture, &outcome).is_some());
    for change in [
        |outcome: &mut PassOutcome| outcome.report.truncated = true,
        |outcome: &mut PassOutcome| outcome.report.match_limit_reached = true,
        |outcome: &mut PassOutcome| outcome.report.proposed_ticket_count = 2,
    ] {
        let mut changed = outcome.clone();
        change(&mut changed);
        assert!(evaluated_queue(&fixture, &changed).is_none());
    }
    fixture.queue_mut().selection.mode = SelectionMode::Nearest;
    assert!(evaluated_queue(&fixture, &outcome).is_none());
}
