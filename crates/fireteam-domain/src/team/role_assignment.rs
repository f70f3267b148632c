//! Role assignment: gives each player of a team a role, so that every role of the team is filled.

mod preferences;

use crate::limit::{PLAYERS_PER_SESSION_MAX, ROLES_PER_RULESET_MAX};
use crate::ruleset::teams::TeamRole;

/// Set of roles: one bit for each index into `TeamsSpec::roles`.
pub(super) type RoleSet = u64;

/// Assigned role of each player.
type AssignedRoles = [Option<u8>; PLAYERS_PER_SESSION_MAX];

/// Set of these role indexes. Indexes without a role are ignored.
pub(super) fn role_set(roles: &[TeamRole], indexes: &[u16]) -> RoleSet {
    let known =
        indexes.iter().map(|&index| usize::from(index)).filter(|&index| index < roles.len().min(ROLES_PER_RULESET_MAX));
    known.fold(0, |set, index| set | 1 << index)
}

/// True if these players, and `open_seats` more players, can fill every role. Each of these players must offer at least
/// one role.
pub(super) fn can_fill_roles(roles: &[TeamRole], players: &[RoleSet], open_seats: usize) -> bool {
    if roles.is_empty() {
        return true;
    }
    let needed: usize = roles.iter().map(|role| usize::from(role.per_team)).sum();
    let assigned = || maximum_role_assignment(roles, players).iter().flatten().count();
    players.iter().all(|offers| *offers != 0) && (needed <= open_seats || needed <= open_seats + assigned())
}

/// Number of places of roles that these players, and `open_seats` more players, can fill.
pub(super) fn fillable_places(roles: &[TeamRole], players: &[RoleSet], open_seats: usize) -> usize {
    let needed: usize = roles.iter().map(|role| usize::from(role.per_team)).sum();
    needed.min(open_seats + maximum_role_assignment(roles, players).iter().flatten().count())
}

/// Role of each player of a team whose open seats any players may take. As many places as possible are filled; otherwise as
/// [`assign_roles`]. Each player offers a role.
pub(super) fn assign_with_open_seats(
    roles: &[TeamRole],
    players: &[RoleSet],
    wanted: &[&[u16]],
    open_seats: usize,
) -> Vec<u16> {
    let all_roles = (0..roles.len().min(ROLES_PER_RULESET_MAX)).fold(0, |set, role| set | 1 << role);
    let mut all: Vec<RoleSet> = players.to_vec();
    all.resize(players.len() + open_seats, all_roles);
    let mut assigned = preferences::assign_by_preference(roles, &all, wanted);
    assigned.truncate(players.len());
    assigned
}

/// Role of each player of a full team, so that every role is filled. `wanted` has the roles that each player wants, the most
/// wanted first, or none: the assignment has the smallest sum of their positions. If no player of the team wants any, a player
/// whom no role needs gets the first role that they offer. `None` if it is impossible; empty without roles.
pub(super) fn assign_roles(roles: &[TeamRole], players: &[RoleSet], wanted: &[&[u16]]) -> Option<Vec<u16>> {
    if roles.is_empty() {
        return Some(Vec::new());
    }
    if !can_fill_roles(roles, players, 0) {
        return None;
    }
    if wanted.iter().any(|wanted| !wanted.is_empty()) {
        return Some(preferences::assign_by_preference(roles, players, wanted));
    }
    let needed = maximum_role_assignment(roles, players).into_iter().zip(players);
    Some(needed.map(|(role, offers)| role.map_or(offers.trailing_zeros() as u16, u16::from)).collect())
}

/// Maximum bipartite matching of players to the roles that need them, by augmenting paths: if a role is full, one of
/// its players moves to another role. Players and roles are tried in order, so equal teams get equal assignments.
/// Players beyond `PLAYERS_PER_SESSION_MAX` are ignored.
fn maximum_role_assignment(roles: &[TeamRole], players: &[RoleSet]) -> AssignedRoles {
    let players = &players[..players.len().min(PLAYERS_PER_SESSION_MAX)];
    let mut assigned = [None; PLAYERS_PER_SESSION_MAX];
    let mut open_places = [0; ROLES_PER_RULESET_MAX];
    for (places, role) in open_places.iter_mut().zip(roles) {
        *places = role.per_team;
    }
    for player in 0..players.len() {
        assign_by_augmenting_path(players, &mut assigned, &mut open_places, player, &mut 0);
    }
    assigned
}

