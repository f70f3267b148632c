//! What the failure of a migration means, whichever the database, and what to do about it.

use sqlx::migrate::{MigrateError, Migrator};

use crate::store::StoreError;

/// What may be done besides starting the server that made the schema.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecoveryHint {
    /// About one that is too new; nothing, or what follows the advice to start the newer server.
    pub(super) for_newer_schema: &'static str,
    /// About one that is of the same number and another text.
    pub(super) for_changed_migration: &'static str,
}

/// Says why bringing a schema up to `known` has failed. `unavailable` is what the database's own errors are.
pub(super) fn to_store_error(
    error: MigrateError,
    known: &Migrator,
    otherwise: RecoveryHint,
    unavailable: fn(sqlx::Error) -> StoreError,
) -> StoreError {
    let RecoveryHint { for_newer_schema: newer, for_changed_migration: foreign } = otherwise;
    match error {
        MigrateError::VersionMissing(version) => StoreError::Incompatible(format!(
            "the database has schema {version}, this server knows up to {}: start the newer server{newer}",
            known.iter().map(|migration| migration.version).max().unwrap_or(0)
        )),
        MigrateError::VersionMismatch(version) => StoreError::Incompatible(format!(
            "the database was made with another text of migration {version}: start the server that made it, or {foreign}"
        )),
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => unavailable(error),
        other => unavailable(sqlx::Error::Migrate(Box::new(other))),
    }
}
