//! Every statement that the Postgres store makes. Many rows go in as arrays, one for each column: one statement and one
//! plan, whatever their number.

/// The database's clock, milliseconds since the Unix epoch.
pub(super) const READ_DATABASE_TIME: &str = "select (extract(epoch from clock_timestamp()) * 1000)::bigint";

/// Locks the rows of the ids in `$1` and reads what changes ask about. In the order of ids, so that two batches that want
/// the same rows wait for each other rather than each other's.
pub(super) const LOCK_ADVERTISEMENTS: &str = "
    select advertisement_id, version, holder, since_ms, expires_ms, join_seats, body is not null, deleted_until_ms
      from advertisement
     where advertisement_id = any($1)
     order by advertisement_id
       for update
";

/// The reservations of the ids in `$1`, and those of the advertisements in `$2` that may take seats. A statement of its
/// own: it must see what was committed while `LOCK` waited.
pub(super) const READ_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, payload, state, until_ms
      from reservation
     where reservation_id = any($1)
     union
    select reservation_id, advertisement_id, seats, users, payload, state, until_ms
      from reservation
     where advertisement_id = any($2)
       and state < 2   -- those that ended take no seats, and may be many
";

/// A whole batch of publications and heartbeats, the note of it and the bell included, that is its own transaction.
/// Publishes what is in `$2` and after, whether something is there or not; what is there keeps its since. Keeps alive what
/// is in `$11` until `$12`, if it is there, and not shortened. `$1` is who holds them now; `$13` the batch's name, and the
/// bell is rung if `$14`. Answers the transaction's number, and what it changed: ids, since when, the versions before.
///
/// Arrays are taken apart where columns are selected: in a `from` each is first copied to a table of its own, which costs
/// three times as much.
///
/// A name that was ever deleted is not decided here: then the note has no ids, which its column does not allow, and nothing
/// of all this happens (`WAS_DELETED`).
pub(super) const WRITE_FAST_PATH_BATCH: &str = "
    with put as (
        insert into advertisement as a (advertisement_id, version, holder, silo_id, set_id, kind, since_ms, expires_ms,
                                        join_seats, body, connect_data)
        select u.advertisement_id, (select pg_current_xact_id()::text::bigint), $1, u.silo_id, u.set_id, u.kind,
               u.since_ms, u.expires_ms, u.join_seats, u.body, u.connect_data
          from (select unnest($2::uuid[]) as advertisement_id, unnest($3::bigint[]) as silo_id,
                       unnest($4::bigint[]) as set_id, unnest($5::smallint[]) as kind, unnest($6::bigint[]) as since_ms,
                       unnest($7::bigint[]) as expires_ms, unnest($8::integer[]) as join_seats,
                       unnest($9::text[]) as body, unnest($10::bytea[]) as connect_data) as u
            on conflict (advertisement_id) do update
           set version = excluded.version, holder = excluded.holder, silo_id = excluded.silo_id,
               set_id = excluded.set_id, kind = excluded.kind, expires_ms = excluded.expires_ms,
               join_seats = excluded.join_seats, body = excluded.body, connect_data = excluded.connect_data,
               version_before = a.version
         where a.deleted_until_ms is null
        returning advertisement_id, since_ms, version_before
    ), extended as (
        update advertisement a
           set version = (select pg_current_xact_id()::text::bigint), version_before = a.version, holder = $1,
               expires_ms = greatest(a.expires_ms, u.expires_ms)
          from (select unnest($11::uuid[]) as advertisement_id, unnest($12::bigint[]) as expires_ms) as u
         where a.advertisement_id = u.advertisement_id
           and a.body is not null
        returning a.advertisement_id, a.since_ms, a.version_before
    ), done as (
        select array_agg(advertisement_id) as ids, array_agg(since_ms) as since_ms,
               array_agg(version_before) as versions_before
          from (select * from put union all select * from extended) as both_kinds
    ), noted as (
        insert into change (batch_id, version, replica, advertisement_ids)
        select $13, pg_current_xact_id()::text::bigint, $1,
               case when (select count(*) from put) = cardinality($2) then ids end
          from done
         where ids is not null or 0 < cardinality($2)
        returning version
    )
    select noted.version, done.ids, done.since_ms, done.versions_before,
           case when $14 then pg_notify('fireteam_change', '')::text end
      from noted, done
";

/// How the database says that a note had no ids: not_null_violation.
pub(super) const NOT_NULL_VIOLATION: &str = "23502";

/// Takes away the reservations of advertisements that go, or are made anew.
pub(super) const DELETE_RESERVATIONS: &str = "delete from reservation where advertisement_id = any($1)";

/// Removes advertisements, names and all.
pub(super) const DELETE_ADVERTISEMENTS: &str = "delete from advertisement where advertisement_id = any($1)";

