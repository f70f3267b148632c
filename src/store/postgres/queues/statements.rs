//! SQL statements of the Postgres store for queues. Rows are passed as arrays, one per column: one statement and one
//! plan for any number of rows.

/// Columns of a ticket.
macro_rules! select_tickets {
    ($source:literal) => {
        concat!(
            "
    select t.ticket_id, t.silo_id, t.set_id, t.entered_ms, t.request_digest, t.body,
           t.state, t.match_id, t.end_reason, t.expires_ms, t.purge_at_ms, t.version, t.acknowledged,
           t.seat_vectors",
            $source
        )
    };
}

/// Columns of a match.
macro_rules! select_matches {
    ($source:literal) => {
        concat!(
            "
    select m.match_id, m.silo_id, m.set_id, m.proposed_ms, m.version, m.stage, m.purge_at_ms, m.body",
            $source
        )
    };
}

/// Columns of a result.
macro_rules! select_results {
    ($source:literal) => {
        concat!("select r.match_id, r.silo_id, r.set_id, r.reported_ms, r.request_digest, r.body", $source)
    };
}

/// Begins a transaction and takes advisory locks for entering users, shared or exclusive. Without them, two
/// transactions could enter one user into two queues, one of them with an exclusive ticket. They write no common row.
///
/// `entry_locks` are lock numbers with a flag for exclusive, in order, each once. All locks must fit the database's
/// lock table.
pub(super) fn begin_with_entry_locks_sql(entry_locks: &[(u8, bool)]) -> String {
    if entry_locks.is_empty() {
        return "begin".to_owned();
    }
    let numbers: Vec<String> = entry_locks.iter().map(|(lock_number, _)| lock_number.to_string()).collect();
    let flags: Vec<&str> = entry_locks.iter().map(|(_, is_exclusive)| if *is_exclusive { "t" } else { "f" }).collect();
    // A text of two statements takes no parameters; numbers and flags are safe in the text.
    format!(
        "begin; select case when is_exclusive then pg_advisory_xact_lock({ENTRY_LOCK_CLASS}, lock_number)::text \
         else pg_advisory_xact_lock_shared({ENTRY_LOCK_CLASS}, lock_number)::text end \
         from unnest('{{{}}}'::integer[], '{{{}}}'::boolean[]) as u (lock_number, is_exclusive)",
        numbers.join(","),
        flags.join(",")
    )
}

/// First number of the advisory locks of `begin_with_entry_locks_sql`: `ftqu` in ASCII. All users of the database share the
/// numbers.
const ENTRY_LOCK_CLASS: i32 = 0x6674_7175;

/// Locks and reads the tickets in `$1`, in id order, so that two batches with the same rows cannot deadlock.
pub(super) const LOCK_TICKETS: &str =
    select_tickets!(" from ticket t where t.ticket_id = any($1) order by t.ticket_id for update");

/// Locks and reads the matches in `$1`; after the tickets.
pub(super) const LOCK_MATCHES: &str =
    select_matches!(" from match m where m.match_id = any($1) order by m.match_id for update");

/// Locks the penalties of the users in `$1`, where they may change; after the matches.
pub(super) const LOCK_PENALTIES: &str = "
    select user_key
      from penalty
     where user_key = any($1)
     order by user_key, set_id
       for update
";

/// Locks and reads the consents in `$1`; after the penalties.
pub(super) const LOCK_CONSENTS: &str = "
    select consent_id, taken_by, is_revoked, expires_ms
      from consent
     where consent_id = any($1)
     order by consent_id
       for update
";

/// Inserts consents. Fewer rows than consents: another server inserted one first.
pub(super) const INSERT_CONSENTS: &str = "
    insert into consent (consent_id, taken_by, is_revoked, expires_ms)
    select *
      from unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::bigint[])
        on conflict (consent_id) do nothing
";

/// Updates consents.
pub(super) const UPDATE_CONSENTS: &str = "
    update consent c
       set taken_by = u.taken_by, is_revoked = u.is_revoked, expires_ms = u.expires_ms
      from unnest($1::uuid[], $2::uuid[], $3::boolean[], $4::bigint[])
        as u (consent_id, taken_by, is_revoked, expires_ms)
     where c.consent_id = u.consent_id
