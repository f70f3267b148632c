//! R6, R7: Postgres stands still, cannot be reached, or is gone, for a while. What needs it is refused soon, the rest goes
//! on, and nothing that was kept alive is missed afterwards.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Code, RetryPolicy, pb};
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::netns::{Apart, FAR, Network, network};
use crate::report::{Chapter, percentile, scale};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::{advertise_request, party_session};

const SERVERS: usize = 2;
const HOSTS: usize = 40;

/// Shorter than any outage, so that whoever expires because of it is missed.
const TIME_TO_LIVE_MS: u64 = 5_000;
const BEAT_EVERY: Duration = Duration::from_millis(1_000);

/// The promises: a change is refused within this (R6), a search is answered within that, and all is well again after it.
const REFUSED_WITHIN: Duration = Duration::from_secs(3);
const HEALED_WITHIN: Duration = Duration::from_secs(2);

/// A search takes less than this (p99) on the slowest machine, whatever the store does; the figures say how long it took.
const SEARCHED_WITHIN: Duration = Duration::from_millis(500);
const SEARCH_EVERY: Duration = Duration::from_millis(10);

/// What happens to the store.
enum Outage {
    /// Orders to its keeper: to begin with, and in the end.
    Ordered(&'static str, &'static str),
    /// Packets to and from it are dropped.
    CutOff(Network),
}

impl Outage {
    fn begin(&self, cluster: &PostgresCluster) {
        match self {
            Self::Ordered(begin, _) => cluster.send_command(begin),
            Self::CutOff(network) => network.cut(),
        }
    }

    fn end(&self, cluster: &PostgresCluster) {
        match self {
            Self::Ordered(_, end) => cluster.send_command(end),
            Self::CutOff(network) => network.heal(),
        }
    }
}

/// What a chapter notes while it lasts.
#[derive(Default)]
struct Notes {
    out: AtomicBool,
    was_out: AtomicBool,
    over: AtomicBool,
    /// How long searches took, before the outage and in it.
    searches: [Mutex<Vec<Duration>>; 2],
    stale: AtomicUsize,
    beats: AtomicUsize,
    pending: AtomicUsize,
    refusals: Mutex<Vec<Duration>>,
    violations: Mutex<Vec<String>>,
}

impl Notes {
    fn violated(&self, what: String) {
        self.violations.lock().expect("unpoisoned").push(what);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// How long an outage lasts: 12 s, and a minute in the long form.
fn lasts() -> Duration {
    Duration::from_secs(if scale() <= 1.0 { 12 } else { 60 })
}

fn named(number: usize) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(TIME_TO_LIVE_MS),
        connect_data: format!("host {number:03} word 00000").into_bytes(),
        idempotency_key: format!("the session of host {number:03}"),
        ..advertise_request(&[(&format!("host {number:03}"), 0.0)], 4)
    }
}

/// Keeps one session alive until it is over: by heartbeats, and now and then by publishing it with a new word. Most hosts
/// keep to one server, some go to the other each time. Answers the last word.
async fn keep_alive(fleet: Arc<Fleet>, notes: Arc<Notes>, number: usize) -> (String, String) {
    let at = |beat: usize| if number.is_multiple_of(4) { (number / 4 + beat) % SERVERS } else { number % SERVERS };
    let client = |beat| fleet.client(at(beat), number).expect("somebody is there");
    let first = client(0).update_advertisement(named(number)).await.expect("advertise");
    let (id, mut token) = (first.advertisement_id, first.advertisement_token);
    let mut word = format!("host {number:03} word 00000");
    let mut every = tokio::time::interval(BEAT_EVERY);
    every.tick().await;
    for beat in 1.. {
        every.tick().await;
        if notes.is_over() {
            break;
        }
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(TIME_TO_LIVE_MS),
            advertisement_id: id.clone(),
            advertisement_token: token.clone(),
            ..Default::default()
        };
        let next = format!("host {number:03} word {beat:05}");
        // Those that go from server to server only beat: two servers may keep two words, and either may be written last.
        let publishes = beat % 4 == number % 4 && !number.is_multiple_of(4);
        if publishes {
            let whole = named(number);
            request.session_composition = whole.session_composition;
            request.matchmaking_set_id = whole.matchmaking_set_id;
            request.connect_data = next.clone().into_bytes();
        }
        match client(beat).update_advertisement(request).await {
            Ok(answer) => {
                notes.beats.fetch_add(1, Ordering::SeqCst);
                notes.pending.fetch_add(usize::from(answer.not_yet_durable), Ordering::SeqCst);
                if answer.created {
                    notes.violated(format!("host {number:03} was forgotten: made anew at beat {beat}"));
                }
                if !answer.advertisement_token.is_empty() {
                    token = answer.advertisement_token;
                }
                if publishes {
                    word = next;
                }
            }
            Err(error) => notes.violated(format!("beat {beat} of host {number:03}: {error}")),
        }
    }
    (id, word)
}

