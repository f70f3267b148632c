//! Stores that a newer server uses too: the pinned first schema, unknown rows, and the lowest version that may write.

use std::path::Path;

use fireteam::config::StoreTarget;
use fireteam::domain::id::SetId;
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::queues::{QueueKey, QueueOutcome, QueueStore};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::writer_version::STORE_FORMAT_VERSION;
use fireteam::store::{Store, StoreError, WriteOutcome};
use fireteam_client::RetryPolicy;
use sha2::{Digest as _, Sha256};
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

use crate::security::match_credential::operator_page;
use crate::store::advert_rows::{ad, ad_id, extend, put, reserve, seats};
use crate::store::queue_rows::{SILO, enter, heartbeat, match_id, new_match, propose, ticket, ticket_id, user};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::queue_server::wait_until;
use crate::support::source_tree;
use crate::support::test_server::{TestServer, advertise_request};

/// R12: the first schema is never rewritten, because servers compare its text with that of their database.
#[test]
fn first_schema_is_never_rewritten() {
    for (file, expected) in [
        ("migrations/postgres/0001_schema.sql", POSTGRES_SCHEMA_SHA256),
        ("migrations/sqlite/0001_schema.sql", SQLITE_SCHEMA_SHA256),
    ] {
        let text = std::fs::read(source_tree::repository_root().join(file)).unwrap();
        let actual: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            actual, expected,
            "{file} has changed; restore it and write a new migration: no server opens a database whose first schema \
             has another text, comments included"
        );
    }
}

const POSTGRES_SCHEMA_SHA256: &str = "faacaed3971bd641e5613b8737f912280493611dadba7c0c4bfc7f316707156b";
const SQLITE_SCHEMA_SHA256: &str = "72aaec84080b215b5371ffe8bf0a12aacd656199c50a95e4e876ba814b38270d";

const NEWER_VERSION: i64 = STORE_FORMAT_VERSION + 8;

async fn execute_on_file(path: &Path, text: &str) {
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

fn min_writer_version(version: i64) -> String {
    format!("update store_setting set value = {version} where name = 'min_writer_version'")
}

/// Checks a running store: `execute` changes the setting. The server stops writing at its next lease renewal, and writes
/// again if the setting is lowered.
async fn assert_writes_stop_while_the_setting_is_higher(store: &dyn Store, execute: impl AsyncFn(String)) {
    let queue = [QueueKey { set_id: SetId(1), silo: SILO }];
    assert_eq!(store.acquire_leases(&queue, 2_000).await.unwrap(), [true]);
    assert!(store.is_format_writable());
    execute(min_writer_version(NEWER_VERSION)).await;
    let refused = store.acquire_leases(&queue, 2_000).await.unwrap_err().to_string();
    assert!(refused.contains(&format!("format version {NEWER_VERSION} to write")), "{refused}");
    assert!(refused.contains(&format!("has format version {STORE_FORMAT_VERSION}")), "{refused}");
    assert!(!store.is_format_writable());
    let now = UnixMs(10);
    for refused in [
        store.commit_adverts(&[put(ad(1, 4, 10, "a"), 900, 10)]).await.map(drop),
        store.commit_queues(&[enter(ticket(1, 1, &[1]), 50, 0)]).await.map(drop),
        store.purge_tombstones_and_reservations(now).await,
        store.purge_queues(now).await,
    ] {
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    execute(min_writer_version(STORE_FORMAT_VERSION)).await;
    assert_eq!(store.acquire_leases(&queue, 2_000).await.unwrap(), [true]);
    store.commit_adverts(&[put(ad(1, 4, 10, "a"), 900, 10)]).await.unwrap();
    execute(min_writer_version(NEWER_VERSION)).await;
}

fn assert_refuses_to_open(opened: Result<impl Sized, StoreError>) {
    let Err(StoreError::Incompatible(text)) = opened else { panic!("opened, or another error") };
    assert!(text.contains(&format!("requires format version {NEWER_VERSION}")), "{text}");
    assert!(text.contains(&format!("has format version {STORE_FORMAT_VERSION}")), "{text}");
}

/// R12: a server below the store's minimum version stops writing, and does not start again.
#[tokio::test]
async fn sqlite_server_below_the_minimum_version_does_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    assert_writes_stop_while_the_setting_is_higher(&store, async |text| execute_on_file(&path, &text).await).await;
    store.close().await;
    assert_refuses_to_open(SqliteStore::open(&path).await);
}

async fn open_postgres(database: &TestDatabase, number: u64) -> Result<PostgresStore, StoreError> {
    PostgresStore::open(&database.url, FireteamReplica { id: number, silos: None }).await
}

/// R12: a server below the store's minimum version stops writing, and does not start again.
#[tokio::test]
async fn postgres_server_below_the_minimum_version_does_not_write() {
    let Some(database) = create_test_database("postgres_server_below_the_minimum_version_does_not_write").await else {
        return;
    };
    let store = open_postgres(&database, 1).await.unwrap();
    let execute = async |text: String| {
        database.connect().await.execute(AssertSqlSafe(text)).await.unwrap();
    };
    assert_writes_stop_while_the_setting_is_higher(&store, execute).await;
    assert_refuses_to_open(open_postgres(&database, 2).await);
}

/// Migration of a newer server: a column, and the row that records it.
fn newer_migration(checksum: &str) -> String {
    format!(
        "alter table ticket add column later integer not null default 0; insert into _sqlx_migrations (version, \
         description, success, checksum, execution_time) values (9999, 'later', true, {checksum}, 1)"
    )
}

/// R12: after a rollback, a server opens and writes a file that a newer server has migrated.
#[tokio::test]
async fn sqlite_file_with_a_newer_schema_is_used_after_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    execute_on_file(&path, &newer_migration("x'00'")).await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.commit_queues(&[enter(ticket(1, 5, &[1]), 9_000, 1)]).await.unwrap().len(), 1);
    assert_eq!(store.purge_and_load_queues(UnixMs(0)).await.unwrap().tickets.len(), 1);
    store.close().await;
    execute_on_file(&path, &min_writer_version(NEWER_VERSION)).await;
    assert_refuses_to_open(SqliteStore::open(&path).await);
    execute_on_file(&path, &min_writer_version(STORE_FORMAT_VERSION)).await;
    execute_on_file(&path, "update _sqlx_migrations set checksum = x'00' where version = 1").await;
    let Err(StoreError::Incompatible(text)) = SqliteStore::open(&path).await else { panic!("opened") };
    assert!(text.contains("migration 1 of the database has a different text"), "{text}");
}

