//! Servers that share a store agree about its queues: what each does at the same moment as another, what they hear of each
//! other, and who runs which queue.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fireteam::domain::id::{SetId, SiloId};
use fireteam::domain::lifecycle::MatchEndReason;
use fireteam::domain::queue::ticket::{Ticket, TicketEndReason};
use fireteam::domain::time::UnixMs;
use fireteam::store::postgres::{PostgresStore, Replica};
use fireteam::store::queues::{
    QueueFeed, QueueFeedBatch, QueueKey, QueueOutcome as Out, QueueStore, QueueWrite, TicketState,
};
use sqlx::{Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::store::queue_rows::{
    Fates, SILO, beat, end, enter, match_id, move_on, over, play, propose, rating, then, ticket, ticket_id, user,
};
use crate::support::database::{TestDatabase, create_test_database};

async fn server(database: &TestDatabase, number: u64) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&database.url, Replica { id: number, silos: None }).await.unwrap())
}

async fn one(store: &PostgresStore, write: QueueWrite) -> Out {
    store.commit_queues(&[write]).await.unwrap().remove(0)
}

/// Both at the same moment, each by a server of its own.
async fn at_once(here: &Arc<PostgresStore>, there: &Arc<PostgresStore>, writes: [QueueWrite; 2]) -> [Out; 2] {
    let [first, second] = writes;
    let (one_server, other) = (Arc::clone(here), Arc::clone(there));
    let first = tokio::spawn(async move { one(&one_server, first).await });
    let second = tokio::spawn(async move { one(&other, second).await });
    [first.await.unwrap(), second.await.unwrap()]
}

/// R1: of two proposals by two servers that share a ticket, or only a user, one comes about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_never_match_one_player_twice() {
    let Some(database) = create_test_database("two_servers_never_match_one_player_twice").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    for n in (0..120).step_by(3) {
        let (a, b, c) = (n, n + 1, n + 2);
        let all = [ticket(a, 1, &[a]), ticket(b, 1, &[b]), ticket(c, 2, &[a])];
        here.commit_queues(&all.map(|it| enter(it, 50, 0))).await.unwrap();
        // By turns they share the ticket `a`, and the user `a` in tickets of two queues.
        let shared = if n % 2 == 0 { c } else { a };
        let proposals =
            [propose(play(n, 1, &[(a, &[a]), (b, &[b])]), 1), propose(play(n + 1, 1, &[(shared, &[a])]), 1)];
        let outcomes = at_once(&here, &there, proposals).await;
        let made = outcomes.iter().filter(|it| matches!(it, Out::MatchWritten { .. })).count();
        let refused = outcomes
            .iter()
            .filter(|it| matches!(it, Out::TicketsUnavailable { tickets } if tickets.len() == 1))
            .count();
        assert_eq!((made, refused), (1, 1), "{outcomes:?}");
    }
    let load = here.load_queues(UnixMs(1)).await.unwrap();
    assert_eq!(load.matches.len(), 40);
    for play in &load.matches {
        for member in &play.tickets {
            let stored = load.tickets.iter().find(|it| it.ticket.id == member.ticket_id).unwrap();
            assert_eq!(stored.state, TicketState::InMatch(play.id), "all of a match or nothing");
        }
    }
}

/// R1, R5: of two parties with a common user that enter at two servers, one waits; the same key is one ticket; and whoever
/// waits alone is alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_never_queue_one_player_twice() {
    let Some(database) = create_test_database("two_servers_never_queue_one_player_twice").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    for n in 0..40 {
        let users = [n, n + 1_000];
        let parties = [enter(ticket(n, 1, &users), 50, 0), enter(ticket(n + 500, 1, &users[..1]), 50, 0)];
        let [first, second] = at_once(&here, &there, parties).await;
        match (first, second) {
            (Out::Entered { .. }, Out::AlreadyQueued { user: who, other_ticket: ticket }) => {
                assert_eq!((who, ticket), (user(n), ticket_id(n)));
            }
            (Out::AlreadyQueued { user: who, other_ticket: ticket }, Out::Entered { .. }) => {
                assert_eq!((who, ticket), (user(n), ticket_id(n + 500)));
            }
            other => panic!("{other:?}"),
        }
        let n = n + 2_000;
        let once = [enter(ticket(n, 1, &[n]), 50, 0), enter(ticket(n, 1, &[n]), 50, 0)];
        let [first, second] = at_once(&here, &there, once).await;
        let (Out::Entered { is_replay: first, .. }, Out::Entered { is_replay: second, .. }) = (first, second) else {
            panic!()
        };
        assert!(first != second);
        let n = n + 2_000;
        let alone = Ticket { exclusive: true, ..ticket(n, 1, &[n]) };
        let outcomes = at_once(&here, &there, [enter(alone, 50, 0), enter(ticket(n + 500, 2, &[n]), 50, 0)]).await;
        let entered = outcomes.iter().filter(|it| matches!(it, Out::Entered { is_replay: false, .. })).count();
        let refused = outcomes.iter().filter(|it| matches!(it, Out::AlreadyQueued { .. })).count();
        assert_eq!((entered, refused), (1, 1), "{outcomes:?}");
    }
}

