//! All sets' advertisements in memory, and what every part of the engine needs to reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use parking_lot::{RwLock as FairLock, RwLockReadGuard, RwLockWriteGuard};

use crate::domain::advertisement::Advertisement;
use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::advert_set::{AdvertSet, build_index};

/// How the part of an answer that does not depend on the search is encoded; the wire's own affair.
pub type EncodeAdvertFn = fn(&Advertisement) -> Arc<[u8]>;

/// One set's shelf behind its lock. Held for one look-up, one search or a few changes; never across an await.
///
/// The lock is one that lets nobody in before a writer that waits: with the standard library's, searches that follow each
/// other without a gap keep the writer out for as long as they last.
#[derive(Debug, Default)]
pub(in crate::engine) struct LockedAdvertSet(FairLock<AdvertSet>);

impl LockedAdvertSet {
    pub(in crate::engine) fn read(&self) -> RwLockReadGuard<'_, AdvertSet> {
        self.0.read()
    }

    pub(in crate::engine) fn write(&self) -> RwLockWriteGuard<'_, AdvertSet> {
        self.0.write()
    }
}

/// Every set's shelf. Only the writer adds shelves and views, so the two cannot miss each other.
#[derive(Debug, Default)]
pub(in crate::engine) struct AdvertSetMap {
    sets: RwLock<BTreeMap<SetId, Arc<LockedAdvertSet>>>,
    indexed_rulesets: RwLock<Vec<Arc<Ruleset>>>,
}

impl AdvertSetMap {
    /// The shelf of a set, if anything was ever put there.
    pub(in crate::engine) fn get(&self, set_id: SetId) -> Option<Arc<LockedAdvertSet>> {
        self.sets.read().unwrap_or_else(PoisonError::into_inner).get(&set_id).cloned()
    }

    /// The shelf of a set; a new one has a view for every living ruleset of the set.
    pub(in crate::engine) fn get_or_create(&self, set_id: SetId) -> Arc<LockedAdvertSet> {
        if let Some(shelf) = self.get(set_id) {
            return shelf;
        }
        let shelf = Arc::new(LockedAdvertSet::default());
        {
            let mut empty = shelf.write();
            for ruleset in self.indexed_rulesets().iter().filter(|ruleset| ruleset.set_id == set_id) {
                empty.finish_index_build(build_index(ruleset, &[]));
            }
        }
        let mut shelves = self.sets.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shelves.entry(set_id).or_insert(shelf))
    }

    /// Every shelf.
    pub(in crate::engine) fn all(&self) -> Vec<(SetId, Arc<LockedAdvertSet>)> {
        let shelves = self.sets.read().unwrap_or_else(PoisonError::into_inner);
        shelves.iter().map(|(&set_id, shelf)| (set_id, Arc::clone(shelf))).collect()
    }

    /// The rulesets that have views.
    pub(in crate::engine) fn indexed_rulesets(&self) -> Vec<Arc<Ruleset>> {
        self.indexed_rulesets.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `living` the rulesets that have views: builds the missing ones without holding anybody up, and drops the
    /// others. Takes a second or so per million advertisements; call it where blocking is allowed.
    pub(in crate::engine) fn set_indexed_rulesets(&self, living: Vec<Arc<Ruleset>>) {
        *self.indexed_rulesets.write().unwrap_or_else(PoisonError::into_inner) = living.clone();
        for (set_id, shelf) in self.all() {
            for ruleset in living.iter().filter(|ruleset| ruleset.set_id == set_id) {
                if shelf.read().index_of_ruleset(ruleset.hash).is_some() {
                    continue;
                }
                let records = shelf.write().begin_index_build();
                let view = build_index(ruleset, &records);
                shelf.write().finish_index_build(view);
            }
            shelf.write().retain_indexes(&living);
        }
    }
}
