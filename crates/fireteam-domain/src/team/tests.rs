//! Team splits compared with an exhaustive search, and the rules that each split must keep.

mod oracle;

use proptest::prelude::*;

use super::*;
use crate::ruleset::teams::{TeamOrderInMatch, TeamRole};
use oracle::{find_violation, smallest_gap};

/// Owned data of a party: ratings and roles.
type OwnedParty = (Vec<f64>, Vec<u16>);

pub(super) fn teams_spec(sizes: &[u16], exact_up_to_size: u16, per_team: &[u16]) -> TeamsSpec {
    let role = |(at, &per_team): (usize, &u16)| TeamRole { name: format!("role{at}").into(), per_team };
    TeamsSpec {
        team_sizes: sizes.into(),
        max_party_size: sizes.iter().copied().max().unwrap_or(1),
        exact_up_to_team_size: exact_up_to_size,
        roles: per_team.iter().enumerate().map(role).collect(),
        order: TeamOrderInMatch::Split,
        offered_roles_attribute: None,
        bots: None,
    }
}

fn as_team_parties(parties: &[OwnedParty]) -> Vec<TeamParty<'_>> {
    parties.iter().map(|(ratings, roles)| TeamParty { ratings, offered_roles: roles, wanted_roles: &[] }).collect()
}

/// Roles that each player of each party wants.
type WantedRoles = Vec<Vec<Box<[u16]>>>;

/// Parties whose players want roles of their own.
fn with_wanted_roles<'a>(parties: &'a [OwnedParty], wanted: &'a WantedRoles) -> Vec<TeamParty<'a>> {
    let parties = as_team_parties(parties).into_iter().zip(wanted);
    parties.map(|(party, wanted_roles)| TeamParty { wanted_roles, ..party }).collect()
}

fn solo_parties(ratings: &[f64]) -> Vec<OwnedParty> {
    ratings.iter().map(|&rating| (vec![rating], Vec::new())).collect()
}

fn none_apart(_: usize, _: usize) -> bool {
    false
}

fn parties_by_team(split: &TeamSplit) -> Vec<Vec<usize>> {
    split.teams.iter().map(|team| team.iter().map(|(party, _)| *party).collect()).collect()
}

/// Four players who offer the first role, rated so that the even split begins with three of them in one team: the search notices at
/// once that the other team would lack one, and not when all other seats are taken.
#[test]
fn split_of_large_teams_divides_the_few_players_of_a_role() {
    let rating = |index| match index {
        0 => 100.0,
        1..4 => 30.0,
        _ => 1.0,
    };
    let parties: Vec<OwnedParty> = (0..40).map(|index| (vec![rating(index)], vec![u16::from(index >= 4)])).collect();
    for spec in [teams_spec(&[20, 20], 4, &[2, 1]), teams_spec(&[30, 10], 4, &[2, 1])] {
        let split = split_into_teams(&spec, &as_team_parties(&parties), &none_apart).expect("a split");
        let of_role = |team: &Vec<(usize, Vec<u16>)>| team.iter().filter(|(party, _)| *party < 4).count();
        assert_eq!(split.teams.iter().map(of_role).collect::<Vec<_>>(), [2, 2]);
    }
}

/// S4-13, by hand: 10 to B, 9 to A, 8 to A, 7 to B. The teams are level, so 6 goes to B, which is then full, and 5 to
/// A.
#[test]
fn greedy_split_adds_the_next_player_to_the_lower_total_and_to_the_later_team_on_ties() {
    let parties = solo_parties(&[10.0, 9.0, 8.0, 7.0, 6.0, 5.0]);
    let greedy = split_greedily(&teams_spec(&[3, 3], 0, &[]), &as_team_parties(&parties), &none_apart).unwrap();
    assert_eq!(parties_by_team(&greedy), [[1, 2, 5], [0, 3, 4]]);
}

#[test]
fn split_keeps_a_party_whole_even_if_teams_get_less_even() {
    let parties = vec![(vec![100.0, 100.0], vec![]), (vec![0.0], vec![]), (vec![0.0], vec![])];
    let split = split_into_teams(&teams_spec(&[2, 2], 5, &[]), &as_team_parties(&parties), &none_apart).unwrap();
    assert_eq!(parties_by_team(&split), [vec![1, 2], vec![0]]);
    assert_eq!((split.rating_gap, split.is_optimal), (200.0, true));
}

