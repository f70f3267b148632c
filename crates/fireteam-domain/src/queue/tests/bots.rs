//! Matches with bots: who gets one and when, how many bots each team has, and which rules hold.

use crate::filter::Refusal;
use crate::queue::pass::PassOutcome;
use crate::queue::proposal::Proposal;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{NOW, QueueFixture, random_below, ticket_number};
use crate::ruleset::queue::{QualitySpec, SelectionMode};
use crate::ruleset::teams::{BotsSpec, TeamOrderInMatch, TeamRole};

const AFTER_MS: u64 = 30_000;

/// Teams of these sizes, with bots from `min_players` on.
fn with_bots(team_sizes: &[u16], min_players: u16) -> QueueFixture {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(team_sizes);
    fixture.ruleset.teams.as_mut().expect("teams").bots = Some(BotsSpec { after_ms: AFTER_MS, min_players });
    fixture
}

/// Numbers of the tickets in each team.
fn teams_of(proposal: &Proposal) -> Vec<Vec<u64>> {
    let numbers = |team: &Vec<_>| -> Vec<u64> {
        let mut numbers: Vec<u64> =
            team.iter().map(|it: &crate::queue::proposal::ProposedTicket| ticket_number(it.ticket_id)).collect();
        numbers.sort_unstable();
        numbers
    };
    proposal.teams.iter().map(numbers).collect()
}

fn refusals(outcome: &PassOutcome) -> Vec<Refusal> {
    outcome.report.unmatched.iter().map(|ticket| ticket.refusal).collect()
}

/// S4-16: until one ticket has waited for the time there is no match, and the pass says when the next one is due. Then the players who
/// are there get a match with bots, whose teams are even.
#[test]
fn bots_take_the_seats_that_are_left_after_the_wait() {
    let mut fixture = with_bots(&[3, 3], 3);
    fixture.add_ticket(&[30.0], AFTER_MS - 1);
    fixture.add_ticket(&[10.0], 5_000);
    fixture.add_ticket(&[20.0], 0);
    let early = fixture.run_pass();
    assert_eq!(early.proposals, []);
    assert_eq!(early.report.next_change_at, Some(NOW.plus_ms(1)));

    fixture.now = fixture.now.plus_ms(1);
    let outcome = fixture.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    let proposal = &outcome.proposals[0];
    let mut sides: Vec<(Vec<u64>, u16)> =
        teams_of(proposal).into_iter().zip(proposal.bots_by_team.iter().copied()).collect();
    sides.sort();
    assert_eq!(sides, [(vec![0, 1], 1), (vec![2], 2)], "a bot counts 20: two sides of 60");
    assert_eq!(refusals(&outcome), []);
}

/// S4-16: enough players for a full match get one without bots, also if they have waited for the time.
#[test]
fn full_matches_come_first() {
    let mut fixture = with_bots(&[2, 2], 2);
    for rating in [10.0, 11.0, 12.0, 13.0, 14.0] {
        fixture.add_ticket(&[rating], 2 * AFTER_MS);
    }
    let outcome = fixture.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    assert_eq!(outcome.proposals[0].bots_by_team.len(), 0);
    assert_eq!(refusals(&outcome).len(), 1, "the fifth is alone");
}

/// S4-16: fewer players than `MinPlayers` wait, as does a party whose opponents would all be bots.
#[test]
fn match_with_bots_has_enough_players_in_each_team() {
    let mut fixture = with_bots(&[3, 3], 3);
    fixture.add_ticket(&[10.0, 10.0, 10.0], AFTER_MS);
    assert_eq!(refusals(&fixture.run_pass()), [Refusal::NoCandidates]);
    fixture.add_ticket(&[10.0], 0);
    let outcome = fixture.run_pass();
    let mut sides: Vec<_> =
        teams_of(&outcome.proposals[0]).into_iter().zip(outcome.proposals[0].bots_by_team.iter()).collect();
    sides.sort();
    assert_eq!(sides, [(vec![0], &0), (vec![1], &2)]);

    let mut fixture = with_bots(&[2, 2], 3);
    fixture.add_ticket(&[10.0], AFTER_MS);
    fixture.add_ticket(&[10.0], AFTER_MS);
    assert_eq!(refusals(&fixture.run_pass()), [Refusal::TeamsNotFilled; 2]);
}

