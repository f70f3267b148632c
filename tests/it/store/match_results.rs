//! Match results in the store: each is recorded once and rated once, with several servers and concurrent results.

use std::sync::Arc;

use fireteam::domain::id::{MatchId, RulesetHash, SetId, UserKey};
use fireteam::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage};
use fireteam::domain::match_result::{MatchForecast, ResultReport, SideRank};
use fireteam::domain::queue::ticket::TicketEndReason;
use fireteam::domain::rating::{AllUsersMatchActivity, Skill};
use fireteam::domain::ruleset::rating::scale::KeyedRatingSpec;
use fireteam::domain::ruleset::rating::{DecayPeriodFilter, InactiveDeviationGrowth, RatingSpec, RatingSystem};
use fireteam::domain::time::UnixMs;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::queues::{
    QueueOutcome as Out, QueueStore, QueueWrite, RESULT_RETENTION_MS, RatingRow, TicketState,
};
use fireteam::store::sqlite::SqliteStore;
use fireteam::store::{Store, StoreError};
use sqlx::{Connection as _, Executor as _};

use crate::store::queue_rows::{
    SILO, TransitionEffects, enter, first_scale, match_id, new_match, next_version, propose, rating, ticket,
    transition, user,
};
use crate::support::database::{TestDatabase, create_test_database};

async fn open_replica(database: &TestDatabase, number: u64) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&database.url, FireteamReplica { id: number, silos: None }).await.unwrap())
}

fn elo() -> RatingSpec {
    RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 })
}

/// Match `n` of two users against each other, playing at version 1; ticket numbers include the user number.
fn playing_match(n: u32, [one, other]: [u32; 2]) -> Match {
    let stage = MatchStage::Playing {
        assignment: Assignment::Unhosted,
        started_at: UnixMs(1),
        times_out_at: UnixMs(90),
        host_lost_at: None,
    };
    Match { stage, ..new_match(n, n + 1, &[(10_000 * n + one, &[one]), (10_000 * n + other, &[other])]) }
}

/// Enters both users and starts the match.
fn start_match(n: u32, users: [u32; 2]) -> [QueueWrite; 3] {
    let [one, other] = users.map(|user_number| enter(ticket(10_000 * n + user_number, n + 1, &[user_number]), 50, 0));
    [one, other, propose(playing_match(n, users), 1)]
}

/// Result of match `n`: the users' ranks as given.
fn result(n: u32, users: [u32; 2], ranks: [u32; 2]) -> QueueWrite {
    let known = playing_match(n, users);
    let ended_stage = MatchStage::Ended {
        end_reason: MatchEndReason::Played,
        started_at: Some(UnixMs(1)),
        assignment: None,
        purge_at: UnixMs(90),
    };
    let played = users.map(|user_number| (10_000 * n + user_number, TicketEndReason::Played)).to_vec();
    let ends = transition(
        next_version(&known, ended_stage),
        &TransitionEffects { ends: played, ..TransitionEffects::default() },
    );
    let side = |(at, rank): (usize, u32)| SideRank { team_index: at as u16, users: vec![user(users[at])], rank };
    let report = ResultReport {
        match_id: match_id(n),
        set_id: SetId(1),
        silo: SILO,
        ruleset_hash: known.ruleset_hash,
        sides: ranks.into_iter().enumerate().map(side).collect(),
        left_early: Vec::new(),
        always_rated_leavers: Vec::new(),
        disputing_users: Vec::new(),
        started_at: UnixMs(1),
        duration_ms: None,
        forecast: MatchForecast::default(),
    };
    QueueWrite::RecordResult {
        report_digest: report.digest(None),
        report: Arc::new(report),
        match_version: 1,
        end_transition: Some(Box::new(ends)),
        rating: Some(rated(elo())),
        now: UnixMs(40),
    }
}

/// Settings for the ratings of set 1 on its first scale.
fn rated(spec: RatingSpec) -> KeyedRatingSpec {
    KeyedRatingSpec { key: first_scale(1), spec }
}

