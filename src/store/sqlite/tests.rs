//! What can only be seen from within: the connection's state after a failure.

use sqlx::AssertSqlSafe;

use super::*;
use crate::domain::advertisement::{Advertisement, Kind};
use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::session::Session;

fn put(n: u8) -> Write {
    let advertisement = Advertisement {
        id: AdvertisementId::from_bytes([n; 16]),
        set_id: SetId(1),
        kind: Kind::Session,
        subject: None,
        since: UnixMs(1),
        hash: RulesetHash(1),
        session: Session { party_sizes: vec![1], ..Session::default() },
        allowed: vec![],
        connect_data: vec![n; 512],
    };
    let (expires, now) = (UnixMs(9_000), UnixMs(1));
    Write::Put { advertisement: Arc::new(advertisement), expires, confirmed: vec![], settled: vec![], now }
}

async fn pragma(store: &Sqlite, text: String) {
    let mut guard = store.connection_for_test().await;
    let connection = guard.as_mut().unwrap();
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await.unwrap();
}

/// R15: a full disk refuses a batch whole, harms nothing, and is over when there is room again.
#[tokio::test]
async fn a_full_disk_refuses_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let store = Sqlite::open(&folder.path().join("a.db")).await.unwrap();
    store.commit(&[put(1)]).await.unwrap();
    // SQLite's own limit gives the very error of a full disk, and goes with the connection, as room comes back.
    pragma(&store, "pragma max_page_count = 30".into()).await;
    let many: Vec<Write> = (2..200).map(put).collect();
    let refused = store.commit(&many).await.unwrap_err();
    assert!(refused.to_string().ends_with("a.db: the disk is full"), "{refused}");
    assert_eq!(store.load(UnixMs(2)).await.unwrap().len(), 1, "nothing of it happened");
    store.commit(&many).await.unwrap();
    assert_eq!(store.load(UnixMs(2)).await.unwrap().len(), 199);
}

/// R4: whatever a failed batch left open goes with its connection.
#[tokio::test]
async fn a_transaction_left_open_does_not_swallow_the_next_batch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = Sqlite::open(&path).await.unwrap();
    pragma(&store, "begin immediate".into()).await;
    assert!(store.commit(&[put(1)]).await.is_err(), "it cannot begin");
    assert_eq!(store.commit(&[put(2)]).await.unwrap().len(), 1);
    drop(store);
    assert_eq!(Sqlite::open(&path).await.unwrap().load(UnixMs(2)).await.unwrap().len(), 1);
}
