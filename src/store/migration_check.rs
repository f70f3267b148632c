//! Databases whose schema another server made: which of them this server may use, and the remedy for the others.

use sqlx::migrate::{MigrateError, Migrator};

use crate::store::error::StoreError;
use crate::store::writer_version;

/// Maps a failed migration to a store error. `other_remedy` follows "start the server that applied it, or". `map_error`
/// maps the database's own errors.
pub(super) fn to_store_error(
    error: MigrateError,
    other_remedy: &str,
    map_error: fn(sqlx::Error) -> StoreError,
) -> StoreError {
    let incompatible = |problem: String| {
        StoreError::Incompatible(format!("{problem}; start the server that applied it, or {other_remedy}"))
    };
    match error {
        MigrateError::VersionMissing(version) => {
            incompatible(format!("migration {version} of the database is unknown to this server"))
        }
        MigrateError::VersionMismatch(version) => {
            incompatible(format!("migration {version} of the database has a different text"))
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => map_error(error),
        other => map_error(sqlx::Error::Migrate(Box::new(other))),
    }
}

/// Migrator for a database with the unknown migration `version`, if a newer server applied it and this server may still
/// write. It compares the texts of `known`. `min_writer_version` is `None` if it cannot be read.
///
/// Fails if the store requires a newer server.
pub(super) fn migrator_for_newer_schema(
    version: i64,
    known: &Migrator,
    min_writer_version: Option<i64>,
) -> Result<Option<Migrator>, StoreError> {
    let supported = known.iter().map(|migration| migration.version).max().unwrap_or(0);
    let Some(min_writer_version) = min_writer_version.filter(|_| supported < version) else { return Ok(None) };
    writer_version::check_at_open(min_writer_version)?;
    tracing::warn!(schema = version, supported, "newer schema of the database accepted");
    let mut migrator = Migrator::with_migrations(known.iter().cloned().collect());
    migrator.set_ignore_missing(true);
    Ok(Some(migrator))
}
