//! Order of the teams of proposed matches, where the ruleset draws it.

use crate::queue::proposal::Proposal;
use crate::queue::rng::SplitMix64;
use crate::ruleset::teams::{TeamOrderInMatch, TeamsSpec};

/// Changed into the pass's seed, so that the draw does not repeat the numbers of the selection.
const TEAM_ORDER_SEED_XOR: u64 = 0x1b87_3593_cc9e_2d51;

/// Draws the order of the teams of new matches, among teams of the same size. Guests of a session stay in their teams.
pub(super) fn draw_team_order(proposals: &mut [Proposal], teams: &TeamsSpec, seed: u64) {
    if teams.order == TeamOrderInMatch::Split {
        return;
    }
    let mut rng = SplitMix64(seed ^ TEAM_ORDER_SEED_XOR);
    let new_matches = proposals.iter_mut().filter(|proposal| proposal.backfilled_session.is_none());
    new_matches.for_each(|proposal| {
        // Teams of the same size change places together with their bots.
        let mut bots = std::mem::take(&mut proposal.bots_by_team).into_iter();
        let tickets = std::mem::take(&mut proposal.teams).into_iter();
        let mut drawn: Vec<_> = tickets.map(|team| (team, bots.next())).collect();
        shuffle_equal_sizes(&mut drawn, &teams.team_sizes, &mut rng);
        let (tickets, bots): (Vec<_>, Vec<Option<u16>>) = drawn.into_iter().unzip();
        proposal.teams = tickets;
        proposal.bots_by_team = bots.into_iter().flatten().collect();
    });
}

/// Fisher-Yates shuffle of the entries whose `sizes` are equal.
fn shuffle_equal_sizes<T>(teams: &mut [T], sizes: &[u16], rng: &mut SplitMix64) {
    for last in (1..teams.len()).rev() {
        let same_size: Vec<usize> = (0..=last).filter(|&at| sizes.get(at) == sizes.get(last)).collect();
        let drawn = (rng.next_unit_f64() * same_size.len() as f64) as usize;
        if let Some(&other) = same_size.get(drawn) {
            teams.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-13: each of the six orders of three equal teams is drawn, none much more often than the others.
    #[test]
    fn each_order_of_equal_teams_is_equally_frequent() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = SplitMix64(7);
        for _ in 0..6_000 {
            let mut teams = ["a", "b", "c"];
            shuffle_equal_sizes(&mut teams, &[2, 2, 2], &mut rng);
            *counts.entry(teams).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 6, "{counts:?}");
        // 1000 expected; the standard deviation is 29.
        assert!(counts.values().all(|count| (850..=1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn teams_of_different_sizes_keep_their_places() {
        let mut rng = SplitMix64(7);
        let mut first = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let mut teams = ["one", "two a", "two b", "three"];
            shuffle_equal_sizes(&mut teams, &[1, 2, 2, 3], &mut rng);
            assert_eq!((teams[0], teams[3]), ("one", "three"));
            first.insert(teams[1]);
        }
        assert_eq!(first.len(), 2, "{first:?}");
    }
}
