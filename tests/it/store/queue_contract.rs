//! Contract of the queue store, run on every backend: enter, propose, ready check, requeue, play, purge.

use std::sync::Arc;

use fireteam::domain::id::ReservationId;
use fireteam::domain::id::{AdvertisementId, SiloId};
use fireteam::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage};
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::queues::{QueueKey, QueueOutcome as Out, QueueWrite, StoredTicket, TicketState};
use fireteam::store::sqlite::SqliteStore;

use crate::store::queue_rows::{
    SILO, TransitionEffects, end_ticket, ended_stage, enter, heartbeat, match_id, new_match, next_version, propose,
    rating, stored_ticket, ticket, ticket_id, transition, user,
};
use crate::support::database::{TestDatabase, create_test_database};

async fn commit_one(store: &dyn Store, write: QueueWrite) -> Out {
    let mut outcomes = store.commit_queues(&[write]).await.unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

/// Enters a ticket for the first time.
async fn enter_first_time(store: &dyn Store, ticket: Ticket, expires: u64) {
    let write = enter(ticket, expires, 0);
    let stored = stored_ticket(&write);
    assert_eq!(commit_one(store, write).await, Out::Entered { ticket: stored, is_retry: false });
}

fn already_queued(by: u32, ticket: u32) -> Out {
    Out::AlreadyQueued { user: user(by), other_ticket: ticket_id(ticket) }
}

fn already_in_match(by: u32, match_number: u32) -> Out {
    Out::AlreadyInMatch { user: user(by), match_id: match_id(match_number) }
}

fn unavailable(tickets: &[u32]) -> Out {
    Out::TicketsUnavailable { tickets: tickets.iter().copied().map(ticket_id).collect() }
}

/// States of the tickets that a transition changed; panics if it was not written.
fn states(outcome: Out) -> Vec<(u8, TicketState, u64, u64)> {
    let Out::MatchWritten { tickets, .. } = outcome else { panic!("{outcome:?}") };
    tickets.iter().map(|it| (it.ticket.id.as_bytes()[15], it.state, it.expires_at.0, it.version)).collect()
}

fn ended(how: TicketEndReason, by: Option<u32>, purge_at: u64) -> TicketState {
    TicketState::Ended { end_reason: how, match_id: by.map(match_id), purge_at: UnixMs(purge_at) }
}

/// R5: a party enters once per key, sends heartbeats, leaves or expires; its ticket is kept until it is purged.
async fn check_tickets(store: &dyn Store) {
    let load = store.purge_and_load_queues(UnixMs(0)).await.unwrap();
    assert_eq!((load.tickets.len(), load.matches.len(), load.ratings.len()), (0, 0, 0));
    assert_eq!(store.commit_queues(&[]).await.unwrap(), []);

    enter_first_time(store, ticket(1, 1, &[1, 2]), 50).await;
    let retry = enter(Ticket { entered_at: UnixMs(30), ..ticket(1, 1, &[1, 2]) }, 90, 30);
    let first = stored_ticket(&enter(ticket(1, 1, &[1, 2]), 50, 0));
    assert_eq!(
        commit_one(store, retry).await,
        Out::Entered { ticket: first.clone(), is_retry: true },
        "the stored ticket does not change"
    );
    assert_eq!(commit_one(store, enter(ticket(1, 1, &[1]), 50, 0)).await, Out::IdempotencyKeyReused);

    let kept = StoredTicket { expires_at: UnixMs(60), version: 2, ..first };
    assert_eq!(commit_one(store, heartbeat(1, 60)).await, Out::CurrentTicket(kept.clone()));
    assert_eq!(
        commit_one(store, heartbeat(1, 55)).await,
        Out::CurrentTicket(kept.clone()),
        "a heartbeat never shortens the TTL"
    );
    assert_eq!(commit_one(store, heartbeat(2, 55)).await, Out::TicketNotFound);
    assert_eq!(commit_one(store, end_ticket(2, TicketEndReason::Left, 70, 0)).await, Out::TicketNotFound);
    assert_eq!(
        commit_one(store, end_ticket(1, TicketEndReason::Expired, 70, 59)).await,
        Out::CurrentTicket(kept.clone()),
        "not yet expired"
    );
    let expired = StoredTicket { state: ended(TicketEndReason::Expired, None, 70), version: 3, ..kept };
    assert_eq!(
        commit_one(store, end_ticket(1, TicketEndReason::Expired, 70, 60)).await,
        Out::CurrentTicket(expired.clone())
    );
    assert_eq!(
        commit_one(store, end_ticket(1, TicketEndReason::Left, 99, 61)).await,
        Out::CurrentTicket(expired.clone()),
        "an ended ticket does not change"
    );
    assert_eq!(commit_one(store, heartbeat(1, 90)).await, Out::CurrentTicket(expired.clone()));
    let late = commit_one(store, enter(ticket(1, 1, &[1, 2]), 90, 62)).await;
    assert_eq!(late, Out::Entered { ticket: expired.clone(), is_retry: true }, "a late retry returns the ended ticket");
    store.purge_queues(UnixMs(69)).await.unwrap();
    assert_eq!(store.purge_and_load_queues(UnixMs(69)).await.unwrap().tickets, [expired]);
    store.purge_queues(UnixMs(70)).await.unwrap();
    enter_first_time(store, ticket(1, 1, &[1, 2]), 99).await;
}

/// S3-13, D-1: a user is in one ticket of a queue, and in several queues only if all of them allow it.
async fn check_users(store: &dyn Store) {
    enter_first_time(store, ticket(1, 1, &[1, 2]), 50).await;
    assert_eq!(commit_one(store, enter(ticket(2, 1, &[3, 2]), 50, 0)).await, already_queued(2, 1));
    enter_first_time(store, ticket(2, 2, &[2, 3]), 50).await;
    let mut elsewhere = ticket(3, 1, &[1]);
    elsewhere.session.silo = SiloId(4);
    enter_first_time(store, elsewhere, 50).await;
    let exclusive = |n, set, users: &[u32]| Ticket { excludes_other_tickets: true, ..ticket(n, set, users) };
    assert_eq!(
        commit_one(store, enter(exclusive(4, 3, &[3]), 50, 0)).await,
        already_queued(3, 2),
        "the new ticket is exclusive"
    );
    assert_eq!(
        commit_one(store, enter(exclusive(4, 3, &[4, 2]), 50, 0)).await,
        already_queued(2, 1),
        "the lowest of several ids"
    );
    enter_first_time(store, exclusive(4, 3, &[4, 5]), 50).await;
    assert_eq!(
        commit_one(store, enter(ticket(5, 1, &[5]), 50, 0)).await,
        already_queued(5, 4),
        "the other ticket is exclusive"
    );
    commit_one(store, end_ticket(4, TicketEndReason::Left, 70, 0)).await;
    enter_first_time(store, ticket(5, 1, &[5]), 50).await;
    let swap = [
        end_ticket(5, TicketEndReason::EndedByServer, 70, 1),
        enter(exclusive(6, 1, &[5]), 50, 1),
        end_ticket(6, TicketEndReason::Left, 70, 2),
    ];
    let outcomes = store.commit_queues(&swap).await.unwrap();
    assert!(
        matches!(outcomes[..], [Out::CurrentTicket(_), Out::Entered { is_retry: false, .. }, Out::CurrentTicket(_)]),
        "{outcomes:?}"
    );
    enter_first_time(store, ticket(7, 1, &[5]), 50).await;
}

/// R1: a match is made only if all its tickets wait, and a user is in one match.
async fn check_proposals(store: &dyn Store) {
    for (n, set, users) in [(1, 1, &[1, 2][..]), (2, 1, &[3]), (3, 1, &[4]), (4, 2, &[3, 5]), (5, 2, &[6])] {
        enter_first_time(store, ticket(n, set, users), 50).await;
    }
    let both = new_match(1, 1, &[(1, &[2, 1]), (2, &[3])]);
    commit_one(store, end_ticket(3, TicketEndReason::Left, 70, 0)).await;
    let with_leaver = new_match(2, 1, &[(3, &[4]), (1, &[1, 2]), (9, &[7])]);
    assert_eq!(
        commit_one(store, propose(with_leaver, 1)).await,
        unavailable(&[3, 9]),
        "one has left, one does not exist"
    );
    assert_eq!(commit_one(store, propose(both.clone(), 50)).await, unavailable(&[1, 2]), "both have expired");
    assert_eq!(
        commit_one(store, propose(new_match(2, 2, &[(2, &[3]), (4, &[3, 5])]), 1)).await,
        unavailable(&[2, 4]),
        "ticket 2 is in another queue, and user 3 is in both"
    );
    assert_eq!(
        commit_one(store, propose(new_match(2, 1, &[(1, &[1]), (2, &[3])]), 1)).await,
        unavailable(&[1]),
        "other users than entered"
    );
    let of_two_queues = new_match(2, 1, &[(1, &[1, 2]), (5, &[6])]);
    assert_eq!(commit_one(store, propose(of_two_queues, 1)).await, unavailable(&[5]), "ticket 5 is in another queue");
    assert_eq!(commit_one(store, propose(new_match(2, 1, &[]), 1)).await, unavailable(&[]), "no tickets");
    let there = store.purge_and_load_queues(UnixMs(1)).await.unwrap();
    assert_eq!(there.matches, []);
    assert!(there.tickets.iter().all(|it| it.state == TicketState::Waiting || it.ticket.id == ticket_id(3)));

    let in_match = TicketState::InMatch(match_id(1));
    assert_eq!(
        states(commit_one(store, propose(both.clone(), 49)).await),
        [(1, in_match, 50, 2), (2, in_match, 50, 2)]
    );
    assert_eq!(commit_one(store, propose(both.clone(), 49)).await, unavailable(&[1, 2]), "a match id is used once");
    assert_eq!(
        commit_one(store, propose(new_match(2, 2, &[(4, &[3, 5]), (5, &[6])]), 1)).await,
        unavailable(&[4]),
        "user 3 is in a match"
    );
    assert_eq!(commit_one(store, enter(ticket(8, 3, &[8, 2]), 50, 0)).await, already_in_match(2, 1));
    let Out::CurrentTicket(stored) = commit_one(store, end_ticket(1, TicketEndReason::Left, 70, 1)).await else {
        panic!("the ticket exists")
    };
    assert_eq!((stored.state, stored.version), (in_match, 2), "a ticket in a match cannot leave");
    let Out::CurrentTicket(stored) = commit_one(store, heartbeat(1, 70)).await else { panic!("the ticket exists") };
    assert_eq!((stored.state, stored.expires_at, stored.version), (in_match, UnixMs(70), 3), "it stays alive");
    assert_eq!(store.read_ticket(ticket_id(1)).await.unwrap(), Some(stored));
    assert_eq!(store.read_ticket(ticket_id(99)).await.unwrap(), None);
    assert_eq!(store.read_match(match_id(1)).await.unwrap().as_deref(), Some(&both));
    assert_eq!(store.read_match(match_id(2)).await.unwrap(), None);
}

/// Every kind of stage that can be stored.
fn stages() -> Vec<MatchStage> {
    let already_in_match = |place| MatchStage::Playing {
        assignment: place,
        started_at: UnixMs(3),
        times_out_at: UnixMs(u64::MAX / 4),
        host_lost_at: None,
    };
    let server = Assignment::GameServer {
        advertisement: AdvertisementId::from_bytes([1; 16]),
        reservation: Some(ReservationId::from_bytes([2; 16])),
        connect_data: vec![0, 255, 16],
    };
    let mut all = vec![
        MatchStage::Placing { deadline: UnixMs(9) },
        already_in_match(server),
        already_in_match(Assignment::PeerHost { host: user(1) }),
        already_in_match(Assignment::Unhosted),
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

/// S0-21, B-33, B-35: a transition applies to the current version; parties that accepted are requeued unchanged.
async fn check_transitions(store: &dyn Store) {
    for (n, set, users) in [(1, 1, &[1, 2][..]), (2, 1, &[3]), (3, 2, &[1]), (4, 2, &[3]), (5, 1, &[4])] {
        enter_first_time(store, ticket(n, set, users), 50).await;
    }
    let first = new_match(1, 1, &[(1, &[1, 2]), (2, &[3])]);
    assert_eq!(
        commit_one(
            store,
            transition(next_version(&first, ended_stage(MatchEndReason::Cancelled)), &TransitionEffects::default())
        )
        .await,
        Out::StaleMatchVersion(None)
    );
    commit_one(store, propose(first.clone(), 1)).await;
    let mut agreed = next_version(&first, first.stage.clone());
    agreed.tickets[0].players[1].accepted = Some(true);
    assert_eq!(states(commit_one(store, transition(agreed.clone(), &TransitionEffects::default())).await), []);
    let stale = commit_one(
        store,
        transition(agreed.clone(), &TransitionEffects { penalized: vec![3], ..TransitionEffects::default() }),
    )
    .await;
    assert_eq!(stale, Out::StaleMatchVersion(Some(Arc::new(agreed.clone()))), "another transition was first");

    // One player is absent: the other party waits again, with its entry time; no user is in a match.
    let failed = next_version(&agreed, ended_stage(MatchEndReason::NotAcceptedInTime));
    let fates = TransitionEffects {
        requeued: vec![(1, 77)],
        ends: vec![(2, TicketEndReason::NotAcceptedInTime)],
        ..TransitionEffects::default()
    };
    let absent = ended(TicketEndReason::NotAcceptedInTime, Some(1), 80);
    let after = states(commit_one(store, transition(failed.clone(), &fates)).await);
    assert_eq!(after, [(1, TicketState::Waiting, 77, 3), (2, absent, 50, 3)]);
    let Out::Entered { ticket: stored, is_retry: true } = commit_one(store, enter(ticket(1, 1, &[1, 2]), 99, 9)).await
    else {
        panic!()
    };
    assert_eq!(stored.ticket.entered_at, UnixMs(1), "its entry time is kept");
    enter_first_time(store, ticket(6, 1, &[3]), 50).await;

    // A match that starts ends its tickets and its users' other tickets; its users are in a match until it ends.
    let second = new_match(2, 1, &[(1, &[1, 2]), (6, &[3])]);
    commit_one(store, propose(second.clone(), 1)).await;
    let ends = vec![(1, TicketEndReason::Played), (6, TicketEndReason::Played), (5, TicketEndReason::Played)];
    let began = next_version(&second, stages().remove(1));
    let fates = TransitionEffects { ends, matched_elsewhere: vec![3, 4, 9, 2], ..TransitionEffects::default() };
    let (played, elsewhere) =
        (ended(TicketEndReason::Played, Some(2), 80), ended(TicketEndReason::MatchedElsewhere, Some(2), 80));
    assert_eq!(
        states(commit_one(store, transition(began.clone(), &fates)).await),
        [(1, played, 77, 5), (3, elsewhere, 50, 2), (4, elsewhere, 50, 2), (6, played, 50, 3)],
        "ticket 5 is not in the match, and ticket 2 has ended"
    );
    assert_eq!(commit_one(store, enter(ticket(7, 2, &[3]), 50, 0)).await, already_in_match(3, 2));
    let mut last = began;
    for stage in stages() {
        last = next_version(&last, stage);
        commit_one(store, transition(last.clone(), &TransitionEffects::default())).await;
        assert_eq!(store.read_match(match_id(2)).await.unwrap().as_deref(), Some(&last), "as it was written");
    }
    enter_first_time(store, ticket(7, 2, &[3]), 50).await;
    assert_eq!(store.purge_and_load_queues(UnixMs(89)).await.unwrap().matches, [Arc::new(failed), Arc::new(last)]);
    assert_eq!(
        store.purge_and_load_queues(UnixMs(90)).await.unwrap().matches,
        Vec::<Arc<Match>>::new(),
        "both are purged"
    );
}

/// S0-21, B-35: each failed ready check has a longer cooldown in that queue, until the schedule resets.
async fn check_penalties(store: &dyn Store) {
    let mut at = 0;
    let mut fail = async |now: u64| {
        at += 1;
        assert!(
            matches!(commit_one(store, enter(ticket(at, 1, &[1]), 1_000, now)).await, Out::Entered { .. }),
            "at {now}"
        );
        let proposed = new_match(at, 1, &[(at, &[1])]);
        commit_one(store, propose(proposed.clone(), now)).await;
        let ends = vec![(at, TicketEndReason::Declined)];
        let fates = TransitionEffects { ends, penalized: vec![1, 1], now, ..TransitionEffects::default() };
        let failed =
            commit_one(store, transition(next_version(&proposed, ended_stage(MatchEndReason::Declined)), &fates)).await;
        assert!(matches!(failed, Out::MatchWritten { .. }));
    };
    let cooldown_until =
        async |now: u64, set: u32| match commit_one(store, enter(ticket(99, set, &[1, 2]), now, now)).await {
            Out::OnCooldown { until, user: player } => {
                assert_eq!(player, user(1));
                Some(until.0)
            }
            entered => {
                assert!(matches!(entered, Out::Entered { .. }));
                commit_one(store, end_ticket(99, TicketEndReason::Left, 0, now)).await;
                store.purge_queues(UnixMs(0)).await.unwrap();
                None
            }
        };
    fail(100).await;
    assert_eq!(
        [cooldown_until(100, 1).await, cooldown_until(109, 1).await, cooldown_until(110, 1).await],
        [Some(110), Some(110), None]
    );
    assert_eq!(cooldown_until(100, 2).await, None, "another queue has its own schedule");
    fail(115).await;
    assert_eq!(cooldown_until(134, 1).await, Some(135));
    fail(140).await;
    assert_eq!(cooldown_until(159, 1).await, Some(160), "the last level repeats");
    store.purge_queues(UnixMs(169)).await.unwrap();
    fail(169).await;
    assert_eq!(cooldown_until(188, 1).await, Some(189), "a penalty that still counts is not purged");
    fail(199).await;
    assert_eq!(
        [cooldown_until(208, 1).await, cooldown_until(209, 1).await],
        [Some(209), None],
        "the schedule has reset"
    );
    store.purge_queues(UnixMs(229)).await.unwrap();
    fail(229).await;
    assert_eq!(cooldown_until(239, 1).await, None);
}

/// R2, R23: a restart loads the same data, to the last bit, ordered by id.
async fn check_restart<S: Store>(store: S, reopen: impl AsyncFn(S) -> S) {
    let enter_first_time = [9, 2, 5, 7].map(|n| enter(ticket(n, 1, &[n, n + 100]), 50, 0));
    store.commit_queues(&enter_first_time).await.unwrap();
    let proposed = [new_match(8, 1, &[(5, &[5, 105]), (9, &[9, 109])]), new_match(3, 1, &[(2, &[2, 102])])];
    store.commit_queues(&proposed.clone().map(|it| propose(it, 1))).await.unwrap();
    commit_one(&store, end_ticket(7, TicketEndReason::EndedByServer, 70, 0)).await;
    let numbers = [0.1 + 0.2, f64::MIN_POSITIVE, -1e300, 5.0, 1.0 / 3.0];
    let rows =
        |shift: f64| numbers.iter().enumerate().map(|(n, it)| rating(n as u32, 7, it + shift)).collect::<Vec<_>>();
    assert_eq!(commit_one(&store, QueueWrite::ImportRatings { rows: rows(1.0) }).await, Out::RatingsImported);
    let mut again = rows(0.0);
    again.extend([rating(1, 3, 1.5), rating(1, 3, 2.5)]);
    commit_one(&store, QueueWrite::ImportRatings { rows: again }).await;

    let before = store.purge_and_load_queues(UnixMs(0)).await.unwrap();
    let store = reopen(store).await;
    let after = store.purge_and_load_queues(UnixMs(0)).await.unwrap();
    assert_eq!(format!("{before:?}"), format!("{after:?}"), "`Debug` tells -0.0 from 0.0");
    assert_eq!(after.matches, proposed.map(Arc::new).into_iter().rev().collect::<Vec<_>>());
    let expected = |n: u32, match_number: Option<u32>| {
        let state = match_number
            .map_or(ended(TicketEndReason::EndedByServer, None, 70), |number| TicketState::InMatch(match_id(number)));
        StoredTicket { state, version: 2, ..stored_ticket(&enter(ticket(n, 1, &[n, n + 100]), 50, 0)) }
    };
    let expected = [expected(2, Some(3)), expected(5, Some(8)), expected(7, None), expected(9, Some(8))];
    assert_eq!(format!("{:?}", after.tickets), format!("{expected:?}"));
    let mut rated = rows(0.0);
    rated.insert(1, rating(1, 3, 2.5));
    assert_eq!(after.ratings, rated);
    assert_eq!(commit_one(&store, enter(ticket(1, 2, &[105]), 50, 0)).await, already_in_match(105, 8));
    assert_eq!(
        store.acquire_leases(&[QueueKey { set_id: after.matches[0].set_id, silo: SILO }], 1_000).await.unwrap(),
        [true]
    );
}

/// R1: of concurrent proposals, one match of each ticket and each user is made; the others learn that it exists.
async fn check_concurrent_proposals(store: Arc<dyn Store>) {
    for n in 1..=2 {
        enter_first_time(&*store, ticket(n, n, &[1]), 50).await;
    }
    let mut proposers = tokio::task::JoinSet::new();
    for n in 0..32 {
        let (store, of) = (Arc::clone(&store), 1 + n % 2);
        proposers.spawn(async move { commit_one(&*store, propose(new_match(n, of, &[(of, &[1])]), 1)).await });
    }
    let outcomes = proposers.join_all().await;
    let made = outcomes.iter().filter(|it| matches!(it, Out::MatchWritten { .. })).count();
    let refused =
        outcomes.iter().filter(|it| matches!(it, Out::TicketsUnavailable { tickets } if tickets.len() == 1)).count();
    assert_eq!((made, refused), (1, 31));
    let load = store.purge_and_load_queues(UnixMs(1)).await.unwrap();
    assert_eq!((load.matches.len(), load.tickets.iter().filter(|it| it.version == 2).count()), (1, 1));
}

/// Each part starts with an empty store.
async fn run_all<S: Store>(open: impl AsyncFn() -> S, reopen: impl AsyncFn(S) -> S) {
    check_tickets(&open().await).await;
    check_users(&open().await).await;
    check_proposals(&open().await).await;
    check_transitions(&open().await).await;
    check_penalties(&open().await).await;
    check_restart(open().await, reopen).await;
    check_concurrent_proposals(Arc::new(open().await)).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R5: queue transitions, one search per player, ratings, no double match,
/// idempotency.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_queue_store_meets_the_contract() {
    run_all(async || MemoryStore::new(), async |store| store).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R2, R5: queue transitions, one search per player, restarts, idempotency.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_queue_store_meets_the_contract() {
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
    run_all(open, reopen).await;
}

/// S0-21, S3-13, B-32, B-33, B-35, R1, R5: queue transitions, one search per player, ratings, no double match,
/// idempotency.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_queue_store_meets_the_contract() {
    let next = std::sync::atomic::AtomicU64::new(1);
    if create_test_database("queue store contract on Postgres").await.is_none() {
        return;
    }
    let last = std::sync::Mutex::new(String::new());
    let start = async |url: &str| {
        let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        PostgresStore::open(url, FireteamReplica { id: number, silos: None }).await.unwrap()
    };
    let open = async || {
        let TestDatabase { url } = create_test_database("part of the queue store contract").await.unwrap();
        last.lock().unwrap().clone_from(&url);
        start(&url).await
    };
    let reopen = async |store: PostgresStore| {
        drop(store);
        let url = last.lock().unwrap().clone();
        start(&url).await
    };
    run_all(open, reopen).await;
}
