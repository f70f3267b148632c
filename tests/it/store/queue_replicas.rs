//! Replicas that share a Postgres: concurrent queue writes, and the queue change feed.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fireteam::domain::id::{RatingKey, SiloId};
use fireteam::domain::lifecycle::MatchEndReason;
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::queues::{
    QueueFeed, QueueFeedBatch, QueueOutcome as Out, QueueStore, QueueWrite, RatingRow, TicketState,
};
use sqlx::{Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::store::queue_rows::{
    SILO, TransitionEffects, end_ticket, ended_stage, enter, heartbeat, match_id, new_match, next_version, propose,
    rating, ticket, ticket_id, transition, user,
};
use crate::support::database::{TestDatabase, create_test_database};

pub(crate) async fn open_replica(database: &TestDatabase, number: u64) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&database.url, FireteamReplica { id: number, silos: None }).await.unwrap())
}

async fn commit_one(store: &PostgresStore, write: QueueWrite) -> Out {
    store.commit_queues(&[write]).await.unwrap().remove(0)
}

/// Two writes at the same time, one on each replica.
async fn commit_at_once(here: &Arc<PostgresStore>, there: &Arc<PostgresStore>, writes: [QueueWrite; 2]) -> [Out; 2] {
    let [first, second] = writes;
    let (first_replica, other) = (Arc::clone(here), Arc::clone(there));
    let first = tokio::spawn(async move { commit_one(&first_replica, first).await });
    let second = tokio::spawn(async move { commit_one(&other, second).await });
    [first.await.unwrap(), second.await.unwrap()]
}

/// R1: of two proposals on two replicas that share a ticket, or only a user, one is made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_on_two_replicas_never_match_one_player_twice() {
    let Some(database) = create_test_database("proposals_on_two_replicas_never_match_one_player_twice").await else {
        return;
    };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    for n in (0..120).step_by(3) {
        let (a, b, c) = (n, n + 1, n + 2);
        let all = [ticket(a, 1, &[a]), ticket(b, 1, &[b]), ticket(c, 2, &[a])];
        here.commit_queues(&all.map(|it| enter(it, 50, 0))).await.unwrap();
        // Every second time they share ticket `a`; otherwise user `a` in tickets of two queues.
        let shared = if n % 2 == 0 { c } else { a };
        let proposals =
            [propose(new_match(n, 1, &[(a, &[a]), (b, &[b])]), 1), propose(new_match(n + 1, 1, &[(shared, &[a])]), 1)];
        let outcomes = commit_at_once(&here, &there, proposals).await;
        let written = outcomes.iter().filter(|it| matches!(it, Out::MatchWritten { .. })).count();
        let refused = outcomes
            .iter()
            .filter(|it| matches!(it, Out::TicketsUnavailable { tickets } if tickets.len() == 1))
            .count();
        assert_eq!((written, refused), (1, 1), "{outcomes:?}");
    }
    let load = here.purge_and_load_queues(UnixMs(1)).await.unwrap();
    assert_eq!(load.matches.len(), 40);
    for found in &load.matches {
        for member in &found.tickets {
            let stored = load.tickets.iter().find(|it| it.ticket.id == member.ticket_id).unwrap();
            assert_eq!(stored.state, TicketState::InMatch(found.id), "all tickets of a match or none");
        }
    }
}

