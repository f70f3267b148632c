//! The rulesets that are in force, those that were until lately, and what was wrong with the last ones offered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::limit::RETIRED_RULESETS_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::rules::RenderedDiagnostic;

/// One ruleset in force.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveRuleset {
    /// The file that it came from.
    pub file: PathBuf,
    /// The ruleset.
    pub ruleset: Arc<Ruleset>,
}

/// One ruleset that is no longer in force but still resolved by its hash (S1-37).
#[derive(Clone, Debug, PartialEq)]
pub struct RetiredRuleset {
    /// The ruleset.
    pub ruleset: Arc<Ruleset>,
    /// When it was taken.
    pub loaded_at: UnixMs,
    /// When another took its place.
    pub retired_at: UnixMs,
    /// When its hash is forgotten.
    pub expires_at: UnixMs,
}

/// Everything at one moment; a reader that holds it sees no swap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogState {
    /// In force, by set.
    pub active: BTreeMap<SetId, ActiveRuleset>,
    /// Still resolved, oldest first.
    pub retired: Vec<RetiredRuleset>,
    /// What was wrong with the rulesets last offered; empty when they were taken.
    pub rejected_diagnostics: Vec<RenderedDiagnostic>,
    /// When the current ones were taken; none when none ever were.
    pub loaded_at: Option<UnixMs>,
}

/// What a swap changed, in set order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogChanges {
    /// Sets that had no ruleset before.
    pub added: Vec<SetId>,
    /// Sets whose ruleset means something else now.
    pub changed: Vec<SetId>,
    /// Sets that have no ruleset any more.
    pub removed: Vec<SetId>,
}

impl CatalogChanges {
    /// Whether all means what it meant.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// The rulesets of a server. Readers never wait; writers take turns.
#[derive(Debug, Default)]
pub struct RulesetCatalog {
    state: ArcSwap<CatalogState>,
    write_lock: Mutex<()>,
}

impl RulesetCatalog {
    /// Everything as it stands.
    pub fn snapshot(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// The ruleset in force for `set`.
    pub fn active_ruleset(&self, set: SetId) -> Option<Arc<Ruleset>> {
        self.state.load().active.get(&set).map(|current| current.ruleset.clone())
    }

    /// The ruleset of `set` that `hash` names, in force or lately retired.
    pub fn find_by_hash(&self, set: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        let state = self.state.load();
        let current = state.active.get(&set).map(|current| &current.ruleset);
        let retired = state.retired.iter().map(|retired| &retired.ruleset).filter(|ruleset| ruleset.set_id == set);
        current.into_iter().chain(retired).find(|ruleset| ruleset.hash == hash).cloned()
    }

    /// Every ruleset that can be resolved: those in force and those retired.
    pub fn active_and_retired(&self) -> Vec<Arc<Ruleset>> {
        let state = self.state.load();
        let current = state.active.values().map(|current| &current.ruleset);
        current.chain(state.retired.iter().map(|retired| &retired.ruleset)).cloned().collect()
    }

    /// Puts `rulesets`, of sets that differ, in force at `now`, all at once. What they replace stays resolved for
    /// `keep_retired_ms`. Earlier problems are forgotten.
    pub fn replace_all(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
        now: UnixMs,
        keep_retired_ms: u64,
    ) -> CatalogChanges {
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state.load_full();
        let current: BTreeMap<SetId, ActiveRuleset> =
            rulesets.into_iter().map(|(file, ruleset)| (ruleset.set_id, ActiveRuleset { file, ruleset })).collect();
        let mut changes = CatalogChanges::default();
        for (set, new) in &current {
            match before.active.get(set) {
                None => changes.added.push(*set),
                Some(old) if old.ruleset.hash != new.ruleset.hash => changes.changed.push(*set),
                Some(_) => {}
            }
        }
        changes.removed = before.active.keys().filter(|set| !current.contains_key(set)).copied().collect();
        let gone = |set: &SetId| changes.changed.contains(set) || changes.removed.contains(set);
        let leaving = before.active.iter().filter(|(set, _)| gone(set)).map(|(_, old)| RetiredRuleset {
            ruleset: old.ruleset.clone(),
            loaded_at: before.loaded_at.unwrap_or(now),
            retired_at: now,
            expires_at: now.plus_ms(keep_retired_ms),
        });
        let is_back = |old: &RetiredRuleset| {
            current.get(&old.ruleset.set_id).is_some_and(|new| new.ruleset.hash == old.ruleset.hash)
        };
        let mut retired: Vec<RetiredRuleset> = before.retired.iter().cloned().chain(leaving).collect();
        retired.retain(|old| now < old.expires_at && !is_back(old));
        let excess = retired.len().saturating_sub(RETIRED_RULESETS_MAX);
        retired.drain(..excess);
        self.state.store(Arc::new(CatalogState {
            active: current,
            retired,
            rejected_diagnostics: Vec::new(),
            loaded_at: Some(now),
        }));
        changes
    }

    /// Notes why the rulesets offered were not taken; those in force stay (S1-38).
    pub fn record_rejected_reload(&self, problems: Vec<RenderedDiagnostic>) {
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let state = CatalogState { rejected_diagnostics: problems, ..CatalogState::clone(&self.state.load()) };
        self.state.store(Arc::new(state));
    }

    /// Forgets retired rulesets whose time has come by `now`.
    pub fn remove_expired(&self, now: UnixMs) {
        let _turn = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state.load_full();
        if before.retired.iter().any(|old| old.expires_at <= now) {
            let mut state = CatalogState::clone(&before);
            state.retired.retain(|old| now < old.expires_at);
            self.state.store(Arc::new(state));
        }
    }
}
