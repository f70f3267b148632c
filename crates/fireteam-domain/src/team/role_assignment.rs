//! Who of a team plays what: an assignment of players to the roles that every team must fill.

use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::ruleset::teams::TeamRole;

/// Roles that one ruleset can have: each asks for a player at least, and so many fit one word.
pub(super) const ROLES_MAX: usize = 64;

/// A set of roles: a bit for each place in `TeamsSpec::roles`.
pub(super) type RoleSet = u64;

/// What each player plays.
type AssignedRoles = [Option<u8>; PLAYERS_PER_SESSION_MAX];

/// The set of these places; such as no role has are passed over.
pub(super) fn role_set(roles: &[TeamRole], places: &[u16]) -> RoleSet {
    let known = places.iter().map(|&place| usize::from(place)).filter(|&place| place < roles.len().min(ROLES_MAX));
    known.fold(0, |set, place| set | 1 << place)
}

/// Whether these players, and `open` more who are still to come, can fill every role. Each of them must offer one.
pub(super) fn can_fill_roles(roles: &[TeamRole], players: &[RoleSet], open: usize) -> bool {
    if roles.is_empty() {
        return true;
    }
    let wanted: usize = roles.iter().map(|role| usize::from(role.per_team)).sum();
    let play = || maximum_role_assignment(roles, players).iter().flatten().count();
    players.iter().all(|offers| *offers != 0) && (wanted <= open || wanted <= open + play())
}

/// What each player of a full team plays, so that every role is filled; whom no role needs plays the first that they
/// offer.
/// `None` where it cannot be done; empty where there are no roles.
pub(super) fn assign_roles(roles: &[TeamRole], players: &[RoleSet]) -> Option<Vec<u16>> {
    if roles.is_empty() {
        return Some(Vec::new());
    }
    if !can_fill_roles(roles, players, 0) {
        return None;
    }
    let needed = maximum_role_assignment(roles, players).into_iter().zip(players);
    Some(needed.map(|(role, offers)| role.map_or(offers.trailing_zeros() as u16, u16::from)).collect())
}

/// As many players as possible in roles that need them, by augmenting paths: whoever finds a role full asks those who
/// play it to play something else. Players in order, roles in order, so equal teams are assigned alike. Players beyond
/// `PLAYERS_MAX` are not looked at.
fn maximum_role_assignment(roles: &[TeamRole], players: &[RoleSet]) -> AssignedRoles {
    let players = &players[..players.len().min(PLAYERS_PER_SESSION_MAX)];
    let mut plays = [None; PLAYERS_PER_SESSION_MAX];
    let mut room = [0; ROLES_MAX];
    for (room, role) in room.iter_mut().zip(roles) {
        *room = role.per_team;
    }
    for player in 0..players.len() {
        assign_by_augmenting_path(players, &mut plays, &mut room, player, &mut 0);
    }
    plays
}

/// Gives `player` a role that needs somebody, moving others where that helps; `asked` are the roles that have been
/// tried, which also bounds the depth.
fn assign_by_augmenting_path(
    players: &[RoleSet],
    plays: &mut AssignedRoles,
    room: &mut [u16; ROLES_MAX],
    player: usize,
    asked: &mut RoleSet,
) -> bool {
    loop {
        let untried = players[player] & !*asked;
        if untried == 0 {
            return false;
        }
        let role = untried.trailing_zeros() as usize;
        *asked |= 1 << role;
        let place = Some(role as u8);
        if 0 < room[role] {
            room[role] -= 1;
            plays[player] = place;
            return true;
        }
        for other in 0..players.len() {
            if plays[other] == place && assign_by_augmenting_path(players, plays, room, other, asked) {
                plays[player] = place;
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

    /// Every way to give each player one of the roles that they offer.
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
        // Taken in order, the first two would leave nothing for the third.
        assert_eq!(assign_roles(&roles, &[0b011, 0b111, 0b001]), Some(vec![1, 2, 0]));
    }

    #[test]
    fn role_assignment_gives_spare_players_their_first_offered_role() {
        assert_eq!(assign_roles(&roles(&[1, 1]), &[0b11, 0b10, 0b10]), Some(vec![0, 1, 1]));
    }

    #[test]
    fn role_assignment_fails_for_a_player_without_roles() {
        assert_eq!(assign_roles(&roles(&[1]), &[1, 0]), None);
        assert!(!can_fill_roles(&roles(&[1]), &[0], 5));
    }

    #[test]
    fn role_assignment_is_empty_without_roles() {
        assert_eq!(assign_roles(&[], &[0, 0]), Some(Vec::new()));
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
        /// An assignment is found exactly where trying everything finds one, and it keeps to what players offer.
        #[test]
        fn an_assignment_is_found_wherever_there_is_one(
            per_team in proptest::collection::vec(0_u16..3, 1..5),
            players in proptest::collection::vec(0_u64..32, 0..7),
        ) {
            let roles = roles(&per_team);
            let players: Vec<RoleSet> = players.into_iter().map(|offers| offers & ((1 << roles.len()) - 1)).collect();
            let there_is = exhaustive_assignment_exists(&roles, &players, &mut vec![0; roles.len()]);
            let found = assign_roles(&roles, &players);
            proptest::prop_assert_eq!(found.is_some(), there_is);
            if let Some(found) = found {
                for (role, asked) in roles.iter().enumerate() {
                    let plays = found.iter().filter(|plays| usize::from(**plays) == role).count();
                    proptest::prop_assert!(usize::from(asked.per_team) <= plays);
                }
                proptest::prop_assert!(found.iter().zip(&players).all(|(role, offers)| offers >> role & 1 == 1));
            }
        }
    }
}
