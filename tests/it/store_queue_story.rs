//! One story, told to every store: parties enter, meet in matches, agree or do not, come back, play, and are forgotten.

use std::sync::Arc;

use fireteam::domain::id::ReservationId;
use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::life::{Match, Outcome, Place, Stage};
use fireteam::domain::queue::ticket::{Ending, Ticket};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::Memory;
use fireteam::store::postgres::{Postgres, Replica};
use fireteam::store::queues::{QueueKey, QueueOutcome as Out, QueueWrite, StoredTicket, TicketState};
use fireteam::store::sqlite::Sqlite;

use crate::database::{Database, database};
use crate::store_queue_kit::{
    Fates, SILO, beat, end, enter, fresh, match_id, move_on, over, play, propose, rating, then, ticket, ticket_id, user,
};

async fn one(store: &dyn Store, write: QueueWrite) -> Out {
    let mut outcomes = store.commit_queues(&[write]).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// It enters for the first time.
async fn enters(store: &dyn Store, ticket: Ticket, expires: u64) {
    let write = enter(ticket, expires, 0);
    let stored = fresh(&write);
    assert_eq!(one(store, write).await, Out::Entered { stored, replayed: false });
}

fn already(by: u32, ticket: u32) -> Out {
    Out::AlreadyQueued { user: user(by), ticket: ticket_id(ticket) }
}

fn playing(by: u32, play: u32) -> Out {
    Out::AlreadyPlaying { user: user(by), by: match_id(play) }
}

fn taken(tickets: &[u32]) -> Out {
    Out::Taken { tickets: tickets.iter().copied().map(ticket_id).collect() }
}

/// How the tickets that a change names now stand; it did happen.
fn states(outcome: Out) -> Vec<(u8, TicketState, u64, u64)> {
    let Out::Moved { tickets } = outcome else { panic!("{outcome:?}") };
    tickets.iter().map(|it| (it.ticket.id.as_bytes()[15], it.state, it.expires.0, it.edition)).collect()
}

fn ended(how: Ending, by: Option<u32>, forget_at: u64) -> TicketState {
    TicketState::Ended { how, by: by.map(match_id), forget_at: UnixMs(forget_at) }
}

/// R5: a party enters once per key, keeps its ticket alive, leaves or lapses, and is remembered until it is forgotten.
async fn tickets(store: &dyn Store) {
    let load = store.load_queues(UnixMs(0)).await.unwrap();
    assert_eq!((load.tickets.len(), load.matches.len(), load.ratings.len()), (0, 0, 0));
    assert_eq!(store.commit_queues(&[]).await.unwrap(), []);

    enters(store, ticket(1, 1, &[1, 2]), 50).await;
    let retry = enter(Ticket { entered: UnixMs(30), ..ticket(1, 1, &[1, 2]) }, 90, 30);
    let first = fresh(&enter(ticket(1, 1, &[1, 2]), 50, 0));
    assert_eq!(one(store, retry).await, Out::Entered { stored: first.clone(), replayed: true }, "it keeps its place");
    assert_eq!(one(store, enter(ticket(1, 1, &[1]), 50, 0)).await, Out::KeyReused);

    let kept = StoredTicket { expires: UnixMs(60), edition: 2, ..first };
    assert_eq!(one(store, beat(1, 60)).await, Out::Ticket(kept.clone()));
    assert_eq!(one(store, beat(1, 55)).await, Out::Ticket(kept.clone()), "a late heartbeat shortens nothing");
    assert_eq!(one(store, beat(2, 55)).await, Out::Absent);
    assert_eq!(one(store, end(2, Ending::Left, 70, 0)).await, Out::Absent);
    assert_eq!(one(store, end(1, Ending::Lapsed, 70, 59)).await, Out::Ticket(kept.clone()), "it is not due");
    let lapsed = StoredTicket { state: ended(Ending::Lapsed, None, 70), edition: 3, ..kept };
    assert_eq!(one(store, end(1, Ending::Lapsed, 70, 60)).await, Out::Ticket(lapsed.clone()));
    assert_eq!(one(store, end(1, Ending::Left, 99, 61)).await, Out::Ticket(lapsed.clone()), "it stays as it ended");
    assert_eq!(one(store, beat(1, 90)).await, Out::Ticket(lapsed.clone()));
    let late = one(store, enter(ticket(1, 1, &[1, 2]), 90, 62)).await;
    assert_eq!(late, Out::Entered { stored: lapsed.clone(), replayed: true }, "a late retry is told that it is over");
    store.forget_queues(UnixMs(69)).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(69)).await.unwrap().tickets, [lapsed]);
    store.forget_queues(UnixMs(70)).await.unwrap();
    enters(store, ticket(1, 1, &[1, 2]), 99).await;
}

