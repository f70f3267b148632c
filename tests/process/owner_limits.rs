//! Players with identities advertise and reserve again and again at three servers, of which some are being killed. Each has one
//! advertisement and one reservation at any time; what a newer one replaced stays replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam::domain::id::{AdvertisementId, ReservationId};
use fireteam_client::{Client, pb};
use sqlx::PgConnection;
use sqlx::types::Uuid;

use crate::cluster::Cluster;
use crate::identities::Identities;
use crate::limited_owner::{LimitedOwner, session_of};
use crate::report::{TestReport, scale, until};
use crate::seats::wait_for_open_transactions;
use crate::support::database::{TestDatabase, create_test_database};

const SERVERS: usize = 3;
const OWNERS: usize = 16;

/// Time in which servers are killed.
const KILLING_FOR: Duration = Duration::from_secs(20);

/// Advertisements and reservations of each owner before the first kill.
const CALLS_BEFORE_KILLS: usize = 5;

/// Interval at which the tables are read while servers are killed.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Owners that have more than one advertisement, or more than one live reservation.
const OWNERS_BEYOND_THE_LIMIT: &str = "select 'advertisements' as what, count(*) from \
     (select owner from advertisement where body is not null and owner is not null group by owner having count(*) > 1) a \
     union all select 'reservations', count(*) from \
     (select owner from reservation where state <> 2 and owner is not null group by owner having count(*) > 1) r";

/// Looks at the tables until stopped, and returns the number of looks and what was wrong.
async fn look_at_tables(mut connection: PgConnection, stop: Arc<AtomicBool>) -> (usize, BTreeSet<String>) {
    let (mut looks, mut violations) = (0, BTreeSet::new());
    while !stop.load(Ordering::SeqCst) {
        let counts: Vec<(String, i64)> =
            sqlx::query_as(OWNERS_BEYOND_THE_LIMIT).fetch_all(&mut connection).await.expect("counts");
        for (what, owners) in counts.into_iter().filter(|(_, owners)| *owners > 0) {
            violations.insert(format!("beyond the limit: {owners} owners have several {what}"));
        }
        looks += 1;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    (looks, violations)
}

/// Live advertisements, each with its live reservations.
async fn live_rows(database: &TestDatabase) -> BTreeMap<String, BTreeSet<String>> {
    let mut connection = database.connect().await;
    let advertised: Vec<Uuid> = sqlx::query_scalar("select advertisement_id from advertisement where body is not null")
        .fetch_all(&mut connection)
        .await
        .expect("advertisements");
    let reserved: Vec<(Uuid, Uuid)> =
        sqlx::query_as("select advertisement_id, reservation_id from reservation where state <> 2")
            .fetch_all(&mut connection)
            .await
            .expect("reservations");
    let name = |id: Uuid| AdvertisementId::from_bytes(*id.as_bytes()).to_string();
    let mut live: BTreeMap<String, BTreeSet<String>> =
        advertised.into_iter().map(|id| (name(id), BTreeSet::new())).collect();
    for (advertisement, reservation) in reserved {
        let reservation = ReservationId::from_bytes(*reservation.as_bytes()).to_string();
        live.entry(name(advertisement)).or_default().insert(reservation);
    }
    live
}

/// Compares the rows with what the owners know: each has the advertisement that it published last, and the reservation that it
/// made last if the session still exists.
fn compare_rows(owners: &[LimitedOwner], live: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut violations = Vec::new();
    let newest: BTreeSet<&str> = owners.iter().filter_map(LimitedOwner::newest_advertisement).collect();
    for id in live.keys().filter(|id| !newest.contains(id.as_str())) {
        violations.push(format!("replaced: {id} lives beside a newer advertisement of its owner"));
    }
    for id in newest.iter().filter(|id| !live.contains_key(**id)) {
        violations.push(format!("lost: {id} was published last, and is not stored"));
    }
    let mut expected: BTreeMap<&str, BTreeSet<String>> = newest.iter().map(|id| (*id, BTreeSet::new())).collect();
    for (advertisement, reservation) in owners.iter().filter_map(LimitedOwner::newest_reservation) {
        if let Some(reservations) = expected.get_mut(advertisement) {
            reservations.insert(reservation.to_owned());
        }
    }
    for (id, reservations) in expected.iter().filter(|(id, _)| live.contains_key(**id)) {
        if live[*id] != *reservations {
            violations.push(format!("seats of {id}: {:?} are stored, {reservations:?} were made last", live[*id]));
        }
    }
    violations
}

/// Waits until each server finds the stored advertisements, and tells their hosts the stored reservations.
async fn wait_for_agreement(
    cluster: &Cluster,
    identities: &Identities,
    owners: &[LimitedOwner],
    live: &BTreeMap<String, BTreeSet<String>>,
) {
    for at in 0..cluster.len() {
        let client = cluster.client(at, 0).expect("a server is running");
        let watcher = identities.client_of(&client, "watcher");
        let all: BTreeSet<&str> = live.keys().map(String::as_str).collect();
        until("the server finds the stored sessions", async || {
            let Ok(found) = watcher.new_search(1, session_of("watcher")).search().await else { return false };
            found.candidates.iter().map(|found| found.advertisement_id.as_str()).collect::<BTreeSet<_>>() == all
        })
        .await;
        for owner in owners {
            let Some(published) = owner.published.last() else { continue };
            let Some(reservations) = live.get(&published.advertisement_id) else { continue };
            let host = identities.client_of(&client, &owner.name);
            until("the server has the stored reservations", async || {
                told_reservations(&host, published).await.is_some_and(|told| told == *reservations)
            })
            .await;
        }
    }
}

/// Reservations in the answer to a heartbeat.
async fn told_reservations(
    host: &Client,
    published: &pb::MatchmakingUpdateAdvertisementResponse,
) -> Option<BTreeSet<String>> {
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: published.advertisement_id.clone(),
        advertisement_token: published.advertisement_token.clone(),
        ..Default::default()
    };
    let answer = host.update_advertisement(heartbeat).await.ok()?;
    Some(answer.reservations.into_iter().map(|held| held.reservation_id).collect())
}

