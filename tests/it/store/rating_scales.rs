//! Rating scales in the store: first scales are recorded once, a server of the version before shares the ratings on them,
//! and all other ratings are apart.

use fireteam::domain::id::{RatingKey, SetId};
use fireteam::domain::ruleset::rating::defaults::{OwnRatingKeys, RatingDefaults};
use fireteam::domain::time::UnixMs;
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::store::queues::{QueueStore as _, QueueWrite, RatingRow};
use fireteam::store::sqlite::SqliteStore;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Row as _};

use crate::store::queue_rows::{first_scale, rating, user};
use crate::support::database::create_test_database;

const SCALE: RatingKey = RatingKey::of_pool_and_scale_digest(1);
const OTHER_SCALE: RatingKey = RatingKey::of_pool_and_scale_digest(2);

/// Keys of a set whose ruleset states its constants.
fn stated_keys(set_id: SetId, key: RatingKey) -> OwnRatingKeys {
    OwnRatingKeys { set_id, current: key, former: key }
}

/// Records the scales of rulesets that state their constants; first scales by set.
async fn record(store: &dyn Store, sets: &[(SetId, RatingKey)]) -> Vec<(SetId, RatingKey)> {
    let keys: Vec<OwnRatingKeys> = sets.iter().map(|(set_id, key)| stated_keys(*set_id, *key)).collect();
    let recorded = store.record_first_scales(&keys).await.unwrap();
    recorded.into_iter().map(|first| (first.set_id, first.key)).collect()
}

/// The first recorded scale of a set stays.
async fn check_first_scale_is_recorded_once(store: &dyn Store) {
    let (one, two) = (SetId(1), SetId(2));
    assert_eq!(store.record_first_scales(&[]).await.unwrap(), []);
    assert_eq!(record(store, &[(one, SCALE)]).await, [(one, SCALE)]);
    assert_eq!(record(store, &[(one, SCALE)]).await, [(one, SCALE)]);
    assert_eq!(record(store, &[(one, OTHER_SCALE), (two, OTHER_SCALE)]).await, [(one, SCALE), (two, OTHER_SCALE)]);
}

/// A user has one rating per key, and an import changes only that one.
async fn check_ratings_are_apart_by_key(store: &dyn Store) {
    let on = |key, value| RatingRow { key, ..rating(1, 1, value) };
    let rows = vec![on(first_scale(1), 1.5), on(SCALE, 2.5), on(OTHER_SCALE, 3.5)];
    store.commit_queues(&[QueueWrite::ImportRatings { rows: rows.clone() }]).await.unwrap();
    assert_eq!(store.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings, rows);
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![on(SCALE, 9.5)] }]).await.unwrap();
    let ratings = store.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings;
    assert_eq!(ratings.iter().map(|row| row.rating.rating).collect::<Vec<_>>(), [1.5, 9.5, 3.5]);
}

#[tokio::test]
async fn first_scale_is_recorded_once_in_memory() {
    let store = MemoryStore::new();
    check_first_scale_is_recorded_once(&store).await;
    check_ratings_are_apart_by_key(&store).await;
}

/// R12: a file of the version before keeps its ratings: they are those of the first scale.
#[tokio::test]
async fn first_scale_has_the_ratings_of_an_older_sqlite_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let sql = async |text: &str| {
        let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let rows = sqlx::raw_sql(AssertSqlSafe(text.to_owned())).fetch_all(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        rows.first().map(|row| row.get::<i64, _>(0))
    };
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] }]).await.unwrap();
    store.close().await;
    sql("drop table first_rating_scale; drop table keyed_rating; drop table keyed_rating_change;
         alter table rating drop column disputed_matches; delete from _sqlx_migrations where version in (2, 4, 11)")
    .await;
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings, [rating(1, 1, 1.5)]);
    assert_eq!(record(&store, &[(SetId(1), SCALE)]).await, [(SetId(1), SCALE)]);
    store.close().await;
    let min_version = "select value from store_setting where name = 'min_writer_version'";
    assert_eq!(sql(min_version).await, Some(1), "older servers may write");
    sql("delete from first_rating_scale").await;

    let store = SqliteStore::open(&path).await.unwrap();
    check_first_scale_is_recorded_once(&store).await;
    check_ratings_are_apart_by_key(&store).await;
    store.close().await;
    assert_eq!(sql(min_version).await, Some(2), "older servers would read the ratings on another scale");
    assert_eq!(sql("select count(*) from rating").await, Some(1));
    assert_eq!(sql("select count(*) from keyed_rating").await, Some(2));
    sql("update first_rating_scale set rating_key = rating_key + 1").await;
    let store = SqliteStore::open(&path).await.unwrap();
    let error = store.record_first_scales(&[stated_keys(SetId(1), SCALE)]).await.unwrap_err().to_string();
    assert!(error.contains("first_rating_scale"), "{error}");
}