/// R12: after a rollback, a server opens and writes a database that a newer server has migrated.
#[tokio::test]
async fn postgres_database_with_a_newer_schema_is_used_after_a_rollback() {
    let Some(database) = create_test_database("postgres_database_with_a_newer_schema_is_used_after_a_rollback").await
    else {
        return;
    };
    open_postgres(&database, 1).await.unwrap().close().await;
    let execute = async |text: &str| {
        database.connect().await.execute(AssertSqlSafe(text.to_owned())).await.unwrap();
    };
    execute(&newer_migration("'\\x00'")).await;
    let store = open_postgres(&database, 2).await.unwrap();
    assert_eq!(store.commit_queues(&[enter(ticket(1, 5, &[1]), 9_000, 1)]).await.unwrap().len(), 1);
    assert_eq!(store.purge_and_load_queues(UnixMs(0)).await.unwrap().tickets.len(), 1);
    store.close().await;
    execute(&min_writer_version(NEWER_VERSION)).await;
    assert_refuses_to_open(open_postgres(&database, 3).await);
    execute(&min_writer_version(STORE_FORMAT_VERSION)).await;
    execute("update _sqlx_migrations set checksum = '\\x00' where version = 1").await;
    let Err(StoreError::Incompatible(text)) = open_postgres(&database, 4).await else { panic!("opened") };
    assert!(text.contains("migration 1 of the database has a different text"), "{text}");
}

/// R12: while the store requires a newer server, this one is not ready and answers writes with STORE_UNAVAILABLE.
#[tokio::test]
async fn server_below_the_minimum_version_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let server = TestServer::start_with_config(|config| config.store = StoreTarget::Sqlite(path.clone())).await;
    let client = server.client().await.with_retry_policy(RetryPolicy::NEVER);
    client.advertise(advertise_request(&[("host", 0.0)], 5)).await.map(drop).unwrap();
    assert!(operator_page(&server, "/readyz").await.0.starts_with("http/1.1 200"));
    execute_on_file(&path, &min_writer_version(NEWER_VERSION)).await;
    wait_until("not ready", async || operator_page(&server, "/readyz").await.0.starts_with("http/1.1 503")).await;
    let error = client.advertise(advertise_request(&[("other", 0.0)], 5)).await.map(drop).unwrap_err();
    let reason = error.as_server_error().and_then(|status| status.reason.as_deref());
    assert_eq!(reason, Some("STORE_UNAVAILABLE"), "{error}");
    server.app.shutdown().await;
}

