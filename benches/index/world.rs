//! An index of a million advertisements, sessions that search it, and the fastest possible pass over as many bytes.

use std::hint::black_box;
use std::sync::Arc;

use fireteam::domain::advertisement::AdvertisementKind;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::filter::Searcher;
use fireteam::domain::id::{SiloId, UserKey};
use fireteam::domain::index::{AdvertisementIndex, InstructionSet, SearchQuery, SearchResult, oracle};
use fireteam::domain::ruleset::{Ruleset, SearchLimits};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;

use crate::harness::{Timing, quantile};
use crate::population::{NOW, PopulationKind, RuleOptions, entry, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Number of advertisements.
pub(super) const ROWS: u64 = 1_000_000;
/// Bytes that a column scan reads per row: four floats, expiry, seats and slot.
const COLUMN_BYTES: usize = 28;
/// Searches per round.
pub(super) const SEARCHES: usize = 200;

/// The fastest possible pass over the columns of a million rows: XOR of all bytes.
pub(super) struct MemoryFloor(Vec<u64>);

impl MemoryFloor {
    pub(super) fn new() -> Self {
        let mut rng = SplitMix64(1);
        Self((0..ROWS as usize * COLUMN_BYTES / 8).map(|_| rng.next()).collect())
    }

    pub(super) fn time(&self) -> Timing {
        quantile(20, 0.5, |_| {
            black_box(pulp::Arch::new().dispatch(|| self.0.iter().fold(0, |sum, word| sum ^ word)));
        })
    }

    /// Throughput of the pass, GB/s.
    pub(super) fn bandwidth(&self) -> f64 {
        (self.0.len() * 8) as f64 / self.time().wall_us / 1e3
    }
}

/// An index under one ruleset, and sessions that search it.
pub(super) struct World {
    pub(super) ruleset: Arc<Ruleset>,
    pub(super) index: AdvertisementIndex,
    pub(super) searchers: Vec<(Session, AttributeValues)>,
    pub(super) seats: u16,
    pub(super) users: Vec<UserKey>,
    /// Searches per round.
    pub(super) searches: usize,
}

impl World {
    /// The index, and the searching sessions with an empty one: the index then changes under a lock.
    pub(super) fn take_index(self) -> (Self, AdvertisementIndex) {
        let empty = AdvertisementIndex::new(Arc::clone(&self.ruleset));
        (Self { index: empty, ..self }, self.index)
    }

    pub(super) fn new(rules: RuleOptions, spread: PopulationKind) -> Self {
        let ruleset = Arc::new(ruleset(rules));
        let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
        let mut rng = SplitMix64(7);
        for number in 0..ROWS {
            index.upsert(entry(&mut rng, &ruleset, number, spread));
        }
        Self::of(ruleset, index)
    }

    /// A given index with the usual searching sessions.
    pub(super) fn of(ruleset: Arc<Ruleset>, index: AdvertisementIndex) -> Self {
        let mut rng = SplitMix64(77);
        let searchers = (0..SEARCHES).map(|_| session(&mut rng, PopulationKind::Uniform));
        let searchers =
            searchers.map(|it| (it.clone(), AttributeValues::from_session_without_standings(&ruleset, &it))).collect();
        Self { ruleset, index, searchers, seats: 1, users: Vec::new(), searches: SEARCHES }
    }

    pub(super) fn query<'a>(&'a self, ruleset: &'a Ruleset, number: usize) -> SearchQuery<'a> {
        let (session, facts) = &self.searchers[number % self.searchers.len()];
        let searcher = Searcher {
            attribute_values: facts,
            locality: session.locality,
            region_latencies: &[],
            wishes: &[],
            seats_needed: self.seats,
            users: &self.users,
            caller: None,
            excluded_ids: &[],
            avoided: Default::default(),
            probes: Default::default(),
            waited_ms: 4_000_000,
        };
        let limits = SearchLimits { max_results: 50, max_evaluated: u32::MAX };
        SearchQuery { ruleset, searcher, silo: SiloId(1), kind: AdvertisementKind::Session, limits, now: UnixMs(NOW) }
    }

    /// Times a round of searches, at the quantile `at`.
    pub(super) fn search(&self, ruleset: &Ruleset, path: InstructionSet, at: f64) -> Timing {
        let mut found = SearchResult::default();
        quantile(self.searches, at, |number| {
            self.index.search_with_instruction_set(path, &self.query(ruleset, number), &mut found);
            black_box(&found);
        })
    }

    /// Compares results with the oracle, so that only correct searches are timed.
    pub(super) fn check_against_oracle(&self, ruleset: &Ruleset) {
        let mut found = SearchResult::default();
        for number in 0..3 {
            let query = self.query(ruleset, number);
            self.index.search(&query, &mut found);
            let hits = found.hits.iter().map(|hit| (self.index.entry(hit.slot).advertisement.id, hit.score));
            assert!(hits.eq(oracle::search(&self.index, &query)), "the index and the oracle disagree");
        }
        eprintln!("evaluated {} refusals {:?} hits {}", found.evaluated_rows, found.refusal_counts, found.hits.len());
    }
}