/// S3-13, D-1: a user is in one ticket of a queue, and in several queues only where all of them allow it.
async fn users(store: &dyn Store) {
    enters(store, ticket(1, 1, &[1, 2]), 50).await;
    assert_eq!(one(store, enter(ticket(2, 1, &[3, 2]), 50, 0)).await, already(2, 1));
    enters(store, ticket(2, 2, &[2, 3]), 50).await;
    let mut elsewhere = ticket(3, 1, &[1]);
    elsewhere.session.silo = SiloId(4);
    enters(store, elsewhere, 50).await;
    let alone = |n, set, users: &[u32]| Ticket { alone: true, ..ticket(n, set, users) };
    assert_eq!(one(store, enter(alone(4, 3, &[3]), 50, 0)).await, already(3, 2), "it would stay alone");
    assert_eq!(one(store, enter(alone(4, 3, &[4, 2]), 50, 0)).await, already(2, 1), "the first of several");
    enters(store, alone(4, 3, &[4, 5]), 50).await;
    assert_eq!(one(store, enter(ticket(5, 1, &[5]), 50, 0)).await, already(5, 4), "the other stays alone");
    one(store, end(4, Ending::Left, 70, 0)).await;
    enters(store, ticket(5, 1, &[5]), 50).await;
    let swap = [end(5, Ending::Dismissed, 70, 1), enter(alone(6, 1, &[5]), 50, 1), end(6, Ending::Left, 70, 2)];
    let outcomes = store.commit_queues(&swap).await.unwrap();
    assert!(
        matches!(outcomes[..], [Out::Ticket(_), Out::Entered { replayed: false, .. }, Out::Ticket(_)]),
        "{outcomes:?}"
    );
    enters(store, ticket(7, 1, &[5]), 50).await;
}

/// R1: a match is made of tickets that all wait, or not at all, and a user is in one.
async fn proposals(store: &dyn Store) {
    for (n, set, users) in [(1, 1, &[1, 2][..]), (2, 1, &[3]), (3, 1, &[4]), (4, 2, &[3, 5]), (5, 2, &[6])] {
        enters(store, ticket(n, set, users), 50).await;
    }
    let both = play(1, 1, &[(1, &[2, 1]), (2, &[3])]);
    one(store, end(3, Ending::Left, 70, 0)).await;
    let with_leaver = play(2, 1, &[(3, &[4]), (1, &[1, 2]), (9, &[7])]);
    assert_eq!(one(store, propose(with_leaver, 1)).await, taken(&[3, 9]), "one has left, one was never there");
    assert_eq!(one(store, propose(both.clone(), 50)).await, taken(&[1, 2]), "both have expired");
    assert_eq!(one(store, propose(play(2, 2, &[(2, &[3]), (4, &[3, 5])]), 1)).await, taken(&[4]), "3 is in both");
    assert_eq!(one(store, propose(play(2, 1, &[(1, &[1]), (2, &[3])]), 1)).await, taken(&[1]), "others than entered");
    assert_eq!(one(store, propose(play(2, 1, &[]), 1)).await, taken(&[]), "nobody");
    let there = store.load_queues(UnixMs(1)).await.unwrap();
    assert_eq!(there.matches, []);
    assert!(there.tickets.iter().all(|it| it.state == TicketState::Waiting || it.ticket.id == ticket_id(3)));

    let in_match = TicketState::InMatch(match_id(1));
    assert_eq!(states(one(store, propose(both.clone(), 49)).await), [(1, in_match, 50, 2), (2, in_match, 50, 2)]);
    assert_eq!(one(store, propose(both.clone(), 49)).await, taken(&[1, 2]), "a name is used once");
    assert_eq!(one(store, propose(play(2, 2, &[(4, &[3, 5]), (5, &[6])]), 1)).await, taken(&[4]), "3 plays");
    assert_eq!(one(store, enter(ticket(8, 3, &[8, 2]), 50, 0)).await, playing(2, 1));
    let Out::Ticket(stays) = one(store, end(1, Ending::Left, 70, 1)).await else { panic!("it is there") };
    assert_eq!((stays.state, stays.edition), (in_match, 2), "who is in a match stays there");
    let Out::Ticket(stays) = one(store, beat(1, 70)).await else { panic!("it is there") };
    assert_eq!((stays.expires, stays.edition), (UnixMs(50), 2));
    assert_eq!(store.look_match(match_id(1)).await.unwrap().as_deref(), Some(&both));
    assert_eq!(store.look_match(match_id(2)).await.unwrap(), None);
}