/// Every column of the rows of a newer server.
async fn read_unknown_rows(connection: &mut PgConnection) -> Vec<String> {
    let mut texts = Vec::new();
    for query in [
        "select coalesce(string_agg(a::text, '|' order by advertisement_id), '') from advertisement a \
         where kind = 99 or body like '%later%'",
        "select coalesce(string_agg(t::text, '|' order by ticket_id), '') from ticket t \
         where state = 99 or body like '%later%'",
        "select coalesce(string_agg(m::text, '|' order by match_id), '') from match m \
         where stage = 99 or body like '%later%'",
        "select coalesce(string_agg(r::text, '|' order by reservation_id), '') from reservation r where state = 99",
    ] {
        texts.push(sqlx::query_scalar(query).fetch_one(&mut *connection).await.unwrap());
    }
    texts
}

/// Changes rows as a newer server could: an unknown number in row 2 and a JSON key in row 3 of each table, the
/// reservation of advertisement 4, match 1, a column, and change records of another kind.
async fn write_newer_rows(newer: &mut PgConnection) {
    let id = |bytes: &[u8; 16]| sqlx::types::Uuid::from_bytes(*bytes);
    let (second, third) = (id(ad_id(2).as_bytes()), id(ad_id(3).as_bytes()));
    let (ticket_2, ticket_3, match_1) =
        (id(ticket_id(2).as_bytes()), id(ticket_id(3).as_bytes()), id(match_id(1).as_bytes()));
    for text in [
        "alter table advertisement add column later integer not null default 0".to_owned(),
        "alter table ticket add column later integer not null default 0".to_owned(),
        "update advertisement set later = 7".to_owned(),
        "update ticket set later = 7".to_owned(),
        format!("update advertisement set kind = 99, expires_ms = 5 where advertisement_id = '{second}'"),
        format!(
            "update advertisement set body = overlay(body placing '{{\"later\":1,' from 1 for 1), expires_ms = 5 \
             where advertisement_id = '{third}'"
        ),
        "update reservation set state = 99".to_owned(),
        format!("update ticket set state = 99, purge_at_ms = 5 where ticket_id = '{ticket_2}'"),
        format!(
            "update ticket set body = overlay(body placing '{{\"later\":1,' from 1 for 1) where ticket_id = '{ticket_3}'"
        ),
        format!("update match set stage = 99, purge_at_ms = 5 where match_id = '{match_1}'"),
        "insert into advertisement_change (batch_id, version, replica, kind, advertisement_ids) select \
         gen_random_uuid(), pg_current_xact_id()::text::bigint, 9, 200, array_agg(advertisement_id) from advertisement"
            .to_owned(),
        "insert into queue_change (batch_id, version, replica, kind, ticket_ids, match_ids, rated_users) select \
         gen_random_uuid(), pg_current_xact_id()::text::bigint, 9, 200, array_agg(ticket_id), \
         (select array_agg(match_id) from match), '{}' from ticket"
            .to_owned(),
    ] {
        newer.execute(AssertSqlSafe(text)).await.unwrap();
    }
}

/// Writes to known and unknown rows in one batch; `number` is an unused ticket and reservation.
async fn assert_only_known_rows_change(store: &PostgresStore, number: u32) {
    let writes = [heartbeat(1, 60), heartbeat(2, 60), heartbeat(3, 60), enter(ticket(number, 1, &[2]), 50, 0)];
    let outcomes = store.commit_queues(&writes).await.unwrap();
    assert!(matches!(outcomes[0], QueueOutcome::CurrentTicket(_)), "{outcomes:?}");
    assert_eq!(outcomes[1..3], [QueueOutcome::UnknownRow, QueueOutcome::UnknownRow]);
    assert_eq!(outcomes[3], QueueOutcome::AlreadyQueued { user: user(2), other_ticket: ticket_id(2) });
    let in_match = store.commit_queues(&[enter(ticket(number + 10, 2, &[4]), 50, 0)]).await.unwrap();
    assert_eq!(in_match, [QueueOutcome::AlreadyInMatch { user: user(4), match_id: match_id(1) }]);
    let reserved = store.commit_adverts(&[reserve(seats(number, 4, 1, 900), 20)]).await.unwrap();
    assert_eq!((reserved.outcomes, reserved.version_steps.len()), (vec![WriteOutcome::UnknownRow], 1));
}

