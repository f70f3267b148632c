//! Thousands of random queues, each pass held against the oracle.

use crate::queue::duel_fast_path;
use crate::queue::oracle;
use crate::queue::pass;
use crate::queue::quality::selection_weight;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, UNIT_WINDOW, random_below, random_queue_fixture, ticket_number};
use crate::ruleset::queue::{QualitySpec, SelectionMode, SelectionOrder};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule};

/// S0-9, S0-10, S2-13, S3-2, S3-8, S3-13, B-7: whatever the ruleset, every proposal keeps every promise.
#[test]
fn pass_proposals_satisfy_all_rules() {
    let mut matches = 0;
    for seed in 0..2_000 {
        let world = random_queue_fixture(seed, 24);
        world.with_input(&world.prepared_tickets(), |input| {
            let outcome = pass::run_pass(input);
            oracle::check_outcome(input, &outcome);
            matches += outcome.proposals.len();
        });
    }
    assert!(1_000 < matches, "{matches}");
}

/// The same tickets, rules, moment and dice give the same answer, in whatever order the tickets come.
#[test]
fn pass_result_is_independent_of_ticket_order() {
    for seed in 0..600 {
        let mut world = random_queue_fixture(seed, 24);
        let first = world.run_pass();
        let mut dice = SplitMix64(seed);
        for place in (1..world.tickets.len()).rev() {
            let other = random_below(&mut dice, place as u64 + 1) as usize;
            world.tickets.swap(place, other);
            world.leaderboard_positions.swap(place, other);
        }
        assert_eq!(world.run_pass(), first, "seed {seed}");
    }
}

/// One against one, in the mode given; pools are one, for their order is not the oracle's to know.
fn random_one_vs_one(seed: u64, most: u64, mode: SelectionMode) -> QueueFixture {
    let mut world = random_queue_fixture(seed, most);
    world.set_team_sizes(&[1, 1]);
    for (ticket, place) in world.tickets.iter_mut().zip(&mut world.leaderboard_positions) {
        let mut single = (**ticket).clone();
        single.session.party_sizes = vec![1];
        single.session.players.truncate(1);
        single.player_ratings.truncate(1);
        *ticket = single.into();
        *place = place.map(|it| it + 0.0);
    }
    world.queue_mut().selection.mode = mode;
    world
}

fn matched_pairs(world: &QueueFixture) -> Vec<[u64; 2]> {
    let mut pairs: Vec<[u64; 2]> =
        world.matched_ticket_numbers().into_iter().map(|it| <[u64; 2]>::try_from(it).unwrap()).collect();
    pairs.sort_unstable();
    pairs
}

fn sorted_numbers(pairs: Vec<[crate::id::TicketId; 2]>) -> Vec<[u64; 2]> {
    let numbers = |[one, other]: [crate::id::TicketId; 2]| {
        let (one, other) = (ticket_number(one), ticket_number(other));
        [one.min(other), one.max(other)]
    };
    let mut pairs: Vec<[u64; 2]> = pairs.into_iter().map(numbers).collect();
    pairs.sort_unstable();
    pairs
}

/// S0-3, S0-12, S0-18, B-5: looking at neighbours alone finds the same pairs as asking everybody, however much is asked
/// of the other side; nobody of one's own bucket is overlooked, and no pair is made twice.
#[test]
fn nearest_selection_agrees_with_the_oracle() {
    for seed in 0..800 {
        let world = random_one_vs_one(seed, 20, SelectionMode::Nearest);
        let slow = world.with_input(&world.prepared_tickets(), |input| sorted_numbers(oracle::nearest_pairs(input)));
        assert_eq!(matched_pairs(&world), slow, "seed {seed}");
    }
}

/// S0-3: how many pairs a pass judges grows with how many wait, and not with its square: hardly any where neighbours
/// suit each other, and at most `look_at` each where nobody suits anybody.
#[test]
fn pass_pair_checks_grow_linearly_with_tickets() {
    let judged = |count: u64, suits: bool| {
        let mut world = QueueFixture::one_vs_one();
        match suits {
            true => world.queue_mut().window = Some(UNIT_WINDOW),
            false => {
                let rule = HardRule::Range { attribute: 3, min: 0.0, max: 1.0 };
                let silent = HardFilter { name: "taste".into(), missing: HardMissingPolicy::Refuse, rule };
                world.ruleset.hard_filters = [silent].into();
            }
        }
        for number in 0..count {
            world.add_ticket(&[50.0 * number as f64 / count as f64], number % 7);
        }
        world.run_pass().report.pair_checks
    };
    for count in [600, 1_200] {
        assert!(judged(count, true) <= count, "{} of {count}", judged(count, true));
        let (some, twice_as_many) = (judged(count, false), judged(2 * count, false));
        assert!(
            some <= 256 * count && twice_as_many <= 2 * some,
            "{some} of {count}, {twice_as_many} of twice as many"
        );
    }
}

