//! All at once, so that the sum of qualities is greatest: exactly while there are few, nearly so when there are many.
//!
//! Each ticket names those who suit it best; of the pairs named, a maximum weight matching is made while there are at most
//! `exact_up_to` tickets, else the best pairs are taken first and partners exchanged as long as that gains something. Whoever
//! is left is served in turn.

mod two_opt;

use crate::matching::maximum_weight_matching;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::pass_state::ordered_bits;
use crate::queue::quality;
use crate::queue::select::Selector;
use crate::queue::select::soft_kd_tree::SoftKdTree;
use crate::queue::waiting_list::NearestIter;
use crate::ruleset::queue::QualitySpec;

/// Partners that each ticket names, when there are many tickets.
const NEIGHBORS_PER_TICKET: usize = 8;

/// Pairs that are named all together, when there are few tickets: few may name more.
const NEIGHBOR_PAIRS_TOTAL: usize = 8_000;

/// Pools up to this size ask everybody; a tree would be more work.
const ALL_PAIRS_POOL_MAX: usize = 64;

/// Rounds of larger matches: each makes the best of those that all would have.
const LARGE_MATCH_ROUNDS: usize = 3;

/// How often those are paired among themselves whom nobody has taken; each time most of them are.
const LEFTOVER_PAIRING_ROUNDS: usize = 8;

/// What the greatest weight is worth to the matching, which counts in whole numbers.
const INTEGER_WEIGHT_MAX: f64 = 1e9;

/// Whom everybody names, with what each pair weighs; places are those of the pool.
pub(super) struct NeighborLists {
    list_starts: Vec<u32>,
    weighted_neighbors: Vec<(u32, f64)>,
}

impl NeighborLists {
    /// Of each list its `most` heaviest.
    fn from_lists(lists: &mut [Vec<(u32, f64)>], most: usize) -> Self {
        let mut named = Self { list_starts: vec![0], weighted_neighbors: Vec::new() };
        for list in lists {
            list.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
            list.truncate(most);
            named.weighted_neighbors.extend_from_slice(list);
            named.list_starts.push(named.weighted_neighbors.len() as u32);
        }
        named
    }

    /// Those whom `one` names, heaviest first.
    pub(super) fn neighbors_of(&self, one: u32) -> &[(u32, f64)] {
        &self.weighted_neighbors[self.list_starts[one as usize] as usize..self.list_starts[one as usize + 1] as usize]
    }