/// One identity has one advertisement and one reservation, whenever a server is killed; a replaced advertisement does not
/// come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_have_one_of_each_when_servers_are_killed() {
    let mut report = TestReport::start("owner limits").await;
    let test = "owners_have_one_of_each_when_servers_are_killed";
    let Some(database) = create_test_database(test).await else { return };
    let identities = Arc::new(Identities::create());
    let arguments = identities.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--rate-limits", "off"]).collect();
    let cluster = Arc::new(Cluster::start_with(&database.url, SERVERS, &arguments));
    let stop = Arc::new(AtomicBool::new(false));
    let stop_looking = Arc::new(AtomicBool::new(false));
    let looking = tokio::spawn(look_at_tables(database.connect().await, Arc::clone(&stop_looking)));
    let made = Arc::new(Mutex::new(vec![0; OWNERS]));
    let tasks: Vec<_> = (0..OWNERS)
        .map(|number| {
            let (cluster, identities) = (Arc::clone(&cluster), Arc::clone(&identities));
            let mut owner = LimitedOwner::new(number, cluster, identities, report.rng(number as u64));
            let (stop, made) = (Arc::clone(&stop), Arc::clone(&made));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    owner.step().await;
                    made.lock().expect("unpoisoned")[number] = owner.published.len().min(owner.reserved.len());
                }
                owner
            })
        })
        .collect();
    until("each owner has replaced some of its own", async || {
        made.lock().expect("unpoisoned").iter().all(|made| CALLS_BEFORE_KILLS <= *made)
    })
    .await;

    let killing = {
        let (cluster, stop, rng) = (Arc::clone(&cluster), Arc::clone(&stop), report.rng(1_000));
        tokio::task::spawn_blocking(move || cluster.kill_at_random(&rng, 50..250, &stop))
    };
    tokio::time::sleep(KILLING_FOR.mul_f64(scale())).await;
    stop.store(true, Ordering::SeqCst);
    report.record("kills", killing.await.expect("the task ends"));
    let mut owners = Vec::new();
    for task in tasks {
        let mut owner = task.await.expect("the task ends");
        owner.resolve_open_call().await;
        owners.push(owner);
    }
    report.violations(wait_for_open_transactions(&database).await);
    for owner in &mut owners {
        owner.reserve_once_more().await;
        report.violations(std::mem::take(&mut owner.violations));
    }
    stop_looking.store(true, Ordering::SeqCst);
    let (looks, violations) = looking.await.expect("the task ends");
    report.violations(violations.into_iter().collect());
    report.record("looks at the tables", looks);
    report.record("advertisements", owners.iter().map(|owner| owner.published.len()).sum::<usize>());
    report.record("reservations", owners.iter().map(|owner| owner.reserved.len()).sum::<usize>());
    report.record("late calls for replaced ones", owners.iter().map(|owner| owner.late_calls).sum::<usize>());
    let live = live_rows(&database).await;
    report.violations(compare_rows(&owners, &live));
    if !report.has_detected_fault() {
        wait_for_agreement(&cluster, &identities, &owners, &live).await;
    }
    report.finish();
}
