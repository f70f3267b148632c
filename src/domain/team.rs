//! Divides a match into teams that are as even as can be, with parties kept whole and every role filled.

mod board;
mod bound;
mod improve;
mod roles;
mod search;

use crate::domain::limit::PLAYERS_MAX;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::team::board::{Board, Team};
use crate::domain::team::search::search;

/// A party as a split sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Party<'a> {
    /// Its players' ratings, in the order of its players; one player or more. All finite.
    pub ratings: &'a [f64],
    /// The roles that each of its players offers: places in `TeamsSpec::roles`, as [`offered`] makes them. Not looked at
    /// where the spec has no roles; where it has, a player who offers none fits nowhere.
    pub roles: &'a [u16],
}

/// A match divided.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The teams, in the order of `TeamsSpec::sizes`: the parties of each, as places in what was given, ascending; and what each
    /// of a party's players plays, empty where there are no roles.
    pub teams: Vec<Vec<(usize, Vec<u16>)>>,
    /// How uneven it is, 0 or more. Where all teams are of one size, the largest difference between two teams' sums of
    /// ratings; where they are not, the largest difference between two teams' means, for a sum would favour the larger team.
    pub gap: f64,
    /// No other split that the rules allow has a smaller gap. What is found for larger teams, or within the bound on work, may be as
    /// good without being known to be.
    pub exact: bool,
}

/// The best split of `parties` into the spec's teams: parties whole, every team full and its roles filled, no two parties that are
/// `apart(i, j)` in one team; exact while no team is larger than `exact_up_to_size`.
///
/// `None` where there is none: so if the players are not exactly as many as the match takes, or are more than
/// `limit::PLAYERS_MAX`. Parties and roles can be so tangled that none is found within the bound on work, though there is one.
///
/// The same parties in the same order give the same split; which of several equally good ones is not otherwise promised.
pub fn split(spec: &TeamsSpec, parties: &[Party<'_>], apart: &dyn Fn(usize, usize) -> bool) -> Option<Split> {
    if PLAYERS_MAX < usize::from(spec.match_size()) {
        return None;
    }
    let board = Board::new(spec, parties, apart)?;
    let found = search(&board, spec.largest() <= spec.exact_up_to_size)?;
    let teams = board.settled(&found.teams);
    let named = |team: &Team| {
        let plays = roles::assign(&spec.roles, &board.team_offers(team.members.iter().copied()))?;
        let mut plays = plays.into_iter();
        Some(team.members.iter().map(|&party| (party, plays.by_ref().take(board.size(party)).collect())).collect())
    };
    let gap = board.gap(&teams);
    Some(Split { teams: teams.iter().map(named).collect::<Option<_>>()?, gap, exact: found.exact })
}

/// The roles that a party offers, as places in `spec.roles`, ascending. `said` is the session's value of the attribute that
/// `spec.role_attribute` names: who has said nothing plays anything; of what was said, names that no role has are passed over.
pub fn offered(spec: &TeamsSpec, said: Option<&[Box<str>]>) -> Vec<u16> {
    let places = 0..spec.roles.len() as u16;
    places.filter(|&at| said.is_none_or(|said| said.contains(&spec.roles[usize::from(at)].name))).collect()
}

#[cfg(test)]
mod tests;