/// Every kind of stage that a match can be kept at.
fn stages() -> Vec<Stage> {
    let playing = |place| Stage::Playing { place, began: UnixMs(3), until: UnixMs(u64::MAX / 4) };
    let server = Place::Server {
        advertisement: AdvertisementId::from_bytes([1; 16]),
        reservation: ReservationId::from_bytes([2; 16]),
        connect_data: vec![0, 255, 16],
    };
    let mut all = vec![
        Stage::Placing { deadline: UnixMs(9) },
        playing(server),
        playing(Place::Peer { host: user(1) }),
        playing(Place::Nowhere),
    ];
    for outcome in [
        Outcome::Played,
        Outcome::Lapsed,
        Outcome::Declined,
        Outcome::Unanswered,
        Outcome::NoServer,
        Outcome::ServerFailed,
        Outcome::Cancelled,
    ] {
        for place in [None, Some(Place::Nowhere), Some(Place::Peer { host: user(1) })] {
            all.push(Stage::Over { outcome, began: Some(UnixMs(3)), place, forget_at: UnixMs(90) });
        }
    }
    all
}

/// S0-21, B-33, B-35: a match moves on from the edition that it is at; who agreed comes back as they were.
async fn moves(store: &dyn Store) {
    for (n, set, users) in [(1, 1, &[1, 2][..]), (2, 1, &[3]), (3, 2, &[1]), (4, 2, &[3]), (5, 1, &[4])] {
        enters(store, ticket(n, set, users), 50).await;
    }
    let first = play(1, 1, &[(1, &[1, 2]), (2, &[3])]);
    assert_eq!(one(store, move_on(then(&first, over(Outcome::Cancelled)), &Fates::default())).await, Out::Stale(None));
    one(store, propose(first.clone(), 1)).await;
    let mut agreed = then(&first, first.stage.clone());
    agreed.members[0].players[1].answer = Some(true);
    assert_eq!(states(one(store, move_on(agreed.clone(), &Fates::default())).await), []);
    let stale = one(store, move_on(agreed.clone(), &Fates { punished: vec![3], ..Fates::default() })).await;
    assert_eq!(stale, Out::Stale(Some(Arc::new(agreed.clone()))), "another was sooner");

    // One is absent: the other party waits again, since when it entered; nobody of them plays.
    let failed = then(&agreed, over(Outcome::Unanswered));
    let fates = Fates { returns: vec![(1, 77)], ends: vec![(2, Ending::Absent)], ..Fates::default() };
    let absent = ended(Ending::Absent, Some(1), 80);
    let after = states(one(store, move_on(failed.clone(), &fates)).await);
    assert_eq!(after, [(1, TicketState::Waiting, 77, 3), (2, absent, 50, 3)]);
    let Out::Entered { stored, replayed: true } = one(store, enter(ticket(1, 1, &[1, 2]), 99, 9)).await else {
        panic!()
    };
    assert_eq!(stored.ticket.entered, UnixMs(1), "its clock runs on");
    enters(store, ticket(6, 1, &[3]), 50).await;

    // A match that begins ends its tickets, and others of its users; its users play until it is over.
    let second = play(2, 1, &[(1, &[1, 2]), (6, &[3])]);
    one(store, propose(second.clone(), 1)).await;
    let ends = vec![(1, Ending::Played), (6, Ending::Played), (5, Ending::Played)];
    let began = then(&second, stages().remove(1));
    let fates = Fates { ends, elsewhere: vec![3, 4, 9, 2], ..Fates::default() };
    let (played, elsewhere) = (ended(Ending::Played, Some(2), 80), ended(Ending::PlayedElsewhere, Some(2), 80));
    assert_eq!(
        states(one(store, move_on(began.clone(), &fates)).await),
        [(1, played, 77, 5), (3, elsewhere, 50, 2), (4, elsewhere, 50, 2), (6, played, 50, 3)],
        "5 is not in the match, and 2 is over"
    );
    assert_eq!(one(store, enter(ticket(7, 2, &[3]), 50, 0)).await, playing(3, 2));
    let mut last = began;
    for stage in stages() {
        last = then(&last, stage);
        one(store, move_on(last.clone(), &Fates::default())).await;
        assert_eq!(store.look_match(match_id(2)).await.unwrap().as_deref(), Some(&last), "as it was put in");
    }
    enters(store, ticket(7, 2, &[3]), 50).await;
    assert_eq!(store.load_queues(UnixMs(89)).await.unwrap().matches, [Arc::new(failed), Arc::new(last)]);
    assert_eq!(store.load_queues(UnixMs(90)).await.unwrap().matches, Vec::<Arc<Match>>::new(), "both are forgotten");
}

