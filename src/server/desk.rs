//! The rulesets folder of a running server: checked, loaded whole, adopted or refused, listed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::operator::{ListedRuleset, Problem, Reloaded, RulesetsDesk};
use crate::config::RulesetSource;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::engine::Engine;
use crate::rules;
use crate::rules::bundled;
use crate::rules::catalog::{Catalog, State};
use crate::rules::load;
use crate::telemetry::label::Load;
use crate::telemetry::metric::Metrics;

/// Where the rulesets come from and whom they are for.
#[derive(Debug)]
pub struct Desk {
    source: RulesetSource,
    engine: Arc<Engine>,
    catalog: Arc<Catalog>,
    metrics: Arc<Metrics>,
    /// Held from reading the files to adopting them, so that what was read last is what stays in force.
    turn: tokio::sync::Mutex<()>,
}

/// Rulesets with the files that they came from, or everything that is wrong with them.
pub(super) type Loaded = Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<rules::Problem>>;

/// Reads the rulesets of `source`. Blocks.
pub(super) fn read(source: &RulesetSource) -> Loaded {
    match source {
        RulesetSource::Directory(directory) => load::load(directory),
        RulesetSource::Bundled => bundled::load(),
    }
}

impl Desk {
    /// A desk for a running engine.
    pub fn new(source: RulesetSource, engine: Arc<Engine>, catalog: Arc<Catalog>, metrics: Arc<Metrics>) -> Self {
        let desk = Self { source, engine, catalog, metrics, turn: tokio::sync::Mutex::default() };
        desk.count(Load::Adopted);
        desk
    }

    fn count(&self, load: Load) {
        let state = self.catalog.state();
        self.metrics.ruleset_loads.get_or_create(&load).inc();
        self.metrics.rulesets.set(i64::try_from(state.current.len()).unwrap_or(i64::MAX));
        let mut files: Vec<&str> = state.problems.iter().map(|problem| problem.file.as_str()).collect();
        files.sort_unstable();
        files.dedup();
        self.metrics.rulesets_rejected.set(i64::try_from(files.len()).unwrap_or(i64::MAX));
    }

    fn refuse(&self, problems: Vec<rules::Problem>) -> Reloaded {
        let told = problems.iter().map(told).collect();
        // Listed before it is logged: whoever reads the log and then asks gets the same answer.
        self.catalog.reject(problems.clone());
        self.count(Load::Rejected);
        for problem in &problems {
            tracing::warn!(%problem, "ruleset refused; the old ones stay in force");
        }
        Reloaded { changes: Vec::new(), problems: told }
    }
}

#[tonic::async_trait]
impl RulesetsDesk for Desk {
    fn check(&self, file_name: &str, xml: &str) -> Result<RulesetHash, Vec<Problem>> {
        rules::parse(file_name, xml).map(|ruleset| ruleset.hash).map_err(|problems| problems.iter().map(told).collect())
    }

    async fn reload(&self) -> Reloaded {
        let _turn = self.turn.lock().await;
        let source = self.source.clone();
        let Ok(loaded) = tokio::task::spawn_blocking(move || read(&source)).await else {
            return Reloaded {
                problems: vec![broke("reading the rulesets failed; see the log")],
                ..Default::default()
            };
        };
        let rulesets = match loaded {
            Ok(rulesets) => rulesets,
            Err(problems) => return self.refuse(problems),
        };
        let before = self.catalog.state();
        if self.engine.adopt(rulesets).await.is_err() {
            return Reloaded { problems: vec![broke("the server is going away")], ..Default::default() };
        }
        self.count(Load::Adopted);
        let after = self.catalog.state();
        let changes = changes(&before, &after);
        for (set_id, old, new) in &changes {
            tracing::info!(%set_id, old = old.map(|it| it.0), new = new.map(|it| it.0), "ruleset in force");
        }
        Reloaded { changes, problems: Vec::new() }
    }

    fn list(&self) -> Vec<ListedRuleset> {
        let state = self.catalog.state();
        let loaded = state.loaded_at.unwrap_or_default();
        let mut listed = Vec::new();
        let retired_sets = state.retired.iter().map(|retired| retired.ruleset.set_id);
        let sets: BTreeSet<SetId> = state.current.keys().copied().chain(retired_sets).collect();
        for set_id in sets {
            let current = state.current.get(&set_id).map(|current| {
                let file_name = name_of(&current.file);
                let problems = state.problems.iter().filter(|problem| name_of(Path::new(&problem.file)) == file_name);
                ListedRuleset {
                    name: current.ruleset.name.to_string(),
                    set_id,
                    hash: current.ruleset.hash,
                    problems: problems.map(told).collect(),
                    file_name,
                    is_current: true,
                    loaded,
                }
            });
            listed.extend(current);
            let of_set = state.retired.iter().rev().filter(|retired| retired.ruleset.set_id == set_id);
            listed.extend(of_set.map(|retired| ListedRuleset {
                name: retired.ruleset.name.to_string(),
                set_id,
                hash: retired.ruleset.hash,
                file_name: String::new(),
                is_current: false,
                loaded: retired.loaded_at,
                problems: Vec::new(),
            }));
        }
        listed
    }
}

type Change = (SetId, Option<RulesetHash>, Option<RulesetHash>);

/// Sets whose ruleset means something else than before.
fn changes(before: &State, after: &State) -> Vec<Change> {
    let hash_in = |state: &State, set_id| state.current.get(set_id).map(|current| current.ruleset.hash);
    let mut sets: Vec<_> = before.current.keys().chain(after.current.keys()).collect();
    sets.sort_unstable();
    sets.dedup();
    let changed = sets.into_iter().map(|set_id| (*set_id, hash_in(before, set_id), hash_in(after, set_id)));
    changed.filter(|(_, old, new)| old != new).collect()
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn told(problem: &rules::Problem) -> Problem {
    Problem { file_name: problem.file.clone(), line: problem.line, column: problem.column, text: problem.message() }
}

fn broke(text: &str) -> Problem {
    Problem { text: text.into(), ..Default::default() }
}
