//! Ratings of the SQLite store: reads and writes rows of first scales and of digest keys, and records first scales.

use std::collections::BTreeSet;

use sqlx::sqlite::SqliteConnection;

use crate::domain::id::{RatingKey, UserKey};
use crate::domain::match_result::{RatingHistoryEntry, UserSatisfactionStatistics};
use crate::domain::rating::AllUsersMatchActivity;
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::store::error::StoreError;
use crate::store::queues::RatingRow;
use crate::store::queues::first_scale::{FirstRatingScaleOfSet, defaults_version_to_number};
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::queue_rows::record_result::history_slot;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::row_checksums::{first_rating_scale_checksum, rating_change_checksum, rating_checksum};
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::rows::to_ms;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::hex_json_array::hex_json_array;
use crate::store::sqlite::connection::sql_script::{BindValues, SqlScript};
use crate::store::sqlite::queues::{decode, erasure_statements as erasure, rating_statements as sql};
use crate::store::writer_version;

/// All ratings, in the order of users and keys.
pub(super) async fn load_all(connection: &mut SqliteConnection) -> Result<Vec<RatingRow>, StoreError> {
    let mut ratings = Vec::new();
    for statement in [sql::LOAD_ALL_RATINGS_ON_FIRST_SCALE, sql::LOAD_ALL_POOL_AND_SCALE_RATINGS] {
        for row in sqlx::query(statement).fetch_all(&mut *connection).await.map_err(to_store_error)? {
            ratings.push(decode::decode_rating(&row)?);
        }
    }
    ratings.sort_by_key(|row| (row.user, row.key));
    Ok(ratings)
}

/// Reads the ratings that a batch can touch, and the match activity that it needs.
pub(super) async fn read_touched(
    connection: &mut SqliteConnection,
    keys: &TouchedQueueKeys,
    queue_rows: &mut QueueRows,
) -> Result<(), StoreError> {
    let mut users: BTreeSet<UserKey> = keys.ratings.iter().map(|(user, _)| *user).collect();
    users.extend(&keys.erased_users);
    let id_list = hex_json_array(users.iter().map(UserKey::as_bytes));
    for (statement, is_digest) in [(sql::READ_RATINGS_ON_FIRST_SCALE, false), (sql::READ_POOL_AND_SCALE_RATINGS, true)]
    {
        if !keys.erased_users.is_empty()
            || keys.ratings.iter().any(|(_, key)| key.is_pool_and_scale_digest() == is_digest)
        {
            let rows =
                sqlx::query(statement).bind(&id_list).fetch_all(&mut *connection).await.map_err(to_store_error)?;
            for row in &rows {
                let rating = decode::decode_rating(row)?;
                queue_rows.ratings.insert((rating.user, rating.key), rating);
            }
        }
    }
    for key in &keys.match_activity_keys {
        let statement = if key.is_pool_and_scale_digest() {
            sql::READ_POOL_AND_SCALE_RATING_WITH_MOST_ACTIVE_PERIODS
        } else {
            sql::READ_RATING_WITH_MOST_ACTIVE_PERIODS_ON_FIRST_SCALE
        };
        let query = sqlx::query(statement).bind(key.to_stored()).bind(&id_list);
        if let Some(row) = query.fetch_optional(&mut *connection).await.map_err(to_store_error)? {
            let skill = decode::decode_rating(&row)?.skill();
            queue_rows
                .activity_of_other_users
                .insert(*key, AllUsersMatchActivity::default().including_last_match_of(&skill));
        }
    }
    Ok(())
}

/// Adds the changed ratings and their history to the script of a batch.
pub(super) fn add_ratings_to_script(script: &mut SqlScript, changes: &QueueRowChanges<'_>) {
    let ratings = changes.inserted_ratings.iter().chain(&changes.updated_ratings).copied();
    let (keyed, on_first_scale): (Vec<&RatingRow>, Vec<_>) =
        ratings.partition(|row| row.key.is_pool_and_scale_digest());
    script.add_rows(&sql::UPSERT_RATINGS_ON_FIRST_SCALE, &on_first_scale, bind_rating);
    script.add_rows(&sql::UPSERT_POOL_AND_SCALE_RATINGS, &keyed, bind_rating);
    let history = changes.upserted_rating_changes.iter().copied();
    let (keyed, on_first_scale): (Vec<&RatingHistoryEntry>, Vec<_>) =
        history.partition(|entry| entry.key.is_pool_and_scale_digest());
    script.add_rows(&sql::UPSERT_RATING_CHANGES_ON_FIRST_SCALE, &on_first_scale, bind_rating_change);
    script.add_rows(&sql::UPSERT_POOL_AND_SCALE_RATING_CHANGES, &keyed, bind_rating_change);
    let deleted = changes.deleted_ratings.iter().copied();
    let (keyed, on_first_scale): (Vec<(UserKey, RatingKey)>, Vec<_>) =
        deleted.partition(|(_, key)| key.is_pool_and_scale_digest());
    for statement in [&erasure::DELETE_RATINGS_ON_FIRST_SCALE, &erasure::DELETE_RATING_CHANGES_ON_FIRST_SCALE] {
        script.add_rows(statement, &on_first_scale, bind_rating_key);
    }
    for statement in [&erasure::DELETE_POOL_AND_SCALE_RATINGS, &erasure::DELETE_POOL_AND_SCALE_RATING_CHANGES] {
        script.add_rows(statement, &keyed, bind_rating_key);
    }
}

