//! Checks ruleset files and directories, prints every problem with the line it is in, and changes nothing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::domain::measure::Measure;
use crate::domain::ruleset::tradeoff::tradeoffs;
use crate::domain::ruleset::{Ruleset, SoftFilter};
use crate::rules::{self, Document, Problem};

/// Checks every path: a directory as the server would load it, a file on its own, be it a ruleset or a fragment of
/// expansions. Whether all are sound; also false when `out` cannot be written.
pub fn check(paths: &[PathBuf], out: &mut dyn Write) -> bool {
    check_all(paths, out).unwrap_or(false)
}

fn check_all(paths: &[PathBuf], out: &mut dyn Write) -> io::Result<bool> {
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
        writeln!(out, "{}\n", problem.picture())?;
    }
    // Once more as single lines: editors and build logs jump to them.
    problems.iter().try_for_each(|problem| writeln!(out, "{problem}"))?;
    match (problems.len(), sound) {
        (0, 1) => writeln!(out, "1 file is sound")?,
        (0, files) => writeln!(out, "{files} files are sound")?,
        (count, _) => writeln!(out, "{}", counted(count, "problem"))?,
    }
    Ok(problems.is_empty())
}

fn check_directory(directory: &Path) -> Result<Vec<String>, Vec<Problem>> {
    let rulesets = rules::load(directory)?;
    Ok(rulesets.iter().map(|(path, ruleset)| summary(path, ruleset)).collect())
}

fn check_file(path: &Path) -> Result<Vec<String>, Vec<Problem>> {
    let text = rules::load::read(path)?;
    Ok(vec![match rules::parse_document(&path.to_string_lossy(), &text)? {
        Document::Ruleset(ruleset) => summary(path, &ruleset),
        Document::Fragment(fragment) => {
            format!("{}: a fragment of {}", path.display(), counted(fragment.expansions.len(), "expansion"))
        }
    }])
}

fn summary(path: &Path, ruleset: &Ruleset) -> String {
    let Ruleset { name, set_id, hash, attributes, hard, soft, expansions, .. } = ruleset;
    let counts = [
        counted(attributes.len(), "attribute"),
        counted(hard.len(), "hard filter"),
        counted(soft.len(), "soft filter"),
        counted(expansions.len(), "expansion"),
    ];
    let mut lines = format!("{}: `{name}` rules set {set_id}, hash {hash}: {}", path.display(), counts.join(", "));
    for trade in tradeoffs(ruleset) {
        let (given, bought) = (amount(ruleset, trade.given, trade.of), amount(ruleset, trade.bought, trade.from));
        let bent = if trade.is_linear { "" } else { ", from end to end: a curve bends it between" };
        lines.push_str(&format!("\n      {given} weigh as much as {bought}{bent}"));
    }
    lines
}

/// `10 ms of latency`, `100 points of skill`: whole numbers where they are large, two decimals where they are small.
fn amount(ruleset: &Ruleset, amount: f64, soft: &SoftFilter) -> String {
    let decimals = if amount < 10.0 { 2 } else { 0 };
    let unit = match soft.measure {
        Measure::Latency => "ms of ".into(),
        Measure::Distance => "miles of ".into(),
        Measure::Attribute(index) => match &*ruleset.attributes[index].unit {
            "" => "of ".into(),
            unit => format!("{unit} of "),
        },
    };
    format!("{amount:.decimals$} {unit}{}", soft.name)
}

/// `1 problem`, `2 problems`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
