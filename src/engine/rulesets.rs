//! Ruleset reload and administration of a running server: validates, swaps all rulesets at once, or rejects them.

pub(crate) mod activator;
mod report;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::common::Common;
use crate::engine::rulesets::activator::RulesetActivator;
use crate::rules;
use crate::rules::bundled;
use crate::rules::catalog::CatalogState;
use crate::rules::load;
use crate::telemetry::label::LoadOutcome;

pub use self::report::{ReloadReport, RulesetListing, RulesetProblem};

/// Reloads rulesets from their source into the engine.
#[derive(Debug)]
pub struct RulesetReloader {
    /// Directory of the ruleset files; `None` for the bundled rulesets.
    directory: Option<PathBuf>,
    common: Arc<Common>,
    activator: Arc<RulesetActivator>,
    /// Held from reading the files to swapping the rulesets, so that the latest read wins.
    reload_lock: tokio::sync::Mutex<()>,
}

/// Rulesets with their files, or all problems.
pub type LoadResult = Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<rules::RenderedDiagnostic>>;

/// Reads the rulesets of a directory; the bundled ones if there is none. Blocks on file reads.
pub fn load_rulesets(directory: Option<&Path>) -> LoadResult {
    match directory {
        Some(directory) => load::load_directory(directory),
        None => bundled::load_bundled(),
    }
}

impl RulesetReloader {
    /// Creates the reloader of a running engine, whose first load has succeeded.
    pub(crate) fn new(directory: Option<PathBuf>, common: Arc<Common>, activator: Arc<RulesetActivator>) -> Self {
        let reloader = Self { directory, common, activator, reload_lock: tokio::sync::Mutex::default() };
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

    fn reject(&self, problems: Vec<rules::RenderedDiagnostic>) -> ReloadReport {
        let reported = problems.iter().map(ruleset_problem).collect();
        // Recorded before it is logged, so that a reader of the log finds it in ListRulesets.
        self.common.rulesets.record_rejected_reload(problems.clone());
        self.record_load(LoadOutcome::Rejected);
        for problem in &problems {
            tracing::warn!(%problem, "ruleset reload rejected; the current rulesets stay in use");
        }
        ReloadReport { changes: Vec::new(), problems: reported }
    }

    /// Validates a file's text without loading it. Returns its hash, or all problems.
    pub fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<RulesetProblem>> {
        rules::parse_ruleset(file_name, xml)
            .map(|ruleset| ruleset.hash)
            .map_err(|problems| problems.iter().map(ruleset_problem).collect())
    }

    /// Reloads the rulesets from their source: all of them, or none if there is a problem.
    pub async fn reload(&self) -> ReloadReport {
        let _guard = self.reload_lock.lock().await;
        let directory = self.directory.clone();
        let Ok(loaded) = tokio::task::spawn_blocking(move || load_rulesets(directory.as_deref())).await else {
            return ReloadReport {
                problems: vec![problem_without_file("ruleset reload failed; see the server's log")],
                ..Default::default()
            };
        };
        let rulesets = match loaded {
            Ok(rulesets) => rulesets,
            Err(problems) => return self.reject(problems),
        };
        let before = self.common.rulesets.snapshot();
        if self.activator.replace_rulesets(rulesets).await.is_err() {
            return ReloadReport {
                problems: vec![problem_without_file("the server is shutting down; reload on another server")],
                ..Default::default()
            };
        }
        self.record_load(LoadOutcome::Loaded);
        let after = self.common.rulesets.snapshot();
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

    /// Lists rulesets by set: the current one first, then retired ones, latest first.
    pub fn list(&self) -> Vec<RulesetListing> {
        let state = self.common.rulesets.snapshot();
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
