//! A database whose advisory locks do not exclude: the store does not open.

use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::{Store as _, StoreError};
use sqlx::Executor as _;

use crate::support::database::create_test_database;

/// Functions that stand in for a pooler: they shadow the database's own, and grant each lock at once.
const LYING_LOCKS: &str = "
    create schema liar;
    create function liar.pg_try_advisory_lock(integer, integer) returns boolean language sql as 'select true';
    create function liar.pg_try_advisory_xact_lock(integer, integer) returns boolean language sql as 'select true';
";

/// Searches the schema of the stand-in first.
const SHADOW: &str = "do $$ begin execute format('alter database %I set search_path = liar, pg_catalog, public', current_database()); end $$";

/// If two sessions take one advisory lock, one user could enter two queues at two servers. The error says what to do.
#[tokio::test]
async fn store_with_advisory_locks_that_do_not_exclude_is_refused() {
    let Some(database) = create_test_database("store_with_advisory_locks_that_do_not_exclude_is_refused").await else {
        return;
    };
    let open = async |id| PostgresStore::open(&database.url, FireteamReplica { id, silos: None }).await;
    open(1).await.expect("an honest database").close().await;
    let mut connection = database.connect().await;
    connection.execute(LYING_LOCKS).await.unwrap();
    connection.execute(SHADOW).await.unwrap();
    let Err(StoreError::Incompatible(text)) = open(2).await else { panic!("opened, or another error") };
    assert!(text.contains("two sessions took one advisory lock at the same time"), "{text}");
    assert!(text.contains("connect directly to the database, or set the pooler to session mode"), "{text}");
}