async fn rating_rows(store: &dyn QueueStore) -> Vec<(UserKey, f64, u32, i32)> {
    let ratings = store.purge_and_load_queues(UnixMs(2)).await.unwrap().ratings;
    ratings.iter().map(|row: &RatingRow| (row.user, row.rating.rating, row.rated_match_count, row.streak)).collect()
}

/// R5: a repeated result is recorded once, a different one is refused, and a refused one writes nothing.
async fn check_result_is_recorded_once(store: &dyn Store) {
    store.commit_queues(&start_match(1, [1, 2])).await.unwrap();
    let [stale, unknown] = [2, 1].map(|match_version| match result(1, [1, 2], [1, 2]) {
        QueueWrite::RecordResult { report, report_digest, end_transition: ends, rating, now, .. } => {
            let report = if match_version == 1 {
                Arc::new(ResultReport { match_id: match_id(9), ..(*report).clone() })
            } else {
                report
            };
            QueueWrite::RecordResult { report, report_digest, match_version, end_transition: ends, rating, now }
        }
        _ => panic!("a RecordResult write"),
    });
    let refused = store.commit_queues(&[stale, unknown]).await.unwrap();
    assert!(matches!(&*refused, [Out::StaleMatchVersion(Some(_)), Out::StaleMatchVersion(None)]), "{refused:?}");
    assert_eq!(rating_rows(store).await, []);

    let both = [result(1, [1, 2], [1, 2]), result(1, [1, 2], [1, 2]), result(1, [1, 2], [2, 1])];
    let [first, again, other] = <[Out; 3]>::try_from(store.commit_queues(&both).await.unwrap()).unwrap();
    let Out::ResultOnRecord { result, is_repeated_report: false, tickets, ratings } = first else {
        panic!("{first:?}")
    };
    assert_eq!((tickets.len(), ratings.len()), (2, 2));
    assert!(
        tickets.iter().all(|it| matches!(it.state, TicketState::Ended { end_reason: TicketEndReason::Played, .. }))
    );
    assert!(matches!(again, Out::ResultOnRecord { is_repeated_report: true, .. }), "{again:?}");
    assert_eq!(other, Out::ConflictingResult(Arc::clone(&result)));
    assert_eq!(rating_rows(store).await, [(user(1), 1508.0, 1, 1), (user(2), 1492.0, 1, -1)]);
    assert_eq!(store.read_match_result(match_id(1)).await.unwrap().as_ref(), Some(&result));
    assert_eq!(store.read_match_result(match_id(2)).await.unwrap(), None);
    let changes = store.read_rating_changes(user(2), first_scale(1)).await.unwrap();
    assert_eq!(
        changes.iter().map(|it| (it.match_id, it.rank, it.after.rating)).collect::<Vec<_>>(),
        [(match_id(1), 2, 1492.0)]
    );

    // An import sets the rating and keeps the other statistics of the user.
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![rating(2, 1, 1600.0)] }]).await.unwrap();
    assert_eq!(rating_rows(store).await[1], (user(2), 1600.0, 2, -1));

    store.purge_queues(UnixMs(39).plus_ms(RESULT_RETENTION_MS)).await.unwrap();
    assert!(store.read_match_result(match_id(1)).await.unwrap().is_some());
    store.purge_queues(UnixMs(40).plus_ms(RESULT_RETENTION_MS)).await.unwrap();
    assert_eq!(store.read_match_result(match_id(1)).await.unwrap(), None);
}

