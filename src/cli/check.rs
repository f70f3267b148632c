//! `fireteam check`: validates ruleset files and directories and prints every problem with its line. For valid files it
//! prints a summary, and warnings with their lines, which change the exit code only if they are denied.

mod report;
mod warnings;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::domain::id::SetId;
use crate::domain::latency::predictor_constants::{PREDICTOR_V1, PredictorConstants};
use crate::domain::measure::Measure;
use crate::domain::ruleset::probing::LatencyEstimatePolicy;
use crate::domain::ruleset::queue::{FrustratedPlayerSpec, PassTrigger, QualitySpec, QueueSpec};
use crate::domain::ruleset::rating::defaults::ConstantWithChangedDefault;
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::ruleset::tradeoff::tradeoffs_with_latency_or_first_filter;
use crate::domain::ruleset::wait_outlook::{AnyMatchSufficesAfter, FinalLimit, WaitOutlook, wait_outlook};
use crate::domain::ruleset::{Ruleset, SoftFilter};
use crate::rules::{self, FileDiagnostic, RulesetFile};

pub use report::CheckFormat;
use report::{CheckReport, CheckedFile, format_count};

/// Options of the check.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct CheckOptions {
    /// Exit with status 1 also if there are only warnings.
    #[arg(long)]
    pub deny_warnings: bool,
    /// Format of the report.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub format: CheckFormat,
}

/// Validates each path as text for people. Returns true if all are valid and `out` could be written.
pub fn check_rulesets(paths: &[PathBuf], out: &mut dyn Write) -> bool {
    check_rulesets_with(paths, CheckOptions::default(), out)
}

/// Validates each path: a directory as the server loads it, or a single ruleset or fragment of expansions. Returns true
/// if all are valid, no denied warning was found, and `out` could be written.
pub fn check_rulesets_with(paths: &[PathBuf], options: CheckOptions, out: &mut dyn Write) -> bool {
    let mut report = CheckReport::default();
    for path in paths {
        match if path.is_dir() { check_directory(path) } else { check_file(path) } {
            Ok(files) => report.files.extend(files),
            Err(diagnostics) => report.errors.extend(diagnostics),
        }
    }
    let is_denied = options.deny_warnings && report.warnings().next().is_some();
    report.write(options.format, out).is_ok() && report.errors.is_empty() && !is_denied
}

fn check_directory(directory: &Path) -> Result<Vec<CheckedFile>, Vec<FileDiagnostic>> {
    let loaded = rules::load::load_rulesets_and_retirement_markers(directory)?;
    let mut files = Vec::new();
    for (path, ruleset) in &loaded.rulesets {
        files.push(checked_ruleset(path, &rules::load::read_file(path)?, ruleset)?);
    }
    files
        .extend(loaded.retired_files.iter().map(|(set_id, path)| without_warnings(retired_set_summary(path, *set_id))));
    Ok(files)
}

fn check_file(path: &Path) -> Result<Vec<CheckedFile>, Vec<FileDiagnostic>> {
    let text = rules::load::read_file(path)?;
    Ok(vec![match rules::parse_ruleset_or_expansion_fragment(&path.to_string_lossy(), &text)? {
        RulesetFile::Ruleset(ruleset) => checked_ruleset(path, &text, &ruleset)?,
        RulesetFile::StandaloneExpansions(fragment) => without_warnings(format!(
            "{}: a fragment of {}",
            path.display(),
            format_count(fragment.expansions.len(), "expansion")
        )),
        RulesetFile::RetiredSet(set_id) => without_warnings(retired_set_summary(path, set_id)),
    }])
}

fn without_warnings(summary: String) -> CheckedFile {
    CheckedFile { summary, warnings: Vec::new() }
}

