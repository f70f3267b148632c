//! Searches of single tickets that found no match, kept between passes of the mode `nearest`.
//!
//! A search goes from the nearest candidate to the farthest, and adds each that may meet all tickets added before. If it ends with too few
//! tickets, it ends so again until
//!
//! - the ticket itself, or one that it had added, changes, leaves or is matched, or
//! - a ticket enters or changes that may meet it and all nearer ones that it had added: any other candidate is passed over.
//!
//! So each newcomer is compared with the tickets within its reach, once, instead of each ticket with all its candidates in every pass.
//!
//! A search that ended at the limit of candidates goes on where it ended: as nearer ones leave, farther ones are examined.

use hashbrown::HashMap;

use crate::filter::Refusal;
use crate::id::{BuildIdHasher, TicketId};
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::refusal_majority::SearchRefusals;
use crate::queue::report::OwnChangeTimes;
use crate::queue::select::fill_match::PartialMatch;
use crate::queue::waiting_list::{NearestIter, WaitingList};
use crate::ruleset::queue::{AvoidStrictness, AvoidTarget, AvoidanceRule, QualitySpec, SelectionMode};
use crate::time::UnixMs;

/// Newcomers after which a search is repeated in any case, if it had fewer candidates.
const NEWCOMERS_MIN: u32 = 16;

/// Failed searches of the tickets that waited at the end of a pass.
#[derive(Clone, Debug, Default)]
pub(in crate::queue) struct FailedSearches {
    by_ticket: HashMap<TicketId, FailedSearch, BuildIdHasher>,
}

impl FailedSearches {
    pub(in crate::queue) fn forget(&mut self, id: TicketId) {
        self.by_ticket.remove(&id);
    }
}

/// Search of one ticket that found no match.
#[derive(Clone, Debug)]
struct FailedSearch {
    /// Tickets that it had added to a match, the searching one excepted.
    added: Box<[TicketId]>,
    /// Candidates that it has examined.
    candidate_count: u32,
    /// Newcomers that it was compared with since.
    newcomer_count: u32,
    refusals: SearchRefusals,
    /// Distance of the last candidate, if there were more than may be examined.
    limit_distance: Option<f64>,
    /// Time at which a limit of the ticket grows next, or its vector ends.
    changes_at: Option<UnixMs>,
    /// It has to be made again: it built a whole match, whose quality changes with time, or something has changed.
    must_repeat: bool,
}

/// Trace of a running search.
#[derive(Clone, Debug, Default)]
pub(in crate::queue) struct SearchTrace {
    /// Rows added to matches that were not filled.
    pub(in crate::queue) added: Vec<u32>,
    pub(in crate::queue) candidate_count: u32,
    /// A whole match was built, and refused.
    pub(in crate::queue) built_match: bool,
    /// Distance of the last candidate, if there were more than may be examined.
    pub(in crate::queue) limit_distance: Option<f64>,
}

/// Failed search of a row of the running pass.
#[derive(Clone, Debug)]
struct RowSearch {
    search: FailedSearch,
    /// Rows of `search.added`.
    added_rows: Box<[u32]>,
}

/// Searches of a running pass that found no match, by row. A row without one is a newcomer: it has entered or changed.
pub(in crate::queue) struct RowSearches {
    rows: Vec<Option<RowSearch>>,
    change_times: OwnChangeTimes,
}

impl RowSearches {
    /// Takes the searches of earlier passes, and finds those that the newcomers may change. `None` if the ruleset has rules by which a
    /// search depends on more than the tickets that wait.
    pub(in crate::queue) fn begin(
        pass_state: &PassState<'_>,
        pools: &[Vec<u32>],
        kept: &mut FailedSearches,
        progress: &mut PassProgress,
    ) -> Option<Self> {
        let mut kept = std::mem::take(&mut kept.by_ticket);
        if !depends_on_tickets_only(pass_state) {
            return None;
        }
        let now = pass_state.input.now;
        let mut take = |id: TicketId| kept.remove(&id).filter(|search| search.changes_at.is_none_or(|at| now < at));
        let tickets = pass_state.tickets.iter().map(|ticket| ticket.prepared.ticket.id);
        let unchanged: Vec<Option<FailedSearch>> = tickets.map(&mut take).collect();
        let mut searches = Self {
            rows: with_rows_of_added(pass_state, unchanged),
            change_times: OwnChangeTimes::new(pass_state.input),
        };
        searches.compare_with_newcomers(pass_state, pools, progress);
        Some(searches)
    }