/// R1: a party that leaves at one server while another proposes it is in the match or gone, and both know which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaving_and_being_matched_take_turns() {
    let Some(database) = create_test_database("leaving_and_being_matched_take_turns").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    for n in 0..40 {
        one(&here, enter(ticket(n, 1, &[n]), 50, 0)).await;
        let both = [end(n, TicketEndReason::Left, 90, 1), propose(play(n, 1, &[(n, &[n])]), 1)];
        match at_once(&here, &there, both).await {
            [Out::CurrentTicket(stays), Out::MatchWritten { .. }] => {
                assert_eq!(stays.state, TicketState::InMatch(match_id(n)))
            }
            [Out::CurrentTicket(left), Out::TicketsUnavailable { .. }] => {
                assert!(matches!(left.state, TicketState::Ended { .. }))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// R1: a match moves on from one edition once, whichever servers have heard of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_never_move_a_match_from_the_same_edition() {
    let Some(database) = create_test_database("two_servers_never_move_a_match_from_the_same_edition").await else {
        return;
    };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    for n in 0..40 {
        let proposed = play(n, 1, &[(n, &[n])]);
        here.commit_queues(&[enter(ticket(n, 1, &[n]), 50, 0), propose(proposed.clone(), 1)]).await.unwrap();
        let back = move_on(
            then(&proposed, over(MatchEndReason::NoServer)),
            &Fates { returns: vec![(n, 60)], ..Fates::default() },
        );
        let ends = Fates { ends: vec![(n, TicketEndReason::Declined)], punished: vec![n], ..Fates::default() };
        let gone = move_on(then(&proposed, over(MatchEndReason::Declined)), &ends);
        let outcomes = at_once(&here, &there, [back, gone]).await;
        let Some(Out::StaleMatchVersion(Some(known))) =
            outcomes.iter().find(|it| matches!(it, Out::StaleMatchVersion(_)))
        else {
            panic!("{outcomes:?}")
        };
        assert!(outcomes.iter().any(|it| matches!(it, Out::MatchWritten { .. })));
        assert_eq!(here.read_match(match_id(n)).await.unwrap().as_ref(), Some(known), "who lost knows who won");
    }
}

/// R1: the database itself refuses to have a user in two matches, or in two tickets of a queue, whatever a server believes.
#[tokio::test]
async fn a_row_that_is_there_wins_against_what_memory_believes() {
    let Some(database) = create_test_database("a_row_that_is_there_wins_against_what_memory_believes").await else {
        return;
    };
    let here = server(&database, 1).await;
    one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    let mut other = database.connect().await;
    let mut open = other.begin().await.unwrap();
    // Made and not committed: whoever asks sees nothing yet, and cannot make the same.
    let bytes = |id: [u8; 16]| sqlx::types::Uuid::from_bytes(id);
    let plays = sqlx::query("insert into match_user values ($1, $2)").bind(bytes(*user(1).as_bytes()));
    plays.bind(bytes(*match_id(9).as_bytes())).execute(&mut *open).await.unwrap();
    let queued = sqlx::query("insert into ticket_user values ($1, 1, $2, $3, false)").bind(bytes(*user(2).as_bytes()));
    let queued = queued.bind(SILO.0.cast_signed()).bind(bytes(*ticket_id(9).as_bytes()));
    queued.execute(&mut *open).await.unwrap();
    let waiting = {
        let here = Arc::clone(&here);
        tokio::spawn(async move {
            let proposed = one(&here, propose(play(1, 1, &[(1, &[1])]), 1)).await;
            (proposed, one(&here, enter(ticket(2, 1, &[2]), 50, 0)).await)
        })
    };
    let mut third = database.connect().await;
    loop {
        let stuck: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
        .fetch_one(&mut third)
        .await
        .unwrap();
        if 0 < stuck {
            break;
        }
    }
    open.commit().await.unwrap();
    let (proposed, entered) = waiting.await.unwrap();
    assert_eq!(proposed, Out::TicketsUnavailable { tickets: vec![ticket_id(1)] });
    assert_eq!(entered, Out::AlreadyQueued { user: user(2), other_ticket: ticket_id(9) });
}

/// A reader that has read everything there is.
async fn reader(store: &PostgresStore) -> Box<dyn QueueFeed> {
    let mut feed = store.open_queue_feed().await.unwrap();
    assert!(feed.read_batch().await.unwrap().is_snapshot);
    feed.read_batch().await.unwrap();
    feed
}

async fn news(feed: &mut Box<dyn QueueFeed>) -> QueueFeedBatch {
    let news = feed.read_batch().await.unwrap();
    assert!(!news.is_snapshot);
    news
}

/// Last bytes of the names of what was changed.
fn names(news: &QueueFeedBatch) -> (Vec<u8>, Vec<u8>) {
    let tickets = news.tickets.iter().map(|it| it.ticket.id.as_bytes()[15]);
    (tickets.collect(), news.matches.iter().map(|it| it.id.as_bytes()[15]).collect())
}

/// R9: tickets, matches and ratings travel, once, and not back to who changed them; what is forgotten is gone.
#[tokio::test]
async fn what_one_server_does_to_the_queues_another_hears() {
    let Some(database) = create_test_database("what_one_server_does_to_the_queues_another_hears").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    let (mut own, mut feed) = (reader(&here).await, reader(&there).await);
    let enters = [2, 1].map(|n| enter(ticket(n, 1, &[n]), 50, 0));
    here.commit_queues(&enters).await.unwrap();
    let told = news(&mut feed).await;
    assert_eq!(names(&told), (vec![1, 2], vec![]));
    assert_eq!(told.tickets[1].request_digest, [17; 16]);
    assert_eq!(names(&news(&mut feed).await), (vec![], vec![]), "once");
    assert_eq!(names(&news(&mut own).await), (vec![], vec![]), "not to oneself");

    let proposed = play(3, 1, &[(1, &[1]), (2, &[2])]);
    there.commit_queues(&[propose(proposed.clone(), 1), beat(1, 99)]).await.unwrap();
    let rates = QueueWrite::ImportRatings { rows: vec![rating(5, 1, 1.5), rating(5, 2, 2.5)] };
    there.commit_queues(&[rates]).await.unwrap();
    let told = news(&mut own).await;
    assert_eq!(names(&told), (vec![1, 2], vec![3]));
    assert_eq!(*told.matches[0], proposed);
    assert_eq!(told.ratings, [rating(5, 1, 1.5), rating(5, 2, 2.5)]);

    let ends = Fates {
        ends: vec![(1, TicketEndReason::NotAcceptedInTime), (2, TicketEndReason::NotAcceptedInTime)],
        ..Fates::default()
    };
    there.commit_queues(&[move_on(then(&proposed, over(MatchEndReason::NotAcceptedInTime)), &ends)]).await.unwrap();
    there.purge_queues(UnixMs(90)).await.unwrap();
    let told = news(&mut own).await;
    assert_eq!((told.removed_tickets, told.removed_matches), (vec![ticket_id(1), ticket_id(2)], vec![match_id(3)]));
    there.commit_queues(&[beat(7, 99)]).await.unwrap();
    assert_eq!(names(&news(&mut own).await), (vec![], vec![]), "what changes nothing is no news");
}

/// R9: a transaction that takes its number early and commits late is read when it commits, and holds nobody up.
#[tokio::test]
async fn a_late_commit_to_the_queues_is_not_skipped() {
    let Some(database) = create_test_database("a_late_commit_to_the_queues_is_not_skipped").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    one(&here, enter(ticket(200, 1, &[200]), 50, 0)).await;
    let mut feed = reader(&there).await;
    let mut slow = database.connect().await;
    let mut slow = slow.begin().await.unwrap();
    let change = "with moved as (update ticket set version = 9 returning ticket_id) \
                  insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated_users) \
                  select gen_random_uuid(), pg_current_xact_id()::text::bigint, 3, array[ticket_id], '{}', '{}' from moved";
    assert_eq!(slow.execute(change).await.unwrap().rows_affected(), 1);
    for n in 0..100 {
        one(&here, enter(ticket(n, 1, &[n]), 50, 0)).await;
        if n % 30 == 0 {
            let mut all = names(&news(&mut feed).await).0;
            while !all.contains(&(n as u8)) {
                all.extend(names(&news(&mut feed).await).0);
            }
        }
    }
    while news(&mut feed).await.has_more {}
    slow.commit().await.unwrap();
    let told = news(&mut feed).await;
    assert_eq!((names(&told).0, told.tickets[0].version), (vec![200], 9));
}

/// A server that is given silos loads and hears of no others, but of everybody's rating.
#[tokio::test]
async fn silos_of_queues_are_kept_apart() {
    let Some(database) = create_test_database("silos_of_queues_are_kept_apart").await else { return };
    let here = server(&database, 1).await;
    let other = Replica { id: 2, silos: Some(vec![SiloId(5)]) };
    let other = PostgresStore::open(&database.url, other).await.unwrap();
    let mut feed = reader(&other).await;
    let rates = QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] };
    let mut elsewhere = ticket(2, 1, &[2]);
    elsewhere.session.silo = SiloId(5);
    let enters = [enter(ticket(1, 1, &[1]), 50, 0), enter(elsewhere, 50, 0)];
    here.commit_queues(&[&enters[..], &[propose(play(1, 1, &[(1, &[1])]), 1), rates]].concat()).await.unwrap();
    let told = news(&mut feed).await;
    assert_eq!((names(&told), told.ratings.len()), ((vec![2], vec![]), 1));
    let load = other.load_queues(UnixMs(0)).await.unwrap();
    assert_eq!((load.tickets.len(), load.matches.len(), load.ratings.len()), (1, 0, 1));
}