/// R1, R5: of two parties with a common user that enter on two replicas, one waits; the same key is one ticket; an
/// exclusive ticket is the user's only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn enter_on_two_replicas_never_queues_one_player_twice() {
    let Some(database) = create_test_database("enter_on_two_replicas_never_queues_one_player_twice").await else {
        return;
    };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    for n in 0..40 {
        let users = [n, n + 1_000];
        let parties = [enter(ticket(n, 1, &users), 50, 0), enter(ticket(n + 500, 1, &users[..1]), 50, 0)];
        let [first, second] = commit_at_once(&here, &there, parties).await;
        match (first, second) {
            (Out::Entered { .. }, Out::AlreadyQueued { user: refused_user, other_ticket: ticket }) => {
                assert_eq!((refused_user, ticket), (user(n), ticket_id(n)));
            }
            (Out::AlreadyQueued { user: refused_user, other_ticket: ticket }, Out::Entered { .. }) => {
                assert_eq!((refused_user, ticket), (user(n), ticket_id(n + 500)));
            }
            other => panic!("{other:?}"),
        }
        let n = n + 2_000;
        let once = [enter(ticket(n, 1, &[n]), 50, 0), enter(ticket(n, 1, &[n]), 50, 0)];
        let [first, second] = commit_at_once(&here, &there, once).await;
        let (Out::Entered { is_retry: first, .. }, Out::Entered { is_retry: second, .. }) = (first, second) else {
            panic!()
        };
        assert!(first != second);
        let n = n + 2_000;
        let exclusive = Ticket { excludes_other_tickets: true, ..ticket(n, 1, &[n]) };
        let outcomes =
            commit_at_once(&here, &there, [enter(exclusive, 50, 0), enter(ticket(n + 500, 2, &[n]), 50, 0)]).await;
        let entered = outcomes.iter().filter(|it| matches!(it, Out::Entered { is_retry: false, .. })).count();
        let refused = outcomes.iter().filter(|it| matches!(it, Out::AlreadyQueued { .. })).count();
        assert_eq!((entered, refused), (1, 1), "{outcomes:?}");
    }
}