/// R12: values of a newer server cost their rows and nothing else: at load, in the feed and in transactions, all other
/// rows work, and those rows stay as they are.
#[tokio::test]
async fn postgres_rows_of_a_newer_server_are_neither_loaded_nor_changed() {
    let test = "postgres_rows_of_a_newer_server_are_neither_loaded_nor_changed";
    let Some(database) = create_test_database(test).await else { return };
    let (here, there) = (open_postgres(&database, 1).await.unwrap(), open_postgres(&database, 2).await.unwrap());
    let all_adverts: Vec<_> = (1..=5).map(|n| put(ad(n, 4, 10, "word"), 5_000, 10)).collect();
    here.commit_adverts(&all_adverts).await.unwrap();
    here.commit_adverts(&[reserve(seats(4, 4, 1, 900), 20)]).await.unwrap();
    let tickets: Vec<_> = (1..=4).map(|n| enter(ticket(n, 1, &[n]), 50, 0)).collect();
    here.commit_queues(&tickets).await.unwrap();
    here.commit_queues(&[propose(new_match(1, 1, &[(4, &[4])]), 1)]).await.unwrap();
    let mut adverts = there.open_advert_feed().await.unwrap();
    let mut queues = there.open_queue_feed().await.unwrap();
    assert_eq!(adverts.read_batch(&[]).await.unwrap().changed.len(), 5);
    assert_eq!(queues.read_batch().await.unwrap().tickets.len(), 4);

    let mut newer = database.connect().await;
    write_newer_rows(&mut newer).await;
    let before = read_unknown_rows(&mut newer).await;
    assert!(before.iter().all(|text| !text.is_empty()));

    // The feed: known rows are changed, the others leave memory, and the feed continues.
    let batch = adverts.read_batch(&[]).await.unwrap();
    let changed: Vec<_> = batch.changed.iter().map(|stored| stored.advertisement.id).collect();
    assert!(!batch.is_snapshot);
    assert_eq!((changed, batch.removed), (vec![ad_id(1), ad_id(5)], vec![ad_id(2), ad_id(3), ad_id(4)]));
    let batch = queues.read_batch().await.unwrap();
    let changed: Vec<_> = batch.tickets.iter().map(|stored| stored.ticket.id).collect();
    assert!(!batch.is_snapshot);
    assert_eq!((changed, batch.removed_tickets), (vec![ticket_id(1), ticket_id(4)], vec![ticket_id(2), ticket_id(3)]));
    assert_eq!((batch.matches, batch.removed_matches), (Vec::new(), vec![match_id(1)]));
    here.commit_adverts(&[extend(5, 9_000, 20)]).await.unwrap();
    assert_eq!(adverts.read_batch(&[]).await.unwrap().changed.len(), 1);
    let counts = [("advertisement", 3), ("match", 1), ("result", 0), ("ticket", 2)];
    assert_eq!(there.unknown_row_counts(), counts);

    // Writes, by the server that knows the rows from its feed, and by one that finds them in its transaction.
    assert_only_known_rows_change(&there, 6).await;
    assert_only_known_rows_change(&here, 7).await;
    let outcomes =
        there.commit_adverts(&[put(ad(2, 4, 10, "new"), 5_000, 10), extend(1, 8_000, 20)]).await.unwrap().outcomes;
    assert_eq!(outcomes, [WriteOutcome::UnknownRow, WriteOutcome::Applied]);
    assert_eq!(read_unknown_rows(&mut newer).await, before);

    // A server that starts now loads the others, and its purge and expiry leave these rows.
    let third_server = open_postgres(&database, 3).await.unwrap();
    let loaded = third_server.load_advertisements(UnixMs(100)).await.unwrap();
    assert_eq!(loaded.iter().map(|stored| stored.advertisement.id).collect::<Vec<_>>(), [ad_id(1), ad_id(5)]);
    let data = third_server.purge_and_load_queues(UnixMs(10)).await.unwrap();
    assert_eq!(data.tickets.iter().map(|stored| stored.ticket.id).collect::<Vec<_>>(), [ticket_id(1), ticket_id(4)]);
    assert!(data.matches.is_empty());
    assert_eq!(third_server.unknown_row_counts(), counts);
    assert_eq!(read_unknown_rows(&mut newer).await, before);
}
