//! Ruleset changes at run time: indexes are built first, so that every cached ruleset has one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::error::EngineError;
use crate::rules::catalog::CatalogChanges;

impl Engine {
    /// Activates `rulesets` together, once every set has indexes for them. Replaced rulesets stay cached for the
    /// retention time.
    pub async fn replace_rulesets(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    ) -> Result<CatalogChanges, EngineError> {
        let _lock = self.ruleset_change_lock.lock().await;
        let mut indexed = self.core.rulesets.active_and_retired();
        for (_, ruleset) in &rulesets {
            if !indexed.iter().any(|known| (known.set_id, known.hash) == (ruleset.set_id, ruleset.hash)) {
                indexed.push(Arc::clone(ruleset));
            }
        }
        self.set_indexed_rulesets(indexed).await?;
        let changes = self.core.rulesets.replace_all(
            rulesets,
            self.core.clock.now(),
            self.core.settings.retired_ruleset_retention_ms,
        );
        Ok(changes)
    }

    /// Purges retired rulesets past their retention, and their indexes.
    pub async fn purge_retired_rulesets(&self) -> Result<(), EngineError> {
        let _lock = self.ruleset_change_lock.lock().await;
        self.core.rulesets.remove_expired(self.core.clock.now());
        let cached = self.core.rulesets.active_and_retired();
        // `replace_all` also purges rulesets, and leaves their indexes to be dropped here.
        if cached.len() < self.core.advert_sets.indexed_rulesets().len() {
            self.set_indexed_rulesets(cached).await
        } else {
            Ok(())
        }
    }

    async fn set_indexed_rulesets(&self, rulesets: Vec<Arc<Ruleset>>) -> Result<(), EngineError> {
        let (built, indexes_built) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::SetRulesets(rulesets, built))?;
        indexes_built.await.map_err(|_| EngineError::Internal)
    }
}