";

/// Locks and reads the block lists of the users in `$1`; after the consents.
pub(super) const LOCK_BLOCK_LISTS: &str = "
    select user_key, blocked, version
      from block_list
     where user_key = any($1)
     order by user_key
       for update
";

/// Block lists of the users in `$1`.
pub(super) const READ_BLOCK_LISTS: &str =
    "select user_key, blocked, version from block_list where user_key = any($1) order by user_key";

/// All block lists; they are not filtered, because a user has one for all silos.
pub(super) const LOAD_ALL_BLOCK_LISTS: &str = "select user_key, blocked, version from block_list order by user_key";

/// Inserts block lists. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_BLOCK_LISTS: &str = "
    insert into block_list (user_key, blocked, version)
    select *
      from unnest($1::uuid[], $2::bytea[], $3::bigint[])
        on conflict (user_key) do nothing
";

/// Updates block lists.
pub(super) const UPDATE_BLOCK_LIST_ROWS: &str = "
    update block_list b
       set blocked = u.blocked, version = u.version
      from unnest($1::uuid[], $2::bytea[], $3::bigint[]) as u (user_key, blocked, version)
     where b.user_key = u.user_key
";

/// Results of the matches in `$1`. Read after the lock on the match, so that the second of two reports sees the first.
pub(super) const READ_RESULTS: &str = select_results!(" from result r where r.match_id = any($1) order by r.match_id");

/// Feedback on the matches in `$1`.
pub(super) const READ_FEEDBACK: &str = "
    select match_id, user_key, stars, given_ms
      from feedback
     where match_id = any($1)
";

/// At most `$3` results with their feedback, ordered by time of report and match id, after (`$1`, `$2`).
pub(super) const LIST_FINISHED_MATCHES: &str = select_results!(
    ", (select count(*) from feedback f where f.match_id = r.match_id),
           (select coalesce(sum(f.stars), 0) from feedback f where f.match_id = r.match_id)
      from result r
     where (r.reported_ms, r.match_id) > ($1, $2)
     order by r.reported_ms, r.match_id
     limit $3
"
);

/// Tickets, matches and penalties of the users in `$1`, and users of the matches in `$2`. Columns: kind, user, id, four
/// numbers. A separate statement: it must see rows that were committed while the locks were waited for.
pub(super) const READ_TICKETS_MATCHES_PENALTIES_OF_USERS: &str = "
    select 0, user_key, ticket_id, set_id, silo_id, exclusive::integer::bigint, null::bigint
      from ticket_user
     where user_key = any($1)
     union all
    select 1, user_key, match_id, null, null, null, null
      from match_user
     where user_key = any($1)
     union all
    select 1, user_key, match_id, null, null, null, null
      from match_user
     where match_id = any($2)
     union all
    select 2, user_key, null, set_id, level, cooldown_until_ms, resets_at_ms
      from penalty
     where user_key = any($1)
";

/// Deletes users of tickets: the ticket ended, or they left its match.
pub(super) const DELETE_TICKET_USERS: &str = "
    delete from ticket_user t
     using unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[]) as u (user_key, set_id, silo_id, ticket_id)
     where t.user_key = u.user_key and t.set_id = u.set_id and t.silo_id = u.silo_id and t.ticket_id = u.ticket_id
";

/// Deletes users of matches.
pub(super) const DELETE_MATCH_USERS_BY_USER: &str = "delete from match_user where user_key = any($1)";

/// Inserts tickets. Fewer rows than ids: another server inserted one with the same key first.
pub(super) const INSERT_TICKETS: &str = "
    insert into ticket (ticket_id, silo_id, set_id, entered_ms, request_digest, body, state, match_id,
                        end_reason, expires_ms, purge_at_ms, version, acknowledged, seat_vectors)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[], $7::smallint[],
                  $8::uuid[], $9::smallint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[],
                  $14::bytea[])
        on conflict (ticket_id) do nothing
";

