//! R6: a server is cut off in the middle of a transaction, and another dies there and nobody hears of it. What they had
//! locked, others can soon change; and what they had not committed has not happened.

use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Client, Code, Error, RetryPolicy, pb};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::load_client::{LONG_MS, SEATS};
use crate::netns::{Apart, FAR, Network, network};
use crate::proxy::{Behind, COMMIT, StoreProxy};
use crate::report::{Chapter, until};
use crate::support::database::PostgresCluster;
use crate::support::party::{advertise_request, party_session};

/// The server that is cut off, the one that is cut off and dies, and one that has nothing to do with it.
const CUT_OFF: usize = 0;
const DEAD: usize = 1;
const WELL: usize = 2;

/// What is promised of each (R6).
const REFUSED_WITHIN: Duration = Duration::from_secs(3);
const UNLOCKED_WITHIN: Duration = Duration::from_secs(10);
const HEALED_WITHIN: Duration = Duration::from_secs(2);

/// Asks for a seat in `id` for `user`, once.
async fn take(client: Client, user: &str, id: &str) -> Result<(), Error> {
    let mut searching = client.with_retry_policy(RetryPolicy::NEVER).search_session(1, party_session(&[(user, 0.0)]));
    searching.search().await?;
    searching.reserve(id).await.map(drop)
}

/// The servers' sessions that have locked rows and now stand still, by the database's own account.
async fn holding(connection: &mut PgConnection) -> Vec<i32> {
    sqlx::query_scalar(
        "select distinct pid from pg_stat_activity join pg_locks using (pid) \
         where datname = current_database() and state = 'idle in transaction' and application_name = 'fireteam adverts' \
         and relation = 'advertisement'::regclass and mode in ('RowShareLock', 'RowExclusiveLock') and granted",
    )
    .fetch_all(connection)
    .await
    .expect("an answer")
}

/// Whether nobody holds the row of `id`.
async fn is_free(connection: &mut PgConnection, id: &str) -> bool {
    let query =
        "select 1 from advertisement where replace(advertisement_id::text, '-', '') = $1 for update skip locked";
    let row: Option<i32> = sqlx::query_scalar(query).bind(id).fetch_optional(connection).await.expect("an answer");
    row.is_some()
}

/// Who holds seats in `id`.
async fn seated(connection: &mut PgConnection, id: &str) -> i64 {
    let query = "select count(*) from reservation where replace(advertisement_id::text, '-', '') = $1";
    sqlx::query_scalar(query).bind(id).fetch_one(connection).await.expect("an answer")
}

/// The servers, of which two have somebody in the middle.
struct Stage {
    fleet: Arc<Fleet>,
    proxies: Vec<StoreProxy>,
    looking: PgConnection,
}

/// A server that stands still in the middle of giving a seat away, in a session of its own.
struct Stuck {
    id: String,
    /// What its client is told, and after how long.
    told: JoinHandle<(Result<(), Error>, Duration)>,
}

impl Stage {
    async fn set(cluster: &PostgresCluster, behind: Behind) -> Self {
        let database = cluster.create_database("fireteam").await;
        let fleet = Arc::new(Fleet::new(&database.url, 3));
        let mut proxies = Vec::new();
        for at in [CUT_OFF, DEAD, WELL] {
            let proxy = StoreProxy::listen(behind.clone());
            let (fleet, url) = (Arc::clone(&fleet), (at != WELL).then(|| proxy.url("fireteam")));
            tokio::task::spawn_blocking(move || fleet.fill(at, url.as_deref(), &[])).await.expect("it starts");
            proxies.push(proxy);
        }
        Self { fleet, proxies, looking: database.connect().await }
    }

    fn client(&self, at: usize) -> Client {
        self.fleet.client(at, 0).expect("somebody is there")
    }

