//! R6: Postgres falls silent at the worst moment, in the middle of a transaction: whoever waits is refused in time.

use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Code, pb};
use sqlx::{Connection as _, Executor as _};
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::load_client::LONG_MS;
use crate::proxy::{Behind, COMMIT, ROLLBACK, StoreProxy};
use crate::report::Chapter;
use crate::support::database::PostgresCluster;
use crate::support::party::{advertise_request, party_session};

/// What a refusal may take (R6).
const REFUSED_WITHIN: Duration = Duration::from_secs(3);

/// R6: neither a commit nor a rollback that is not answered holds anybody up for longer than was promised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_in_a_transaction_is_not_waited_for() {
    let mut chapter = Chapter::begin("silence").await;
    let Some(cluster) = PostgresCluster::start("silence_in_a_transaction_is_not_waited_for") else { return };
    let database = cluster.create_database("fireteam").await;
    let proxy = StoreProxy::listen(Behind::Folder(cluster.folder.clone()));
    let fleet = Arc::new(Fleet::new(&database.url, 1));
    let (started, url) = (Arc::clone(&fleet), proxy.url("fireteam"));
    tokio::task::spawn_blocking(move || started.fill(0, Some(&url), &[])).await.expect("it starts");
    let client = fleet.client(0, 0).expect("somebody is there").with_deadline(Duration::from_secs(20));

    for (name, word) in [("commit ms", COMMIT), ("rollback ms", ROLLBACK)] {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            idempotency_key: format!("a session, until {name}"),
            ..advertise_request(&[(name, 0.0)], 4)
        };
        let made = client.update_advertisement(request).await.expect("advertise");
        let mut searching = client.search_session(1, party_session(&[("a guest", 0.0)]));
        searching.search().await.expect("a search");

        // Somebody else's lock, for which the server waits in vain and then takes its transaction back.
        let mut other = database.connect().await;
        let mut other = other.begin().await.expect("a transaction");
        if word == ROLLBACK {
            other.execute("select from advertisement for update").await.expect("a lock");
        }
        proxy.fall_silent_at(word);
        let begun = Instant::now();
        let refused = searching.reserve(&made.advertisement_id).await.expect_err("nobody can know");
        let took = begun.elapsed();
        chapter.figure(name, took.as_millis());
        if refused.code() != Some(Code::Unavailable) || refused.retry_after().is_none() {
            chapter.violated(format!("refused in another way: {refused}"));
        }
        if REFUSED_WITHIN < took {
            chapter.violated(format!("{name}: refused after {took:?}"));
        }
        proxy.speak();
        other.rollback().await.expect("unlocked");
        crate::report::until("the server is well", async || match searching.reserve(&made.advertisement_id).await {
            Ok(reserved) => reserved.release().await.is_ok(),
            Err(_) => false,
        })
        .await;
    }
    chapter.end();
}
