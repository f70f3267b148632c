//! Consistency check: compares memory with the store, and indexes with memory, while all of them change.
//!
//! Memory is read in batches, each under a short lock of its set, and the store is read for the same ids. Then all ids
//! in the store are looked up in memory. A difference may be a change in progress. It is checked again after the writer
//! has processed its inbox and the feed has read all commits. Only a difference that is unchanged on both sides is
//! reported. Nothing is repaired, so that a bug is not hidden; a restart reloads everything.

mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::advert_engine::AdvertEngine;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_set_map::AdvertSetLock;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use crate::engine::error::EngineError;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::StoreError;

use self::compare::{MemoryAdvertState, StoredAdvertState, inconsistency_kinds, indexes_match_record, is_unchanged};

/// Advertisements compared under one lock and in one store query.
const COMPARE_BATCH_SIZE: usize = 500;

/// Advertisement ids read from the store per query.
const STORE_ID_PAGE_SIZE: usize = 5_000;

/// Advertisements rechecked together. Each recheck waits once for the writer and the feed.
const SUSPECTS_MAX: usize = 2_000;

/// The check stops after this many inconsistencies.
const INCONSISTENCIES_BEFORE_STOP: usize = 10_000;

/// Maximum rechecks of one advertisement, and identical rechecks in a row that confirm an inconsistency.
const RECHECKS_PER_ADVERT_MAX: u32 = 12;
const IDENTICAL_RECHECKS_REQUIRED: u32 = 3;

/// Timeout for the feed to read all commits.
const FEED_CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

/// Compares memory with the store and with the indexes. Lists up to `max_listed` inconsistencies.
///
/// Changes nothing, and stops when dropped. Checks must not run in parallel.
pub(crate) async fn check_consistency(
    adverts: &AdvertEngine,
    max_listed: usize,
) -> Result<ConsistencyReport, EngineError> {
    let state = &*adverts.state;
    let started_at = state.common.clock.now();
    let mut check = ConsistencyCheck {
        adverts,
        state,
        max_listed,
        suspects: BTreeSet::new(),
        inconsistent_adverts: BTreeSet::new(),
        report: ConsistencyReport { is_complete: true, ..ConsistencyReport::default() },
    };
    check.run().await?;
    let ConsistencyCheck { mut report, inconsistent_adverts, .. } = check;
    report.inconsistency_count = inconsistent_adverts.len() as u64;
    report.is_complete &= report.changing_count == 0 && inconsistent_adverts.len() < INCONSISTENCIES_BEFORE_STOP;
    report.duration_ms = state.common.clock.now().ms_since(started_at);
    state.common.metrics.consistency_differences.set(i64::try_from(report.inconsistency_count).unwrap_or(i64::MAX));
    log_report(&report, &state.common.store.unknown_row_counts());
    Ok(report)
}

/// State of a running check.
struct ConsistencyCheck<'a> {
    adverts: &'a AdvertEngine,
    state: &'a AdvertState,
    max_listed: usize,
    /// Advertisements to recheck.
    suspects: BTreeSet<AdvertisementId>,
    /// Advertisements with a confirmed inconsistency.
    inconsistent_adverts: BTreeSet<AdvertisementId>,
    report: ConsistencyReport,
}

/// Result of one recheck of a suspect.
struct RecheckResult {
    memory: MemoryAdvertState,
    stored: Option<StoredAdvertState>,
    /// Number of identical rechecks directly before this one.
    identical_before: u32,
}

