//! Gives the running engine new rulesets: their views first, so that nobody ever searches by a ruleset without one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::error::EngineError;
use crate::rules::catalog::CatalogChanges;

impl Engine {
    /// Puts `rulesets` in force, all at once, when every set has views for them. What they replace stays resolvable for
    /// as long as the settings say.
    pub async fn replace_rulesets(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    ) -> Result<CatalogChanges, EngineError> {
        let _turn = self.ruleset_change_lock.lock().await;
        let mut living = self.core.rulesets.active_and_retired();
        for (_, ruleset) in &rulesets {
            if !living.iter().any(|known| (known.set_id, known.hash) == (ruleset.set_id, ruleset.hash)) {
                living.push(Arc::clone(ruleset));
            }
        }
        self.set_indexed_rulesets(living).await?;
        let changes = self.core.rulesets.replace_all(
            rulesets,
            self.core.clock.now(),
            self.core.settings.retired_ruleset_retention_ms,
        );
        Ok(changes)
    }

    /// Forgets retired rulesets whose time has come, and their views.
    pub async fn purge_retired_rulesets(&self) -> Result<(), EngineError> {
        let _turn = self.ruleset_change_lock.lock().await;
        self.core.rulesets.remove_expired(self.core.clock.now());
        let living = self.core.rulesets.active_and_retired();
        // Adopting forgets too, and leaves the views to be dropped here.
        if living.len() < self.core.advert_sets.indexed_rulesets().len() {
            self.set_indexed_rulesets(living).await
        } else {
            Ok(())
        }
    }

    async fn set_indexed_rulesets(&self, living: Vec<Arc<Ruleset>>) -> Result<(), EngineError> {
        let (done, built) = oneshot::channel();
        self.send_to_advert_writer(AdvertWriterCommand::SetRulesets(living, done))?;
        built.await.map_err(|_| EngineError::Internal)
    }
}
