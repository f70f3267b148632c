//! Thousands of random queues, each pass compared with the reference implementation.

use crate::queue::duel_fast_path;
use crate::queue::oracle;
use crate::queue::pass;
use crate::queue::quality::selection_weight;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, UNIT_WINDOW, random_below, random_queue_fixture, ticket_number};
use crate::queue::tests::random_wishes::forbid_wishes;
use crate::ruleset::queue::{LookDirection, QualitySpec, SelectionMode, SelectionOrder};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule};

/// S0-9, S0-10, S2-13, S3-2, S3-8, S3-13, B-7: for any ruleset, every proposal satisfies all rules.
#[test]
fn pass_proposals_satisfy_all_rules() {
    let mut matches = 0;
    for seed in 0..2_000 {
        let fixture = random_queue_fixture(seed, 24);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let outcome = pass::run_pass(input);
            oracle::assert_outcome_is_valid(input, &outcome);
            matches += outcome.proposals.len();
        });
    }
    assert!(matches > 1_000, "{matches}");
}

/// The same tickets, rules, time and seed give the same result, in any order of the tickets.
#[test]
fn pass_result_is_independent_of_ticket_order() {
    for seed in 0..600 {
        let mut fixture = random_queue_fixture(seed, 24);
        let first = fixture.run_pass();
        let mut rng = SplitMix64(seed);
        for index in (1..fixture.tickets.len()).rev() {
            let other = random_below(&mut rng, index as u64 + 1) as usize;
            fixture.tickets.swap(index, other);
            fixture.leaderboard_positions.swap(index, other);
        }
        assert_eq!(fixture.run_pass(), first, "seed {seed}");
    }
}

/// Random 1v1 queue in the given mode. It has one pool, because the reference implementation does not order pools.
fn random_one_vs_one(seed: u64, max_tickets: u64, mode: SelectionMode) -> QueueFixture {
    let mut fixture = random_queue_fixture(seed, max_tickets);
    fixture.set_team_sizes(&[1, 1]);
    for (ticket, position) in fixture.tickets.iter_mut().zip(&mut fixture.leaderboard_positions) {
        let mut single = (**ticket).clone();
        single.session.party_sizes = [1].into();
        single.session.players.truncate(1);
        single.player_ratings.truncate(1);
        *ticket = single.into();
        *position = position.map(|position| position + 0.0);
    }
    fixture.queue_mut().selection.mode = mode;
    fixture
}

fn matched_pairs(fixture: &QueueFixture) -> Vec<[u64; 2]> {
    let mut pairs: Vec<[u64; 2]> =
        fixture.matched_ticket_numbers().into_iter().map(|it| <[u64; 2]>::try_from(it).unwrap()).collect();
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

/// S0-3, S0-12, B-5: searching from near to far finds the same pairs as evaluating all pairs, for any
/// reciprocity. No ticket of the same bucket is missed, and no pair is made twice.
#[test]
fn nearest_selection_agrees_with_the_oracle() {
    for seed in 0..800 {
        let fixture = random_one_vs_one(seed, 20, SelectionMode::Nearest);
        let expected =
            fixture.with_input(&fixture.prepared_tickets(), |input| sorted_numbers(oracle::nearest_pairs(input)));
        assert_eq!(matched_pairs(&fixture), expected, "seed {seed}");
    }
}

/// S0-18: from the highest rating down, looking only down makes the matches of looking both ways, for any reciprocity: a ticket
/// above that still waits has been refused. It takes fewer checks, and half of them where no pair may meet. Those of one bucket see
/// each other, and no pair is made twice.
#[test]
fn looking_one_way_makes_the_same_pairs_with_fewer_checks() {
    let (mut down_checks, mut both_checks) = (0, 0);
    for seed in 0..800 {
        let mut fixture = random_one_vs_one(seed, 20, SelectionMode::Nearest);
        fixture.queue_mut().selection.start_with = SelectionOrder::HighestRated;
        if let QualitySpec::LeaderboardGauss { .. } = fixture.queue_mut().quality {
            // Sorted by place, which need not be the order of ratings.
            fixture.queue_mut().quality = QualitySpec::Any;
        }
        let both = fixture.run_pass();
        fixture.queue_mut().selection.look = LookDirection::Down;
        let down = fixture.run_pass();
        assert_eq!(down.proposals, both.proposals, "seed {seed}");
        assert!(down.report.pair_checks <= both.report.pair_checks, "seed {seed}");
        down_checks += down.report.pair_checks;
        both_checks += both.report.pair_checks;
        fixture.queue_mut().selection.look = LookDirection::Up;
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            oracle::assert_outcome_is_valid(input, &pass::run_pass(input))
        });
    }
    assert!(down_checks * 4 < both_checks * 3, "{down_checks} of {both_checks}");
    let mut fixture = QueueFixture::one_vs_one();
    let rule = HardRule::Range { attribute: 3, min: 0.0, max: 1.0 };
    fixture.ruleset.hard_filters =
        [HardFilter { name: "taste".into(), missing: HardMissingPolicy::Refuse, rule }].into();
    for number in 0..100 {
        fixture.add_ticket(&[f64::from(number)], 0);
    }
    let mut checks = |look| {
        fixture.queue_mut().selection.look = look;
        fixture.run_pass().report.pair_checks
    };
    assert_eq!([LookDirection::Both, LookDirection::Down, LookDirection::Up].map(&mut checks), [9_900, 4_950, 4_950]);
}

