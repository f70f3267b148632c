//! Ruleset catalog: active rulesets, those of retiring sets, recently retired ones, copies that matches use, and the
//! problems of the last rejected reload.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::limit::SUPERSEDED_RULESETS_IN_CATALOG_MAX;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::load::{LOADED_BY_START, RulesetLoad};
use crate::domain::time::UnixMs;
use crate::rules::diagnostic::FileDiagnostic;

/// Active ruleset of one set.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveRuleset {
    /// Source file.
    pub file: PathBuf,
    /// Ruleset.
    pub ruleset: Arc<Ruleset>,
}

/// Set whose file was removed. Its ruleset stays in force for its tickets until the grace period ends.
#[derive(Clone, Debug, PartialEq)]
pub struct RetiringRuleset {
    /// Source file, as far as it is known.
    pub file: PathBuf,
    /// Ruleset.
    pub ruleset: Arc<Ruleset>,
    /// Time of removal. With several servers, the latest time at which all of them had lost the file.
    pub removed_at: UnixMs,
    /// Time at which this server found the file missing.
    pub noticed_at: UnixMs,
    /// End of the grace period.
    pub ends_at: UnixMs,
}

/// Ruleset that was replaced or removed, and can still be found by its hash until it expires.
#[derive(Clone, Debug, PartialEq)]
pub struct SupersededRuleset {
    /// Ruleset.
    pub ruleset: Arc<Ruleset>,
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
    /// Sets whose file was removed, in their grace period.
    pub retiring: BTreeMap<SetId, RetiringRuleset>,
    /// Retired rulesets, oldest first.
    pub retired: Vec<SupersededRuleset>,
    /// Rulesets that are kept only for matches that have not ended.
    pub copies: BTreeMap<(SetId, RulesetHash), Arc<Ruleset>>,
    /// Further copies in the store. Results of ended matches need them; they have no index.
    pub copies_without_index: BTreeMap<(SetId, RulesetHash), Arc<Ruleset>>,
    /// Rulesets of matches that neither this server nor the store has, or whose stored text is invalid.
    pub unavailable: BTreeSet<(SetId, RulesetHash)>,
    /// Set ids in files that are marked as retired, with the file.
    pub retired_files: BTreeMap<SetId, PathBuf>,
    /// Rulesets of which the store has a copy.
    pub durable: BTreeSet<(SetId, RulesetHash)>,
    /// Problems of the last rejected reload; empty if the last reload succeeded.
    pub rejected_diagnostics: Vec<FileDiagnostic>,
    /// When and by whom each ruleset was loaded. On a shared store, by the first server that had this version.
    pub loads: BTreeMap<(SetId, RulesetHash), RulesetLoad>,
}

/// Ruleset of a match that has not ended.
#[derive(Clone, Debug, PartialEq)]
pub enum MatchRulesetLookup {
    /// The ruleset that made the match. If it is unavailable, the ruleset of the set that is in force.
    Known(Arc<Ruleset>),
    /// It has not been looked for in the store yet.
    NotLoaded,
    /// It cannot be had.
    Unrecoverable,
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

impl CatalogState {
    /// Ruleset in force: the active one, or that of a retiring set.
    pub fn ruleset_in_force(&self, set: SetId) -> Option<&Arc<Ruleset>> {
        let active = self.active.get(&set).map(|active| &active.ruleset);
        active.or_else(|| self.retiring.get(&set).map(|retiring| &retiring.ruleset))
    }

    /// Ruleset of `set` with `hash` that has an index.
    pub fn find_by_hash_with_index(&self, set: SetId, hash: RulesetHash) -> Option<&Arc<Ruleset>> {
        let retired = || self.retired.iter().map(|retired| &retired.ruleset).filter(|ruleset| ruleset.set_id == set);
        let in_force = [
            self.active.get(&set).map(|active| &active.ruleset),
            self.retiring.get(&set).map(|retiring| &retiring.ruleset),
        ];
        let found = in_force.into_iter().flatten().chain(retired()).find(|ruleset| ruleset.hash == hash);
        found.or_else(|| self.copies.get(&(set, hash)))
    }

