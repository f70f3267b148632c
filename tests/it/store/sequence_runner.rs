//! How random sequences of changes are run on each kind of store, whatever they are changes of.

use std::path::Path;

use fireteam::store::postgres::{PostgresStore, Replica};
use fireteam::store::sqlite::SqliteStore;
use proptest::test_runner::{Config, TestRunner};
use sqlx::Executor as _;
use tokio::runtime::Runtime;

use crate::support::database::{TestDatabase, create_test_database};

/// Runs `cases` sequences, times `SCALE`.
pub(crate) fn runner(cases: u32) -> TestRunner {
    let scale = std::env::var_os("SCALE").map_or(1, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
    TestRunner::new(Config { cases: cases * scale, failure_persistence: None, ..Config::default() })
}

/// What a store in this process runs on.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The file at `path`, opened again after whatever had it open was dropped.
pub(crate) async fn reopened(path: &Path, before: Option<SqliteStore>) -> SqliteStore {
    drop(before);
    SqliteStore::open(path).await.expect("a file that it made itself")
}

/// A database, and what its clients run on.
pub(crate) struct Shared {
    pub(crate) runtime: Runtime,
    database: TestDatabase,
}

/// `None` where there is no Postgres, which is said.
pub(crate) fn shared(test: &str) -> Option<Shared> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let database = runtime.block_on(create_test_database(test))?;
    Some(Shared { runtime, database })
}

impl Shared {
    /// Server `number`, after the one before it was dropped.
    pub(crate) async fn server(&self, number: u64, before: Option<PostgresStore>) -> PostgresStore {
        drop(before);
        PostgresStore::open(&self.database.url, Replica { id: number, silos: None }).await.expect("a server")
    }

    /// Empties these tables, for the next sequence.
    pub(crate) async fn empty(&self, tables: &str) {
        let mut connection = self.database.connect().await;
        connection.execute(sqlx::AssertSqlSafe(format!("truncate {tables}"))).await.expect("empty tables");
    }
}
