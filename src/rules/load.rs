//! Ruleset directory loader: loads all files, or none if any file is invalid.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::id::SetId;
use crate::domain::limit::{RULESET_FILE_BYTES_MAX, RULESET_FILES_MAX};
use crate::domain::ruleset::Ruleset;
use crate::files::{READ_DEADLINE, read_file_start, run_with_deadline};
use crate::rules::diagnostic::FileDiagnostic;
use crate::rules::parse::{RulesetOrRetirementMarker, parse_ruleset_or_retirement_marker, ruleset_text_from_bytes};

/// Content of a ruleset directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RulesetsAndRetirementMarkers {
    /// Rulesets with their files, in name order.
    pub rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    /// Files that are marked with `Retired="true"`, by set.
    pub retired_files: BTreeMap<SetId, PathBuf>,
}

/// Loads each `*.xml` file of `directory`, in name order, without those that are marked as retired. Returns all problems of
/// all files if any file is invalid.
///
/// Symbolic links are followed. Names that start with a dot are skipped: editors and Kubernetes (`..data`) use them. A
/// directory without rulesets is an error, so that an empty mount does not remove all sets.
pub fn load_directory(directory: &Path) -> Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<FileDiagnostic>> {
    load_rulesets_and_retirement_markers(directory).map(|loaded| loaded.rulesets)
}

/// As `load_directory`, with the files that are marked as retired.
pub fn load_rulesets_and_retirement_markers(
    directory: &Path,
) -> Result<RulesetsAndRetirementMarkers, Vec<FileDiagnostic>> {
    load_with_replaced_file(directory, None)
}

/// As `load_rulesets_and_retirement_markers`, as if one file had another text: its path as a load gave it, and the text.
pub fn load_with_replaced_file(
    directory: &Path,
    replaced: Option<(&Path, &str)>,
) -> Result<RulesetsAndRetirementMarkers, Vec<FileDiagnostic>> {
    let files = list_ruleset_files(directory).map_err(|diagnostic| vec![diagnostic])?;
    let mut loaded = RulesetsAndRetirementMarkers::default();
    let mut set_files: BTreeMap<SetId, PathBuf> = BTreeMap::new();
    let mut diagnostics = Vec::new();
    for path in files {
        let replacement = replaced.filter(|(file, _)| *file == path).map(|(_, text)| Ok(text.as_bytes().to_vec()));
        let text = match replacement.unwrap_or_else(|| read_bytes(&path)) {
            // The other files would time out too.
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(vec![unreadable_file(&path, &error)]),
            read => decode_file_text(&path, read),
        };
        let parsed = text.and_then(|text| parse_ruleset_or_retirement_marker(&path.to_string_lossy(), &text));
        let set_id = match &parsed {
            Ok(RulesetOrRetirementMarker::Ruleset(ruleset)) => ruleset.set_id,
            Ok(RulesetOrRetirementMarker::RetiredSet(set_id)) => *set_id,
            Err(_) => {
                diagnostics.extend(parsed.err().into_iter().flatten());
                continue;
            }
        };
        if let Some(first) = set_files.get(&set_id) {
            diagnostics.push(duplicate_set_id_diagnostic(first, &path, set_id));
            continue;
        }
        set_files.insert(set_id, path.clone());
        match parsed {
            Ok(RulesetOrRetirementMarker::Ruleset(ruleset)) => loaded.rulesets.push((path, Arc::new(*ruleset))),
            Ok(RulesetOrRetirementMarker::RetiredSet(set_id)) => drop(loaded.retired_files.insert(set_id, path)),
            Err(_) => {}
        }
    }
    if diagnostics.is_empty() {
        let rulesets = &loaded.rulesets;
        diagnostics.extend(rulesets.iter().filter_map(|(path, ruleset)| check_offer_target(path, ruleset, rulesets)));
        diagnostics.extend(rulesets.iter().filter_map(|(path, ruleset)| check_rating_pool(path, ruleset, rulesets)));
    }
    if diagnostics.is_empty() { Ok(loaded) } else { Err(diagnostics) }
}

/// Reads the text of one file, at most the maximum size of a ruleset.
pub fn read_file(path: &Path) -> Result<String, Vec<FileDiagnostic>> {
    decode_file_text(path, read_bytes(path))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    read_file_start(path, RULESET_FILE_BYTES_MAX as u64 + 1)
}