/// R1: if a party leaves on one replica while another proposes it, exactly one of both succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leave_and_proposal_on_two_replicas_are_serialized() {
    let Some(database) = create_test_database("leave_and_proposal_on_two_replicas_are_serialized").await else {
        return;
    };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    for n in 0..40 {
        commit_one(&here, enter(ticket(n, 1, &[n]), 50, 0)).await;
        let both = [end_ticket(n, TicketEndReason::Left, 90, 1), propose(new_match(n, 1, &[(n, &[n])]), 1)];
        match commit_at_once(&here, &there, both).await {
            [Out::CurrentTicket(stored), Out::MatchWritten { .. }] => {
                assert_eq!(stored.state, TicketState::InMatch(match_id(n)))
            }
            [Out::CurrentTicket(left), Out::TicketsUnavailable { .. }] => {
                assert!(matches!(left.state, TicketState::Ended { .. }))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// R1: a match has one transition per version, on all replicas together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transition_on_two_replicas_happens_once_per_version() {
    let Some(database) = create_test_database("transition_on_two_replicas_happens_once_per_version").await else {
        return;
    };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    for n in 0..40 {
        let proposed = new_match(n, 1, &[(n, &[n])]);
        here.commit_queues(&[enter(ticket(n, 1, &[n]), 50, 0), propose(proposed.clone(), 1)]).await.unwrap();
        let back = transition(
            next_version(&proposed, ended_stage(MatchEndReason::NoServer)),
            &TransitionEffects { requeued: vec![(n, 60)], ..TransitionEffects::default() },
        );
        let ends = TransitionEffects {
            ends: vec![(n, TicketEndReason::Declined)],
            penalized: vec![n],
            ..TransitionEffects::default()
        };
        let declined = transition(next_version(&proposed, ended_stage(MatchEndReason::Declined)), &ends);
        let outcomes = commit_at_once(&here, &there, [back, declined]).await;
        let Some(Out::StaleMatchVersion(Some(known))) =
            outcomes.iter().find(|it| matches!(it, Out::StaleMatchVersion(_)))
        else {
            panic!("{outcomes:?}")
        };
        assert!(outcomes.iter().any(|it| matches!(it, Out::MatchWritten { .. })));
        assert_eq!(
            here.read_match(match_id(n)).await.unwrap().as_ref(),
            Some(known),
            "the loser receives the winner's version"
        );
    }
}

/// R1: the database refuses a user in two matches, or in two tickets of a queue, also if the replica's memory is stale.
#[tokio::test]
async fn proposal_with_stale_memory_is_refused_by_the_database() {
    let Some(database) = create_test_database("proposal_with_stale_memory_is_refused_by_the_database").await else {
        return;
    };
    let here = open_replica(&database, 1).await;
    commit_one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    let mut other = database.connect().await;
    let mut open_transaction = other.begin().await.unwrap();
    // Written and not committed: other transactions do not see it, and cannot write the same.
    let bytes = |id: [u8; 16]| sqlx::types::Uuid::from_bytes(id);
    let plays = sqlx::query("insert into match_user values ($1, $2)").bind(bytes(*user(1).as_bytes()));
    plays.bind(bytes(*match_id(9).as_bytes())).execute(&mut *open_transaction).await.unwrap();
    let queued = sqlx::query("insert into ticket_user values ($1, 1, $2, $3, false)").bind(bytes(*user(2).as_bytes()));
    let queued = queued.bind(SILO.0.cast_signed()).bind(bytes(*ticket_id(9).as_bytes()));
    queued.execute(&mut *open_transaction).await.unwrap();
    let waiting = {
        let here = Arc::clone(&here);
        tokio::spawn(async move {
            let proposed = commit_one(&here, propose(new_match(1, 1, &[(1, &[1])]), 1)).await;
            (proposed, commit_one(&here, enter(ticket(2, 1, &[2]), 50, 0)).await)
        })
    };
    let mut other_connection = database.connect().await;
    loop {
        let blocked: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .fetch_one(&mut other_connection)
        .await
        .unwrap();
        if 0 < blocked {
            break;
        }
    }
    open_transaction.commit().await.unwrap();
    let (proposed, entered) = waiting.await.unwrap();
    assert_eq!(proposed, Out::TicketsUnavailable { tickets: vec![ticket_id(1)] });
    assert_eq!(entered, Out::AlreadyQueued { user: user(2), other_ticket: ticket_id(9) });
}

/// A feed that has been read to its end.
async fn open_feed_at_end(store: &PostgresStore) -> Box<dyn QueueFeed> {
    let mut feed = store.open_queue_feed().await.unwrap();
    assert!(feed.read_batch().await.unwrap().is_snapshot);
    feed.read_batch().await.unwrap();
    feed
}

async fn read_changes(feed: &mut Box<dyn QueueFeed>) -> QueueFeedBatch {
    let batch = feed.read_batch().await.unwrap();
    assert!(!batch.is_snapshot);
    batch
}

/// Last bytes of the ids of the changed tickets and matches.
fn changed_ids(batch: &QueueFeedBatch) -> (Vec<u8>, Vec<u8>) {
    let tickets = batch.tickets.iter().map(|it| it.ticket.id.as_bytes()[15]);
    (tickets.collect(), batch.matches.iter().map(|it| it.id.as_bytes()[15]).collect())
}

/// R9: another replica reads tickets, matches, ratings and purges, once; a replica does not read its own changes.
#[tokio::test]
async fn queue_feed_has_tickets_matches_and_ratings() {
    let Some(database) = create_test_database("queue_feed_has_tickets_matches_and_ratings").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    let (mut own, mut feed) = (open_feed_at_end(&here).await, open_feed_at_end(&there).await);
    let enters = [2, 1].map(|n| enter(ticket(n, 1, &[n]), 50, 0));
    here.commit_queues(&enters).await.unwrap();
    let batch = read_changes(&mut feed).await;
    assert_eq!(changed_ids(&batch), (vec![1, 2], vec![]));
    assert_eq!(batch.tickets[1].request_digest, [17; 16]);
    assert_eq!(changed_ids(&read_changes(&mut feed).await), (vec![], vec![]), "once only");
    assert_eq!(changed_ids(&read_changes(&mut own).await), (vec![], vec![]), "a replica does not read its own changes");

    let proposed = new_match(3, 1, &[(1, &[1]), (2, &[2])]);
    there.commit_queues(&[propose(proposed.clone(), 1), heartbeat(1, 99)]).await.unwrap();
    let on_other_scale = RatingRow { key: RatingKey::of_pool_and_scale_digest(7), ..rating(5, 1, 3.5) };
    let rated = vec![rating(5, 1, 1.5), rating(5, 2, 2.5), on_other_scale];
    let rates = QueueWrite::ImportRatings { rows: rated.clone() };
    there.commit_queues(&[rates]).await.unwrap();
    let batch = read_changes(&mut own).await;
    assert_eq!(changed_ids(&batch), (vec![1, 2], vec![3]));
    assert_eq!(*batch.matches[0], proposed);
    assert_eq!(batch.ratings, rated);

    let ends = TransitionEffects {
        ends: vec![(1, TicketEndReason::NotAcceptedInTime), (2, TicketEndReason::NotAcceptedInTime)],
        ..TransitionEffects::default()
    };
    there
        .commit_queues(&[transition(next_version(&proposed, ended_stage(MatchEndReason::NotAcceptedInTime)), &ends)])
        .await
        .unwrap();
    there.purge_queues(UnixMs(90)).await.unwrap();
    let batch = read_changes(&mut own).await;
    assert_eq!((batch.removed_tickets, batch.removed_matches), (vec![ticket_id(1), ticket_id(2)], vec![match_id(3)]));
    there.commit_queues(&[heartbeat(7, 99)]).await.unwrap();
    assert_eq!(
        changed_ids(&read_changes(&mut own).await),
        (vec![], vec![]),
        "a write without effect is not in the feed"
    );
}

/// R9: a transaction that takes its version early and commits late is read when it commits, and delays no other.
#[tokio::test]
async fn queue_feed_does_not_skip_a_late_commit() {
    let Some(database) = create_test_database("queue_feed_does_not_skip_a_late_commit").await else { return };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    commit_one(&here, enter(ticket(200, 1, &[200]), 50, 0)).await;
    let mut feed = open_feed_at_end(&there).await;
    let mut slow = database.connect().await;
    let mut slow = slow.begin().await.unwrap();
    let change = "with moved as (update ticket set version = 9 returning ticket_id) \
                  insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated_users) \
                  select gen_random_uuid(), pg_current_xact_id()::text::bigint, 3, array[ticket_id], '{}', '{}' from moved";
    assert_eq!(slow.execute(change).await.unwrap().rows_affected(), 1);
    for n in 0..100 {
        commit_one(&here, enter(ticket(n, 1, &[n]), 50, 0)).await;
        if n % 30 == 0 {
            let mut all = changed_ids(&read_changes(&mut feed).await).0;
            while !all.contains(&(n as u8)) {
                all.extend(changed_ids(&read_changes(&mut feed).await).0);
            }
        }
    }
    while read_changes(&mut feed).await.has_more {}
    slow.commit().await.unwrap();
    let batch = read_changes(&mut feed).await;
    assert_eq!((changed_ids(&batch).0, batch.tickets[0].version), (vec![200], 9));
}

/// A replica with a list of silos loads and reads only their tickets, and all ratings.
#[tokio::test]
async fn queue_feed_is_limited_to_the_replicas_silos() {
    let Some(database) = create_test_database("queue_feed_is_limited_to_the_replicas_silos").await else { return };
    let here = open_replica(&database, 1).await;
    let other = FireteamReplica { id: 2, silos: Some(vec![SiloId(5)]) };
    let other = PostgresStore::open(&database.url, other).await.unwrap();
    let mut feed = open_feed_at_end(&other).await;
    let rates = QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] };
    let mut other_silo = ticket(2, 1, &[2]);
    other_silo.session.silo = SiloId(5);
    let enters = [enter(ticket(1, 1, &[1]), 50, 0), enter(other_silo, 50, 0)];
    here.commit_queues(&[&enters[..], &[propose(new_match(1, 1, &[(1, &[1])]), 1), rates]].concat()).await.unwrap();
    let batch = read_changes(&mut feed).await;
    assert_eq!((changed_ids(&batch), batch.ratings.len()), ((vec![2], vec![]), 1));
    let load = other.purge_and_load_queues(UnixMs(0)).await.unwrap();
    assert_eq!((load.tickets.len(), load.matches.len(), load.ratings.len()), (1, 0, 1));
}

