//! Roles that players want: the assignment with the smallest sum of positions in their lists.
//!
//! Each player starts with the most wanted role. While roles lack players, the cheapest chain of moves to any of these roles brings
//! one: from a role that can spare a player, over roles that get one and give one. These are the shortest augmenting paths of a
//! minimum cost flow, so the assignment stays the cheapest one for the number of places that are filled so far.

use crate::ruleset::teams::TeamRole;
use crate::team::role_assignment::RoleSet;

/// Last move of the cheapest known chain to a role.
#[derive(Clone, Copy)]
struct Move {
    player: usize,
    from: usize,
}

/// Role of each player, each of whom offers one. As many places of roles are filled as these players can.
pub(super) fn assign_by_preference(roles: &[TeamRole], players: &[RoleSet], wanted: &[&[u16]]) -> Vec<u16> {
    let first = |(index, offers): (usize, &RoleSet)| match wanted.get(index).and_then(|wanted| wanted.first()) {
        Some(first) => usize::from(*first),
        None => offers.trailing_zeros() as usize,
    };
    let mut assigned: Vec<usize> = players.iter().enumerate().map(first).collect();
    let mut counts = vec![0_u16; roles.len()];
    assigned.iter().for_each(|role| counts[*role] += 1);
    loop {
        let lacks = |role: usize| counts[role] < roles[role].per_team;
        if !(0..roles.len()).any(lacks) {
            break;
        }
        let can_spare = |role: usize| roles[role].per_team < counts[role];
        let chains = cheapest_chains(roles.len(), players, wanted, &assigned, can_spare);
        let reached = (0..roles.len()).filter(|&role| lacks(role)).filter_map(|role| Some((chains[role]?.cost, role)));
        // Without a chain no player can be spared, now or after further moves.
        let Some((_, lacking)) = reached.min() else { break };
        let mut role = lacking;
        // A chain has no cycle, so it visits each role at most once.
        for _ in 0..roles.len() {
            let Some(Move { player, from }) = chains[role].and_then(|chain| chain.last_move) else { break };
            assigned[player] = role;
            role = from;
        }
        if role == lacking {
            break;
        }
        counts[role] -= 1;
        counts[lacking] += 1;
    }
    assigned.into_iter().map(|role| role as u16).collect()
}

/// Cheapest chain of moves to a role.
#[derive(Clone, Copy)]
struct Chain {
    cost: i64,
    /// `None` for a role where the chain begins.
    last_move: Option<Move>,
}

