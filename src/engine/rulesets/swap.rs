//! Swap of one set's ruleset by an operator: replaces the set's file in the rulesets directory, then loads the directory. The files
//! stay the only source of the rules, so that neither a restart nor the next change of a file undoes the swap.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::ruleset::Ruleset;
use crate::engine::error::{EngineError, SwapObstacle, field_error};
use crate::engine::rulesets::RulesetReloader;
use crate::engine::rulesets::report::{ReloadReport, file_name, ruleset_problem};
use crate::engine::rulesets::swap_command::{RulesetReplacement, RulesetSwap, SwapReport};
use crate::rules::FileDiagnostic;
use crate::rules::edit::{self, EditObstacle};
use crate::rules::load;
use crate::rules::load::RulesetsAndRetirementMarkers;
use crate::rules::parse::{RulesetOrRetirementMarker, parse_ruleset_or_retirement_marker};

/// File of a set, and its text when it was loaded.
struct LoadedFile {
    directory: PathBuf,
    path: PathBuf,
    text: Arc<str>,
}

impl RulesetReloader {
    /// Replaces the ruleset of one set in its file, and loads the directory. All or nothing: a problem in any file leaves the
    /// file and the rulesets as they are. `by` says who swaps.
    ///
    /// Fails if another ruleset than the expected one is in force, if the file was edited since it was loaded, and if it
    /// cannot be written. Fails as draining if the server stops after the file was written.
    pub async fn swap(&self, swap: &RulesetSwap, by: &str) -> Result<SwapReport, EngineError> {
        let _guard = self.reload_lock.lock().await;
        let set_id = swap.set_id;
        let file = self.loaded_file(swap)?;
        let text = self.replacement_text(swap)?;
        let report = |load| SwapReport { file_name: file_name(&file.path), load };
        let refused = |problems: &[FileDiagnostic]| {
            let problems = problems.iter().map(ruleset_problem).collect();
            report(ReloadReport { problems, ..ReloadReport::default() })
        };
        if let Err(problems) = check_text(&file.path, &text, swap)? {
            return Ok(refused(&problems));
        }
        let (path, directory, loaded_text) = (file.path.clone(), file.directory.clone(), Arc::clone(&file.text));
        let new_text = Arc::clone(&text);
        let read = on_blocking_thread(move || {
            edit::check_is_unedited(&path, &loaded_text)?;
            Ok(load::load_with_replaced_file(&directory, Some((&path, &new_text))))
        });
        let loaded = read.await?.map_err(|obstacle| cannot_edit(set_id, &file.path, obstacle))?;
        let RulesetsAndRetirementMarkers { rulesets, retired_files } = match loaded {
            Ok(loaded) => loaded,
            Err(problems) => return Ok(refused(&problems)),
        };
        let prepared = match self.prepare_rulesets(rulesets).await {
            Ok(prepared) => prepared,
            Err(problems) => return Ok(refused(&problems)),
        };
        let path = file.path.clone();
        let written = on_blocking_thread(move || edit::replace_text(&path, &text)).await?;
        written.map_err(|obstacle| cannot_edit(set_id, &file.path, obstacle))?;
        tracing::info!(%set_id, file = file_name(&file.path), "ruleset file replaced by an operator");
        let load = self.activate(prepared, retired_files, by).await;
        // The file is written, and the next start loads it.
        if load.problems.is_empty() { Ok(report(load)) } else { Err(EngineError::Draining) }
    }

    /// Reason that swaps are refused now, as far as it is known without trying.
    pub fn swap_obstacle(&self) -> Option<SwapObstacle> {
        match &self.directory {
            None => Some(SwapObstacle::BundledRulesets),
            Some(_) => self.directory_obstacle.lock().clone(),
        }
    }

    /// Reason that no file of the directory can be replaced. Blocks until a deadline.
    pub(super) fn find_directory_obstacle(directory: Option<&Path>) -> Option<SwapObstacle> {
        let directory = directory?;
        let obstacle = edit::directory_obstacle(directory)?;
        Some(swap_obstacle(&directory.to_string_lossy(), obstacle))
    }

    /// File of the set, if the expected ruleset is in force.
    fn loaded_file(&self, swap: &RulesetSwap) -> Result<LoadedFile, EngineError> {
        let set_id = swap.set_id;
        let refuse = |obstacle| Err(EngineError::CannotSwapRuleset { set_id, obstacle });
        let catalog = self.common.rulesets.snapshot();
        let Some(active) = catalog.active.get(&set_id) else {
            let is_retiring = catalog.retiring.contains_key(&set_id);
            return if is_retiring { refuse(SwapObstacle::NoFile) } else { Err(EngineError::UnknownSet(set_id)) };
        };
        let Some(directory) = self.directory.clone() else { return refuse(SwapObstacle::BundledRulesets) };
        if active.ruleset.hash != swap.expected_hash {
            return refuse(SwapObstacle::OtherRulesetInForce { current: active.ruleset.hash });
        }
        Ok(LoadedFile { directory, path: active.file.clone(), text: Arc::clone(&active.ruleset.file_xml) })
    }

    fn replacement_text(&self, swap: &RulesetSwap) -> Result<Arc<str>, EngineError> {
        let former = match &swap.replacement {
            RulesetReplacement::Text(text) => return Ok(Arc::clone(text)),
            RulesetReplacement::FormerVersion(former) => *former,
        };
        if former == swap.expected_hash {
            return Err(field_error("former_hash", "is the ruleset in force; name another version of the set"));
        }
        let unknown = EngineError::UnknownRulesetHash { requested: former, current: swap.expected_hash };
        self.find(swap.set_id, Some(former)).map(|ruleset| Arc::clone(&ruleset.file_xml)).ok_or(unknown)
    }
}

/// Checks that a text is a ruleset of the set. Problems of the text are a result, and not an error.
fn check_text(path: &Path, text: &str, swap: &RulesetSwap) -> Result<Result<(), Vec<FileDiagnostic>>, EngineError> {
    let found: Ruleset = match parse_ruleset_or_retirement_marker(&path.to_string_lossy(), text) {
        Ok(RulesetOrRetirementMarker::Ruleset(ruleset)) => *ruleset,
        Ok(RulesetOrRetirementMarker::RetiredSet(_)) => {
            let message = "retires its set; remove the file from the directory instead, or mark it there";
            return Err(field_error("ruleset_xml", message));
        }
        Err(problems) => return Ok(Err(problems)),
    };
    if found.set_id == swap.set_id {
        return Ok(Ok(()));
    }
    let message = format!("has SetId {}; write SetId {}, or swap the ruleset of that set", found.set_id, swap.set_id);
    Err(field_error("ruleset_xml", message))
}

async fn on_blocking_thread<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(action).await.map_err(|error| {
        tracing::error!(%error, "ruleset swap failed");
        EngineError::Internal
    })
}

fn cannot_edit(set_id: SetId, file: &Path, obstacle: EditObstacle) -> EngineError {
    EngineError::CannotSwapRuleset { set_id, obstacle: swap_obstacle(&file_name(file), obstacle) }
}

fn swap_obstacle(name: &str, obstacle: EditObstacle) -> SwapObstacle {
    match obstacle {
        EditObstacle::EditedSinceLoad => SwapObstacle::FileEdited { file_name: name.to_owned() },
        EditObstacle::NotWritable(error) => SwapObstacle::NotWritable { name: name.to_owned(), error },
    }
}
