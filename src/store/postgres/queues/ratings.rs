//! Ratings of the Postgres store: reads and writes rows of first scales and of digest keys, and records first scales.

use std::collections::BTreeSet;

use sqlx::Executor as _;
use sqlx::postgres::PgConnection;

use crate::domain::id::{RatingKey, UserKey};
use crate::domain::match_result::RatingHistoryEntry;
use crate::domain::rating::AllUsersMatchActivity;
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::store::postgres::connection::commit::{CommitError, check_row_count};
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::postgres::queues::array_column::to_column;
use crate::store::postgres::queues::{decode, erasure_statements as erasure, rating_statements as sql};
use crate::store::queues::RatingRow;
use crate::store::queues::first_scale::{FirstRatingScaleOfSet, defaults_version_to_number};
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::queue_rows::record_result::history_slot;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::rows::to_ms;
use crate::store::writer_version;

/// Locks and reads the ratings that a batch can touch, and reads the match activity that it needs.
pub(super) async fn lock_touched(
    connection: &mut PgConnection,
    keys: &TouchedQueueKeys,
    rows: &mut QueueRows,
) -> Result<(), CommitError> {
    let mut users: BTreeSet<UserKey> = keys.ratings.iter().map(|(user, _)| *user).collect();
    users.extend(&keys.erased_users);
    let users = to_uuids(users.iter().map(UserKey::as_bytes));
    for (statement, is_digest) in [(sql::LOCK_RATINGS_ON_FIRST_SCALE, false), (sql::LOCK_POOL_AND_SCALE_RATINGS, true)]
    {
        if !keys.erased_users.is_empty()
            || keys.ratings.iter().any(|(_, key)| key.is_pool_and_scale_digest() == is_digest)
        {
            for row in &sqlx::query(statement).bind(&users).fetch_all(&mut *connection).await? {
                let rating = decode::decode_rating(row)?;
                rows.ratings.insert((rating.user, rating.key), rating);
            }
        }
    }
    for key in &keys.match_activity_keys {
        let statement = if key.is_pool_and_scale_digest() {
            sql::READ_LAST_ACTIVE_OTHER_USER_OF_POOL_AND_SCALE
        } else {
            sql::READ_LAST_ACTIVE_OTHER_USER_ON_FIRST_SCALE
        };
        let query = sqlx::query(statement).bind(key.to_stored()).bind(&users);
        if let Some(row) = query.fetch_optional(&mut *connection).await? {
            let skill = decode::decode_rating(&row)?.skill();
            rows.activity_of_other_users.insert(*key, AllUsersMatchActivity::default().including_last_match_of(&skill));
        }
    }
    Ok(())
}

/// Writes the changed ratings.
pub(super) async fn write_ratings(
    changes: &QueueRowChanges<'_>,
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    let by_table = |rows: &[&'_ RatingRow]| -> (Vec<RatingRow>, Vec<RatingRow>) {
        rows.iter().map(|row| **row).partition(|row| row.key.is_pool_and_scale_digest())
    };
    let (keyed, on_first_scale) = by_table(&changes.inserted_ratings);
    for (statement, rows) in
        [(sql::INSERT_RATINGS_ON_FIRST_SCALE, on_first_scale), (sql::INSERT_POOL_AND_SCALE_RATINGS, keyed)]
    {
        let inserted = write_rows(statement, &rows, connection).await?;
        check_row_count(inserted, rows.len())?;
    }
    let (keyed, on_first_scale) = by_table(&changes.updated_ratings);
    for (statement, rows) in
        [(sql::UPDATE_RATINGS_ON_FIRST_SCALE, on_first_scale), (sql::UPDATE_POOL_AND_SCALE_RATINGS, keyed)]
    {
        write_rows(statement, &rows, connection).await?;
    }
    Ok(())
}

/// Writes the history entries.
pub(super) async fn write_history(
    changes: &QueueRowChanges<'_>,
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    let history = changes.upserted_rating_changes.iter().copied();
    let (keyed, on_first_scale): (Vec<&RatingHistoryEntry>, Vec<_>) =
        history.partition(|entry| entry.key.is_pool_and_scale_digest());
    upsert_history(sql::UPSERT_RATING_CHANGES_ON_FIRST_SCALE, &on_first_scale, connection).await?;
    upsert_history(sql::UPSERT_POOL_AND_SCALE_RATING_CHANGES, &keyed, connection).await
}

