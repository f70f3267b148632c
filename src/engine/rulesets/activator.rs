//! Ruleset changes at run time: indexes are built first, so that every cached ruleset has one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Mutex;

use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::advert_engine::AdvertEngine;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::rules::catalog::CatalogChanges;

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

    /// Activates `rulesets` together, once every set has indexes for them. Replaced rulesets stay cached for the
    /// retention time.
    pub(crate) async fn replace_rulesets(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    ) -> Result<CatalogChanges, EngineError> {
        let _lock = self.change_lock.lock().await;
        let mut indexed = self.common.rulesets.active_and_retired();
        for (_, ruleset) in &rulesets {
            if !indexed.iter().any(|known| (known.set_id, known.hash) == (ruleset.set_id, ruleset.hash)) {
                indexed.push(Arc::clone(ruleset));
            }
        }
        self.adverts.set_indexed_rulesets(indexed).await?;
        let changes = self.common.rulesets.replace_all(
            rulesets,
            self.common.clock.now(),
            self.common.settings.retired_ruleset_retention_ms,
        );
        Ok(changes)
    }

    /// Purges retired rulesets past their retention, and their indexes.
    pub(crate) async fn purge_retired_rulesets(&self) -> Result<(), EngineError> {
        let _lock = self.change_lock.lock().await;
        self.common.rulesets.remove_expired(self.common.clock.now());
        let cached = self.common.rulesets.active_and_retired();
        // `replace_all` also purges rulesets, and leaves their indexes to be dropped here.
        if cached.len() < self.adverts.state.advert_sets.indexed_rulesets().len() {
            self.adverts.set_indexed_rulesets(cached).await
        } else {
            Ok(())
        }
    }
}
