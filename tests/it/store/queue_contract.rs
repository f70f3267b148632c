//! One story, told to every store: parties enter, meet in matches, agree or do not, come back, play, and are forgotten.

use std::sync::Arc;

use fireteam::domain::id::ReservationId;
use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage};
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{PostgresStore, Replica};
use fireteam::store::queues::{QueueKey, QueueOutcome as Out, QueueWrite, StoredTicket, TicketState};
use fireteam::store::sqlite::SqliteStore;

use crate::store::queue_rows::{
    Fates, SILO, beat, end, enter, fresh, match_id, move_on, over, play, propose, rating, then, ticket, ticket_id, user,
};
use crate::support::database::{TestDatabase, create_test_database};

async fn one(store: &dyn Store, write: QueueWrite) -> Out {
    let mut outcomes = store.commit_queues(&[write]).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// It enters for the first time.
async fn enters(store: &dyn Store, ticket: Ticket, expires: u64) {
    let write = enter(ticket, expires, 0);
    let stored = fresh(&write);
    assert_eq!(one(store, write).await, Out::Entered { ticket: stored, is_replay: false });
}

fn already(by: u32, ticket: u32) -> Out {
    Out::AlreadyQueued { user: user(by), other_ticket: ticket_id(ticket) }
}

fn playing(by: u32, play: u32) -> Out {
    Out::AlreadyInMatch { user: user(by), match_id: match_id(play) }
}

fn taken(tickets: &[u32]) -> Out {
    Out::TicketsUnavailable { tickets: tickets.iter().copied().map(ticket_id).collect() }
}

/// How the tickets that a change names now stand; it did happen.
fn states(outcome: Out) -> Vec<(u8, TicketState, u64, u64)> {
    let Out::MatchWritten { tickets } = outcome else { panic!("{outcome:?}") };
    tickets.iter().map(|it| (it.ticket.id.as_bytes()[15], it.state, it.expires_at.0, it.version)).collect()
}

fn ended(how: TicketEndReason, by: Option<u32>, forget_at: u64) -> TicketState {
    TicketState::Ended { end_reason: how, match_id: by.map(match_id), purge_at: UnixMs(forget_at) }
}

/// R5: a party enters once per key, keeps its ticket alive, leaves or lapses, and is remembered until it is forgotten.
async fn tickets(store: &dyn Store) {
    let load = store.load_queues(UnixMs(0)).await.unwrap();
    assert_eq!((load.tickets.len(), load.matches.len(), load.ratings.len()), (0, 0, 0));
    assert_eq!(store.commit_queues(&[]).await.unwrap(), []);

    enters(store, ticket(1, 1, &[1, 2]), 50).await;
    let retry = enter(Ticket { entered_at: UnixMs(30), ..ticket(1, 1, &[1, 2]) }, 90, 30);
    let first = fresh(&enter(ticket(1, 1, &[1, 2]), 50, 0));
    assert_eq!(one(store, retry).await, Out::Entered { ticket: first.clone(), is_replay: true }, "it keeps its place");
    assert_eq!(one(store, enter(ticket(1, 1, &[1]), 50, 0)).await, Out::IdempotencyKeyReused);

    let kept = StoredTicket { expires_at: UnixMs(60), version: 2, ..first };
    assert_eq!(one(store, beat(1, 60)).await, Out::CurrentTicket(kept.clone()));
    assert_eq!(one(store, beat(1, 55)).await, Out::CurrentTicket(kept.clone()), "a late heartbeat shortens nothing");
    assert_eq!(one(store, beat(2, 55)).await, Out::TicketNotFound);
    assert_eq!(one(store, end(2, TicketEndReason::Left, 70, 0)).await, Out::TicketNotFound);
    assert_eq!(
        one(store, end(1, TicketEndReason::Expired, 70, 59)).await,
        Out::CurrentTicket(kept.clone()),
        "it is not due"
    );
    let lapsed = StoredTicket { state: ended(TicketEndReason::Expired, None, 70), version: 3, ..kept };
    assert_eq!(one(store, end(1, TicketEndReason::Expired, 70, 60)).await, Out::CurrentTicket(lapsed.clone()));
    assert_eq!(
        one(store, end(1, TicketEndReason::Left, 99, 61)).await,
        Out::CurrentTicket(lapsed.clone()),
        "it stays as it ended"
    );
    assert_eq!(one(store, beat(1, 90)).await, Out::CurrentTicket(lapsed.clone()));
    let late = one(store, enter(ticket(1, 1, &[1, 2]), 90, 62)).await;
    assert_eq!(late, Out::Entered { ticket: lapsed.clone(), is_replay: true }, "a late retry is told that it is over");
    store.purge_queues(UnixMs(69)).await.unwrap();
    assert_eq!(store.load_queues(UnixMs(69)).await.unwrap().tickets, [lapsed]);
    store.purge_queues(UnixMs(70)).await.unwrap();
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
    let alone = |n, set, users: &[u32]| Ticket { exclusive: true, ..ticket(n, set, users) };
    assert_eq!(one(store, enter(alone(4, 3, &[3]), 50, 0)).await, already(3, 2), "it would stay alone");
    assert_eq!(one(store, enter(alone(4, 3, &[4, 2]), 50, 0)).await, already(2, 1), "the first of several");
    enters(store, alone(4, 3, &[4, 5]), 50).await;
    assert_eq!(one(store, enter(ticket(5, 1, &[5]), 50, 0)).await, already(5, 4), "the other stays alone");
    one(store, end(4, TicketEndReason::Left, 70, 0)).await;
    enters(store, ticket(5, 1, &[5]), 50).await;
    let swap = [
        end(5, TicketEndReason::Cancelled, 70, 1),
        enter(alone(6, 1, &[5]), 50, 1),
        end(6, TicketEndReason::Left, 70, 2),
    ];
    let outcomes = store.commit_queues(&swap).await.unwrap();
    assert!(
        matches!(outcomes[..], [Out::CurrentTicket(_), Out::Entered { is_replay: false, .. }, Out::CurrentTicket(_)]),
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
    one(store, end(3, TicketEndReason::Left, 70, 0)).await;
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
    let Out::CurrentTicket(stays) = one(store, end(1, TicketEndReason::Left, 70, 1)).await else {
        panic!("it is there")
    };
    assert_eq!((stays.state, stays.version), (in_match, 2), "who is in a match stays there");
    let Out::CurrentTicket(stays) = one(store, beat(1, 70)).await else { panic!("it is there") };
    assert_eq!((stays.expires_at, stays.version), (UnixMs(50), 2));
    assert_eq!(store.read_match(match_id(1)).await.unwrap().as_deref(), Some(&both));
    assert_eq!(store.read_match(match_id(2)).await.unwrap(), None);
}

/// Every kind of stage that a match can be kept at.
fn stages() -> Vec<MatchStage> {
    let playing =
        |place| MatchStage::Playing { assignment: place, started_at: UnixMs(3), times_out_at: UnixMs(u64::MAX / 4) };
    let server = Assignment::GameServer {
        advertisement: AdvertisementId::from_bytes([1; 16]),
        reservation: ReservationId::from_bytes([2; 16]),
        connect_data: vec![0, 255, 16],
    };
    let mut all = vec![
        MatchStage::Placing { deadline: UnixMs(9) },
        playing(server),
        playing(Assignment::PeerHost { host: user(1) }),
        playing(Assignment::Unhosted),
    ];
    for outcome in [
        MatchEndReason::Played,
        MatchEndReason::TimedOut,
        MatchEndReason::Declined,
        MatchEndReason::NotAcceptedInTime,
        MatchEndReason::NoServer,
        MatchEndReason::ServerFailed,
        MatchEndReason::Cancelled,
    ] {
        for place in [None, Some(Assignment::Unhosted), Some(Assignment::PeerHost { host: user(1) })] {
            all.push(MatchStage::Ended {
                end_reason: outcome,
                started_at: Some(UnixMs(3)),
                assignment: place,
                purge_at: UnixMs(90),
            });
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
    assert_eq!(
        one(store, move_on(then(&first, over(MatchEndReason::Cancelled)), &Fates::default())).await,
        Out::StaleMatchVersion(None)
    );
    one(store, propose(first.clone(), 1)).await;
    let mut agreed = then(&first, first.stage.clone());
    agreed.tickets[0].players[1].accepted = Some(true);
    assert_eq!(states(one(store, move_on(agreed.clone(), &Fates::default())).await), []);
    let stale = one(store, move_on(agreed.clone(), &Fates { punished: vec![3], ..Fates::default() })).await;
    assert_eq!(stale, Out::StaleMatchVersion(Some(Arc::new(agreed.clone()))), "another was sooner");

    // One is absent: the other party waits again, since when it entered; nobody of them plays.
    let failed = then(&agreed, over(MatchEndReason::NotAcceptedInTime));
    let fates =
        Fates { returns: vec![(1, 77)], ends: vec![(2, TicketEndReason::NotAcceptedInTime)], ..Fates::default() };
    let absent = ended(TicketEndReason::NotAcceptedInTime, Some(1), 80);
    let after = states(one(store, move_on(failed.clone(), &fates)).await);
    assert_eq!(after, [(1, TicketState::Waiting, 77, 3), (2, absent, 50, 3)]);
    let Out::Entered { ticket: stored, is_replay: true } = one(store, enter(ticket(1, 1, &[1, 2]), 99, 9)).await else {
        panic!()
    };
    assert_eq!(stored.ticket.entered_at, UnixMs(1), "its clock runs on");
    enters(store, ticket(6, 1, &[3]), 50).await;

    // A match that begins ends its tickets, and others of its users; its users play until it is over.
    let second = play(2, 1, &[(1, &[1, 2]), (6, &[3])]);
    one(store, propose(second.clone(), 1)).await;
    let ends = vec![(1, TicketEndReason::Played), (6, TicketEndReason::Played), (5, TicketEndReason::Played)];
    let began = then(&second, stages().remove(1));
    let fates = Fates { ends, elsewhere: vec![3, 4, 9, 2], ..Fates::default() };
    let (played, elsewhere) =
        (ended(TicketEndReason::Played, Some(2), 80), ended(TicketEndReason::MatchedElsewhere, Some(2), 80));
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
        assert_eq!(store.read_match(match_id(2)).await.unwrap().as_deref(), Some(&last), "as it was put in");
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
        let ends = vec![(at, TicketEndReason::Declined)];
        let fates = Fates { ends, punished: vec![1, 1], now, ..Fates::default() };
        let failed = one(store, move_on(then(&proposed, over(MatchEndReason::Declined)), &fates)).await;
        assert!(matches!(failed, Out::MatchWritten { .. }));
    };
    let barred = async |now: u64, set: u32| match one(store, enter(ticket(99, set, &[1, 2]), now, now)).await {
        Out::OnCooldown { until, user: who } => {
            assert_eq!(who, user(1));
            Some(until.0)
        }
        entered => {
            assert!(matches!(entered, Out::Entered { .. }));
            one(store, end(99, TicketEndReason::Left, 0, now)).await;
            store.purge_queues(UnixMs(0)).await.unwrap();
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
    store.purge_queues(UnixMs(169)).await.unwrap();
    fail(169).await;
    assert_eq!(barred(188, 1).await, Some(189), "a penalty that still counts is not forgotten");
    fail(199).await;
    assert_eq!([barred(208, 1).await, barred(209, 1).await], [Some(209), None], "the ladder begins anew");
    store.purge_queues(UnixMs(229)).await.unwrap();
    fail(229).await;
    assert_eq!(barred(239, 1).await, None);
}

/// R2, R23: what is loaded after a restart is what was there, to the last bit; in the order of ids.
async fn restart<S: Store>(store: S, reopen: impl AsyncFn(S) -> S) {
    let enters = [9, 2, 5, 7].map(|n| enter(ticket(n, 1, &[n, n + 100]), 50, 0));
    store.commit_queues(&enters).await.unwrap();
    let proposed = [play(8, 1, &[(5, &[5, 105]), (9, &[9, 109])]), play(3, 1, &[(2, &[2, 102])])];
    store.commit_queues(&proposed.clone().map(|it| propose(it, 1))).await.unwrap();
    one(&store, end(7, TicketEndReason::Cancelled, 70, 0)).await;
    let numbers = [0.1 + 0.2, f64::MIN_POSITIVE, -1e300, 5.0, 1.0 / 3.0];
    let rows =
        |shift: f64| numbers.iter().enumerate().map(|(n, it)| rating(n as u32, 7, it + shift)).collect::<Vec<_>>();
    assert_eq!(one(&store, QueueWrite::ImportRatings { rows: rows(1.0) }).await, Out::RatingsImported);
    let mut again = rows(0.0);
    again.extend([rating(1, 3, 1.5), rating(1, 3, 2.5)]);
    one(&store, QueueWrite::ImportRatings { rows: again }).await;

    let before = store.load_queues(UnixMs(0)).await.unwrap();
    let store = reopen(store).await;
    let after = store.load_queues(UnixMs(0)).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"), "`Debug` tells -0.0 from 0.0");
    assert_eq!(after.matches, proposed.map(Arc::new).into_iter().rev().collect::<Vec<_>>());
    let expected = |n: u32, play: Option<u32>| {
        let state =
            play.map_or(ended(TicketEndReason::Cancelled, None, 70), |play| TicketState::InMatch(match_id(play)));
        StoredTicket { state, version: 2, ..fresh(&enter(ticket(n, 1, &[n, n + 100]), 50, 0)) }
    };
    let expected = [expected(2, Some(3)), expected(5, Some(8)), expected(7, None), expected(9, Some(8))];
    assert_eq!(format!("{:?}", after.tickets), format!("{expected:?}"));
    let mut rated = rows(0.0);
    rated.insert(1, rating(1, 3, 2.5));
    assert_eq!(after.ratings, rated);
    assert_eq!(one(&store, enter(ticket(1, 2, &[105]), 50, 0)).await, playing(105, 8));
    assert_eq!(
        store.acquire_leases(&[QueueKey { set_id: after.matches[0].set_id, silo: SILO }], 1_000).await.unwrap(),
        [true]
    );
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
    let made = outcomes.iter().filter(|it| matches!(it, Out::MatchWritten { .. })).count();
    let refused =
        outcomes.iter().filter(|it| matches!(it, Out::TicketsUnavailable { tickets } if tickets.len() == 1)).count();
    assert_eq!((made, refused), (1, 31));
    let load = store.load_queues(UnixMs(1)).await.unwrap();
    assert_eq!((load.matches.len(), load.tickets.iter().filter(|it| it.version == 2).count()), (1, 1));
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
    tell(async || MemoryStore::new(), async |store| store).await;
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
        SqliteStore::open(&path(n)).await.unwrap()
    };
    let reopen = async |store: SqliteStore| {
        drop(store);
        let n = *last.lock().unwrap();
        SqliteStore::open(&path(n)).await.unwrap()
    };
    tell(open, reopen).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_knows_the_story_of_queues() {
    let next = std::sync::atomic::AtomicU64::new(1);
    if create_test_database("the story of queues on Postgres").await.is_none() {
        return;
    }
    let last = std::sync::Mutex::new(String::new());
    let start = async |url: &str| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        PostgresStore::open(url, Replica { id: number, silos: None }).await.unwrap()
    };
    let open = async || {
        let TestDatabase { url } = create_test_database("a chapter").await.unwrap();
        last.lock().unwrap().clone_from(&url);
        start(&url).await
    };
    let reopen = async |store: PostgresStore| {
        drop(store);
        let url = last.lock().unwrap().clone();
        start(&url).await
    };
    tell(open, reopen).await;
}
