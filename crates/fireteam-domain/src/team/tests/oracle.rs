//! Exhaustive team split as a reference, and a checker for the rules of a split.

use crate::ruleset::teams::TeamsSpec;
use crate::team::{TeamParty, TeamSplit};

/// Smallest gap of all valid splits.
pub(super) fn smallest_gap(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
) -> Option<f64> {
    let teams = spec.team_sizes.len();
    let mut best: Option<f64> = None;
    let mut team_of = vec![0; parties.len()];
    loop {
        if is_valid_split(spec, parties, apart, &team_of) {
            let gap = gap_of_assignment(spec, parties, &team_of);
            best = Some(best.map_or(gap, |best| best.min(gap)));
        }
        // Counts upwards, with one digit per party.
        let Some(at) = team_of.iter().position(|&team| team + 1 < teams) else { return best };
        team_of[at] += 1;
        team_of[..at].fill(0);
    }
}

fn is_valid_split(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
    team_of: &[usize],
) -> bool {
    spec.team_sizes.iter().enumerate().all(|(team, &size)| {
        let members: Vec<usize> = (0..parties.len()).filter(|&party| team_of[party] == team).collect();
        let players: usize = members.iter().map(|&party| parties[party].ratings.len()).sum();
        let together = members.iter().any(|&a| members.iter().any(|&b| apart(a, b) || apart(b, a)));
        players == usize::from(size) && !together && {
            let offers: Vec<&[u16]> = members
                .iter()
                .flat_map(|&party| (0..parties[party].ratings.len()).map(move |at| offers_of(&parties[party], at)))
                .collect();
            spec.roles.is_empty() || can_fill_roles_by_trial(spec, &offers, &mut vec![0; spec.roles.len()])
        }
    })
}

/// Roles that the player at `index` of a party may play.
fn offers_of<'a>(party: &TeamParty<'a>, index: usize) -> &'a [u16] {
    let wanted = party.wanted_roles.get(index).filter(|wanted| !wanted.is_empty());
    wanted.map_or(party.offered_roles, |wanted| wanted)
}

/// Tries each role that each player offers.
fn can_fill_roles_by_trial(spec: &TeamsSpec, offers: &[&[u16]], filled: &mut Vec<u16>) -> bool {
    let Some((first, rest)) = offers.split_first() else {
        return spec.roles.iter().zip(filled.iter()).all(|(role, filled)| role.per_team <= *filled);
    };
    first.iter().any(|&role| {
        filled[usize::from(role)] += 1;
        let found = can_fill_roles_by_trial(spec, rest, filled);
        filled[usize::from(role)] -= 1;
        found
    })
}

fn gap_of_assignment(spec: &TeamsSpec, parties: &[TeamParty<'_>], team_of: &[usize]) -> f64 {
    let equal_sizes = spec.team_sizes.iter().all(|size| *size == spec.team_sizes[0]);
    let strength = |(team, size): (usize, &u16)| {
        let members = (0..parties.len()).filter(|&party| team_of[party] == team);
        let sum: f64 = members.flat_map(|party| parties[party].ratings).sum();
        if equal_sizes { sum } else { sum / f64::from(*size) }
    };
    let strengths: Vec<f64> = spec.team_sizes.iter().enumerate().map(strength).collect();
    let pairs = strengths.iter().flat_map(|a| strengths.iter().map(move |b| (a - b).abs()));
    pairs.fold(0.0, f64::max)
}

/// Describes the first rule that a split violates.
pub(super) fn find_violation(
    spec: &TeamsSpec,
    parties: &[TeamParty<'_>],
    apart: &dyn Fn(usize, usize) -> bool,
    split: &TeamSplit,
) -> Option<String> {
    let mut team_of = vec![usize::MAX; parties.len()];
    if split.teams.len() != spec.team_sizes.len() {
        return Some(format!("{} teams", split.teams.len()));
    }
    for (team, members) in split.teams.iter().enumerate() {
        for (party, roles) in members {
            if team_of[*party] != usize::MAX {
                return Some(format!("party {party} is in two teams"));
            }
            team_of[*party] = team;
            let expected = if spec.roles.is_empty() { 0 } else { parties[*party].ratings.len() };
            let is_offered = |(at, role): (usize, &u16)| offers_of(&parties[*party], at).contains(role);
            if roles.len() != expected || !roles.iter().enumerate().all(is_offered) {
                return Some(format!("party {party} plays {roles:?}"));
            }
        }
        for (index, role) in spec.roles.iter().enumerate() {
            let count = members.iter().flat_map(|(_, roles)| roles).filter(|role| usize::from(**role) == index).count();
            if count < usize::from(role.per_team) {
                return Some(format!("team {team} has {count} for role {index}"));
            }
        }
    }
    // The roles that the players have show that they can be filled.
    let without_roles = TeamsSpec { roles: Box::default(), ..spec.clone() };
    if team_of.contains(&usize::MAX) || !is_valid_split(&without_roles, parties, apart, &team_of) {
        return Some(format!("not allowed: {team_of:?}"));
    }
    let gap = gap_of_assignment(spec, parties, &team_of);
    ((gap - split.rating_gap).abs() > 1e-9).then(|| format!("reported gap {}, actual gap {gap}", split.rating_gap))
}

/// All ways to choose `count` of `0..n`.
pub(super) fn combinations(n: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let chosen = move |bits: u32| (0..n).filter(|element| bits >> element & 1 == 1).collect();
    (0..1_u32 << n).filter(move |bits| bits.count_ones() as usize == count).map(chosen)
}