fn checked_ruleset(path: &Path, text: &str, ruleset: &Ruleset) -> Result<CheckedFile, Vec<FileDiagnostic>> {
    let file = path.to_string_lossy();
    let root = rules::xml::parse_document(text).map_err(|error| vec![FileDiagnostic::at_span(&file, text, error)])?;
    let warnings = warnings::warnings_of(&root, ruleset).into_iter();
    let warnings = warnings.map(|found| (found.check, FileDiagnostic::at_span(&file, text, found.diagnostic)));
    Ok(CheckedFile { summary: ruleset_summary(path, ruleset), warnings: warnings.collect() })
}

fn retired_set_summary(path: &Path, set_id: SetId) -> String {
    format!("{}: set {set_id} is retired", path.display())
}

fn ruleset_summary(path: &Path, ruleset: &Ruleset) -> String {
    let Ruleset { name, set_id, hash, attributes, hard_filters, soft_filters, expansions, .. } = ruleset;
    let counts = [
        format_count(attributes.len(), "attribute"),
        format_count(hard_filters.len(), "hard filter"),
        format_count(soft_filters.len(), "soft filter"),
        format_count(expansions.len(), "expansion"),
    ];
    let mut lines = format!("{}: `{name}` rules set {set_id}, hash {hash}: {}", path.display(), counts.join(", "));
    for tradeoff in tradeoffs_with_latency_or_first_filter(ruleset) {
        let (amount, equivalent) = (
            format_amount(ruleset, tradeoff.base_amount, tradeoff.base_filter),
            format_amount(ruleset, tradeoff.equivalent_amount, tradeoff.other_filter),
        );
        let note = if tradeoff.is_linear { "" } else { ", over the whole range; the curve is not linear" };
        lines.push_str(&format!("\n      {amount} weigh as much as {equivalent}{note}"));
    }
    if let Some((queue, teams)) = ruleset.queue.as_ref().zip(ruleset.teams.as_ref()) {
        queue_summary_lines(ruleset, queue, teams).iter().for_each(|line| lines.push_str(&format!("\n      {line}")));
    }
    lines.extend(describe_rating_scale(ruleset).map(|line| format!("\n      {line}")));
    lines.extend(describe_changed_defaults(ruleset).map(|line| format!("\n      {line}")));
    ruleset_notes(ruleset).iter().for_each(|note| lines.push_str(&format!("\n      note: {note}")));
    lines
}

/// Requirements of a valid ruleset on callers and beacons.
fn ruleset_notes(ruleset: &Ruleset) -> Vec<String> {
    let mut notes = Vec::new();
    if ruleset.queue.as_ref().is_some_and(|queue| queue.gate.requires_share_of_connected()) {
        notes.push(format!(
            "its gate counts connected players only if their heartbeat names set {} in connected_matchmaking_set_ids; \
             else it counts only the players of waiting tickets",
            ruleset.set_id
        ));
    }
    if ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1 {
        let PredictorConstants { beacons_min, floors_min, .. } = PREDICTOR_V1;
        notes.push(format!(
            "it predicts round trips only with at least {beacons_min} live beacons, between parties with round trips to at \
             least {floors_min} of them; otherwise it uses regions or distance"
        ));
    }
    notes
}

/// `its ratings have the scale elo Initial="1500" Scale="400"`: another scale, or another pool, means other ratings.
fn describe_rating_scale(ruleset: &Ruleset) -> Option<String> {
    let scale = ruleset.rating.as_ref()?.scale();
    Some(match &ruleset.rating_pool {
        None => format!("its ratings have the scale {scale}"),
        Some(pool) => format!("its ratings are those of pool `{pool}`, and have the scale {scale}"),
    })
}

