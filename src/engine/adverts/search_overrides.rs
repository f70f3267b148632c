//! A developer's changes to the rules of one search.

use crate::domain::attribute_values::FieldProblem;
use crate::domain::expansion::Expansion;
use crate::domain::limit;
use crate::domain::ruleset::Ruleset;
use crate::engine::command::SearchOverrides;
use crate::engine::error::EngineError;

/// The ruleset as `overrides` would have it: other weights, constant limits, other bounds. Filters themselves stay.
pub(in crate::engine) fn apply_overrides(
    ruleset: &Ruleset,
    overrides: &SearchOverrides,
) -> Result<Ruleset, EngineError> {
    let mut changed = ruleset.clone();
    let mut problems = Vec::new();
    for (name, weight) in &overrides.soft_filter_weights {
        let path = || format!("search_config_overrides.weights[\"{name}\"]");
        match changed.soft_filters.iter_mut().find(|soft| *soft.name == **name) {
            None => problems.push(unknown_name_problem(
                path(),
                "soft filter",
                ruleset.soft_filters.iter().map(|soft| &*soft.name),
            )),
            Some(_) if !(weight.is_finite() && 0.0 <= *weight) => {
                problems.push(FieldProblem { path: path(), message: "must be a finite number, 0 or more".into() });
            }
            Some(soft) => soft.weight = *weight,
        }
    }
    for (name, value) in &overrides.expansion_limits {
        let path = || format!("search_config_overrides.limits[\"{name}\"]");
        match changed.expansions.iter_mut().find(|expansion| *expansion.name == **name) {
            None => problems.push(unknown_name_problem(
                path(),
                "expansion config",
                ruleset.expansions.iter().map(|it| &*it.name),
            )),
            Some(expansion) => match Expansion::constant(name, expansion.measure, *value) {
                Some(constant) => *expansion = constant,
                None => problems.push(FieldProblem { path: path(), message: "must be a finite number".into() }),
            },
        }
    }
    if let Some(max_results) = overrides.max_results {
        changed.search_limits.max_results = max_results.min(limit::SEARCH_RESULTS_MAX);
    }
    if let Some(max_evaluated) = overrides.max_evaluated_rows {
        changed.search_limits.max_evaluated = max_evaluated.min(limit::SEARCH_EVALUATED_ROWS_MAX);
    }
    if problems.is_empty() { Ok(changed) } else { Err(EngineError::InvalidFields(problems)) }
}

fn unknown_name_problem<'a>(path: String, what: &str, known: impl Iterator<Item = &'a str>) -> FieldProblem {
    let known: Vec<&str> = known.collect();
    FieldProblem { path, message: format!("there is no {what} of this name; there are: {}", known.join(", ")) }
}