impl ConsistencyCheck<'_> {
    async fn run(&mut self) -> Result<(), EngineError> {
        if self.state.common.store_staleness_ms(self.state.common.clock.now()).is_some() {
            return Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS });
        }
        // Return an error if the server is draining, rather than an empty report.
        self.adverts.flush().await?;
        for (set_id, set) in self.state.advert_sets.all_sets() {
            self.compare_set(set_id, &set).await?;
        }
        self.find_adverts_missing_in_memory().await?;
        self.recheck_suspects().await
    }

    /// Whether the check has found enough inconsistencies to stop.
    fn is_inconsistency_limit_reached(&self) -> bool {
        self.inconsistent_adverts.len() >= INCONSISTENCIES_BEFORE_STOP
    }

    /// Compares a set's records with the store. Iterates over an index, whose slots keep their positions between
    /// batches.
    async fn compare_set(&mut self, set_id: SetId, set: &AdvertSetLock) -> Result<(), EngineError> {
        let rulesets = set.lock_for_read().indexed_rulesets();
        if rulesets.is_empty() {
            return self.compare_unindexed_set(set_id, set).await;
        }
        for (index_number, ruleset) in rulesets.iter().enumerate() {
            let mut next = Some(0);
            while let Some(from) = next.filter(|_| !self.is_inconsistency_limit_reached()) {
                let cached_rulesets = self.state.common.rulesets.rulesets_to_index();
                let mut states = Vec::with_capacity(COMPARE_BATCH_SIZE);
                let mut mismatched: Vec<AdvertisementId> = Vec::new();
                {
                    let set = set.lock_for_read();
                    let Some(index) = set.index_of_ruleset(ruleset.hash) else {
                        // The ruleset was purged meanwhile. The other indexes hold the same advertisements.
                        self.report.is_complete &= index_number != 0;
                        break;
                    };
                    // The first index showed that every record is in the others too.
                    if index_number != 0 && index.len() == set.len() {
                        break;
                    }
                    let (entries, next_page) = index.entries_page(from, COMPARE_BATCH_SIZE as u32);
                    for id in entries.map(|entry| entry.advertisement.id) {
                        match set.get(id) {
                            None => mismatched.push(id),
                            Some(record) if index_number == 0 => {
                                let indexed = indexes_match_record(&set, record, set_id, &cached_rulesets);
                                states.push(MemoryAdvertState {
                                    record: Some(record.clone()),
                                    is_index_correct: indexed,
                                });
                            }
                            Some(_) => {}
                        }
                    }
                    if next_page.is_none() && index.len() != set.len() {
                        let ids = set.records().map(|record| record.advertisement.id);
                        mismatched.extend(ids.filter(|id| index.get(*id).is_none()).take(INCONSISTENCIES_BEFORE_STOP));
                    }
                    next = next_page;
                }
                for id in mismatched {
                    self.add_suspect(id).await?;
                }
                self.compare_with_store(states).await?;
            }
        }
        Ok(())
    }

    /// Compares a set without a ruleset. Such a set has no index and is not searched.
    async fn compare_unindexed_set(&mut self, set_id: SetId, set: &AdvertSetLock) -> Result<(), EngineError> {
        let cached_rulesets = self.state.common.rulesets.rulesets_to_index();
        let ids: Vec<AdvertisementId> = set.lock_for_read().records().map(|record| record.advertisement.id).collect();
        for ids in ids.chunks(COMPARE_BATCH_SIZE) {
            let batch = {
                let set = set.lock_for_read();
                let records = ids.iter().filter_map(|id| set.get(*id));
                let memory_state = |record: &AdvertRecord| MemoryAdvertState {
                    record: Some(record.clone()),
                    is_index_correct: indexes_match_record(&set, record, set_id, &cached_rulesets),
                };
                records.map(memory_state).collect()
            };
            self.compare_with_store(batch).await?;
        }
        Ok(())
    }

    /// Compares a batch of memory with the store.
    async fn compare_with_store(&mut self, batch: Vec<MemoryAdvertState>) -> Result<(), EngineError> {
        let records = batch.iter().filter_map(|memory| memory.record.as_ref());
        let ids: Vec<AdvertisementId> = records.clone().map(|record| record.advertisement.id).collect();
        self.report.advertisement_count += ids.len() as u64;
        self.report.reservation_count +=
            records.clone().map(|record| record.unended_reservations().count() as u64).sum::<u64>();
        self.report.unwritten_count += records.filter(|record| record.is_unwritten).count() as u64;
        let stored = self.read_stored(&ids).await?;
        let now = self.state.common.clock.now();
        for (id, memory) in ids.into_iter().zip(batch) {
            if !inconsistency_kinds(&memory, stored.get(&id), self.state.replication.is_some(), now).is_empty() {
                self.add_suspect(id).await?;
            }
        }
        Ok(())
    }

    /// Looks up in memory every id in the store.
    async fn find_adverts_missing_in_memory(&mut self) -> Result<(), EngineError> {
        let mut next = Some(AdvertisementId::from_bytes([0; 16]));
        while let Some(first) = next.filter(|_| !self.is_inconsistency_limit_reached()) {
            let page =
                self.state.common.store.list_advertisement_ids(first, STORE_ID_PAGE_SIZE).await.map_err(store_error)?;
            next = page.last().filter(|_| page.len() == STORE_ID_PAGE_SIZE).and_then(next_id);
            let sets = self.state.advert_sets.all_sets();
            for ids in page.chunks(COMPARE_BATCH_SIZE) {
                let mut missing = ids.to_vec();
                for (_, set) in &sets {
                    let set = set.lock_for_read();
                    missing.retain(|id| set.get(*id).is_none());
                }
                for id in missing {
                    self.add_suspect(id).await?;
                }
            }
        }
        Ok(())
    }

    /// Marks an advertisement for recheck; rechecks all of them when `SUSPECTS_MAX` is reached.
    async fn add_suspect(&mut self, id: AdvertisementId) -> Result<(), EngineError> {
        self.suspects.insert(id);
        if self.suspects.len() >= SUSPECTS_MAX { self.recheck_suspects().await } else { Ok(()) }
    }

    /// Rechecks all suspects until each is consistent, confirmed inconsistent, or still changing.
    async fn recheck_suspects(&mut self) -> Result<(), EngineError> {
        let suspects = std::mem::take(&mut self.suspects);
        let mut unresolved: BTreeMap<AdvertisementId, Option<RecheckResult>> =
            suspects.into_iter().map(|id| (id, None)).collect();
        for _ in 0..RECHECKS_PER_ADVERT_MAX {
            if unresolved.is_empty() {
                return Ok(());
            }
            self.wait_until_caught_up().await?;
            let ids: Vec<AdvertisementId> = unresolved.keys().copied().collect();
            for ids in ids.chunks(COMPARE_BATCH_SIZE) {
                let before = read_memory_states(self.state, ids);
                let mut stored = self.read_stored(ids).await?;
                let after = read_memory_states(self.state, ids);
                for ((id, before), after) in ids.iter().zip(before).zip(after) {
                    self.evaluate_suspect(*id, [before, after], stored.remove(id), &mut unresolved);
                }
            }
        }
        self.report.changing_count += unresolved.len() as u64;
        Ok(())
    }

    /// Evaluates a suspect from the stored row and the memory states before and after the read.
    fn evaluate_suspect(
        &mut self,
        id: AdvertisementId,
        [before, after]: [MemoryAdvertState; 2],
        stored: Option<StoredAdvertState>,
        unresolved: &mut BTreeMap<AdvertisementId, Option<RecheckResult>>,
    ) {
        let (is_shared_store, now) = (self.state.replication.is_some(), self.state.common.clock.now());
        let kinds = inconsistency_kinds(&after, stored.as_ref(), is_shared_store, now);
        if kinds.is_empty() || inconsistency_kinds(&before, stored.as_ref(), is_shared_store, now).is_empty() {
            unresolved.remove(&id);
            return;
        }
        let is_identical = |previous: &RecheckResult| {
            is_unchanged(&previous.memory, &after) && previous.stored == stored && is_unchanged(&before, &after)
        };
        let previous = unresolved.get(&id).and_then(Option::as_ref);
        let identical_before =
            previous.filter(|previous| is_identical(previous)).map_or(0, |previous| previous.identical_before + 1);
        if identical_before + 1 < IDENTICAL_RECHECKS_REQUIRED {
            unresolved.insert(id, Some(RecheckResult { memory: after, stored, identical_before }));
            return;
        }
        unresolved.remove(&id);
        if self.inconsistent_adverts.insert(id) {
            self.report.advertisement_count += u64::from(after.record.is_none());
            if self.report.inconsistencies.len() < self.max_listed {
                self.report.inconsistencies.push(Inconsistency { id, kinds });
            }
        }
    }

    /// Waits until memory contains all commits made before this call.
    async fn wait_until_caught_up(&self) -> Result<(), EngineError> {
        if let Some(replication) = &self.state.replication {
            let caught_up = tokio::time::timeout(FEED_CATCH_UP_TIMEOUT, replication.wait_until_caught_up()).await;
            caught_up.map_err(|_| EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })?;
        }
        self.adverts.flush().await
    }

    /// Stored state of `ids`. Splits the query to find rows that cannot be decoded.
    async fn read_stored(
        &self,
        ids: &[AdvertisementId],
    ) -> Result<BTreeMap<AdvertisementId, StoredAdvertState>, EngineError> {
        let mut stored_states = BTreeMap::new();
        let mut queries = vec![ids];
        while let Some(ids) = queries.pop() {
            match (self.state.common.store.read_advertisements(ids).await, ids) {
                (Ok(stored), _) => {
                    stored_states.extend(
                        stored.into_iter().map(|stored| (stored.advertisement.id, StoredAdvertState::Present(stored))),
                    );
                }
                (Err(StoreError::CorruptRow { .. }), [id]) => {
                    drop(stored_states.insert(*id, StoredAdvertState::Unreadable))
                }
                (Err(StoreError::CorruptRow { .. }), ids) => {
                    let (left, right) = ids.split_at(ids.len() / 2);
                    queries.extend([left, right]);
                }
                (Err(error), _) => return Err(store_error(error)),
            }
        }
        Ok(stored_states)
    }
}

