//! Entries of string lists chosen for a match: all of its parties have them, although each two of them share others.

use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue, ValueType};
use crate::chosen_value::ChosenValue;
use crate::filter::{Refusal, RefusingSide};
use crate::played_values::PlayedValues;
use crate::queue::pass::PassOutcome;
use crate::queue::rng::SplitMix64;
use crate::queue::tests::fixture::{QueueFixture, one_in, random_below};
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, OverlapChoice};
use crate::time::UnixMs;
use crate::value_choice::{ValueChoiceContext, choose_values};

/// A free-for-all of three, in which one of the common maps is chosen; a party for each of `lists`.
fn three_players(choice: OverlapChoice, lists: &[&[&str]]) -> QueueFixture {
    let mut fixture = QueueFixture::one_vs_one();
    fixture.set_team_sizes(&[1, 1, 1]);
    let maps =
        Attribute { name: "maps".into(), value_type: ValueType::StringList, ..fixture.ruleset.attributes[1].clone() };
    let attribute = fixture.ruleset.attributes.len();
    fixture.ruleset.attributes = fixture.ruleset.attributes.iter().cloned().chain([maps]).collect();
    let rule = HardRule::Overlap { attribute, choose: Some(choice) };
    fixture.ruleset.hard_filters = [HardFilter { name: "maps".into(), missing: HardMissingPolicy::Pass, rule }].into();
    for list in lists {
        fixture.add_ticket(&[10.0], 0);
        let ticket = Arc::make_mut(fixture.tickets.last_mut().expect("a ticket"));
        let list = AttributeValue::from_string_list(list.iter().map(|&map| map.into()).collect());
        ticket.session.attributes = vec![("maps".into(), list)];
    }
    fixture
}

fn chosen(outcome: &PassOutcome) -> Vec<&str> {
    outcome.proposals.iter().flat_map(|proposal| &proposal.chosen).map(|chosen| &*chosen.value).collect()
}

/// Each two of three share a map, but not all; a fourth makes a match possible, on the map that its three share.
#[test]
fn match_needs_a_value_that_all_of_its_parties_have() {
    let mut lists: Vec<&[&str]> = vec![&["atlas", "bay"], &["bay", "cove"], &["atlas", "cove"]];
    let outcome = three_players(OverlapChoice::FirstCommon, &lists).run_pass();
    assert_eq!(outcome.proposals, []);
    let refusal = Refusal::HardFilter { filter_index: 0, side: RefusingSide::Searcher };
    assert!(outcome.report.unmatched.iter().any(|ticket| ticket.refusal == refusal), "{:?}", outcome.report);
    lists.push(&["bay", "cove"]);
    let outcome = three_players(OverlapChoice::FirstCommon, &lists).run_pass();
    assert_eq!(chosen(&outcome), ["bay"]);
}

/// For random lists: a chosen value is in the list of each party of the match; the first of them by name, or a drawn one, which is the
/// same in each pass.
#[test]
fn chosen_value_is_in_the_list_of_each_party() {
    const MAPS: [&str; 4] = ["atlas", "bay", "cove", "dune"];
    let (mut matches, mut not_first) = (0, 0);
    for seed in 0..200 {
        let mut rng = SplitMix64(seed);
        let count = 3 + random_below(&mut rng, 9) as usize;
        let lists: Vec<Vec<&str>> =
            (0..count).map(|_| MAPS.into_iter().filter(|_| !one_in(&mut rng, 3)).collect()).collect();
        let lists: Vec<&[&str]> = lists.iter().map(|list| &**list).filter(|list| !list.is_empty()).collect();
        for choice in [OverlapChoice::FirstCommon, OverlapChoice::Drawn] {
            let fixture = three_players(choice, &lists);
            let outcome = fixture.run_pass();
            assert_eq!(chosen(&fixture.run_pass()), chosen(&outcome), "seed {seed}");
            for proposal in &outcome.proposals {
                let ids: Vec<_> = proposal.teams.iter().flatten().map(|ticket| ticket.ticket_id).collect();
                let prepared = fixture.prepared_tickets();
                let members: Vec<_> = prepared.iter().filter(|it| ids.contains(&it.ticket.id)).collect();
                let lists = members.iter().map(|it| match it.ticket.session.stated_attribute_value("maps") {
                    Some(AttributeValue::StringList(list)) => list.clone(),
                    _ => panic!("each has a list"),
                });
                let common: Vec<&str> = MAPS
                    .into_iter()
                    .filter(|map| lists.clone().all(|list| list.iter().any(|it| **it == **map)))
                    .collect();
                let [value] = &*proposal.chosen else { panic!("one choice") };
                assert!(common.contains(&&*value.value), "seed {seed}: {value:?} of {common:?}");
                let is_first = &*value.value == common[0];
                assert!(is_first || choice == OverlapChoice::Drawn, "seed {seed}");
                matches += 1;
                not_first += usize::from(!is_first);
                let values = members.iter().map(|it| &it.attribute_values);
                let played = &PlayedValues::default();
                let choice = ValueChoiceContext { seed: 7, users: &[], played, promised: &[], now: UnixMs(1) };
                assert!(choose_values(&fixture.ruleset, values, choice).is_ok());
            }
        }
    }
    assert!(matches > 100 && not_first > 20, "{matches} {not_first}");
}

/// The map that no player of the match has played, else the one that was played longest ago by any of them. What is older than
/// `recent_ms` counts as not played, and of equals the first is chosen.
#[test]
fn least_recently_played_value_is_chosen() {
    let choose_after = |plays: &[(usize, &str, u64)]| {
        let lists: [&[&str]; 3] =
            [&["atlas", "bay", "cove"], &["atlas", "bay", "cove", "dune"], &["atlas", "bay", "cove"]];
        let mut fixture = three_players(OverlapChoice::LeastRecentlyPlayed { recent_ms: 1_000 }, &lists);
        let play = |&(player, map, ago_ms): &(usize, &str, u64)| {
            let user = fixture.tickets[player].session.players[0].user;
            (user, ChosenValue { attribute: "maps".into(), value: map.into() }, UnixMs(fixture.now.0 - ago_ms))
        };
        fixture.past_matches.played_values = PlayedValues::from_plays_keeping_latest(plays.iter().map(play));
        chosen(&fixture.run_pass()).join(" ")
    };
    assert_eq!(choose_after(&[]), "atlas");
    assert_eq!(choose_after(&[(0, "atlas", 10)]), "bay");
    assert_eq!(choose_after(&[(0, "atlas", 900), (1, "bay", 10)]), "cove");
    assert_eq!(choose_after(&[(0, "atlas", 500), (1, "bay", 900), (2, "cove", 10)]), "bay");
    assert_eq!(choose_after(&[(0, "bay", 900), (1, "bay", 10), (1, "cove", 800), (2, "atlas", 20)]), "cove");
    assert_eq!(choose_after(&[(0, "atlas", 1_000), (1, "bay", 999), (2, "cove", 1)]), "atlas");
}