/// Leaves only the names of advertisements, until the moments in `$2`.
pub(super) const UPDATE_TO_TOMBSTONES: &str = "
    update advertisement a
       set body = null, connect_data = '', deleted_until_ms = u.until_ms,
           version = pg_current_xact_id()::text::bigint
      from unnest($1::uuid[], $2::bigint[]) as u (advertisement_id, until_ms)
     where a.advertisement_id = u.advertisement_id
";

/// Names that nothing was known about. Fewer rows than ids: another server was quicker.
pub(super) const INSERT_TOMBSTONES: &str = "
    insert into advertisement (advertisement_id, version, holder, silo_id, set_id, kind, since_ms, expires_ms, join_seats,
                               body, connect_data, deleted_until_ms)
    select u.advertisement_id, pg_current_xact_id()::text::bigint, 0, 0, 0, 0, 0, 0, 0, null, '', u.until_ms
      from unnest($1::uuid[], $2::bigint[]) as u (advertisement_id, until_ms)
        on conflict (advertisement_id) do nothing
";

/// Publishes under names that are there. `$2` is who holds them now.
pub(super) const UPDATE_ADVERTISEMENTS: &str = "
    update advertisement a
       set version = pg_current_xact_id()::text::bigint, holder = $2, silo_id = u.silo_id, set_id = u.set_id,
           kind = u.kind, since_ms = u.since_ms, expires_ms = u.expires_ms, join_seats = u.join_seats, body = u.body,
           connect_data = u.connect_data, deleted_until_ms = u.deleted_until_ms
      from unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
                  $9::text[], $10::bytea[], $11::bigint[])
        as u (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data,
              deleted_until_ms)
     where a.advertisement_id = u.advertisement_id
";