/// Updates the state of tickets; the other columns never change.
pub(super) const UPDATE_TICKET_STATES: &str = "
    update ticket t
       set state = u.state, match_id = u.match_id, end_reason = u.end_reason, expires_ms = u.expires_ms,
           purge_at_ms = u.purge_at_ms, version = u.version, acknowledged = u.acknowledged,
           seat_vectors = u.seat_vectors
      from unnest($1::uuid[], $2::smallint[], $3::uuid[], $4::smallint[], $5::bigint[], $6::bigint[], $7::bigint[],
                  $8::bigint[], $9::bytea[])
        as u (ticket_id, state, match_id, end_reason, expires_ms, purge_at_ms, version, acknowledged, seat_vectors)
     where t.ticket_id = u.ticket_id
";

/// Inserts matches. Fewer rows than ids: another server inserted one with the same id first.
pub(super) const INSERT_MATCHES: &str = "
    insert into match (match_id, silo_id, set_id, proposed_ms, version, stage, purge_at_ms, body)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[],
                  $8::text[])
        on conflict (match_id) do nothing
";

/// Updates matches.
pub(super) const UPDATE_MATCHES: &str = "
    update match m
       set silo_id = u.silo_id, set_id = u.set_id, proposed_ms = u.proposed_ms, version = u.version, stage = u.stage,
           purge_at_ms = u.purge_at_ms, body = u.body
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[],
                  $8::text[])
        as u (match_id, silo_id, set_id, proposed_ms, version, stage, purge_at_ms, body)
     where m.match_id = u.match_id
";

/// Inserts users of tickets. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_TICKET_USERS: &str = "
    insert into ticket_user (user_key, set_id, silo_id, ticket_id, exclusive)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::uuid[], $5::boolean[])
        on conflict (user_key, set_id, silo_id) do nothing
";

/// Inserts users of matches. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_MATCH_USERS: &str = "
    insert into match_user (user_key, match_id)
    select *
      from unnest($1::uuid[], $2::uuid[])
        on conflict (user_key) do nothing
";

/// Inserts penalties. Fewer rows than users: another server inserted one first.
pub(super) const INSERT_PENALTIES: &str = "
    insert into penalty (user_key, set_id, level, cooldown_until_ms, resets_at_ms)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        on conflict (user_key, set_id) do nothing
";

/// Updates penalties.
pub(super) const UPDATE_PENALTIES: &str = "
    update penalty p
       set level = u.level, cooldown_until_ms = u.cooldown_until_ms, resets_at_ms = u.resets_at_ms
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
        as u (user_key, set_id, level, cooldown_until_ms, resets_at_ms)
     where p.user_key = u.user_key and p.set_id = u.set_id
";

/// Inserts results. Fewer rows than matches: another server inserted one first.
pub(super) const INSERT_RESULTS: &str = "
    insert into result (match_id, silo_id, set_id, reported_ms, request_digest, body)
    select *
      from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::uuid[], $6::text[])
        on conflict (match_id) do nothing
";

/// Inserts feedback. Fewer rows than feedback: another server inserted one first.
pub(super) const INSERT_FEEDBACK: &str = "
    insert into feedback (match_id, user_key, stars, given_ms)
    select *
      from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::bigint[])
        on conflict (match_id, user_key) do nothing
";

/// Records the ids changed by the batch `$1` of server `$2`, and notifies the others if `$6`.
pub(super) const INSERT_CHANGE: &str = "
    with recorded as (
        insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated_users)
        values ($1, pg_current_xact_id()::text::bigint, $2, $3, $4, $5)
        returning version
    )
    select case when $6 then pg_notify('fireteam_queue_change', '')::text end
      from recorded
";

/// Notifies the other servers of a change that is committed.
pub(in crate::store::postgres) const NOTIFY_OF_CHANGES: &str = "select pg_notify('fireteam_queue_change', '')::text";

/// Abandons the batch `$1`. No inserted row means that it was committed. Waits while the batch's transaction is
/// running.
pub(in crate::store::postgres) const ABANDON_BATCH: &str = "
    insert into queue_change (batch_id, version, replica, ticket_ids, match_ids, rated_users)
    values ($1, pg_current_xact_id()::text::bigint, $2, '{}', '{}', '{}')
        on conflict (batch_id) do nothing