    /// Ruleset of `set` with `hash`, wherever it is kept.
    pub fn find_for_match(&self, set: SetId, hash: RulesetHash) -> Option<&Arc<Ruleset>> {
        self.find_by_hash_with_index(set, hash).or_else(|| self.copies_without_index.get(&(set, hash)))
    }

    /// All rulesets that have an index, each once.
    pub fn rulesets_to_index(&self) -> Vec<Arc<Ruleset>> {
        let active = self.active.values().map(|active| &active.ruleset);
        let retiring = self.retiring.values().map(|retiring| &retiring.ruleset);
        let retired = self.retired.iter().map(|retired| &retired.ruleset);
        let mut seen = BTreeSet::new();
        let all = active.chain(retiring).chain(retired).chain(self.copies.values());
        all.filter(|ruleset| seen.insert((ruleset.set_id, ruleset.hash))).cloned().collect()
    }

    /// Ends the grace period of a set. Its ruleset can be found by hash until `expires_at`.
    pub fn end_grace_period(&mut self, set: SetId, now: UnixMs, expires_at: UnixMs) {
        let Some(RetiringRuleset { ruleset, .. }) = self.retiring.remove(&set) else { return };
        self.retired.push(SupersededRuleset { ruleset, retired_at: now, expires_at });
        self.prune_superseded_rulesets(now);
    }

    /// Drops retired rulesets that have expired, that are in force again, or that are too many.
    pub fn prune_superseded_rulesets(&mut self, now: UnixMs) {
        let mut retired = std::mem::take(&mut self.retired);
        retired.retain(|previous| {
            let in_force = self.ruleset_in_force(previous.ruleset.set_id);
            previous.expires_at > now && in_force.is_none_or(|ruleset| ruleset.hash != previous.ruleset.hash)
        });
        let excess = retired.len().saturating_sub(SUPERSEDED_RULESETS_IN_CATALOG_MAX);
        retired.drain(..excess);
        self.retired = retired;
        self.forget_loads_of_unknown_rulesets();
    }

    /// Drops the loads of rulesets that are not kept any more.
    pub fn forget_loads_of_unknown_rulesets(&mut self) {
        let mut loads = std::mem::take(&mut self.loads);
        loads.retain(|(set, hash), _| self.find_for_match(*set, *hash).is_some());
        self.loads = loads;
    }

