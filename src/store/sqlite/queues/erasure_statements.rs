//! SQL statements that erase a user, find the rows that name one, and clean up afterwards.

use crate::store::sqlite::connection::sql_script::MultiRowTemplate;

/// Replaces all columns of tickets.
pub(super) const REWRITE_TICKETS: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into ticket (ticket_id, silo_id, set_id, entered_ms, request_digest, body, checksum,
                        state, match_id, end_reason, expires_ms, purge_at_ms, version, state_checksum, acknowledged,
                        seat_vectors)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (ticket_id) do update
       set request_digest = excluded.request_digest, body = excluded.body, checksum = excluded.checksum,
           state = excluded.state, match_id = excluded.match_id, end_reason = excluded.end_reason,
           expires_ms = excluded.expires_ms, purge_at_ms = excluded.purge_at_ms, version = excluded.version,
           state_checksum = excluded.state_checksum, acknowledged = excluded.acknowledged,
           seat_vectors = excluded.seat_vectors",
    false,
);

/// Replaces the contents of results.
pub(super) const REWRITE_RESULTS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into result (match_id, silo_id, set_id, reported_ms, request_digest, body, checksum) values ",
    "(?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (match_id) do update
       set request_digest = excluded.request_digest, body = excluded.body, checksum = excluded.checksum",
    false,
);

/// Deletes feedback of players on matches.
pub(super) const DELETE_FEEDBACK_BY_MATCH_AND_USER: MultiRowTemplate =
    MultiRowTemplate::new("delete from feedback where (match_id, user_key) in (values ", "(?, ?)", ")", true);

/// Deletes ratings on first scales.
pub(super) const DELETE_RATINGS_ON_FIRST_SCALE: MultiRowTemplate =
    MultiRowTemplate::new("delete from rating where (user_key, set_id) in (values ", "(?, ?)", ")", true);

/// Deletes the history of ratings on first scales.
pub(super) const DELETE_RATING_CHANGES_ON_FIRST_SCALE: MultiRowTemplate =
    MultiRowTemplate::new("delete from rating_change where (user_key, set_id) in (values ", "(?, ?)", ")", true);

/// Deletes ratings with digest keys.
pub(super) const DELETE_POOL_AND_SCALE_RATINGS: MultiRowTemplate =
    MultiRowTemplate::new("delete from keyed_rating where (user_key, rating_key) in (values ", "(?, ?)", ")", true);

/// Deletes the history of ratings with digest keys.
pub(super) const DELETE_POOL_AND_SCALE_RATING_CHANGES: MultiRowTemplate = MultiRowTemplate::new(
    "delete from keyed_rating_change where (user_key, rating_key) in (values ",
    "(?, ?)",
    ")",
    true,
);

/// Deletes all rows of users that only concern them.
pub(super) const DELETE_USER_ROWS: [MultiRowTemplate; 8] = [
    MultiRowTemplate::new("delete from rating where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from rating_change where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from keyed_rating where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from keyed_rating_change where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from feedback where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from penalty where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from block_list where user_key in (", "?", ")", true),
    MultiRowTemplate::new("delete from user_log_name where user_key in (", "?", ")", true),
];

/// Ids above `$2` of rows whose body has the text `$1`, in order; at most `$3`.
macro_rules! find_in_bodies {
    ($table:literal, $id:literal) => {
        concat!(
            "select ",
            $id,
            " from ",
            $table,
            " where ",
            $id,
            " > $2
 and instr(body, $1) > 0 order by ",
            $id,
            " limit $3"
        )
    };
}

/// Tickets.
pub(super) const FIND_TICKETS_NAMING_USER: &str = find_in_bodies!("ticket", "ticket_id");

/// Matches.
pub(super) const FIND_MATCHES_NAMING_USER: &str = find_in_bodies!("match", "match_id");

/// Results, by match.
pub(super) const FIND_RESULTS_NAMING_USER: &str = find_in_bodies!("result", "match_id");

/// Feedback of the user with the hexadecimal key `$1`, by match.
pub(super) const FIND_FEEDBACK_GIVEN_BY_USER: &str = "
    select match_id from feedback
     where match_id > $2 and user_key = unhex($1)
     order by match_id limit $3
";

/// Advertisements above `$2` that name the user with the hexadecimal key `$1`, or with such a reservation, in order; at most
/// `$3`.
/// The user's owner keys are between `$4` and `$5`, and `$6` is its party.
pub(super) const FIND_ADVERTISEMENTS_NAMING_USER: &str = "
    select advertisement_id from advertisement where advertisement_id > $2 and instr(body, $1) > 0
     union
    select advertisement_id from reservation
     where advertisement_id > $2
       and (instr(users, unhex($1)) > 0 or owner between $4 and $5 or party = $6)
     order by advertisement_id limit $3
";

/// Block lists that name the user with the hexadecimal key `$1`, by the user whose list it is.
pub(super) const FIND_BLOCK_LISTS_NAMING_USER: &str = "
    select user_key from block_list
     where user_key > $2 and instr(blocked, unhex($1)) > 0
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

/// Remembers that a user is erased, at `$1`.
pub(super) const REQUEST_CLEANUP: &str = "insert or ignore into erasure_cleanup (requested_ms) values ($1)";

/// Number of erasures to clean up after.
pub(super) const COUNT_CLEANUPS: &str = "select count(*) from erasure_cleanup";

/// Forgets the erasures.
pub(super) const DELETE_ALL_CLEANUPS: &str = "delete from erasure_cleanup";

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
    on conflict (name) do update set value = max(value, excluded.value)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::tests::prepare_statements;

    const SINGLE_STATEMENTS: [&str; 16] = [
        READ_FEEDBACK_GIVEN_BY_USER,
        FIND_TICKETS_NAMING_USER,
        FIND_MATCHES_NAMING_USER,
        FIND_RESULTS_NAMING_USER,
        FIND_FEEDBACK_GIVEN_BY_USER,
        FIND_ADVERTISEMENTS_NAMING_USER,
        FIND_BLOCK_LISTS_NAMING_USER,
        READ_USER_LOG_NAME,
        INSERT_USER_LOG_NAME,
        REQUEST_CLEANUP,
        COUNT_CLEANUPS,
        DELETE_ALL_CLEANUPS,
        INSERT_PUBLIC_USER_KEY_SECRET_ID,
        READ_PUBLIC_USER_KEY_SECRET_ID,
        READ_STORE_SETTING,
        RAISE_STORE_SETTING,
    ];

    #[tokio::test]
    async fn sqlite_erasure_statements_all_prepare() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
        let rewrites = [REWRITE_TICKETS, REWRITE_RESULTS, DELETE_FEEDBACK_BY_MATCH_AND_USER];
        let ratings = [
            DELETE_RATINGS_ON_FIRST_SCALE,
            DELETE_RATING_CHANGES_ON_FIRST_SCALE,
            DELETE_POOL_AND_SCALE_RATINGS,
            DELETE_POOL_AND_SCALE_RATING_CHANGES,
        ];
        prepare_statements(&store, &SINGLE_STATEMENTS, &rewrites).await;
        prepare_statements(&store, &[], &ratings).await;
        prepare_statements(&store, &[], &DELETE_USER_ROWS).await;
    }
}