    /// Has the server at `at` say `commit` and not be heard; so many others already stand still.
    async fn stop_half_way(&mut self, at: usize, others: usize) -> Stuck {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            idempotency_key: format!("the session at server {at}"),
            ..advertise_request(&[(&format!("host {at}"), 0.0)], SEATS as i32)
        };
        let id = self.client(at).update_advertisement(request).await.expect("advertise").advertisement_id;
        until("it is known everywhere", async || {
            let found = self.client(WELL).search_session(1, party_session(&[("a stranger", 0.0)])).search().await;
            found.expect("a search").candidates.iter().any(|it| it.advertisement_id == id)
        })
        .await;
        self.proxies[at].fall_silent_at(COMMIT);
        let (client, asked) = (self.client(at), id.clone());
        let told = tokio::spawn(async move {
            let begun = Instant::now();
            (take(client, "a guest who is not heard", &asked).await, begun.elapsed())
        });
        until("it stands in the middle", async || holding(&mut self.looking).await.len() == others + 1).await;
        assert!(!is_free(&mut self.looking, &id).await, "nothing is locked: nothing would be proved");
        Stuck { id, told }
    }

    /// Until others can change what the server at `at` had locked when it was cut off, at `cut`.
    async fn unlock(&mut self, at: usize, id: &str, cut: Instant, chapter: &mut Chapter) {
        until("the row is free", async || is_free(&mut self.looking, id).await).await;
        chapter.figure("row free after ms", cut.elapsed().as_millis());
        let well = self.client(WELL);
        let taken = async || take(well.clone(), "a guest of the other server's", id).await.is_ok();
        until("the seat is taken at the other server", taken).await;
        chapter.figure("a seat in it taken after ms", cut.elapsed().as_millis());
        if UNLOCKED_WITHIN < cut.elapsed() {
            chapter.violated(format!("server {at} held up the others for {:?}", cut.elapsed()));
        }
    }
}

/// R6: nobody waits for a server that is gone, not even where packets are dropped and no connection is ever ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_cut_off_had_locked_is_soon_free() {
    let network = match network("locks::what_the_cut_off_had_locked_is_soon_free").await {
        Apart::Told => return,
        Apart::Inside(network) => Some(network),
        // Somebody in the middle who lets no byte pass is nearly as good.
        Apart::Impossible => None,
    };
    let mut chapter = Chapter::begin("locks").await;
    let Some(cluster) = PostgresCluster::start_with_tcp_addresses("locks", if network.is_some() { FAR } else { "" })
    else {
        return;
    };
    let behind = if network.is_some() { Behind::Address(FAR) } else { Behind::Folder(cluster.folder.clone()) };
    let mut stage = Stage::set(&cluster, behind).await;
    let cut_off = stage.stop_half_way(CUT_OFF, 0).await;
    let dead = stage.stop_half_way(DEAD, 1).await;

    network.iter().for_each(Network::cut);
    let cut = Instant::now();
    stage.fleet.kill(DEAD);
    let (refused, took) = cut_off.told.await.expect("it ends by itself");
    let refused = refused.expect_err("nobody can know");
    chapter.figure("refused after ms", took.as_millis());
    if refused.code() != Some(Code::Unavailable) || refused.retry_after().is_none() || REFUSED_WITHIN < took {
        chapter.violated(format!("refused in another way, after {took:?}: {refused}"));
    }
    stage.unlock(CUT_OFF, &cut_off.id, cut, &mut chapter).await;
    stage.unlock(DEAD, &dead.id, cut, &mut chapter).await;
    let left = holding(&mut stage.looking).await;
    if !left.is_empty() {
        chapter.violated(format!("left open: {left:?}"));
    }

    network.iter().for_each(Network::heal);
    stage.proxies.iter().for_each(StoreProxy::speak);
    let (healed, client) = (Instant::now(), stage.client(CUT_OFF));
    until("it is well", async || take(client.clone(), "a guest afterwards", &dead.id).await.is_ok()).await;
    chapter.figure("well again ms", healed.elapsed().as_millis());
    if HEALED_WITHIN < healed.elapsed() {
        chapter.violated(format!("well again after {:?}", healed.elapsed()));
    }
    // What was said before the cut and arrives after it comes too late.
    for (id, guests) in [(&cut_off.id, 1), (&dead.id, 2)] {
        let seated = seated(&mut stage.looking, id).await;
        if seated != guests {
            chapter.violated(format!("{seated} parties sit in {id}, and {guests} were told so"));
        }
    }
    chapter.end();
}
