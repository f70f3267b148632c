//! Search result: hits with their scores, counters, and the buffers that searches reuse.

use crate::filter::Refusal;
use crate::index::candidates::{Candidate, Candidates, RowRoundTrip};
use crate::index::kernel::KernelBuffers;
use crate::index::top_k::TopK;
use crate::index::tree::RowAddr;

/// Search hit with its exact score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchHit {
    /// Slot in the index; valid until the index changes.
    pub slot: u32,
    /// Score; lower is better.
    pub score: f64,
}

/// Result of a search, with its buffers. Callers reuse it, so that a search allocates nothing per candidate.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// Hits, best first; ties are ordered by advertisement id.
    pub hits: Vec<SearchHit>,
    /// Number of rows evaluated.
    pub evaluated_rows: u32,
    /// Whether the search stopped at the evaluation limit.
    pub truncated: bool,
    /// Number of evaluated rows refused per rule, in the order of `Refusal`.
    ///
    /// Each row counts once, for the first refusing rule that columns can evaluate. That can be a later rule than in
    /// `admit_advertisement`: a full session of the searcher's own can count as full. A row whose score is too high anyway is not
    /// checked against rules that need its entry.
    pub refusal_counts: Vec<(Refusal, u32)>,
    pub(super) buffers: SearchBuffers,
}

impl SearchResult {
    /// Exact soft filter terms of the hit at `hit_index` in `hits`, in the order of `Ruleset::soft_filters`.
    pub fn hit_terms(&self, hit_index: usize) -> &[f64] {
        let width = self.buffers.hit_terms.len() / self.hits.len().max(1);
        &self.buffers.hit_terms[hit_index * width..][..width]
    }
}

/// Reusable buffers of a search.
#[derive(Debug, Default)]
pub(super) struct SearchBuffers {
    pub(super) kernel_buffers: KernelBuffers,
    pub(super) top_k: TopK,
    /// Exact terms of the hits, one hit after the other.
    pub(super) hit_terms: Vec<f64>,
    /// Score bounds of the leaves of all visited partitions, one partition after the other.
    pub(super) leaf_bounds: Vec<f32>,
    /// Partition number, and position of its first leaf in `leaf_bounds`.
    pub(super) partition_starts: Vec<(u32, usize)>,
    /// Score bound (high 32 bits) and position in `leaf_bounds` (low 32 bits) of the leaves to visit.
    pub(super) leaf_order: Vec<u64>,
    pub(super) refusal_counts: Vec<u32>,
    pub(super) excluded_rows: Vec<RowAddr>,
    /// Rows that their leaves skip, sorted: they do not exist for the searcher, or are judged one by one.
    pub(super) skipped_rows: Vec<RowAddr>,
    /// Slots of rows that the searcher has probed, sorted.
    pub(super) probed_slots: Vec<u32>,
    /// Slots with a cost, and the cost, sorted by slot.
    pub(super) slot_costs: Vec<(u32, f64)>,
    pub(super) surviving_rows: Vec<(f32, u32)>,
    /// Rows that a search with predictions has yet to score.
    pub(super) candidates: Candidates,
    /// Candidates that are scored now.
    pub(super) best_candidates: Vec<Candidate>,
    /// Slots of scored candidates, and the round trip to each where it does not need the entry.
    pub(super) candidate_round_trips: Vec<(u32, Option<RowRoundTrip>)>,
    /// Score bound and position in `leaf_bounds` of the leaves that a search with predictions is to visit.
    pub(super) bounded_leaves: Vec<(f32, u32)>,
}
