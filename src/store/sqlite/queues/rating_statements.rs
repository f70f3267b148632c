//! SQL statements of the SQLite store for ratings and their history. Ratings on the first scale of a set are in
//! `rating`, all others in `keyed_rating`.

use crate::store::sqlite::connection::sql_script::MultiRowTemplate;

/// Columns of a rating. `$key` is the column with the stored number of its key.
macro_rules! select_ratings {
    ($key:literal, $source:literal) => {
        concat!(
            "
    select r.user_key, r.",
            $key,
            ", r.rating, r.deviation, r.volatility, r.match_count, r.last_match_ms, r.checksum,
           r.streak, r.abandoned_matches, r.feedback_count, r.feedback_sum, r.active_periods,
           r.disputed_matches",
            $source
        )
    };
}

/// All ratings on first scales, in the order of users and sets.
pub(in crate::store::sqlite) const LOAD_ALL_RATINGS_ON_FIRST_SCALE: &str =
    select_ratings!("set_id", " from rating r order by r.user_key, r.set_id");

/// All ratings with digest keys, in the order of users and keys.
pub(in crate::store::sqlite) const LOAD_ALL_POOL_AND_SCALE_RATINGS: &str =
    select_ratings!("rating_key", " from keyed_rating r order by r.user_key, r.rating_key");

/// All ratings on first scales of the users in `$1`, a JSON array of keys.
pub(in crate::store::sqlite) const READ_RATINGS_ON_FIRST_SCALE: &str =
    select_ratings!("set_id", " from json_each($1) requested join rating r on r.user_key = unhex(requested.value)");

/// All ratings with digest keys of the users in `$1`, a JSON array of keys.
pub(in crate::store::sqlite) const READ_POOL_AND_SCALE_RATINGS: &str = select_ratings!(
    "rating_key",
    " from json_each($1) requested join keyed_rating r on r.user_key = unhex(requested.value)"
);

/// Rating with the highest count of played periods on the first scale of set `$1`, among users who are not in `$2`, a
/// JSON array of keys.
pub(in crate::store::sqlite) const READ_RATING_WITH_MOST_ACTIVE_PERIODS_ON_FIRST_SCALE: &str = select_ratings!(
    "set_id",
    " from rating r
     where r.set_id = $1 and 0 < r.active_periods and 0 < r.match_count
       and r.user_key not in (select unhex(value) from json_each($2))
     order by r.active_periods desc, r.last_match_ms desc
     limit 1"
);

/// Same as `READ_RATING_WITH_MOST_ACTIVE_PERIODS_ON_FIRST_SCALE`, of the ratings with digest key `$1`.
pub(in crate::store::sqlite) const READ_POOL_AND_SCALE_RATING_WITH_MOST_ACTIVE_PERIODS: &str = select_ratings!(
    "rating_key",
    " from keyed_rating r
     where r.rating_key = $1 and 0 < r.active_periods and 0 < r.match_count
       and r.user_key not in (select unhex(value) from json_each($2))
     order by r.active_periods desc, r.last_match_ms desc
     limit 1"
);

/// Whether set `$1` has no first scale, and has ratings, results or matches. The latter are not looked for if it has a first scale:
/// that would read whole tables at each start.
pub(in crate::store::sqlite) const HAS_SET_PLAYED_WITHOUT_FIRST_SCALE: &str = "
    select not exists (select 1 from first_rating_scale where set_id = $1)
       and (exists (select 1 from rating where set_id = $1)
            or exists (select 1 from result where set_id = $1)
            or exists (select 1 from match where set_id = $1))
";

/// Records first scale `$2` of set `$1` with checksum `$3` and default constants `$4`, if none is recorded.
pub(in crate::store::sqlite) const INSERT_FIRST_SCALE_OF_SET: &str = "
    insert into first_rating_scale (set_id, rating_key, checksum, rating_defaults)
    values ($1, $2, $3, $4)
        on conflict (set_id) do nothing
";

/// First scale of set `$1`.
pub(in crate::store::sqlite) const READ_FIRST_SCALE_OF_SET: &str = "
    select set_id, rating_key, checksum, rating_defaults from first_rating_scale where set_id = $1
";

/// History of the rating of user `$1` on the first scale of set `$2`, latest first.
pub(in crate::store::sqlite) const READ_RATING_CHANGES_ON_FIRST_SCALE: &str = "
    select user_key, set_id, rated_match_number, match_id, reported_ms, rank, side_count, rating_before,
           deviation_before, rating_after, deviation_after, checksum
      from rating_change
     where user_key = $1 and set_id = $2
     order by reported_ms desc, rated_match_number desc
";