/// `it leaves out Beta, 6.25 by default; a set with ratings from version 0.2 uses 10 …`: what differs on servers with such sets.
fn describe_changed_defaults(ruleset: &Ruleset) -> Option<String> {
    let changed = ruleset.rating_constants_with_changed_default();
    let join = |text_of: &dyn Fn(&ConstantWithChangedDefault) -> String| {
        changed.iter().map(text_of).collect::<Vec<_>>().join(" ")
    };
    let current = join(&|constant| format!("{}=\"{}\"", constant.name, constant.current));
    let former = join(&|constant| format!("{}=\"{}\"", constant.name, constant.former));
    let effect = if changed.iter().any(|constant| constant.is_of_scale) {
        "state the former one to keep its ratings for ever, or the new one to begin again on its scale"
    } else {
        "state one of them to choose; the ratings stay"
    };
    (!changed.is_empty()).then(|| {
        format!("it uses the defaults {current}; a set that was played with version 0.2 keeps {former}: {effect}")
    })
}

/// Summary of the queue: its matches, and how its limits change with the wait.
fn queue_summary_lines(ruleset: &Ruleset, queue: &QueueSpec, teams: &TeamsSpec) -> Vec<String> {
    let WaitOutlook { limits_final_after_ms: final_after_ms, final_limits, any_match_suffices_after: quality_reached } =
        wait_outlook(ruleset, queue);
    let interval = format_duration(queue.pass_interval_ms.into());
    let passes = match queue.pass_trigger {
        PassTrigger::Interval => format!("every {interval}"),
        PassTrigger::Change { gather_ms } => format!("{} after a change", format_duration(gather_ms.into())),
    };
    let mut lines = vec![format!("its queue makes matches of {}, {passes}", describe_teams(teams))];
    let widest = final_limits.iter().map(|limit| describe_limit(ruleset, limit)).collect::<Vec<_>>().join(", ");
    match (final_after_ms, &*widest, quality_reached) {
        (Some(_), "", AnyMatchSufficesAfter::Immediately) => lines.push("any two tickets may meet at once".into()),
        (Some(_), "", _) => {}
        (Some(0), widest, _) => lines.push(format!("its limits never grow: {widest}")),
        (Some(ms), widest, _) => {
            lines.push(format!(
                "a party waits at most {} until its limits are at their widest: {widest}",
                format_duration(ms)
            ));
        }
        (None, "", _) => lines.push("its limits grow without end".into()),
        (None, widest, _) => lines.push(format!("its limits grow without end, or by a party's own rating: {widest}")),
    }
    match quality_reached {
        AnyMatchSufficesAfter::Immediately => {}
        AnyMatchSufficesAfter::AfterCombinedWaitMs(ms) => {
            lines.push(format!(
                "when its parties have waited {} together, any match is good enough",
                format_duration(ms)
            ));
        }
        AnyMatchSufficesAfter::Never => {
            lines.push("a match that is not good enough does not become so by waiting".into())
        }
    }
    lines.extend(describe_draw_threshold(ruleset, queue, teams));
    lines.extend(
        queue
            .frustrated_player_window
            .iter()
            .chain(&ruleset.frustrated_player_limits)
            .map(describe_frustrated_player_rule),
    );
    if let Some(offer) = queue.offer {
        lines.push(format!("a ticket that waits {} is offered set {}", format_duration(offer.after_ms), offer.set_id));
    }
    lines
}

/// Rating difference that a draw probability threshold allows.
fn describe_draw_threshold(ruleset: &Ruleset, queue: &QueueSpec, teams: &TeamsSpec) -> Option<String> {
    let QualitySpec::DrawProbability { threshold } = queue.quality else { return None };
    let beta = ruleset.rating.as_ref()?.system.beta()?;
    // For players with a deviation of 0, exp(-d² / 2 n beta²) equals the threshold.
    let difference = (-2.0 * f64::from(teams.players_per_match()) * threshold.ln()).sqrt() * beta;
    Some(format!(
        "teams whose ratings are certain may add up to {difference:.1} points apart; a team further above all others finds no match{}",
        if queue.wait_bonus.is_some() { " except by waiting" } else { "" }
    ))
}

