//! Ruleset reload and administration of a running server: validates, swaps all rulesets at once, or rejects them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::operator::{ReloadReport, RulesetAdmin, RulesetListing, RulesetProblem};
use crate::config::RulesetSource;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::rules;
use crate::rules::bundled;
use crate::rules::catalog::{CatalogState, RulesetCatalog};
use crate::rules::load;
use crate::telemetry::label::LoadOutcome;
use crate::telemetry::metric::Metrics;

/// Reloads rulesets from their source into the engine.
#[derive(Debug)]
pub struct RulesetReloader {
    source: RulesetSource,
    engine: Arc<Engine>,
    catalog: Arc<RulesetCatalog>,
    metrics: Arc<Metrics>,
    /// Held from reading the files to swapping the rulesets, so that the latest read wins.
    reload_lock: tokio::sync::Mutex<()>,
}

/// Rulesets with their files, or all problems.
pub(super) type LoadResult = Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<rules::RenderedDiagnostic>>;

/// Reads the rulesets of `source`. Blocks on file reads.
pub(super) fn load_rulesets(source: &RulesetSource) -> LoadResult {
    match source {
        RulesetSource::Directory(directory) => load::load_directory(directory),
        RulesetSource::Bundled => bundled::load_bundled(),
    }
}

impl RulesetReloader {
    /// Creates the reloader of a running engine, whose first load has succeeded.
    pub fn new(
        source: RulesetSource,
        engine: Arc<Engine>,
        catalog: Arc<RulesetCatalog>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let reloader = Self { source, engine, catalog, metrics, reload_lock: tokio::sync::Mutex::default() };
        reloader.record_load(LoadOutcome::Loaded);
        reloader
    }

    fn record_load(&self, outcome: LoadOutcome) {
        let state = self.catalog.snapshot();
        self.metrics.ruleset_loads.get_or_create(&outcome).inc();
        self.metrics.rulesets.set(i64::try_from(state.active.len()).unwrap_or(i64::MAX));
        let mut files: Vec<&str> = state.rejected_diagnostics.iter().map(|problem| problem.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        self.metrics.rulesets_rejected.set(i64::try_from(files.len()).unwrap_or(i64::MAX));
    }

    fn reject(&self, problems: Vec<rules::RenderedDiagnostic>) -> ReloadReport {
        let reported = problems.iter().map(ruleset_problem).collect();
        // Recorded before it is logged, so that a reader of the log finds it in ListRulesets.
        self.catalog.record_rejected_reload(problems.clone());
        self.record_load(LoadOutcome::Rejected);
        for problem in &problems {
            tracing::warn!(%problem, "ruleset reload rejected; the current rulesets stay in use");
        }
        ReloadReport { changes: Vec::new(), problems: reported }
    }
}

#[tonic::async_trait]
impl RulesetAdmin for RulesetReloader {
    fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<RulesetProblem>> {
        rules::parse_ruleset(file_name, xml)
            .map(|ruleset| ruleset.hash)
            .map_err(|problems| problems.iter().map(ruleset_problem).collect())
    }

    async fn reload(&self) -> ReloadReport {
        let _guard = self.reload_lock.lock().await;
        let source = self.source.clone();
        let Ok(loaded) = tokio::task::spawn_blocking(move || load_rulesets(&source)).await else {
            return ReloadReport {
                problems: vec![problem_without_file("ruleset reload failed; see the server's log")],
                ..Default::default()
            };
        };
        let rulesets = match loaded {
            Ok(rulesets) => rulesets,
            Err(problems) => return self.reject(problems),
        };
        let before = self.catalog.snapshot();
        if self.engine.replace_rulesets(rulesets).await.is_err() {
            return ReloadReport {
                problems: vec![problem_without_file("the server is shutting down; reload on another server")],
                ..Default::default()
            };
        }
        self.record_load(LoadOutcome::Loaded);
        let after = self.catalog.snapshot();
        let changes = ruleset_changes(&before, &after);
        for (set_id, previous, current) in &changes {
            tracing::info!(
                %set_id,
                previous = previous.map(|hash| hash.0),
                current = current.map(|hash| hash.0),
                "ruleset changed"
            );
        }
        ReloadReport { changes, problems: Vec::new() }
    }

    fn list(&self) -> Vec<RulesetListing> {
        let state = self.catalog.snapshot();
        let loaded_at = state.loaded_at.unwrap_or_default();
        let mut listings = Vec::new();
        let retired_sets = state.retired.iter().map(|retired| retired.ruleset.set_id);
        let sets: BTreeSet<SetId> = state.active.keys().copied().chain(retired_sets).collect();
        for set_id in sets {
            let current = state.active.get(&set_id).map(|current| {
                let file_name = file_name(&current.file);
                let problems = state
                    .rejected_diagnostics
                    .iter()
                    .filter(|problem| self::file_name(Path::new(&problem.file)) == file_name);
                RulesetListing {
                    name: current.ruleset.name.to_string(),
                    set_id,
                    hash: current.ruleset.hash,
                    problems: problems.map(ruleset_problem).collect(),
                    file_name,
                    is_current: true,
                    loaded_at,
                }
            });
            listings.extend(current);
            let retired = state.retired.iter().rev().filter(|retired| retired.ruleset.set_id == set_id);
            listings.extend(retired.map(|retired| RulesetListing {
                name: retired.ruleset.name.to_string(),
                set_id,
                hash: retired.ruleset.hash,
                file_name: String::new(),
                is_current: false,
                loaded_at: retired.loaded_at,
                problems: Vec::new(),
            }));
        }
        listings
    }
}

type RulesetChange = (SetId, Option<RulesetHash>, Option<RulesetHash>);

/// Sets whose ruleset hash differs between two states.
fn ruleset_changes(before: &CatalogState, after: &CatalogState) -> Vec<RulesetChange> {
    let hash_in = |state: &CatalogState, set_id| state.active.get(set_id).map(|current| current.ruleset.hash);
    let mut sets: Vec<_> = before.active.keys().chain(after.active.keys()).collect();
    sets.sort_unstable();
    sets.dedup();
    let changed = sets.into_iter().map(|set_id| (*set_id, hash_in(before, set_id), hash_in(after, set_id)));
    changed.filter(|(_, previous, current)| previous != current).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn ruleset_problem(problem: &rules::RenderedDiagnostic) -> RulesetProblem {
    RulesetProblem {
        file_name: problem.file.clone(),
        line: problem.line,
        column: problem.column,
        message: problem.message(),
    }
}

fn problem_without_file(message: &str) -> RulesetProblem {
    RulesetProblem { message: message.into(), ..Default::default() }
}