/// S3-5: servers share queues out among themselves, one by one. A lease is one server's at a time, by the database's
/// clock, and anybody's when it has run out or is let go.
#[tokio::test]
async fn a_queue_is_leased_to_one_server() {
    let Some(database) = create_test_database("a_queue_is_leased_to_one_server").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    let [first, second, third] = [3, 1, 2].map(|set| QueueKey { set_id: SetId(set), silo: SILO });
    assert_eq!(here.acquire_leases(&[first, second], 60_000).await.unwrap(), [true, true]);
    assert_eq!(there.acquire_leases(&[third, first, second], 60_000).await.unwrap(), [true, false, false]);
    assert_eq!(here.acquire_leases(&[first, third], 60_000).await.unwrap(), [true, false], "it keeps what it has");
    here.release_leases(&[first, third]).await.unwrap();
    assert_eq!(
        there.acquire_leases(&[first, third], 60_000).await.unwrap(),
        [true, true],
        "nobody lets go of another's"
    );
    assert_eq!(here.acquire_leases(&[second], 0).await.unwrap(), [true], "its last moment");
    assert_eq!(there.acquire_leases(&[second], 60_000).await.unwrap(), [true], "it has run out");
    assert_eq!(here.acquire_leases(&[], 60_000).await.unwrap(), Vec::<bool>::new());
}

