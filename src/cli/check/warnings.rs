//! Warnings about a valid ruleset: rules that cannot do what their author wants. Each has the name of its check and a position.

use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::probing::{LatencyEstimatePolicy, ProbedPlayers};
use crate::domain::ruleset::raw::{Diagnostic, RawElement};
use crate::domain::ruleset::teams::{HOST_CONFIRM_WITHOUT_STREAM_MS_MIN, HostingMode, HostingSpec};

/// Difference to 1 that shares may have by rounding.
const SHARE_TOLERANCE: f64 = 1e-6;

/// Wait after which few parties are still in a queue or search, milliseconds: one hour.
const LONG_WAIT_MS: f64 = 3_600_000.0;

/// A warning. It does not make the file invalid.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Warning {
    /// Name of the check, for programs.
    pub(super) check: &'static str,
    /// Position, problem and fix.
    pub(super) diagnostic: Diagnostic,
}

/// Warnings about a valid ruleset with this root element, in file order.
pub(super) fn warnings_of(root: &RawElement, ruleset: &Ruleset) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let filters = root.child("HardFilters").map_or(&[][..], |filters| &filters.children);
    filters.iter().for_each(|filter| warnings.extend(filter_warning(root, filter)));
    for (at, filter) in filters.iter().enumerate() {
        let contradicted = filters[..at].iter().find(|earlier| contradict(earlier, filter));
        warnings.extend(contradicted.map(|earlier| {
            let problem = format!("no session passes this filter and <{}> of the same attribute", earlier.name);
            impossible(filter, problem, "delete one of them, or change its values")
        }));
    }
    warnings.extend(weights_warning(root));
    warnings.extend(rating_window_warning(root));
    warnings.extend(root.child("ExpansionConfigs").into_iter().flat_map(expansion_warnings));
    warnings.extend(hosting_warning(root, &ruleset.hosting));
    let probing = &ruleset.probing;
    if probing.latency_estimate_policy == LatencyEstimatePolicy::Measured && probing.players == ProbedPlayers::Never {
        let problem = "Source is measured, and players' machines are never probed; sessions without a probe endpoint of a game \
                       server have no round trip in hard filters";
        let place = root.child("Latency").unwrap_or(root);
        warnings.push(warning("measured_never_probed", place, problem, "give ProbePlayers=\"involved\" or \"quick\""));
    }
    warnings.sort_by_key(|warning| warning.diagnostic.span.start);
    warnings
}

fn warning(check: &'static str, place: &RawElement, problem: impl Into<String>, fix: impl Into<String>) -> Warning {
    Warning { check, diagnostic: Diagnostic { span: place.name_span, problem: problem.into(), fix: fix.into() } }
}

fn impossible(place: &RawElement, problem: String, fix: &str) -> Warning {
    warning("impossible_rule", place, problem, fix)
}

fn text<'a>(element: &'a RawElement, attribute: &str) -> Option<&'a str> {
    element.attribute(attribute).map(|attribute| attribute.value.trim())
}

fn number(element: &RawElement, attribute: &str) -> Option<f64> {
    text(element, attribute)?.parse().ok()
}

/// A `<Range>` or `<Equal>` that no value in the range of its attribute can pass.
fn filter_warning(root: &RawElement, filter: &RawElement) -> Option<Warning> {
    let attribute = text(filter, "Attribute")?;
    let mut declared = root.child("Attributes")?.children.iter().filter(|it| text(it, "Name") == Some(attribute));
    let declared = bounds(declared.next()?);
    let (least, most) = allowed_numbers(filter)?;
    let fits = least <= declared.1 && most >= declared.0;
    (!fits).then(|| {
        let problem = format!("no value in the range of `{attribute}` passes this filter");
        impossible(filter, problem, "use values from Min to Max of its <Attribute>")
    })
}

/// `Min` and `Max` of an element.
fn bounds(element: &RawElement) -> (f64, f64) {
    (number(element, "Min").unwrap_or(f64::NEG_INFINITY), number(element, "Max").unwrap_or(f64::INFINITY))
}

/// Least and greatest number that a filter of fixed values admits; `None` for other filters.
fn allowed_numbers(filter: &RawElement) -> Option<(f64, f64)> {
    match &*filter.name {
        "Range" => Some(bounds(filter)),
        "Equal" => number(filter, "Value").map(|value| (value, value)),
        _ => None,
    }
}

