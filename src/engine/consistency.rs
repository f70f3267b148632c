//! Compares what is in memory with what is stored, and the indices with memory, while all of them go on changing.
//!
//! Nothing stands still for it. Memory is gone through in portions, each under a short hold of its set's lock, and the store
//! is asked what it has under the same names; then all names that the store has are looked up in memory. What differs may
//! be on its way from one to the other, and is looked at again when the writer has done what it was given and, where
//! servers share the store, the feed has read what was committed. Only what stands still on both sides and differs all the
//! same is a difference. Nothing is repaired, lest a fault heal unseen: a restart reads everything anew.

mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::domain::id::{AdvertisementId, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_set_map::LockedAdvertSet;
use crate::engine::adverts::writer::RETRY_AFTER_MS;
use crate::engine::command::{ConsistencyReport, Inconsistency, InconsistencyKind};
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::StoreError;

use self::compare::{MemoryState, StoredState, are_indexes_correct, inconsistency_kinds, is_unchanged};

/// Advertisements under one hold of a lock, and in one question to the store.
const COMPARE_BATCH_SIZE: usize = 500;

/// Names that the store is asked for at a time.
const STORE_ID_PAGE_SIZE: usize = 5_000;

/// Advertisements that are looked at again together: each such look waits for the writer and the feed once.
const SUSPECTS_MAX: usize = 2_000;

/// Differences at which it stops: whoever has so many needs no more.
const INCONSISTENCIES_MAX: usize = 10_000;

/// How often one is looked at again, and how often in a row it must be the same to be believed.
const RECHECKS_MAX: u32 = 12;
const IDENTICAL_RECHECKS_REQUIRED: u32 = 3;

/// How long the feed may take to read what was committed.
const FEED_CATCH_UP_TIMEOUT: Duration = Duration::from_secs(5);

impl Engine {
    /// Compares memory with the store and with its own indices; lists up to `listed_max` of what differs. One at a time:
    /// whoever comes second waits. Changes nothing, and stops when it is dropped.
    pub async fn check_consistency(&self, listed_max: usize) -> Result<ConsistencyReport, EngineError> {
        let _turn = self.consistency_check_lock.lock().await;
        let core = &*self.core;
        let began = core.clock.now();
        let mut audit = ConsistencyCheck {
            engine: self,
            core,
            max_listed: listed_max,
            suspects: BTreeSet::new(),
            inconsistent_adverts: BTreeSet::new(),
            report: ConsistencyReport { is_complete: true, ..ConsistencyReport::default() },
        };
        audit.run().await?;
        let ConsistencyCheck { report: mut answer, inconsistent_adverts: differing, .. } = audit;
        answer.inconsistency_count = differing.len() as u64;
        answer.is_complete &= answer.changing_count == 0 && differing.len() < INCONSISTENCIES_MAX;
        answer.duration_ms = core.clock.now().ms_since(began);
        core.metrics.consistency_differences.set(i64::try_from(answer.inconsistency_count).unwrap_or(i64::MAX));
        log_report(&answer);
        Ok(answer)
    }
}

/// One audit at work.
struct ConsistencyCheck<'a> {
    engine: &'a Engine,
    core: &'a Core,
    max_listed: usize,
    /// To be looked at again.
    suspects: BTreeSet<AdvertisementId>,
    /// What is known to differ.
    inconsistent_adverts: BTreeSet<AdvertisementId>,
    report: ConsistencyReport,
}

/// A look at a suspect.
struct Recheck {
    memory: MemoryState,
    stored: Option<StoredState>,
    /// How many before it were the same.
    identical_before: u32,
}