    /// Every pair once.
    fn distinct_pairs(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        let all = (0..self.list_starts.len() as u32 - 1)
            .flat_map(|one| self.neighbors_of(one).iter().map(move |it| (one, it.0, it.1)));
        all.filter(|&(one, other, _)| one < other || self.neighbors_of(other).iter().all(|it| it.0 != one))
    }
}

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_maximum_weight(&mut self, pool: &[u32]) {
        let queue = self.pass_state.input.queue;
        let few = pool.len() <= queue.selection.exact_up_to as usize;
        if !self.pairs_fill_a_match(pool) {
            self.progress.inexact_selection = true;
            if few {
                (0..LARGE_MATCH_ROUNDS).for_each(|_| self.run_large_match_round(pool));
            }
            return self.select_nearest(pool);
        }
        let named = self.build_neighbor_lists(pool);
        let partners = if few {
            exact_pairing(pool.len(), &named)
        } else {
            self.progress.inexact_selection = true;
            let mut partners = greedy_pairing(pool.len(), &named);
            self.pair_unpaired_tickets(pool, &mut partners);
            self.improve_by_two_opt(pool, &named, &mut partners);
            partners
        };
        self.record_paired_matches(pool, &partners);
        self.select_nearest(pool);
    }

    /// Whether every match is of two tickets, one in each team.
    fn pairs_fill_a_match(&self, pool: &[u32]) -> bool {
        let teams = self.pass_state.input.teams;
        let [one, other] = teams.team_sizes[..] else { return false };
        let whole = |&row: &u32| self.pass_state.tickets[row as usize].player_count == one;
        one == other && teams.roles.is_empty() && pool.iter().all(whole)
    }

    fn build_neighbor_lists(&mut self, pool: &[u32]) -> NeighborLists {
        let most = (NEIGHBOR_PAIRS_TOTAL / pool.len().max(1))
            .clamp(NEIGHBORS_PER_TICKET, pool.len().max(NEIGHBORS_PER_TICKET));
        let by_score = matches!(self.pass_state.input.queue.quality, QualitySpec::SoftScore { .. });
        let mut lists: Vec<Vec<(u32, f64)>> = if by_score && ALL_PAIRS_POOL_MAX < pool.len() {
            self.neighbors_by_kd_tree(pool, most)
        } else {
            let all = pool.len() <= ALL_PAIRS_POOL_MAX;
            pool.iter().map(|&row| self.neighbors_by_key(pool, row, if all { usize::MAX } else { 2 * most })).collect()
        };
        NeighborLists::from_lists(&mut lists, most)
    }

    /// Whoever was named only by those who took others names among themselves, as often as that pairs anybody. So nobody is
    /// kept out of the exchange of partners for having lived among many.
    fn pair_unpaired_tickets(&mut self, pool: &[u32], partners: &mut [Option<u32>]) {
        if !matches!(self.pass_state.input.queue.quality, QualitySpec::SoftScore { .. }) {
            return;
        }
        for _ in 0..LEFTOVER_PAIRING_ROUNDS {
            let left: Vec<u32> = (0..pool.len() as u32).filter(|&at| partners[at as usize].is_none()).collect();
            if left.len() < 2 || self.progress.truncated {
                return;
            }
            let rows: Vec<u32> = left.iter().map(|&at| pool[at as usize]).collect();
            let named = NeighborLists::from_lists(
                &mut self.neighbors_by_kd_tree(&rows, NEIGHBORS_PER_TICKET),
                NEIGHBORS_PER_TICKET,
            );
            let found = greedy_pairing(left.len(), &named);
            if found.iter().all(Option::is_none) {
                return;
            }
            for (&one, other) in left.iter().zip(&found) {
                partners[one as usize] = other.map(|other| left[other as usize]);
            }
        }
    }

    fn neighbors_by_key(&mut self, pool: &[u32], row: u32, most: usize) -> Vec<(u32, f64)> {
        let (field, desk) = (self.pass_state, &mut *self.progress);
        let mut near = NearestIter::new(field, self.waiting_list, row);
        let mut list = Vec::new();
        for looked in 0.. {
            let Some(other) = near.next_candidate(desk) else { break };
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.candidate_limit_reached = true;
                break;
            }
            if list.len() == most || !desk.spend_pair_check() {
                break;
            }
            let verdict = field.check_pair(row, other).and_then(|()| field.pair_quality(row, other, desk));
            match verdict {
                Ok(reached) => {
                    list.push((
                        position_in_pool(pool, other),
                        self::pair_weight(&field.input.queue.quality, reached, field.key_distance(row, other)),
                    ));
                }
                Err(refusal) => desk.record_refusal(row, refusal),
            }
        }
        list
    }

    fn neighbors_by_kd_tree(&mut self, pool: &[u32], most: usize) -> Vec<Vec<(u32, f64)>> {
        let (field, desk) = (self.pass_state, &mut *self.progress);
        let look_at = field.input.queue.selection.look_at.max(1);
        let quality = &field.input.queue.quality;
        let tree = SoftKdTree::new(field, pool);
        let plain = tree.covers_all_filters()
            && field.input.queue.wait_bonus.is_none()
            && field.input.queue.regions.is_none()
            && field.input.queue.avoid.is_empty();
        let mut lists = vec![Vec::new(); pool.len()];
        let mut kept = Vec::new();
        for (at, &row) in tree.ticket_indices().iter().enumerate() {
            let mut looked = 0;
            tree.find_nearest(at, most, &mut kept, |other| {
                if looked == look_at || !desk.spend_pair_check() {
                    desk.candidate_limit_reached |= looked == look_at;
                    return None;
                }
                looked += 1;
                let verdict = field.check_pair(row, other);
                if let Err(refusal) = verdict {
                    desk.record_refusal(row, refusal);
                }
                Some(verdict.is_ok())
            });
            let list: &mut Vec<(u32, f64)> = &mut lists[position_in_pool(pool, row) as usize];
            for &(score, other) in &kept {
                let verdict = match *quality {
                    QualitySpec::SoftScore { max_score } if plain && score <= max_score => Ok(-score),
                    _ => field.pair_quality(row, other, desk),
                };
                match verdict {
                    Ok(reached) => {
                        list.push((position_in_pool(pool, other), quality::selection_weight(quality, reached)))
                    }
                    Err(refusal) => desk.record_refusal(row, refusal),
                }
            }
        }
        lists
    }

    /// Makes matches of pairs, the heaviest first if not all may be made.
    fn record_paired_matches(&mut self, pool: &[u32], partners: &[Option<u32>]) {
        let couples = partners.iter().enumerate().filter_map(|(one, other)| {
            let other = other.filter(|&it| one < it as usize)?;
            Some((pool[one], pool[other as usize]))
        });
        let mut made: Vec<CandidateMatch<'a>> =
            couples.filter_map(|(one, other)| self.pass_state.build_match(&[one, other], self.progress).ok()).collect();
        if self.matches_left < made.len() {
            made.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        }
        made.truncate(self.matches_left);
        made.into_iter().for_each(|made| self.record_match(made));
    }

    /// Everybody says which match it would have; the best of these are made.
    fn run_large_match_round(&mut self, pool: &[u32]) {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| self.waiting_list.is_waiting(row)).collect();
        let mut wanted: Vec<CandidateMatch<'a>> =
            waiting.into_iter().filter_map(|row| self.nearest_match(row)).collect();
        wanted.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        for made in wanted {
            if 0 < self.matches_left && made.ticket_indices().all(|row| self.waiting_list.is_waiting(row)) {
                self.record_match(made);
            }
        }
    }
}

