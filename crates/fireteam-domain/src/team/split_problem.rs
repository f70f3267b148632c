//! Split problem: parties, teams and constraints of one split, and the unevenness of its teams.

use crate::ruleset::teams::{TeamRole, TeamsSpec};
use crate::team::party::TeamParty;
use crate::team::role_assignment::{RoleSet, assign_with_open_seats, can_fill_roles, fillable_places, role_set};

/// Input of a split with precomputed sums and constraints.
pub(super) struct SplitProblem<'a> {
    pub(super) spec: &'a TeamsSpec,
    pub(super) parties: &'a [TeamParty<'a>],
    /// Parties from this one on are bots. A team has at least one other party.
    pub(super) first_bot: usize,
    /// True if all teams have the same size: they are compared by sums.
    pub(super) equal_sizes: bool,
    /// Rating sum of each party.
    pub(super) party_rating_sums: Vec<f64>,
    /// Roles that each party's players offer.
    party_offered_roles: Vec<RoleSet>,
    /// Parties that must not be in one team with each party; ascending.
    kept_apart: Vec<Vec<usize>>,
    /// Upper bound of the rounding error of sums of these ratings, for any order of addition.
    pub(super) rounding_tolerance: f64,
}

/// A team during the search.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialTeam {
    /// Its parties, in the order of their placement.
    pub(super) parties: Vec<usize>,
    /// Seats that are still open.
    pub(super) open_seats: usize,
    /// Sum of its players' ratings.
    pub(super) rating_sum: f64,
}

impl<'a> SplitProblem<'a> {
    /// `None` without a possible split: the number of players differs from the size of the match, a party is empty, or
    /// the roles of all teams together cannot be filled.
    pub(super) fn new(
        spec: &'a TeamsSpec,
        parties: &'a [TeamParty<'a>],
        apart: &dyn Fn(usize, usize) -> bool,
    ) -> Option<Self> {
        let player_count: usize = parties.iter().map(|party| party.ratings.len()).sum();
        let seat_count: usize = spec.team_sizes.iter().map(|&size| usize::from(size)).sum();
        if player_count != seat_count
            || spec.team_sizes.contains(&0)
            || parties.iter().any(|party| party.ratings.is_empty())
        {
            return None;
        }
        let parties_apart_from = |i: usize| {
            let others = (0..parties.len()).filter(move |&j| i != j);
            others.filter(|&j| apart(i.min(j), i.max(j)) || apart(i.max(j), i.min(j))).collect()
        };
        let party_roles: Vec<RoleSet> =
            parties.iter().map(|party| role_set(&spec.roles, party.offered_roles)).collect();
        if !roles_can_be_filled(spec, parties.iter().copied(), 0) {
            return None;
        }
        let magnitude: f64 = parties.iter().flat_map(|party| party.ratings).map(|rating| rating.abs()).sum();
        Some(Self {
            spec,
            parties,
            first_bot: parties.len(),
            equal_sizes: spec.team_sizes.iter().all(|size| *size == spec.team_sizes[0]),
            party_rating_sums: parties.iter().map(|party| party.ratings.iter().sum()).collect(),
            party_offered_roles: party_roles,
            kept_apart: (0..parties.len()).map(parties_apart_from).collect(),
            rounding_tolerance: magnitude * f64::EPSILON * player_count as f64,
        })
    }

    /// Empty teams of the spec's sizes.
    pub(super) fn empty_teams(&self) -> Vec<PartialTeam> {
        let sizes = self.spec.team_sizes.iter().map(|&size| usize::from(size));
        sizes.map(|open_seats| PartialTeam { parties: Vec::new(), open_seats, rating_sum: 0.0 }).collect()
    }

    /// Number of players of a party.
    pub(super) fn party_size(&self, party: usize) -> usize {
        self.parties[party].ratings.len()
    }

    /// Value by which team `team_index` is compared, for a rating sum: the sum or the mean.
    pub(super) fn team_strength(&self, team_index: usize, rating_sum: f64) -> f64 {
        if self.equal_sizes { rating_sum } else { rating_sum / f64::from(self.spec.team_sizes[team_index]) }
    }

    /// Largest difference between two teams.
    pub(super) fn rating_gap(&self, teams: &[PartialTeam]) -> f64 {
        let strengths = teams.iter().enumerate().map(|(index, team)| self.team_strength(index, team.rating_sum));
        let (lowest, highest) = strengths.fold((f64::INFINITY, f64::NEG_INFINITY), |(lowest, highest), strength| {
            (lowest.min(strength), highest.max(strength))
        });
        highest - lowest
    }

    /// True if `party` may join the team: enough seats, no party to be kept apart from, and roles that can still be
    /// filled.
    pub(super) fn party_fits(&self, team: &PartialTeam, party: usize) -> bool {
        self.party_size(party) <= team.open_seats
            && (party < self.first_bot || 1 < team.open_seats || self.has_non_bot_party(&team.parties))
            && !self.kept_apart[party].iter().any(|other| team.parties.contains(other))
            && (self.spec.roles.is_empty() || {
                let roles = self.offered_role_sets(team.parties.iter().copied().chain([party]));
                can_fill_roles(&self.spec.roles, &roles, team.open_seats - self.party_size(party))
            })
    }

    /// True if these parties, which fill a team, may form one.
    pub(super) fn is_valid_team(&self, parties: &[usize]) -> bool {
        parties.iter().all(|&party| !self.kept_apart[party].iter().any(|other| parties.contains(other)))
            && self.has_non_bot_party(parties)
            && (self.spec.roles.is_empty()
                || can_fill_roles(&self.spec.roles, &self.offered_role_sets(parties.iter().copied()), 0))
    }

    fn has_non_bot_party(&self, parties: &[usize]) -> bool {
        parties.iter().any(|&party| party < self.first_bot)
    }

    /// Roles that the players of these parties offer, in their order.
    pub(super) fn offered_role_sets(&self, parties: impl Iterator<Item = usize>) -> Vec<RoleSet> {
        let roles_of =
            |party: usize| role_sets_offered_by_party(self.spec, &self.parties[party], self.party_offered_roles[party]);
        parties.flat_map(roles_of).collect()
    }

    /// Roles that the players of these parties want, in their order.
    pub(super) fn wanted_roles(&self, parties: &[usize]) -> Vec<&[u16]> {
        let wanted_in =
            |&party: &usize| (0..self.party_size(party)).map(move |at| self.parties[party].wanted_roles_of_player(at));
        parties.iter().flat_map(wanted_in).collect()
    }

    /// Teams with sums recomputed in the order of parties. Sums updated by differences drift.
    pub(super) fn with_recomputed_sums(&self, teams: &[PartialTeam]) -> Vec<PartialTeam> {
        let mut recomputed = teams.to_vec();
        for team in &mut recomputed {
            team.parties.sort_unstable();
            team.rating_sum = team.parties.iter().flat_map(|&party| self.parties[party].ratings).sum();
        }
        recomputed
    }
}