/// S2-7: what is a share of the connected players counts those of all servers.
#[tokio::test]
async fn servers_count_whom_they_have_together() {
    let Some(database) = create_test_database("servers_count_whom_they_have_together").await else { return };
    let (here, there) = (server(&database, 1).await, server(&database, 2).await);
    assert_eq!(here.report_connected_users(&[(SiloId(2), 5), (SILO, 7)]).await.unwrap(), [(SILO, 7), (SiloId(2), 5)]);
    assert_eq!(there.report_connected_users(&[(SiloId(2), 10)]).await.unwrap(), [(SILO, 7), (SiloId(2), 15)]);
    assert_eq!(
        here.report_connected_users(&[(SiloId(2), 1)]).await.unwrap(),
        [(SiloId(2), 11)],
        "what it says now is what counts"
    );
    let mut old = database.connect().await;
    old.execute("update connected_users set reported_at = reported_at - interval '11 seconds'").await.unwrap();
    assert_eq!(here.report_connected_users(&[]).await.unwrap(), []);
}

/// R5: a commit that the database refuses at the last moment has not happened, and its name is taken for good.
#[tokio::test]
async fn a_commit_to_the_queues_that_fails_has_not_happened() {
    let Some(database) = create_test_database("a_commit_to_the_queues_that_fails_has_not_happened").await else {
        return;
    };
    let here = server(&database, 1).await;
    let mut meddler = database.connect().await;
    let fail = "create function fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$; \
                create constraint trigger late after insert on ticket deferrable initially deferred for each row \
                execute function fail()";
    meddler.execute(fail).await.unwrap();
    let refused = here.commit_queues(&[enter(ticket(1, 1, &[1]), 50, 0)]).await.unwrap_err().to_string();
    assert!(refused.contains("nothing was written"), "{refused}");
    meddler.execute("drop trigger late on ticket").await.unwrap();
    let given_up: i64 = sqlx::query_scalar("select count(*) from queue_change where ticket_ids = '{}'")
        .fetch_one(&mut meddler)
        .await
        .unwrap();
    assert_eq!(given_up, 1);
    let again = one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    assert!(matches!(again, Out::Entered { is_replay: false, .. }));
}

