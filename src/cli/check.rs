//! Checks ruleset files and directories, prints every problem with the line it is in, and changes nothing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::domain::measure::Measure;
use crate::domain::ruleset::queue::{QualitySpec, QueueSpec, SatisfactionSpec};
use crate::domain::ruleset::teams::TeamsSpec;
use crate::domain::ruleset::tradeoff::soft_filter_tradeoffs;
use crate::domain::ruleset::wait_outlook::{FinalLimit, QualityReached, WaitOutlook, wait_outlook};
use crate::domain::ruleset::{Ruleset, SoftFilter};
use crate::rules::{self, RenderedDiagnostic, RulesetFile};

/// Checks every path: a directory as the server would load it, a file on its own, be it a ruleset or a fragment of
/// expansions. Whether all are sound; also false when `out` cannot be written.
pub fn check_rulesets(paths: &[PathBuf], out: &mut dyn Write) -> bool {
    write_check_report(paths, out).unwrap_or(false)
}

fn write_check_report(paths: &[PathBuf], out: &mut dyn Write) -> io::Result<bool> {
    let (mut sound, mut problems) = (0, Vec::new());
    for path in paths {
        match if path.is_dir() { check_directory(path) } else { check_file(path) } {
            Ok(lines) => {
                sound += lines.len();
                lines.iter().try_for_each(|line| writeln!(out, "ok  {line}"))?;
            }
            Err(found) => problems.extend(found),
        }
    }
    for problem in &problems {
        writeln!(out, "{}\n", problem.render_snippet())?;
    }
    // Once more as single lines: editors and build logs jump to them.
    problems.iter().try_for_each(|problem| writeln!(out, "{problem}"))?;
    match (problems.len(), sound) {
        (0, 1) => writeln!(out, "1 file is sound")?,
        (0, files) => writeln!(out, "{files} files are sound")?,
        (count, _) => writeln!(out, "{}", format_count(count, "problem"))?,
    }
    Ok(problems.is_empty())
}

fn check_directory(directory: &Path) -> Result<Vec<String>, Vec<RenderedDiagnostic>> {
    let rulesets = rules::load_directory(directory)?;
    Ok(rulesets.iter().map(|(path, ruleset)| ruleset_summary(path, ruleset)).collect())
}

fn check_file(path: &Path) -> Result<Vec<String>, Vec<RenderedDiagnostic>> {
    let text = rules::load::read_file(path)?;
    Ok(vec![match rules::parse_ruleset_file(&path.to_string_lossy(), &text)? {
        RulesetFile::Ruleset(ruleset) => ruleset_summary(path, &ruleset),
        RulesetFile::ExpansionFragment(fragment) => {
            format!("{}: a fragment of {}", path.display(), format_count(fragment.expansions.len(), "expansion"))
        }
    }])
}

fn ruleset_summary(path: &Path, ruleset: &Ruleset) -> String {
    let Ruleset { name, set_id, hash, attributes, hard_filters: hard, soft_filters: soft, expansions, .. } = ruleset;
    let counts = [
        format_count(attributes.len(), "attribute"),
        format_count(hard.len(), "hard filter"),
        format_count(soft.len(), "soft filter"),
        format_count(expansions.len(), "expansion"),
    ];
    let mut lines = format!("{}: `{name}` rules set {set_id}, hash {hash}: {}", path.display(), counts.join(", "));
    for trade in soft_filter_tradeoffs(ruleset) {
        let (given, bought) = (
            format_amount(ruleset, trade.base_amount, trade.base_filter),
            format_amount(ruleset, trade.equivalent_amount, trade.other_filter),
        );
        let bent = if trade.is_linear { "" } else { ", from end to end: a curve bends it between" };
        lines.push_str(&format!("\n      {given} weigh as much as {bought}{bent}"));
    }
    if let Some((queue, teams)) = ruleset.queue.as_ref().zip(ruleset.teams.as_ref()) {
        queue_summary_lines(ruleset, queue, teams).iter().for_each(|line| lines.push_str(&format!("\n      {line}")));
    }
    lines
}