/// Whether these parties, and players in `open_seats` more seats, can fill the roles of all teams together. `false` if one
/// of the players offers no role.
pub(super) fn roles_can_be_filled<'p>(
    spec: &TeamsSpec,
    parties: impl Iterator<Item = TeamParty<'p>>,
    open_seats: usize,
) -> bool {
    if spec.roles.is_empty() {
        return true;
    }
    let mut sets = Vec::new();
    for party in parties {
        sets.extend(role_sets_offered_by_party(spec, &party, role_set(&spec.roles, party.offered_roles)));
    }
    can_fill_roles(&roles_of_all_teams(spec), &sets, open_seats)
}

/// Whether the players of a party can be in one team, with any players in its other seats.
pub(super) fn party_fits_into_a_team(spec: &TeamsSpec, party: &TeamParty<'_>) -> bool {
    let sets: Vec<RoleSet> =
        role_sets_offered_by_party(spec, party, role_set(&spec.roles, party.offered_roles)).collect();
    let open_seats = spec.team_sizes.iter().filter_map(|size| usize::from(*size).checked_sub(sets.len())).max();
    open_seats.is_some_and(|open_seats| can_fill_roles(&spec.roles, &sets, open_seats))
}

/// Number of places of roles in a team that these parties, and any players in `open_seats` more, can fill. `None` if one of the
/// players offers no role.
pub(super) fn fillable_role_places(spec: &TeamsSpec, parties: &[TeamParty<'_>], open_seats: usize) -> Option<usize> {
    let sets = role_sets_offered_by_parties(spec, parties);
    sets.iter().all(|offers| *offers != 0).then(|| fillable_places(&spec.roles, &sets, open_seats))
}

/// Roles of the players of each of `guests` beside those of `seated`, and any players in `open_seats` more.
pub(super) fn assign_roles_to_joining_parties(
    spec: &TeamsSpec,
    seated: TeamParty<'_>,
    guests: &[TeamParty<'_>],
    open_seats: usize,
) -> Vec<Vec<u16>> {
    let mut sets = role_sets_offered_by_parties(spec, &[seated]);
    let seated_count = sets.len();
    sets.extend(role_sets_offered_by_parties(spec, guests));
    let mut wanted: Vec<&[u16]> = vec![&[]; seated_count];
    wanted.extend(guests.iter().flat_map(|party| (0..party.ratings.len()).map(|at| party.wanted_roles_of_player(at))));
    let mut roles = assign_with_open_seats(&spec.roles, &sets, &wanted, open_seats).into_iter().skip(seated_count);
    guests.iter().map(|party| roles.by_ref().take(party.ratings.len()).collect()).collect()
}

/// Roles that each player of these parties offers.
fn role_sets_offered_by_parties(spec: &TeamsSpec, parties: &[TeamParty<'_>]) -> Vec<RoleSet> {
    let sets = |party| role_sets_offered_by_party(spec, party, role_set(&spec.roles, party.offered_roles));
    parties.iter().flat_map(sets).collect()
}

/// Roles that each player of a party offers: those that the player wants, or else `offered` by the party.
fn role_sets_offered_by_party<'p>(
    spec: &'p TeamsSpec,
    party: &'p TeamParty<'_>,
    offered: RoleSet,
) -> impl Iterator<Item = RoleSet> + 'p {
    (0..party.ratings.len()).map(move |at| match party.wanted_roles_of_player(at) {
        [] => offered,
        wanted => role_set(&spec.roles, wanted),
    })
}

/// Roles of all teams, as if they were one team.
fn roles_of_all_teams(spec: &TeamsSpec) -> Vec<TeamRole> {
    let team_count = spec.team_sizes.len() as u16;
    let in_all_teams =
        |role: &TeamRole| TeamRole { per_team: role.per_team.saturating_mul(team_count), ..role.clone() };
    spec.roles.iter().map(in_all_teams).collect()
}
