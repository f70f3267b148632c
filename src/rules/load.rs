//! Reads a directory of rulesets, whole: every file is sound, or none is taken.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::limit::{RULESET_FILE_BYTES_MAX, RULESET_FILES_MAX};
use crate::domain::ruleset::Ruleset;
use crate::rules::{RenderedDiagnostic, decode_utf8, parse_ruleset};

/// Every `*.xml` file of `directory`, in name order, read and checked; or everything that is wrong with them.
///
/// Symbolic links are followed. Names that begin with a dot are skipped: editors and Kubernetes (`..data`) keep their
/// own things there. A directory without a ruleset is a problem: an empty mount must not empty the server.
pub fn load_directory(directory: &Path) -> Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<RenderedDiagnostic>> {
    let files = list_ruleset_files(directory).map_err(|problem| vec![problem])?;
    let mut rulesets: Vec<(PathBuf, Arc<Ruleset>)> = Vec::new();
    let mut problems = Vec::new();
    for path in files {
        match read_file(&path).and_then(|text| parse_ruleset(&path.to_string_lossy(), &text)) {
            Ok(ruleset) => match rulesets.iter().find(|(_, known)| known.set_id == ruleset.set_id) {
                Some((first, _)) => problems.push(duplicate_set_id(first, &path, &ruleset)),
                None => rulesets.push((path, Arc::new(ruleset))),
            },
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        problems.extend(rulesets.iter().filter_map(|(path, ruleset)| check_offered_set(path, ruleset, &rulesets)));
    }
    if problems.is_empty() { Ok(rulesets) } else { Err(problems) }
}

/// The text of one file; never more of it is read than a ruleset may have.
pub fn read_file(path: &Path) -> Result<String, Vec<RenderedDiagnostic>> {
    let name = path.to_string_lossy();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(RULESET_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(vec![RenderedDiagnostic::for_file(
            &name,
            format!("the file cannot be read: {error}"),
            "make it readable",
        )]);
    }
    decode_utf8(&name, &bytes).map(str::to_owned)
}

fn list_ruleset_files(directory: &Path) -> Result<Vec<PathBuf>, RenderedDiagnostic> {
    let name = directory.to_string_lossy();
    let unreadable = |error: std::io::Error| {
        RenderedDiagnostic::for_file(
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
        if RULESET_FILES_MAX < files.len() {
            let what = format!("the directory holds more than {RULESET_FILES_MAX} rulesets");
            return Err(RenderedDiagnostic::for_file(&name, what, "keep one file for each matchmaking set"));
        }
    }
    if files.is_empty() {
        return Err(RenderedDiagnostic::for_file(
            &name,
            "the directory holds no ruleset",
            "put at least one *.xml file into it",
        ));
    }
    files.sort();
    Ok(files)
}

/// What is wrong with the set that a queue offers to those who wait long; only a whole directory can tell.
fn check_offered_set(path: &Path, ruleset: &Ruleset, all: &[(PathBuf, Arc<Ruleset>)]) -> Option<RenderedDiagnostic> {
    let offered = ruleset.queue.as_ref()?.offer?.set_id;
    let found = all.iter().find(|(_, other)| other.set_id == offered);
    let why = match found {
        None => "no file rules it".to_owned(),
        Some((file, other)) if other.queue.is_none() => format!("{} has no <Queue>", file.display()),
        Some(_) => return None,
    };
    let what = format!("<Offer> names set {offered}, but {why}");
    Some(RenderedDiagnostic::for_file(&path.to_string_lossy(), what, "name a set that can be entered instead"))
}

fn duplicate_set_id(first: &Path, second: &Path, ruleset: &Ruleset) -> RenderedDiagnostic {
    let set_id = ruleset.set_id;
    let what = format!("set {set_id} is already ruled by {}", first.display());
    RenderedDiagnostic::for_file(
        &second.to_string_lossy(),
        what,
        "give one of the two files another SetId, or delete it",
    )
}