/// Deletes ratings with their history.
pub(super) async fn delete_ratings(
    deleted: &[(UserKey, RatingKey)],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    let (keyed, on_first_scale): (Vec<(UserKey, RatingKey)>, Vec<_>) =
        deleted.iter().copied().partition(|(_, key)| key.is_pool_and_scale_digest());
    for (statements, keys) in
        [(erasure::DELETE_RATINGS_ON_FIRST_SCALE, on_first_scale), (erasure::DELETE_POOL_AND_SCALE_RATINGS, keyed)]
    {
        for statement in statements.into_iter().filter(|_| !keys.is_empty()) {
            let query = sqlx::query(statement)
                .bind(to_uuids(keys.iter().map(|(user, _)| user.as_bytes())))
                .bind(to_column(&keys, |(_, key)| key.to_stored()));
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Records first scales in one transaction, and returns their rows; see `QueueStore::record_first_scales`.
pub(super) async fn record_first_scales(
    connection: &mut PgConnection,
    current: &[OwnRatingKeys],
) -> Result<Vec<(i64, i64, i64)>, sqlx::Error> {
    let sets = to_column(current, |keys| i64::from(keys.set_id.0));
    connection.execute("begin").await?;
    let played: Vec<i64> =
        sqlx::query_scalar(sql::READ_SETS_PLAYED_WITHOUT_FIRST_SCALE).bind(&sets).fetch_all(&mut *connection).await?;
    let new: Vec<FirstRatingScaleOfSet> = current
        .iter()
        .zip(&sets)
        .map(|(keys, set_id)| FirstRatingScaleOfSet::of_unrecorded_set(keys, played.contains(set_id)))
        .collect();
    sqlx::query(sql::INSERT_FIRST_SCALES)
        .bind(&sets)
        .bind(to_column(&new, |first| first.key.to_stored()))
        .bind(to_column(&new, |first| defaults_version_to_number(first.defaults_version)))
        .execute(&mut *connection)
        .await?;
    let recorded: Vec<(i64, i64, i64)> =
        sqlx::query_as(sql::READ_FIRST_SCALES).bind(&sets).fetch_all(&mut *connection).await?;
    let differs = |first: FirstRatingScaleOfSet| {
        current.iter().any(|keys| keys.set_id == first.set_id && first.differs_for_older_servers(keys))
    };
    if recorded.iter().filter_map(|row| decode::decode_first_scale(*row)).any(differs) {
        sqlx::query(writer_version::RAISE_MIN_WRITER_VERSION_SQL)
            .bind(writer_version::RATING_SCALES_MIN_VERSION)
            .execute(&mut *connection)
            .await?;
    }
    connection.execute("commit").await?;
    Ok(recorded)
}

async fn write_rows(
    statement: &'static str,
    ratings: &[RatingRow],
    connection: &mut PgConnection,
) -> Result<u64, CommitError> {
    if ratings.is_empty() {
        return Ok(0);
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(ratings.iter().map(|row| row.user.as_bytes())))
        .bind(to_column(ratings, |row| row.key.to_stored()))
        .bind(to_column(ratings, |row| row.rating.rating))
        .bind(to_column(ratings, |row| row.rating.deviation))
        .bind(to_column(ratings, |row| row.volatility))
        .bind(to_column(ratings, |row| i64::from(row.rated_match_count)))
        .bind(to_column(ratings, |row| to_ms(row.last_match_at)))
        .bind(to_column(ratings, |row| row.streak))
        .bind(to_column(ratings, |row| i64::from(row.satisfaction.abandoned_matches)))
        .bind(to_column(ratings, |row| i64::from(row.satisfaction.given_feedback_count)))
        .bind(to_column(ratings, |row| i64::from(row.satisfaction.given_feedback_sum)))
        .bind(to_column(ratings, |row| i64::from(row.last_match_active_period)))
        .bind(to_column(ratings, |row| i64::from(row.satisfaction.disputed_matches)));
    Ok(query.execute(connection).await?.rows_affected())
}

async fn upsert_history(
    statement: &'static str,
    changes: &[&RatingHistoryEntry],
    connection: &mut PgConnection,
) -> Result<(), CommitError> {
    if changes.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(statement)
        .bind(to_uuids(changes.iter().map(|change| change.user.as_bytes())))
        .bind(to_column(changes, |change| change.key.to_stored()))
        .bind(to_column(changes, |change| i64::from(history_slot(change.rated_match_number))))
        .bind(to_column(changes, |change| i64::from(change.rated_match_number)))
        .bind(to_uuids(changes.iter().map(|change| change.match_id.as_bytes())))
        .bind(to_column(changes, |change| to_ms(change.reported_at)))
        .bind(to_column(changes, |change| i64::from(change.rank)))
        .bind(to_column(changes, |change| i64::from(change.side_count)))
        .bind(to_column(changes, |change| change.before.rating))
        .bind(to_column(changes, |change| change.before.deviation))
        .bind(to_column(changes, |change| change.after.rating))
        .bind(to_column(changes, |change| change.after.deviation));
    query.execute(connection).await?;
    Ok(())
}