impl ConsistencyCheck<'_> {
    async fn run(&mut self) -> Result<(), EngineError> {
        if self.core.store_staleness_ms(self.core.clock.now()).is_some() {
            return Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS });
        }
        // A server that is going away says so rather than nothing.
        self.engine.wait_for_advert_writer().await?;
        for (set_id, shelf) in self.core.advert_sets.all() {
            self.compare_set(set_id, &shelf).await?;
        }
        self.find_adverts_missing_in_memory().await?;
        self.recheck_suspects().await
    }

    /// Whether there is no use in going on.
    fn is_limit_reached(&self) -> bool {
        INCONSISTENCIES_MAX <= self.inconsistent_adverts.len()
    }

    /// Compares what memory has of a set, by way of an index, whose slots stay where they are from portion to portion.
    async fn compare_set(&mut self, set_id: SetId, shelf: &LockedAdvertSet) -> Result<(), EngineError> {
        let rulesets = shelf.read().indexed_rulesets();
        if rulesets.is_empty() {
            return self.compare_set_without_index(set_id, shelf).await;
        }
        for (number, ruleset) in rulesets.iter().enumerate() {
            let mut next = Some(0);
            while let Some(from) = next.filter(|_| !self.is_limit_reached()) {
                let living = self.core.rulesets.active_and_retired();
                let mut held = Vec::with_capacity(COMPARE_BATCH_SIZE);
                let mut astray: Vec<AdvertisementId> = Vec::new();
                {
                    let shelf = shelf.read();
                    let Some(view) = shelf.index_of_ruleset(ruleset.hash) else {
                        // The ruleset was forgotten meanwhile. The others' indices hold the same.
                        self.report.is_complete &= number != 0;
                        break;
                    };
                    // The first has shown that every record is in each of the others.
                    if number != 0 && view.len() == shelf.len() {
                        break;
                    }
                    let (entries, then) = view.entries_page(from, COMPARE_BATCH_SIZE as u32);
                    for id in entries.map(|entry| entry.advertisement.id) {
                        match shelf.get(id) {
                            None => astray.push(id),
                            Some(record) if number == 0 => {
                                let indexed = are_indexes_correct(&shelf, record, set_id, &living);
                                held.push(MemoryState { record: Some(record.clone()), is_index_correct: indexed });
                            }
                            Some(_) => {}
                        }
                    }
                    if then.is_none() && view.len() != shelf.len() {
                        let all = shelf.records().map(|record| record.advertisement.id);
                        astray.extend(all.filter(|id| view.get(*id).is_none()).take(INCONSISTENCIES_MAX));
                    }
                    next = then;
                }
                for id in astray {
                    self.add_suspect(id).await?;
                }
                self.compare_with_store(held).await?;
            }
        }
        Ok(())
    }

    /// The same for a set that no ruleset rules any more, nobody searches, and in which hosts at most stay.
    async fn compare_set_without_index(&mut self, set_id: SetId, shelf: &LockedAdvertSet) -> Result<(), EngineError> {
        let living = self.core.rulesets.active_and_retired();
        let ids: Vec<AdvertisementId> = shelf.read().records().map(|record| record.advertisement.id).collect();
        for ids in ids.chunks(COMPARE_BATCH_SIZE) {
            let held = {
                let shelf = shelf.read();
                let records = ids.iter().filter_map(|id| shelf.get(*id));
                let held = |record: &AdvertRecord| MemoryState {
                    record: Some(record.clone()),
                    is_index_correct: are_indexes_correct(&shelf, record, set_id, &living),
                };
                records.map(held).collect()
            };
            self.compare_with_store(held).await?;
        }
        Ok(())
    }

    /// Compares a portion of memory with the store.
    async fn compare_with_store(&mut self, portion: Vec<MemoryState>) -> Result<(), EngineError> {
        let records = portion.iter().filter_map(|held| held.record.as_ref());
        let ids: Vec<AdvertisementId> = records.clone().map(|record| record.advertisement.id).collect();
        self.report.advertisement_count += ids.len() as u64;
        self.report.reservation_count +=
            records.clone().map(|record| record.unended_reservations().count() as u64).sum::<u64>();
        self.report.unwritten_count += records.filter(|record| record.is_unwritten).count() as u64;
        let stored = self.read_stored(&ids).await?;
        let now = self.core.clock.now();
        for (id, held) in ids.into_iter().zip(portion) {
            if !inconsistency_kinds(&held, stored.get(&id), self.core.replication.is_some(), now).is_empty() {
                self.add_suspect(id).await?;
            }
        }
        Ok(())
    }

    /// Looks up in memory whatever the store has.
    async fn find_adverts_missing_in_memory(&mut self) -> Result<(), EngineError> {
        let mut next = Some(AdvertisementId::from_bytes([0; 16]));
        while let Some(first) = next.filter(|_| !self.is_limit_reached()) {
            let names = self.core.store.list_advertisement_ids(first, STORE_ID_PAGE_SIZE).await.map_err(store_error)?;
            next = names.last().filter(|_| names.len() == STORE_ID_PAGE_SIZE).and_then(next_id);
            let shelves = self.core.advert_sets.all();
            for names in names.chunks(COMPARE_BATCH_SIZE) {
                let mut unknown = names.to_vec();
                for (_, shelf) in &shelves {
                    let shelf = shelf.read();
                    unknown.retain(|id| shelf.get(*id).is_none());
                }
                for id in unknown {
                    self.add_suspect(id).await?;
                }
            }
        }
        Ok(())
    }

    /// Has an advertisement looked at again, together with others.
    async fn add_suspect(&mut self, id: AdvertisementId) -> Result<(), EngineError> {
        self.suspects.insert(id);
        if SUSPECTS_MAX <= self.suspects.len() { self.recheck_suspects().await } else { Ok(()) }
    }

    /// Looks at all suspects again until each is in order, known to differ, or too much in motion to say.
    async fn recheck_suspects(&mut self) -> Result<(), EngineError> {
        let suspects = std::mem::take(&mut self.suspects);
        let mut open: BTreeMap<AdvertisementId, Option<Recheck>> = suspects.into_iter().map(|id| (id, None)).collect();
        for _ in 0..RECHECKS_MAX {
            if open.is_empty() {
                return Ok(());
            }
            self.wait_until_caught_up().await?;
            let ids: Vec<AdvertisementId> = open.keys().copied().collect();
            for ids in ids.chunks(COMPARE_BATCH_SIZE) {
                let before = self.core.read_memory_states(ids);
                let mut stored = self.read_stored(ids).await?;
                let after = self.core.read_memory_states(ids);
                for ((id, before), after) in ids.iter().zip(before).zip(after) {
                    self.evaluate_suspect(*id, [before, after], stored.remove(id), &mut open);
                }
            }
        }
        self.report.changing_count += open.len() as u64;
        Ok(())
    }

    /// Judges a suspect by what the store had of it between two looks at memory.
    fn evaluate_suspect(
        &mut self,
        id: AdvertisementId,
        [before, after]: [MemoryState; 2],
        stored: Option<StoredState>,
        open: &mut BTreeMap<AdvertisementId, Option<Recheck>>,
    ) {
        let (shared, now) = (self.core.replication.is_some(), self.core.clock.now());
        let kinds = inconsistency_kinds(&after, stored.as_ref(), shared, now);
        if kinds.is_empty() || inconsistency_kinds(&before, stored.as_ref(), shared, now).is_empty() {
            open.remove(&id);
            return;
        }
        let still = |last: &Recheck| {
            is_unchanged(&last.memory, &after) && last.stored == stored && is_unchanged(&before, &after)
        };
        let last = open.get(&id).and_then(Option::as_ref);
        let alike = last.filter(|last| still(last)).map_or(0, |last| last.identical_before + 1);
        if alike + 1 < IDENTICAL_RECHECKS_REQUIRED {
            open.insert(id, Some(Recheck { memory: after, stored, identical_before: alike }));
            return;
        }
        open.remove(&id);
        if self.inconsistent_adverts.insert(id) {
            self.report.advertisement_count += u64::from(after.record.is_none());
            if self.report.inconsistencies.len() < self.max_listed {
                self.report.inconsistencies.push(Inconsistency { id, kinds });
            }
        }
    }

    /// Waits until memory has whatever was committed before now.
    async fn wait_until_caught_up(&self) -> Result<(), EngineError> {
        if let Some(sharing) = &self.core.replication {
            let caught_up = tokio::time::timeout(FEED_CATCH_UP_TIMEOUT, sharing.wait_until_caught_up()).await;
            caught_up.map_err(|_| EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })?;
        }
        self.engine.wait_for_advert_writer().await
    }

    /// What the store has of `ids`. A row that makes no sense is found by asking for fewer and fewer.
    async fn read_stored(
        &self,
        ids: &[AdvertisementId],
    ) -> Result<BTreeMap<AdvertisementId, StoredState>, EngineError> {
        let mut there = BTreeMap::new();
        let mut to_ask = vec![ids];
        while let Some(ids) = to_ask.pop() {
            match (self.core.store.read_advertisements(ids).await, ids) {
                (Ok(stored), _) => {
                    there.extend(
                        stored.into_iter().map(|stored| (stored.advertisement.id, StoredState::Present(stored))),
                    );
                }
                (Err(StoreError::CorruptRow { .. }), [id]) => drop(there.insert(*id, StoredState::Unreadable)),
                (Err(StoreError::CorruptRow { .. }), ids) => {
                    let (some, others) = ids.split_at(ids.len() / 2);
                    to_ask.extend([some, others]);
                }
                (Err(error), _) => return Err(store_error(error)),
            }
        }
        Ok(there)
    }
}