/// Searches at one server until it is over: always an answer, and one that says how old it is while the store is out.
async fn look(client: Client, notes: Arc<Notes>, at: usize) {
    let mut searching = client.search_session(1, party_session(&[(&format!("seeker {at}"), 0.0)]));
    let mut out_since: Option<Instant> = None;
    while !notes.is_over() {
        tokio::time::sleep(SEARCH_EVERY).await;
        let out = notes.out.load(Ordering::SeqCst);
        out_since = if out { out_since.or_else(|| Some(Instant::now())) } else { None };
        let begun = Instant::now();
        match searching.search().await {
            Ok(found) => {
                if out || !notes.was_out.load(Ordering::SeqCst) {
                    notes.searches[usize::from(out)].lock().expect("unpoisoned").push(begun.elapsed());
                }
                notes.stale.fetch_add(usize::from(found.stale_for_ms.is_some()), Ordering::SeqCst);
                let long = out_since.is_some_and(|since| HEALED_WITHIN < since.elapsed());
                if long && notes.out.load(Ordering::SeqCst) && found.stale_for_ms.is_none() {
                    notes.violated(format!("server {at} does not say that its picture is old"));
                }
                if found.candidates.len() < HOSTS {
                    notes.violated(format!("server {at} shows {} of {HOSTS}", found.candidates.len()));
                }
            }
            Err(error) => notes.violated(format!("a search at server {at}: {error}")),
        }
    }
}