/// R5: a commit that the database refuses at its end wrote nothing, and its batch id is used up.
#[tokio::test]
async fn queue_commit_that_fails_writes_nothing() {
    let Some(database) = create_test_database("queue_commit_that_fails_writes_nothing").await else {
        return;
    };
    let here = open_replica(&database, 1).await;
    let mut connection = database.connect().await;
    let fail = "create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; \
                create constraint trigger late after insert on ticket deferrable initially deferred for each row \
                execute function fail()";
    connection.execute(fail).await.unwrap();
    let refused = here.commit_queues(&[enter(ticket(1, 1, &[1]), 50, 0)]).await.unwrap_err().to_string();
    assert!(refused.contains("nothing was written"), "{refused}");
    connection.execute("drop trigger late on ticket").await.unwrap();
    let empty_batches: i64 = sqlx::query_scalar("select count(*) from queue_change where ticket_ids = '{}'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(empty_batches, 1);
    let again = commit_one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    assert!(matches!(again, Out::Entered { is_retry: false, .. }));
}

/// A proxy that listens in `folder` as Postgres does and forwards to the server in `to`. When `cut` is set, it closes
/// the connection after forwarding a commit, before the answer.
async fn proxy(folder: &Path, to: std::path::PathBuf, cut: Arc<AtomicBool>) {
    let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let (to, cut) = (to.join(".s.PGSQL.5432"), Arc::clone(&cut));
        tokio::spawn(async move {
            let mut server = UnixStream::connect(to).await.unwrap();
            let (mut request, mut response) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                tokio::select! {
                    read = client.read(&mut request) => {
                        let Ok(1..) = read else { return };
                        let request = &request[..read.unwrap()];
                        server.write_all(request).await.unwrap();
                        if request.windows(7).any(|it| it == b"commit\0") && cut.swap(false, Ordering::SeqCst) {
                            // It is committed when the database answers.
                            assert!(0 < server.read(&mut response).await.unwrap());
                            return;
                        }
                    }
                    read = server.read(&mut response) => {
                        let Ok(1..) = read else { return };
                        client.write_all(&response[..read.unwrap()]).await.unwrap();
                    }
                }
            }
        });
    }
}

