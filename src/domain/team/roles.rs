//! Who of a team plays what: an assignment of players to the roles that every team must fill.

use crate::domain::ruleset::teams::Role;

/// Roles that one ruleset can have: each asks for a player at least, and so many fit one word.
pub(super) const ROLES_MAX: usize = 64;

/// A set of roles: a bit for each place in `TeamsSpec::roles`.
pub(super) type RoleSet = u64;

/// The set of these places; such as no role has are passed over.
pub(super) fn set_of(roles: &[Role], places: &[u16]) -> RoleSet {
    let known = places.iter().map(|&place| usize::from(place)).filter(|&place| place < roles.len().min(ROLES_MAX));
    known.fold(0, |set, place| set | 1 << place)
}

/// Whether these players, and `open` more who are still to come, can fill every role. Each of them must offer one.
pub(super) fn can_fill(roles: &[Role], players: &[RoleSet], open: usize) -> bool {
    if roles.is_empty() {
        return true;
    }
    let wanted: usize = roles.iter().map(|role| usize::from(role.per_team)).sum();
    players.iter().all(|offers| *offers != 0) && wanted <= open + filled(roles, players).iter().flatten().count()
}

/// What each player of a full team plays, so that every role is filled; whom no role needs plays the first that they offer.
/// `None` where it cannot be done; empty where there are no roles.
pub(super) fn assign(roles: &[Role], players: &[RoleSet]) -> Option<Vec<u16>> {
    if roles.is_empty() {
        return Some(Vec::new());
    }
    if !can_fill(roles, players, 0) {
        return None;
    }
    let needed = filled(roles, players).into_iter().zip(players);
    Some(needed.map(|(role, offers)| role.unwrap_or(offers.trailing_zeros() as u16)).collect())
}

/// As many players as possible in roles that need them, by augmenting paths: whoever finds a role full asks those who play it
/// to play something else. Players in order, roles in order, so equal teams are assigned alike.
fn filled(roles: &[Role], players: &[RoleSet]) -> Vec<Option<u16>> {
    let mut plays = vec![None; players.len()];
    for player in 0..players.len() {
        let mut asked = 0;
        seat(roles, players, &mut plays, player, &mut asked);
    }
    plays
}

/// Gives `player` a role that needs somebody, moving others where that helps; `asked` are the roles that have been tried, which
/// also bounds the depth.
fn seat(
    roles: &[Role],
    players: &[RoleSet],
    plays: &mut [Option<u16>],
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
        let place = Some(role as u16);
        let holders: Vec<usize> = (0..plays.len()).filter(|&other| plays[other] == place).collect();
        let has_room = holders.len() < usize::from(roles[role].per_team);
        if has_room || holders.into_iter().any(|other| seat(roles, players, plays, other, asked)) {
            plays[player] = place;
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(per_team: &[u16]) -> Vec<Role> {
        per_team.iter().enumerate().map(|(at, &per_team)| Role { name: at.to_string().into(), per_team }).collect()
    }

    /// Every way to give each player one of the roles that they offer.
    fn some_way(roles: &[Role], players: &[RoleSet], filled: &mut Vec<u16>) -> bool {
        let Some((offers, rest)) = players.split_first() else {
            return roles.iter().zip(filled.iter()).all(|(role, filled)| role.per_team <= *filled);
        };
        (0..roles.len()).filter(|role| offers >> role & 1 == 1).any(|role| {
            filled[role] += 1;
            let found = some_way(roles, rest, filled);
            filled[role] -= 1;
            found
        })
    }

    #[test]
    fn the_flexible_make_way_for_those_who_can_do_but_one_thing() {
        let roles = roles(&[1, 1, 1]);
        // Taken in order, the first two would leave nothing for the third.
        assert_eq!(assign(&roles, &[0b011, 0b111, 0b001]), Some(vec![1, 2, 0]));
    }

    #[test]
    fn whom_no_role_needs_plays_the_first_that_they_offer() {
        assert_eq!(assign(&roles(&[1, 1]), &[0b11, 0b10, 0b10]), Some(vec![0, 1, 1]));
    }

    #[test]
    fn who_offers_nothing_fits_nowhere() {
        assert_eq!(assign(&roles(&[1]), &[1, 0]), None);
        assert!(!can_fill(&roles(&[1]), &[0], 5));
    }

    #[test]
    fn where_there_are_no_roles_nobody_plays_any() {
        assert_eq!(assign(&[], &[0, 0]), Some(Vec::new()));
    }

    #[test]
    fn those_to_come_may_fill_what_is_still_wanted() {
        let roles = roles(&[2, 1]);
        assert!(can_fill(&roles, &[0b10], 2));
        assert!(!can_fill(&roles, &[0b10], 1));
        assert!(!can_fill(&roles, &[0b10, 0b10], 1));
    }

    #[test]
    fn places_that_no_role_has_are_passed_over() {
        assert_eq!(set_of(&roles(&[1, 1]), &[1, 2, 64, u16::MAX]), 0b10);
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
            let there_is = some_way(&roles, &players, &mut vec![0; roles.len()]);
            let found = assign(&roles, &players);
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
