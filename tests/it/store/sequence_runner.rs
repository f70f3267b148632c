//! Random sequences of store writes, run on a backend and on its reference model. `SCALE` multiplies their number.

use std::fmt::Debug;

use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::sqlite::SqliteStore;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestRunner};
use sqlx::Executor as _;
use tokio::runtime::Builder;

use crate::support::database::create_test_database;

/// One step of a sequence of writes `W`.
#[derive(Clone, Debug)]
pub(crate) enum Step<W> {
    Commit(Vec<W>),
    Load(u64),
    Purge(u64),
    /// Drops the store without closing it, and opens it again.
    Reopen,
}

/// Reference model that a store is compared with. Each method calls both and panics if they differ.
pub(crate) trait StoreModel: Default {
    /// A random write.
    type RandomWrite: Debug;
    async fn compare_commit(&mut self, store: &impl Store, writes: Vec<Self::RandomWrite>);
    async fn compare_load(&mut self, store: &impl Store, now: UnixMs);
    async fn purge_both(&mut self, store: &impl Store, now: UnixMs);
}

/// Runs every step on the store and on the model, then loads both.
async fn run_steps<M: StoreModel, S: Store>(
    steps: Vec<Step<M::RandomWrite>>,
    mut open: impl AsyncFnMut(Option<S>) -> S,
) {
    let mut store = open(None).await;
    let mut model = M::default();
    for step in steps.into_iter().chain([Step::Load(0)]) {
        match step {
            Step::Commit(writes) => model.compare_commit(&store, writes).await,
            Step::Load(now) => model.compare_load(&store, UnixMs(now)).await,
            Step::Purge(now) => model.purge_both(&store, UnixMs(now)).await,
            Step::Reopen => store = open(Some(store)).await,
        }
    }
}

/// Runner of `cases` sequences, times `SCALE`.
fn runner(cases: u32) -> TestRunner {
    let scale = std::env::var_os("SCALE").map_or(1, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
    TestRunner::new(Config { cases: cases * scale, failure_persistence: None, ..Config::default() })
}

/// Compares the memory store with the model.
pub(crate) fn compare_memory<M: StoreModel>(cases: u32, steps: impl Strategy<Value = Vec<Step<M::RandomWrite>>>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runner(cases).run(&steps, |steps| {
        runtime.block_on(run_steps::<M, _>(steps, async |before: Option<MemoryStore>| before.unwrap_or_default()));
        Ok(())
    });
    outcome.unwrap();
}

/// Compares the SQLite store with the model, with a new file per sequence.
pub(crate) fn compare_sqlite<M: StoreModel>(cases: u32, steps: impl Strategy<Value = Vec<Step<M::RandomWrite>>>) {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runner(cases).run(&steps, |steps| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let open = async |before: Option<SqliteStore>| {
            drop(before);
            SqliteStore::open(&path).await.expect("open the file again")
        };
        runtime.block_on(run_steps::<M, _>(steps, open));
        Ok(())
    });
    outcome.unwrap();
}

/// Compares the Postgres store with the model; each reopening is another replica. Empties `tables` after each sequence.
/// Skipped if Postgres is not installed.
pub(crate) fn compare_postgres<M: StoreModel>(
    test: &str,
    cases: u32,
    steps: impl Strategy<Value = Vec<Step<M::RandomWrite>>>,
    tables: &str,
) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let Some(database) = runtime.block_on(create_test_database(test)) else { return };
    let outcome = runner(cases).run(&steps, |steps| {
        runtime.block_on(async {
            let mut number = 0;
            let open = async |before: Option<PostgresStore>| {
                drop(before);
                number += 1;
                let replica = FireteamReplica { id: number, silos: None };
                PostgresStore::open(&database.url, replica).await.expect("open the replica")
            };
            run_steps::<M, _>(steps, open).await;
            let mut connection = database.connect().await;
            connection.execute(sqlx::AssertSqlSafe(format!("truncate {tables}"))).await.expect("empty tables");
        });
        Ok(())
    });
    outcome.unwrap();
}
