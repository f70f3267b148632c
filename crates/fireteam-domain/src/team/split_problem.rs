//! Parties being put into teams: who is where, what fits, and how uneven it is.

use std::iter::repeat_n;

use crate::ruleset::teams::{TeamRole, TeamsSpec};
use crate::team::TeamParty;
use crate::team::role_assignment::{RoleSet, can_fill_roles, role_set};

/// What a split has to keep to, prepared.
pub(super) struct SplitProblem<'a> {
    pub(super) spec: &'a TeamsSpec,
    pub(super) parties: &'a [TeamParty<'a>],
    /// All teams are of one size: they are compared by sums.
    pub(super) equal_sizes: bool,
    /// The sum of each party's ratings.
    pub(super) party_rating_sums: Vec<f64>,
    /// What each party's players offer.
    party_roles: Vec<RoleSet>,
    /// With whom each party must not be in one team; ascending.
    kept_apart: Vec<Vec<usize>>,
    /// Less than this is what sums of these ratings may be off by, in whatever order they are added.
    pub(super) rounding_tolerance: f64,
}

/// One team as it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialTeam {
    /// Its parties, in the order in which they came.
    pub(super) parties: Vec<usize>,
    /// Seats that are still open.
    pub(super) open_seats: usize,
    /// The sum of its players' ratings.
    pub(super) rating_sum: f64,
}

impl<'a> SplitProblem<'a> {
    /// `None` where no split can be: the players are not as many as the match takes, a party has none, or not all teams
    /// together find somebody for every role.
    pub(super) fn new(
        spec: &'a TeamsSpec,
        parties: &'a [TeamParty<'a>],
        apart: &dyn Fn(usize, usize) -> bool,
    ) -> Option<Self> {
        let players: usize = parties.iter().map(|party| party.ratings.len()).sum();
        let seats: usize = spec.team_sizes.iter().map(|&size| usize::from(size)).sum();
        if players != seats || spec.team_sizes.contains(&0) || parties.iter().any(|party| party.ratings.is_empty()) {
            return None;
        }
        let never = |i: usize| {
            let others = (0..parties.len()).filter(move |&j| i != j);
            others.filter(|&j| apart(i.min(j), i.max(j)) || apart(i.max(j), i.min(j))).collect()
        };
        let offers: Vec<RoleSet> = parties.iter().map(|party| role_set(&spec.roles, party.offered_roles)).collect();
        let everyone: Vec<RoleSet> =
            offers.iter().zip(parties).flat_map(|(&it, by)| repeat_n(it, by.ratings.len())).collect();
        if !can_fill_roles(&roles_of_all_teams(spec), &everyone, 0) {
            return None;
        }
        let magnitude: f64 = parties.iter().flat_map(|party| party.ratings).map(|rating| rating.abs()).sum();
        Some(Self {
            spec,
            parties,
            equal_sizes: spec.team_sizes.iter().all(|size| *size == spec.team_sizes[0]),
            party_rating_sums: parties.iter().map(|party| party.ratings.iter().sum()).collect(),
            party_roles: offers,
            kept_apart: (0..parties.len()).map(never).collect(),
            rounding_tolerance: magnitude * f64::EPSILON * players as f64,
        })
    }

    /// Teams of the spec's sizes with nobody in them.
    pub(super) fn empty_teams(&self) -> Vec<PartialTeam> {
        let sizes = self.spec.team_sizes.iter().map(|&size| usize::from(size));
        sizes.map(|open| PartialTeam { parties: Vec::new(), open_seats: open, rating_sum: 0.0 }).collect()
    }

    /// Players in a party.
    pub(super) fn party_size(&self, party: usize) -> usize {
        self.parties[party].ratings.len()
    }

    /// A sum of ratings of team `at`, as teams are compared.
    pub(super) fn team_strength(&self, at: usize, sum: f64) -> f64 {
        if self.equal_sizes { sum } else { sum / f64::from(self.spec.team_sizes[at]) }
    }

    /// The largest difference between two teams.
    pub(super) fn rating_gap(&self, teams: &[PartialTeam]) -> f64 {
        let measures = teams.iter().enumerate().map(|(at, team)| self.team_strength(at, team.rating_sum));
        let (least, most) =
            measures.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
        most - least
    }

    /// Whether `party` may join the team: seats, whom it must not meet there, and roles that can still be filled.
    pub(super) fn party_fits(&self, team: &PartialTeam, party: usize) -> bool {
        self.party_size(party) <= team.open_seats
            && !self.kept_apart[party].iter().any(|other| team.parties.contains(other))
            && (self.spec.roles.is_empty() || {
                let offers = self.player_roles(team.parties.iter().copied().chain([party]));
                can_fill_roles(&self.spec.roles, &offers, team.open_seats - self.party_size(party))
            })
    }

    /// Whether these parties, who fill a team, may be one.
    pub(super) fn is_valid_team(&self, members: &[usize]) -> bool {
        members.iter().all(|&one| !self.kept_apart[one].iter().any(|other| members.contains(other)))
            && can_fill_roles(&self.spec.roles, &self.player_roles(members.iter().copied()), 0)
    }

    /// What the players of these parties offer, in their order.
    pub(super) fn player_roles(&self, members: impl Iterator<Item = usize>) -> Vec<RoleSet> {
        members.flat_map(|party| repeat_n(self.party_roles[party], self.party_size(party))).collect()
    }

    /// The teams with their sums added up anew, in the order of parties: sums that were kept up to date by differences
    /// drift.
    pub(super) fn with_recomputed_sums(&self, teams: &[PartialTeam]) -> Vec<PartialTeam> {
        let mut settled = teams.to_vec();
        for team in &mut settled {
            team.parties.sort_unstable();
            team.rating_sum = team.parties.iter().flat_map(|&party| self.parties[party].ratings).sum();
        }
        settled
    }
}

/// The roles of all teams, as if they were one.
fn roles_of_all_teams(spec: &TeamsSpec) -> Vec<TeamRole> {
    let teams = spec.team_sizes.len() as u16;
    let in_all = |role: &TeamRole| TeamRole { per_team: role.per_team.saturating_mul(teams), ..role.clone() };
    spec.roles.iter().map(in_all).collect()
}
