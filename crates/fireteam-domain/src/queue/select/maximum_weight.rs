//! Maximum-weight selection: makes all matches at once, with the maximum total quality.
//!
//! Each ticket lists its best candidates. Up to `exact_up_to_tickets` tickets, a maximum weight matching over these pairs is
//! exact. Above that, the best pairs are taken greedily and improved by 2-opt. Unpaired tickets are then served by
//! nearest selection.

mod two_opt;

use crate::matching::maximum_weight_matching;
use crate::order::ordered_bits;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::quality;
use crate::queue::select::Selector;
use crate::queue::select::soft_kd_tree::SoftKdTree;
use crate::queue::waiting_list::NearestIter;
use crate::ruleset::queue::QualitySpec;

/// Candidates per ticket, if there are many tickets.
const NEIGHBORS_PER_TICKET_MIN: usize = 8;

/// Total number of candidate pairs. With few tickets, each may list more candidates.
const NEIGHBOR_PAIRS_TOTAL: usize = 8_000;

/// Largest pool in which all pairs are evaluated, because building a tree costs more.
const ALL_PAIRS_POOL_MAX: usize = 64;

/// Rounds for matches of more than two tickets. Each round makes the best of the matches that tickets would get.
const LARGE_MATCH_ROUNDS: usize = 3;

/// Maximum number of rounds that pair unpaired tickets among themselves.
const LEFTOVER_PAIRING_ROUNDS: usize = 8;

/// Integer weight of the heaviest pair: the matching algorithm uses integers.
const INTEGER_WEIGHT_MAX: f64 = 1e9;

/// Candidates of each ticket with their pair weights. Positions refer to the pool.
pub(super) struct WeightedCandidateLists {
    list_starts: Vec<u32>,
    weighted_neighbors: Vec<(u32, f64)>,
}

impl WeightedCandidateLists {
    /// Keeps the `most` heaviest entries of each list.
    fn from_lists(lists: &mut [Vec<(u32, f64)>], most: usize) -> Self {
        let mut merged = Self { list_starts: vec![0], weighted_neighbors: Vec::new() };
        for list in lists {
            list.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
            list.truncate(most);
            merged.weighted_neighbors.extend_from_slice(list);
            merged.list_starts.push(merged.weighted_neighbors.len() as u32);
        }
        merged
    }

    /// Candidates of `one`, heaviest first.
    pub(super) fn candidates_by_weight_of(&self, one: u32) -> &[(u32, f64)] {
        &self.weighted_neighbors[self.list_starts[one as usize] as usize..self.list_starts[one as usize + 1] as usize]
    }

