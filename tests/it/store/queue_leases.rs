//! Queue leases of replicas that share a Postgres: taken, lost with the life of their holder, and released.

use std::collections::BTreeSet;

use fireteam::domain::id::SetId;
use fireteam::store::queues::{LiveServers, QueueKey, QueueStore};
use fireteam::store::writer_version::STORE_FORMAT_VERSION;
use sqlx::Executor as _;

use crate::store::queue_replicas::open_replica;
use crate::store::queue_rows::SILO;
use crate::support::database::create_test_database;

/// S3-5: replicas share queues by leases. One replica holds a lease, by the database's clock, until it expires or is
/// released.
#[tokio::test]
async fn lease_of_a_queue_is_held_by_one_replica() {
    let Some(database) = create_test_database("lease_of_a_queue_is_held_by_one_replica").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let [first, second, other_connection] = [3, 1, 2].map(|set| QueueKey { set_id: SetId(set), silo: SILO });
    let (live, none) = (BTreeSet::from([1]), BTreeSet::new());
    assert_eq!(
        here.renew_lease_holder(60_000).await.unwrap(),
        LiveServers { was_this_server_live: false, others: none.clone() }
    );
    assert_eq!(
        there.renew_lease_holder(60_000).await.unwrap(),
        LiveServers { was_this_server_live: false, others: live.clone() }
    );
    assert_eq!(here.acquire_leases(&[first, second], 60_000).await.unwrap(), [true, true]);
    assert_eq!(there.acquire_leases(&[other_connection, first, second], 60_000).await.unwrap(), [true, false, false]);
    assert_eq!(
        here.acquire_leases(&[first, other_connection], 60_000).await.unwrap(),
        [true, false],
        "it keeps its own lease"
    );
    here.release_leases().await.unwrap();
    assert_eq!(
        there.renew_lease_holder(60_000).await.unwrap(),
        LiveServers { was_this_server_live: true, others: none.clone() }
    );
    assert_eq!(
        there.acquire_leases(&[first, other_connection], 60_000).await.unwrap(),
        [true, true],
        "a replica keeps its own leases when another releases all"
    );
    assert_eq!(here.renew_lease_holder(60_000).await.unwrap().others, BTreeSet::from([2]));
    assert_eq!(
        here.acquire_leases(&[second, first], 0).await.unwrap(),
        [true, false],
        "it renews for zero milliseconds"
    );
    assert_eq!(there.acquire_leases(&[second], 60_000).await.unwrap(), [true], "the lease has expired");
    assert_eq!(here.acquire_leases(&[], 60_000).await.unwrap(), Vec::<bool>::new());
}

/// S3-5: the leases of a replica end with its last sign of life, although their rows last longer. A replica that is late must
/// request them again. A server of an earlier version gives no sign: its leases last as long as their rows.
#[tokio::test]
async fn lease_ends_with_the_life_of_its_holder() {
    let Some(database) = create_test_database("lease_ends_with_the_life_of_its_holder").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let queue = [QueueKey { set_id: SetId(3), silo: SILO }];
    here.renew_lease_holder(60_000).await.unwrap();
    there.renew_lease_holder(60_000).await.unwrap();
    assert_eq!(here.acquire_leases(&queue, 60_000).await.unwrap(), [true]);
    assert_eq!(there.acquire_leases(&queue, 60_000).await.unwrap(), [false]);
    here.renew_lease_holder(0).await.unwrap();
    assert_eq!(there.renew_lease_holder(60_000).await.unwrap().others, BTreeSet::new());
    assert_eq!(there.acquire_leases(&queue, 60_000).await.unwrap(), [true]);
    assert!(!here.renew_lease_holder(60_000).await.unwrap().was_this_server_live);
    assert_eq!(here.acquire_leases(&queue, 60_000).await.unwrap(), [false]);
    assert_eq!(here.lowest_store_format().await.unwrap(), STORE_FORMAT_VERSION);

    let mut connection = database.connect().await;
    let take_as_earlier_server =
        "update queue_lease set replica = 7, expires_at = clock_timestamp() + interval '1 hour'";
    connection.execute(take_as_earlier_server).await.unwrap();
    assert_eq!(here.acquire_leases(&queue, 60_000).await.unwrap(), [false]);
    assert_eq!(here.lowest_store_format().await.unwrap(), 1);
    connection.execute("update queue_lease set expires_at = clock_timestamp()").await.unwrap();
    assert_eq!(here.acquire_leases(&queue, 60_000).await.unwrap(), [true]);
    assert_eq!(here.lowest_store_format().await.unwrap(), STORE_FORMAT_VERSION);
}

/// R12: a server of version 0.2.0 is known by its reports of connected users, also while it holds no lease.
#[tokio::test]
async fn lease_format_counts_earlier_servers_without_leases() {
    let Some(database) = create_test_database("lease_format_counts_earlier_servers_without_leases").await else {
        return;
    };
    let here = open_replica(&database, 1).await;
    here.renew_lease_holder(60_000).await.unwrap();
    let mut connection = database.connect().await;
    let report =
        "insert into connected_users (replica, silo_id, user_count, reported_at) values (7, 1, 5, clock_timestamp())";
    connection.execute(report).await.unwrap();
    assert_eq!(here.lowest_store_format().await.unwrap(), 1);
    connection
        .execute("update connected_users set reported_at = clock_timestamp() - interval '11 seconds'")
        .await
        .unwrap();
    assert_eq!(here.lowest_store_format().await.unwrap(), STORE_FORMAT_VERSION);
}
