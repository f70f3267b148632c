//! Reads a directory of rulesets, whole: every file is sound, or none is taken.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::domain::limit::{RULESET_BYTES_MAX, RULESET_FILES_MAX};
use crate::domain::ruleset::Ruleset;
use crate::rules::{Problem, parse, text_of};

/// Every `*.xml` file of `directory`, in name order, read and checked; or everything that is wrong with them.
///
/// Symbolic links are followed. Names that begin with a dot are skipped: editors and Kubernetes (`..data`) keep their
/// own things there. A directory without a ruleset is a problem: an empty mount must not empty the server.
pub fn load(directory: &Path) -> Result<Vec<(PathBuf, Arc<Ruleset>)>, Vec<Problem>> {
    let files = list(directory).map_err(|problem| vec![problem])?;
    let mut rulesets: Vec<(PathBuf, Arc<Ruleset>)> = Vec::new();
    let mut problems = Vec::new();
    for path in files {
        match read(&path).and_then(|text| parse(&path.to_string_lossy(), &text)) {
            Ok(ruleset) => match rulesets.iter().find(|(_, known)| known.set_id == ruleset.set_id) {
                Some((first, _)) => problems.push(claimed_twice(first, &path, &ruleset)),
                None => rulesets.push((path, Arc::new(ruleset))),
            },
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() {
        problems.extend(rulesets.iter().filter_map(|(path, ruleset)| offers_nothing(path, ruleset, &rulesets)));
    }
    if problems.is_empty() { Ok(rulesets) } else { Err(problems) }
}

/// The text of one file; never more of it is read than a ruleset may have.
pub fn read(path: &Path) -> Result<String, Vec<Problem>> {
    let name = path.to_string_lossy();
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(RULESET_BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Err(vec![Problem::of_file(&name, format!("the file cannot be read: {error}"), "make it readable")]);
    }
    text_of(&name, &bytes).map(str::to_owned)
}

fn list(directory: &Path) -> Result<Vec<PathBuf>, Problem> {
    let name = directory.to_string_lossy();
    let unreadable = |error: std::io::Error| {
        Problem::of_file(&name, format!("the directory cannot be read: {error}"), "give a directory of rulesets")
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
            return Err(Problem::of_file(&name, what, "keep one file for each matchmaking set"));
        }
    }
    if files.is_empty() {
        return Err(Problem::of_file(&name, "the directory holds no ruleset", "put at least one *.xml file into it"));
    }
    files.sort();
    Ok(files)
}

/// What is wrong with the set that a queue offers to those who wait long; only a whole directory can tell.
fn offers_nothing(path: &Path, ruleset: &Ruleset, all: &[(PathBuf, Arc<Ruleset>)]) -> Option<Problem> {
    let offered = ruleset.queue.as_ref()?.offer?.set_id;
    let found = all.iter().find(|(_, other)| other.set_id == offered);
    let why = match found {
        None => "no file rules it".to_owned(),
        Some((file, other)) if other.queue.is_none() => format!("{} has no <Queue>", file.display()),
        Some(_) => return None,
    };
    let what = format!("<Offer> names set {offered}, but {why}");
    Some(Problem::of_file(&path.to_string_lossy(), what, "name a set that can be entered instead"))
}

fn claimed_twice(first: &Path, second: &Path, ruleset: &Ruleset) -> Problem {
    let set_id = ruleset.set_id;
    let what = format!("set {set_id} is already ruled by {}", first.display());
    Problem::of_file(&second.to_string_lossy(), what, "give one of the two files another SetId, or delete it")
}
