//! SQL statements of the Postgres store for advertisements. Rows are passed as arrays, one per column: one statement
//! and one plan for any number of rows.

use std::collections::BTreeSet;

/// Locks the rows of the ids in `$1` and reads the columns that writes depend on. Locks are taken in id order, so that
/// two batches with the same rows cannot deadlock.
pub(super) const LOCK_ADVERTISEMENTS: &str = "
    select advertisement_id, version, heartbeat_owner, since_ms, expires_ms, join_seats, body is not null,
           deleted_until_ms, owner, create_digest
      from advertisement
     where advertisement_id = any($1)
     order by advertisement_id
       for update
";

/// Begins a transaction and takes advisory locks of owners and parties who publish or reserve. Without them, two servers
/// could count one owner at the same time, and each add a row. `lock_numbers` are in order, each once; all must fit the
/// database's lock table. Row locks are taken after these, never before.
pub(super) fn begin_with_owner_locks_sql(lock_numbers: &BTreeSet<u8>) -> String {
    let numbers: Vec<String> = lock_numbers.iter().map(u8::to_string).collect();
    // A text of two statements takes no parameters; numbers are safe in the text.
    format!(
        "begin; select pg_advisory_xact_lock({OWNER_LOCK_CLASS}, lock_number) from unnest('{{{}}}'::integer[]) as u (lock_number)",
        numbers.join(",")
    )
}

/// First number of the advisory locks of `begin_with_owner_locks_sql`: `ftow` in ASCII. All users of the database share the
/// numbers.
const OWNER_LOCK_CLASS: i32 = 0x6674_6f77;

/// Advertisements of the accounts whose owner keys are between `$1` and `$2`. Then the advertisements, without an owner,
/// that have a reservation that has not ended of an account between `$3` and `$4`, or of a party in `$5`. A separate
/// statement: it must see rows that were committed while the advisory locks were waited for.
pub(super) const FIND_ADVERTISEMENTS_OF_OWNERS_OR_RESERVERS: &str = "
    select a.advertisement_id, a.owner, a.expires_ms
      from unnest($1::uuid[], $2::uuid[]) as u (first_owner, last_owner)
      join advertisement a on a.owner >= u.first_owner and a.owner <= u.last_owner
     where a.body is not null
     union all
    select r.advertisement_id, null, null
      from unnest($3::uuid[], $4::uuid[]) as u (first_owner, last_owner)
      join reservation r on r.owner >= u.first_owner and r.owner <= u.last_owner
     where r.state <> 2
     union all
    select r.advertisement_id, null, null
      from reservation r
     where r.party = any($5)
       and r.state <> 2
";

/// Reservations with the ids in `$1`, reservations of the advertisements in `$2` that may take seats, and reservations of
/// the accounts between `$3` and `$4` and of the parties in `$5` that have not ended. A separate statement: it must see
/// rows that were committed while `LOCK_ADVERTISEMENTS` waited.
pub(super) const READ_TOUCHED_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from reservation
     where reservation_id = any($1)
     union
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from reservation
     where advertisement_id = any($2)
       and state <> 2   -- ended ones take no seats and can be numerous
     union
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from unnest($3::uuid[], $4::uuid[]) as u (first_owner, last_owner)
      join reservation on owner >= u.first_owner and owner <= u.last_owner
     where state <> 2
     union
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from reservation
     where party = any($5)
       and state <> 2
";

/// Reservations of advertisement `$1` that name the user `$2`: among the users, by an owner between `$3` and `$4`, or by the
/// party `$5`.
pub(super) const READ_RESERVATIONS_NAMING_USER: &str = "
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from reservation
     where advertisement_id = $1
       and (position($2::bytea in users) > 0 or owner between $3 and $4 or party = $5)
";

