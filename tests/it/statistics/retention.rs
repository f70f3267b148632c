//! Retention of statistics: a period has all of its hours, rows past it are purged as fast as they come, and neither makes players
//! wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fireteam::clock::Clock as _;
use fireteam_client::pb;
use tokio::time::Instant;

use crate::statistics::searches::{party, rooms_with_queue};
use crate::statistics::{of_hour, refusals, rows, statistics};
use crate::support::generated_client::{DistributionKind, GetStatisticsRequest, MatchmakingDoor, StatisticsPeriod};
use crate::support::party_site::{PartySite, on_each_store};
use crate::support::queue_server::{SET_ID, enter_request, operator_client, servers_on_each_store, wait_until};
use crate::support::test_server::advertise_request;

const HOUR_MS: u64 = 3_600_000;

const WEEK_MS: u64 = 7 * 24 * HOUR_MS;

/// Inserts this many times from entering to a match into the store, one row each, over hours that begin with `first_hour`.
async fn insert_rows(site: &PartySite, row_count: u64, first_hour: u64, hours: u64) {
    site.execute(&format!(
        "with recursive number (n) as (select 0 union all select n + 1 from number where n + 1 < {row_count}) \
         insert into statistic (hour_ms, kind, set_id, region, party_size, ruleset_hash, rule, bucket, count, total) \
         select {first_hour} + n % {hours} * {HOUR_MS}, 2, 1000 + n / {hours}, '', 1, 0, '', 1, 1, 1500.0 from number"
    ))
    .await;
}

/// S1-96: a week begins with the hour seven days ago. Its counts are in the answer to the end of the hour, also after a purge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_hour_of_a_period_is_kept() {
    for (server, _database) in servers_on_each_store("first_hour_of_a_period_is_kept", &rooms_with_queue()).await {
        // Not at the start of an hour.
        server.clock.advance_ms(HOUR_MS + 600_000 - server.clock.now().0 % HOUR_MS);
        let client = server.client().await;
        let session = advertise_request(&[("host", 0.0)], 3);
        let session = pb::MatchmakingUpdateAdvertisementRequest { matchmaking_set_id: Some(SET_ID), ..session };
        client.update_advertisement(session).await.expect("advertise");
        let found = client.new_search(SET_ID, party("ann", 30.0, &[])).search().await.expect("search");
        assert_eq!(found.refusals.len(), 1, "{found:?}");
        let mut operator = operator_client(&server).await;
        let mut week = async || {
            let request = GetStatisticsRequest { period: StatisticsPeriod::Week.into(), ..Default::default() };
            let found = operator.get_statistics(request).await.expect("statistics").into_inner();
            (
                found.since_unix_ms,
                refusals(&found, MatchmakingDoor::Search).iter().map(|(.., count)| count).sum::<u64>(),
            )
        };
        let first_hour = server.clock.now().0 / HOUR_MS * HOUR_MS;
        assert_eq!(week().await, (Some(first_hour - WEEK_MS), 1));
        server.clock.advance_ms(WEEK_MS + 1_200_000);
        // The call purges before it reads.
        assert_eq!(week().await, (Some(first_hour), 1));
        server.clock.advance_ms(HOUR_MS);
        assert_eq!(week().await, (Some(first_hour + HOUR_MS), 0));
        server.shut_down().await;
    }
}

/// More rows than one purge deletes go away within some seconds, not one hour after the other.
async fn purge_deletes_all_that_is_due(site: PartySite) {
    let now = site.clock.now().0 / HOUR_MS * HOUR_MS;
    insert_rows(&site, 25_000, now - WEEK_MS - 5 * HOUR_MS, 5).await;
    insert_rows(&site, 50, now - WEEK_MS, 5).await;
    statistics(&site, 0, of_hour()).await;
    site.clock.advance_ms(HOUR_MS - 1);
    let mut rows_left = 0;
    wait_until("the rows past their time are purged", async || {
        site.clock.advance_ms(1);
        statistics(&site, 0, of_hour()).await;
        rows_left = site.count_rows("select count(*) from statistic where 1000 <= set_id").await;
        rows_left <= 50
    })
    .await;
    assert!((40..=50).contains(&rows_left), "{rows_left}");
    site.shut_down().await;
}

on_each_store! {
    purge_deletes_all_that_is_due, rooms_with_queue(),
        purge_deletes_all_that_is_due_on_sqlite, purge_deletes_all_that_is_due_on_postgres;
}

/// An operator's read of a week of rows takes as long as it takes; meanwhile players enter and leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_do_not_wait_for_a_read_of_statistics() {
    let site = PartySite::on_sqlite(&rooms_with_queue()).await;
    let now = site.clock.now().0 / HOUR_MS * HOUR_MS;
    insert_rows(&site, 400_000, now - 100 * HOUR_MS, 100).await;
    let is_read = AtomicBool::new(false);
    let read = async {
        let week = GetStatisticsRequest { period: StatisticsPeriod::Week.into(), ..Default::default() };
        let found = statistics(&site, 0, week).await;
        is_read.store(true, Ordering::Release);
        found
    };
    let writes = async {
        let client = site.player("ann").await;
        let mut longest = Duration::ZERO;
        while !is_read.load(Ordering::Acquire) {
            let started = Instant::now();
            let mut ticket = client.enter_queue(enter_request(SET_ID, &[("ann", 20.0)])).await.expect("enter");
            ticket.leave().await.expect("leave");
            longest = longest.max(started.elapsed());
        }
        longest
    };
    let started = Instant::now();
    let (found, longest) = tokio::join!(read, writes);
    let duration = started.elapsed();
    let waits = rows(&found, DistributionKind::EnterToMatchMs);
    assert_eq!((waits.len(), waits[0]), (4_000, ("", "", 100, 150_000.0)));
    assert!(longest * 3 < duration, "two writes took {longest:?} during a read of {duration:?}");
    site.shut_down().await;
}