#[test]
fn split_compares_teams_of_different_size_by_mean_rating() {
    let parties = solo_parties(&[30.0, 10.0, 10.0, 10.0]);
    let split = split_into_teams(&teams_spec(&[3, 1], 5, &[]), &as_team_parties(&parties), &none_apart).unwrap();
    // (30 + 10 + 10) / 3 against 10, rather than 10 against 30.
    assert!((split.rating_gap - 20.0 / 3.0).abs() < 1e-9, "{split:?}");
}

#[test]
fn split_of_one_player_teams_is_optimal_at_once() {
    let ratings: Vec<f64> = (0..64).map(f64::from).collect();
    let split = split_into_teams(&teams_spec(&[1; 64], 5, &[]), &as_team_parties(&solo_parties(&ratings)), &none_apart)
        .unwrap();
    assert_eq!((split.rating_gap, split.is_optimal), (63.0, true));
}

#[test]
fn split_beyond_the_work_limit_is_not_called_optimal() {
    let ratings: Vec<f64> = (0..25).map(|at| f64::from(at * at)).collect();
    let split =
        split_into_teams(&teams_spec(&[5; 5], 5, &[]), &as_team_parties(&solo_parties(&ratings)), &none_apart).unwrap();
    assert!(!split.is_optimal);
    assert!(split.rating_gap < 20.0, "{}", split.rating_gap);
}

#[test]
fn split_puts_parties_kept_apart_into_different_teams() {
    let parties = solo_parties(&[4.0, 1.0, 3.0, 2.0]);
    let best = split_into_teams(&teams_spec(&[2, 2], 5, &[]), &as_team_parties(&parties), &none_apart).unwrap();
    assert_eq!(best.rating_gap, 0.0);
    let apart = |a: usize, b: usize| (a, b) == (0, 1) || (a, b) == (2, 3);
    let split = split_into_teams(&teams_spec(&[2, 2], 5, &[]), &as_team_parties(&parties), &apart).unwrap();
    assert_eq!(split.rating_gap, 2.0, "4 and 2 against 3 and 1");
}

#[test]
fn split_is_none_when_no_split_is_valid() {
    let parties = solo_parties(&[1.0, 2.0, 3.0, 4.0]);
    let parties = as_team_parties(&parties);
    assert_eq!(split_into_teams(&teams_spec(&[2, 2], 5, &[]), &parties, &|_, _| true), None);
    assert_eq!(split_into_teams(&teams_spec(&[2, 3], 5, &[]), &parties, &none_apart), None, "one player too few");
    assert_eq!(split_into_teams(&teams_spec(&[1, 2], 5, &[]), &parties, &none_apart), None, "one player too many");
    assert_eq!(
        split_into_teams(&teams_spec(&[2, 2], 5, &[1]), &parties, &none_apart),
        None,
        "no party offers the role"
    );
    assert_eq!(split_into_teams(&teams_spec(&[2, 2], 0, &[]), &parties, &|_, _| true), None, "greedily as well");
    let trios = vec![(vec![1.0; 3], vec![]), (vec![1.0; 3], vec![]), (vec![1.0; 2], vec![])];
    assert_eq!(
        split_into_teams(&teams_spec(&[4, 4], 5, &[]), &as_team_parties(&trios), &none_apart),
        None,
        "3 + 3 + 2 cannot form 4 + 4"
    );
}

#[test]
fn offered_roles_are_all_without_an_attribute_and_none_for_unknown_names() {
    let spec = teams_spec(&[2, 2], 5, &[1, 1]);
    let offered_for = |names: &[&str]| {
        role_indexes_offered_by_party(&spec, Some(&names.iter().map(|&name| name.into()).collect::<Vec<Box<str>>>()))
    };
    assert_eq!(role_indexes_offered_by_party(&spec, None), [0, 1]);
    assert_eq!(offered_for(&["role1"]), [1]);
    assert_eq!(offered_for(&["cook"]), [] as [u16; 0]);
}