/// Publishes under new names. Fewer rows than ids: another server was quicker.
pub(super) const INSERT_ADVERTISEMENTS: &str = "
    insert into advertisement (advertisement_id, version, holder, silo_id, set_id, kind, since_ms, expires_ms, join_seats,
                               body, connect_data, deleted_until_ms)
    select u.advertisement_id, pg_current_xact_id()::text::bigint, $2, u.silo_id, u.set_id, u.kind, u.since_ms,
           u.expires_ms, u.join_seats, u.body, u.connect_data, u.deleted_until_ms
      from unnest($1::uuid[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::integer[],
                  $9::text[], $10::bytea[], $11::bigint[])
        as u (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data,
              deleted_until_ms)
        on conflict (advertisement_id) do nothing
";

/// Notes heartbeats, and that seats have changed: a new version and expiry, and a new holder where there is one.
pub(super) const UPDATE_EXPIRY: &str = "
    update advertisement a
       set version = pg_current_xact_id()::text::bigint, expires_ms = u.expires_ms, holder = u.holder
      from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as u (advertisement_id, expires_ms, holder)
     where a.advertisement_id = u.advertisement_id
";

/// Takes seats. Fewer rows than ids: another server was quicker with one of the same name elsewhere.
pub(super) const INSERT_RESERVATIONS: &str = "
    insert into reservation (reservation_id, advertisement_id, seats, users, payload, state, until_ms)
    select *
      from unnest($1::uuid[], $2::uuid[], $3::integer[], $4::bytea[], $5::bytea[], $6::smallint[], $7::bigint[])
        on conflict (reservation_id) do nothing
";

/// Changes how reservations stand: nothing else about one ever changes.
pub(super) const UPDATE_RESERVATIONS: &str = "
    update reservation r
       set state = u.state, until_ms = u.until_ms
      from unnest($1::uuid[], $2::smallint[], $3::bigint[]) as u (reservation_id, state, until_ms)
     where r.reservation_id = u.reservation_id
";

/// Notes what the batch `$1` of server `$2` has touched, and rings the bell if `$4`. Answers the transaction's number.
pub(super) const INSERT_CHANGE: &str = "
    with noted as (
        insert into change (batch_id, version, replica, advertisement_ids)
        values ($1, pg_current_xact_id()::text::bigint, $2, $3)
        returning version
    )
    select version, case when $4 then pg_notify('fireteam_change', '')::text end
      from noted
";

/// Gives the batch `$1` up. No row: it has been committed. Waits for it while nobody knows.
pub(super) const ABANDON_BATCH: &str = "
    insert into change (batch_id, version, replica, advertisement_ids)
    values ($1, pg_current_xact_id()::text::bigint, $2, '{}')
        on conflict (batch_id) do nothing
";

/// What `WRITE_PLAIN` has answered, of the batch `$1` that is committed.
pub(super) const READ_COMMITTED_BATCH: &str = "
    select c.version, array_agg(u.advertisement_id), array_agg(coalesce(a.since_ms, 0)),
           array_agg(case when a.version = c.version then a.version_before else -1 end)
      from change c
     cross join unnest(c.advertisement_ids) as u (advertisement_id)
      left join advertisement a on a.advertisement_id = u.advertisement_id
     where c.batch_id = $1
     group by c.version
";

/// How far every reader may take everything before to be settled, and the database's clock.
pub(super) const READ_OLDEST_TRANSACTION: &str = "
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint
";

/// The same, of at most `$4` changes from `$1` on that are not in `$2`, made by other servers than `$3` or by the batches
/// `$5`; then everything that they name, and the ids in `$6`, as it now is in the silos `$7`, null for all: one statement,
/// so that all is of one moment. The first row is the mark, the clock and the changes' numbers; each other begins with three
/// nulls and an id, and goes on with nulls if nothing is advertised under it; one row for each reservation, or one.
pub(super) const READ_CHANGES: &str = "
    with fresh as materialized (
        select version, advertisement_ids
          from change
         where $1 <= version and version <> all($2) and (replica <> $3 or batch_id = any($5))
         order by version
         limit $4
    ), asked as (
        select unnest(advertisement_ids) as advertisement_id from fresh
         union
        select unnest($6::uuid[])
    )
    select pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           (extract(epoch from clock_timestamp()) * 1000)::bigint,
           (select array_agg(version) from fresh),
           null::uuid, null::bigint, null::bigint, null::bigint, null::bigint, null::smallint, null::bigint, null::bigint,
           null::integer, null::text, null::bytea,
           null::uuid, null::uuid, null::integer, null::bytea, null::bytea, null::smallint, null::bigint
     union all
    select null, null, null,
           asked.advertisement_id, a.version, a.holder, a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms,
           a.join_seats, a.body, a.connect_data,
           r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms
      from asked
      left join advertisement a on a.advertisement_id = asked.advertisement_id
                               and a.body is not null
                               and ($7::bigint[] is null or a.silo_id = any($7))
      left join reservation r on r.advertisement_id = a.advertisement_id
";

/// Everything that is advertised, in no order, as the database copies it: a select's rows without a select's questions,
/// which cost as much as reading them. `silos` are the only ones wanted; a copy takes no parameters, and numbers hurt
/// nobody.
pub(super) fn copy_advertisements_sql(silos: Option<&[i64]>) -> String {
    let wanted = silos.map(|silos| {
        let silos: Vec<String> = silos.iter().map(i64::to_string).collect();
        format!(" and silo_id = any('{{{}}}'::bigint[])", silos.join(","))
    });
    format!(
        "copy (select advertisement_id, version, holder, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, \
         connect_data from advertisement where body is not null{}) to stdout with (format binary)",
        wanted.unwrap_or_default()
    )
}

/// All seats.
pub(super) const LOAD_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, payload, state, until_ms
      from reservation
";

/// What is advertised in the silos `$1` under the ids in `$2`, and the seats in it: one statement, so that both are of one
/// moment; a row for each reservation, or one, in the order of ids.
pub(super) const READ_ADVERTISEMENTS: &str = "
    select a.advertisement_id, a.version, a.holder, a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms, a.join_seats,
           a.body, a.connect_data, r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms
      from advertisement a
      left join reservation r on r.advertisement_id = a.advertisement_id
     where a.advertisement_id = any($2)
       and a.body is not null
       and ($1::bigint[] is null or a.silo_id = any($1))
     order by a.advertisement_id, r.reservation_id
";

/// The first `$3` names of what is advertised in the silos `$1`, from `$2` on.
pub(super) const LIST_ADVERTISEMENT_IDS: &str = "
    select advertisement_id
      from advertisement
     where $2 <= advertisement_id
       and body is not null
       and ($1::bigint[] is null or silo_id = any($1))
     order by advertisement_id
     limit $3
";

/// Names of what has expired, for a start.
pub(super) const LIST_EXPIRED_IDS: &str = "
    select advertisement_id
      from advertisement
     where body is not null and expires_ms <= $1
     limit 1000
";

/// A thousand ended reservations that are due; those that another server is at are left to it.
pub(super) const PURGE_RESERVATIONS: &str = "
    delete from reservation
     where reservation_id in (select reservation_id from reservation where state = 2 and until_ms <= $1 limit 1000
                                 for update skip locked)
";

/// A thousand deletions that are due, of names that are in use again.
pub(super) const CLEAR_EXPIRED_DELETIONS: &str = "
    update advertisement
       set deleted_until_ms = null
     where advertisement_id in (select advertisement_id from advertisement
                                 where deleted_until_ms <= $1 and body is not null limit 1000 for update skip locked)
";

/// A thousand names that are due.
pub(super) const PURGE_TOMBSTONES: &str = "
    delete from advertisement
     where advertisement_id in (select advertisement_id from advertisement
                                 where deleted_until_ms <= $1 and body is null limit 1000 for update skip locked)
";

/// A thousand changes that every server has read, or will not miss: `feed.rs` says why.
pub(super) const PURGE_CHANGES: &str = "
    delete from change
     where batch_id in (select batch_id from change where made_at < clock_timestamp() - interval '10 minutes' limit 1000
                           for update skip locked)
";