impl Core {
    /// What memory has of each of `ids`.
    fn read_memory_states(&self, ids: &[AdvertisementId]) -> Vec<MemoryState> {
        let living: Vec<Arc<Ruleset>> = self.rulesets.active_and_retired();
        let shelves = self.advert_sets.all();
        let mut all = vec![MemoryState { record: None, is_index_correct: true }; ids.len()];
        for (set_id, shelf) in &shelves {
            let shelf = shelf.read();
            for (id, held) in ids.iter().zip(&mut all) {
                match shelf.get(*id) {
                    Some(record) => {
                        held.is_index_correct &= are_indexes_correct(&shelf, record, *set_id, &living);
                        held.record = Some(record.clone());
                    }
                    None => held.is_index_correct &= shelf.indexes().iter().all(|view| view.get(*id).is_none()),
                }
            }
        }
        all
    }
}

/// The name that follows.
fn next_id(id: &AdvertisementId) -> Option<AdvertisementId> {
    let next = u128::from_be_bytes(*id.as_bytes()).checked_add(1)?;
    Some(AdvertisementId::from_bytes(next.to_be_bytes()))
}

fn store_error(error: StoreError) -> EngineError {
    tracing::warn!(%error, "compare memory with the store");
    EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}

/// One line for the whole, and one for each kind of what differs.
fn log_report(answer: &ConsistencyReport) {
    let ConsistencyReport {
        advertisement_count: advertisements,
        reservation_count: reservations,
        unwritten_count: pending,
        changing_count: in_motion,
        inconsistency_count: differences,
        is_complete: complete,
        duration_ms: took_ms,
        ..
    } = *answer;
    if differences == 0 {
        tracing::info!(advertisements, reservations, pending, in_motion, complete, took_ms, "memory is what is stored");
        return;
    }
    let mut kinds: BTreeMap<InconsistencyKind, usize> = BTreeMap::new();
    answer.inconsistencies.iter().flat_map(|it| &it.kinds).for_each(|kind| *kinds.entry(*kind).or_default() += 1);
    let first = answer.inconsistencies.first().map(|it| it.id.to_string());
    tracing::error!(
        differences,
        ?kinds,
        first,
        advertisements,
        reservations,
        pending,
        in_motion,
        complete,
        took_ms,
        "memory is not what is stored"
    );
}