/// A user has at most as many rating changes as the history has slots, the latest ones; pages of results are in order.
async fn check_history_and_pages(store: &dyn Store) {
    for n in 100..170 {
        store.commit_queues(&start_match(n, [1, 2])).await.unwrap();
        store.commit_queues(&[result(n, [1, 2], [1, 2])]).await.unwrap();
    }
    let changes = store.read_rating_changes(user(1), first_scale(1)).await.unwrap();
    assert_eq!((changes.len(), changes[0].match_id, changes[63].match_id), (64, match_id(169), match_id(106)));
    let (mut after, mut seen) = ((UnixMs(0), MatchId::from_bytes([0; 16])), Vec::new());
    loop {
        let page = store.list_finished_matches(after, 32).await.unwrap();
        let Some(last) = page.last() else { break };
        after = (last.result.reported_at, last.result.report.match_id);
        seen.extend(page.iter().map(|it| it.result.report.match_id));
    }
    assert_eq!(seen, (100..170).map(match_id).collect::<Vec<_>>());
}

/// A user's feedback on match `n`, in a set rated by Elo.
fn feedback(n: u32, user_number: u32, score: u8) -> QueueWrite {
    QueueWrite::RecordFeedback {
        match_id: match_id(n),
        ruleset: (SetId(1), RulesetHash(1)),
        user: user(user_number),
        stars: score,
        rating: Some(rated(elo())),
        now: UnixMs(1),
    }
}

/// S1-97: feedback counts once, also if it arrives before the first result of the user.
async fn check_feedback_before_result(store: &dyn Store) {
    store.commit_queues(&start_match(1, [1, 2])).await.unwrap();
    let outcomes = store.commit_queues(&[feedback(1, 1, 5), feedback(1, 1, 1)]).await.unwrap();
    let [Out::FeedbackRecorded(Some(row)), Out::FeedbackAlreadyGiven { stars: 5 }] = &*outcomes else {
        panic!("{outcomes:?}")
    };
    assert_eq!((row.rating.rating, row.rated_match_count, row.satisfaction.mean_feedback()), (1500.0, 0, Some(5.0)));
    store.commit_queues(&[result(1, [1, 2], [1, 2]), feedback(1, 2, 2), feedback(9, 1, 2)]).await.unwrap();
    assert_eq!(
        rating_rows(store).await,
        [(user(1), 1508.0, 1, 1), (user(2), 1492.0, 1, -1)],
        "feedback changes no rating"
    );
    let kept = store.purge_and_load_queues(UnixMs(2)).await.unwrap().ratings;
    let scores: Vec<_> =
        kept.iter().map(|row| (row.satisfaction.given_feedback_count, row.satisfaction.given_feedback_sum)).collect();
    assert_eq!(scores, [(2, 7), (1, 2)]);
    let unrated = match feedback(8, 7, 3) {
        QueueWrite::RecordFeedback { match_id, ruleset, user, stars: score, now, .. } => {
            QueueWrite::RecordFeedback { match_id, ruleset, user, stars: score, rating: None, now }
        }
        _ => panic!("a RecordFeedback write"),
    };
    assert_eq!(
        store.commit_queues(&[unrated]).await.unwrap(),
        [Out::FeedbackRecorded(None)],
        "the set has no rating spec"
    );
    assert_eq!(rating_rows(store).await.len(), 2);
}

