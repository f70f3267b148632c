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
use crate::engine::command::{AuditAnswer, Difference, DifferenceKind};
use crate::engine::core::Core;
use crate::engine::directory::Shared;
use crate::engine::fault::Fault;
use crate::engine::shelf::Record;
use crate::engine::writer::RETRY_AFTER_MS;
use crate::store::StoreError;

use self::compare::{Held, Stored, differences, is_indexed, is_still};

/// Advertisements under one hold of a lock, and in one question to the store.
const PORTION: usize = 500;

/// Names that the store is asked for at a time.
const NAMES: usize = 5_000;

/// Advertisements that are looked at again together: each such look waits for the writer and the feed once.
const SUSPECTS_MAX: usize = 2_000;

/// Differences at which it stops: whoever has so many needs no more.
const DIFFERENCES_MAX: usize = 10_000;

/// How often one is looked at again, and how often in a row it must be the same to be believed.
const LOOKS_MAX: u32 = 12;
const LOOKS_ALIKE: u32 = 3;

/// How long the feed may take to read what was committed.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(5);

impl Engine {
    /// Compares memory with the store and with its own indices; lists up to `listed_max` of what differs. One at a time:
    /// whoever comes second waits. Changes nothing, and stops when it is dropped.
    pub async fn audit(&self, listed_max: usize) -> Result<AuditAnswer, Fault> {
        let _turn = self.audit_turn.lock().await;
        let core = &*self.core;
        let began = core.clock.now();
        let mut audit = Audit {
            engine: self,
            core,
            listed_max,
            suspects: BTreeSet::new(),
            differing: BTreeSet::new(),
            answer: AuditAnswer { complete: true, ..AuditAnswer::default() },
        };
        audit.run().await?;
        let Audit { mut answer, differing, .. } = audit;
        answer.differences = differing.len() as u64;
        answer.complete &= answer.in_motion == 0 && differing.len() < DIFFERENCES_MAX;
        answer.took_ms = core.clock.now().since(began);
        core.metrics.audit_differences.set(i64::try_from(answer.differences).unwrap_or(i64::MAX));
        tell(&answer);
        Ok(answer)
    }
}

/// One audit at work.
struct Audit<'a> {
    engine: &'a Engine,
    core: &'a Core,
    listed_max: usize,
    /// To be looked at again.
    suspects: BTreeSet<AdvertisementId>,
    /// What is known to differ.
    differing: BTreeSet<AdvertisementId>,
    answer: AuditAnswer,
}

/// A look at a suspect.
struct Look {
    held: Held,
    stored: Option<Stored>,
    /// How many before it were the same.
    alike: u32,
}

