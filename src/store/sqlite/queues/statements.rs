//! SQL statements of the SQLite store for queues. As for advertisements, ids to look up are one JSON array of
//! hexadecimal texts, and one statement writes many rows.

use crate::store::sqlite::connection::sql_script::MultiRowTemplate;

/// Columns of a ticket.
macro_rules! select_tickets {
    ($($source:tt)+) => {
        concat!(
            "
    select t.ticket_id, t.silo_id, t.set_id, t.entered_ms, t.request_digest, t.body, t.checksum,
           t.state, t.match_id, t.end_reason, t.expires_ms, t.purge_at_ms, t.version, t.state_checksum, t.acknowledged,
           t.seat_vectors",
            $($source)+
        )
    };
}

/// Columns of a match.
macro_rules! select_matches {
    ($($source:tt)+) => {
        concat!(
            "
    select m.match_id, m.silo_id, m.set_id, m.proposed_ms, m.version, m.stage, m.purge_at_ms, m.body, m.checksum",
            $($source)+
        )
    };
}

/// Columns of a result.
macro_rules! select_results {
    ($($source:tt)+) => {
        concat!("select r.match_id, r.silo_id, r.set_id, r.reported_ms, r.request_digest, r.body, r.checksum", $($source)+)
    };
}

/// Tickets with the ids in a parameter, a JSON array.
macro_rules! read_tickets {
    ($ids:literal) => {
        select_tickets!(" from json_each(", $ids, ") requested join ticket t on t.ticket_id = unhex(requested.value)")
    };
}

/// Matches with the ids in a parameter, a JSON array.
macro_rules! read_matches {
    ($ids:literal) => {
        select_matches!(" from json_each(", $ids, ") requested join match m on m.match_id = unhex(requested.value)")
    };
}

