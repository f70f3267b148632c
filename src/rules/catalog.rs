//! Ruleset catalog: active rulesets, recently retired ones, and the problems of the last rejected reload.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::limit::RETIRED_RULESETS_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::rules::diagnostic::RenderedDiagnostic;

/// Active ruleset of one set.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveRuleset {
    /// Source file.
    pub file: PathBuf,
    /// Ruleset.
    pub ruleset: Arc<Ruleset>,
}

/// Ruleset that was replaced or removed, and can still be found by its hash until it expires.
#[derive(Clone, Debug, PartialEq)]
pub struct RetiredRuleset {
    /// Ruleset.
    pub ruleset: Arc<Ruleset>,
    /// Time of loading.
    pub loaded_at: UnixMs,
    /// Time of replacement or removal.
    pub retired_at: UnixMs,
    /// Time from which its hash is unknown.
    pub expires_at: UnixMs,
}

/// Content of the catalog at one moment. A swap does not change a state that a reader holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CatalogState {
    /// Active rulesets, by set.
    pub active: BTreeMap<SetId, ActiveRuleset>,
    /// Retired rulesets, oldest first.
    pub retired: Vec<RetiredRuleset>,
    /// Problems of the last rejected reload; empty if the last reload succeeded.
    pub rejected_diagnostics: Vec<RenderedDiagnostic>,
    /// Time at which the active rulesets were loaded; `None` before the first load.
    pub loaded_at: Option<UnixMs>,
}

/// Sets changed by a swap, in set order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogChanges {
    /// Sets that had no ruleset before.
    pub added: Vec<SetId>,
    /// Sets whose ruleset hash changed.
    pub changed: Vec<SetId>,
    /// Sets without a ruleset now.
    pub removed: Vec<SetId>,
}

impl CatalogChanges {
    /// Whether no ruleset changed its meaning.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Ruleset catalog of a server. Readers never block; writers are serialized.
#[derive(Debug, Default)]
pub struct RulesetCatalog {
    state: ArcSwap<CatalogState>,
    write_lock: Mutex<()>,
}

impl RulesetCatalog {
    /// Current state.
    pub fn snapshot(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// Active ruleset of `set`.
    pub fn active_ruleset(&self, set: SetId) -> Option<Arc<Ruleset>> {
        self.state.load().active.get(&set).map(|active| active.ruleset.clone())
    }

    /// Active or retired ruleset of `set` with `hash`.
    pub fn find_by_hash(&self, set: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        let state = self.state.load();
        let active = state.active.get(&set).map(|active| &active.ruleset);
        let retired = state.retired.iter().map(|retired| &retired.ruleset).filter(|ruleset| ruleset.set_id == set);
        active.into_iter().chain(retired).find(|ruleset| ruleset.hash == hash).cloned()
    }

    /// All active and retired rulesets.
    pub fn active_and_retired(&self) -> Vec<Arc<Ruleset>> {
        let state = self.state.load();
        let active = state.active.values().map(|active| &active.ruleset);
        active.chain(state.retired.iter().map(|retired| &retired.ruleset)).cloned().collect()
    }

    /// Makes `rulesets` active at `now`, all at once; their sets must differ. Replaced rulesets can be found by hash
    /// for `keep_retired_ms`. Clears earlier problems.
    pub fn replace_all(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
        now: UnixMs,
        keep_retired_ms: u64,
    ) -> CatalogChanges {
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state.load_full();
        let active: BTreeMap<SetId, ActiveRuleset> =
            rulesets.into_iter().map(|(file, ruleset)| (ruleset.set_id, ActiveRuleset { file, ruleset })).collect();
        let mut changes = CatalogChanges::default();
        for (set, new) in &active {
            match before.active.get(set) {
                None => changes.added.push(*set),
                Some(previous) if previous.ruleset.hash != new.ruleset.hash => changes.changed.push(*set),
                Some(_) => {}
            }
        }
        changes.removed = before.active.keys().filter(|set| !active.contains_key(set)).copied().collect();
        let is_replaced = |set: &SetId| changes.changed.contains(set) || changes.removed.contains(set);
        let newly_retired =
            before.active.iter().filter(|(set, _)| is_replaced(set)).map(|(_, previous)| RetiredRuleset {
                ruleset: previous.ruleset.clone(),
                loaded_at: before.loaded_at.unwrap_or(now),
                retired_at: now,
                expires_at: now.plus_ms(keep_retired_ms),
            });
        let is_active_again = |previous: &RetiredRuleset| {
            active.get(&previous.ruleset.set_id).is_some_and(|new| new.ruleset.hash == previous.ruleset.hash)
        };
        let mut retired: Vec<RetiredRuleset> = before.retired.iter().cloned().chain(newly_retired).collect();
        retired.retain(|previous| previous.expires_at > now && !is_active_again(previous));
        let excess = retired.len().saturating_sub(RETIRED_RULESETS_MAX);
        retired.drain(..excess);
        self.state.store(Arc::new(CatalogState {
            active,
            retired,
            rejected_diagnostics: Vec::new(),
            loaded_at: Some(now),
        }));
        changes
    }

    /// Records why a reload was rejected. The active rulesets do not change.
    pub fn record_rejected_reload(&self, diagnostics: Vec<RenderedDiagnostic>) {
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let state = CatalogState { rejected_diagnostics: diagnostics, ..CatalogState::clone(&self.state.load()) };
        self.state.store(Arc::new(state));
    }

    /// Removes retired rulesets that have expired at `now`.
    pub fn remove_expired(&self, now: UnixMs) {
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.state.load_full();
        if before.retired.iter().any(|previous| previous.expires_at <= now) {
            let mut state = CatalogState::clone(&before);
            state.retired.retain(|previous| previous.expires_at > now);
            self.state.store(Arc::new(state));
        }
    }
}