";

/// Oldest running transaction, clock, and the transaction ids of at most `$4` changes from `$1` on, without those in
/// `$2`. Only changes of other servers than `$3`, or of the batches `$5`. Then all keys of those changes, and
/// how many have an unknown kind.
pub(super) const READ_KEYS_OF_CHANGES: &str = "
    with new_changes as materialized (
        select version, kind, ticket_ids, match_ids, rated_users
          from queue_change
         where version >= $1 and version <> all($2) and (replica <> $3 or batch_id = any($5))
         order by version
         limit $4
    )
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint,
           (select array_agg(version) from new_changes),
           array(select distinct unnest(ticket_ids) from new_changes),
           array(select distinct unnest(match_ids) from new_changes),
           array(select distinct unnest(rated_users) from new_changes),
           (select count(*) from new_changes where kind <> 0)
";

/// Begins a read-only transaction on one snapshot.
pub(super) const BEGIN_SNAPSHOT_READ: &str = "begin isolation level repeatable read read only";

/// Tickets in `$1`, in the silos `$2`, null for all.
pub(super) const READ_TICKETS: &str = select_tickets!(
    " from ticket t where t.ticket_id = any($1) and ($2::bigint[] is null or t.silo_id = any($2)) order by t.ticket_id"
);

/// Matches in `$1`, in the silos `$2`, null for all.
pub(super) const READ_MATCHES: &str = select_matches!(
    " from match m where m.match_id = any($1) and ($2::bigint[] is null or m.silo_id = any($2)) order by m.match_id"
);

/// All tickets in the silos `$1`, null for all.
pub(super) const LOAD_ALL_TICKETS: &str =
    select_tickets!(" from ticket t where ($1::bigint[] is null or t.silo_id = any($1)) order by t.ticket_id");

/// All matches in the silos `$1`, null for all.
pub(super) const LOAD_ALL_MATCHES: &str =
    select_matches!(" from match m where ($1::bigint[] is null or m.silo_id = any($1)) order by m.match_id");

/// Purges at most 1,000 rows of each table that are due by `$1`; skips rows that another server has locked.
pub(super) const PURGE_DUE_ROWS: [&str; 6] = [
    "
    delete from ticket
     where ticket_id in (select ticket_id from ticket where purge_at_ms <= $1 and state = 2 and end_reason <= 7
                          limit 1000 for update skip locked)
",
    "
    delete from match
     where match_id in (select match_id from match where purge_at_ms <= $1 and stage = 3 limit 1000
                         for update skip locked)
",
    "
    delete from penalty
     where (user_key, set_id) in (select user_key, set_id from penalty
                                   where greatest(cooldown_until_ms, resets_at_ms) <= $1
                                   limit 1000 for update skip locked)
",
    // RESULT_RETENTION_MS
    "
    delete from result
     where match_id in (select match_id from result where reported_ms <= $1 - 7948800000 limit 1000
                           for update skip locked)
",
    "
    delete from feedback
     where (match_id, user_key) in (select match_id, user_key from feedback where given_ms <= $1 - 7948800000
                                     limit 1000 for update skip locked)
",
    // CONSENT_RETENTION_AFTER_EXPIRY_MS
    "
    delete from consent
     where consent_id in (select consent_id from consent where expires_ms <= $1 - 600000 limit 1000
                             for update skip locked)
",
];