    fn compare_with_newcomers(&mut self, pass_state: &PassState<'_>, pools: &[Vec<u32>], progress: &mut PassProgress) {
        let is_newcomer: Vec<bool> = self.rows.iter().map(Option::is_none).collect();
        // To repeat the searches costs as much.
        let kept = self.rows.iter().flatten().filter(|it| !it.search.must_repeat);
        let mut checks_left = kept.fold(0, |sum: u64, it| sum.saturating_add(it.search.candidate_count.into()));
        for pool in pools {
            for (position, &newcomer) in pool.iter().enumerate().filter(|(_, row)| is_newcomer[**row as usize]) {
                let is_near = |row: &&u32| pass_state.refusal_of_all_beyond(newcomer, **row).is_none();
                let below = pool[..position].iter().rev().take_while(is_near);
                let above = pool[position + 1..].iter().take_while(is_near);
                for &row in below.chain(above) {
                    let Some(found) = &mut self.rows[row as usize] else { continue };
                    if found.search.must_repeat {
                        continue;
                    }
                    if checks_left == 0 || !progress.spend_pair_check() {
                        self.rows.iter_mut().flatten().for_each(|it| it.search.must_repeat = true);
                        return;
                    }
                    checks_left -= 1;
                    found.compare_with_newcomer(pass_state, row, newcomer);
                }
            }
        }
    }

    /// Whether the search of `row` would fail again. Adds its refusals to those of the pass.
    pub(in crate::queue) fn fails_again(
        &mut self,
        pass_state: &PassState<'_>,
        row: u32,
        waiting_list: &WaitingList,
        progress: &mut PassProgress,
    ) -> bool {
        let Some(found) = &mut self.rows[row as usize] else { return false };
        if found.search.must_repeat || !found.added_tickets_wait(waiting_list) {
            return false;
        }
        if let Some(limit_distance) = found.search.limit_distance
            && !found.farther_candidates_are_refused((pass_state, waiting_list), row, limit_distance, progress)
        {
            return false;
        }
        progress.add_kept_refusals(row, &found.search.refusals);
        true
    }

    /// Records a search that found no match.
    pub(in crate::queue) fn record_failure(
        &mut self,
        pass_state: &PassState<'_>,
        row: u32,
        trace: &SearchTrace,
        refusals: SearchRefusals,
    ) {
        let id = |&row: &u32| pass_state.tickets[row as usize].prepared.ticket.id;
        let ticket = &pass_state.tickets[row as usize];
        let limits_grow_at = self.change_times.next_after(pass_state.input, ticket);
        let vector_ends_at = ticket.prepared.vector_at(pass_state.input.now).map(|vector| vector.expires_at);
        let search = FailedSearch {
            added: trace.added.iter().map(id).collect(),
            candidate_count: trace.candidate_count,
            newcomer_count: 0,
            refusals,
            changes_at: limits_grow_at.into_iter().chain(vector_ends_at).min(),
            limit_distance: trace.limit_distance,
            must_repeat: trace.built_match
                || (trace.limit_distance.is_some() && pass_state.input.queue.prefer_same_party_size),
        };
        self.rows[row as usize] = Some(RowSearch { search, added_rows: trace.added.as_slice().into() });
    }

    /// Searches of the tickets that still wait.
    pub(in crate::queue) fn end(self, pass_state: &PassState<'_>, waiting_list: &WaitingList) -> FailedSearches {
        let kept = self.rows.into_iter().zip(0_u32..).filter_map(|(found, row)| {
            let mut found = found.filter(|_| waiting_list.is_waiting(row))?;
            found.search.must_repeat |= !found.added_tickets_wait(waiting_list);
            Some((pass_state.tickets[row as usize].prepared.ticket.id, found.search))
        });
        FailedSearches { by_ticket: kept.collect() }
    }
}

