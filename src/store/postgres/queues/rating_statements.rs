//! SQL statements of the Postgres store for ratings and their history. Ratings on the first scale of a set are in
//! `rating`, all others in `keyed_rating`.

/// Columns of a rating. `$key` is the column with the stored number of its key.
macro_rules! select_ratings {
    ($key:literal, $source:literal) => {
        concat!(
            "
    select r.user_key, r.",
            $key,
            ", r.rating, r.deviation, r.volatility, r.match_count, r.last_match_ms, r.streak,
           r.abandoned_matches, r.feedback_count, r.feedback_sum, r.active_periods,
           r.disputed_matches",
            $source
        )
    };
}

/// Locks and reads the ratings on first scales of the users in `$1`; after the penalties. Two matches of one user that
/// end at once wait here, and both count.
pub(super) const LOCK_RATINGS_ON_FIRST_SCALE: &str =
    select_ratings!("set_id", " from rating r where r.user_key = any($1) order by r.user_key, r.set_id for update");

/// Locks and reads the ratings with digest keys of the users in `$1`; after those on first scales.
pub(super) const LOCK_POOL_AND_SCALE_RATINGS: &str = select_ratings!(
    "rating_key",
    " from keyed_rating r where r.user_key = any($1) order by r.user_key, r.rating_key for update"
);

/// Rating with the highest count of played periods on the first scale of set `$1`, among users who are not in `$2`. Not
/// locked: two matches that end at once count the same period, and the next match sees both.
pub(super) const READ_LAST_ACTIVE_OTHER_USER_ON_FIRST_SCALE: &str = select_ratings!(
    "set_id",
    " from rating r
     where r.set_id = $1 and 0 < r.active_periods and 0 < r.match_count and r.user_key <> all($2)
     order by r.active_periods desc, r.last_match_ms desc
     limit 1"
);

/// Same as `READ_RATING_WITH_MOST_ACTIVE_PERIODS_ON_FIRST_SCALE`, of the ratings with digest key `$1`.
pub(super) const READ_LAST_ACTIVE_OTHER_USER_OF_POOL_AND_SCALE: &str = select_ratings!(
    "rating_key",
    " from keyed_rating r
     where r.rating_key = $1 and 0 < r.active_periods and 0 < r.match_count and r.user_key <> all($2)
     order by r.active_periods desc, r.last_match_ms desc
     limit 1"
);

/// All ratings of the users in `$1`.
pub(super) const READ_RATINGS: [&str; 2] = [
    select_ratings!("set_id", " from rating r where r.user_key = any($1) order by r.user_key, r.set_id"),
    select_ratings!("rating_key", " from keyed_rating r where r.user_key = any($1) order by r.user_key, r.rating_key"),
];

/// All ratings; they are not filtered, because a user has one row for all silos.
pub(super) const LOAD_ALL_RATINGS: [&str; 2] = [
    select_ratings!("set_id", " from rating r order by r.user_key, r.set_id"),
    select_ratings!("rating_key", " from keyed_rating r order by r.user_key, r.rating_key"),
];

/// Those of the sets `$1` without a first scale that have ratings, results or matches. The others are not looked for: that would
/// read whole tables at each start.
pub(super) const READ_SETS_PLAYED_WITHOUT_FIRST_SCALE: &str = "
    select set_id
      from unnest($1::bigint[]) as sets (set_id)
     where not exists (select 1 from first_rating_scale where first_rating_scale.set_id = sets.set_id)
       and (exists (select 1 from rating where rating.set_id = sets.set_id)
            or exists (select 1 from result where result.set_id = sets.set_id)
            or exists (select 1 from match where match.set_id = sets.set_id))
";

/// Records the first scales `$2` and default constants `$3` of the sets `$1`, in order, where none are recorded.
pub(super) const INSERT_FIRST_SCALES: &str = "
    insert into first_rating_scale (set_id, rating_key, rating_defaults)
    select *
      from unnest($1::bigint[], $2::bigint[], $3::bigint[])
        on conflict (set_id) do nothing
";

/// First scales of the sets `$1`, in order, with their default constants.
pub(super) const READ_FIRST_SCALES: &str = "
    select set_id, rating_key, rating_defaults::bigint
      from first_rating_scale
     where set_id = any($1)
     order by set_id
";

/// History of the rating of user `$1` on the first scale of set `$2`, latest first.
pub(super) const READ_RATING_CHANGES_ON_FIRST_SCALE: &str = "
    select user_key, set_id, rated_match_number, match_id, reported_ms, rank, side_count, rating_before,
           deviation_before, rating_after, deviation_after
      from rating_change
     where user_key = $1 and set_id = $2
     order by reported_ms desc, rated_match_number desc