/// Fast path batch: publications, heartbeats, the change record and the notification in one statement that is its own
/// transaction.
///
/// Publishes the advertisements in `$2` to `$11`, new or existing; an existing one keeps its `since_ms`, `owner` and `create_digest`.
/// Extends the expiry of the advertisements in `$12` to `$13`, if they exist, and never shortens it. `$1` is the replica
/// id, `$14` the batch id, `$16` the owners and `$17` the digests of the requests that create them, `$18` the beacon vectors; `$15` says whether to notify. Returns the transaction id and, for the changed advertisements:
/// ids, start of advertising, versions before.
///
/// Arrays are unnested in the select list: in a `from` clause each is first copied to a temporary table, which costs
/// three times as much.
///
/// A batch with an id that has a tombstone, with a new advertisement that has an owner, or with one that another request created,
/// is rejected: its change record would have null ids, which the column does not allow. Then the statement fails with `NOT_NULL_VIOLATION` and nothing is written.
pub(super) const WRITE_FAST_PATH_BATCH: &str = "
    with published as (
        insert into advertisement as a (advertisement_id, version, heartbeat_owner, silo_id, set_id, kind, since_ms,
                                        expires_ms, join_seats, body, connect_data, ttl_ms, beacon_vector, owner, create_digest)
        select u.advertisement_id, (select pg_current_xact_id()::text::bigint), $1, u.silo_id, u.set_id, u.kind,
               u.since_ms, u.expires_ms, u.join_seats, u.body, u.connect_data, u.ttl_ms, u.beacon_vector, u.owner,
               u.create_digest
          from (select unnest($2::uuid[]) as advertisement_id, unnest($3::bigint[]) as silo_id,
                       unnest($4::bigint[]) as set_id, unnest($5::smallint[]) as kind, unnest($6::bigint[]) as since_ms,
                       unnest($7::bigint[]) as expires_ms, unnest($8::integer[]) as join_seats,
                       unnest($9::text[]) as body, unnest($10::bytea[]) as connect_data,
                       unnest($11::integer[]) as ttl_ms, unnest($16::uuid[]) as owner,
                       unnest($17::uuid[]) as create_digest, unnest($18::bytea[]) as beacon_vector) as u
            on conflict (advertisement_id) do update
           set version = excluded.version, heartbeat_owner = excluded.heartbeat_owner, silo_id = excluded.silo_id,
               set_id = excluded.set_id, kind = excluded.kind, expires_ms = excluded.expires_ms,
               join_seats = excluded.join_seats, body = excluded.body, connect_data = excluded.connect_data,
               ttl_ms = excluded.ttl_ms, beacon_vector = excluded.beacon_vector, version_before = a.version
         where a.deleted_until_ms is null
           and (excluded.create_digest is null or a.create_digest is null or a.create_digest = excluded.create_digest)
        returning advertisement_id, since_ms, version_before,
                  version_before = 0 and owner is not null as is_new_and_owned
    ), extended as (
        update advertisement a
           set version = (select pg_current_xact_id()::text::bigint), version_before = a.version,
               heartbeat_owner = $1, expires_ms = greatest(a.expires_ms, u.expires_ms)
          from (select unnest($12::uuid[]) as advertisement_id, unnest($13::bigint[]) as expires_ms) as u
         where a.advertisement_id = u.advertisement_id
           and a.body is not null
        returning a.advertisement_id, a.since_ms, a.version_before
    ), changed as (
        select array_agg(advertisement_id) as ids, array_agg(since_ms) as since_ms,
               array_agg(version_before) as versions_before
          from (select advertisement_id, since_ms, version_before from published
                 union all
                select * from extended) as all_changed
    ), recorded as (
        insert into advertisement_change (batch_id, version, replica, advertisement_ids)
        select $14, pg_current_xact_id()::text::bigint, $1,
               case when (select count(*) filter (where not is_new_and_owned) from published) = cardinality($2)
                    then ids end
          from changed
         where ids is not null or cardinality($2) > 0
        returning version
    )
    select recorded.version, changed.ids, changed.since_ms, changed.versions_before,
           case when $15 then pg_notify('fireteam_change', '')::text end
      from recorded, changed
";

/// Deletes the reservations of advertisements that are removed or made again.
pub(super) const DELETE_ADVERTISEMENT_RESERVATIONS: &str = "delete from reservation where advertisement_id = any($1)";

/// Deletes advertisement rows, including tombstones.
pub(super) const DELETE_ADVERTISEMENTS: &str = "delete from advertisement where advertisement_id = any($1)";

/// Turns advertisements into tombstones that end at the times in `$2`.
pub(super) const UPDATE_TO_TOMBSTONES: &str = "
    update advertisement a
       set body = null, connect_data = '', beacon_vector = null, deleted_until_ms = u.until_ms, owner = null, create_digest = null,
           version = pg_current_xact_id()::text::bigint
      from unnest($1::uuid[], $2::bigint[]) as u (advertisement_id, until_ms)
     where a.advertisement_id = u.advertisement_id