impl Audit<'_> {
    async fn run(&mut self) -> Result<(), Fault> {
        if self.core.stale_for_ms(self.core.clock.now()).is_some() {
            return Err(Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS });
        }
        // A server that is going away says so rather than nothing.
        self.engine.written().await?;
        for (set_id, shelf) in self.core.directory.shelves() {
            self.walk(set_id, &shelf).await?;
        }
        self.names().await?;
        self.settle().await
    }

    /// Whether there is no use in going on.
    fn is_enough(&self) -> bool {
        DIFFERENCES_MAX <= self.differing.len()
    }

    /// Compares what memory has of a set, by way of an index, whose slots stay where they are from portion to portion.
    async fn walk(&mut self, set_id: SetId, shelf: &Shared) -> Result<(), Fault> {
        let rulesets = shelf.read().rulesets();
        if rulesets.is_empty() {
            return self.walk_unruled(set_id, shelf).await;
        }
        for (number, ruleset) in rulesets.iter().enumerate() {
            let mut next = Some(0);
            while let Some(from) = next.filter(|_| !self.is_enough()) {
                let living = self.core.catalog.living();
                let mut held = Vec::with_capacity(PORTION);
                let mut astray: Vec<AdvertisementId> = Vec::new();
                {
                    let shelf = shelf.read();
                    let Some(view) = shelf.view(ruleset.hash) else {
                        // The ruleset was forgotten meanwhile. The others' indices hold the same.
                        self.answer.complete &= number != 0;
                        break;
                    };
                    // The first has shown that every record is in each of the others.
                    if number != 0 && view.len() == shelf.len() {
                        break;
                    }
                    let (entries, then) = view.portion(from, PORTION as u32);
                    for id in entries.map(|entry| entry.advertisement.id) {
                        match shelf.get(id) {
                            None => astray.push(id),
                            Some(record) if number == 0 => {
                                let indexed = is_indexed(&shelf, record, set_id, &living);
                                held.push(Held { record: Some(record.clone()), indexed });
                            }
                            Some(_) => {}
                        }
                    }
                    if then.is_none() && view.len() != shelf.len() {
                        let all = shelf.records().map(|record| record.advertisement.id);
                        astray.extend(all.filter(|id| view.get(*id).is_none()).take(DIFFERENCES_MAX));
                    }
                    next = then;
                }
                for id in astray {
                    self.suspect(id).await?;
                }
                self.compare(held).await?;
            }
        }
        Ok(())
    }

    /// The same for a set that no ruleset rules any more, nobody searches, and in which hosts at most stay.
    async fn walk_unruled(&mut self, set_id: SetId, shelf: &Shared) -> Result<(), Fault> {
        let living = self.core.catalog.living();
        let ids: Vec<AdvertisementId> = shelf.read().records().map(|record| record.advertisement.id).collect();
        for ids in ids.chunks(PORTION) {
            let held = {
                let shelf = shelf.read();
                let records = ids.iter().filter_map(|id| shelf.get(*id));
                let held = |record: &Record| Held {
                    record: Some(record.clone()),
                    indexed: is_indexed(&shelf, record, set_id, &living),
                };
                records.map(held).collect()
            };
            self.compare(held).await?;
        }
        Ok(())
    }

    /// Compares a portion of memory with the store.
    async fn compare(&mut self, portion: Vec<Held>) -> Result<(), Fault> {
        let records = portion.iter().filter_map(|held| held.record.as_ref());
        let ids: Vec<AdvertisementId> = records.clone().map(|record| record.advertisement.id).collect();
        self.answer.advertisements += ids.len() as u64;
        self.answer.reservations += records.clone().map(|record| record.live().count() as u64).sum::<u64>();
        self.answer.pending += records.filter(|record| record.pending).count() as u64;
        let stored = self.look(&ids).await?;
        let now = self.core.clock.now();
        for (id, held) in ids.into_iter().zip(portion) {
            if !differences(&held, stored.get(&id), self.core.sharing.is_some(), now).is_empty() {
                self.suspect(id).await?;
            }
        }
        Ok(())
    }

    /// Looks up in memory whatever the store has.
    async fn names(&mut self) -> Result<(), Fault> {
        let mut next = Some(AdvertisementId::from_bytes([0; 16]));
        while let Some(first) = next.filter(|_| !self.is_enough()) {
            let names = self.core.store.names(first, NAMES).await.map_err(away)?;
            next = names.last().filter(|_| names.len() == NAMES).and_then(after);
            let shelves = self.core.directory.shelves();
            for names in names.chunks(PORTION) {
                let mut unknown = names.to_vec();
                for (_, shelf) in &shelves {
                    let shelf = shelf.read();
                    unknown.retain(|id| shelf.get(*id).is_none());
                }
                for id in unknown {
                    self.suspect(id).await?;
                }
            }
        }
        Ok(())
    }

    /// Has an advertisement looked at again, together with others.
    async fn suspect(&mut self, id: AdvertisementId) -> Result<(), Fault> {
        self.suspects.insert(id);
        if SUSPECTS_MAX <= self.suspects.len() { self.settle().await } else { Ok(()) }
    }

    /// Looks at all suspects again until each is in order, known to differ, or too much in motion to say.
    async fn settle(&mut self) -> Result<(), Fault> {
        let suspects = std::mem::take(&mut self.suspects);
        let mut open: BTreeMap<AdvertisementId, Option<Look>> = suspects.into_iter().map(|id| (id, None)).collect();
        for _ in 0..LOOKS_MAX {
            if open.is_empty() {
                return Ok(());
            }
            self.catch_up().await?;
            let ids: Vec<AdvertisementId> = open.keys().copied().collect();
            for ids in ids.chunks(PORTION) {
                let before = self.core.in_memory(ids);
                let mut stored = self.look(ids).await?;
                let after = self.core.in_memory(ids);
                for ((id, before), after) in ids.iter().zip(before).zip(after) {
                    self.judge(*id, [before, after], stored.remove(id), &mut open);
                }
            }
        }
        self.answer.in_motion += open.len() as u64;
        Ok(())
    }

    /// Judges a suspect by what the store had of it between two looks at memory.
    fn judge(
        &mut self,
        id: AdvertisementId,
        [before, after]: [Held; 2],
        stored: Option<Stored>,
        open: &mut BTreeMap<AdvertisementId, Option<Look>>,
    ) {
        let (shared, now) = (self.core.sharing.is_some(), self.core.clock.now());
        let kinds = differences(&after, stored.as_ref(), shared, now);
        if kinds.is_empty() || differences(&before, stored.as_ref(), shared, now).is_empty() {
            open.remove(&id);
            return;
        }
        let still = |last: &Look| is_still(&last.held, &after) && last.stored == stored && is_still(&before, &after);
        let last = open.get(&id).and_then(Option::as_ref);
        let alike = last.filter(|last| still(last)).map_or(0, |last| last.alike + 1);
        if alike + 1 < LOOKS_ALIKE {
            open.insert(id, Some(Look { held: after, stored, alike }));
            return;
        }
        open.remove(&id);
        if self.differing.insert(id) {
            self.answer.advertisements += u64::from(after.record.is_none());
            if self.answer.listed.len() < self.listed_max {
                self.answer.listed.push(Difference { id, kinds });
            }
        }
    }

    /// Waits until memory has whatever was committed before now.
    async fn catch_up(&self) -> Result<(), Fault> {
        if let Some(sharing) = &self.core.sharing {
            let caught_up = tokio::time::timeout(CAUGHT_UP_WITHIN, sharing.caught_up()).await;
            caught_up.map_err(|_| Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })?;
        }
        self.engine.written().await
    }

    /// What the store has of `ids`. A row that makes no sense is found by asking for fewer and fewer.
    async fn look(&self, ids: &[AdvertisementId]) -> Result<BTreeMap<AdvertisementId, Stored>, Fault> {
        let mut there = BTreeMap::new();
        let mut to_ask = vec![ids];
        while let Some(ids) = to_ask.pop() {
            match (self.core.store.look(ids).await, ids) {
                (Ok(stored), _) => {
                    there.extend(stored.into_iter().map(|stored| (stored.advertisement.id, Stored::There(stored))));
                }
                (Err(StoreError::Corrupt { .. }), [id]) => drop(there.insert(*id, Stored::Unreadable)),
                (Err(StoreError::Corrupt { .. }), ids) => {
                    let (some, others) = ids.split_at(ids.len() / 2);
                    to_ask.extend([some, others]);
                }
                (Err(error), _) => return Err(away(error)),
            }
        }
        Ok(there)
    }
}

