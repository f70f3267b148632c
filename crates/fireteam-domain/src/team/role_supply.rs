//! Supply of roles: whether the parties that are still to be placed offer what the teams of a partial split lack.
//!
//! A necessary condition, role by role. Without it, a search that puts too many of the few players who offer a role into one team
//! notices only when all other seats are taken.

use crate::team::split_problem::{PartialTeam, SplitProblem};

/// Players who offer each role, by party and by depth of the search.
pub(super) struct RoleSupply {
    /// Of each party and role, the number of its players who offer the role.
    of_party: Vec<Vec<u16>>,
    /// The same sum over the parties that are placed from each depth on.
    from_depth: Vec<Vec<u16>>,
}

impl RoleSupply {
    /// `None` without roles.
    pub(super) fn new(problem: &SplitProblem<'_>, placement_order: &[usize]) -> Option<Self> {
        let role_count = problem.spec.roles.len();
        if role_count == 0 {
            return None;
        }
        let offers = |party: usize| {
            let sets = problem.offered_role_sets([party].into_iter());
            (0..role_count).map(|role| sets.iter().filter(|set| **set >> role & 1 == 1).count() as u16).collect()
        };
        let of_party: Vec<Vec<u16>> = (0..problem.parties.len()).map(offers).collect();
        let mut from_depth = vec![vec![0; role_count]; placement_order.len() + 1];
        for (depth, &party) in placement_order.iter().enumerate().rev() {
            for role in 0..role_count {
                from_depth[depth][role] = from_depth[depth + 1][role] + of_party[party][role];
            }
        }
        Some(Self { of_party, from_depth })
    }

    /// Whether the parties from `depth` on offer each role as often as the teams lack it.
    pub(super) fn suffices(&self, problem: &SplitProblem<'_>, depth: usize, teams: &[PartialTeam]) -> bool {
        problem.spec.roles.iter().enumerate().all(|(role, spec)| {
            let lacking = |team: &PartialTeam| {
                let offered: u16 = team.parties.iter().map(|&party| self.of_party[party][role]).sum();
                spec.per_team.saturating_sub(offered)
            };
            teams.iter().map(lacking).sum::<u16>() <= self.from_depth[depth][role]
        })
    }
}