";

/// Inserts tombstones for ids without a row. Fewer rows than ids: another server inserted one first.
pub(super) const INSERT_TOMBSTONES: &str = "
    insert into advertisement (advertisement_id, version, heartbeat_owner, silo_id, set_id, kind, since_ms, expires_ms,
                               join_seats, body, connect_data, deleted_until_ms)
    select u.advertisement_id, pg_current_xact_id()::text::bigint, 0, 0, 0, 0, 0, 0, 0, null, '', u.until_ms
      from unnest($1::uuid[], $2::bigint[]) as u (advertisement_id, until_ms)
        on conflict (advertisement_id) do nothing
";

/// Updates advertisements that have a row. `$2` is the new heartbeat owner.
pub(super) const UPDATE_ADVERTISEMENTS: &str = "
    update advertisement a
       set version = pg_current_xact_id()::text::bigint, heartbeat_owner = $2, silo_id = u.silo_id, set_id = u.set_id,
           kind = u.kind, since_ms = u.since_ms, expires_ms = u.expires_ms, join_seats = u.join_seats, body = u.body,
           connect_data = u.connect_data, deleted_until_ms = u.deleted_until_ms, ttl_ms = u.ttl_ms, owner = u.owner,
           create_digest = u.create_digest, beacon_vector = u.beacon_vector
      from unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
                  $9::text[], $10::bytea[], $11::bigint[], $12::integer[], $13::uuid[], $14::uuid[],
                  $15::bytea[])
        as u (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data,
              deleted_until_ms, ttl_ms, owner, create_digest, beacon_vector)
     where a.advertisement_id = u.advertisement_id
";

/// Replaces what names users in advertisements from which a user was erased.
pub(super) const ERASE_USERS_FROM_ADVERTISEMENTS: &str = "
    update advertisement a
       set version = pg_current_xact_id()::text::bigint, body = u.body, owner = u.owner, create_digest = u.create_digest,
           beacon_vector = null
      from unnest($1::uuid[], $2::text[], $3::uuid[], $4::uuid[]) as u (advertisement_id, body, owner, create_digest)
     where a.advertisement_id = u.advertisement_id
";

/// Inserts advertisements. Fewer rows than ids: another server inserted one first.
pub(super) const INSERT_ADVERTISEMENTS: &str = "
    insert into advertisement (advertisement_id, version, heartbeat_owner, silo_id, set_id, kind, since_ms, expires_ms,
                               join_seats, body, connect_data, deleted_until_ms, ttl_ms, owner, create_digest,
                               beacon_vector)
    select u.advertisement_id, pg_current_xact_id()::text::bigint, $2, u.silo_id, u.set_id, u.kind, u.since_ms,
           u.expires_ms, u.join_seats, u.body, u.connect_data, u.deleted_until_ms, u.ttl_ms, u.owner, u.create_digest,
           u.beacon_vector
      from unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
                  $9::text[], $10::bytea[], $11::bigint[], $12::integer[], $13::uuid[], $14::uuid[],
                  $15::bytea[])
        as u (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data,
              deleted_until_ms, ttl_ms, owner, create_digest, beacon_vector)
        on conflict (advertisement_id) do nothing
";

/// Updates expiry, version and heartbeat owner after heartbeats and changes of reservations.
pub(super) const UPDATE_EXPIRY_AND_HEARTBEAT_OWNER: &str = "
    update advertisement a
       set version = pg_current_xact_id()::text::bigint, expires_ms = u.expires_ms, heartbeat_owner = u.heartbeat_owner
      from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u (advertisement_id, expires_ms, heartbeat_owner)
     where a.advertisement_id = u.advertisement_id
";

/// Inserts reservations. Fewer rows than ids: another server inserted one with the same id in another advertisement.
pub(super) const INSERT_RESERVATIONS: &str = "
    insert into reservation (reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner,
                             party, joined)
    select *
      from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::bytea[], $5::bytea[], $6::smallint[], $7::bigint[],
                  $8::uuid[], $9::uuid[], $10::boolean[])
        on conflict (reservation_id) do nothing
";

