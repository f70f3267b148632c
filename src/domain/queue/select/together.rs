//! All at once, so that the sum of qualities is greatest: exactly while there are few, nearly so when there are many.
//!
//! Each ticket names those who suit it best; of the pairs named, a maximum weight matching is made while there are at most
//! `exact_up_to` tickets, else the best pairs are taken first and partners exchanged as long as that gains something. Whoever
//! is left is served in turn.

mod exchange;

use crate::domain::matching::maximum_weight;
use crate::domain::queue::field::ordered_bits;
use crate::domain::queue::line::Near;
use crate::domain::queue::made::Made;
use crate::domain::queue::quality;
use crate::domain::queue::select::Work;
use crate::domain::queue::select::tree::Tree;
use crate::domain::ruleset::queue::Quality;

/// Partners that each ticket names, when there are many tickets.
const NAMED: usize = 8;

/// Pairs that are named all together, when there are few tickets: few may name more.
const NAMED_TOGETHER: usize = 8_000;

/// Pools up to this size ask everybody; a tree would be more work.
const ASK_ALL_UP_TO: usize = 64;

/// Rounds of larger matches: each makes the best of those that all would have.
const ROUNDS: usize = 3;

/// How often those are paired among themselves whom nobody has taken; each time most of them are.
const LEFTOVER_ROUNDS: usize = 8;

/// What the greatest weight is worth to the matching, which counts in whole numbers.
const WEIGHT_UNITS: f64 = 1e9;

/// Whom everybody names, with what each pair weighs; places are those of the pool.
pub(super) struct Named {
    starts: Vec<u32>,
    partners: Vec<(u32, f64)>,
}

impl Named {
    /// Of each list its `most` heaviest.
    fn of(lists: &mut [Vec<(u32, f64)>], most: usize) -> Self {
        let mut named = Self { starts: vec![0], partners: Vec::new() };
        for list in lists {
            list.sort_unstable_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
            list.truncate(most);
            named.partners.extend_from_slice(list);
            named.starts.push(named.partners.len() as u32);
        }
        named
    }

    /// Those whom `one` names, heaviest first.
    pub(super) fn by(&self, one: u32) -> &[(u32, f64)] {
        &self.partners[self.starts[one as usize] as usize..self.starts[one as usize + 1] as usize]
    }

    /// Every pair once.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32, f64)> + '_ {
        let all =
            (0..self.starts.len() as u32 - 1).flat_map(|one| self.by(one).iter().map(move |it| (one, it.0, it.1)));
        all.filter(|&(one, other, _)| one < other || self.by(other).iter().all(|it| it.0 != one))
    }
}