#[test]
fn split_fills_every_role_of_every_team() {
    // Both players who offer role 0 must be in different teams, although one team with both would be more even.
    let parties: Vec<OwnedParty> =
        vec![(vec![5.0], vec![0]), (vec![5.0], vec![0]), (vec![2.0], vec![1]), (vec![8.0], vec![1])];
    let split = split_into_teams(&teams_spec(&[2, 2], 5, &[1, 1]), &as_team_parties(&parties), &none_apart).unwrap();
    assert_eq!(split.rating_gap, 6.0);
    for team in &split.teams {
        let mut roles: Vec<u16> = team.iter().flat_map(|(_, roles)| roles.clone()).collect();
        roles.sort_unstable();
        assert_eq!(roles, [0, 1]);
    }
}

#[test]
fn split_of_large_teams_is_more_even_than_greedy() {
    let mut last = 12345_u64;
    let ratings: Vec<f64> = (0..64)
        .map(|_| {
            last = last.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (last >> 33) as f64 / 1e6
        })
        .collect();
    let parties = solo_parties(&ratings);
    let (spec, parties) = (teams_spec(&[32, 32], 10, &[]), as_team_parties(&parties));
    let greedy = split_greedily(&spec, &parties, &none_apart).unwrap();
    let split = split_into_teams(&spec, &parties, &none_apart).unwrap();
    assert!(split.rating_gap < greedy.rating_gap / 10.0, "{} against {}", split.rating_gap, greedy.rating_gap);
}

/// B-19: counts splits, not the orders in which players are chosen; teams of equal size are interchangeable.
#[test]
fn split_count_counts_each_split_once() {
    let count = |sizes: &[u16]| {
        let ratings = vec![0.0; usize::from(sizes.iter().sum::<u16>())];
        let (spec, parties) = (teams_spec(sizes, 5, &[]), solo_parties(&ratings));
        split_search::count_splits_of_single_players(
            &SplitProblem::new(&spec, &as_team_parties(&parties), &none_apart).unwrap(),
        )
        .round()
    };
    assert_eq!([3, 4, 5, 6].map(|half| count(&[half, half])), [10.0, 35.0, 126.0, 462.0]);
    assert_eq!(count(&[2, 3]), 10.0);
    assert_eq!(count(&[4; 4]), 2_627_625.0);
    assert_eq!(count(&[1; 9]), 1.0);
}

/// Wanted roles of the players of parties: from each number the roles of its bits, beginning at its fourth bit's place; for half
/// of the players none.
fn wanted_roles(parties: &[OwnedParty], numbers: &[u16]) -> WantedRoles {
    let mut numbers = numbers.iter().copied().cycle();
    let mut of_player = || {
        let number = numbers.next().unwrap_or(0);
        let mut roles: Vec<u16> = (0..3).filter(|role| number >> role & 1 == 1 && number >> 4 & 1 == 1).collect();
        if number >> 3 & 1 == 1 {
            roles.reverse();
        }
        roles.into()
    };
    parties.iter().map(|(ratings, _)| ratings.iter().map(|_| of_player()).collect()).collect()
}

