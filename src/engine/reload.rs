//! Gives the running engine new rulesets: their views first, so that nobody ever searches by a ruleset without one.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::engine::fault::Fault;
use crate::engine::job::Job;
use crate::rules::catalog::Changes;

impl Engine {
    /// Puts `rulesets` in force, all at once, when every set has views for them. What they replace stays resolvable for
    /// as long as the settings say.
    pub async fn adopt(&self, rulesets: Vec<(PathBuf, Arc<Ruleset>)>) -> Result<Changes, Fault> {
        let _turn = self.rules_turn.lock().await;
        let mut living = self.core.catalog.living();
        for (_, ruleset) in &rulesets {
            if !living.iter().any(|known| (known.set_id, known.hash) == (ruleset.set_id, ruleset.hash)) {
                living.push(Arc::clone(ruleset));
            }
        }
        self.set_living(living).await?;
        let changes = self.core.catalog.adopt(rulesets, self.core.clock.now(), self.core.settings.retired_kept_ms);
        Ok(changes)
    }

    /// Forgets retired rulesets whose time has come, and their views.
    pub async fn forget_rulesets(&self) -> Result<(), Fault> {
        let _turn = self.rules_turn.lock().await;
        self.core.catalog.forget(self.core.clock.now());
        let living = self.core.catalog.living();
        // Adopting forgets too, and leaves the views to be dropped here.
        if living.len() < self.core.directory.living().len() { self.set_living(living).await } else { Ok(()) }
    }

    async fn set_living(&self, living: Vec<Arc<Ruleset>>) -> Result<(), Fault> {
        let (done, built) = oneshot::channel();
        self.submit(Job::Rules(living, done))?;
        built.await.map_err(|_| Fault::Internal)
    }
}