impl<'a> Work<'_, 'a> {
    pub(super) fn together(&mut self, pool: &[u32]) {
        let queue = self.field.input.queue;
        let few = pool.len() <= queue.selection.exact_up_to as usize;
        if !self.is_of_two(pool) {
            self.desk.fell_back = true;
            if few {
                (0..ROUNDS).for_each(|_| self.round(pool));
            }
            return self.nearest(pool);
        }
        let named = self.name(pool);
        let partners = if few {
            exact(pool.len(), &named)
        } else {
            self.desk.fell_back = true;
            let mut partners = greedy(pool.len(), &named);
            self.pair_leftovers(pool, &mut partners);
            self.exchange(pool, &named, &mut partners);
            partners
        };
        self.pair_up(pool, &partners);
        self.nearest(pool);
    }

    /// Whether every match is of two tickets, one in each team.
    fn is_of_two(&self, pool: &[u32]) -> bool {
        let teams = self.field.input.teams;
        let [one, other] = teams.sizes[..] else { return false };
        let whole = |&row: &u32| self.field.rows[row as usize].size == one;
        one == other && teams.roles.is_empty() && pool.iter().all(whole)
    }

    fn name(&mut self, pool: &[u32]) -> Named {
        let most = (NAMED_TOGETHER / pool.len().max(1)).clamp(NAMED, pool.len().max(NAMED));
        let by_score = matches!(self.field.input.queue.quality, Quality::SoftScore { .. });
        let mut lists: Vec<Vec<(u32, f64)>> = if by_score && ASK_ALL_UP_TO < pool.len() {
            self.name_by_tree(pool, most)
        } else {
            let all = pool.len() <= ASK_ALL_UP_TO;
            pool.iter().map(|&row| self.name_near(pool, row, if all { usize::MAX } else { 2 * most })).collect()
        };
        Named::of(&mut lists, most)
    }

    /// Whoever was named only by those who took others names among themselves, as often as that pairs anybody. So nobody is
    /// kept out of the exchange of partners for having lived among many.
    fn pair_leftovers(&mut self, pool: &[u32], partners: &mut [Option<u32>]) {
        if !matches!(self.field.input.queue.quality, Quality::SoftScore { .. }) {
            return;
        }
        for _ in 0..LEFTOVER_ROUNDS {
            let left: Vec<u32> = (0..pool.len() as u32).filter(|&at| partners[at as usize].is_none()).collect();
            if left.len() < 2 || self.desk.out_of_looks {
                return;
            }
            let rows: Vec<u32> = left.iter().map(|&at| pool[at as usize]).collect();
            let named = Named::of(&mut self.name_by_tree(&rows, NAMED), NAMED);
            let found = greedy(left.len(), &named);
            if found.iter().all(Option::is_none) {
                return;
            }
            for (&one, other) in left.iter().zip(&found) {
                partners[one as usize] = other.map(|other| left[other as usize]);
            }
        }
    }

    fn name_near(&mut self, pool: &[u32], row: u32, most: usize) -> Vec<(u32, f64)> {
        let (field, desk) = (self.field, &mut *self.desk);
        let mut near = Near::to(field, self.line, row);
        let mut list = Vec::new();
        for looked in 0.. {
            let Some(other) = near.next(desk) else { break };
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.narrowed = true;
                break;
            }
            if list.len() == most || !desk.look() {
                break;
            }
            let verdict = field.meet(row, other).and_then(|()| field.pair_quality(row, other, desk));
            match verdict {
                Ok(reached) => {
                    list.push((
                        place_in(pool, other),
                        self::weight(&field.input.queue.quality, reached, field.nearness(row, other)),
                    ));
                }
                Err(refusal) => desk.refused(row, refusal),
            }
        }
        list
    }

    fn name_by_tree(&mut self, pool: &[u32], most: usize) -> Vec<Vec<(u32, f64)>> {
        let (field, desk) = (self.field, &mut *self.desk);
        let look_at = field.input.queue.selection.look_at.max(1);
        let quality = &field.input.queue.quality;
        let tree = Tree::of(field, pool);
        let plain = tree.is_exact()
            && field.input.queue.wait_bonus.is_none()
            && field.input.queue.regions.is_none()
            && field.input.queue.avoid.is_empty();
        let mut lists = vec![Vec::new(); pool.len()];
        let mut kept = Vec::new();
        for (at, &row) in tree.rows().iter().enumerate() {
            let mut looked = 0;
            tree.nearest(at, most, &mut kept, |other| {
                if looked == look_at || !desk.look() {
                    desk.narrowed |= looked == look_at;
                    return None;
                }
                looked += 1;
                let verdict = field.meet(row, other);
                if let Err(refusal) = verdict {
                    desk.refused(row, refusal);
                }
                Some(verdict.is_ok())
            });
            let list: &mut Vec<(u32, f64)> = &mut lists[place_in(pool, row) as usize];
            for &(score, other) in &kept {
                let verdict = match *quality {
                    Quality::SoftScore { max_score } if plain && score <= max_score => Ok(-score),
                    _ => field.pair_quality(row, other, desk),
                };
                match verdict {
                    Ok(reached) => list.push((place_in(pool, other), quality::weight(quality, reached))),
                    Err(refusal) => desk.refused(row, refusal),
                }
            }
        }
        lists
    }

    /// Makes matches of pairs, the heaviest first if not all may be made.
    fn pair_up(&mut self, pool: &[u32], partners: &[Option<u32>]) {
        let couples = partners.iter().enumerate().filter_map(|(one, other)| {
            let other = other.filter(|&it| one < it as usize)?;
            Some((pool[one], pool[other as usize]))
        });
        let mut made: Vec<Made<'a>> =
            couples.filter_map(|(one, other)| self.field.finish(&[one, other], self.desk).ok()).collect();
        if self.room < made.len() {
            made.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        }
        made.truncate(self.room);
        made.into_iter().for_each(|made| self.take(made));
    }

    /// Everybody says which match it would have; the best of these are made.
    fn round(&mut self, pool: &[u32]) {
        let waiting: Vec<u32> = pool.iter().copied().filter(|&row| self.line.is_waiting(row)).collect();
        let mut wanted: Vec<Made<'a>> = waiting.into_iter().filter_map(|row| self.nearest_to(row)).collect();
        wanted.sort_by(|one, other| other.quality.total_cmp(&one.quality));
        for made in wanted {
            if 0 < self.room && made.rows().all(|row| self.line.is_waiting(row)) {
                self.take(made);
            }
        }
    }
}

/// What a pair counts. Where any match is as good as another, the nearer pair is.
fn weight(quality: &Quality, reached: f64, nearness: f64) -> f64 {
    match quality {
        Quality::Any => 1.0 / (1.0 + nearness),
        _ => quality::weight(quality, reached),
    }
}

fn place_in(pool: &[u32], row: u32) -> u32 {
    // A pool of everybody has each in its place.
    if pool.get(row as usize) == Some(&row) {
        return row;
    }
    pool.binary_search(&row).map_or(0, |place| place as u32)
}

fn exact(nodes: usize, named: &Named) -> Vec<Option<u32>> {
    let heaviest = named.partners.iter().map(|it| it.1).fold(0.0, f64::max);
    let unit = if 0.0 < heaviest { WEIGHT_UNITS / heaviest } else { 0.0 };
    // A match that may be made is always worth something.
    let edges: Vec<(u32, u32, i64)> =
        named.pairs().map(|(one, other, weight)| (one, other, (weight * unit).round() as i64 + 1)).collect();
    maximum_weight(nodes, &edges)
}

/// The heaviest pairs first; ties by place.
fn greedy(nodes: usize, named: &Named) -> Vec<Option<u32>> {
    let mut pairs: Vec<(u64, u32, u32)> =
        named.pairs().map(|(one, other, weight)| (!ordered_bits(weight), one.min(other), one.max(other))).collect();
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