/// S0-3: the number of pair checks grows linearly with the number of tickets. It is small if neighbors match, and at
/// most `max_candidates` per ticket if no ticket matches.
#[test]
fn pass_pair_checks_grow_linearly_with_tickets() {
    let pair_checks = |count: u64, neighbors_match: bool| {
        let mut fixture = QueueFixture::one_vs_one();
        match neighbors_match {
            true => fixture.queue_mut().window = Some(UNIT_WINDOW),
            false => {
                let rule = HardRule::Range { attribute: 3, min: 0.0, max: 1.0 };
                let refusing = HardFilter { name: "taste".into(), missing: HardMissingPolicy::Refuse, rule };
                fixture.ruleset.hard_filters = [refusing].into();
            }
        }
        for number in 0..count {
            fixture.add_ticket(&[50.0 * number as f64 / count as f64], number % 7);
        }
        fixture.run_pass().report.pair_checks
    };
    for count in [600, 1_200] {
        assert!(pair_checks(count, true) <= count, "{} of {count}", pair_checks(count, true));
        let (once, doubled) = (pair_checks(count, false), pair_checks(2 * count, false));
        assert!(once <= 256 * count && doubled <= 2 * once, "{once} of {count}, {doubled} of twice as many");
    }
}

/// S4-5: from the highest rating down.
#[test]
fn first_window_selection_agrees_with_the_oracle() {
    for seed in 0..800 {
        let mut fixture = random_one_vs_one(seed, 20, SelectionMode::FirstWindow);
        fixture.queue_mut().selection.start_with = SelectionOrder::HighestRated;
        let expected =
            fixture.with_input(&fixture.prepared_tickets(), |input| sorted_numbers(oracle::first_window_pairs(input)));
        assert_eq!(matched_pairs(&fixture), expected, "seed {seed}");
    }
}

/// For up to eight tickets, no pairing has a larger total weight. The greedy method leaves no two tickets that could be
/// paired.
#[test]
fn maximum_weight_selection_reaches_the_best_total_weight() {
    let mut ratios = Vec::new();
    for seed in 0..400 {
        let mut fixture = random_one_vs_one(seed, 8, SelectionMode::MaximumWeight);
        for exact_up_to_tickets in [1_000, 0] {
            fixture.queue_mut().selection.exact_up_to_tickets = exact_up_to_tickets;
            let tickets = fixture.prepared_tickets();
            fixture.with_input(&tickets, |input| {
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
                if exact_up_to_tickets == 0 {
                    ratios.push(total / best.max(f64::MIN_POSITIVE));
                    let unmatched: Vec<_> = outcome.report.unmatched.iter().map(|it| find(it.ticket_id)).collect();
                    let has_pair = unmatched.iter().any(|one| {
                        unmatched.iter().any(|other| {
                            one.ticket.id < other.ticket.id && oracle::pair_weight(input, one, other).is_some()
                        })
                    });
                    assert!(!has_pair, "seed {seed}: two unmatched tickets could be paired");
                } else {
                    assert!((total - best).abs() <= 1e-6 * best.max(1.0), "seed {seed}: {total} of {best}");
                }
            });
        }
    }
    let mean =
        ratios.iter().filter(|it| **it > 0.0).sum::<f64>() / ratios.iter().filter(|it| **it > 0.0).count() as f64;
    assert!(mean > 0.97, "{mean}");
}

/// The budget holds, and tickets that were not evaluated are reported as such.
#[test]
fn pass_stops_at_its_pair_check_budget() {
    for seed in 0..400 {
        let mut fixture = random_queue_fixture(seed, 24);
        fixture.max_pair_checks = random_below(&mut SplitMix64(seed), 40);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let outcome = pass::run_pass(input);
            oracle::assert_outcome_is_valid(input, &outcome);
            assert!(outcome.report.pair_checks <= fixture.max_pair_checks, "seed {seed}");
        });
    }
}

/// The fast path returns the same result as the general pass, with an equal report.
#[test]
fn duel_fast_path_agrees_with_the_general_pass() {
    let mut fast_passes = 0;
    for seed in 0..400 {
        let mut fixture = random_one_vs_one(seed, 24, SelectionMode::FirstWindow);
        fixture.ruleset.hard_filters = Box::default();
        let has_wishes = fixture.tickets.iter().any(|ticket| ticket.session.details.is_some());
        if seed % 4 == 1 {
            forbid_wishes(&mut fixture);
        }
        let queue = fixture.queue_mut();
        (queue.groups, queue.regions, queue.window, queue.quality) = (None, None, None, QualitySpec::Any);
        (queue.avoid, queue.selection.start_with) = (Box::default(), SelectionOrder::HighestRated);
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let is_fast = duel_fast_path::try_run(input).is_some();
            fast_passes += usize::from(is_fast);
            assert_eq!(is_fast, !has_wishes || !input.ruleset.allows_wishes(), "seed {seed}");
            assert_eq!(pass::run_pass(input), pass::run_general_pass(input, usize::MAX, None), "seed {seed}");
        });
    }
    assert!(fast_passes > 250, "{fast_passes}");
}
