//! All sets' advertisements in memory, and what every part of the engine needs to reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use parking_lot::{RwLock as FairLock, RwLockReadGuard, RwLockWriteGuard};

use crate::domain::advertisement::Advertisement;
use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::engine::shelf::{Shelf, build_view};

/// How the part of an answer that does not depend on the search is encoded; the wire's own affair.
pub type EncodeStatic = fn(&Advertisement) -> Arc<[u8]>;

/// One set's shelf behind its lock. Held for one look-up, one search or a few changes; never across an await.
///
/// The lock is one that lets nobody in before a writer that waits: with the standard library's, searches that follow each
/// other without a gap keep the writer out for as long as they last.
#[derive(Debug, Default)]
pub(super) struct Shared(FairLock<Shelf>);

impl Shared {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Shelf> {
        self.0.read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Shelf> {
        self.0.write()
    }
}

/// Every set's shelf. Only the writer adds shelves and views, so the two cannot miss each other.
#[derive(Debug, Default)]
pub(super) struct Directory {
    shelves: RwLock<BTreeMap<SetId, Arc<Shared>>>,
    living: RwLock<Vec<Arc<Ruleset>>>,
}

impl Directory {
    /// The shelf of a set, if anything was ever put there.
    pub(super) fn shelf(&self, set_id: SetId) -> Option<Arc<Shared>> {
        self.shelves.read().unwrap_or_else(PoisonError::into_inner).get(&set_id).cloned()
    }

    /// The shelf of a set; a new one has a view for every living ruleset of the set.
    pub(super) fn shelf_or_new(&self, set_id: SetId) -> Arc<Shared> {
        if let Some(shelf) = self.shelf(set_id) {
            return shelf;
        }
        let shelf = Arc::new(Shared::default());
        {
            let mut empty = shelf.write();
            for ruleset in self.living().iter().filter(|ruleset| ruleset.set_id == set_id) {
                empty.end_view(build_view(ruleset, &[]));
            }
        }
        let mut shelves = self.shelves.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shelves.entry(set_id).or_insert(shelf))
    }

    /// Every shelf.
    pub(super) fn shelves(&self) -> Vec<(SetId, Arc<Shared>)> {
        let shelves = self.shelves.read().unwrap_or_else(PoisonError::into_inner);
        shelves.iter().map(|(&set_id, shelf)| (set_id, Arc::clone(shelf))).collect()
    }

    /// The rulesets that have views.
    pub(super) fn living(&self) -> Vec<Arc<Ruleset>> {
        self.living.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes `living` the rulesets that have views: builds the missing ones without holding anybody up, and drops the
    /// others. Takes a second or so per million advertisements; call it where blocking is allowed.
    pub(super) fn set_living(&self, living: Vec<Arc<Ruleset>>) {
        *self.living.write().unwrap_or_else(PoisonError::into_inner) = living.clone();
        for (set_id, shelf) in self.shelves() {
            for ruleset in living.iter().filter(|ruleset| ruleset.set_id == set_id) {
                if shelf.read().view(ruleset.hash).is_some() {
                    continue;
                }
                let records = shelf.write().begin_view();
                let view = build_view(ruleset, &records);
                shelf.write().end_view(view);
            }
            shelf.write().keep_views(&living);
        }
    }
}
