//! R9: what is changed at one server is found at another, soon; and a transaction that commits late is not skipped.

use std::time::Duration;

use fireteam_client::pb;
use sqlx::{Connection as _, Executor as _};
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::load_client::LONG_MS;
use crate::report::{Chapter, percentile, scale, scaled};
use crate::support::database::create_test_database;
use crate::support::party::{advertise_request, party_session};
use crate::support::server_process::TEST_TIMEOUT;
use crate::table_checks::Tables;

/// Updates that are timed in the short form.
const UPDATES: usize = 300;

/// What is promised; the aim is an eighth of it.
const FOUND_WITHIN: Duration = Duration::from_secs(2);

/// How long a late transaction is held open, while others come and go.
const HELD_OPEN: Duration = Duration::from_secs(1);

fn named(number: usize, word: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(LONG_MS),
        connect_data: word.as_bytes().to_vec(),
        idempotency_key: format!("session {number:05}, at length"),
        ..advertise_request(&[(&format!("host {number}"), 0.0)], 3)
    };
    request.session_composition.as_mut().expect("a session").silo_id = Some(1);
    request
}

/// Until the server at `at` shows `word`. `None`: it never does.
async fn found(fleet: &Fleet, at: usize, word: &str) -> Option<Duration> {
    let session = pb::SessionCompositionData { silo_id: Some(1), ..party_session(&[("a stranger", 0.0)]) };
    let mut searching = fleet.client(at, 0).expect("somebody is there").search_session(1, session);
    let begun = Instant::now();
    while begun.elapsed() < TEST_TIMEOUT / 6 {
        let answer = searching.search().await.expect("a search");
        if answer.candidates.iter().any(|it| it.connect_data == word.as_bytes()) {
            return Some(begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None
}

/// R9: an update here is found there, each within the promise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_changed_here_is_found_there() {
    let mut chapter = Chapter::begin("feed").await;
    let Some(database) = create_test_database("what_is_changed_here_is_found_there").await else { return };
    let fleet = Fleet::start(&database.url, 2);
    let dice = chapter.dice(1);
    let here = fleet.client(0, 1).expect("somebody is there");
    let mut sessions = Vec::new();
    for number in 0..20 {
        let made = here.update_advertisement(named(number, "0")).await.expect("advertise");
        sessions.push((made.advertisement_id, made.advertisement_token));
    }
    let mut took = Vec::new();
    for update in 1..=scaled(UPDATES) {
        // At random moments of the reader's round.
        tokio::time::sleep(Duration::from_millis(dice.below(100) as u64)).await;
        let number = dice.below(sessions.len());
        let word = update.to_string();
        let mut request = named(number, &word);
        request.idempotency_key.clear();
        (request.advertisement_id, request.advertisement_token) = sessions[number].clone();
        here.update_advertisement(request).await.expect("update");
        match found(&fleet, 1, &word).await {
            Some(after) => took.push(after),
            None => chapter.violated(format!("update {update} is never found at the other server")),
        }
    }
    took.sort_unstable();
    if let Some(worst) = took.last() {
        chapter.figure("updates", took.len());
        chapter.figure("p50 ms", format!("{:.1}", percentile(&took, 0.50).as_secs_f64() * 1e3));
        chapter.figure("p99 ms", format!("{:.1}", percentile(&took, 0.99).as_secs_f64() * 1e3));
        chapter.figure("max ms", format!("{:.1}", worst.as_secs_f64() * 1e3));
        if FOUND_WITHIN < percentile(&took, 0.99) {
            chapter.violated("later than promised");
        }
    }
    late_commit(&mut chapter, &database, &fleet, &sessions).await;
    if !chapter.is_enough() {
        chapter.all_violated(Tables::read(&database).await.pictures(&fleet).await);
        chapter.all_violated(crate::consistency::differences(&fleet).await);
    }
    chapter.end();
}

/// A transaction of another server's takes its number, stands still while others commit and are heard of, and commits.
async fn late_commit(
    chapter: &mut Chapter,
    database: &crate::support::database::TestDatabase,
    fleet: &Fleet,
    sessions: &[(String, Vec<u8>)],
) {
    let change = "with moved as (update advertisement set version = pg_current_xact_id()::text::bigint, \
                  connect_data = 'late' where replace(advertisement_id::text, '-', '') = $1 \
                  returning advertisement_id, version) \
                  insert into change (batch_id, version, replica, advertisement_ids) \
                  select gen_random_uuid(), version, 3, array[advertisement_id] from moved";
    let mut slow = database.connect().await;
    let mut slow = slow.begin().await.expect("a transaction");
    let done = slow.execute(sqlx::query(change).bind(&sessions[0].0)).await.expect("a change");
    assert_eq!(done.rows_affected(), 1);
    let (begun, mut meanwhile) = (Instant::now(), 0);
    while begun.elapsed() < HELD_OPEN.mul_f64(scale()) {
        meanwhile += 1;
        let word = format!("meanwhile {meanwhile}");
        let mut request = named(1, &word);
        request.idempotency_key.clear();
        (request.advertisement_id, request.advertisement_token) = sessions[1].clone();
        fleet.client(0, 1).expect("somebody is there").update_advertisement(request).await.expect("update");
        if found(fleet, 1, &word).await.is_none() {
            chapter.violated("a transaction that stands still holds up the others' news");
        }
    }
    slow.commit().await.expect("commit");
    for at in 0..fleet.len() {
        if chapter.is_enough() {
            break;
        }
        match found(fleet, at, "late").await {
            Some(after) => chapter.figure("late commit ms", format!("{:.1}", after.as_secs_f64() * 1e3)),
            None => chapter.violated(format!("a late commit is never found at server {at}")),
        }
    }
    chapter.figure("commits meanwhile", meanwhile);
}