/// Same as `READ_RATING_CHANGES_ON_FIRST_SCALE`, of the rating with digest key `$2`.
pub(in crate::store::sqlite) const READ_POOL_AND_SCALE_RATING_CHANGES: &str = "
    select user_key, rating_key, rated_match_number, match_id, reported_ms, rank, side_count, rating_before,
           deviation_before, rating_after, deviation_after, checksum
      from keyed_rating_change
     where user_key = $1 and rating_key = $2
     order by reported_ms desc, rated_match_number desc
";

/// Inserts or updates ratings.
pub(in crate::store::sqlite) const UPSERT_RATINGS_ON_FIRST_SCALE: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into rating (user_key, set_id, rating, deviation, volatility, match_count, last_match_ms, streak,
                        abandoned_matches, feedback_count, feedback_sum, active_periods, disputed_matches,
                        checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id) do update
       set rating = excluded.rating, deviation = excluded.deviation, volatility = excluded.volatility,
           match_count = excluded.match_count, last_match_ms = excluded.last_match_ms, streak = excluded.streak,
           abandoned_matches = excluded.abandoned_matches, feedback_count = excluded.feedback_count,
           feedback_sum = excluded.feedback_sum, active_periods = excluded.active_periods,
           disputed_matches = excluded.disputed_matches,
           checksum = excluded.checksum",
    true,
);

/// Inserts or updates ratings with digest keys.
pub(in crate::store::sqlite) const UPSERT_POOL_AND_SCALE_RATINGS: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into keyed_rating (user_key, rating_key, rating, deviation, volatility, match_count, last_match_ms, streak,
                        abandoned_matches, feedback_count, feedback_sum, active_periods, disputed_matches,
                        checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, rating_key) do update
       set rating = excluded.rating, deviation = excluded.deviation, volatility = excluded.volatility,
           match_count = excluded.match_count, last_match_ms = excluded.last_match_ms, streak = excluded.streak,
           abandoned_matches = excluded.abandoned_matches, feedback_count = excluded.feedback_count,
           feedback_sum = excluded.feedback_sum, active_periods = excluded.active_periods,
           disputed_matches = excluded.disputed_matches,
           checksum = excluded.checksum",
    true,
);

/// Stores rating history entries; each replaces the entry in the same slot.
pub(in crate::store::sqlite) const UPSERT_RATING_CHANGES_ON_FIRST_SCALE: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into rating_change (user_key, set_id, slot, rated_match_number, match_id, reported_ms, rank, side_count,
                               rating_before, deviation_before, rating_after, deviation_after, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id, slot) do update
       set rated_match_number = excluded.rated_match_number, match_id = excluded.match_id,
           reported_ms = excluded.reported_ms, rank = excluded.rank, side_count = excluded.side_count,
           rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after,
           checksum = excluded.checksum",
    true,
);

/// Stores history entries of ratings with digest keys; each replaces the entry in the same slot.
pub(in crate::store::sqlite) const UPSERT_POOL_AND_SCALE_RATING_CHANGES: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into keyed_rating_change (user_key, rating_key, slot, rated_match_number, match_id, reported_ms, rank, side_count,
                               rating_before, deviation_before, rating_after, deviation_after, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, rating_key, slot) do update
       set rated_match_number = excluded.rated_match_number, match_id = excluded.match_id,
           reported_ms = excluded.reported_ms, rank = excluded.rank, side_count = excluded.side_count,
           rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after,
           checksum = excluded.checksum",
    true,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::tests::prepare_statements;

    const SINGLE_STATEMENTS: [&str; 11] = [
        READ_RATINGS_ON_FIRST_SCALE,
        READ_POOL_AND_SCALE_RATINGS,
        READ_RATING_WITH_MOST_ACTIVE_PERIODS_ON_FIRST_SCALE,
        READ_POOL_AND_SCALE_RATING_WITH_MOST_ACTIVE_PERIODS,
        HAS_SET_PLAYED_WITHOUT_FIRST_SCALE,
        INSERT_FIRST_SCALE_OF_SET,
        READ_FIRST_SCALE_OF_SET,
        LOAD_ALL_RATINGS_ON_FIRST_SCALE,
        LOAD_ALL_POOL_AND_SCALE_RATINGS,
        READ_RATING_CHANGES_ON_FIRST_SCALE,
        READ_POOL_AND_SCALE_RATING_CHANGES,
    ];

    const MULTI_ROW_STATEMENTS: [MultiRowTemplate; 4] = [
        UPSERT_RATINGS_ON_FIRST_SCALE,
        UPSERT_POOL_AND_SCALE_RATINGS,
        UPSERT_RATING_CHANGES_ON_FIRST_SCALE,
        UPSERT_POOL_AND_SCALE_RATING_CHANGES,
    ];

    #[tokio::test]
    async fn sqlite_rating_statements_all_prepare() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
        prepare_statements(&store, &SINGLE_STATEMENTS, &MULTI_ROW_STATEMENTS).await;
    }
}