fn decode_file_text(path: &Path, read: io::Result<Vec<u8>>) -> Result<String, Vec<FileDiagnostic>> {
    let bytes = read.map_err(|error| vec![unreadable_file(path, &error)])?;
    ruleset_text_from_bytes(&path.to_string_lossy(), &bytes).map(str::to_owned)
}

fn unreadable_file(path: &Path, error: &io::Error) -> FileDiagnostic {
    let problem = format!("the file cannot be read: {error}");
    FileDiagnostic::for_file(&path.to_string_lossy(), problem, "make it a readable, regular file")
}

/// Lists the ruleset files of a directory. Blocks until a deadline.
fn list_ruleset_files(directory: &Path) -> Result<Vec<PathBuf>, FileDiagnostic> {
    let owned = directory.to_owned();
    let listed = run_with_deadline(directory, READ_DEADLINE, move || Ok(list_xml_files(&owned)));
    listed.unwrap_or_else(|error| {
        let problem = format!("the directory cannot be read: {error}");
        Err(FileDiagnostic::for_file(&directory.to_string_lossy(), problem, "give a directory of rulesets"))
    })
}

fn list_xml_files(directory: &Path) -> Result<Vec<PathBuf>, FileDiagnostic> {
    let name = directory.to_string_lossy();
    let unreadable = |error: std::io::Error| {
        FileDiagnostic::for_file(
            &name,
            format!("the directory cannot be read: {error}"),
            "give a directory of rulesets",
        )
    };
    let mut files = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let is_xml = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("xml"));
        if is_xml && !hidden && !path.is_dir() {
            files.push(path);
        }
        if files.len() > RULESET_FILES_MAX {
            let problem = format!("the directory has more than {RULESET_FILES_MAX} rulesets");
            return Err(FileDiagnostic::for_file(&name, problem, "keep one file per matchmaking set"));
        }
    }
    if files.is_empty() {
        return Err(FileDiagnostic::for_file(&name, "the directory has no ruleset", "add at least one *.xml file"));
    }
    files.sort();
    Ok(files)
}

/// Checks the set that a queue offers as an alternative; it needs all files of the directory.
fn check_offer_target(path: &Path, ruleset: &Ruleset, all: &[(PathBuf, Arc<Ruleset>)]) -> Option<FileDiagnostic> {
    let offered = ruleset.queue.as_ref()?.offer?.set_id;
    let file_diagnostics = all.iter().find(|(_, other)| other.set_id == offered);
    let reason = match file_diagnostics {
        None => "no file has that SetId".to_owned(),
        Some((file, other)) if other.queue.is_none() => format!("{} has no <Queue>", file.display()),
        Some(_) => return None,
    };
    let problem = format!("<Offer> names set {offered}, but {reason}");
    Some(FileDiagnostic::for_file(&path.to_string_lossy(), problem, "name a set with a <Queue>"))
}

/// Checks that a ruleset's rating pool has the scale that it has in the first file that names it.
fn check_rating_pool(path: &Path, ruleset: &Ruleset, all: &[(PathBuf, Arc<Ruleset>)]) -> Option<FileDiagnostic> {
    let (pool, scale) = (ruleset.rating_pool.as_ref()?, ruleset.rating.as_ref()?.scale());
    let (first, other) = all.iter().find(|(_, other)| other.rating_pool.as_ref() == Some(pool))?;
    let first_scale = other.rating.as_ref()?.scale();
    if first_scale == scale {
        return None;
    }
    let problem = format!("rating pool `{pool}` has the scale {scale} here, and {first_scale} in {}", first.display());
    let fix = "use the same System, and the same constants that place its numbers, in both files, or another Pool";
    Some(FileDiagnostic::for_file(&path.to_string_lossy(), problem, fix))
}

fn duplicate_set_id_diagnostic(first: &Path, second: &Path, set_id: SetId) -> FileDiagnostic {
    let problem = format!("SetId {set_id} is already used by {}", first.display());
    FileDiagnostic::for_file(&second.to_string_lossy(), problem, "change the SetId of one file, or delete the file")
}
