//! Ruleset changes at run time: indexes are built first, so that every cached ruleset has one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::load::RulesetLoad;
use crate::engine::adverts::advert_engine::AdvertEngine;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::rules::catalog::{CatalogChanges, CatalogState};

/// Activates and purges rulesets, together with their indexes.
#[derive(Debug)]
pub(crate) struct RulesetActivator {
    common: Arc<Common>,
    adverts: Arc<AdvertEngine>,
    /// Held during a ruleset change. Each change builds indexes for all cached rulesets, so changes must not
    /// overlap.
    change_lock: Mutex<()>,
}

impl RulesetActivator {
    /// Activator for the indexes of `adverts`.
    pub(crate) fn new(common: Arc<Common>, adverts: Arc<AdvertEngine>) -> Self {
        Self { common, adverts, change_lock: Mutex::default() }
    }

    /// Activates `rulesets` together, once every set has indexes for them. `load` is recorded for new and changed sets.
    /// Replaced rulesets stay cached for the retention time; those of removed sets stay in force for `removal_grace_ms`.
    pub(crate) async fn replace_rulesets(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
        load: &RulesetLoad,
        removal_grace_ms: u64,
    ) -> Result<CatalogChanges, EngineError> {
        let _lock = self.change_lock.lock().await;
        let mut indexed = self.common.rulesets.rulesets_to_index();
        for (_, ruleset) in &rulesets {
            if !indexed.iter().any(|known| (known.set_id, known.hash) == (ruleset.set_id, ruleset.hash)) {
                indexed.push(Arc::clone(ruleset));
            }
        }
        self.adverts.set_indexed_rulesets(indexed).await?;
        let changes = self.common.rulesets.replace_all_with_removal_grace(
            rulesets,
            load,
            self.common.settings.retired_ruleset_retention_ms,
            removal_grace_ms,
        );
        Ok(changes)
    }

    /// Changes the catalog. New rulesets get their indexes before the change, and others lose them after it.
    pub(crate) async fn change_catalog(&self, change: impl FnOnce(&mut CatalogState)) -> Result<(), EngineError> {
        let _lock = self.change_lock.lock().await;
        let before = self.common.rulesets.snapshot();
        let mut after = CatalogState::clone(&before);
        change(&mut after);
        let mut indexed = before.rulesets_to_index();
        let known = indexed.len();
        for ruleset in after.rulesets_to_index() {
            if !indexed.iter().any(|other| (other.set_id, other.hash) == (ruleset.set_id, ruleset.hash)) {
                indexed.push(ruleset);
            }
        }
        if indexed.len() > known {
            self.adverts.set_indexed_rulesets(indexed).await?;
        }
        // These fields also change without the lock; keep the latest.
        self.common.rulesets.update_state(|state| {
            after.durable.extend(state.durable.difference(&before.durable));
            after.rejected_diagnostics = std::mem::take(&mut state.rejected_diagnostics);
            after.retired_files = std::mem::take(&mut state.retired_files);
            *state = after;
        });
        let cached = self.common.rulesets.rulesets_to_index();
        if cached.len() < self.adverts.state.advert_sets.indexed_rulesets().len() {
            self.adverts.set_indexed_rulesets(cached).await?;
        }
        Ok(())
    }
}