/// Cheapest chain of moves to each role, by Bellman and Ford. `None` for a role that no chain reaches.
fn cheapest_chains(
    role_count: usize,
    players: &[RoleSet],
    wanted: &[&[u16]],
    assigned: &[usize],
    can_spare: impl Fn(usize) -> bool,
) -> Vec<Option<Chain>> {
    let position = |player: usize, role: usize| -> i64 {
        let of_role = wanted.get(player).and_then(|wanted| wanted.iter().position(|own| usize::from(*own) == role));
        of_role.unwrap_or(0) as i64
    };
    let start = |role: usize| can_spare(role).then_some(Chain { cost: 0, last_move: None });
    let mut chains: Vec<Option<Chain>> = (0..role_count).map(start).collect();
    for _ in 0..role_count {
        let mut is_changed = false;
        for (player, &from) in assigned.iter().enumerate() {
            let Some(Chain { cost, .. }) = chains[from] else { continue };
            for to in (0..role_count).filter(|&to| to != from && players[player] >> to & 1 == 1) {
                let cost = cost + position(player, to) - position(player, from);
                if chains[to].is_none_or(|known| cost < known.cost) {
                    chains[to] = Some(Chain { cost, last_move: Some(Move { player, from }) });
                    is_changed = true;
                }
            }
        }
        if !is_changed {
            break;
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;
    use crate::team::role_assignment::{assign_roles, assign_with_open_seats, fillable_places, role_set};

    /// Smallest sum of positions over all ways to give each player one of their roles, every role filled.
    fn smallest_sum(roles: &[TeamRole], lists: &[Vec<u16>], filled: &mut Vec<u16>) -> Option<usize> {
        let Some((list, rest)) = lists.split_first() else {
            return roles.iter().zip(filled.iter()).all(|(role, filled)| role.per_team <= *filled).then_some(0);
        };
        let mut best = None;
        let ranked = !list.is_empty();
        let offered: Vec<u16> = if ranked { list.clone() } else { (0..roles.len() as u16).collect() };
        for (position, role) in offered.iter().enumerate() {
            filled[usize::from(*role)] += 1;
            let others = smallest_sum(roles, rest, filled);
            filled[usize::from(*role)] -= 1;
            let sum = others.map(|others| others + if ranked { position } else { 0 });
            best = [best, sum].into_iter().flatten().min();
        }
        best
    }

    /// Most filled places, and then the smallest sum of positions, over all ways to give each player one of these roles.
    fn best_by_trial(roles: &[TeamRole], lists: &[Vec<u16>], filled: &mut Vec<u16>) -> (usize, Reverse<usize>) {
        let Some((list, rest)) = lists.split_first() else {
            let places = roles.iter().zip(filled.iter()).map(|(role, filled)| usize::from(role.per_team.min(*filled)));
            return (places.sum(), Reverse(0));
        };
        let offered: Vec<u16> = if list.is_empty() { (0..roles.len() as u16).collect() } else { list.clone() };
        let with = |(position, role): (usize, &u16)| {
            filled[usize::from(*role)] += 1;
            let (places, Reverse(sum)) = best_by_trial(roles, rest, filled);
            filled[usize::from(*role)] -= 1;
            (places, Reverse(sum + if list.is_empty() { 0 } else { position }))
        };
        offered.iter().enumerate().map(with).max().unwrap_or_default()
    }

    /// Roles with these places in each team, and lists of roles that players want, each rotated.
    fn roles_and_lists(per_team: &[u16], rotated: Vec<(Vec<u16>, usize)>) -> (Vec<TeamRole>, Vec<Vec<u16>>) {
        let roles: Vec<TeamRole> = per_team.iter().map(|&per_team| TeamRole { name: "any".into(), per_team }).collect();
        let list = |(mut list, turn): (Vec<u16>, usize)| {
            list.retain(|role| usize::from(*role) < roles.len());
            let turn = turn % list.len().max(1);
            list.rotate_left(turn);
            list
        };
        let lists = rotated.into_iter().map(list).collect();
        (roles, lists)
    }

    proptest::proptest! {
        /// Beside open seats as many places as possible are filled, and no assignment that fills as many has a smaller sum.
        #[test]
        fn wanted_roles_beside_open_seats_fill_most_places_at_the_smallest_sum(
            per_team in proptest::collection::vec(0_u16..3, 1..5),
            lists in proptest::collection::vec((proptest::sample::subsequence(vec![0_u16, 1, 2, 3], 0..=4), 0_usize..4), 0..5),
            open_seats in 0_usize..3,
        ) {
            let (roles, lists) = roles_and_lists(&per_team, lists);
            let all: Vec<u16> = (0..roles.len() as u16).collect();
            let sets: Vec<RoleSet> =
                lists.iter().map(|list| role_set(&roles, if list.is_empty() { &all } else { list })).collect();
            let wanted: Vec<&[u16]> = lists.iter().map(Vec::as_slice).collect();
            let mut with_seats = lists.clone();
            with_seats.resize(lists.len() + open_seats, Vec::new());
            let (places, Reverse(smallest)) = best_by_trial(&roles, &with_seats, &mut vec![0; roles.len()]);
            proptest::prop_assert_eq!(fillable_places(&roles, &sets, open_seats), places);
            let assigned = assign_with_open_seats(&roles, &sets, &wanted, open_seats);
            proptest::prop_assert!(assigned.iter().zip(&sets).all(|(role, set)| set >> role & 1 == 1));
            let mut lacking = 0;
            for (index, role) in roles.iter().enumerate() {
                let count = assigned.iter().filter(|assigned| usize::from(**assigned) == index).count();
                lacking += usize::from(role.per_team).saturating_sub(count);
            }
            let needed: usize = roles.iter().map(|role| usize::from(role.per_team)).sum();
            proptest::prop_assert_eq!(needed - lacking.saturating_sub(open_seats), places);
            let position = |(role, list): (&u16, &Vec<u16>)| list.iter().position(|own| own == role).unwrap_or(0);
            proptest::prop_assert_eq!(assigned.iter().zip(&lists).map(position).sum::<usize>(), smallest);
        }

        /// Every role is filled whenever that is possible, by players who want it, and no assignment has a smaller sum of positions.
        #[test]
        fn wanted_roles_are_assigned_at_the_smallest_sum_of_positions(
            per_team in proptest::collection::vec(0_u16..3, 1..5),
            lists in proptest::collection::vec((proptest::sample::subsequence(vec![0_u16, 1, 2, 3], 0..=4), 0_usize..4), 1..7),
        ) {
            let (roles, lists) = roles_and_lists(&per_team, lists);
            let all: Vec<u16> = (0..roles.len() as u16).collect();
            let offered = |list: &Vec<u16>| role_set(&roles, if list.is_empty() { &all } else { list });
            let sets: Vec<RoleSet> = lists.iter().map(offered).collect();
            let wanted: Vec<&[u16]> = lists.iter().map(Vec::as_slice).collect();
            let found = assign_roles(&roles, &sets, &wanted);
            let expected = smallest_sum(&roles, &lists, &mut vec![0; roles.len()]);
            proptest::prop_assert_eq!(found.is_some(), expected.is_some());
            if let (Some(found), Some(expected)) = (found, expected) {
                for (index, role) in roles.iter().enumerate() {
                    let count = found.iter().filter(|assigned| usize::from(**assigned) == index).count();
                    proptest::prop_assert!(count >= usize::from(role.per_team));
                }
                proptest::prop_assert!(found.iter().zip(&sets).all(|(role, set)| set >> role & 1 == 1));
                let position = |(role, list): (&u16, &Vec<u16>)| list.iter().position(|own| own == role).unwrap_or(0);
                let sum: usize = found.iter().zip(&lists).map(position).sum();
                // Without any wish, an assignment has no cost.
                proptest::prop_assert_eq!(sum, expected);
            }
        }
    }
}
