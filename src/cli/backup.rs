//! `fireteam backup` and `fireteam restore`: copy the SQLite file and the key files of a server, and put them back.
//!
//! A backup is a store of its own: the database, and beside it the key files under the names that a server looks for. It has no
//! erasure log: the server's own names the users that were erased since the backup.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Arg, Args};

use crate::cli::ExitStatus;
use crate::cli::error_text::error_text;
use crate::cli::serve::exit_status_for;
use crate::config::raw::ServeFlags;
use crate::config::{Config, StoreTarget};
use crate::files;
use crate::store::erasure_log::read_erasures;
use crate::store::sqlite::backup;

/// Settings that both commands use; the help leaves out the others, which are accepted as for `serve`.
const USED_SETTINGS: [&str; 8] = [
    "config",
    "store",
    "token_key_file",
    "match_key_file",
    "user_key_file",
    "beacon_fleet_key_file",
    "erasure_log_file",
    "help",
];

/// Maximum size of a key file, bytes.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Flags of `fireteam backup`.
#[derive(Debug, Args)]
pub struct BackupFlags {
    /// Backup to write; must not exist. Key files are copied beside it.
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Copy the database only.
    #[arg(long)]
    without_keys: bool,
    #[command(flatten)]
    serve: ServeFlags,
}

/// Flags of `fireteam restore`.
#[derive(Debug, Args)]
pub struct RestoreFlags {
    /// Backup to restore; stays as it is.
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// Replace the database if it exists. Its content is lost.
    #[arg(long)]
    force: bool,
    /// Copy of the erasure log, if the server's own is lost. Only for a store without one.
    #[arg(long, value_name = "FILE")]
    erasures: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeFlags,
}

/// Hides the settings of `serve` that these commands do not use from the help.
pub fn hide_unused_settings(argument: Arg) -> Arg {
    let own = ["to", "without_keys", "from", "force", "erasures"];
    let id = argument.get_id().as_str();
    let is_used = USED_SETTINGS.contains(&id) || own.contains(&id);
    if is_used { argument } else { argument.hide(true) }
}

/// Writes a backup, and prints its files.
pub(super) fn back_up(flags: BackupFlags, out: &mut dyn Write) -> ExitStatus {
    let BackupFlags { to, without_keys, serve } = flags;
    run(serve, |config, source| {
        let key_files = if without_keys { Vec::new() } else { key_files_to_copy(config, &to) };
        for (_, copy) in &key_files {
            if copy.exists() {
                bail!("{} exists; move it away, or name another backup", copy.display());
            }
        }
        // The database is last: a backup that exists is complete.
        for (key_file, copy) in &key_files {
            copy_key_file(key_file, copy)?;
        }
        let checked = match block_on(backup::back_up_database(source, &to)) {
            Ok(checked) => checked,
            Err(error) => {
                key_files.iter().for_each(|(_, copy)| drop(fs::remove_file(copy)));
                return Err(error);
            }
        };
        writeln!(out, "{}: {} bytes, schema {}, checked", to.display(), checked.bytes, checked.schema_version)?;
        for (key_file, copy) in &key_files {
            writeln!(out, "{}: copy of {}", copy.display(), key_file.display())?;
        }
        Ok(())
    })
}

/// Restores a backup, and prints what the next start will do.
pub(super) fn restore(flags: RestoreFlags, out: &mut dyn Write) -> ExitStatus {
    let RestoreFlags { from, force, erasures, serve } = flags;
    run(serve, |config, target| {
        let key_files: Vec<_> = key_files_to_copy(config, &from).into_iter().map(|(file, copy)| (copy, file)).collect();
        check_user_key(&key_files, config)?;
        let erasure_log = place_erasure_log(config, erasures.as_deref())?;
        let checked = block_on(backup::restore_database(&from, target, force))?;
        writeln!(out, "{}: restored, {} bytes, schema {}", target.display(), checked.bytes, checked.schema_version)?;
        if checked.schema_version < backup::supported_schema_version() {
            writeln!(out, "  the next start migrates it to schema {}", backup::supported_schema_version())?;
        }
        for (copy, file) in &key_files {
            if restore_key_file(copy, file)? {
                writeln!(out, "{}: restored", file.display())?;
            } else {
                writeln!(out, "{}: kept, it exists", file.display())?;
            }
        }
        let pending = match read_erasures(&erasure_log)? {
            Some(kept) => {
                let position = block_on(backup::read_erasure_position_of_file(target, kept.file_id))?;
                if kept.has_dropped_after(position) {
                    writeln!(
                        out,
                        "{}: erasures since this backup are no longer in it; erase again by your own records",
                        erasure_log.display()
                    )?;
                }
                kept.after(position).len()
            }
            None => {
                writeln!(
                    out,
                    "{}: there is no erasure log; erase again by your own records whom you erased since the backup",
                    erasure_log.display()
                )?;
                0
            }
        };
        writeln!(out, "users to erase again at the next start, before it serves: {pending}")?;
        Ok(())
    })
}