    /// When and by whom a ruleset was loaded; `None` if the store has its copy from a version that did not record it.
    pub fn load_of(&self, ruleset: &Ruleset) -> Option<&RulesetLoad> {
        self.loads.get(&(ruleset.set_id, ruleset.hash))
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

    /// Ruleset of `set` that is in force: the active one, or that of a retiring set.
    pub fn ruleset_in_force(&self, set: SetId) -> Option<Arc<Ruleset>> {
        self.state.load().ruleset_in_force(set).cloned()
    }

    /// Ruleset of `set` with `hash`: active, of a retiring set, retired, or a copy for matches that have not ended.
    pub fn find_by_hash_with_index(&self, set: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        self.state.load().find_by_hash_with_index(set, hash).cloned()
    }

    /// Ruleset of a match that was made under `hash`.
    pub fn look_up_match_ruleset(&self, set: SetId, hash: RulesetHash) -> MatchRulesetLookup {
        let state = self.state.load();
        if let Some(ruleset) = state.find_for_match(set, hash) {
            return MatchRulesetLookup::Known(Arc::clone(ruleset));
        }
        if !state.unavailable.contains(&(set, hash)) {
            return MatchRulesetLookup::NotLoaded;
        }
        let in_force = state.ruleset_in_force(set).cloned();
        in_force.map_or(MatchRulesetLookup::Unrecoverable, MatchRulesetLookup::Known)
    }

    /// Whether the store has a copy of a ruleset.
    pub fn is_durable(&self, set: SetId, hash: RulesetHash) -> bool {
        self.state.load().durable.contains(&(set, hash))
    }

    /// All rulesets that have an index, each once.
    pub fn rulesets_to_index(&self) -> Vec<Arc<Ruleset>> {
        self.state.load().rulesets_to_index()
    }

    /// Makes `rulesets` active at `now`, all at once; their sets must differ. Replaced and removed rulesets can be found
    /// by hash for `keep_retired_ms`. Clears earlier problems. For the start of a server.
    pub fn replace_all(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
        now: UnixMs,
        keep_retired_ms: u64,
    ) -> CatalogChanges {
        self.replace_all_with_removal_grace(rulesets, &RulesetLoad::new(now, LOADED_BY_START), keep_retired_ms, 0)
    }

    /// As `replace_all`, at the time of `load`, which is recorded for new and changed sets. Removed sets stay in force for
    /// `removal_grace_ms`.
    pub fn replace_all_with_removal_grace(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
        load: &RulesetLoad,
        keep_retired_ms: u64,
        removal_grace_ms: u64,
    ) -> CatalogChanges {
        let now = load.at;
        self.update_state(|state| {
            let active: BTreeMap<SetId, ActiveRuleset> =
                rulesets.into_iter().map(|(file, ruleset)| (ruleset.set_id, ActiveRuleset { file, ruleset })).collect();
            let before = std::mem::replace(&mut state.active, active);
            let mut changes = CatalogChanges::default();
            for (set, new) in &state.active {
                match before.get(set) {
                    None => changes.added.push(*set),
                    Some(previous) if previous.ruleset.hash != new.ruleset.hash => changes.changed.push(*set),
                    Some(_) => continue,
                }
                state.loads.insert((*set, new.ruleset.hash), load.clone());
            }
            changes.removed = before.keys().filter(|set| !state.active.contains_key(set)).copied().collect();
            let expires_at = now.plus_ms(keep_retired_ms);
            let retired_now = |ruleset| SupersededRuleset { ruleset, retired_at: now, expires_at };
            for (set, ActiveRuleset { file, ruleset }) in before {
                if changes.removed.contains(&set) && removal_grace_ms > 0 {
                    let ends_at = now.plus_ms(removal_grace_ms);
                    let retiring = RetiringRuleset { file, ruleset, removed_at: now, noticed_at: now, ends_at };
                    state.retiring.insert(set, retiring);
                } else if changes.removed.contains(&set) || changes.changed.contains(&set) {
                    state.retired.push(retired_now(ruleset));
                }
            }
            let returned: Vec<SetId> =
                state.retiring.keys().copied().filter(|set| state.active.contains_key(set)).collect();
            for set in returned {
                state.end_grace_period(set, now, expires_at);
            }
            state.prune_superseded_rulesets(now);
            state.rejected_diagnostics = Vec::new();
            changes
        })
    }

    /// Changes the state in one step.
    pub fn update_state<T>(&self, change: impl FnOnce(&mut CatalogState) -> T) -> T {
        let _guard = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = CatalogState::clone(&self.state.load());
        let result = change(&mut state);
        self.state.store(Arc::new(state));
        result
    }

    /// Records why a reload was rejected. The active rulesets do not change.
    pub fn record_rejected_reload(&self, diagnostics: Vec<FileDiagnostic>) {
        self.update_state(|state| state.rejected_diagnostics = diagnostics);
    }

    /// Removes retired rulesets that have expired at `now`.
    pub fn prune_superseded_rulesets(&self, now: UnixMs) {
        if self.state.load().retired.iter().any(|previous| previous.expires_at <= now) {
            self.update_state(|state| state.prune_superseded_rulesets(now));
        }
    }
}
