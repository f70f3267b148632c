//! Migration errors of both backends as store errors, with the remedy.

use sqlx::migrate::{MigrateError, Migrator};

use crate::store::error::StoreError;

/// Remedies other than starting the server that made the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryHint {
    /// Appended to "start the newer server" for a schema that is too new; may be empty.
    pub(super) for_newer_schema: &'static str,
    /// For a schema with a different text of the same migration.
    pub(super) for_changed_migration: &'static str,
}

/// Maps a failed migration to `known` to a store error. `map_error` maps the database's own errors.
pub(super) fn to_store_error(
    error: MigrateError,
    known: &Migrator,
    hint: RecoveryHint,
    map_error: fn(sqlx::Error) -> StoreError,
) -> StoreError {
    let RecoveryHint { for_newer_schema, for_changed_migration } = hint;
    match error {
        MigrateError::VersionMissing(version) => StoreError::Incompatible(format!(
            "the database has schema {version}, this server supports up to {}; start the newer server{for_newer_schema}",
            known.iter().map(|migration| migration.version).max().unwrap_or(0)
        )),
        MigrateError::VersionMismatch(version) => StoreError::Incompatible(format!(
            "migration {version} of the database has a different text; start the server that applied it, or \
             {for_changed_migration}"
        )),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => map_error(error),
        other => map_error(sqlx::Error::Migrate(Box::new(other))),
    }
}