/// S4-16: the rules of the ruleset hold. Who is too far from the others is left out, and a bot plays a role that no player has.
#[test]
fn rules_hold_in_matches_with_bots() {
    let mut fixture = with_bots(&[2, 2], 2);
    fixture.queue_mut().quality = QualitySpec::AverageSimilarity { rating_span: 50.0, required_percent: 80.0 };
    for rating in [10.0, 12.0, 45.0] {
        fixture.add_ticket(&[rating], AFTER_MS);
    }
    let outcome = fixture.run_pass();
    assert_eq!(outcome.proposals.len(), 1);
    let mut teams = teams_of(&outcome.proposals[0]);
    teams.sort();
    assert_eq!(teams, [[0], [1]]);
    assert_eq!(&*outcome.proposals[0].bots_by_team, [1, 1]);
    assert_eq!(refusals(&outcome).len(), 1);

    let mut fixture = with_bots(&[2, 2], 2);
    let role = |name: &str| TeamRole { name: name.into(), per_team: 1 };
    fixture.ruleset.teams.as_mut().expect("teams").roles = [role("tank"), role("healer")].into();
    fixture.add_ticket(&[10.0], AFTER_MS);
    fixture.add_ticket(&[10.0], AFTER_MS);
    let outcome = fixture.run_pass();
    assert_eq!(&*outcome.proposals[0].bots_by_team, [1, 1]);
    assert!(outcome.proposals[0].teams.iter().flatten().all(|ticket| ticket.roles.len() == 1), "{outcome:?}");
}

/// S4-16: for random queues and each way to select: the teams with their bots are full, no ticket is in two matches, each match has
/// players enough and a ticket that has waited, and as many teams as possible have a player.
#[test]
fn matches_with_bots_keep_their_rules_in_random_queues() {
    let mut matches_with_bots = 0;
    for seed in 0..400 {
        let mut rng = SplitMix64(seed);
        let sizes: &[u16] = [&[2, 2][..], &[3, 3], &[1, 1, 1], &[1, 4]][random_below(&mut rng, 4) as usize];
        let full: u16 = sizes.iter().sum();
        let min_players = 2 + random_below(&mut rng, u64::from(full) - 2) as u16;
        let mut fixture = with_bots(sizes, min_players);
        let modes = [
            SelectionMode::Nearest,
            SelectionMode::WeightedSample,
            SelectionMode::FirstWindow,
            SelectionMode::MaximumWeight,
        ];
        fixture.queue_mut().selection.mode = modes[random_below(&mut rng, 4) as usize];
        if random_below(&mut rng, 2) == 0 {
            fixture.ruleset.teams.as_mut().expect("teams").order = TeamOrderInMatch::Drawn;
        }
        for _ in 0..random_below(&mut rng, 12) {
            let players = 1 + random_below(&mut rng, u64::from(sizes[0])) as usize;
            let rating = random_below(&mut rng, 40) as f64;
            fixture.add_ticket(&vec![rating; players], random_below(&mut rng, 2 * AFTER_MS));
        }
        let outcome = fixture.run_pass();
        let mut seen = std::collections::BTreeSet::new();
        let size_of = |number: u64| fixture.tickets[number as usize].session.player_count();
        for proposal in &outcome.proposals {
            let teams = teams_of(proposal);
            let players: Vec<u16> = teams.iter().map(|team| team.iter().map(|&number| size_of(number)).sum()).collect();
            assert!(teams.iter().flatten().all(|number| seen.insert(*number)), "{proposal:?}");
            if proposal.bots_by_team.is_empty() {
                assert_eq!(players, sizes);
                continue;
            }
            matches_with_bots += 1;
            let with_bots: Vec<u16> =
                players.iter().zip(&proposal.bots_by_team).map(|(one, bots)| one + bots).collect();
            assert_eq!(with_bots, sizes, "seed {seed}");
            assert!(min_players <= players.iter().sum());
            let teams_with_players = teams.iter().filter(|team| !team.is_empty()).count();
            assert_eq!(teams_with_players, sizes.len().min(teams.iter().flatten().count()), "seed {seed}");
            let waited = |number: &u64| fixture.now.ms_since(fixture.tickets[*number as usize].entered_at);
            assert!(teams.iter().flatten().any(|number| AFTER_MS <= waited(number)), "seed {seed}");
        }
    }
    assert!(100 < matches_with_bots, "{matches_with_bots}");
}
