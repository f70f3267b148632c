//! Ruleset reload and administration of a running server: validates, swaps all rulesets at once, or rejects them.

pub(crate) mod activator;
mod listing;
mod rating_changes;
mod report;
pub(crate) mod store_sync;
mod stored_copies;
mod swap;
mod swap_command;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::load::RulesetLoad;
use crate::engine::common::Common;
use crate::engine::error::{EngineError, SwapObstacle};
use crate::engine::ratings::first_scales::{record_first_scales, with_rating_defaults_of_sets};
use crate::engine::rulesets::activator::RulesetActivator;
use crate::engine::rulesets::listing::list_rulesets;
use crate::engine::rulesets::rating_changes::describe_rating_effect;
use crate::engine::rulesets::report::{file_name, ruleset_problem};
use crate::engine::rulesets::store_sync::{RulesetStoreSync, removal_grace_ms};
use crate::rules;
use crate::rules::bundled;
use crate::rules::catalog::CatalogState;
use crate::rules::load;
use crate::rules::load::RulesetsAndRetirementMarkers;
use crate::rules::parse::RulesetOrRetirementMarker;
use crate::telemetry::label::LoadOutcome;

pub use self::report::{
    CheckRulesetAnswer, RatingListing, ReloadReport, RetiredSetCounts, RulesetListing, RulesetProblem,
};
pub use self::swap_command::{RulesetReplacement, RulesetSwap, SwapReport};

/// Reloads rulesets from their source into the engine.
#[derive(Debug)]
pub struct RulesetReloader {
    /// Directory of the ruleset files; `None` for the bundled rulesets.
    directory: Option<PathBuf>,
    common: Arc<Common>,
    activator: Arc<RulesetActivator>,
    store_sync: Arc<RulesetStoreSync>,
    /// Held from reading the files to swapping the rulesets, so that the latest read wins.
    reload_lock: tokio::sync::Mutex<()>,
    /// Reason that no file of the directory can be replaced, as of the last load.
    directory_obstacle: Mutex<Option<SwapObstacle>>,
}

/// Rulesets and retired sets with their files, or all problems.
pub type LoadResult = Result<RulesetsAndRetirementMarkers, Vec<rules::FileDiagnostic>>;

/// Reads the rulesets of a directory; the bundled ones if there is none. Blocks on file reads.
pub fn load_rulesets(directory: Option<&Path>) -> LoadResult {
    match directory {
        Some(directory) => load::load_rulesets_and_retirement_markers(directory),
        None => bundled::load_bundled()
            .map(|rulesets| RulesetsAndRetirementMarkers { rulesets, ..RulesetsAndRetirementMarkers::default() }),
    }
}

impl RulesetReloader {
    /// Creates the reloader of a running engine, whose first load has succeeded.
    pub(crate) fn new(
        directory: Option<PathBuf>,
        common: Arc<Common>,
        activator: Arc<RulesetActivator>,
        store_sync: Arc<RulesetStoreSync>,
    ) -> Self {
        let directory_obstacle = Mutex::new(Self::find_directory_obstacle(directory.as_deref()));
        let reload_lock = tokio::sync::Mutex::default();
        let reloader = Self { directory, common, activator, store_sync, reload_lock, directory_obstacle };
        reloader.record_load(LoadOutcome::Loaded);
        reloader
    }