/// Updates the state and the seats of reservations; the other columns never change.
pub(super) const UPDATE_RESERVATIONS: &str = "
    update reservation r
       set state = u.state, deadline_ms = u.deadline_ms, seats = u.seats, users = u.users, joined = u.joined
      from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::integer[], $5::bytea[], $6::boolean[])
        as u (reservation_id, state, deadline_ms, seats, users, joined)
     where r.reservation_id = u.reservation_id
";

/// Replaces the columns of reservations from which a user was erased.
pub(super) const REWRITE_RESERVATIONS: &str = "
    update reservation r
       set state = u.state, deadline_ms = u.deadline_ms, seats = u.seats, users = u.users,
           request_digest = u.request_digest, owner = u.owner, party = u.party, joined = u.joined
      from unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::integer[], $5::bytea[], $6::bytea[], $7::uuid[],
                  $8::uuid[], $9::boolean[])
        as u (reservation_id, state, deadline_ms, seats, users, request_digest, owner, party, joined)
     where r.reservation_id = u.reservation_id
";

/// Records the ids changed by the batch `$1` of server `$2`, and notifies the others if `$4`. Returns the transaction
/// id.
pub(super) const INSERT_CHANGE: &str = "
    with recorded as (
        insert into advertisement_change (batch_id, version, replica, advertisement_ids)
        values ($1, pg_current_xact_id()::text::bigint, $2, $3)
        returning version
    )
    select version, case when $4 then pg_notify('fireteam_change', '')::text end
      from recorded
";

/// Notifies the other servers of a change that is committed.
pub(in crate::store::postgres) const NOTIFY_OF_CHANGES: &str = "select pg_notify('fireteam_change', '')::text";

/// Abandons the batch `$1`. No inserted row means that it was committed. Waits while the batch's transaction is
/// running.
pub(in crate::store::postgres) const ABANDON_BATCH: &str = "
    insert into advertisement_change (batch_id, version, replica, advertisement_ids)
    values ($1, pg_current_xact_id()::text::bigint, $2, '{}')
        on conflict (batch_id) do nothing
";

/// The result of `WRITE_FAST_PATH_BATCH` for the committed batch `$1`.
pub(super) const READ_FAST_PATH_RESULT: &str = "
    select c.version, array_agg(u.advertisement_id), array_agg(coalesce(a.since_ms, 0)),
           array_agg(case when a.version = c.version then a.version_before else -1 end)
      from advertisement_change c
     cross join unnest(c.advertisement_ids) as u (advertisement_id)
      left join advertisement a on a.advertisement_id = u.advertisement_id
     where c.batch_id = $1
     group by c.version
";

/// Oldest running transaction, clock, and at most `$4` changes from transaction `$1` on, without those in `$2`. Only
/// changes of other servers than `$3`, or of the batches `$5`. Then the current rows of the changed ids and of the ids
/// in `$6`, in the silos `$7`, null for all. One statement, so that all rows are of one snapshot.
///
/// The first row has the oldest transaction, the clock and the transaction ids of the changes; then a null and the
/// number of changes of an unknown kind. Every other row begins with three nulls and an id, followed by nulls if there
/// is no advertisement. There is one row per reservation, or one row without any.
pub(super) const READ_CHANGES_WITH_CURRENT_ROWS: &str = "
    with new_changes as materialized (
        select version, kind, advertisement_ids
          from advertisement_change
         where version >= $1 and version <> all($2) and (replica <> $3 or batch_id = any($5))
         order by version
         limit $4
    ), requested as (
        select unnest(advertisement_ids) as advertisement_id from new_changes
         union
        select unnest($6::uuid[])
    )
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint,
           (select array_agg(version) from new_changes),
           null::uuid, (select count(*) from new_changes where kind <> 0), null::bigint, null::bigint, null::bigint,
           null::smallint, null::bigint, null::bigint, null::integer, null::text, null::bytea, null::integer,
           null::bytea, null::uuid, null::uuid, null::integer, null::bytea, null::bytea, null::smallint, null::bigint, null::uuid,
           null::uuid, null::boolean
     union all
    select null, null, null,
           requested.advertisement_id, a.version, a.heartbeat_owner, a.silo_id, a.set_id, a.kind, a.since_ms,
           a.expires_ms, a.join_seats, a.body, a.connect_data, a.ttl_ms, a.beacon_vector,
           r.reservation_id, r.advertisement_id, r.seats, r.users, r.request_digest, r.state, r.deadline_ms, r.owner,
           r.party, r.joined
      from requested
      left join advertisement a on a.advertisement_id = requested.advertisement_id
                               and a.body is not null
                               and ($7::bigint[] is null or a.silo_id = any($7))
      left join reservation r on r.advertisement_id = a.advertisement_id
