//! What can only be seen from within: the connection's state after a failure.

use sqlx::AssertSqlSafe;

use super::*;
use crate::domain::advertisement::{Advertisement, AdvertisementKind};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::session::Session;

fn put(n: u8) -> AdvertWrite {
    put_until(n, 9_000)
}

fn put_until(n: u8, expires: u64) -> AdvertWrite {
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([n; 16]),
        set_id: SetId(1),
        kind: AdvertisementKind::Session,
        publisher: None,
        advertised_since: UnixMs(1),
        ruleset_hash: RulesetHash(1),
        session: Session { party_sizes: vec![1], ..Session::default() },
        allowed_ranges: vec![],
        connect_data: vec![n; 512],
    };
    let (expires, now) = (UnixMs(expires), UnixMs(1));
    AdvertWrite::Publish {
        advertisement: Arc::new(advertisement),
        expires_at: expires,
        confirmed_reservations: vec![],
        joined_reservations: vec![],
        now,
    }
}

async fn pragma(store: &SqliteStore, text: String) {
    let mut guard = store.connection_for_test().await;
    let connection = guard.as_mut().unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await.unwrap();
}

/// R15: a full disk refuses a batch whole, harms nothing, and is over when there is room again.
#[tokio::test]
async fn a_full_disk_refuses_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
    store.commit(&[put(1)]).await.unwrap();
    // SQLite's own limit gives the very error of a full disk, and goes with the connection, as room comes back.
    pragma(&store, "pragma max_page_count = 30".into()).await;
    let many: Vec<AdvertWrite> = (2..200).map(put).collect();
    let refused = store.commit(&many).await.unwrap_err();
    assert!(refused.to_string().ends_with("a.db: the disk is full"), "{refused}");
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 1, "nothing of it happened");
    store.commit(&many).await.unwrap();
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 199);
}

/// R4: whatever a failed batch left open goes with its connection.
#[tokio::test]
async fn a_transaction_left_open_does_not_swallow_the_next_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    pragma(&store, "begin immediate".into()).await;
    assert!(store.commit(&[put(1)]).await.is_err(), "it cannot begin");
    assert_eq!(store.commit(&[put(2)]).await.unwrap().outcomes.len(), 1);
    drop(store);
    assert_eq!(SqliteStore::open(&path).await.unwrap().load_advertisements(UnixMs(2)).await.unwrap().len(), 1);
}

/// Pages in the log's file, each with a header of 24 bytes.
fn log_pages(path: &std::path::Path) -> u64 {
    std::fs::metadata(path.with_extension("db-wal")).unwrap().len() / (1_024 + 24)
}

/// What the log is at most: its longest, and what one batch of thirty adds.
const BATCH_PAGES_MAX: u64 = 200;

/// What says the same as before is not written at all, so no two batches do.
async fn many_batches(store: &SqliteStore) {
    for round in 0..40_u8 {
        let batch: Vec<AdvertWrite> =
            (0..30).map(|n| put_until(round.wrapping_mul(7).wrapping_add(n), 9_000 + u64::from(round))).collect();
        store.commit(&batch).await.unwrap();
    }
}

/// The writer moves the log itself when nobody else has: without end it would fill the disk.
#[tokio::test]
async fn a_log_that_nobody_moves_stays_under_its_longest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let limits = WalLimits { checkpoint_pages: i64::MAX, writer_waits_pages: 300, final_pass_pages: 1 };
    let store = SqliteStore::open_with_limits(&path, limits).await.unwrap();
    many_batches(&store).await;
    let pages = log_pages(&path);
    assert!(pages < 300 + BATCH_PAGES_MAX, "{pages}");
    // The same without a limit, so that the test knows that it writes enough.
    let path = folder.path().join("b.db");
    let limits = WalLimits { checkpoint_pages: i64::MAX, writer_waits_pages: i64::MAX, final_pass_pages: 1 };
    let store = SqliteStore::open_with_limits(&path, limits).await.unwrap();
    many_batches(&store).await;
    let pages = log_pages(&path);
    assert!(2 * (300 + BATCH_PAGES_MAX) < pages, "{pages}");
}

/// A log that is long is moved beside the writer, and begins anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_log_is_moved_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let limits = WalLimits { checkpoint_pages: 100, writer_waits_pages: i64::MAX, final_pass_pages: 50 };
    let store = SqliteStore::open_with_limits(&path, limits).await.unwrap();
    many_batches(&store).await;
    // The last commit found the log long, or a round has just ended; either way all of it is moved in the end.
    loop {
        let log = store.file_access.lock().await.wal_length;
        if log.pages < limits.checkpoint_pages || log.pages == log.checkpointed_pages {
            break;
        }
        tokio::task::yield_now().await;
    }
    store.commit(&[put(1)]).await.unwrap();
    let log = store.file_access.lock().await.wal_length;
    assert!(log.pages < limits.checkpoint_pages, "{log:?}");
    assert_eq!(store.load_advertisements(UnixMs(2)).await.unwrap().len(), 256);
}

/// What happens at the longest, when somebody reads for ever: writing goes on.
#[tokio::test]
async fn a_reader_that_stays_holds_up_the_log_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open_with_limits(
        &path,
        WalLimits { checkpoint_pages: i64::MAX, writer_waits_pages: 50, final_pass_pages: 1 },
    )
    .await
    .unwrap();
    store.commit(&[put(1)]).await.unwrap();
    let mut reader = open::connect(&path).await.unwrap();
    sqlx::raw_sql("begin; select count(*) from advertisement").execute(&mut reader).await.unwrap();
    many_batches(&store).await;
    sqlx::raw_sql("commit").execute(&mut reader).await.unwrap();
    store.checkpoint().await.unwrap();
    store.commit(&[put(1)]).await.unwrap();
    assert!(store.file_access.lock().await.wal_length.pages < 50, "it begins anew when the reader has gone");
}
