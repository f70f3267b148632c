//! Developer overrides of a ruleset for one search.

use crate::domain::attribute_values::FieldProblem;
use crate::domain::expansion::Expansion;
use crate::domain::limit;
use crate::domain::ruleset::Ruleset;
use crate::engine::command::SearchOverrides;
use crate::engine::error::EngineError;

/// Ruleset with `overrides` applied: weights, constant limits and result bounds. Filters do not change.
pub(crate) fn apply_overrides(ruleset: &Ruleset, overrides: &SearchOverrides) -> Result<Ruleset, EngineError> {
    let mut overridden = ruleset.clone();
    let mut problems = Vec::new();
    for (name, weight) in &overrides.soft_filter_weights {
        let path = || format!("search_config_overrides.weights[\"{name}\"]");
        match overridden.soft_filters.iter_mut().find(|filter| *filter.name == **name) {
            None => problems.push(unknown_name_problem(
                path(),
                "soft filter",
                ruleset.soft_filters.iter().map(|filter| &*filter.name),
            )),
            Some(_) if !(weight.is_finite() && *weight >= 0.0) => {
                problems.push(FieldProblem { path: path(), message: "must be a finite number, 0 or more".into() });
            }
            Some(filter) => filter.weight = *weight,
        }
    }
    for (name, value) in &overrides.expansion_limits {
        let path = || format!("search_config_overrides.limits[\"{name}\"]");
        match overridden.expansions.iter_mut().find(|expansion| *expansion.name == **name) {
            None => problems.push(unknown_name_problem(
                path(),
                "expansion config",
                ruleset.expansions.iter().map(|expansion| &*expansion.name),
            )),
            Some(expansion) => match Expansion::constant(name, expansion.measure, *value) {
                Some(constant) => *expansion = constant,
                None => problems.push(FieldProblem { path: path(), message: "must be a finite number".into() }),
            },
        }
    }
    if let Some(max_results) = overrides.max_results {
        overridden.search_limits.max_results = max_results.min(limit::SEARCH_RESULTS_MAX);
    }
    if let Some(max_evaluated) = overrides.max_evaluated_rows {
        overridden.search_limits.max_evaluated = max_evaluated.min(limit::SEARCH_EVALUATED_ROWS_MAX);
    }
    if problems.is_empty() { Ok(overridden) } else { Err(EngineError::InvalidFields(problems)) }
}

fn unknown_name_problem<'a>(path: String, kind: &str, known: impl Iterator<Item = &'a str>) -> FieldProblem {
    let known: Vec<&str> = known.collect();
    FieldProblem { path, message: format!("unknown {kind}; use one of: {}", known.join(", ")) }
}