";

/// COPY statement for all advertisements, in no order. It returns the rows of a select without its protocol cost per
/// row, which equals the cost of decoding. `silos` limits the rows; a copy takes no parameters, and numbers are safe in
/// the text.
pub(super) fn copy_advertisements_out_sql(silos: Option<&[i64]>) -> String {
    let silo_filter = silos.map(|silos| {
        let silos: Vec<String> = silos.iter().map(i64::to_string).collect();
        format!(" and silo_id = any('{{{}}}'::bigint[])", silos.join(","))
    });
    format!(
        "copy (select advertisement_id, version, heartbeat_owner, silo_id, set_id, kind, since_ms, expires_ms, \
         join_seats, body, connect_data, ttl_ms, beacon_vector from advertisement where body is not null{}) to stdout with (format binary)",
        silo_filter.unwrap_or_default()
    )
}

/// All reservations.
pub(super) const LOAD_ALL_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, owner, party,
           joined
      from reservation
";

/// Advertisements in the silos `$1` with the ids in `$2`, and their reservations, in id order. One statement, so that
/// all rows are of one snapshot; one row per reservation, or one without any.
pub(super) const READ_ADVERTISEMENTS_WITH_IDS: &str = "
    select a.advertisement_id, a.version, a.heartbeat_owner, a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms,
           a.join_seats, a.body, a.connect_data, a.ttl_ms, a.beacon_vector, r.reservation_id, r.advertisement_id, r.seats,
           r.users, r.request_digest, r.state, r.deadline_ms, r.owner, r.party,
           r.joined
      from advertisement a
      left join reservation r on r.advertisement_id = a.advertisement_id
     where a.advertisement_id = any($2)
       and a.body is not null
       and ($1::bigint[] is null or a.silo_id = any($1))
     order by a.advertisement_id, r.reservation_id
";

/// At most `$3` ids of advertisements in the silos `$1`, from `$2` on.
pub(super) const LIST_ADVERTISEMENT_IDS: &str = "
    select advertisement_id
      from advertisement
     where advertisement_id >= $2
       and body is not null
       and ($1::bigint[] is null or silo_id = any($1))
     order by advertisement_id
     limit $3
";

/// At most 1,000 ids of advertisements that have expired by `$1`, without those in `$2`.
pub(super) const LIST_EXPIRED_IDS: &str = "
    select advertisement_id
      from advertisement
     where body is not null and expires_ms <= $1 and advertisement_id <> all($2)
     limit 1000
";

/// Purges at most 1,000 ended reservations that are due; skips rows that another server has locked.
pub(super) const PURGE_ENDED_RESERVATIONS: &str = "
    delete from reservation
     where reservation_id in (select reservation_id from reservation where state = 2 and deadline_ms <= $1 limit 1000
                                 for update skip locked)
";

/// Clears at most 1,000 ended tombstones of ids that are in use again.
pub(super) const CLEAR_ENDED_TOMBSTONES_OF_REUSED_IDS: &str = "
    update advertisement
       set deleted_until_ms = null
     where advertisement_id in (select advertisement_id from advertisement
                                 where deleted_until_ms <= $1 and body is not null limit 1000 for update skip locked)
";

/// Purges at most 1,000 ended tombstones.
pub(super) const PURGE_TOMBSTONES: &str = "
    delete from advertisement
     where advertisement_id in (select advertisement_id from advertisement
                                 where deleted_until_ms <= $1 and body is null limit 1000 for update skip locked)
";

/// Purges at most 1,000 changes that every server has read, or replaces by a snapshot; see `cursor.rs`.
pub(super) const PURGE_CHANGES: &str = "
    delete from advertisement_change
     where batch_id in (select batch_id from advertisement_change
                         where committed_at < clock_timestamp() - interval '10 minutes' limit 1000
                           for update skip locked)
";

/// Statements that purge rows that are due at a given time.
pub(super) const PURGE_DUE_ROWS: [&str; 3] =
    [PURGE_ENDED_RESERVATIONS, CLEAR_ENDED_TOMBSTONES_OF_REUSED_IDS, PURGE_TOMBSTONES];