/// S2-14: active periods of a set follow from all its matches, in one batch or in several.
async fn check_active_periods(store: &dyn Store) {
    let decay = InactiveDeviationGrowth {
        every_ms: 1_000,
        deviation_per_period: 0.5,
        max_deviation: 20.0,
        periods: DecayPeriodFilter::Played,
    };
    let system = RatingSystem::PlackettLuce { mu: 25.0, sigma: 8.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 25.0 / 300.0 };
    let counted = RatingSpec { decay: Some(decay), ..RatingSpec::with_defaults(system) };
    let at = |n: u32, users: [u32; 2], ms: u64| match result(n, users, [1, 2]) {
        QueueWrite::RecordResult { report, report_digest, match_version, end_transition: ends, .. } => {
            QueueWrite::RecordResult {
                report,
                report_digest,
                match_version,
                end_transition: ends,
                rating: Some(rated(counted)),
                now: UnixMs(ms),
            }
        }
        _ => panic!("a RecordResult write"),
    };
    let played = async || {
        let ratings = store.purge_and_load_queues(UnixMs(2)).await.unwrap().ratings;
        ratings.iter().map(|row| row.last_match_active_period).collect::<Vec<_>>()
    };
    for (n, users) in [(1, [1, 2]), (2, [3, 4]), (3, [3, 4]), (4, [5, 6]), (5, [1, 2])] {
        store.commit_queues(&start_match(n, users)).await.unwrap();
        match n {
            1 => _ = store.commit_queues(&[at(1, [1, 2], 500)]).await.unwrap(),
            2 => _ = store.commit_queues(&[at(2, [3, 4], 999)]).await.unwrap(),
            3 => _ = store.commit_queues(&[at(3, [3, 4], 7_000)]).await.unwrap(),
            _ => {}
        }
    }
    assert_eq!(played().await, [1, 1, 2, 2], "two matches in one period, one in another");
    let known = store.purge_and_load_queues(UnixMs(2)).await.unwrap().ratings[0];
    store.commit_queues(&[at(4, [5, 6], 8_000), at(5, [1, 2], 9_500)]).await.unwrap();
    assert_eq!(played().await, [4, 4, 2, 2, 3, 3]);
    // Two periods without the first two users: each adds a step of decay, and the match reduces it a little.
    let changes = store.read_rating_changes(user(1), first_scale(1)).await.unwrap();
    let idle = counted.skill_at_with_activity(
        known.skill(),
        UnixMs(9_500),
        AllUsersMatchActivity::default().including_last_match_of(&Skill {
            last_match_active_period: 3,
            last_match_at: Some(UnixMs(8_000)),
            ..known.skill()
        }),
    );
    assert!((idle.estimate.deviation - known.rating.deviation - 1.0).abs() < 1e-9);
    assert_eq!(changes[0].before, known.rating);
    assert!(known.rating.deviation < changes[0].after.deviation, "{changes:?}");
}

#[tokio::test]
async fn memory_records_a_match_result_once() {
    let store = MemoryStore::new();
    check_result_is_recorded_once(&store).await;
    check_history_and_pages(&MemoryStore::new()).await;
    check_feedback_before_result(&MemoryStore::new()).await;
    check_active_periods(&MemoryStore::new()).await;
}

#[tokio::test]
async fn sqlite_records_a_match_result_once() {
    let folder = tempfile::tempdir().unwrap();
    check_result_is_recorded_once(&SqliteStore::open(&folder.path().join("a.db")).await.unwrap()).await;
    check_history_and_pages(&SqliteStore::open(&folder.path().join("b.db")).await.unwrap()).await;
    check_feedback_before_result(&SqliteStore::open(&folder.path().join("c.db")).await.unwrap()).await;
    check_active_periods(&SqliteStore::open(&folder.path().join("d.db")).await.unwrap()).await;
}

/// R16: a flipped bit in the rows of a result is detected on reading, with the table's name.
#[tokio::test]
async fn result_row_corruption_names_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_queues(&start_match(1, [1, 2])).await.unwrap();
    let score = feedback(1, 1, 4);
    store.commit_queues(&[result(1, [1, 2], [1, 2]), score.clone()]).await.unwrap();
    store.close().await;
    let mut connection = sqlx::sqlite::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let spoil = "update result set reported_ms = reported_ms + 1; update rating_change set rank = rank + 1; \
                 update feedback set stars = 5";
    connection.execute(spoil).await.unwrap();
    connection.close().await.unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    let table = |error: StoreError| match error {
        StoreError::CorruptRow { table, column: "checksum", .. } => table,
        other => panic!("{other}"),
    };
    assert_eq!(table(store.read_match_result(match_id(1)).await.unwrap_err()), "result");
    assert_eq!(table(store.read_rating_changes(user(1), first_scale(1)).await.unwrap_err()), "rating_change");
    assert_eq!(table(store.commit_queues(&[score]).await.unwrap_err()), "feedback");
}