/// What a pair counts. Where any match is as good as another, the nearer pair is.
fn pair_weight(quality: &QualitySpec, reached: f64, nearness: f64) -> f64 {
    match quality {
        QualitySpec::Any => 1.0 / (1.0 + nearness),
        _ => quality::selection_weight(quality, reached),
    }
}

fn position_in_pool(pool: &[u32], row: u32) -> u32 {
    // A pool of everybody has each in its place.
    if pool.get(row as usize) == Some(&row) {
        return row;
    }
    pool.binary_search(&row).map_or(0, |place| place as u32)
}

fn exact_pairing(nodes: usize, named: &NeighborLists) -> Vec<Option<u32>> {
    let heaviest = named.weighted_neighbors.iter().map(|it| it.1).fold(0.0, f64::max);
    let unit = if 0.0 < heaviest { INTEGER_WEIGHT_MAX / heaviest } else { 0.0 };
    // A match that may be made is always worth something.
    let edges: Vec<(u32, u32, i64)> =
        named.distinct_pairs().map(|(one, other, weight)| (one, other, (weight * unit).round() as i64 + 1)).collect();
    maximum_weight_matching(nodes, &edges)
}

/// The heaviest pairs first; ties by place.
fn greedy_pairing(nodes: usize, named: &NeighborLists) -> Vec<Option<u32>> {
    let mut pairs: Vec<(u64, u32, u32)> = named
        .distinct_pairs()
        .map(|(one, other, weight)| (!ordered_bits(weight), one.min(other), one.max(other)))
        .collect();
    pairs.sort_unstable();
    let mut partners = vec![None; nodes];
    for (_, one, other) in pairs {
        let (one, other) = (one as usize, other as usize);
        if partners[one].is_none() && partners[other].is_none() {
            (partners[one], partners[other]) = (Some(other as u32), Some(one as u32));
        }
    }
    partners
}