    /// All pairs, each once.
    fn distinct_pairs(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        let all = (0..self.list_starts.len() as u32 - 1)
            .flat_map(|one| self.candidates_by_weight_of(one).iter().map(move |it| (one, it.0, it.1)));
        all.filter(|&(one, other, _)| one < other || self.candidates_by_weight_of(other).iter().all(|it| it.0 != one))
    }
}

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_maximum_weight(&mut self, pool: &[u32]) {
        let queue = self.pass_state.input.queue;
        let few = pool.len() <= queue.selection.exact_up_to_tickets as usize;
        if !self.pairs_fill_a_match(pool) {
            self.progress.inexact_selection = true;
            if few {
                (0..LARGE_MATCH_ROUNDS).for_each(|_| self.run_large_match_round(pool));
            }
            return self.select_nearest(pool);
        }
        let neighbor_lists = self.build_neighbor_lists(pool);
        let partners = if few {
            exact_pairing(pool.len(), &neighbor_lists)
        } else {
            self.progress.inexact_selection = true;
            let mut partners = greedy_pairing(pool.len(), &neighbor_lists);
            self.pair_unpaired_tickets(pool, &mut partners);
            self.improve_by_two_opt(pool, &neighbor_lists, &mut partners);
            partners
        };
        self.record_paired_matches(pool, &partners);
        self.select_nearest(pool);
    }

    /// Whether every match consists of two tickets, one per team.
    fn pairs_fill_a_match(&self, pool: &[u32]) -> bool {
        let teams = self.pass_state.input.teams;
        let [one, other] = teams.team_sizes[..] else { return false };
        let fills_a_team = |&row: &u32| self.pass_state.tickets[row as usize].player_count == one;
        one == other && teams.roles.is_empty() && pool.iter().all(fills_a_team)
    }

    fn build_neighbor_lists(&mut self, pool: &[u32]) -> WeightedCandidateLists {
        let most = (NEIGHBOR_PAIRS_TOTAL / pool.len().max(1))
            .clamp(NEIGHBORS_PER_TICKET_MIN, pool.len().max(NEIGHBORS_PER_TICKET_MIN));
        let by_score = matches!(self.pass_state.input.queue.quality, QualitySpec::SoftScore { .. });
        let mut lists: Vec<Vec<(u32, f64)>> = if by_score && pool.len() > ALL_PAIRS_POOL_MAX {
            self.neighbors_by_kd_tree(pool, most)
        } else {
            let all = pool.len() <= ALL_PAIRS_POOL_MAX;
            pool.iter().map(|&row| self.neighbors_by_key(pool, row, if all { usize::MAX } else { 2 * most })).collect()
        };
        WeightedCandidateLists::from_lists(&mut lists, most)
    }

    /// Pairs tickets whose candidates are all taken, by new candidate lists among themselves. Otherwise 2-opt could not
    /// reach them.
    fn pair_unpaired_tickets(&mut self, pool: &[u32], partners: &mut [Option<u32>]) {
        if !matches!(self.pass_state.input.queue.quality, QualitySpec::SoftScore { .. }) {
            return;
        }
        for _ in 0..LEFTOVER_PAIRING_ROUNDS {
            let unpaired: Vec<u32> =
                (0..pool.len() as u32).filter(|&position| partners[position as usize].is_none()).collect();
            if unpaired.len() < 2 || self.progress.truncated {
                return;
            }
            let unpaired_rows: Vec<u32> = unpaired.iter().map(|&position| pool[position as usize]).collect();
            let neighbor_lists = WeightedCandidateLists::from_lists(
                &mut self.neighbors_by_kd_tree(&unpaired_rows, NEIGHBORS_PER_TICKET_MIN),
                NEIGHBORS_PER_TICKET_MIN,
            );
            let found = greedy_pairing(unpaired.len(), &neighbor_lists);
            if found.iter().all(Option::is_none) {
                return;
            }
            for (&one, other) in unpaired.iter().zip(&found) {
                partners[one as usize] = other.map(|other| unpaired[other as usize]);
            }
        }
    }

    fn neighbors_by_key(&mut self, pool: &[u32], row: u32, most: usize) -> Vec<(u32, f64)> {
        let (pass_state, progress) = (self.pass_state, &mut *self.progress);
        let mut candidates = NearestIter::new(pass_state, self.waiting_list, row);
        let mut neighbors = Vec::new();
        for examined in 0.. {
            let Some(other) = candidates.next_candidate(progress) else { break };
            if examined == pass_state.input.queue.selection.max_candidates.max(1) {
                progress.candidate_limit_reached = true;
                break;
            }
            if neighbors.len() == most || !progress.spend_pair_check() {
                break;
            }
            let verdict =
                pass_state.check_pair(row, other).and_then(|()| pass_state.pair_quality(row, other, progress));
            match verdict {
                Ok(reached) => {
                    neighbors.push((
                        position_in_pool(pool, other),
                        self::pair_weight(
                            &pass_state.input.queue.quality,
                            reached,
                            pass_state.sort_key_distance(row, other),
                        ),
                    ));
                }
                Err(refusal) => progress.record_refusal(row, refusal),
            }
        }
        neighbors
    }

    fn neighbors_by_kd_tree(&mut self, pool: &[u32], most: usize) -> Vec<Vec<(u32, f64)>> {
        let (pass_state, progress) = (self.pass_state, &mut *self.progress);
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1);
        let quality = &pass_state.input.queue.quality;
        let tree = SoftKdTree::new(pass_state, pool);
        let score_is_quality = tree.covers_all_filters()
            && pass_state.input.queue.wait_bonus.is_none()
            && pass_state.input.queue.regions.is_none()
            && pass_state.input.queue.avoid.is_empty();
        let mut lists = vec![Vec::new(); pool.len()];
        let mut best = Vec::new();
        for (position, &row) in tree.ticket_indices().iter().enumerate() {
            let mut examined = 0;
            tree.find_nearest(position, most, &mut best, |other| {
                if examined == max_candidates || !progress.spend_pair_check() {
                    progress.candidate_limit_reached |= examined == max_candidates;
                    return None;
                }
                examined += 1;
                let verdict = pass_state.check_pair(row, other);
                if let Err(refusal) = verdict {
                    progress.record_refusal(row, refusal);
                }
                Some(verdict.is_ok())
            });
            let neighbors: &mut Vec<(u32, f64)> = &mut lists[position_in_pool(pool, row) as usize];
            for &(score, other) in &best {
                let verdict = match *quality {
                    QualitySpec::SoftScore { max_score } if score_is_quality && score <= max_score => Ok(-score),
                    _ => pass_state.pair_quality(row, other, progress),
                };
                match verdict {
                    Ok(quality_reached) => neighbors
                        .push((position_in_pool(pool, other), quality::selection_weight(quality, quality_reached))),
                    Err(refusal) => progress.record_refusal(row, refusal),
                }
            }
        }
        lists
    }

    /// Makes the paired matches, best first if not all may be made.
    fn record_paired_matches(&mut self, pool: &[u32], partners: &[Option<u32>]) {
        let pairs = partners.iter().enumerate().filter_map(|(one, other)| {
            let other = other.filter(|&partner| one < partner as usize)?;
            Some((pool[one], pool[other as usize]))
        });
        let mut candidates: Vec<CandidateMatch<'a>> =
            pairs.filter_map(|(one, other)| self.pass_state.build_match(&[one, other], self.progress).ok()).collect();
        if self.matches_left < candidates.len() {
            candidates.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        }
        candidates.truncate(self.matches_left);
        candidates.into_iter().for_each(|candidate| self.record_match(candidate));
    }

    /// Computes the nearest match of each ticket and makes the best of them.
    fn run_large_match_round(&mut self, pool: &[u32]) {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| self.waiting_list.is_waiting(row)).collect();
        let mut proposed: Vec<CandidateMatch<'a>> =
            waiting.into_iter().filter_map(|row| self.nearest_match(row)).collect();
        proposed.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        for candidate in proposed {
            if self.matches_left > 0 && candidate.ticket_indices().all(|row| self.waiting_list.is_waiting(row)) {
                self.record_match(candidate);
            }
        }
    }
}