/// Team sizes for at most ten players, and parties that add up to them.
fn any_match() -> impl Strategy<Value = (Vec<u16>, Vec<OwnedParty>)> {
    proptest::collection::vec(1_u16..5, 2..5)
        .prop_filter("ten players at most", |sizes| sizes.iter().sum::<u16>() <= 10)
        .prop_flat_map(|sizes| {
            let players = usize::from(sizes.iter().sum::<u16>());
            let largest = usize::from(sizes.iter().copied().max().unwrap_or(1));
            let ratings =
                proptest::collection::vec((0_i32..60).prop_map(|quarters| f64::from(quarters) / 4.0), players);
            let party_sizes = proptest::collection::vec(1..=largest, players);
            let roles = proptest::collection::vec(0_u16..8, players);
            (Just(sizes), ratings, party_sizes, roles)
        })
        .prop_map(|(sizes, ratings, party_sizes, roles)| {
            let mut rest_of_ratings = &ratings[..];
            let mut parties = Vec::new();
            for (size, offers) in party_sizes.into_iter().zip(roles) {
                let (party, rest) = rest_of_ratings.split_at(size.min(rest_of_ratings.len()));
                rest_of_ratings = rest;
                if !party.is_empty() {
                    let offers = (0..3).filter(|role| offers >> role & 1 == 1).collect();
                    parties.push((party.to_vec(), offers));
                }
            }
            (sizes, parties)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// S4-10, B-19, B-23: no split is better than the one found, despite pruning, and a split is found if one exists.
    /// Covers parties, teams of different size, roles and parties kept apart.
    #[test]
    fn optimal_split_has_the_smallest_possible_gap(
        (sizes, parties) in any_match(),
        per_team in prop_oneof![Just(vec![]), Just(vec![1, 0, 0]), Just(vec![1, 1, 0])],
        wanted in proptest::collection::vec(0_u16..32, 1..8),
        apart in proptest::collection::vec((0_usize..6, 0_usize..6), 0..3),
    ) {
        let spec = teams_spec(&sizes, 10, &per_team);
        let wanted = wanted_roles(&parties, &wanted);
        let parties = with_wanted_roles(&parties, &wanted);
        let apart = |a: usize, b: usize| a != b && apart.contains(&(a, b));
        let found = split_into_teams(&spec, &parties, &apart);
        let best = smallest_gap(&spec, &parties, &apart);
        prop_assert_eq!(found.is_some(), best.is_some());
        if let (Some(found), Some(best)) = (found, best) {
            prop_assert_eq!(find_violation(&spec, &parties, &apart, &found), None);
            prop_assert!(found.is_optimal);
            prop_assert!((found.rating_gap - best).abs() < 1e-9, "{} instead of {best}", found.rating_gap);
        }
    }

    /// S4-13: a greedy split that is then improved keeps the same rules, is never worse than greedy, and is found if a
    /// split exists.
    #[test]
    fn improved_greedy_split_is_valid_and_never_worse_than_greedy(
        (sizes, parties) in any_match(),
        per_team in prop_oneof![Just(vec![]), Just(vec![1, 1, 0])],
        apart in proptest::collection::vec((0_usize..6, 0_usize..6), 0..3),
    ) {
        let spec = teams_spec(&sizes, 0, &per_team);
        let parties = as_team_parties(&parties);
        let apart = |a: usize, b: usize| a != b && apart.contains(&(a, b));
        let found = split_into_teams(&spec, &parties, &apart);
        let best = smallest_gap(&spec, &parties, &apart);
        prop_assert_eq!(found.is_some(), best.is_some());
        if let (Some(found), Some(best)) = (found, best) {
            prop_assert_eq!(find_violation(&spec, &parties, &apart, &found), None);
            let greedy = split_greedily(&spec, &parties, &apart).unwrap();
            prop_assert!(found.rating_gap >= best - 1e-9 && found.rating_gap <= greedy.rating_gap + 1e-9);
            prop_assert!(!found.is_optimal || found.rating_gap < best + 1e-9);
        }
    }

    /// S4-10: the formula of the requirement, for two teams of equal size. Subtract the worst player's rating from all
    /// players. Choose n/2 - 1 others for the worst player's team, with a sum as near as possible to half of the rest.
    /// The minimum is the same.
    #[test]
    fn split_gap_equals_the_minimum_of_the_worst_player_formula(
        ratings in (1_usize..6).prop_flat_map(|half| proptest::collection::vec(0.0..3000.0, 2 * half)),
    ) {
        let half = ratings.len() / 2;
        let worst = ratings.iter().copied().fold(f64::INFINITY, f64::min);
        let mut others: Vec<f64> = ratings.iter().map(|rating| rating - worst).collect();
        let at = others.iter().position(|&rating| rating == 0.0).unwrap();
        others.remove(at);
        let total: f64 = others.iter().sum();
        let objective = oracle::combinations(others.len(), half - 1)
            .map(|chosen| (chosen.iter().map(|&at| others[at]).sum::<f64>() - total / 2.0).abs())
            .fold(f64::INFINITY, f64::min);
        let parties = solo_parties(&ratings);
        let split = split_into_teams(&teams_spec(&[half as u16; 2], 5, &[]), &as_team_parties(&parties), &none_apart).unwrap();
        prop_assert!((split.rating_gap - 2.0 * objective).abs() < 1e-6, "{} and twice {objective}", split.rating_gap);
    }

    /// Matches of 120 and 128 players in teams of several forms: each split keeps the rules, and one is found for single players
    /// and for pairs.
    #[test]
    fn split_of_a_large_match_keeps_the_rules(
        sizes in prop::sample::select(vec![vec![60; 2], vec![30; 4], vec![4; 30], vec![1; 120], vec![64, 64], vec![100, 20]]),
        seed in proptest::collection::vec(0_u16..3000, 16),
        wanted in proptest::collection::vec(0_u16..32, 5..9),
        has_pairs: bool,
        has_roles: bool,
    ) {
        let players = usize::from(sizes.iter().sum::<u16>());
        let smallest = sizes.iter().copied().min().unwrap_or(1);
        let rating = |at: usize| f64::from(seed[at % seed.len()]) + (at * at % 97) as f64;
        let ratings: Vec<f64> = (0..players).map(rating).collect();
        let party_size = if has_pairs && 1 < smallest { 2 } else { 1 };
        let parties: Vec<OwnedParty> = ratings.chunks(party_size).map(|chunk| (chunk.to_vec(), vec![0, 1, 2])).collect();
        // Half of the players want no role, so there is someone for each.
        let wanted = wanted_roles(&parties, &wanted);
        let per_team = if has_roles && 3 < smallest { vec![1, 1, 0] } else { vec![] };
        let (spec, parties) = (teams_spec(&sizes, 10, &per_team), with_wanted_roles(&parties, &wanted));
        let none_apart = |_: usize, _: usize| false;
        let found = split_into_teams(&spec, &parties, &none_apart);
        let wants_fit = roles_can_be_filled(&spec, parties.iter().copied(), 0);
        if per_team.is_empty() {
            prop_assert!(found.is_some());
        } else {
            prop_assert!(wants_fit || found.is_none());
        }
        if let Some(found) = found {
            prop_assert_eq!(find_violation(&spec, &parties, &none_apart, &found), None);
        }
    }
}

#[test]
fn split_seats_a_tank_and_a_healer_of_one_party_as_such() {
    // Roles 0 tank, 1 healer, 2 damage. One party has both; the others want damage first, and one of each pair must give in.
    let wanted = |roles: &[&[u16]]| -> Vec<Box<[u16]>> { roles.iter().map(|&roles| roles.into()).collect() };
    let parties: Vec<OwnedParty> = [2, 1, 3].map(|size| (vec![5.0; size], vec![0, 1, 2])).into();
    let wanted = vec![wanted(&[&[1], &[0]]), wanted(&[&[2, 0]]), wanted(&[&[2, 1], &[2, 0], &[2]])];
    let spec = teams_spec(&[3, 3], 5, &[1, 1, 1]);
    let split = split_into_teams(&spec, &with_wanted_roles(&parties, &wanted), &none_apart).unwrap();
    let mut roles: Vec<(usize, Vec<u16>)> = split.teams.into_iter().flatten().collect();
    roles.sort();
    assert_eq!(roles, [(0, vec![1, 0]), (1, vec![2]), (2, vec![1, 0, 2])]);
}

#[test]
fn party_whose_players_want_the_same_single_role_fits_into_no_team() {
    let (spec, ratings) = (teams_spec(&[2, 3], 5, &[1, 1]), [5.0; 2]);
    let fits = |spec: &TeamsSpec, wanted: &[&[u16]]| {
        let wanted_roles: Vec<Box<[u16]>> = wanted.iter().map(|&roles| roles.into()).collect();
        party_fits_into_a_team(
            spec,
            &TeamParty { ratings: &ratings, offered_roles: &[0, 1], wanted_roles: &wanted_roles },
        )
    };
    assert!(fits(&spec, &[&[0], &[0]]), "the larger team has a seat for the other role");
    assert!(!fits(&teams_spec(&[2, 2], 5, &[1, 1]), &[&[0], &[0]]));
    assert!(fits(&teams_spec(&[2, 2], 5, &[1, 1]), &[&[0], &[]]), "who wants none plays any");
}