/// Whether no value passes both filters.
fn contradict(one: &RawElement, other: &RawElement) -> bool {
    if text(one, "Attribute") != text(other, "Attribute") {
        return false;
    }
    let values = (text(one, "Value"), text(other, "Value"));
    match (&*one.name, &*other.name, values) {
        ("Equal", "Equal", (Some(first), Some(second))) => first != second,
        ("Equal", "NotEqual", (Some(first), Some(second))) | ("NotEqual", "Equal", (Some(first), Some(second))) => {
            first == second
        }
        ("Equal", "NotEqual", (None, None)) | ("NotEqual", "Equal", (None, None)) => true,
        _ => match (allowed_numbers(one), allowed_numbers(other)) {
            (Some(first), Some(second)) => first.0 > second.1 || second.0 > first.1,
            _ => false,
        },
    }
}

/// Weights in percent that do not add up to 100 %. Weights without a percent sign are in proportion to each other.
fn weights_warning(root: &RawElement) -> Option<Warning> {
    let filters = root.child("SoftFilters")?;
    let shares: Vec<f64> = filters
        .children
        .iter()
        .map(|filter| text(filter, "Weight")?.strip_suffix('%')?.trim().parse::<f64>().ok())
        .collect::<Option<_>>()?;
    let sum: f64 = shares.iter().sum();
    let adds_up = shares.is_empty() || (sum / 100.0 - 1.0).abs() <= SHARE_TOLERANCE;
    (!adds_up).then(|| {
        let problem = format!("the weights add up to {} %, not to 100 %", (sum * 1e4).round() / 1e4);
        warning("weights_sum", filters, problem, "change a Weight, or write all without `%`, as proportions")
    })
}

/// A rating window whose first step is later than parties wait.
fn rating_window_warning(root: &RawElement) -> Option<Warning> {
    let window = root.child("Queue")?.child("RatingWindow")?;
    let first_step_ms = number(window, "StepEveryMs").filter(|ms| *ms > LONG_WAIT_MS)?;
    Some(late_step(window, "the rating window", first_step_ms, "StepEveryMs"))
}

fn late_step(place: &RawElement, name: &str, first_step_ms: f64, attribute: &str) -> Warning {
    let problem = format!("{name} never opens: its first step is after {} h", first_step_ms / LONG_WAIT_MS);
    let fix = format!("lower {attribute} to at most {LONG_WAIT_MS}, the milliseconds of an hour");
    warning("window_never_opens", place, problem, fix)
}

/// Expansions whose limit never grows, or later than parties wait, and expansions of round trip or distance that end at 0.
fn expansion_warnings(configs: &RawElement) -> Vec<Warning> {
    let warning_of = |config: &RawElement| {
        let name = format!("the limit `{}`", text(config, "Name").unwrap_or_default());
        let values: Vec<f64> = config.children.iter().filter_map(|step| number(step, "Value")).collect();
        let last = *values.last()?;
        let is_measured = matches!(text(config, "Type"), Some("latency" | "distance"));
        if is_measured && last <= 0.0 {
            let problem = format!("{name} never opens: it ends at 0, and no other party is that near");
            return Some(warning("window_never_opens", config, problem, "give the last step a Value above 0"));
        }
        if values.len() < 2 {
            return None;
        }
        if values.iter().all(|value| *value == last) {
            let problem = format!("{name} never opens: all of its steps have the Value {last}");
            let fix = "give later steps a greater Value, or keep one step";
            return Some(warning("window_never_opens", config, problem, fix));
        }
        let first_step_ms = number(config.children.first()?, "ExpansionDurationMs").filter(|ms| *ms > LONG_WAIT_MS)?;
        Some(late_step(config, &name, first_step_ms, "ExpansionDurationMs"))
    };
    configs.children.iter().filter_map(warning_of).collect()
}

/// A time to find a game server that is too short for one to confirm.
fn hosting_warning(root: &RawElement, hosting: &HostingSpec) -> Option<Warning> {
    let needed_ms = hosting.confirm_ms.max(HOST_CONFIRM_WITHOUT_STREAM_MS_MIN);
    let timeout_ms = hosting.allocation_timeout_ms;
    (hosting.mode == HostingMode::GameServer && timeout_ms < needed_ms).then(|| {
        let problem = format!(
            "AllocationTimeoutMs is {timeout_ms}, and a game server has up to {needed_ms} ms to confirm a match"
        );
        let fix = format!("give at least {}, so that a second server can be asked", needed_ms.saturating_mul(2));
        warning("allocation_timeout", root.child("Hosting").unwrap_or(root), problem, fix)
    })
}