/// Tickets, matches and penalties of users, and users of matches, by two parameters. Columns: kind, user, id, four
/// numbers, checksum.
macro_rules! read_users {
    ($users:literal, $matches:literal) => {
        concat!(
            "
    with requested (user_key) as materialized (select unhex(value) from json_each(",
            $users,
            "))
    select 0, u.user_key, u.ticket_id, u.set_id, u.silo_id, u.exclusive, null, u.checksum
      from requested join ticket_user u on u.user_key = requested.user_key
     union all
    select 1, u.user_key, u.match_id, null, null, null, null, u.checksum
      from requested join match_user u on u.user_key = requested.user_key
     union all
    select 1, u.user_key, u.match_id, null, null, null, null, u.checksum
      from json_each(",
            $matches,
            ") ended join match_user u on u.match_id = unhex(ended.value)
     union all
    select 2, p.user_key, null, p.set_id, p.level, p.cooldown_until_ms, p.resets_at_ms, p.checksum
      from requested join penalty p on p.user_key = requested.user_key
"
        )
    };
}

/// Results of the matches in a parameter, a JSON array.
macro_rules! read_results {
    ($matches:literal) => {
        select_results!(
            " from json_each(",
            $matches,
            ") requested join result r on r.match_id = unhex(requested.value)"
        )
    };
}

/// Begins a transaction with the write lock, and reads the rows that a batch of writes depends on, as one text: each
/// exchange with SQLite's thread costs more than finding the rows. Each parameter is a JSON array of ids: `$1` tickets,
/// `$2` matches, `$3` users, `$4` consents, `$5` users of block lists, `$6` matches of results, `$7` matches of feedback.
/// Each statement has its own rows, in this order; [`READ_STATEMENT_COUNT`] counts them.
pub(in crate::store::sqlite) const BEGIN_WRITE_AND_READ_QUEUE_ROWS: &str = concat!(
    "begin immediate;",
    read_tickets!("$1"),
    ";",
    read_matches!("$2"),
    ";",
    read_users!("$3", "$2"),
    ";
    select c.consent_id, c.taken_by, c.is_revoked, c.expires_ms, c.checksum
      from json_each($4) requested join consent c on c.consent_id = unhex(requested.value);
    select b.user_key, b.blocked, b.version, b.checksum
      from json_each($5) requested join block_list b on b.user_key = unhex(requested.value);",
    read_results!("$6"),
    ";
    select f.match_id, f.user_key, f.stars, f.given_ms, f.checksum
      from json_each($7) requested join feedback f on f.match_id = unhex(requested.value)",
);

/// Statements of [`BEGIN_WRITE_AND_READ_QUEUE_ROWS`] after the first, `begin`.
pub(in crate::store::sqlite) const READ_STATEMENT_COUNT: usize = 7;

/// Tickets in `$1`, a JSON array of ids.
pub(in crate::store::sqlite) const READ_TICKETS: &str = read_tickets!("$1");

/// Matches in `$1`, a JSON array of ids.
pub(in crate::store::sqlite) const READ_MATCHES: &str = read_matches!("$1");

/// Tickets, matches and penalties of the users in `$1`, and users of the matches in `$2`. Columns: kind, user, id, four
/// numbers, checksum.
pub(in crate::store::sqlite) const READ_TICKETS_MATCHES_PENALTIES_OF_USERS: &str = read_users!("$1", "$2");

/// All tickets, in id order.
pub(in crate::store::sqlite) const LOAD_ALL_TICKETS: &str = select_tickets!(" from ticket t order by t.ticket_id");

/// All matches, in id order.
pub(in crate::store::sqlite) const LOAD_ALL_MATCHES: &str = select_matches!(" from match m order by m.match_id");

/// Results of the matches in `$1`, a JSON array of ids.
pub(in crate::store::sqlite) const READ_RESULTS: &str = read_results!("$1");

/// At most `$3` results with their feedback, ordered by time of report and match id, after (`$1`, `$2`).
pub(in crate::store::sqlite) const LIST_FINISHED_MATCHES: &str = select_results!(
    ", (select count(*) from feedback f where f.match_id = r.match_id),
           (select coalesce(sum(f.stars), 0) from feedback f where f.match_id = r.match_id)
      from result r
     where (r.reported_ms, r.match_id) > ($1, $2)
     order by r.reported_ms, r.match_id
     limit $3
"
);

/// Inserts tickets.
pub(in crate::store::sqlite) const INSERT_TICKETS: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into ticket (ticket_id, silo_id, set_id, entered_ms, request_digest, body, checksum,
                        state, match_id, end_reason, expires_ms, purge_at_ms, version, state_checksum, acknowledged,
                        seat_vectors)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    // A padding row exists already and is the same.
    " on conflict (ticket_id) do nothing",
    false,
);

/// Updates the state of tickets; the other columns never change.
pub(in crate::store::sqlite) const UPDATE_TICKET_STATES: MultiRowTemplate = MultiRowTemplate::new(
    "
    update ticket
       set state = v.column2, match_id = v.column3, end_reason = v.column4, expires_ms = v.column5,
           purge_at_ms = v.column6, version = v.column7, state_checksum = v.column8, acknowledged = v.column9,
           seat_vectors = v.column10
      from (values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    ") v
     where ticket.ticket_id = v.column1",
    true,
);

/// Inserts or replaces matches.
pub(in crate::store::sqlite) const UPSERT_MATCHES: MultiRowTemplate = MultiRowTemplate::new(
    "
    insert into match (match_id, silo_id, set_id, proposed_ms, version, stage, purge_at_ms, body, checksum)
    values ",
    "(?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (match_id) do update
       set silo_id = excluded.silo_id, set_id = excluded.set_id, proposed_ms = excluded.proposed_ms,
           version = excluded.version, stage = excluded.stage, purge_at_ms = excluded.purge_at_ms,
           body = excluded.body, checksum = excluded.checksum",
    false,
);

/// Deletes users of ended tickets.
pub(in crate::store::sqlite) const DELETE_TICKET_USERS: MultiRowTemplate = MultiRowTemplate::new(
    "delete from ticket_user where (user_key, set_id, silo_id, ticket_id) in (values ",
    "(?, ?, ?, ?)",
    ")",
    true,
);

/// Inserts users of tickets. Fails if a user is in another ticket of that queue; a padding row is the same again.
pub(in crate::store::sqlite) const INSERT_TICKET_USERS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into ticket_user (user_key, set_id, silo_id, ticket_id, exclusive, checksum) values ",
    "(?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id, silo_id) do update
       set checksum = case ticket_id when excluded.ticket_id then checksum end",
    true,
);

/// Deletes users of matches.
pub(in crate::store::sqlite) const DELETE_MATCH_USERS_BY_USER: MultiRowTemplate =
    MultiRowTemplate::new("delete from match_user where user_key in (", "?", ")", true);

/// Inserts users of matches. Fails if a user is in another match; a padding row is the same again.
pub(in crate::store::sqlite) const INSERT_MATCH_USERS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into match_user (user_key, match_id, checksum) values ",
    "(?, ?, ?)",
    "
        on conflict (user_key) do update
       set checksum = case match_id when excluded.match_id then checksum end",
    true,
);

/// Inserts or updates penalties.
pub(in crate::store::sqlite) const UPSERT_PENALTIES: MultiRowTemplate = MultiRowTemplate::new(
    "insert into penalty (user_key, set_id, level, cooldown_until_ms, resets_at_ms, checksum) values ",
    "(?, ?, ?, ?, ?, ?)",
    "
        on conflict (user_key, set_id) do update
       set level = excluded.level, cooldown_until_ms = excluded.cooldown_until_ms, resets_at_ms = excluded.resets_at_ms,
           checksum = excluded.checksum",
    true,
);

/// Inserts or updates consents.
pub(in crate::store::sqlite) const UPSERT_CONSENTS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into consent (consent_id, taken_by, is_revoked, expires_ms, checksum) values ",
    "(?, ?, ?, ?, ?)",
    "
        on conflict (consent_id) do update
       set taken_by = excluded.taken_by, is_revoked = excluded.is_revoked, expires_ms = excluded.expires_ms,
           checksum = excluded.checksum",
    true,
);