impl RowSearch {
    fn compare_with_newcomer(&mut self, pass_state: &PassState<'_>, row: u32, newcomer: u32) {
        let refusal = self.refusal_of_newcomer(pass_state, row, newcomer);
        let search = &mut self.search;
        search.newcomer_count = search.newcomer_count.saturating_add(1);
        match refusal {
            Some(refusal) => search.refusals.add(refusal),
            None => search.must_repeat = true,
        }
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1);
        let reaches_limit = max_candidates < search.candidate_count.saturating_add(search.newcomer_count);
        // The refusals should be mostly those of tickets that still wait.
        search.must_repeat |= search.limit_distance.is_none() && reaches_limit
            || search.candidate_count.max(NEWCOMERS_MIN) < search.newcomer_count;
    }

    /// Refusal by the searching ticket, or by one that would have been added before the newcomer. `None` if the newcomer may be added.
    fn refusal_of_newcomer(&self, pass_state: &PassState<'_>, row: u32, newcomer: u32) -> Option<Refusal> {
        let distance = pass_state.sort_key_distance(row, newcomer);
        // With two searches, the added tickets are of both.
        let has_one_search = !pass_state.input.queue.prefer_same_party_size;
        let is_nearer = |added: &u32| has_one_search && pass_state.sort_key_distance(row, *added) < distance;
        let added_before = self.added_rows.iter().copied().filter(is_nearer);
        [row].into_iter().chain(added_before).find_map(|member| pass_state.check_pair(member, newcomer).err())
    }

    fn added_tickets_wait(&self, waiting_list: &WaitingList) -> bool {
        self.added_rows.iter().all(|&row| waiting_list.is_waiting(row))
    }

    /// Goes on where the search ended at the limit of candidates. Returns whether all of those that it may examine now are refused.
    fn farther_candidates_are_refused(
        &mut self,
        (pass_state, waiting_list): (&PassState<'_>, &WaitingList),
        row: u32,
        limit_distance: f64,
        progress: &mut PassProgress,
    ) -> bool {
        let mut partial_match = PartialMatch::of_rows(pass_state, row, &self.added_rows);
        let mut candidates = NearestIter::new(pass_state, waiting_list, row);
        let mut last_distance = limit_distance;
        let before = progress.take_refusals(row);
        let mut are_refused = true;
        for _ in 0..pass_state.input.queue.selection.max_candidates.max(1) {
            let Some(other) = candidates.next_candidate(progress) else { break };
            last_distance = pass_state.sort_key_distance(row, other);
            // Not a NaN: then all candidates are examined again.
            if last_distance < limit_distance || self.added_rows.contains(&other) {
                continue;
            }
            match partial_match.try_add(other, progress) {
                Some(Err(refusal)) => self.search.refusals.add(refusal),
                Some(Ok(())) | None => {
                    are_refused = false;
                    break;
                }
            }
        }
        progress.take_refusals(row);
        progress.add_refusals(row, before);
        self.search.limit_distance = Some(last_distance);
        are_refused
    }
}

/// Whether a search depends only on the tickets that wait, as they are until a limit grows.
fn depends_on_tickets_only(pass_state: &PassState<'_>) -> bool {
    let (queue, teams) = (pass_state.input.queue, pass_state.input.teams);
    // Players may meet again some time after their last match.
    let ends_with_time = |rule: &AvoidanceRule| rule.whom != AvoidTarget::Blocked && rule.how == AvoidStrictness::Never;
    queue.selection.mode == SelectionMode::Nearest
        && !matches!(queue.quality, QualitySpec::LeaderboardGauss { .. })
        && !queue.avoid.iter().any(ends_with_time)
        && teams.bots.is_none()
}

/// Adds the rows of added tickets. If one of them has changed or left, the search must be repeated.
fn with_rows_of_added(pass_state: &PassState<'_>, unchanged: Vec<Option<FailedSearch>>) -> Vec<Option<RowSearch>> {
    let row_by_id: HashMap<TicketId, u32, BuildIdHasher> =
        if unchanged.iter().flatten().any(|search| !search.added.is_empty()) {
            let unchanged_rows = unchanged.iter().zip(0_u32..).filter(|(search, _)| search.is_some());
            unchanged_rows.map(|(_, row)| (pass_state.tickets[row as usize].prepared.ticket.id, row)).collect()
        } else {
            HashMap::default()
        };
    let with_rows = |mut search: FailedSearch| {
        let added_rows: Option<Box<[u32]>> = search.added.iter().map(|id| row_by_id.get(id).copied()).collect();
        search.must_repeat |= added_rows.is_none();
        RowSearch { search, added_rows: added_rows.unwrap_or_default() }
    };
    unchanged.into_iter().map(|search| search.map(with_rows)).collect()
}