/// `a player who lost 3 in a row searches 2 times as far, around a rating 50 points lower`.
fn describe_frustrated_player_rule(rule: &FrustratedPlayerSpec) -> String {
    let min_matches = rule.min_matches;
    let conditions = [
        rule.losing_streak.map(|lost| format!("lost {lost} in a row")),
        rule.abandoned_percent.map(|percent| format!("left {percent} % of {min_matches} matches or more")),
        rule.feedback_below.map(|score| format!("rated {min_matches} matches or more below {score} on average")),
    ];
    let effects = [
        (rule.window_widen_factor != 1.0).then(|| format!("{} times as far", rule.window_widen_factor)),
        (rule.window_shift_down_points != 0.0)
            .then(|| format!("around a rating {} points lower", rule.window_shift_down_points)),
        (rule.limit_widen_factor != 1.0).then(|| format!("with limits {} times as wide", rule.limit_widen_factor)),
    ];
    let [conditions, effects] =
        [&conditions[..], &effects[..]].map(|all| all.iter().flatten().cloned().collect::<Vec<String>>());
    match &*effects {
        [] => format!("a player who {} searches as far as others", conditions.join(" or ")),
        _ => format!("a player who {} searches {}", conditions.join(" or "), effects.join(", ")),
    }
}

/// `6 against 6`, `1 against 4`, `8 teams of 1`.
fn describe_teams(teams: &TeamsSpec) -> String {
    match &*teams.team_sizes {
        [first, second] => format!("{first} against {second}"),
        [size, rest @ ..] if rest.iter().all(|other| other == size) => format!("{} teams of {size}", rest.len() + 1),
        sizes => sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(" against "),
    }
}

fn describe_limit(ruleset: &Ruleset, limit: &FinalLimit) -> String {
    match *limit {
        FinalLimit::Expansion { expansion, value } => match ruleset.expansions[expansion].measure {
            Measure::Latency => format!("{value} ms of round trip"),
            Measure::DeltaPing => format!("{value} ms of delta ping"),
            Measure::Distance => format!("{value} miles"),
            Measure::PacketLoss => format!("{value} % of lost packets"),
            Measure::Jitter => format!("{value} ms of jitter"),
            Measure::AttributeDifference(index) => format!("{value} of {}", ruleset.attributes[index].name),
        },
        FinalLimit::RatingGroups { extra_groups: 0 } => "its own group".into(),
        FinalLimit::RatingGroups { extra_groups } => {
            format!("{} further", format_count(extra_groups.into(), "group"))
        }
        FinalLimit::SameRegion => "its own region".into(),
        FinalLimit::CommonRegion { max_round_trip_ms } => format!("a region within {max_round_trip_ms} ms"),
        FinalLimit::RatingBuckets { max: 0 } => "its own rating bucket".into(),
        FinalLimit::RatingBuckets { max } => format!("{} of rating", format_count(max as usize, "bucket")),
        FinalLimit::RatingWindow { max_points, max_percent } => {
            let bounds = [max_points.map(|bound| format!("{bound}")), max_percent.map(|bound| format!("{bound} %"))];
            format!("{} of rating", bounds.into_iter().flatten().collect::<Vec<_>>().join(" or "))
        }
    }
}

/// `250 ms`, `200 s`, `1.5 s`.
fn format_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!("{:.1} s", ms as f64 / 1_000.0),
    }
}

/// `10 ms of latency`, `100 points of skill`: two decimals below 10, none above.
fn format_amount(ruleset: &Ruleset, amount: f64, filter: &SoftFilter) -> String {
    let decimals = if amount < 10.0 { 2 } else { 0 };
    let unit = match filter.measure {
        Measure::Latency => "ms of ".into(),
        Measure::Distance => "miles of ".into(),
        Measure::PacketLoss => "% of ".into(),
        Measure::Jitter | Measure::DeltaPing => "ms of ".into(),
        Measure::AttributeDifference(index) => match &*ruleset.attributes[index].unit {
            "" => "of ".into(),
            unit => format!("{unit} of "),
        },
    };
    format!("{amount:.decimals$} {unit}{}", filter.name)
}