/// Loads the configuration as `serve` does, and runs `action` with the path of the SQLite file. Prints errors.
fn run(serve: ServeFlags, action: impl FnOnce(&Config, &Path) -> anyhow::Result<()>) -> ExitStatus {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let config = match Config::load(serve, variables) {
        Ok(config) => config,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("fireteam: {problem}"));
            return ExitStatus::UsageError;
        }
    };
    let StoreTarget::Sqlite(path) = &config.store else {
        eprintln!(
            "fireteam: store: only a sqlite: store is copied by this command; for Postgres use pg_dump or pg_basebackup, see \
             docs/BACKUP.md"
        );
        return ExitStatus::UsageError;
    };
    match action(&config, path) {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            eprintln!("fireteam: {}", error_text(&error));
            exit_status_for(&error)
        }
    }
}

fn block_on<T, E>(operation: impl Future<Output = Result<T, E>>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(operation)?)
}

/// Key files of the configuration, each with its place beside the database at `backup`. Of a backup, those that exist there.
fn key_files_to_copy(config: &Config, backup: &Path) -> Vec<(PathBuf, PathBuf)> {
    let files = [
        (&config.token_key_file, "token-key"),
        (&config.match_key_file, "match-key.pem"),
        (&config.user_key_file, "user-key"),
        (&config.beacon_fleet_key_file, "beacon-fleet-key"),
    ];
    let pairs = files.into_iter().filter_map(|(file, ending)| Some((file.clone()?, backup.with_extension(ending))));
    pairs.filter(|(file, copy)| file.exists() || copy.exists()).collect()
}

/// Copies a key file, which must be readable by its owner only, to one that does not exist.
fn copy_key_file(from: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes =
        files::read_file_start(from, KEY_FILE_BYTES_MAX + 1).with_context(|| format!("read {}", from.display()))?;
    if bytes.len() as u64 > KEY_FILE_BYTES_MAX {
        bail!("{} is larger than {KEY_FILE_BYTES_MAX} bytes; it is no key file", from.display());
    }
    write_private_file(to, &bytes).with_context(|| format!("write {}", to.display()))
}

fn write_private_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Copies a key file of the backup, unless the server has one. Returns whether it was copied.
fn restore_key_file(copy: &Path, file: &Path) -> anyhow::Result<bool> {
    if file.exists() || !copy.exists() {
        return Ok(false);
    }
    copy_key_file(copy, file)?;
    Ok(true)
}

/// Refuses a user key that differs from that of the backup: users would change their keys, and the erasure log could not be read.
fn check_user_key(key_files: &[(PathBuf, PathBuf)], config: &Config) -> anyhow::Result<()> {
    let is_user_key = |file: &Path| config.user_key_file.as_deref() == Some(file);
    let Some((copy, file)) = key_files.iter().find(|(_, file)| is_user_key(file)) else { return Ok(()) };
    if !copy.exists() || !file.exists() {
        return Ok(());
    }
    let read = |path: &Path| {
        files::read_file_start(path, KEY_FILE_BYTES_MAX).with_context(|| format!("read {}", path.display()))
    };
    if read(copy)?.trim_ascii() != read(file)?.trim_ascii() {
        bail!(
            "{} is another user key than that of the backup; move it away to use the backup's, or name the right file with \
             --user-key-file",
            file.display()
        );
    }
    Ok(())
}

/// Path of the server's erasure log. Copies `given` there if it has none.
fn place_erasure_log(config: &Config, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(log) = config.erasure_log_file.clone() else { bail!("erasure_log_file is not set; name a file") };
    let existing = read_erasures(&log)?;
    if let Some(given) = given {
        if existing.is_some() {
            bail!(
                "--erasures {}: the server has {}, which is used; leave the flag out",
                given.display(),
                log.display()
            );
        }
        if read_erasures(given)?.is_none() {
            bail!("--erasures {}: the file is missing or empty; name a copy of the erasure log", given.display());
        }
        drop(fs::remove_file(&log));
        let bytes = fs::read(given).with_context(|| format!("read {}", given.display()))?;
        write_private_file(&log, &bytes).with_context(|| format!("write {}", log.display()))?;
    }
    Ok(log)
}