/// Records first scales in one transaction; see `QueueStore::record_first_scales`.
pub(super) async fn record_first_scales_of_sets(
    connection: &mut SqliteConnection,
    current: &[OwnRatingKeys],
) -> Result<Vec<FirstRatingScaleOfSet>, StoreError> {
    let mut recorded = Vec::with_capacity(current.len());
    execute_query(connection, sqlx::query("begin immediate")).await?;
    for keys in current {
        let set_id = i64::from(keys.set_id.0);
        let has_played =
            sqlx::query_scalar(sql::HAS_SET_PLAYED_WITHOUT_FIRST_SCALE).bind(set_id).fetch_one(&mut *connection).await;
        let new = FirstRatingScaleOfSet::of_unrecorded_set(keys, has_played.map_err(to_store_error)?);
        let insert = sqlx::query(sql::INSERT_FIRST_SCALE_OF_SET).bind(set_id).bind(new.key.to_stored());
        let insert = insert.bind(first_rating_scale_checksum(new.set_id, new.key));
        execute_query(connection, insert.bind(defaults_version_to_number(new.defaults_version))).await?;
        let read = sqlx::query(sql::READ_FIRST_SCALE_OF_SET).bind(set_id);
        recorded
            .push(decode::decode_first_scale_of_set(&read.fetch_one(&mut *connection).await.map_err(to_store_error)?)?);
    }
    if recorded.iter().zip(current).any(|(first, keys)| first.differs_for_older_servers(keys)) {
        let version = writer_version::RATING_SCALES_MIN_VERSION;
        execute_query(connection, sqlx::query(writer_version::RAISE_MIN_WRITER_VERSION_SQL).bind(version)).await?;
    }
    execute_query(connection, sqlx::query("commit")).await?;
    Ok(recorded)
}

async fn execute_query(
    connection: &mut SqliteConnection,
    query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
) -> Result<(), StoreError> {
    query.execute(connection).await.map(drop).map_err(to_store_error)
}

fn bind_rating_key((user, key): &(UserKey, RatingKey), values: &mut BindValues) {
    values.push(user.as_bytes().as_slice()).push(key.to_stored());
}

fn bind_rating(row: &&RatingRow, values: &mut BindValues) {
    values.push(row.user.as_bytes().as_slice());
    values.push(row.key.to_stored()).push(row.rating.rating).push(row.rating.deviation).push(row.volatility);
    values.push(i64::from(row.rated_match_count)).push(to_ms(row.last_match_at)).push(i64::from(row.streak));
    let UserSatisfactionStatistics {
        abandoned_matches,
        disputed_matches,
        given_feedback_count: feedback_count,
        given_feedback_sum: feedback_sum,
    } = row.satisfaction;
    values.push(i64::from(abandoned_matches)).push(i64::from(feedback_count)).push(i64::from(feedback_sum));
    values.push(i64::from(row.last_match_active_period)).push(i64::from(disputed_matches));
    values.push(rating_checksum(row));
}

fn bind_rating_change(change: &&RatingHistoryEntry, values: &mut BindValues) {
    values.push(change.user.as_bytes().as_slice());
    values
        .push(change.key.to_stored())
        .push(i64::from(history_slot(change.rated_match_number)))
        .push(i64::from(change.rated_match_number));
    values.push(change.match_id.as_bytes().as_slice()).push(to_ms(change.reported_at));
    values.push(i64::from(change.rank)).push(i64::from(change.side_count));
    values
        .push(change.before.rating)
        .push(change.before.deviation)
        .push(change.after.rating)
        .push(change.after.deviation);
    values.push(rating_change_checksum(change));
}
