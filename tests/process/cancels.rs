//! R4: clients that give up in the middle of what they asked for, call by call and connection by connection. Nobody else
//! loses anything by it, and no transaction is left open.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};

use crate::cluster::{Fleet, client};
use crate::history::History;
use crate::load_client::{LONG_MS, Rival, SEATS, SILOS};
use crate::report::{Chapter, Dice, scaled};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::party::{advertise_request, party_session};

const SERVERS: usize = 2;
/// Those who must not suffer, and those who give up.
const VICTIMS: usize = 16;
const QUITTERS: usize = 16;

/// Calls given up in the short form.
const CANCELS: usize = 5_000;

/// Up to this long after it was sent a call is given up; most would be answered by then.
const SOON_US: usize = 6_000;

/// A client that gives up.
struct Quitter {
    number: usize,
    fleet: Arc<Fleet>,
    dice: Dice,
    cancelled: Arc<AtomicUsize>,
    /// Calls that were not given up, and were refused all the same.
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Quitter {
    /// A server by chance: by a connection that others use too, or now and then by one that goes with the call.
    fn server(&self) -> Client {
        let at = self.dice.below(SERVERS);
        match self.dice.chance(0.1) {
            true => client(&self.fleet.with(at, |server| server.address.to_string())),
            false => self.fleet.client(at, self.number).expect("somebody is there"),
        }
    }

    /// Makes a call and gives it up, unless it is answered before that.
    async fn quit<T, Called: Future<Output = T>>(&self, call: impl FnOnce(Client) -> Called) {
        let patience = Duration::from_micros(self.dice.below(SOON_US) as u64);
        if tokio::time::timeout(patience, call(self.server())).await.is_err() {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The life of one session: made, filled and withdrawn, each given up at least once.
    async fn round(&self, round: usize) {
        let silo = Some((SILOS + 1 + self.number % SILOS) as u64);
        let name = format!("{round:05} of quitter {:03}, at length", self.number);
        let mut whole = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_MS),
            connect_data: round.to_string().into_bytes(),
            idempotency_key: format!("session {name}"),
            ..advertise_request(&[(&format!("quitter {}", self.number), 0.0)], SEATS as i32)
        };
        whole.session_composition.as_mut().expect("a session").silo_id = silo;
        let again = whole.clone();
        self.quit(|it| async move { it.update_advertisement(again).await }).await;
        let steady = self.fleet.client(self.number % SERVERS, self.number).expect("somebody is there");
        let Some(made) = self.hear(steady.update_advertisement(whole).await) else { return };

        for guest in 0..SEATS {
            let user = format!("guest {guest} {name}");
            let session = pb::SessionCompositionData { silo_id: silo, ..party_session(&[(&user, 0.0)]) };
            let Some(found) = self.hear(steady.search_session(1, session.clone()).search().await) else { return };
            let request = pb::MatchmakingReserveRequest {
                advertisement_id: made.advertisement_id.clone(),
                idempotency_key: user,
                hold_for_ms: Some(LONG_MS),
                search_token: found.search_token,
                session_composition: Some(session),
                ..Default::default()
            };
            self.quit(|it| async move { it.reserve(request).await }).await;
        }
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: made.advertisement_id,
            advertisement_token: made.advertisement_token,
        };
        let again = request.clone();
        self.quit(|it| async move { it.delete_advertisement(again).await }).await;
        self.hear(steady.delete_advertisement(request).await);
    }

    fn hear<T>(&self, answer: Result<T, Error>) -> Option<T> {
        let wrong = |error| self.wrong.lock().expect("unpoisoned").push(format!("refused: {error}"));
        answer.map_err(wrong).ok()
    }
}

/// Transactions that somebody has left open for more than a second.
async fn left_open(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    sqlx::query_scalar(
        "select 'left open for ' || (clock_timestamp() - state_change) || ' after: ' || left(query, 80) \
         from pg_stat_activity where datname = current_database() and state like 'idle in transaction%' \
         and interval '1 second' < clock_timestamp() - state_change",
    )
    .fetch_all(&mut connection)
    .await
    .expect("an answer")
}

/// R4: a client's giving up harms nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_harms_nobody() {
    let mut chapter = Chapter::begin("cancels").await;
    let Some(database) = create_test_database("who_gives_up_harms_nobody").await else { return };
    let fleet = Arc::new(Fleet::start(&database.url, SERVERS));
    let (history, over) = (History::begin(), Arc::new(AtomicBool::new(false)));
    let (cancelled, wrong) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let victims: Vec<_> = (0..VICTIMS)
        .map(|number| {
            let mut rival = Rival::new(number, Arc::clone(&fleet), history.clone(), chapter.dice(number as u64));
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    rival.act().await;
                }
            })
        })
        .collect();
    crate::seats::demand_traffic(&mut chapter, &history).await;
    let quitters: Vec<_> = (0..QUITTERS)
        .map(|number| {
            let (fleet, dice, cancelled) = (Arc::clone(&fleet), chapter.dice(500 + number as u64), cancelled.clone());
            let quitter = Quitter { number, fleet, dice, cancelled, wrong: Arc::clone(&wrong) };
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                for round in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    quitter.round(round).await;
                }
            })
        })
        .collect();
    while cancelled.load(Ordering::SeqCst) < scaled(CANCELS) && !quitters.iter().all(|it| it.is_finished()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        chapter.all_violated(left_open(&database).await);
    }
    over.store(true, Ordering::SeqCst);
    for task in victims.into_iter().chain(quitters) {
        task.await.expect("it ends by itself");
    }
    // The promise is about a second later.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    chapter.all_violated(left_open(&database).await);
    chapter.figure("given up", cancelled.load(Ordering::SeqCst));
    crate::seats::check(&mut chapter, &database, &fleet, &history, "cancels").await;
    chapter.all_violated(wrong.lock().expect("unpoisoned").clone());
    chapter.end();
}