/// S0-21, B-35: who lets a ready check fail waits longer each time, in that queue, until the ladder begins anew.
async fn penalties(store: &dyn Store) {
    let mut at = 0;
    let mut fail = async |now: u64| {
        at += 1;
        assert!(matches!(one(store, enter(ticket(at, 1, &[1]), 1_000, now)).await, Out::Entered { .. }), "at {now}");
        let proposed = play(at, 1, &[(at, &[1])]);
        one(store, propose(proposed.clone(), now)).await;
        let ends = vec![(at, Ending::Declined)];
        let fates = Fates { ends, punished: vec![1, 1], now, ..Fates::default() };
        let failed = one(store, move_on(then(&proposed, over(Outcome::Declined)), &fates)).await;
        assert!(matches!(failed, Out::Moved { .. }));
    };
    let barred = async |now: u64, set: u32| match one(store, enter(ticket(99, set, &[1, 2]), now, now)).await {
        Out::Barred { until, user: who } => {
            assert_eq!(who, user(1));
            Some(until.0)
        }
        entered => {
            assert!(matches!(entered, Out::Entered { .. }));
            one(store, end(99, Ending::Left, 0, now)).await;
            store.forget_queues(UnixMs(0)).await.unwrap();
            None
        }
    };
    fail(100).await;
    assert_eq!([barred(100, 1).await, barred(109, 1).await, barred(110, 1).await], [Some(110), Some(110), None]);
    assert_eq!(barred(100, 2).await, None, "another queue has a ladder of its own");
    fail(115).await;
    assert_eq!(barred(134, 1).await, Some(135));
    fail(140).await;
    assert_eq!(barred(159, 1).await, Some(160), "the last step holds");
    store.forget_queues(UnixMs(169)).await.unwrap();
    fail(169).await;
    assert_eq!(barred(188, 1).await, Some(189), "a penalty that still counts is not forgotten");
    fail(199).await;
    assert_eq!([barred(208, 1).await, barred(209, 1).await], [Some(209), None], "the ladder begins anew");
    store.forget_queues(UnixMs(229)).await.unwrap();
    fail(229).await;
    assert_eq!(barred(239, 1).await, None);
}

