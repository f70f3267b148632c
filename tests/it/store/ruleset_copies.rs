//! Ruleset copies on every backend: reports of servers, and what a purge leaves.

use std::sync::Arc;

use fireteam::domain::id::{RulesetHash, SetId};
use fireteam::domain::queue::ticket::TicketEndReason;
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::ruleset_copies::{ReportedRuleset, RulesetCopy, RulesetReport};
use fireteam::store::sqlite::SqliteStore;

use crate::store::queue_rows::{end_ticket, enter, new_match, propose, ticket};
use crate::support::database::create_test_database;

fn reported(set: u32, hash: u32, text: &str) -> ReportedRuleset {
    ReportedRuleset {
        set_id: SetId(set),
        hash: RulesetHash(hash),
        file_name: format!("{set}.xml"),
        source_xml: Arc::from(text),
        load: None,
    }
}

fn report(active: Vec<ReportedRuleset>, now: u64) -> RulesetReport {
    RulesetReport { active, now: UnixMs(now), ..RulesetReport::default() }
}

fn keys(copies: &[RulesetCopy]) -> Vec<(u32, u32)> {
    copies.iter().map(|copy| (copy.set_id.0, copy.hash.0)).collect()
}

/// Reports, removes, retires and purges; the store must give the same rows to every later report.
async fn check_store(store: &dyn Store) {
    let apply = async |report: RulesetReport| store.apply_ruleset_report(&report).await.expect("applied");
    let hash = new_match(1, 1, &[(1, &[1])]).ruleset_hash.0;
    apply(report(vec![reported(1, hash, "<a/>"), reported(2, 7, "<b/>"), reported(3, 8, "<c/>")], 100)).await;
    let copies = apply(report(vec![reported(1, hash, "<a />")], 200)).await;
    assert_eq!(keys(&copies), [(1, hash), (2, 7), (3, 8)]);
    assert_eq!(
        (&*copies[0].source_xml, copies[0].last_active_at, copies[1].last_active_at),
        ("<a />", UnixMs(200), UnixMs(100))
    );
    let removed = RulesetReport { removed: vec![reported(2, 7, "<b/>")], ..report(vec![], 300) };
    assert_eq!(apply(removed.clone()).await[1].file_removed_at, Some(UnixMs(300)));
    let copies = apply(RulesetReport { sets_to_retire: vec![SetId(2)], now: UnixMs(400), ..removed }).await;
    assert_eq!((copies[1].file_removed_at, copies[1].set_retired_at), (Some(UnixMs(300)), Some(UnixMs(400))));
    assert_eq!(
        apply(RulesetReport { now: UnixMs(450), ..RulesetReport::default() }).await,
        copies,
        "stored as returned"
    );

    // A match of set 1 and a ticket of set 2 need their copies; nothing needs that of set 3.
    store.commit_queues(&[enter(ticket(1, 1, &[1]), 50, 0), enter(ticket(2, 2, &[2]), 50, 0)]).await.expect("enter");
    store.commit_queues(&[propose(new_match(1, 1, &[(1, &[1])]), 1)]).await.expect("propose");
    let purge = RulesetReport { purge_before: Some(UnixMs(1_000)), ..report(vec![], 1_100) };
    assert_eq!(keys(&apply(purge.clone()).await), [(1, hash), (2, 7)]);
    store.commit_queues(&[end_ticket(2, TicketEndReason::RulesetRetired, 70, 2)]).await.expect("end");
    assert_eq!(keys(&apply(purge).await), [(1, hash)]);
    let tickets = store.purge_and_load_queues(UnixMs(3)).await.expect("load").tickets;
    assert!(format!("{tickets:?}").contains("RulesetRetired"), "{tickets:?}");
}

#[tokio::test]
async fn ruleset_copies_in_memory() {
    check_store(&MemoryStore::new()).await;
}

#[tokio::test]
async fn ruleset_copies_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
    check_store(&store).await;
    store.close().await;
}

#[tokio::test]
async fn ruleset_copies_in_postgres() {
    let Some(database) = create_test_database("ruleset_copies_in_postgres").await else { return };
    let store = PostgresStore::open(&database.url, FireteamReplica { id: 1, silos: None }).await.unwrap();
    check_store(&store).await;
}
