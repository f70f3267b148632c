//! Played matches of all queues in memory, for avoidance rules: queues write them, and searches of the same sets read them too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::domain::id::{MatchId, SetId, SiloId};
use crate::domain::lifecycle::Match;
use crate::domain::queue::past_match_log::PastMatchLog;
use crate::domain::time::UnixMs;
use crate::store::queues::QueueKey;

/// Log of each set and silo in which matches were played. Locked only for a lookup or a change; no other lock is taken
/// meanwhile.
#[derive(Debug, Default)]
pub(crate) struct PastMatchLogs(RwLock<BTreeMap<QueueKey, Arc<Mutex<PastMatchLog>>>>);

impl PastMatchLogs {
    /// Log of a set and silo, if matches were played there.
    pub(crate) fn get(&self, key: QueueKey) -> Option<Arc<Mutex<PastMatchLog>>> {
        self.0.read().get(&key).cloned()
    }

    /// Logs of a set, over all silos.
    pub(crate) fn of_set(&self, set_id: SetId) -> Vec<Arc<Mutex<PastMatchLog>>> {
        let key = |silo| QueueKey { set_id, silo: SiloId(silo) };
        self.0.read().range(key(0)..=key(u64::MAX)).map(|(_, log)| Arc::clone(log)).collect()
    }

    /// Takes over the current state of a match.
    pub(crate) fn record(&self, key: QueueKey, current: &Match) {
        let known = self.get(key);
        known.unwrap_or_else(|| Arc::clone(self.0.write().entry(key).or_default())).lock().record_match_state(current);
    }

    /// Removes a match that is no longer in the store.
    pub(crate) fn remove_match(&self, id: MatchId) {
        self.0.read().values().for_each(|log| log.lock().remove(id));
    }

    /// Removes matches that started before `newer_than` and are not listed.
    pub(crate) fn remove_unlisted_older_than(&self, listed: &BTreeSet<MatchId>, newer_than: UnixMs) {
        self.0.read().values().for_each(|log| log.lock().remove_unlisted_older_than(listed, newer_than));
    }

    /// Removes ended matches that may be purged at `before`, and logs without matches.
    pub(crate) fn remove_matches_due_for_purge(&self, before: UnixMs) {
        self.0.write().retain(|_, log| {
            let mut log = log.lock();
            log.remove_matches_due_for_purge(before);
            !log.is_empty()
        });
    }
}