/// Listens in `folder` as Postgres would, and passes everything on to the one in `to`; once `cut` says so, a connection that has
/// passed a commit on ends before its answer.
async fn between(folder: &Path, to: std::path::PathBuf, cut: Arc<AtomicBool>) {
    let listener = UnixListener::bind(folder.join(".s.PGSQL.5432")).unwrap();
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        let (to, cut) = (to.join(".s.PGSQL.5432"), Arc::clone(&cut));
        tokio::spawn(async move {
            let mut server = UnixStream::connect(to).await.unwrap();
            let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
            loop {
                tokio::select! {
                    read = client.read(&mut asked) => {
                        let Ok(1..) = read else { return };
                        let asked = &asked[..read.unwrap()];
                        server.write_all(asked).await.unwrap();
                        if asked.windows(7).any(|it| it == b"commit\0") && cut.swap(false, Ordering::SeqCst) {
                            // It has been committed once the database answers.
                            assert!(0 < server.read(&mut answered).await.unwrap());
                            return;
                        }
                    }
                    read = server.read(&mut answered) => {
                        let Ok(1..) = read else { return };
                        client.write_all(&answered[..read.unwrap()]).await.unwrap();
                    }
                }
            }
        });
    }
}

/// R1, R5: a commit that happened and was not answered is found out, and answered as what it was.
#[tokio::test]
async fn a_commit_to_the_queues_that_is_not_answered_is_found_out() {
    let Some(database) = create_test_database("a_commit_to_the_queues_that_is_not_answered_is_found_out").await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let real = database.url.split("host=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    let cut = Arc::new(AtomicBool::new(false));
    let path = folder.path().to_owned();
    let (to, told) = (real.clone().into(), Arc::clone(&cut));
    let between = tokio::spawn(async move { between(&path, to, told).await });
    let url = database.url.replace(&real, &folder.path().display().to_string());
    while !folder.path().join(".s.PGSQL.5432").exists() {
        tokio::task::yield_now().await;
    }
    let here = PostgresStore::open(&url, Replica { id: 1, silos: None }).await.unwrap();
    one(&here, enter(ticket(1, 1, &[1]), 50, 0)).await;
    cut.store(true, Ordering::SeqCst);
    let outcome = one(&here, propose(play(1, 1, &[(1, &[1])]), 1)).await;
    assert!(matches!(outcome, Out::MatchWritten { .. }), "{outcome:?}");
    assert!(!cut.load(Ordering::SeqCst), "it was cut off");
    let load = here.load_queues(UnixMs(1)).await.unwrap();
    assert_eq!((load.matches.len(), load.tickets[0].state), (1, TicketState::InMatch(match_id(1))));
    between.abort();
}