/// Asks for seats at one server, one after the other, until it is over. Answers when each was given.
async fn take(client: Client, notes: Arc<Notes>, at: usize, ids: Vec<String>) -> Vec<Instant> {
    let mut searching = client.search_session(1, party_session(&[(&format!("taker {at}"), 0.0)]));
    searching.search().await.expect("a search");
    let mut given = Vec::new();
    for asked in 0.. {
        if notes.is_over() {
            break;
        }
        // The token would lapse otherwise.
        if let Err(error) = searching.search().await {
            notes.violated(format!("a search before taking: {error}"));
        }
        let begun = Instant::now();
        match searching.reserve(&ids[asked % ids.len()]).await {
            Ok(reserved) => {
                given.push(Instant::now());
                // So that there is always a seat to take.
                let _ = reserved.release().await;
            }
            Err(error) => {
                let took = begun.elapsed();
                notes.refusals.lock().expect("unpoisoned").push(took);
                if error.code() == Some(Code::FailedPrecondition) {
                    // Full: what was not given back during the outage.
                } else if error.code() != Some(Code::Unavailable) || error.retry_after().is_none() {
                    notes.violated(format!("seats were refused in another way: {error}"));
                } else if REFUSED_WITHIN < took {
                    notes.violated(format!("seats were refused after {took:?}"));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    given
}

/// One outage.
async fn weather(name: &'static str, outage: Outage) {
    let mut chapter = Chapter::begin(name).await;
    let far = matches!(outage, Outage::CutOff(_));
    let Some(cluster) = PostgresCluster::start_with_tcp_addresses(name, if far { FAR } else { "" }) else { return };
    let database = cluster.create_database("fireteam").await;
    let url = if far { format!("postgres://fireteam@{FAR}/fireteam") } else { database.url.clone() };
    let fleet = Arc::new(Fleet::start(&url, SERVERS));
    let notes = Arc::new(Notes::default());
    let hosts: Vec<_> =
        (0..HOSTS).map(|number| tokio::spawn(keep_alive(Arc::clone(&fleet), Arc::clone(&notes), number))).collect();
    for at in 0..SERVERS {
        crate::report::until("all are shown", async || shown(&fleet, at).await.len() == HOSTS).await;
    }
    let ids = shown(&fleet, 0).await;
    let client = |at: usize| fleet.client(at, 0).expect("somebody is there").with_retry_policy(RetryPolicy::NEVER);
    let lookers: Vec<_> = (0..SERVERS).map(|at| tokio::spawn(look(client(at), Arc::clone(&notes), at))).collect();
    let takers: Vec<_> =
        (0..SERVERS).map(|at| tokio::spawn(take(client(at), Arc::clone(&notes), at, ids.clone()))).collect();
    tokio::time::sleep(Duration::from_secs(3)).await;

    outage.begin(&cluster);
    notes.was_out.store(true, Ordering::SeqCst);
    notes.out.store(true, Ordering::SeqCst);
    tokio::time::sleep(lasts()).await;
    notes.out.store(false, Ordering::SeqCst);
    outage.end(&cluster);
    let back = Instant::now();
    // As long again as an advertisement lives, and somewhat more: whoever was not written has gone by then.
    tokio::time::sleep(Duration::from_millis(TIME_TO_LIVE_MS + 2_000)).await;
    notes.over.store(true, Ordering::SeqCst);

    let mut words = Vec::new();
    for host in hosts {
        words.push(host.await.expect("it ends by itself"));
    }
    for looker in lookers {
        looker.await.expect("it ends by itself");
    }
    for (at, taker) in takers.into_iter().enumerate() {
        let given = taker.await.expect("it ends by itself");
        let healed = given.iter().find(|it| back <= **it).map(|it| it.duration_since(back));
        match healed {
            Some(healed) if healed <= HEALED_WITHIN => chapter.figure("well again ms", healed.as_millis()),
            healed => chapter.violated(format!("server {at} was well again after {healed:?}")),
        }
    }
    chapter.all_violated(missed(&database, &words).await);
    let mut refusals = notes.refusals.lock().expect("unpoisoned").clone();
    refusals.sort_unstable();
    chapter.figure("refusals", refusals.len());
    chapter.figure("slowest refusal ms", refusals.last().map_or(0, Duration::as_millis));
    for (what, searches) in ["before", "in it"].into_iter().zip(&notes.searches) {
        let mut took = searches.lock().expect("unpoisoned").clone();
        took.sort_unstable();
        let p99 = percentile(&took, 0.99);
        chapter.figure("searches", format!("{} {what}, p99 {:.1} ms", took.len(), p99.as_secs_f64() * 1e3));
        if SEARCHED_WITHIN < p99 {
            chapter.violated(format!("searches {what} took {p99:?}"));
        }
    }
    let figures = [("stale", &notes.stale), ("beats", &notes.beats), ("pending", &notes.pending)];
    for (figure, count) in figures {
        chapter.figure(figure, count.load(Ordering::SeqCst));
        assert!(0 < count.load(Ordering::SeqCst), "no {figure}: nothing was proved");
    }
    chapter.all_violated(notes.violations.lock().expect("unpoisoned").clone());
    chapter.all_violated(crate::consistency::differences(&fleet).await);
    drop(fleet);
    chapter.end();
}

/// The ids that a stranger is shown.
async fn shown(fleet: &Fleet, at: usize) -> Vec<String> {
    let client = fleet.client(at, 0).expect("somebody is there");
    let found = client.search_session(1, party_session(&[("a stranger", 0.0)])).search().await.expect("a search");
    found.candidates.into_iter().map(|it| it.advertisement_id).collect()
}

/// Sessions that were kept alive and are not in the tables as they were last published.
async fn missed(database: &TestDatabase, words: &[(String, String)]) -> Vec<String> {
    let mut connection = database.connect().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select replace(advertisement_id::text, '-', ''), convert_from(connect_data, 'UTF8') \
         from advertisement where body is not null and (extract(epoch from clock_timestamp()) * 1000) < expires_ms",
    )
    .fetch_all(&mut connection)
    .await
    .expect("advertisements");
    let mut wrong = Vec::new();
    for (id, word) in words {
        match rows.iter().find(|(stored, _)| stored == id) {
            Some((_, stored)) if stored == word => {}
            Some((_, stored)) => wrong.push(format!("{id} is stored as `{stored}`, it was accepted as `{word}`")),
            None => wrong.push(format!("{id} was kept alive and is gone ({word})")),
        }
    }
    wrong
}

/// R6: Postgres stands still, its connections open and silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_stands_still_is_weathered() {
    weather("outage paused", Outage::Ordered("pause", "resume")).await;
}

/// R6: the network between servers and Postgres drops every packet, and tells nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_reached_is_weathered() {
    if let Apart::Inside(network) = network("outages::a_store_that_cannot_be_reached_is_weathered").await {
        weather("outage cut off", Outage::CutOff(network)).await;
    }
}

/// R7: Postgres is gone, and comes back by way of its recovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_gone_is_weathered() {
    weather("outage stopped", Outage::Ordered("halt", "start")).await;
}