/// Purges by the database's clock: changes that every server has read or replaces by a snapshot, and leases, and
/// users and counts of servers that are gone. Only servers of earlier versions write `connected_users`.
pub(super) const PURGE_BY_DATABASE_CLOCK: [&str; 6] = [
    "
    delete from queue_change
     where batch_id in (select batch_id from queue_change where committed_at < clock_timestamp() - interval '10 minutes'
                         limit 1000 for update skip locked)
",
    "
    delete from queue_lease
     where (set_id, silo_id) in (select set_id, silo_id from queue_lease
                                  where expires_at < clock_timestamp() - interval '1 minute'
                                  limit 1000 for update skip locked)
",
    "
    delete from lease_holder
     where replica in (select replica from lease_holder where expires_at < clock_timestamp() - interval '1 minute'
                        limit 1000 for update skip locked)
",
    "
    delete from connected_users
     where (replica, silo_id) in (select replica, silo_id from connected_users
                                   where reported_at < clock_timestamp() - interval '1 minute'
                                   limit 1000 for update skip locked)
",
    "
    delete from connected_user
     where (set_id, silo_id, user_key, replica) in (
           select set_id, silo_id, user_key, replica from connected_user
            where replica = any (array(select replica from connected_users_by_set group by replica
                                       having max(reported_at) < clock_timestamp() - interval '1 minute'))
            limit 1000 for update skip locked)
",
    "
    delete from connected_users_by_set
     where (replica, set_id, silo_id) in (
           select replica, set_id, silo_id from connected_users_by_set s
            where reported_at < clock_timestamp() - interval '1 minute'
              and not exists (select from connected_user u
                               where u.replica = s.replica and u.set_id = s.set_id and u.silo_id = s.silo_id)
            limit 1000 for update skip locked)
",
];

/// Renews the row of server `$1` as a holder of leases, for `$2` milliseconds, with its store format version `$3`. Returns the
/// servers whose rows had not expired before.
pub(super) const RENEW_LEASE_HOLDER: &str = "
    with renewed as (
        insert into lease_holder (replica, expires_at, store_format)
        values ($1, clock_timestamp() + $2::bigint * interval '1 millisecond', $3)
            on conflict (replica) do update
           set expires_at = excluded.expires_at, store_format = excluded.store_format
    )
    select replica from lease_holder where expires_at > clock_timestamp()
";

/// Acquires or renews for server `$1` the leases of the sets `$2` in the silos `$3`, in order, for `$4` milliseconds, with
/// its store format version `$5`. Returns the leases held now. By the database's clock, a lease is free when it has expired, or
/// its holder has. A holder without a row is a server of an earlier version.
pub(super) const ACQUIRE_LEASES: &str = "
    insert into queue_lease as l (set_id, silo_id, replica, expires_at, store_format, format_replica)
    select u.set_id, u.silo_id, $1, clock_timestamp() + $4::bigint * interval '1 millisecond', $5, $1
      from unnest($2::bigint[], $3::bigint[]) as u (set_id, silo_id)
        on conflict (set_id, silo_id) do update
       set replica = excluded.replica, expires_at = excluded.expires_at, store_format = excluded.store_format,
           format_replica = excluded.format_replica
     where l.replica = excluded.replica or l.expires_at <= clock_timestamp()
        or exists (select from lease_holder h where h.replica = l.replica and h.expires_at <= clock_timestamp())
    returning set_id, silo_id
";

/// Lowest store format version of the live servers; null without any. A server that does not write its version has version 1.
/// Such a server is known by a lease, or by the `connected_users` that only earlier versions write.
pub(super) const READ_LOWEST_STORE_FORMAT: &str = "
    select min(store_format)
      from (select store_format from lease_holder where expires_at > clock_timestamp()
             union all
            select 1 from queue_lease where format_replica is distinct from replica and expires_at > clock_timestamp()
             union all
            select 1 from connected_users where reported_at > clock_timestamp() - interval '10 seconds') live
";

/// Releases all leases of server `$1`, and forgets its connected users.
pub(super) const UNREGISTER_SERVER: &str = "
    with released as (delete from queue_lease where replica = $1),
         unlisted as (delete from connected_user where replica = $1),
         uncounted as (delete from connected_users_by_set where replica = $1)
    delete from lease_holder where replica = $1
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purge_statements_use_the_result_retention() {
        let due = format!("$1 - {}", crate::store::queues::RESULT_RETENTION_MS);
        assert!(PURGE_DUE_ROWS[3].contains(&due) && PURGE_DUE_ROWS[4].contains(&due), "{due}");
        let due = format!("$1 - {}", crate::store::queues::CONSENT_RETENTION_AFTER_EXPIRY_MS);
        assert!(PURGE_DUE_ROWS[5].contains(&due), "{due}");
    }
}