/// R1, R5: the outcome of a commit whose answer was lost is looked up and returned.
#[tokio::test]
async fn queue_commit_with_a_lost_answer_is_resolved() {
    let Some(database) = create_test_database("queue_commit_with_a_lost_answer_is_resolved").await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let real = database.url.split("host=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let cut = Arc::new(AtomicBool::new(false));
    let path = folder.path().to_owned();
    let (to, proxy_cut) = (real.clone().into(), Arc::clone(&cut));
    let proxy = tokio::spawn(async move { proxy(&path, to, proxy_cut).await });
    let url = database.url.replace(&real, &folder.path().display().to_string());
    while !folder.path().join(".s.PGSQL.5432").exists() {
        tokio::task::yield_now().await;
    }
    let here = PostgresStore::open(&url, FireteamReplica { id: 1, silos: None }).await.unwrap();
    commit_one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    cut.store(true, Ordering::SeqCst);
    let outcome = commit_one(&here, propose(new_match(1, 1, &[(1, &[1])]), 1)).await;
    assert!(matches!(outcome, Out::MatchWritten { .. }), "{outcome:?}");
    assert!(!cut.load(Ordering::SeqCst), "the connection was cut");
    let load = here.purge_and_load_queues(UnixMs(1)).await.unwrap();
    assert_eq!((load.matches.len(), load.tickets[0].state), (1, TicketState::InMatch(match_id(1))));
    proxy.abort();
}