/// R2, R23: what is loaded after a restart is what was there, to the last bit; in the order of ids.
async fn restart<S: Store>(store: S, reopen: impl AsyncFn(S) -> S) {
    let enters = [9, 2, 5, 7].map(|n| enter(ticket(n, 1, &[n, n + 100]), 50, 0));
    store.commit_queues(&enters).await.unwrap();
    let proposed = [play(8, 1, &[(5, &[5, 105]), (9, &[9, 109])]), play(3, 1, &[(2, &[2, 102])])];
    store.commit_queues(&proposed.clone().map(|it| propose(it, 1))).await.unwrap();
    one(&store, end(7, Ending::Dismissed, 70, 0)).await;
    let numbers = [0.1 + 0.2, f64::MIN_POSITIVE, -1e300, 5.0, 1.0 / 3.0];
    let rows =
        |shift: f64| numbers.iter().enumerate().map(|(n, it)| rating(n as u32, 7, it + shift)).collect::<Vec<_>>();
    assert_eq!(one(&store, QueueWrite::Rate { rows: rows(1.0) }).await, Out::Rated);
    let mut again = rows(0.0);
    again.extend([rating(1, 3, 1.5), rating(1, 3, 2.5)]);
    one(&store, QueueWrite::Rate { rows: again }).await;

    let before = store.load_queues(UnixMs(0)).await.unwrap();
    let store = reopen(store).await;
    let after = store.load_queues(UnixMs(0)).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"), "`Debug` tells -0.0 from 0.0");
    assert_eq!(after.matches, proposed.map(Arc::new).into_iter().rev().collect::<Vec<_>>());
    let expected = |n: u32, play: Option<u32>| {
        let state = play.map_or(ended(Ending::Dismissed, None, 70), |play| TicketState::InMatch(match_id(play)));
        StoredTicket { state, edition: 2, ..fresh(&enter(ticket(n, 1, &[n, n + 100]), 50, 0)) }
    };
    let expected = [expected(2, Some(3)), expected(5, Some(8)), expected(7, None), expected(9, Some(8))];
    assert_eq!(format!("{:?}", after.tickets), format!("{expected:?}"));
    let mut rated = rows(0.0);
    rated.insert(1, rating(1, 3, 2.5));
    assert_eq!(after.ratings, rated);
    assert_eq!(one(&store, enter(ticket(1, 2, &[105]), 50, 0)).await, playing(105, 8));
    assert_eq!(store.lease(&[QueueKey { set_id: after.matches[0].set_id, silo: SILO }], 1_000).await.unwrap(), [true]);
}

/// R1: whoever proposes at the same moment, one match of each ticket and of each user comes about, and the others hear of it.
async fn rush(store: Arc<dyn Store>) {
    for n in 1..=2 {
        enters(&*store, ticket(n, n, &[1]), 50).await;
    }
    let mut proposers = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (store, of) = (Arc::clone(&store), 1 + n % 2);
        proposers.spawn(async move { one(&*store, propose(play(n, of, &[(of, &[1])]), 1)).await });
    }
    let outcomes = proposers.join_all().await;
    let made = outcomes.iter().filter(|it| matches!(it, Out::Moved { .. })).count();
    let refused = outcomes.iter().filter(|it| matches!(it, Out::Taken { tickets } if tickets.len() == 1)).count();
    assert_eq!((made, refused), (1, 31));
    let load = store.load_queues(UnixMs(1)).await.unwrap();
    assert_eq!((load.matches.len(), load.tickets.iter().filter(|it| it.edition == 2).count()), (1, 1));
}

/// Each chapter begins with an empty store.
async fn tell<S: Store>(open: impl AsyncFn() -> S, reopen: impl AsyncFn(S) -> S) {
    tickets(&open().await).await;
    users(&open().await).await;
    proposals(&open().await).await;
    moves(&open().await).await;
    penalties(&open().await).await;
    restart(open().await, reopen).await;
    rush(Arc::new(open().await)).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_knows_the_story_of_queues() {
    tell(async || Memory::new(), async |store| store).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R2, R5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_knows_the_story_of_queues() {
    let folder = tempfile::tempdir().unwrap();
    let last = std::sync::Mutex::new(0);
    let path = |n: u32| folder.path().join(format!("{n}.db"));
    let open = async || {
        let n = {
            let mut last = last.lock().unwrap();
            *last += 1;
            *last
        };
        Sqlite::open(&path(n)).await.unwrap()
    };
    let reopen = async |store: Sqlite| {
        drop(store);
        let n = *last.lock().unwrap();
        Sqlite::open(&path(n)).await.unwrap()
    };
    tell(open, reopen).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_knows_the_story_of_queues() {
    let next = std::sync::atomic::AtomicU64::new(1);
    if database("the story of queues on Postgres").await.is_none() {
        return;
    }
    let last = std::sync::Mutex::new(String::new());
    let start = async |url: &str| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Postgres::open(url, Replica { number, silos: None }).await.unwrap()
    };
    let open = async || {
        let Database { url } = database("a chapter").await.unwrap();
        last.lock().unwrap().clone_from(&url);
        start(&url).await
    };
    let reopen = async |store: Postgres| {
        drop(store);
        let url = last.lock().unwrap().clone();
        start(&url).await
    };
    tell(open, reopen).await;
}