/// R1, R5: two servers that receive a result at once record it once. Concurrent results of two matches of one user both
/// count, also for new users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_records_a_match_result_once_over_replicas() {
    let Some(database) = create_test_database("postgres_records_a_match_result_once_over_replicas").await else {
        return;
    };
    let (here, there) = (open_replica(&database, 1).await, open_replica(&database, 2).await);
    check_result_is_recorded_once(&*here).await;
    check_history_and_pages(&*here).await;
    let mut connection = database.connect().await;
    let empty = "truncate rating, result, rating_change, feedback, ticket, match, ticket_user, match_user";
    connection.execute(empty).await.unwrap();
    check_feedback_before_result(&*here).await;
    connection.execute(empty).await.unwrap();
    check_active_periods(&*here).await;
    connection.execute(empty).await.unwrap();
    let at_once = async |first: QueueWrite, second: QueueWrite| {
        let (one, other) = (Arc::clone(&here), Arc::clone(&there));
        let first = tokio::spawn(async move { one.commit_queues(&[first]).await.unwrap().remove(0) });
        let second = tokio::spawn(async move { other.commit_queues(&[second]).await.unwrap().remove(0) });
        [first.await.unwrap(), second.await.unwrap()]
    };
    for n in 0..20 {
        here.commit_queues(&start_match(n, [1, 2])).await.unwrap();
        let outcomes = at_once(result(n, [1, 2], [1, 2]), result(n, [1, 2], [1, 2])).await;
        let made =
            outcomes.iter().filter(|it| matches!(it, Out::ResultOnRecord { is_repeated_report: false, .. })).count();
        let replayed =
            outcomes.iter().filter(|it| matches!(it, Out::ResultOnRecord { is_repeated_report: true, .. })).count();
        assert_eq!((made, replayed), (1, 1), "{outcomes:?}");
    }
    assert_eq!(rating_rows(&*there).await.iter().map(|row| row.2).collect::<Vec<_>>(), [20, 20]);
    for n in 20..40 {
        // A user is in one unfinished match at a time: both matches have ended, and their results are late.
        let (third, fourth) = (n + 1_000, n + 2_000);
        let late = |n: u32, users: [u32; 2]| match result(n, users, [1, 2]) {
            QueueWrite::RecordResult { report, report_digest, rating, now, .. } => {
                QueueWrite::RecordResult { report, report_digest, match_version: 2, end_transition: None, rating, now }
            }
            _ => panic!("a RecordResult write"),
        };
        for (n, users) in [(n, [1, third]), (n + 100, [1, fourth])] {
            here.commit_queues(&start_match(n, users)).await.unwrap();
            let QueueWrite::RecordResult { end_transition: Some(ends), .. } = result(n, users, [1, 2]) else {
                panic!("an end transition")
            };
            here.commit_queues(&[*ends]).await.unwrap();
        }
        let outcomes = at_once(late(n, [1, third]), late(n + 100, [1, fourth])).await;
        assert!(
            outcomes.iter().all(|it| matches!(it, Out::ResultOnRecord { is_repeated_report: false, .. })),
            "{outcomes:?}"
        );
    }
    // A user without a rating is new on both servers: the second write adds to the row of the first.
    for n in 3_000..3_010 {
        let outcomes = at_once(feedback(n, n, 5), feedback(n + 100, n, 2)).await;
        assert!(outcomes.iter().all(|it| matches!(it, Out::FeedbackRecorded(Some(_)))), "{outcomes:?}");
        let kept = here.purge_and_load_queues(UnixMs(2)).await.unwrap().ratings;
        let row = kept.iter().find(|row| row.user == user(n)).unwrap();
        assert_eq!((row.satisfaction.given_feedback_count, row.satisfaction.given_feedback_sum), (2, 7));
    }
    let mut all = rating_rows(&*here).await;
    all.retain(|row| 0 < row.2);
    assert_eq!((all.len(), all[0].2, all[0].3), (42, 60, 60), "every match counts: {all:?}");
    let points: f64 = all.iter().map(|row| row.1 - 1500.0).sum();
    assert!(points.abs() < 1e-6, "Elo points are zero-sum: {points}");
}
