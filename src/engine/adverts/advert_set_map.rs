//! Advertisements in memory of all matchmaking sets, each behind its own lock.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use parking_lot::{RwLock as FairLock, RwLockReadGuard, RwLockWriteGuard};

use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::advert_set::{AdvertSet, build_index};
use crate::engine::open_silos::OpenSilos;
use crate::engine::party_values::PartyValueReader;

/// One set's advertisements behind a lock. Held for one lookup, one search or a few changes; never across an await.
///
/// The lock is fair to a waiting writer. With the standard library's lock, overlapping searches starve the writer.
#[derive(Debug)]
pub(crate) struct AdvertSetLock(FairLock<AdvertSet>);

impl AdvertSetLock {
    pub(crate) fn lock_for_read(&self) -> RwLockReadGuard<'_, AdvertSet> {
        self.0.read()
    }

    pub(crate) fn lock_for_write(&self) -> RwLockWriteGuard<'_, AdvertSet> {
        self.0.write()
    }
}

/// Advertisements of every set. Only the writer adds sets and indexes, so a new set has all indexes.
#[derive(Debug)]
pub(crate) struct AdvertSetMap {
    sets: RwLock<BTreeMap<SetId, Arc<AdvertSetLock>>>,
    indexed_rulesets: RwLock<Vec<Arc<Ruleset>>>,
    open_silos: Arc<OpenSilos>,
    party_values: PartyValueReader,
}

impl AdvertSetMap {
    /// Map without sets, which keeps the silos of its advertisements open in `open_silos`.
    pub(crate) fn new(open_silos: Arc<OpenSilos>, party_values: PartyValueReader) -> Self {
        Self { sets: RwLock::default(), indexed_rulesets: RwLock::default(), open_silos, party_values }
    }

    /// Advertisements of a set; `None` if the set never had any.
    pub(crate) fn get(&self, set_id: SetId) -> Option<Arc<AdvertSetLock>> {
        self.sets.read().unwrap_or_else(PoisonError::into_inner).get(&set_id).cloned()
    }

    /// Advertisements of a set. A new set gets an index for each of the set's indexed rulesets.
    pub(crate) fn get_or_create(&self, set_id: SetId) -> Arc<AdvertSetLock> {
        if let Some(set) = self.get(set_id) {
            return set;
        }
        let mut set = AdvertSet::new(Arc::clone(&self.open_silos), self.party_values.clone());
        for ruleset in self.indexed_rulesets().iter().filter(|ruleset| ruleset.set_id == set_id) {
            set.finish_index_build(build_index(ruleset, &[], &self.party_values));
        }
        let set = Arc::new(AdvertSetLock(FairLock::new(set)));
        let mut sets = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sets.entry(set_id).or_insert(set))
    }

    /// All sets, in id order.
    pub(crate) fn all_sets(&self) -> Vec<(SetId, Arc<AdvertSetLock>)> {
        let sets = self.sets.read().unwrap_or_else(PoisonError::into_inner);
        sets.iter().map(|(&set_id, set)| (set_id, Arc::clone(set))).collect()
    }

    /// Rulesets that have indexes.
    pub(crate) fn indexed_rulesets(&self) -> Vec<Arc<Ruleset>> {
        self.indexed_rulesets.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the indexed rulesets: builds missing indexes without blocking searches, and drops the others.
    ///
    /// Takes about one second per million advertisements; call it where blocking is allowed.
    pub(crate) fn set_indexed_rulesets(&self, rulesets: Vec<Arc<Ruleset>>) {
        *self.indexed_rulesets.write().unwrap_or_else(PoisonError::into_inner) = rulesets.clone();
        for (set_id, set) in self.all_sets() {
            for ruleset in rulesets.iter().filter(|ruleset| ruleset.set_id == set_id) {
                if set.lock_for_read().index_of_ruleset(ruleset.hash).is_some() {
                    continue;
                }
                let records = set.lock_for_write().copy_records_for_index_build();
                let index = build_index(ruleset, &records, &self.party_values);
                set.lock_for_write().finish_index_build(index);
            }
            set.lock_for_write().retain_indexes(&rulesets);
        }
    }
}
