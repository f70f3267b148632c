//! Thousands of random queues, each pass held against the oracle.

use crate::domain::queue::dice::Dice;
use crate::domain::queue::lean;
use crate::domain::queue::oracle;
use crate::domain::queue::pass;
use crate::domain::queue::quality::weight;
use crate::domain::queue::tests::world::{WINDOW, World, below, number_of, random};
use crate::domain::ruleset::queue::{Quality, SelectionMode, StartWith};
use crate::domain::ruleset::{HardFilter, HardRule, MissingHard};

/// S0-9, S0-10, S2-13, S3-2, S3-8, S3-13, B-7: whatever the ruleset, every proposal keeps every promise.
#[test]
fn whoever_is_put_together_may_be() {
    let mut matches = 0;
    for seed in 0..2_000 {
        let world = random(seed, 24);
        world.with(&world.entrants(), |input| {
            let outcome = pass::run(input);
            oracle::check(input, &outcome);
            matches += outcome.proposals.len();
        });
    }
    assert!(1_000 < matches, "{matches}");
}

/// The same tickets, rules, moment and dice give the same answer, in whatever order the tickets come.
#[test]
fn the_order_in_which_tickets_come_does_not_matter() {
    for seed in 0..600 {
        let mut world = random(seed, 24);
        let first = world.pass();
        let mut dice = Dice(seed);
        for place in (1..world.tickets.len()).rev() {
            let other = below(&mut dice, place as u64 + 1) as usize;
            world.tickets.swap(place, other);
            world.places.swap(place, other);
        }
        assert_eq!(world.pass(), first, "seed {seed}");
    }
}

/// One against one, in the mode given; pools are one, for their order is not the oracle's to know.
fn duels(seed: u64, most: u64, mode: SelectionMode) -> World {
    let mut world = random(seed, most);
    world.sizes(&[1, 1]);
    for (ticket, place) in world.tickets.iter_mut().zip(&mut world.places) {
        let mut single = (**ticket).clone();
        single.session.party_sizes = vec![1];
        single.session.players.truncate(1);
        single.ratings.truncate(1);
        *ticket = single.into();
        *place = place.map(|it| it + 0.0);
    }
    world.queue().selection.mode = mode;
    world
}

fn pairs(world: &World) -> Vec<[u64; 2]> {
    let mut pairs: Vec<[u64; 2]> = world.matches().into_iter().map(|it| <[u64; 2]>::try_from(it).unwrap()).collect();
    pairs.sort_unstable();
    pairs
}

fn sorted(pairs: Vec<[crate::domain::id::TicketId; 2]>) -> Vec<[u64; 2]> {
    let numbers = |[one, other]: [crate::domain::id::TicketId; 2]| {
        let (one, other) = (number_of(one), number_of(other));
        [one.min(other), one.max(other)]
    };
    let mut pairs: Vec<[u64; 2]> = pairs.into_iter().map(numbers).collect();
    pairs.sort_unstable();
    pairs
}

/// S0-3, S0-12, S0-18, B-5: looking at neighbours alone finds the same pairs as asking everybody, however much is asked
/// of the other side; nobody of one's own bucket is overlooked, and no pair is made twice.
#[test]
fn the_nearest_are_those_that_asking_everybody_finds() {
    for seed in 0..800 {
        let world = duels(seed, 20, SelectionMode::Nearest);
        let slow = world.with(&world.entrants(), |input| sorted(oracle::nearest(input)));
        assert_eq!(pairs(&world), slow, "seed {seed}");
    }
}

/// S0-3: how many pairs a pass judges grows with how many wait, and not with its square: hardly any where neighbours
/// suit each other, and at most `look_at` each where nobody suits anybody.
#[test]
fn a_pass_judges_far_fewer_than_every_pair() {
    let judged = |count: u64, suits: bool| {
        let mut world = World::plain();
        match suits {
            true => world.queue().window = Some(WINDOW),
            false => {
                let rule = HardRule::Range { attribute: 3, min: 0.0, max: 1.0 };
                let silent = HardFilter { name: "taste".into(), missing: MissingHard::Refuse, rule };
                world.ruleset.hard = [silent].into();
            }
        }
        for number in 0..count {
            world.enters(&[50.0 * number as f64 / count as f64], number % 7);
        }
        world.pass().report.looks
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
fn windows_of_two_are_those_that_a_list_finds() {
    for seed in 0..800 {
        let mut world = duels(seed, 20, SelectionMode::BestWindow);
        world.queue().selection.start_with = StartWith::HighestRated;
        let slow = world.with(&world.entrants(), |input| sorted(oracle::windows_of_two(input)));
        assert_eq!(pairs(&world), slow, "seed {seed}");
    }
}

/// Up to eight tickets no pairing has a greater sum; by the quick way none is left out that could be paired with another.
#[test]
fn all_at_once_is_the_best_of_all_pairings() {
    let mut short_of = Vec::new();
    for seed in 0..400 {
        let mut world = duels(seed, 8, SelectionMode::MaximumWeight);
        for exact_up_to in [1_000, 0] {
            world.queue().selection.exact_up_to = exact_up_to;
            let entrants = world.entrants();
            world.with(&entrants, |input| {
                let outcome = pass::run(input);
                let best = oracle::best_total(input, input.entrants);
                let find = |id| input.entrants.iter().find(|it| it.ticket.id == id).copied().unwrap();
                let total: f64 = outcome
                    .proposals
                    .iter()
                    .map(|it| match input.queue.quality {
                        Quality::Any => {
                            oracle::weight(input, find(it.teams[0][0].ticket), find(it.teams[1][0].ticket)).unwrap()
                        }
                        ref quality => weight(quality, it.quality),
                    })
                    .sum();
                if exact_up_to == 0 {
                    short_of.push(total / best.max(f64::MIN_POSITIVE));
                    let left: Vec<_> = outcome.report.left.iter().map(|it| find(it.ticket)).collect();
                    let pair = left.iter().any(|one| {
                        left.iter()
                            .any(|other| one.ticket.id < other.ticket.id && oracle::weight(input, one, other).is_some())
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
fn a_pass_ends_when_its_looks_do() {
    for seed in 0..400 {
        let mut world = random(seed, 24);
        world.looks_max = below(&mut Dice(seed), 40);
        world.with(&world.entrants(), |input| {
            let outcome = pass::run(input);
            oracle::check(input, &outcome);
            assert!(outcome.report.looks <= world.looks_max, "seed {seed}");
        });
    }
}

/// The short way by rating alone finds what the long way finds, report and all.
#[test]
fn the_short_way_is_the_long_way() {
    let mut short = 0;
    for seed in 0..400 {
        let mut world = duels(seed, 24, SelectionMode::BestWindow);
        world.ruleset.hard = Box::default();
        let queue = world.queue();
        (queue.groups, queue.regions, queue.window, queue.quality) = (None, None, None, Quality::Any);
        (queue.avoid, queue.selection.start_with) = (Box::default(), StartWith::HighestRated);
        world.with(&world.entrants(), |input| {
            short += usize::from(lean::run(input).is_some());
            assert_eq!(pass::run(input), pass::thorough(input, usize::MAX), "seed {seed}");
        });
    }
    assert_eq!(short, 400);
}