/// Weight of a pair. With quality `Any`, nearer pairs are heavier.
fn pair_weight(quality: &QualitySpec, reached: f64, distance: f64) -> f64 {
    match quality {
        QualitySpec::Any => 1.0 / (1.0 + distance),
        _ => quality::selection_weight(quality, reached),
    }
}

fn position_in_pool(pool: &[u32], row: u32) -> u32 {
    // In a pool of all tickets, each is at its own index.
    if pool.get(row as usize) == Some(&row) {
        return row;
    }
    pool.binary_search(&row).map_or(0, |position| position as u32)
}

fn exact_pairing(nodes: usize, neighbor_lists: &WeightedCandidateLists) -> Vec<Option<u32>> {
    let heaviest = neighbor_lists.weighted_neighbors.iter().map(|it| it.1).fold(0.0, f64::max);
    let scale = if heaviest > 0.0 { INTEGER_WEIGHT_MAX / heaviest } else { 0.0 };
    // Add 1, so that every allowed pair has a positive weight.
    let edges: Vec<(u32, u32, i64)> = neighbor_lists
        .distinct_pairs()
        .map(|(one, other, weight)| (one, other, (weight * scale).round() as i64 + 1))
        .collect();
    maximum_weight_matching(nodes, &edges)
}

/// Takes the heaviest pairs first; ties by position.
fn greedy_pairing(nodes: usize, neighbor_lists: &WeightedCandidateLists) -> Vec<Option<u32>> {
    let mut pairs: Vec<(u64, u32, u32)> = neighbor_lists
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
