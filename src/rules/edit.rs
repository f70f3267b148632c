//! Replacement of one file in a ruleset directory.

use std::io;
use std::path::Path;

use crate::files;

/// Reason that a ruleset file cannot be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditObstacle {
    /// The file has another text than the one that was loaded: a designer has edited it, and it was not loaded yet, or was
    /// rejected.
    EditedSinceLoad,
    /// The operating system refused; its message.
    NotWritable(String),
}

/// Checks that a file still has the text that was loaded. Blocks until a deadline.
pub fn check_is_unedited(file: &Path, loaded_text: &str) -> Result<(), EditObstacle> {
    // One byte more than the loaded text shows a longer file.
    let bytes = files::read_file_start(file, loaded_text.len() as u64 + 1).map_err(not_writable)?;
    if bytes == loaded_text.as_bytes() { Ok(()) } else { Err(EditObstacle::EditedSinceLoad) }
}

/// Replaces the text of a file in one step. Blocks until a deadline.
pub fn replace_text(file: &Path, text: &str) -> Result<(), EditObstacle> {
    files::replace_content(file, text.as_bytes().to_vec()).map_err(not_writable)
}

/// Reason that no file of a directory can be replaced, as far as it is known. Blocks until a deadline.
pub fn directory_obstacle(directory: &Path) -> Option<EditObstacle> {
    files::check_folder_is_writable(directory).err().map(not_writable)
}

fn not_writable(error: io::Error) -> EditObstacle {
    EditObstacle::NotWritable(error.to_string())
}
