//! Passes that keep failed searches, compared with passes over the whole queue.

use std::sync::Arc;

use crate::id::TicketId;
use crate::queue::pass::{self, PassOutcome};
use crate::queue::pass_memory::PassMemory;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{
    QueueFixture, UNIT_WINDOW, one_in, pick_random, random_below, random_queue_fixture, user_key,
};
use crate::queue::ticket::Ticket;
use crate::ruleset::queue::{QualitySpec, RatingWindow, SelectionMode};

/// Queue whose tickets enter, leave and change between passes.
struct ChangingQueue {
    fixture: QueueFixture,
    rng: SplitMix64,
    /// Tickets that have not entered, with their leaderboard positions.
    outside: Vec<(Arc<Ticket>, Option<f64>)>,
    memory: PassMemory,
}

impl ChangingQueue {
    fn random(seed: u64) -> Self {
        let mut fixture = random_queue_fixture(seed, 60);
        let mut rng = SplitMix64(!seed);
        fixture.queue_mut().selection.mode = SelectionMode::Nearest;
        fixture.queue_mut().selection.max_candidates = pick_random(&mut rng, &[2, 5, 256, 256]);
        let mut queue = Self { fixture, rng, outside: Vec::new(), memory: PassMemory::default() };
        queue.take_out(|rng, _| one_in(rng, 2));
        queue
    }

    /// Moves the tickets for which `leaves` is `true` out of the queue.
    fn take_out(&mut self, mut leaves: impl FnMut(&mut SplitMix64, TicketId) -> bool) {
        let positions = std::mem::take(&mut self.fixture.leaderboard_positions);
        let tickets = std::mem::take(&mut self.fixture.tickets).into_iter().zip(positions);
        for (ticket, position) in tickets {
            if leaves(&mut self.rng, ticket.id) {
                self.outside.push((ticket, position));
            } else {
                self.fixture.tickets.push(ticket);
                self.fixture.leaderboard_positions.push(position);
            }
        }
    }

    fn enter_some(&mut self) {
        for _ in 0..random_below(&mut self.rng, 4) {
            if self.outside.is_empty() {
                return;
            }
            let chosen = random_below(&mut self.rng, self.outside.len() as u64) as usize;
            let (ticket, position) = self.outside.swap_remove(chosen);
            self.fixture.tickets.push(ticket);
            self.fixture.leaderboard_positions.push(position);
        }
    }

    /// A player blocks another one.
    fn change_one(&mut self) {
        if self.fixture.tickets.is_empty() {
            return;
        }
        let chosen = random_below(&mut self.rng, self.fixture.tickets.len() as u64) as usize;
        let ticket = Arc::make_mut(&mut self.fixture.tickets[chosen]);
        ticket.blocked_users = vec![user_key(random_below(&mut self.rng, 60), 0)];
        self.memory.forget(ticket.id);
    }

    /// Runs the pass with and without memory.
    fn run_both(&mut self) -> (PassOutcome, PassOutcome) {
        let (prepared, memory): (Vec<PreparedTicket>, _) = (self.fixture.prepared_tickets(), &mut self.memory);
        self.fixture.with_input(&prepared, |input| (pass::run_pass(input), pass::run_pass_with_memory(input, memory)))
    }
}

/// S4-16: passes that keep failed searches make the matches of passes over the whole queue, for any ruleset, while tickets enter, leave,
/// change, are matched or come back from a match, and limits grow; with less work.
#[test]
fn passes_with_kept_searches_equal_passes_over_the_whole_queue() {
    let (mut compared, mut matches, mut checks, mut checks_of_all) = (0, 0, 0, 0);
    for seed in 0..3_000 {
        let mut queue = ChangingQueue::random(seed);
        for step in 0..10 {
            queue.enter_some();
            queue.take_out(|rng, _| one_in(rng, 20));
            if one_in(&mut queue.rng, 4) {
                queue.change_one();
            }
            queue.fixture.now.0 += pick_random(&mut queue.rng, &[0, 1, 100, 400, 3_000, 20_000]);
            let (all, some) = queue.run_both();
            assert_eq!(some.proposals, all.proposals, "seed {seed}, step {step}");
            assert_eq!(some.report.next_change_at, all.report.next_change_at, "seed {seed}, step {step}");
            let ids =
                |outcome: &PassOutcome| outcome.report.unmatched.iter().map(|it| it.ticket_id).collect::<Vec<_>>();
            assert_eq!(ids(&some), ids(&all), "seed {seed}, step {step}");
            // Some matches fail, and their tickets wait again.
            let proposed = all.proposals.iter().flat_map(|it| it.teams.iter().flatten()).map(|it| it.ticket_id);
            let gone: Vec<TicketId> = if one_in(&mut queue.rng, 5) { Vec::new() } else { proposed.collect() };
            queue.take_out(|_, id| gone.contains(&id));
            compared += 1;
            matches += all.proposals.len();
            checks += some.report.pair_checks;
            checks_of_all += all.report.pair_checks;
        }
    }
    assert!(10_000 < matches, "{matches} matches in {compared} passes");
    assert!(checks * 10 < checks_of_all * 9, "{checks} of {checks_of_all}");
}

/// S4-16: beside a thousand tickets that do not match, a newcomer costs the tickets within its window.
#[test]
fn newcomer_costs_the_tickets_within_its_window() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.queue_mut().window = Some(RatingWindow { initial_half_width: 2, max_half_width: Some(2), ..UNIT_WINDOW });
    for number in 0..1_000 {
        fixture.add_ticket(&[f64::from(number) * 3.0], 0);
    }
    let mut memory = PassMemory::default();
    let mut run = |fixture: &QueueFixture| {
        fixture.with_input(&fixture.prepared_tickets(), |input| pass::run_pass_with_memory(input, &mut memory))
    };
    assert_eq!(run(&fixture).report.unmatched.len(), 1_000);
    assert_eq!(run(&fixture).report.pair_checks, 0, "nothing has changed");
    fixture.add_ticket(&[-3.0], 0);
    assert!(run(&fixture).report.pair_checks <= 1, "one ticket is near, and none within the window");
    fixture.add_ticket(&[301.0], 0);
    let outcome = run(&fixture);
    assert_eq!(outcome.proposals.len(), 1);
    assert!(outcome.report.pair_checks <= 4, "{}", outcome.report.pair_checks);
}

/// S4-16: in a match of four, a search is repeated when a ticket that it had added is matched with others.
#[test]
fn search_is_repeated_when_a_ticket_that_it_added_is_matched() {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(&[2, 2]);
    fixture.queue_mut().quality = QualitySpec::Any;
    for rating in [0.0, 1.0, 2.0] {
        fixture.add_ticket(&[rating], 0);
    }
    let mut memory = PassMemory::default();
    let mut run = |fixture: &QueueFixture| {
        fixture.with_input(&fixture.prepared_tickets(), |input| pass::run_pass_with_memory(input, &mut memory))
    };
    assert!(run(&fixture).proposals.is_empty());
    fixture.add_ticket(&[3.0], 0);
    assert_eq!(run(&fixture).proposals.len(), 1);
}
