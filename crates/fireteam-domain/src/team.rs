//! Divides a match into teams that are as even as can be, with parties kept whole and every role filled.

mod gap_bound;
mod local_search;
mod role_assignment;
mod split_problem;
mod split_search;

use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::ruleset::teams::TeamsSpec;
use crate::team::split_problem::{PartialTeam, SplitProblem};
use crate::team::split_search::{SplitResult, search_best_split};

/// A party as a split sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TeamParty<'a> {
    /// Its players' ratings, in the order of its players; one player or more. All finite.
    pub ratings: &'a [f64],
    /// The roles that each of its players offers: places in `TeamsSpec::roles`, as [`offered`] makes them. Not looked
    /// at where the spec has no roles; where it has, a player who offers none fits nowhere.
    pub offered_roles: &'a [u16],
}

/// A match divided.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamSplit {
    /// The teams, in the order of `TeamsSpec::sizes`: the parties of each, as places in what was given, ascending; and
    /// what each of a party's players plays, empty where there are no roles. Whom no role needs plays the first that
    /// they offer.
    pub teams: Vec<Vec<(usize, Vec<u16>)>>,
    /// How uneven it is, 0 or more. Where all teams are of one size, the largest difference between two teams' sums of
    /// ratings; where they are not, the largest difference between two teams' means, for a sum would favour the larger
    /// team.
    pub rating_gap: f64,
    /// No other split that the rules allow has a smaller gap. What is found for larger teams, or within the bound on
    /// work, may be as good without being known to be.
    pub is_optimal: bool,
}

/// The best split of `parties` into the spec's teams: parties whole, every team full and its roles filled, no two
/// parties that are `apart(i, j)` in one team. Exact while no team is larger than `exact_up_to_size` and there are ten
/// million splits at most, as there are of four teams of four.
///
/// `None` where there is none: so if the players are not exactly as many as the match takes, or are more than
/// `limit::PLAYERS_MAX`. Parties and roles can be so tangled that none is found within the bound on work, though there
/// is one.
///
/// The same parties in the same order give the same split; which of several equally good ones is not otherwise
/// promised.
pub fn split_into_teams(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<TeamSplit> {
    let exact = spec.largest_team_size() <= spec.exact_up_to_size;
    solve_split(spec, parties, apart, |board| search_best_split(board, exact))
}

/// As [`split`] begins with large teams, before it makes that more even (S4-13): those rated highest first, each into
/// the team with the lowest total, the later of two that are level, until a team is full. Large parties are seated
/// before small ones.
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
    how: impl Fn(&SplitProblem<'_>) -> Option<SplitResult>,
) -> Option<TeamSplit> {
    if PLAYERS_PER_SESSION_MAX < usize::from(spec.players_per_match()) {
        return None;
    }
    let board = SplitProblem::new(spec, parties, apart)?;
    let found = how(&board)?;
    let teams = board.with_recomputed_sums(&found.teams);
    let named = |team: &PartialTeam| {
        let plays = role_assignment::assign_roles(&spec.roles, &board.player_roles(team.parties.iter().copied()))?;
        let mut plays = plays.into_iter();
        Some(
            team.parties.iter().map(|&party| (party, plays.by_ref().take(board.party_size(party)).collect())).collect(),
        )
    };
    let gap = board.rating_gap(&teams);
    Some(TeamSplit {
        teams: teams.iter().map(named).collect::<Option<_>>()?,
        rating_gap: gap,
        is_optimal: found.is_optimal,
    })
}

/// The roles that a party offers, as places in `spec.roles`, ascending. `said` is the session's value of the attribute
/// that `spec.role_attribute` names: who has said nothing plays anything; of what was said, names that no role has are
/// passed over.
pub fn offered_roles(spec: &TeamsSpec, said: Option<&[Box<str>]>) -> Vec<u16> {
    let places = 0..spec.roles.len() as u16;
    places.filter(|&at| said.is_none_or(|said| said.contains(&spec.roles[usize::from(at)].name))).collect()
}

#[cfg(test)]
mod tests;