impl Core {
    /// What memory has of each of `ids`.
    fn in_memory(&self, ids: &[AdvertisementId]) -> Vec<Held> {
        let living: Vec<Arc<Ruleset>> = self.catalog.living();
        let shelves = self.directory.shelves();
        let mut all = vec![Held { record: None, indexed: true }; ids.len()];
        for (set_id, shelf) in &shelves {
            let shelf = shelf.read();
            for (id, held) in ids.iter().zip(&mut all) {
                match shelf.get(*id) {
                    Some(record) => {
                        held.indexed &= is_indexed(&shelf, record, *set_id, &living);
                        held.record = Some(record.clone());
                    }
                    None => held.indexed &= shelf.views().iter().all(|view| view.get(*id).is_none()),
                }
            }
        }
        all
    }
}

/// The name that follows.
fn after(id: &AdvertisementId) -> Option<AdvertisementId> {
    let next = u128::from_be_bytes(*id.as_bytes()).checked_add(1)?;
    Some(AdvertisementId::from_bytes(next.to_be_bytes()))
}

fn away(error: StoreError) -> Fault {
    tracing::warn!(%error, "compare memory with the store");
    Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}

/// One line for the whole, and one for each kind of what differs.
fn tell(answer: &AuditAnswer) {
    let AuditAnswer { advertisements, reservations, pending, in_motion, differences, complete, took_ms, .. } = *answer;
    if differences == 0 {
        tracing::info!(advertisements, reservations, pending, in_motion, complete, took_ms, "memory is what is stored");
        return;
    }
    let mut kinds: BTreeMap<DifferenceKind, usize> = BTreeMap::new();
    answer.listed.iter().flat_map(|it| &it.kinds).for_each(|kind| *kinds.entry(*kind).or_default() += 1);
    let first = answer.listed.first().map(|it| it.id.to_string());
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
