//! Parties being put into teams: who is where, what fits, and how uneven it is.

use std::iter::repeat_n;

use crate::domain::ruleset::teams::{Role, TeamsSpec};
use crate::domain::team::Party;
use crate::domain::team::roles::{RoleSet, can_fill, set_of};

/// What a split has to keep to, prepared.
pub(super) struct Board<'a> {
    pub(super) spec: &'a TeamsSpec,
    pub(super) parties: &'a [Party<'a>],
    /// All teams are of one size: they are compared by sums.
    pub(super) alike: bool,
    /// The sum of each party's ratings.
    pub(super) sums: Vec<f64>,
    /// What each party's players offer.
    offers: Vec<RoleSet>,
    /// With whom each party must not be in one team; ascending.
    apart: Vec<Vec<usize>>,
    /// Less than this is what sums of these ratings may be off by, in whatever order they are added.
    pub(super) slack: f64,
}

/// One team as it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Team {
    /// Its parties, in the order in which they came.
    pub(super) members: Vec<usize>,
    /// Seats that are still open.
    pub(super) open: usize,
    /// The sum of its players' ratings.
    pub(super) sum: f64,
}

impl<'a> Board<'a> {
    /// `None` where no split can be: the players are not as many as the match takes, a party has none, or not all teams
    /// together find somebody for every role.
    pub(super) fn new(
        spec: &'a TeamsSpec,
        parties: &'a [Party<'a>],
        apart: &dyn Fn(usize, usize) -> bool,
    ) -> Option<Self> {
        let players: usize = parties.iter().map(|party| party.ratings.len()).sum();
        let seats: usize = spec.sizes.iter().map(|&size| usize::from(size)).sum();
        if players != seats || spec.sizes.contains(&0) || parties.iter().any(|party| party.ratings.is_empty()) {
            return None;
        }
        let never = |i: usize| {
            let others = (0..parties.len()).filter(move |&j| i != j);
            others.filter(|&j| apart(i.min(j), i.max(j)) || apart(i.max(j), i.min(j))).collect()
        };
        let offers: Vec<RoleSet> = parties.iter().map(|party| set_of(&spec.roles, party.roles)).collect();
        let everyone: Vec<RoleSet> = offers.iter().zip(parties).flat_map(|(&it, by)| repeat_n(it, by.ratings.len())).collect();
        if !can_fill(&in_all_teams(spec), &everyone, 0) {
            return None;
        }
        let magnitude: f64 = parties.iter().flat_map(|party| party.ratings).map(|rating| rating.abs()).sum();
        Some(Self {
            spec,
            parties,
            alike: spec.sizes.iter().all(|size| *size == spec.sizes[0]),
            sums: parties.iter().map(|party| party.ratings.iter().sum()).collect(),
            offers,
            apart: (0..parties.len()).map(never).collect(),
            slack: magnitude * f64::EPSILON * players as f64,
        })
    }

    /// Teams of the spec's sizes with nobody in them.
    pub(super) fn empty(&self) -> Vec<Team> {
        let sizes = self.spec.sizes.iter().map(|&size| usize::from(size));
        sizes.map(|open| Team { members: Vec::new(), open, sum: 0.0 }).collect()
    }

    /// Players in a party.
    pub(super) fn size(&self, party: usize) -> usize {
        self.parties[party].ratings.len()
    }

    /// A sum of ratings of team `at`, as teams are compared.
    pub(super) fn measure(&self, at: usize, sum: f64) -> f64 {
        if self.alike { sum } else { sum / f64::from(self.spec.sizes[at]) }
    }

    /// The largest difference between two teams.
    pub(super) fn gap(&self, teams: &[Team]) -> f64 {
        let measures = teams.iter().enumerate().map(|(at, team)| self.measure(at, team.sum));
        let (least, most) = measures.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)));
        most - least
    }

    /// Whether `party` may join the team: seats, whom it must not meet there, and roles that can still be filled.
    pub(super) fn fits(&self, team: &Team, party: usize) -> bool {
        self.size(party) <= team.open
            && !self.apart[party].iter().any(|other| team.members.contains(other))
            && (self.spec.roles.is_empty() || {
                let offers = self.team_offers(team.members.iter().copied().chain([party]));
                can_fill(&self.spec.roles, &offers, team.open - self.size(party))
            })
    }

    /// Whether these parties, who fill a team, may be one.
    pub(super) fn may_be_team(&self, members: &[usize]) -> bool {
        members.iter().all(|&one| !self.apart[one].iter().any(|other| members.contains(other)))
            && can_fill(&self.spec.roles, &self.team_offers(members.iter().copied()), 0)
    }

    /// What the players of these parties offer, in their order.
    pub(super) fn team_offers(&self, members: impl Iterator<Item = usize>) -> Vec<RoleSet> {
        members.flat_map(|party| repeat_n(self.offers[party], self.size(party))).collect()
    }

    /// The teams with their sums added up anew, in the order of parties: sums that were kept up to date by differences drift.
    pub(super) fn settled(&self, teams: &[Team]) -> Vec<Team> {
        let mut settled = teams.to_vec();
        for team in &mut settled {
            team.members.sort_unstable();
            team.sum = team.members.iter().flat_map(|&party| self.parties[party].ratings).sum();
        }
        settled
    }
}

/// The roles of all teams, as if they were one.
fn in_all_teams(spec: &TeamsSpec) -> Vec<Role> {
    let teams = spec.sizes.len() as u16;
    let in_all = |role: &Role| Role { per_team: role.per_team.saturating_mul(teams), ..role.clone() };
    spec.roles.iter().map(in_all).collect()
}