/// Memory state of each of `ids`.
fn read_memory_states(state: &AdvertState, ids: &[AdvertisementId]) -> Vec<MemoryAdvertState> {
    let cached_rulesets: Vec<Arc<Ruleset>> = state.common.rulesets.rulesets_to_index();
    let sets = state.advert_sets.all_sets();
    let mut states = vec![MemoryAdvertState { record: None, is_index_correct: true }; ids.len()];
    for (set_id, set) in &sets {
        let set = set.lock_for_read();
        for (id, memory) in ids.iter().zip(&mut states) {
            match set.get(*id) {
                Some(record) => {
                    memory.is_index_correct &= indexes_match_record(&set, record, *set_id, &cached_rulesets);
                    memory.record = Some(record.clone());
                }
                None => memory.is_index_correct &= set.indexes().iter().all(|index| index.get(*id).is_none()),
            }
        }
    }
    states
}

/// Next id in byte order; `None` after the last.
fn next_id(id: &AdvertisementId) -> Option<AdvertisementId> {
    let next = u128::from_be_bytes(*id.as_bytes()).checked_add(1)?;
    Some(AdvertisementId::from_bytes(next.to_be_bytes()))
}

fn store_error(error: StoreError) -> EngineError {
    tracing::warn!(%error, "store read for the consistency check failed");
    EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}

