//! SQL statements that erase a user, find the rows that name one, and clean up afterwards.

/// Replaces the contents of tickets.
pub(super) const REWRITE_TICKETS: &str = "
    update ticket t
       set request_digest = u.request_digest, body = u.body, version = u.version
      from unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) as u (ticket_id, request_digest, body, version)
     where t.ticket_id = u.ticket_id
";

/// Replaces the contents of results.
pub(super) const REWRITE_RESULTS: &str = "
    update result r
       set request_digest = u.request_digest, body = u.body
      from unnest($1::uuid[], $2::uuid[], $3::text[]) as u (match_id, request_digest, body)
     where r.match_id = u.match_id
";

/// Deletes feedback of the players `$2` on the matches `$1`.
pub(super) const DELETE_FEEDBACK_BY_MATCH_AND_USER: &str = "
    delete from feedback f
     using unnest($1::uuid[], $2::uuid[]) as u (match_id, user_key)
     where f.match_id = u.match_id and f.user_key = u.user_key
";

/// Deletes ratings of the users `$1` on the first scales of the sets `$2`, and their history.
pub(super) const DELETE_RATINGS_ON_FIRST_SCALE: [&str; 2] = [
    "
    delete from rating r
     using unnest($1::uuid[], $2::bigint[]) as u (user_key, set_id)
     where r.user_key = u.user_key and r.set_id = u.set_id
",
    "
    delete from rating_change r
     using unnest($1::uuid[], $2::bigint[]) as u (user_key, set_id)
     where r.user_key = u.user_key and r.set_id = u.set_id
",
];

/// Deletes ratings of the users `$1` with the digest keys `$2`, and their history.
pub(super) const DELETE_POOL_AND_SCALE_RATINGS: [&str; 2] = [
    "
    delete from keyed_rating r
     using unnest($1::uuid[], $2::bigint[]) as u (user_key, rating_key)
     where r.user_key = u.user_key and r.rating_key = u.rating_key
",
    "
    delete from keyed_rating_change r
     using unnest($1::uuid[], $2::bigint[]) as u (user_key, rating_key)
     where r.user_key = u.user_key and r.rating_key = u.rating_key
",
];

/// Deletes all rows of the users `$1` that only concern them.
pub(super) const DELETE_USER_ROWS: [&str; 8] = [
    "delete from rating where user_key = any($1)",
    "delete from rating_change where user_key = any($1)",
    "delete from keyed_rating where user_key = any($1)",
    "delete from keyed_rating_change where user_key = any($1)",
    "delete from feedback where user_key = any($1)",
    "delete from penalty where user_key = any($1)",
    "delete from block_list where user_key = any($1)",
    "delete from user_log_name where user_key = any($1)",
];

/// Ids above `$2` of rows whose body has the text `$1`, in order; at most `$3`.
macro_rules! find_in_bodies {
    ($table:literal, $id:literal) => {
        concat!(
            "select t.",
            $id,
            " from ",
            $table,
            " t where t.",
            $id,
            " > $2 and position($1::text in t.body) > 0 order by t.",
            $id,
            " limit $3"
        )
    };
}

/// Tickets.
pub(super) const FIND_TICKETS: &str = find_in_bodies!("ticket", "ticket_id");

/// Matches.
pub(super) const FIND_MATCHES: &str = find_in_bodies!("match", "match_id");

/// Results, by match.
pub(super) const FIND_RESULTS: &str = find_in_bodies!("result", "match_id");

/// Feedback of the user with the hexadecimal key `$1`, by match.
pub(super) const FIND_FEEDBACK_GIVEN_BY_USER: &str = "
    select match_id from feedback
     where match_id > $2 and user_key = $1::text::uuid
     order by match_id limit $3
";

/// Advertisements above `$2` that name the user with the hexadecimal key `$1`, or with such a reservation, in order; at most
/// `$3`.
/// The user's owner keys are between `$4` and `$5`, and `$6` is its party.
pub(super) const FIND_ADVERTISEMENTS: &str = "
    select advertisement_id from advertisement where advertisement_id > $2 and position($1::text in body) > 0
     union
    select advertisement_id from reservation
     where advertisement_id > $2
       and (position(decode($1::text, 'hex') in users) > 0 or owner between $4 and $5 or party = $6)
     order by advertisement_id limit $3
";

/// Block lists that name the user with the hexadecimal key `$1`, by the user whose list it is.
pub(super) const FIND_BLOCK_LISTS: &str = "
    select user_key from block_list
     where user_key > $2 and position(decode($1::text, 'hex') in blocked) > 0
     order by user_key limit $3
";

/// Feedback of user `$1` on matches above `$2`, in order; at most `$3`.
pub(super) const READ_FEEDBACK_GIVEN_BY_USER: &str = "
    select match_id, stars, given_ms from feedback where user_key = $1 and match_id > $2 order by match_id limit $3
";

/// Name of user `$1` in logs.
pub(super) const READ_USER_LOG_NAME: &str = "select log_name from user_log_name where user_key = $1";

/// Stores the name `$2` of user `$1` in logs, unless the user has one.
pub(super) const INSERT_USER_LOG_NAME: &str =
    "insert into user_log_name (user_key, log_name) values ($1, $2) on conflict (user_key) do nothing";

/// Remembers that a user is erased.
pub(super) const REQUEST_CLEANUP: &str = "insert into erasure_cleanup (cleanup_id) values (gen_random_uuid())";

/// Erasures to clean up after, and how many of them each server has read by now. A server that was out of reach for longer
/// reads all ratings again.
pub(super) const COUNT_REQUESTED_AND_DUE_CLEANUPS: &str = "
    select count(*), count(*) filter (where requested_at < clock_timestamp() - interval '15 seconds')
      from erasure_cleanup
";

/// Erasures that each server has read.
pub(super) const READ_DUE_CLEANUPS: &str =
    "select cleanup_id from erasure_cleanup where requested_at < clock_timestamp() - interval '15 seconds'";

/// Replaces the users of changes that each server has read by a mark. Who reads the mark reads all ratings.
pub(super) const REDACT_RATED_USERS_OF_CHANGES: &str = "
    update queue_change
       set rated_users = array['00000000-0000-0000-0000-000000000000'::uuid]
     where committed_at < clock_timestamp() - interval '10 seconds' and cardinality(rated_users) > 0
";

/// Removes dead rows, and the samples of columns that the planner keeps.
pub(super) const VACUUM_USER_TABLES: &str = "vacuum (analyze) ticket, ticket_user, match, match_user, penalty, rating, \
     rating_change, keyed_rating, keyed_rating_change, result, feedback, queue_change, user_log_name, block_list, advertisement, \
     reservation";

/// Forgets the erasures `$1`.
pub(super) const DELETE_FINISHED_CLEANUPS: &str = "delete from erasure_cleanup where cleanup_id = any($1)";

/// Records the id `$1` of the secret of public user keys, if none is recorded.
pub(super) const INSERT_PUBLIC_USER_KEY_SECRET_ID: &str =
    "insert into store_setting (name, value) values ('user_key_secret', $1) on conflict (name) do nothing";

/// Recorded id of the secret of public user keys.
pub(super) const READ_PUBLIC_USER_KEY_SECRET_ID: &str =
    "select value from store_setting where name = 'user_key_secret'";

/// Value of a store setting.
pub(super) const READ_STORE_SETTING: &str = "select value from store_setting where name = $1";

/// Raises a store setting to a value.
pub(super) const RAISE_STORE_SETTING: &str = "
    insert into store_setting (name, value) values ($1, $2)
    on conflict (name) do update set value = greatest(store_setting.value, excluded.value)";