/// R1, R12: servers of two versions share the ratings on first scales. Neither sees less than the other wrote.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_scale_is_shared_with_an_older_server_on_postgres() {
    let Some(database) = create_test_database("first_scale_is_shared_with_an_older_server_on_postgres").await else {
        return;
    };
    let open = async |id| PostgresStore::open(&database.url, FireteamReplica { id, silos: None }).await.unwrap();
    let (here, there) = (open(1).await, open(2).await);
    let mut connection = database.connect().await;
    let min_version = "select value from store_setting where name = 'min_writer_version'";
    let sets = [(SetId(1), SCALE), (SetId(2), SCALE)];
    let both = tokio::join!(record(&here, &sets), record(&there, &sets));
    assert_eq!(both, (sets.to_vec(), sets.to_vec()));
    assert_eq!(sqlx::query_scalar::<_, i64>(min_version).fetch_one(&mut connection).await.unwrap(), 1);

    // The statement of version 0.2.0.
    let insert = "insert into rating (user_key, set_id, rating, deviation, volatility, match_count, last_match_ms)
                  values ($1, 1, 1600, 0, 0, 3, 7)";
    let key = sqlx::types::Uuid::from_bytes(*user(1).as_bytes());
    sqlx::query(insert).bind(key).execute(&mut connection).await.unwrap();
    let row = here.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings[0];
    assert_eq!((row.key, row.rating.rating, row.rated_match_count), (first_scale(1), 1600.0, 3));
    here.commit_queues(&[QueueWrite::ImportRatings { rows: vec![RatingRow { rated_match_count: 4, ..row }] }])
        .await
        .unwrap();
    let update = "update rating set match_count = match_count + 1 where user_key = $1 returning match_count";
    let count: i64 = sqlx::query_scalar(update).bind(key).fetch_one(&mut connection).await.unwrap();
    assert_eq!(count, 5, "both servers' matches count");
    assert_eq!(there.purge_and_load_queues(UnixMs(1)).await.unwrap().ratings[0].rated_match_count, 5);

    sqlx::raw_sql("truncate rating, first_rating_scale").execute(&mut connection).await.unwrap();
    check_first_scale_is_recorded_once(&here).await;
    check_ratings_are_apart_by_key(&there).await;
    assert_eq!(sqlx::query_scalar::<_, i64>(min_version).fetch_one(&mut connection).await.unwrap(), 2);
}

/// A set that played before its scale was recorded keeps the former default constants; older servers may go on, because they
/// use the same. They may not beside a new set with the new constants.
#[tokio::test]
async fn first_scale_of_a_set_that_has_played_has_the_former_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let min_version = async || {
        let mut connection = SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        let value: i64 = sqlx::query_scalar("select value from store_setting where name = 'min_writer_version'")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        value
    };
    let store = SqliteStore::open(&path).await.unwrap();
    store.commit_queues(&[QueueWrite::ImportRatings { rows: vec![rating(1, 1, 1.5)] }]).await.unwrap();
    let keys = |set| OwnRatingKeys { set_id: SetId(set), current: OTHER_SCALE, former: SCALE };
    let recorded = store.record_first_scales(&[keys(1)]).await.unwrap();
    assert_eq!((recorded[0].key, recorded[0].defaults_version), (SCALE, RatingDefaults::Former));
    assert_eq!(min_version().await, 1);
    let recorded = store.record_first_scales(&[keys(1), keys(2)]).await.unwrap();
    assert_eq!((recorded[0].key, recorded[0].defaults_version), (SCALE, RatingDefaults::Former));
    assert_eq!((recorded[1].key, recorded[1].defaults_version), (OTHER_SCALE, RatingDefaults::Current));
    assert_eq!(min_version().await, 2);
    store.close().await;
}