/// All block lists, in the order of users.
pub(in crate::store::sqlite) const LOAD_ALL_BLOCK_LISTS: &str =
    "select user_key, blocked, version, checksum from block_list order by user_key";

/// Inserts or updates block lists.
pub(in crate::store::sqlite) const UPSERT_BLOCK_LISTS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into block_list (user_key, blocked, version, checksum) values ",
    "(?, ?, ?, ?)",
    "
        on conflict (user_key) do update
       set blocked = excluded.blocked, version = excluded.version, checksum = excluded.checksum",
    true,
);

/// Inserts results. Fails if a match has another result; a padding row is the same again.
pub(in crate::store::sqlite) const INSERT_RESULTS: MultiRowTemplate = MultiRowTemplate::new(
    "insert into result (match_id, silo_id, set_id, reported_ms, request_digest, body, checksum) values ",
    "(?, ?, ?, ?, ?, ?, ?)",
    "
        on conflict (match_id) do update
       set checksum = case result.checksum when excluded.checksum then result.checksum end",
    false,
);

/// Inserts feedback. Fails if there is other feedback of that player; a padding row is the same again.
pub(in crate::store::sqlite) const INSERT_FEEDBACK: MultiRowTemplate = MultiRowTemplate::new(
    "insert into feedback (match_id, user_key, stars, given_ms, checksum) values ",
    "(?, ?, ?, ?, ?)",
    "
        on conflict (match_id, user_key) do update
       set checksum = case feedback.checksum when excluded.checksum then feedback.checksum end",
    true,
);

/// Purges at most 1,000 due rows of each table.
pub(in crate::store::sqlite) const PURGE_DUE_ROWS: [&str; 6] = [
    "
    delete from ticket
     where ticket_id in (select ticket_id from ticket where purge_at_ms <= $1 and state = 2 and end_reason <= 7 limit 1000)
",
    "
    delete from match
     where match_id in (select match_id from match where purge_at_ms <= $1 and stage = 3 limit 1000)
",
    "
    delete from penalty
     where (user_key, set_id) in (select user_key, set_id from penalty
                                   where max(cooldown_until_ms, resets_at_ms) <= $1 limit 1000)
",
    // RESULT_RETENTION_MS
    "
    delete from result
     where match_id in (select match_id from result where reported_ms <= $1 - 7948800000 limit 1000)
",
    "
    delete from feedback
     where (match_id, user_key) in (select match_id, user_key from feedback
                                     where given_ms <= $1 - 7948800000 limit 1000)
",
    // CONSENT_RETENTION_AFTER_EXPIRY_MS
    "
    delete from consent
     where consent_id in (select consent_id from consent where expires_ms <= $1 - 600000 limit 1000)
",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::tests::prepare_statements;

    const SINGLE_STATEMENTS: [&str; 14] = [
        READ_TICKETS,
        READ_MATCHES,
        READ_TICKETS_MATCHES_PENALTIES_OF_USERS,
        READ_RESULTS,
        LOAD_ALL_TICKETS,
        LOAD_ALL_MATCHES,
        LIST_FINISHED_MATCHES,
        PURGE_DUE_ROWS[0],
        PURGE_DUE_ROWS[1],
        PURGE_DUE_ROWS[2],
        PURGE_DUE_ROWS[3],
        PURGE_DUE_ROWS[4],
        PURGE_DUE_ROWS[5],
        LOAD_ALL_BLOCK_LISTS,
    ];

    const MULTI_ROW_STATEMENTS: [MultiRowTemplate; 12] = [
        INSERT_TICKETS,
        UPDATE_TICKET_STATES,
        UPSERT_MATCHES,
        DELETE_TICKET_USERS,
        INSERT_TICKET_USERS,
        DELETE_MATCH_USERS_BY_USER,
        INSERT_MATCH_USERS,
        UPSERT_PENALTIES,
        UPSERT_CONSENTS,
        UPSERT_BLOCK_LISTS,
        INSERT_RESULTS,
        INSERT_FEEDBACK,
    ];

    #[tokio::test]
    async fn sqlite_queue_statements_all_prepare() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
        prepare_statements(&store, &SINGLE_STATEMENTS, &MULTI_ROW_STATEMENTS).await;
    }

    #[test]
    fn purge_statements_use_the_result_retention() {
        let due = format!("$1 - {}", crate::store::queues::RESULT_RETENTION_MS);
        assert!(PURGE_DUE_ROWS[3].contains(&due) && PURGE_DUE_ROWS[4].contains(&due), "{due}");
        let due = format!("$1 - {}", crate::store::queues::CONSENT_RETENTION_AFTER_EXPIRY_MS);
        assert!(PURGE_DUE_ROWS[5].contains(&due), "{due}");
    }
}