    fn record_load(&self, outcome: LoadOutcome) {
        let state = self.common.rulesets.snapshot();
        self.common.metrics.ruleset_loads.get_or_create(&outcome).inc();
        self.common.metrics.rulesets.set(i64::try_from(state.active.len()).unwrap_or(i64::MAX));
        let mut files: Vec<&str> = state.rejected_diagnostics.iter().map(|problem| problem.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        self.common.metrics.rulesets_rejected.set(i64::try_from(files.len()).unwrap_or(i64::MAX));
    }

    fn reject(&self, problems: Vec<rules::FileDiagnostic>) -> ReloadReport {
        let reported = problems.iter().map(ruleset_problem).collect();
        // Recorded before it is logged, so that a reader of the log finds it in ListRulesets.
        self.common.rulesets.record_rejected_reload(problems.clone());
        self.record_load(LoadOutcome::Rejected);
        for problem in &problems {
            tracing::warn!(%problem, "ruleset reload rejected; the current rulesets stay in use");
        }
        ReloadReport { problems: reported, ..ReloadReport::default() }
    }

    /// Parses a file's text without loading it, with the default constants of its set. `None` for a file that retires its set.
    pub fn parse(&self, file_name: &str, xml: &str) -> Result<Option<Arc<Ruleset>>, Vec<RulesetProblem>> {
        let file = rules::parse::parse_ruleset_or_retirement_marker(file_name, xml)
            .map_err(|problems| problems.iter().map(ruleset_problem).collect::<Vec<RulesetProblem>>())?;
        let RulesetOrRetirementMarker::Ruleset(ruleset) = file else { return Ok(None) };
        Ok(Some(self.with_rating_defaults_of_set(*ruleset)))
    }

    /// A cached ruleset: the one in force, or the one with `hash`.
    pub fn find(&self, set_id: SetId, hash: Option<RulesetHash>) -> Option<Arc<Ruleset>> {
        let catalog = self.common.rulesets.snapshot();
        match hash {
            None => catalog.ruleset_in_force(set_id).cloned(),
            Some(hash) => catalog.find_for_match(set_id, hash).cloned(),
        }
    }

    /// Validates a file's text without loading it. Returns its hash and the effect on ratings that loading it would
    /// have, or all problems.
    pub fn check(&self, file_name: &str, xml: &str) -> Result<CheckRulesetAnswer, Vec<RulesetProblem>> {
        let Some(ruleset) = self.parse(file_name, xml)? else { return Ok(CheckRulesetAnswer::default()) };
        let current = self.common.rulesets.active_ruleset(ruleset.set_id);
        let rating_change = describe_rating_effect(&self.common.ratings.lock(), current.as_deref(), &ruleset);
        Ok(CheckRulesetAnswer { hash: Some(ruleset.hash), rating_change: rating_change.unwrap_or_default() })
    }

    /// Ruleset with the default constants that its set uses, beside the other active rulesets.
    fn with_rating_defaults_of_set(&self, ruleset: Ruleset) -> Arc<Ruleset> {
        let set_id = ruleset.set_id;
        let active = self.common.rulesets.snapshot().active.clone();
        let others = active.into_iter().filter(|(id, _)| *id != set_id).map(|(id, active)| (id, active.ruleset));
        let mut rulesets: Vec<(SetId, Arc<Ruleset>)> = others.collect();
        let stated = Arc::new(ruleset);
        rulesets.push((set_id, Arc::clone(&stated)));
        let in_use = with_rating_defaults_of_sets(&self.common.ratings.lock(), &rulesets);
        in_use.into_iter().next_back().map_or(stated, |(_, ruleset)| ruleset)
    }

    /// Records the first scales of new sets, lets each ruleset use its set's default constants, and describes the effects of
    /// the rulesets on ratings, by set. Problems if the store cannot be written.
    async fn prepare_rulesets(
        &self,
        rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    ) -> Result<PreparedRulesets, Vec<rules::FileDiagnostic>> {
        let all = rulesets.iter().map(|(_, ruleset)| ruleset);
        if let Err(error) = record_first_scales(&*self.common.store, &self.common.ratings, all).await {
            let directory = self.directory.as_deref().unwrap_or(Path::new("rulesets")).to_string_lossy();
            let problem = format!("the store cannot record the rating scales: {error}");
            return Err(vec![rules::FileDiagnostic::for_file(
                &directory,
                problem,
                "reload when the store is available",
            )]);
        }
        let ratings = self.common.ratings.lock();
        let rulesets = with_rating_defaults_of_sets(&ratings, &rulesets);
        let change = |(_, ruleset): &(PathBuf, Arc<Ruleset>)| {
            let current = self.common.rulesets.active_ruleset(ruleset.set_id);
            Some((ruleset.set_id, describe_rating_effect(&ratings, current.as_deref(), ruleset)?))
        };
        let changes = rulesets.iter().filter_map(change).collect();
        Ok((rulesets, changes))
    }

    /// Reloads the rulesets from their source: all of them, or none if there is a problem. `by` says who loads them, as
    /// `RulesetLoad::by` does.
    pub async fn reload(&self, by: &str) -> ReloadReport {
        let _guard = self.reload_lock.lock().await;
        let directory = self.directory.clone();
        let load = move || {
            let directory = directory.as_deref();
            load_rulesets(directory).map(|loaded| (loaded, Self::find_directory_obstacle(directory)))
        };
        let Ok(loaded) = tokio::task::spawn_blocking(load).await else {
            return ReloadReport {
                problems: vec![problem_without_file("ruleset reload failed; see the server's log")],
                ..Default::default()
            };
        };
        let (RulesetsAndRetirementMarkers { rulesets, retired_files }, obstacle) = match loaded {
            Ok(loaded) => loaded,
            Err(problems) => return self.reject(problems),
        };
        *self.directory_obstacle.lock() = obstacle;
        let prepared = match self.prepare_rulesets(rulesets).await {
            Ok(prepared) => prepared,
            Err(problems) => return self.reject(problems),
        };
        self.activate(prepared, retired_files, by).await
    }

    /// Makes prepared rulesets active together.
    async fn activate(
        &self,
        (rulesets, rating_changes): PreparedRulesets,
        retired_files: BTreeMap<SetId, PathBuf>,
        by: &str,
    ) -> ReloadReport {
        for (set_id, rating_change) in &rating_changes {
            tracing::info!(%set_id, "ruleset reload: {rating_change}");
        }
        let before = self.common.rulesets.snapshot();
        let load = RulesetLoad::new(self.common.clock.now(), by);
        self.store_sync.write_copies(&rulesets, &load).await;
        if self.activator.replace_rulesets(rulesets, &load, removal_grace_ms(&self.common)).await.is_err() {
            return ReloadReport {
                problems: vec![problem_without_file("the server is shutting down; reload on another server")],
                ..Default::default()
            };
        }
        self.log_retired_files_with_waiting_tickets(&retired_files, &before);
        self.common.rulesets.update_state(|state| state.retired_files = retired_files);
        self.store_sync.sync_now().await;
        self.record_load(LoadOutcome::Loaded);
        let after = self.common.rulesets.snapshot();
        self.log_removals(&before, &after);
        let changes = ruleset_changes(&before, &after);
        for (set_id, previous, current) in &changes {
            tracing::info!(
                %set_id,
                previous = previous.map(|hash| hash.0),
                current = current.map(|hash| hash.0),
                "ruleset changed"
            );
        }
        ReloadReport { changes, rating_changes, problems: Vec::new() }
    }

    /// Logs the sets whose file was removed or has returned.
    fn log_removals(&self, before: &CatalogState, after: &CatalogState) {
        let usage = self.store_sync.usage();
        let now = self.common.clock.now();
        for (set_id, retiring) in after.retiring.iter().filter(|(set_id, _)| !before.retiring.contains_key(set_id)) {
            let (live_tickets, live_matches) =
                (usage.waiting_ticket_count_of_set(*set_id), usage.live_match_count_of_set(*set_id));
            let (file, ends_in_ms) = (file_name(&retiring.file), retiring.ends_at.ms_since(now));
            tracing::warn!(
                %set_id, file, ends_in_ms, live_tickets, live_matches,
                "ruleset file missing, its ruleset is kept in force for waiting tickets"
            );
        }
        for set_id in before.retiring.keys().filter(|set_id| after.active.contains_key(set_id)) {
            tracing::info!(%set_id, "ruleset file returned, the set is active again");
        }
    }

    /// Logs the files that are marked as retired while tickets of their sets wait.
    fn log_retired_files_with_waiting_tickets(&self, files: &BTreeMap<SetId, PathBuf>, before: &CatalogState) {
        let usage = self.store_sync.usage();
        for (set_id, file) in files.iter().filter(|(set_id, _)| !before.retired_files.contains_key(set_id)) {
            let (live_tickets, live_matches) =
                (usage.waiting_ticket_count_of_set(*set_id), usage.live_match_count_of_set(*set_id));
            if live_tickets > 0 {
                let file = file_name(file);
                tracing::warn!(
                    %set_id, file, live_tickets, live_matches,
                    "set not retired yet, its tickets wait; the ruleset stays in force for them"
                );
            }
        }
    }

    /// Ends the grace period of a set whose file was removed. With `force` its waiting tickets end too.
    ///
    /// Fails if the set is active on a server, or if tickets wait and `force` is not set.
    pub async fn retire_set(&self, set_id: SetId, force: bool) -> Result<RetiredSetCounts, EngineError> {
        let _guard = self.reload_lock.lock().await;
        self.store_sync.retire_set(set_id, force).await
    }

    /// Lists rulesets by set: the one in force first, then former versions, the one that was loaded last first.
    pub fn list(&self) -> Vec<RulesetListing> {
        let ratings_of = |ruleset: &Ruleset| self.rating_listing(ruleset);
        list_rulesets(&self.common.rulesets.snapshot(), &self.store_sync.usage(), &ratings_of, self.common.clock.now())
    }

    /// Ratings that a ruleset uses, or would use again; `None` without a rating system.
    fn rating_listing(&self, ruleset: &Ruleset) -> Option<RatingListing> {
        let ratings = self.common.ratings.lock();
        let rating = ratings.keyed_spec_of_ruleset(ruleset)?;
        Some(RatingListing {
            scale: rating.spec.scale().to_string(),
            pool: ruleset.rating_pool.as_deref().unwrap_or_default().to_owned(),
            rating_count: ratings.rating_count(rating.key) as u64,
        })
    }
}

/// Rulesets with their files, and effects on ratings, by set.
type PreparedRulesets = (Vec<(PathBuf, Arc<Ruleset>)>, Vec<(SetId, String)>);

type RulesetHashChange = (SetId, Option<RulesetHash>, Option<RulesetHash>);

/// Sets whose ruleset hash differs between two states.
fn ruleset_changes(before: &CatalogState, after: &CatalogState) -> Vec<RulesetHashChange> {
    let hash_in = |state: &CatalogState, set_id| state.active.get(set_id).map(|current| current.ruleset.hash);
    let mut sets: Vec<_> = before.active.keys().chain(after.active.keys()).collect();
    sets.sort_unstable();
    sets.dedup();
    let changed = sets.into_iter().map(|set_id| (*set_id, hash_in(before, set_id), hash_in(after, set_id)));
    changed.filter(|(_, previous, current)| previous != current).collect()
}

fn problem_without_file(message: &str) -> RulesetProblem {
    RulesetProblem { message: message.into(), ..Default::default() }
}
