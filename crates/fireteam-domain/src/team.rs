//! Team split: divides the parties of a match into teams that are as even as possible. Parties stay whole and every
//! role is filled. Exact for small teams, greedy with local search for large ones.

mod gap_bound;
mod local_search;
mod party;
mod role_assignment;
mod role_supply;
mod split_problem;
mod split_search;

use crate::limit::PLAYERS_PER_SESSION_MAX;
use crate::ruleset::teams::TeamsSpec;
use crate::team::split_problem::{PartialTeam, SplitProblem};
use crate::team::split_search::{SplitWithOptimality, search_split};

pub use crate::team::party::TeamParty;

/// Division of a match into teams.
#[derive(Clone, Debug, PartialEq)]
pub struct TeamSplit {
    /// Teams in the order of `TeamsSpec::sizes`. Each lists its parties, as ascending indexes into the input, with the
    /// role of each of the party's players. The roles are empty without roles in the spec. Players get the roles that they
    /// want most, as far as every role is filled. A player who wants none, and whom no role needs, gets the first role that
    /// their party offers, or any.
    pub teams: Vec<Vec<(usize, Vec<u16>)>>,
    /// Unevenness, 0 or more. With teams of equal size, the largest difference between two teams' rating sums.
    /// Otherwise the largest difference between two teams' mean ratings, because a sum would favor the larger team.
    pub rating_gap: f64,
    /// True if no valid split has a smaller gap. A split of large teams, or one that reached the work limit, may be as
    /// good without being proven so.
    pub is_optimal: bool,
}

/// Best split of `parties` into the spec's teams: parties whole, every team full and its roles filled. Two parties with
/// `apart(i, j)` are in different teams. Exact while no team is larger than `exact_up_to_team_size` and there are at most
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
    let exact = spec.largest_team_size() <= spec.exact_up_to_team_size;
    solve_split(spec, parties, parties.len(), apart, |problem| search_split(problem, exact))
}

/// Split of a match in which bots take the seats that `parties` leave. Bots count with the mean rating of the players, and may play
/// any role. Each team has a player; with fewer parties than teams, each party is in a team of its own, and bots fill the other
/// teams. Otherwise as [`split_into_teams`]. The result has no bots.
pub fn split_with_bots(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<TeamSplit> {
    let ratings = || parties.iter().flat_map(|party| party.ratings);
    let player_count = ratings().count();
    let mean = [ratings().sum::<f64>() / player_count.max(1) as f64];
    let all_roles = role_indexes_offered_by_party(spec, None);
    let bot = TeamParty { ratings: &mean, offered_roles: &all_roles, wanted_roles: &[] };
    let bot_count = usize::from(spec.players_per_match()).checked_sub(player_count)?;
    let with_bots: Vec<TeamParty<'_>> = parties.iter().copied().chain(std::iter::repeat_n(bot, bot_count)).collect();
    let is_alone = parties.len() < spec.team_sizes.len();
    let first_bot = if is_alone { with_bots.len() } else { parties.len() };
    let exact = spec.largest_team_size() <= spec.exact_up_to_team_size;
    let apart = |one: usize, other: usize| one.max(other) < parties.len() && (is_alone || apart(one, other));
    let mut split = solve_split(spec, &with_bots, first_bot, &apart, |problem| search_split(problem, exact))?;
    split.teams.iter_mut().for_each(|team| team.retain(|(party, _)| *party < parties.len()));
    Some(split)
}

/// Greedy split: the first step of [`split_into_teams`] for large teams. Places the highest rated party into the team
/// with the lowest total, the later team on a tie, until the teams are full. Large parties are placed before small
/// ones.
pub fn split_greedily(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<TeamSplit> {
    solve_split(spec, parties, parties.len(), apart, split_search::search_greedy_split)
}

fn solve_split(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    first_bot: usize,
    apart: &dyn Fn(usize, usize) -> bool,
    search: impl Fn(&SplitProblem<'_>) -> Option<SplitWithOptimality>,
) -> Option<TeamSplit> {
    if usize::from(spec.players_per_match()) > PLAYERS_PER_SESSION_MAX {
        return None;
    }
    let mut problem = SplitProblem::new(spec, parties, apart)?;
    problem.first_bot = first_bot;
    let result = search(&problem)?;
    let teams = problem.with_recomputed_sums(&result.teams);
    let with_roles = |team: &PartialTeam| {
        let offered = problem.offered_role_sets(team.parties.iter().copied());
        let assigned = role_assignment::assign_roles(&spec.roles, &offered, &problem.wanted_roles(&team.parties))?;
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

/// Whether these parties, and players in the seats that they leave open, can fill the roles of all teams together.
pub fn roles_can_be_filled<'p>(
    spec: &TeamsSpec,
    parties: impl Iterator<Item = TeamParty<'p>>,
    open_seats: u16,
) -> bool {
    split_problem::roles_can_be_filled(spec, parties, open_seats.into())
}

/// Number of places of roles in one team that these parties, and any players in its open seats, can fill. `None` if one of the
/// players offers no role.
pub fn fillable_role_places(spec: &TeamsSpec, parties: &[TeamParty<'_>], open_seats: u16) -> Option<usize> {
    split_problem::fillable_role_places(spec, parties, open_seats.into())
}

/// Roles of the players of each of `guests`, who join `seated` in a team with open seats, which any players may take: as many places
/// as possible are filled, at the smallest sum of positions in the guests' lists. The seated players play any of their roles.
/// Each player offers a role.
pub fn assign_roles_to_joining_parties(
    spec: &TeamsSpec,
    seated: TeamParty<'_>,
    guests: &[TeamParty<'_>],
    open_seats: u16,
) -> Vec<Vec<u16>> {
    split_problem::assign_roles_to_joining_parties(spec, seated, guests, open_seats.into())
}

/// Whether the players of a party can be in one team with the roles that they offer, with any players in its other seats.
pub fn party_fits_into_a_team(spec: &TeamsSpec, party: &TeamParty<'_>) -> bool {
    split_problem::party_fits_into_a_team(spec, party)
}

/// Roles that a party offers, as ascending indexes into `spec.roles`. `declared` is the session's value of the
/// attribute `spec.role_attribute`. Without a value, the party offers all roles. Unknown names are ignored.
pub fn role_indexes_offered_by_party(spec: &TeamsSpec, declared: Option<&[Box<str>]>) -> Vec<u16> {
    let indexes = 0..spec.roles.len() as u16;
    indexes.filter(|&index| declared.is_none_or(|names| names.contains(&spec.roles[usize::from(index)].name))).collect()
}

#[cfg(test)]
mod tests;