/// S4-5: from the highest rated down.
#[test]
fn first_window_selection_agrees_with_the_oracle() {
    for seed in 0..800 {
        let mut world = random_one_vs_one(seed, 20, SelectionMode::BestWindow);
        world.queue_mut().selection.start_with = SelectionOrder::HighestRated;
        let slow =
            world.with_input(&world.prepared_tickets(), |input| sorted_numbers(oracle::first_window_pairs(input)));
        assert_eq!(matched_pairs(&world), slow, "seed {seed}");
    }
}

/// Up to eight tickets no pairing has a greater sum; by the quick way none is left out that could be paired with another.
#[test]
fn maximum_weight_selection_reaches_the_best_total_weight() {
    let mut short_of = Vec::new();
    for seed in 0..400 {
        let mut world = random_one_vs_one(seed, 8, SelectionMode::MaximumWeight);
        for exact_up_to in [1_000, 0] {
            world.queue_mut().selection.exact_up_to = exact_up_to;
            let entrants = world.prepared_tickets();
            world.with_input(&entrants, |input| {
                let outcome = pass::run_pass(input);
                let best = oracle::best_total_weight(input, input.tickets);
                let find = |id| input.tickets.iter().find(|it| it.ticket.id == id).copied().unwrap();
                let total: f64 = outcome
                    .proposals
                    .iter()
                    .map(|it| match input.queue.quality {
                        QualitySpec::Any => {
                            oracle::pair_weight(input, find(it.teams[0][0].ticket_id), find(it.teams[1][0].ticket_id))
                                .unwrap()
                        }
                        ref quality => selection_weight(quality, it.quality),
                    })
                    .sum();
                if exact_up_to == 0 {
                    short_of.push(total / best.max(f64::MIN_POSITIVE));
                    let left: Vec<_> = outcome.report.unmatched.iter().map(|it| find(it.ticket_id)).collect();
                    let pair = left.iter().any(|one| {
                        left.iter().any(|other| {
                            one.ticket.id < other.ticket.id && oracle::pair_weight(input, one, other).is_some()
                        })
                    });
                    assert!(!pair, "seed {seed}: two were left who would do");
                } else {
                    assert!((total - best).abs() <= 1e-6 * best.max(1.0), "seed {seed}: {total} of {best}");
                }
            });
        }
    }
    let mean =
        short_of.iter().filter(|it| 0.0 < **it).sum::<f64>() / short_of.iter().filter(|it| 0.0 < **it).count() as f64;
    assert!(0.97 < mean, "{mean}");
}

/// A budget is kept to, and whoever was not come to is told so.
#[test]
fn pass_stops_at_its_pair_check_budget() {
    for seed in 0..400 {
        let mut world = random_queue_fixture(seed, 24);
        world.max_pair_checks = random_below(&mut SplitMix64(seed), 40);
        world.with_input(&world.prepared_tickets(), |input| {
            let outcome = pass::run_pass(input);
            oracle::check_outcome(input, &outcome);
            assert!(outcome.report.pair_checks <= world.max_pair_checks, "seed {seed}");
        });
    }
}

/// The short way by rating alone finds what the long way finds, report and all.
#[test]
fn duel_fast_path_agrees_with_the_general_pass() {
    let mut short = 0;
    for seed in 0..400 {
        let mut world = random_one_vs_one(seed, 24, SelectionMode::BestWindow);
        world.ruleset.hard_filters = Box::default();
        let queue = world.queue_mut();
        (queue.groups, queue.regions, queue.window, queue.quality) = (None, None, None, QualitySpec::Any);
        (queue.avoid, queue.selection.start_with) = (Box::default(), SelectionOrder::HighestRated);
        world.with_input(&world.prepared_tickets(), |input| {
            short += usize::from(duel_fast_path::try_run(input).is_some());
            assert_eq!(pass::run_pass(input), pass::run_general_pass(input, usize::MAX), "seed {seed}");
        });
    }
    assert_eq!(short, 400);
}
