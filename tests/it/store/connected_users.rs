//! Connected users of servers that share a Postgres: each user counts once.

use fireteam::domain::id::{SetId, SiloId};
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::PostgresStore;
use fireteam::store::queues::connected_users_report::ConnectedUsersReport;
use fireteam::store::queues::{QueueKey, QueueStore};
use sqlx::{Executor as _, PgConnection};

use crate::store::queue_replicas::open_replica;
use crate::support::database::create_test_database;

const LADDER: QueueKey = QueueKey { set_id: SetId(1), silo: SiloId(2) };

/// Report of users of the ladder, who are all listed.
fn report_of(connected: &[i64], disconnected: &[i64], count: u32) -> ConnectedUsersReport {
    let keys = |keys: &[i64]| keys.iter().map(|key| (LADDER, *key)).collect();
    ConnectedUsersReport {
        counts: vec![(LADDER, count)],
        newly_connected: keys(connected),
        newly_disconnected: keys(disconnected),
        is_list_complete: true,
        ..Default::default()
    }
}

/// S2-7: a user of two servers counts once, until the last one disconnects. Numbers without a list, as of servers of an earlier
/// version, are added.
#[tokio::test]
async fn connected_users_of_two_replicas_count_once() {
    let Some(database) = create_test_database("connected_users_of_two_replicas_count_once").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let count_here = |report: ConnectedUsersReport| ConnectedUsersReport { queues_to_total: vec![LADDER], ..report };
    let exchange = async |store: &PostgresStore, report: ConnectedUsersReport| {
        let totals = store.exchange_connected_users(&report).await.unwrap();
        totals.iter().find(|(key, _)| *key == LADDER).map_or(0, |(_, count)| *count)
    };
    assert_eq!(exchange(&there, report_of(&[1, 2, 3], &[], 3)).await, 3);
    assert_eq!(exchange(&here, count_here(report_of(&[2, 3, i64::MIN], &[], 3))).await, 4);
    assert_eq!(exchange(&there, report_of(&[], &[2], 2)).await, 4, "the number of the server that counts");
    assert_eq!(exchange(&here, count_here(report_of(&[], &[3], 2))).await, 4, "1 and 3 there, 2 and another here");
    assert_eq!(exchange(&there, report_of(&[], &[1, 3], 0)).await, 4);
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 2);
    let mut connection = database.connect().await;
    let earlier = "insert into connected_users_by_set (replica, set_id, silo_id, user_count, reported_at) \
                   values (9, 1, 2, 10, clock_timestamp())";
    connection.execute(earlier).await.unwrap();
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 12);
    // A list that is not complete counts as a number.
    let unlisted = ConnectedUsersReport { is_list_complete: false, ..report_of(&[2], &[], 500) };
    assert_eq!(exchange(&there, unlisted).await, 12);
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 512);
    let again = ConnectedUsersReport { replaces_list: true, ..report_of(&[2, 5], &[], 2) };
    exchange(&there, again).await;
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 13);
    // Whose queue another server runs now: its number is the latest.
    assert_eq!(exchange(&there, count_here(report_of(&[6], &[], 3))).await, 14);
    assert_eq!(exchange(&here, report_of(&[], &[], 2)).await, 14);
    // A server that stops takes its users with it; one that is killed, ten seconds later.
    there.release_leases().await.unwrap();
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 12);
    exchange(&there, report_of(&[7], &[], 1)).await;
    connection
        .execute(
            "update connected_users_by_set set reported_at = reported_at - interval '11 seconds' where replica <> 1",
        )
        .await
        .unwrap();
    assert_eq!(exchange(&here, count_here(report_of(&[], &[], 2))).await, 2);
    let rows = async |connection: &mut PgConnection| -> i64 {
        sqlx::query_scalar("select count(*) from connected_user").fetch_one(connection).await.unwrap()
    };
    assert_eq!(rows(&mut connection).await, 3);
    connection
        .execute("update connected_users_by_set set reported_at = reported_at - interval '1 minute' where replica <> 1")
        .await
        .unwrap();
    here.purge_queues(UnixMs(0)).await.unwrap();
    assert_eq!(rows(&mut connection).await, 2, "a killed server's list is purged");
}

/// S2-7: shares of connected players count the users of all replicas, separately for each set and silo.
#[tokio::test]
async fn connected_users_are_counted_over_all_replicas() {
    let Some(database) = create_test_database("connected_users_are_counted_over_all_replicas").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let queue = |set, silo| QueueKey { set_id: SetId(set), silo: SiloId(silo) };
    let (casual, other_silo) = (queue(2, 2), queue(1, u64::MAX));
    let report = async |store: &PostgresStore, counts: &[(QueueKey, u32)]| {
        let report = ConnectedUsersReport { counts: counts.to_vec(), ..Default::default() };
        store.exchange_connected_users(&report).await.unwrap()
    };
    assert_eq!(
        report(&here, &[(other_silo, 5), (casual, 30), (LADDER, 7)]).await,
        [(other_silo, 5), (LADDER, 7), (casual, 30)]
    );
    assert_eq!(report(&there, &[(LADDER, 10)]).await, [(other_silo, 5), (LADDER, 17), (casual, 30)]);
    assert_eq!(
        report(&here, &[(LADDER, 1)]).await,
        [(other_silo, 0), (LADDER, 11), (casual, 0)],
        "the latest report replaces the previous one"
    );
    let mut old = database.connect().await;
    let (per_silo, per_set): (i64, i64) =
        sqlx::query_as("select (select count(*) from connected_users), (select count(*) from connected_users_by_set)")
            .fetch_one(&mut old)
            .await
            .unwrap();
    assert_eq!((per_silo, per_set), (0, 4), "the table of earlier versions is not written");
    old.execute("update connected_users_by_set set reported_at = reported_at - interval '11 seconds'").await.unwrap();
    assert_eq!(report(&here, &[]).await, []);
    old.execute("update connected_users_by_set set reported_at = reported_at - interval '1 minute'").await.unwrap();
    here.purge_queues(UnixMs(0)).await.unwrap();
    let remaining: i64 =
        sqlx::query_scalar("select count(*) from connected_users_by_set").fetch_one(&mut old).await.unwrap();
    assert_eq!(remaining, 0, "counts of servers that are gone are purged");
}
