//! Roles that are open in the teams of a session: a guest is seated so that as many places of roles can be filled as before.
//!
//! Players whose role is unknown count as the seats that are still open: each may play any role.

use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::queue::seated_party::SeatedParty;
use crate::ruleset::teams::TeamsSpec;
use crate::team::{self, TeamParty};

/// A role does not depend on ratings; a party has one for each player.
const ZERO_RATINGS: [f64; PLAYERS_PER_SESSION_MAX] = [0.0; PLAYERS_PER_SESSION_MAX];

/// Roles of the players in a session.
#[derive(Debug)]
pub(super) struct SeatedRoles {
    all_roles: Box<[u16]>,
    /// Roles that each seated player may play, by team; empty if unknown.
    player_roles_by_team: Vec<Vec<Box<[u16]>>>,
}

impl SeatedRoles {
    /// `None` without roles.
    pub(super) fn new(spec: &TeamsSpec, parties: &[SeatedParty], party_teams: &[u16]) -> Option<Self> {
        if spec.roles.is_empty() {
            return None;
        }
        let mut seated = vec![Vec::new(); spec.team_sizes.len()];
        for (party, &team) in parties.iter().zip(party_teams) {
            let known = |index: usize| party.roles.get(index).cloned().unwrap_or_default();
            seated[usize::from(team)].extend((0..usize::from(party.player_count)).map(known));
        }
        Some(Self { all_roles: team::role_indexes_offered_by_party(spec, None).into(), player_roles_by_team: seated })
    }

    /// Sum of the positions of a ticket's roles in its players' lists, if it joins `guests` in `team`, which has `room` for it.
    /// `None` if a role would stay open that other players in these seats could fill, or one of its players offers none.
    pub(super) fn wanted_role_position_sum(
        &self,
        spec: &TeamsSpec,
        (team, room): (u16, u16),
        guests: &[TeamParty<'_>],
        ticket: TeamParty<'_>,
    ) -> Option<usize> {
        let seated = self.seated_players_as_party(team);
        let mut parties = [&[seated], guests].concat();
        let before = team::fillable_role_places(spec, &parties, room)?;
        parties.push(ticket);
        let room = room.checked_sub(ticket.ratings.len() as u16)?;
        if team::fillable_role_places(spec, &parties, room)? < before {
            return None;
        }
        let roles = team::assign_roles_to_joining_parties(spec, seated, &parties[1..], room).pop()?;
        let positions =
            roles.iter().zip(ticket.wanted_roles).map(|(role, wanted)| wanted.iter().position(|own| own == role));
        Some(positions.map(Option::unwrap_or_default).sum())
    }

    /// Roles of the players of each of `guests` in `team`, which has `room` for more.
    pub(super) fn roles_of_joining_parties(
        &self,
        spec: &TeamsSpec,
        (team, room): (u16, u16),
        guests: &[TeamParty<'_>],
    ) -> Vec<Vec<u16>> {
        team::assign_roles_to_joining_parties(spec, self.seated_players_as_party(team), guests, room)
    }

    /// The players seated in a team, as one party.
    fn seated_players_as_party(&self, team: u16) -> TeamParty<'_> {
        let seated = &self.player_roles_by_team[usize::from(team)];
        TeamParty {
            ratings: &ZERO_RATINGS[..seated.len().min(PLAYERS_PER_SESSION_MAX)],
            offered_roles: &self.all_roles,
            wanted_roles: seated,
        }
    }
}
