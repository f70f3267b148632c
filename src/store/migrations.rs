//! Schema migrations of each store. The build script lists the files of `migrations/`, so that a new file needs no other
//! change.

use std::sync::LazyLock;

use sqlx::SqlSafeStr as _;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// Migration file: version, description, SQL.
type MigrationFile = (i64, &'static str, &'static str);

/// Migrations of the SQLite store.
pub(super) static SQLITE: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/migrations_sqlite.rs"))));

/// Migrations of the Postgres store.
pub(super) static POSTGRES: LazyLock<Migrator> =
    LazyLock::new(|| migrator(&include!(concat!(env!("OUT_DIR"), "/migrations_postgres.rs"))));

fn migrator(files: &[MigrationFile]) -> Migrator {
    let migration = |&(version, description, sql): &MigrationFile| {
        Migration::new(version, description.into(), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_list_every_file_of_their_folder() {
        for (folder, migrator) in [("sqlite", &*SQLITE), ("postgres", &*POSTGRES)] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let mut files: Vec<String> = std::fs::read_dir(path)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let listed: Vec<String> = migrator
                .iter()
                .map(|migration| format!("{:04}_{}.sql", migration.version, migration.description.replace(' ', "_")))
                .collect();
            assert_eq!(listed, files, "{folder}");
        }
    }
}
