//! Makes a split more even by exchanging parties between two teams, as long as that helps and the bound on work allows.

use crate::domain::team::board::{Board, Team};

/// Exchanges that may be looked at for one split; two teams of 32 have 1,024 of single parties, and some 280,000 of up to two
/// against up to two.
const LOOKS_MAX: u32 = 400_000;

/// Parties of one team that move together: one, or two.
#[derive(Clone, Copy)]
struct Bundle {
    parties: [usize; 2],
    count: usize,
    players: usize,
    sum: f64,
}

impl Bundle {
    fn members(&self) -> &[usize] {
        &self.parties[..self.count]
    }
}

/// An exchange that helps.
struct Exchange {
    /// The gap that it leaves, and then how far apart the two teams are: a gap that two teams share narrows only when both do.
    worth: (f64, f64),
    teams: [usize; 2],
    bundles: [Bundle; 2],
}

/// Makes the best exchange of single parties, again and again; where none helps, the best of up to two parties against up to
/// two. The gap never grows. Sums are added up anew after each.
pub(super) fn improve(board: &Board<'_>, teams: &mut Vec<Team>) {
    *teams = board.settled(teams);
    let mut looks = 0;
    while let Some(exchange) = [1, 2].into_iter().find_map(|most| best(board, teams, most, &mut looks)) {
        let [a, b] = exchange.teams;
        let [from_a, from_b] = exchange.bundles;
        teams[a].members = with(&teams[a], &from_a, &from_b);
        teams[b].members = with(&teams[b], &from_b, &from_a);
        *teams = board.settled(teams);
    }
}

/// The best exchange of up to `most` parties of each of two teams.
fn best(board: &Board<'_>, teams: &[Team], most: usize, looks: &mut u32) -> Option<Exchange> {
    let gap = board.gap(teams);
    if gap <= board.slack {
        return None;
    }
    let bundles: Vec<Vec<Bundle>> = teams.iter().map(|team| bundles(board, team, most)).collect();
    let mut found: Option<Exchange> = None;
    for a in 0..teams.len() {
        for b in a + 1..teams.len() {
            let measures = [a, b].map(|at| board.measure(at, teams[at].sum));
            let (least, most) = of_others(board, teams, [a, b]);
            let mut worth = found.as_ref().map_or((gap, (measures[0] - measures[1]).abs()), |found| found.worth);
            for from_a in &bundles[a] {
                for from_b in bundles[b].iter().filter(|from_b| from_b.players == from_a.players) {
                    *looks += 1;
                    if LOOKS_MAX < *looks {
                        return found;
                    }
                    let moved = from_b.sum - from_a.sum;
                    let after_a = board.measure(a, teams[a].sum + moved);
                    let after_b = board.measure(b, teams[b].sum - moved);
                    let between = (after_a - after_b).abs();
                    let gap = most.max(after_a).max(after_b) - least.min(after_a).min(after_b);
                    let is_better = gap < worth.0 - board.slack
                        || gap <= worth.0 && between < worth.1 - board.slack && found.as_ref().is_none_or(|it| it.teams == [a, b]);
                    if is_better
                        && board.may_be_team(&with(&teams[a], from_a, from_b))
                        && board.may_be_team(&with(&teams[b], from_b, from_a))
                    {
                        worth = (gap, between);
                        found = Some(Exchange { worth, teams: [a, b], bundles: [*from_a, *from_b] });
                    }
                }
            }
        }
    }
    found
}

/// The least and the greatest measure of all teams but these two.
fn of_others(board: &Board<'_>, teams: &[Team], but: [usize; 2]) -> (f64, f64) {
    let others = (0..teams.len()).filter(|at| !but.contains(at)).map(|at| board.measure(at, teams[at].sum));
    others.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), it| (least.min(it), most.max(it)))
}

/// Every set of up to `most` parties of a team.
fn bundles(board: &Board<'_>, team: &Team, most: usize) -> Vec<Bundle> {
    let one = |party: usize| Bundle { parties: [party; 2], count: 1, players: board.size(party), sum: board.sums[party] };
    let mut bundles: Vec<Bundle> = team.members.iter().map(|&party| one(party)).collect();
    if most < 2 {
        return bundles;
    }
    for (at, &first) in team.members.iter().enumerate() {
        bundles.extend(team.members[at + 1..].iter().map(|&second| Bundle {
            parties: [first, second],
            count: 2,
            players: board.size(first) + board.size(second),
            sum: board.sums[first] + board.sums[second],
        }));
    }
    bundles
}

/// The team's parties when `goes` has gone and `comes` has come.
fn with(team: &Team, goes: &Bundle, comes: &Bundle) -> Vec<usize> {
    let stay = team.members.iter().filter(|party| !goes.members().contains(party));
    stay.chain(comes.members()).copied().collect()
}