/// Logs the result: one event, with counts per kind.
///
/// Rows of a newer server are no differences: this server does not have them in memory. They are counted apart.
fn log_report(report: &ConsistencyReport, unknown_rows: &[(&'static str, u64)]) {
    let unknown_rows: u64 = unknown_rows.iter().map(|(_, count)| count).sum();
    let ConsistencyReport {
        advertisement_count: advertisements,
        reservation_count: reservations,
        unwritten_count: unwritten,
        changing_count: changing,
        inconsistency_count: inconsistencies,
        is_complete: complete,
        duration_ms,
        ..
    } = *report;
    if inconsistencies == 0 {
        tracing::info!(
            advertisements,
            reservations,
            unwritten,
            changing,
            unknown_rows,
            complete,
            duration_ms,
            "consistency check passed"
        );
        return;
    }
    let mut kinds: BTreeMap<InconsistencyKind, usize> = BTreeMap::new();
    let listed = report.inconsistencies.iter();
    listed.flat_map(|inconsistency| &inconsistency.kinds).for_each(|kind| *kinds.entry(*kind).or_default() += 1);
    let first = report.inconsistencies.first().map(|inconsistency| inconsistency.id.to_string());
    tracing::error!(
        inconsistencies,
        ?kinds,
        first,
        advertisements,
        reservations,
        unwritten,
        changing,
        unknown_rows,
        complete,
        duration_ms,
        "consistency check failed, memory differs from the store"
    );
}