/// What a queue makes, and what waiting comes to in it.
fn queue_summary_lines(ruleset: &Ruleset, queue: &QueueSpec, teams: &TeamsSpec) -> Vec<String> {
    let WaitOutlook { limits_final_after_ms: settled_ms, final_limits: limits, quality_reached: enough } =
        wait_outlook(ruleset, queue);
    let every = format_duration(queue.pass_every_ms.into());
    let mut lines = vec![format!("its queue makes matches of {}, every {every}", describe_teams(teams))];
    let widest = limits.iter().map(|limit| describe_limit(ruleset, limit)).collect::<Vec<_>>().join(", ");
    match (settled_ms, &*widest, enough) {
        (Some(_), "", QualityReached::Immediately) => lines.push("anyone may meet anyone at once".into()),
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
    match enough {
        QualityReached::Immediately => {}
        QualityReached::AfterCombinedWaitMs(ms) => {
            lines.push(format!(
                "when its parties have waited {} together, any match is good enough",
                format_duration(ms)
            ));
        }
        QualityReached::Never => lines.push("a match that is not good enough does not become so by waiting".into()),
    }
    lines.extend(describe_draw_threshold(ruleset, queue, teams));
    if let Some(rule) = queue.satisfaction {
        lines.push(describe_satisfaction(&rule));
    }
    if let Some(offer) = queue.offer {
        lines.push(format!("whoever waits {} is offered set {}", format_duration(offer.after_ms), offer.set_id));
    }
    lines
}

/// What a bar of draws comes to, and whom it leaves alone (S2-4).
fn describe_draw_threshold(ruleset: &Ruleset, queue: &QueueSpec, teams: &TeamsSpec) -> Option<String> {
    let QualitySpec::DrawProbability { threshold } = queue.quality else { return None };
    let beta = ruleset.rating.as_ref()?.system.beta()?;
    // Of those whose deviations are nothing: exp(-d² / 2 n beta²) is the threshold.
    let apart = (-2.0 * f64::from(teams.players_per_match()) * threshold.ln()).sqrt() * beta;
    Some(format!(
        "teams whose ratings are certain may add up to {apart:.1} points apart; who is further above all others finds nobody{}",
        if queue.wait_bonus.is_some() { " but by waiting" } else { "" }
    ))
}

/// `whoever has lost 3 in a row looks 2 times as far, around a middle 50 points lower`.
fn describe_satisfaction(rule: &SatisfactionSpec) -> String {
    let least = rule.min_matches;
    let signs = [
        rule.losing_streak.map(|lost| format!("lost {lost} in a row")),
        rule.abandoned_percent.map(|percent| format!("left {percent} % of {least} matches or more")),
        rule.score_below.map(|score| format!("scored {least} matches or more below {score}")),
    ];
    let deeds = [
        (rule.widen != 1.0).then(|| format!("{} times as far", rule.widen)),
        (rule.shift_down != 0.0).then(|| format!("around a middle {} points lower", rule.shift_down)),
    ];
    let [signs, deeds] = [&signs[..], &deeds[..]].map(|all| all.iter().flatten().cloned().collect::<Vec<String>>());
    match &*deeds {
        [] => format!("whoever has {} looks as far as everybody", signs.join(" or ")),
        _ => format!("whoever has {} looks {}", signs.join(" or "), deeds.join(", ")),
    }
}

/// `6 against 6`, `1 against 4`, `8 teams of 1`.
fn describe_teams(teams: &TeamsSpec) -> String {
    match &*teams.team_sizes {
        [one, other] => format!("{one} against {other}"),
        [size, rest @ ..] if rest.iter().all(|other| other == size) => format!("{} teams of {size}", rest.len() + 1),
        sizes => sizes.iter().map(u16::to_string).collect::<Vec<_>>().join(" against "),
    }
}

fn describe_limit(ruleset: &Ruleset, limit: &FinalLimit) -> String {
    match *limit {
        FinalLimit::Expansion { expansion, value } => match ruleset.expansions[expansion].measure {
            Measure::Latency => format!("{value} ms of round trip"),
            Measure::Distance => format!("{value} miles"),
            Measure::AttributeDifference(index) => format!("{value} of {}", ruleset.attributes[index].name),
        },
        FinalLimit::RatingGroups { extra_groups: 0 } => "its own group".into(),
        FinalLimit::RatingGroups { extra_groups: further } => {
            format!("{} further", format_count(further.into(), "group"))
        }
        FinalLimit::SameRegion => "its own region".into(),
        FinalLimit::CommonRegion { max_round_trip_ms: within_ms } => format!("a region within {within_ms} ms"),
        FinalLimit::RatingWindow { max_points: points, max_percent: percent } => {
            let bounds = [points.map(|it| format!("{it}")), percent.map(|it| format!("{it} %"))];
            format!("{} of rating", bounds.into_iter().flatten().collect::<Vec<_>>().join(" or "))
        }
    }
}

/// `250 ms`, `200 s`: seconds where they are whole or many.
fn format_duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!("{:.1} s", ms as f64 / 1_000.0),
    }
}

/// `10 ms of latency`, `100 points of skill`: whole numbers where they are large, two decimals where they are small.
fn format_amount(ruleset: &Ruleset, amount: f64, soft: &SoftFilter) -> String {
    let decimals = if amount < 10.0 { 2 } else { 0 };
    let unit = match soft.measure {
        Measure::Latency => "ms of ".into(),
        Measure::Distance => "miles of ".into(),
        Measure::AttributeDifference(index) => match &*ruleset.attributes[index].unit {
            "" => "of ".into(),
            unit => format!("{unit} of "),
        },
    };
    format!("{amount:.decimals$} {unit}{}", soft.name)
}

/// `1 problem`, `2 problems`.
fn format_count(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
