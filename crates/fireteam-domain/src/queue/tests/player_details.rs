//! Passes over parties whose players have attributes and want roles: attributes cost a pass nothing, and every team of every
//! match is seated as its players want.

use std::sync::Arc;

use crate::attribute::{
    AggregateFunction, AttributeValue, MissingMemberPolicy, NumberAggregation, PlayerAggregation, SourceField,
};
use crate::filter::Refusal;
use crate::queue::oracle;
use crate::queue::pass;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, random_below, random_queue_fixture};
use crate::ruleset::queue::SelectionMode;
use crate::ruleset::teams::TeamRole;
use crate::session::PlayerDetails;

/// Changes the details of the players of every ticket.
fn with_details(fixture: &mut QueueFixture, mut details_of: impl FnMut(usize, usize) -> PlayerDetails) {
    for (index, ticket) in fixture.tickets.iter_mut().enumerate() {
        let ticket = Arc::make_mut(ticket);
        for (place, player) in ticket.session.players.iter_mut().enumerate() {
            player.details = Some(Box::new(details_of(index, place)));
        }
    }
}

fn role(name: &str, per_team: u16) -> TeamRole {
    TeamRole { name: name.into(), per_team }
}

/// Number attributes of parties, and the same as means over players: the passes make the same matches with the same number of
/// pair checks. Aggregates are values like any others.
#[test]
fn pass_over_aggregates_equals_the_pass_over_values_of_parties() {
    let mut matches = 0;
    for seed in 0..300 {
        let mut fixture = random_queue_fixture(seed, 24);
        let expected = fixture.run_pass();
        matches += expected.proposals.len();
        let taste = fixture.ruleset.attribute_index("taste").unwrap();
        let mean = AggregateFunction::Number(NumberAggregation::Mean);
        let aggregation = PlayerAggregation { function: mean, missing_member: MissingMemberPolicy::Missing };
        fixture.ruleset.attributes[taste].source = SourceField::Players(aggregation);
        let values: Vec<Option<AttributeValue>> =
            fixture.tickets.iter().map(|ticket| ticket.session.stated_attribute_value("taste").cloned()).collect();
        with_details(&mut fixture, |index, _| PlayerDetails {
            attributes: values[index].iter().map(|value| ("taste".into(), value.clone())).collect(),
            ..PlayerDetails::default()
        });
        assert_eq!(fixture.run_pass(), expected, "seed {seed}");
    }
    assert!(matches > 100, "{matches}");
}

/// For random rulesets, parties and wishes: each proposal satisfies all rules, each role of each team is filled, and each player has
/// a role that the player wants, or any without a wish.
#[test]
fn pass_seats_every_player_in_a_wanted_role() {
    const NAMES: [&str; 3] = ["tank", "healer", "damage"];
    let mut seated = 0;
    for seed in 0..600 {
        let mut fixture = random_queue_fixture(seed, 24);
        let mut rng = SplitMix64(seed);
        let teams = fixture.ruleset.teams.as_mut().unwrap();
        if teams.team_sizes.contains(&1) {
            continue;
        }
        teams.roles = [role(NAMES[0], 1), role(NAMES[1], 1), role(NAMES[2], 0)].into();
        let mut wishes: Vec<Vec<Vec<usize>>> = Vec::new();
        for ticket in &fixture.tickets {
            let mut wish = || {
                let mut roles: Vec<usize> = (0..NAMES.len()).filter(|_| random_below(&mut rng, 2) == 0).collect();
                if random_below(&mut rng, 2) == 0 {
                    roles.reverse();
                }
                roles
            };
            wishes.push(ticket.session.players.iter().map(|_| wish()).collect());
        }
        with_details(&mut fixture, |index, place| PlayerDetails {
            wanted_roles: wishes[index][place].iter().map(|role| NAMES[*role].into()).collect(),
            ..PlayerDetails::default()
        });
        fixture.with_input(&fixture.prepared_tickets(), |input| {
            let outcome = pass::run_pass(input);
            oracle::assert_outcome_is_valid(input, &outcome);
            for team in outcome.proposals.iter().filter(|it| it.backfilled_session.is_none()).flat_map(|it| &it.teams) {
                let mut counts = [0; NAMES.len()];
                for member in team {
                    let index = fixture.tickets.iter().position(|it| it.id == member.ticket_id).unwrap();
                    assert_eq!(member.roles.len(), wishes[index].len(), "seed {seed}");
                    for (role, wish) in member.roles.iter().zip(&wishes[index]) {
                        counts[usize::from(*role)] += 1;
                        assert!(
                            wish.is_empty() || wish.contains(&usize::from(*role)),
                            "seed {seed}: {role} of {wish:?}"
                        );
                        seated += 1;
                    }
                }
                assert!(counts[0] >= 1 && counts[1] >= 1, "seed {seed}: {counts:?}");
            }
        });
    }
    assert!(seated > 500, "{seated}");
}

/// The nearest players all want damage. A tank and a healer further away complete the match in each mode of selection that fills
/// a match ticket by ticket; without them the tickets name the roles.
#[test]
fn match_is_filled_past_nearer_players_of_a_role_that_is_taken() {
    for mode in [SelectionMode::Nearest, SelectionMode::FirstWindow, SelectionMode::WeightedSample] {
        let mut fixture = QueueFixture::one_vs_one();
        fixture.set_team_sizes(&[2, 2]);
        fixture.ruleset.teams.as_mut().unwrap().roles = [role("tank", 1), role("damage", 1)].into();
        fixture.queue_mut().selection.mode = mode;
        let wants = ["damage", "damage", "damage", "damage", "tank", "tank"];
        for number in 0..wants.len() {
            fixture.add_ticket(&[20.0 - number as f64], 100 - number as u64);
        }
        with_details(&mut fixture, |index, _| PlayerDetails {
            wanted_roles: vec![wants[index].into()],
            ..PlayerDetails::default()
        });
        assert_eq!(fixture.run_pass().proposals.len(), 1, "{mode:?}");
        fixture.tickets.truncate(4);
        fixture.leaderboard_positions.truncate(4);
        let report = fixture.run_pass().report;
        let reasons: Vec<Refusal> = report.unmatched.iter().map(|it| it.refusal).collect();
        assert!(reasons.contains(&Refusal::RolesNotFilled), "{mode:?}: {reasons:?}");
    }
}