";

/// Same as `READ_RATING_CHANGES_ON_FIRST_SCALE`, of the rating with digest key `$2`.
pub(super) const READ_POOL_AND_SCALE_RATING_CHANGES: &str = "
    select user_key, rating_key, rated_match_number, match_id, reported_ms, rank, side_count, rating_before,
           deviation_before, rating_after, deviation_after
      from keyed_rating_change
     where user_key = $1 and rating_key = $2
     order by reported_ms desc, rated_match_number desc
";

/// Inserts ratings. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_RATINGS_ON_FIRST_SCALE: &str = "
    insert into rating (user_key, set_id, rating, deviation, volatility, match_count, last_match_ms, streak,
                        abandoned_matches, feedback_count, feedback_sum, active_periods, disputed_matches)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
                  $13::bigint[])
        on conflict (user_key, set_id) do nothing
";

/// Inserts ratings with digest keys. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_POOL_AND_SCALE_RATINGS: &str = "
    insert into keyed_rating (user_key, rating_key, rating, deviation, volatility, match_count, last_match_ms, streak,
                        abandoned_matches, feedback_count, feedback_sum, active_periods, disputed_matches)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
                  $13::bigint[])
        on conflict (user_key, rating_key) do nothing
";

/// Updates ratings.
pub(super) const UPDATE_RATINGS_ON_FIRST_SCALE: &str = "
    update rating r
       set rating = u.rating, deviation = u.deviation, volatility = u.volatility, match_count = u.match_count,
           last_match_ms = u.last_match_ms, streak = u.streak, abandoned_matches = u.abandoned_matches,
           feedback_count = u.feedback_count, feedback_sum = u.feedback_sum, active_periods = u.active_periods,
           disputed_matches = u.disputed_matches
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
                  $13::bigint[])
        as u (user_key, set_id, rating, deviation, volatility, match_count, last_match_ms, streak, abandoned_matches,
              feedback_count, feedback_sum, active_periods, disputed_matches)
     where r.user_key = u.user_key and r.set_id = u.set_id
";

/// Updates ratings with digest keys.
pub(super) const UPDATE_POOL_AND_SCALE_RATINGS: &str = "
    update keyed_rating r
       set rating = u.rating, deviation = u.deviation, volatility = u.volatility, match_count = u.match_count,
           last_match_ms = u.last_match_ms, streak = u.streak, abandoned_matches = u.abandoned_matches,
           feedback_count = u.feedback_count, feedback_sum = u.feedback_sum, active_periods = u.active_periods,
           disputed_matches = u.disputed_matches
      from unnest($1::uuid[], $2::bigint[], $3::double precision[], $4::double precision[], $5::double precision[],
                  $6::bigint[], $7::bigint[], $8::integer[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
                  $13::bigint[])
        as u (user_key, rating_key, rating, deviation, volatility, match_count, last_match_ms, streak, abandoned_matches,
              feedback_count, feedback_sum, active_periods, disputed_matches)
     where r.user_key = u.user_key and r.rating_key = u.rating_key
";

/// Stores rating history entries; each replaces the entry in the same slot. The writer holds the lock of the rating.
pub(super) const UPSERT_RATING_CHANGES_ON_FIRST_SCALE: &str = "
    insert into rating_change (user_key, set_id, slot, rated_match_number, match_id, reported_ms, rank, side_count,
                               rating_before, deviation_before, rating_after, deviation_after)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::double precision[], $10::double precision[], $11::double precision[],
                  $12::double precision[])
        on conflict (user_key, set_id, slot) do update
       set rated_match_number = excluded.rated_match_number, match_id = excluded.match_id,
           reported_ms = excluded.reported_ms, rank = excluded.rank, side_count = excluded.side_count,
           rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after
";

/// Stores history entries of ratings with digest keys; each replaces the entry in the same slot. The writer holds the
/// lock of the rating.
pub(super) const UPSERT_POOL_AND_SCALE_RATING_CHANGES: &str = "
    insert into keyed_rating_change (user_key, rating_key, slot, rated_match_number, match_id, reported_ms, rank, side_count,
                               rating_before, deviation_before, rating_after, deviation_after)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::double precision[], $10::double precision[], $11::double precision[],
                  $12::double precision[])
        on conflict (user_key, rating_key, slot) do update
       set rated_match_number = excluded.rated_match_number, match_id = excluded.match_id,
           reported_ms = excluded.reported_ms, rank = excluded.rank, side_count = excluded.side_count,
           rating_before = excluded.rating_before, deviation_before = excluded.deviation_before,
           rating_after = excluded.rating_after, deviation_after = excluded.deviation_after
";
