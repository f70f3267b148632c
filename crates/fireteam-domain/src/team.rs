//! Team split: divides the parties of a match into teams that are as even as possible. Parties stay whole and every
//! role is filled. Exact for small teams, greedy with local search for large ones.

mod gap_bound;
mod local_search;
mod party;
mod role_assignment;
mod split_problem;
mod split_search;

use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::ruleset::teams::TeamsSpec;
use crate::team::split_problem::{PartialTeam, SplitProblem};
use crate::team::split_search::{SplitResult, search_best_split};

pub use crate::team::party::TeamParty;

/// Division of a match into teams.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamSplit {
    /// Teams in the order of `TeamsSpec::sizes`. Each lists its parties, as ascending indexes into the input, with the
    /// role of each of the party's players. The roles are empty without roles in the spec. A player whom no role needs
    /// gets the first role that they offer.
    pub teams: Vec<Vec<(usize, Vec<u16>)>>,
    /// Unevenness, 0 or more. With teams of equal size, the largest difference between two teams' rating sums.
    /// Otherwise the largest difference between two teams' mean ratings, because a sum would favor the larger team.
    pub rating_gap: f64,
    /// True if no valid split has a smaller gap. A split of large teams, or one that reached the work limit, may be as
    /// good without being proven so.
    pub is_optimal: bool,
}

/// Best split of `parties` into the spec's teams: parties whole, every team full and its roles filled. Two parties with
/// `apart(i, j)` are in different teams. Exact while no team is larger than `exact_up_to_size` and there are at most
/// ten million splits, as for four teams of four.
///
/// `None` without a valid split: if the number of players differs from the size of the match, or exceeds
/// `limit::PLAYERS_PER_SESSION_MAX`. The search may also miss a valid split if it reaches the work limit while
/// backtracking from constraints on parties and roles.
///
/// Deterministic for the same parties in the same order. Which of several equally good splits is returned is
/// unspecified.
pub fn split_into_teams(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<TeamSplit> {
    let exact = spec.largest_team_size() <= spec.exact_up_to_size;
    solve_split(spec, parties, apart, |problem| search_best_split(problem, exact))
}

/// Greedy split: the first step of [`split_into_teams`] for large teams. Places the highest rated party into the team
/// with the lowest total, the later team on a tie, until the teams are full. Large parties are placed before small
/// ones.
pub fn split_greedily(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<TeamSplit> {
    solve_split(spec, parties, apart, split_search::search_greedy_split)
}

fn solve_split(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
    search: impl Fn(&SplitProblem<'_>) -> Option<SplitResult>,
) -> Option<TeamSplit> {
    if usize::from(spec.players_per_match()) > PLAYERS_PER_SESSION_MAX {
        return None;
    }
    let problem = SplitProblem::new(spec, parties, apart)?;
    let result = search(&problem)?;
    let teams = problem.with_recomputed_sums(&result.teams);
    let with_roles = |team: &PartialTeam| {
        let assigned = role_assignment::assign_roles(&spec.roles, &problem.player_roles(team.parties.iter().copied()))?;
        let mut roles = assigned.into_iter();
        Some(
            team.parties
                .iter()
                .map(|&party| (party, roles.by_ref().take(problem.party_size(party)).collect()))
                .collect(),
        )
    };
    let rating_gap = problem.rating_gap(&teams);
    Some(TeamSplit {
        teams: teams.iter().map(with_roles).collect::<Option<_>>()?,
        rating_gap,
        is_optimal: result.is_optimal,
    })
}

/// Roles that a party offers, as ascending indexes into `spec.roles`. `declared` is the session's value of the
/// attribute `spec.role_attribute`. Without a value, the party offers all roles. Unknown names are ignored.
pub fn offered_roles(spec: &TeamsSpec, declared: Option<&[Box<str>]>) -> Vec<u16> {
    let indexes = 0..spec.roles.len() as u16;
    indexes.filter(|&index| declared.is_none_or(|names| names.contains(&spec.roles[usize::from(index)].name))).collect()
}

#[cfg(test)]
mod tests;