/// Assigns `player` a role that still needs one, moving other players if necessary. `tried` holds the roles tried so
/// far, which also bounds the recursion depth.
fn assign_by_augmenting_path(
    players: &[RoleSet],
    assigned: &mut AssignedRoles,
    open_places: &mut [u16; ROLES_PER_RULESET_MAX],
    player: usize,
    tried: &mut RoleSet,
) -> bool {
    loop {
        let untried = players[player] & !*tried;
        if untried == 0 {
            return false;
        }
        let role = untried.trailing_zeros() as usize;
        *tried |= 1 << role;
        let this_role = Some(role as u8);
        if open_places[role] > 0 {
            open_places[role] -= 1;
            assigned[player] = this_role;
            return true;
        }
        for other in 0..players.len() {
            if assigned[other] == this_role && assign_by_augmenting_path(players, assigned, open_places, other, tried) {
                assigned[player] = this_role;
                return true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(per_team: &[u16]) -> Vec<TeamRole> {
        per_team.iter().enumerate().map(|(at, &per_team)| TeamRole { name: at.to_string().into(), per_team }).collect()
    }

    /// Tries every way to give each player one of the roles that they offer.
    fn exhaustive_assignment_exists(roles: &[TeamRole], players: &[RoleSet], filled: &mut Vec<u16>) -> bool {
        let Some((offers, rest)) = players.split_first() else {
            return roles.iter().zip(filled.iter()).all(|(role, filled)| role.per_team <= *filled);
        };
        (0..roles.len()).filter(|role| offers >> role & 1 == 1).any(|role| {
            filled[role] += 1;
            let found = exhaustive_assignment_exists(roles, rest, filled);
            filled[role] -= 1;
            found
        })
    }

    #[test]
    fn role_assignment_moves_flexible_players_to_free_a_role() {
        let roles = roles(&[1, 1, 1]);
        // In order of input, the first two players would leave no role for the third.
        assert_eq!(assign_roles(&roles, &[0b011, 0b111, 0b001], &[]), Some(vec![1, 2, 0]));
    }

    #[test]
    fn role_assignment_gives_spare_players_their_first_offered_role() {
        assert_eq!(assign_roles(&roles(&[1, 1]), &[0b11, 0b10, 0b10], &[]), Some(vec![0, 1, 1]));
    }

    #[test]
    fn role_assignment_fails_for_a_player_without_roles() {
        assert_eq!(assign_roles(&roles(&[1]), &[1, 0], &[]), None);
        assert!(!can_fill_roles(&roles(&[1]), &[0], 5));
    }

    #[test]
    fn role_assignment_is_empty_without_roles() {
        assert_eq!(assign_roles(&[], &[0, 0], &[]), Some(Vec::new()));
    }

    #[test]
    fn can_fill_roles_counts_open_seats() {
        let roles = roles(&[2, 1]);
        assert!(can_fill_roles(&roles, &[0b10], 2));
        assert!(!can_fill_roles(&roles, &[0b10], 1));
        assert!(!can_fill_roles(&roles, &[0b10, 0b10], 1));
    }

    #[test]
    fn role_set_ignores_unknown_roles() {
        assert_eq!(role_set(&roles(&[1, 1]), &[1, 2, 64, u16::MAX]), 0b10);
    }

    proptest::proptest! {
        /// An assignment is found exactly if an exhaustive search finds one, and uses only offered roles.
        #[test]
        fn role_assignment_is_found_exactly_if_one_exists(
            per_team in proptest::collection::vec(0_u16..3, 1..5),
            players in proptest::collection::vec(0_u64..32, 0..7),
        ) {
            let roles = roles(&per_team);
            let players: Vec<RoleSet> = players.into_iter().map(|offers| offers & ((1 << roles.len()) - 1)).collect();
            let exists = exhaustive_assignment_exists(&roles, &players, &mut vec![0; roles.len()]);
            let found = assign_roles(&roles, &players, &[]);
            proptest::prop_assert_eq!(found.is_some(), exists);
            if let Some(found) = found {
                for (index, role) in roles.iter().enumerate() {
                    let players = found.iter().filter(|assigned| usize::from(**assigned) == index).count();
                    proptest::prop_assert!(players >= usize::from(role.per_team));
                }
                proptest::prop_assert!(found.iter().zip(&players).all(|(role, offers)| offers >> role & 1 == 1));
            }
        }
    }
}
