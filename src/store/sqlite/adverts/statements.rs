//! SQL statements of the SQLite store for advertisements.
//!
//! A statement per row costs ten times as much as one for many rows, because each statement goes to another thread and
//! back. Rows are passed as `values` lists; a JSON array read by `json_each` took 1.5 times as long. Ids to look up are
//! passed as one JSON array of hexadecimal texts: one bind for any number. Consecutive statements without a decision in
//! between are one text.

use crate::store::sqlite::connection::sql_script::MultiRowTemplate;

/// Whether there are more advertisements than `$1`.
pub(super) const HAS_MORE_ADVERTISEMENTS_THAN: &str = "select exists (select 1 from advertisement limit 1 offset $1)";

/// `n` of the last advertisement of the page after `n = $1`; null if there are no more.
pub(super) const LOAD_PAGE_END: &str =
    "select max(n) from (select n from advertisement where n > $1 order by n limit 1000)";

/// Advertisements and their heartbeats, packed into one row; see `page_decode.rs`.
macro_rules! select_page {
    ($source:literal) => {
        concat!(
            "
    select group_concat(concat_ws(' ', a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms, a.join_seats,
                                  coalesce(a.ttl_ms, 0), octet_length(a.body), length(a.connect_data),
                                  coalesce(length(a.beacon_vector), 0), a.checksum,
                                  h.expires_ms), x'0a'),
           group_concat(hex(a.advertisement_id), ''),
           group_concat(a.body, ''),
           group_concat(hex(a.connect_data), ''),
           group_concat(hex(a.beacon_vector), '')",
            $source
        )
    };
}

/// Page of the advertisements with `n` above `$1`, up to `$2`.
pub(super) const LOAD_PAGE: &str = select_page!(
    "
      from advertisement a
      left join heartbeat h on h.n = a.n
     where a.n > $1 and a.n <= $2
"
);

/// Page of the advertisements in `$1`, a JSON array of ids; nulls if none exists.
pub(super) const READ_ADVERTISEMENTS_WITH_IDS: &str = select_page!(
    "
      from json_each($1) requested
      join advertisement a on a.advertisement_id = unhex(requested.value)
      left join heartbeat h on h.n = a.n
"
);

/// Reservations in those advertisements, in id order.
pub(super) const READ_RESERVATIONS_OF_ADVERTISEMENTS: &str = "
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.request_digest, r.state, r.deadline_ms, r.checksum,
           r.owner, r.party, r.joined
      from json_each($1) requested
      join reservation r on r.advertisement_id = unhex(requested.value)
     order by r.reservation_id
";

/// At most `$2` advertisement ids from `$1` on.
pub(super) const LIST_ADVERTISEMENT_IDS: &str =
    "select advertisement_id from advertisement where advertisement_id >= $1 order by advertisement_id limit $2";

/// All reservations, in id order.
pub(super) const LOAD_ALL_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms, checksum, owner, party,
           joined
      from reservation
     order by reservation_id
";

/// Columns of `reservation r` that `rows::decode_reservation` reads.
macro_rules! select_reservations {
    ($source:literal) => {
        concat!(
            "
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.request_digest, r.state, r.deadline_ms, r.checksum,
           r.owner, r.party, r.joined",
            $source
        )
    };
}

/// Begins a transaction and reads all rows that writes depend on, in one text. `immediate` takes the write lock now. A
/// transaction that reads first could fail to get the lock later.
///
/// The first result row has the advertisements and tombstones for `$1`, a JSON array of ids. It is one JSON array of
/// arrays, because passing a row costs more than finding it; each inner array begins with the index of the id. Then
/// follow the reservations in `$2`, also a JSON array, and the reservations of the advertisements in `$3` that may take
/// seats.
macro_rules! begin_and_read {
    () => {
        concat!(
            "
    begin immediate;
    with requested (key_index, id) as materialized (select key, unhex(value) from json_each($1))
    select json_group_array(json_array(q.key_index, a.n, a.since_ms, a.expires_ms, a.join_seats, h.expires_ms,
                                       t.until_ms))
      from requested q
      left join advertisement a on a.advertisement_id = q.id
      left join heartbeat h on h.n = a.n
      left join tombstone t on t.advertisement_id = q.id
     where a.n is not null or t.until_ms is not null;",
            select_reservations!(
                "
      from json_each($2) requested
      join reservation r on r.reservation_id = unhex(requested.value)
     union all"
            ),
            select_reservations!(
                "
      from json_each($3) requested
      join reservation r on r.advertisement_id = unhex(requested.value)
     where r.state <> 2   -- ended ones take no seats and can be numerous
"
            )
        )
    };
}

/// See the macro.
pub(super) const BEGIN_WRITE_AND_READ_ADVERTS: &str = begin_and_read!();

/// The same, and the reservations that have not ended of the accounts in `$4`, a JSON array of their first owner keys,
/// and of the parties in `$5`. `cross join` keeps the order: few keys, each with its rows.
pub(super) const BEGIN_WRITE_AND_READ_ADVERTS_WITH_OWNED_RESERVATIONS: &str = concat!(
    begin_and_read!(),
    "
     union all",
    select_reservations!(
        "
      from json_each($4) requested
     cross join reservation r on r.owner >= unhex(requested.value)
                             and r.owner <= unhex(substr(requested.value, 1, 24) || 'ffffffff')
     where r.state <> 2
     union all"
    ),
    select_reservations!(
        "
      from json_each($5) requested
     cross join reservation r on r.party = unhex(requested.value)
     where r.state <> 2
"
    )
);

/// Advertisements of the accounts in `$1`, a JSON array of their first owner keys. One JSON array of arrays; each has the
/// columns of `BEGIN_WRITE_AND_READ_ADVERTS` with zero as index, and then the id and the owner as hexadecimal digits.
pub(super) const READ_OWNED_ADVERTISEMENTS: &str = "
    select json_group_array(json_array(json_array(0, a.n, a.since_ms, a.expires_ms, a.join_seats, h.expires_ms,
                                                  t.until_ms), hex(a.advertisement_id), hex(a.owner)))
      from json_each($1) requested
     cross join advertisement a on a.owner >= unhex(requested.value)
                               and a.owner <= unhex(substr(requested.value, 1, 24) || 'ffffffff')
      left join heartbeat h on h.n = a.n
      left join tombstone t on t.advertisement_id = a.advertisement_id
";

/// Reservations of advertisement `$1` that name the user `$2`: among the users, by an owner between `$3` and `$4`, or by the
/// party `$5`.
pub(super) const READ_RESERVATIONS_NAMING_USER: &str = select_reservations!(
    "
      from reservation r
     where r.advertisement_id = $1
       and (instr(r.users, $2) > 0 or r.owner between $3 and $4 or r.party = $5)
"
);

/// Purges at most 1,000 tombstones that are due.
pub(super) const PURGE_TOMBSTONES: &str = "
    delete from tombstone
     where advertisement_id in (select advertisement_id from tombstone where until_ms <= $1 limit 1000)
";

/// Purges at most 1,000 ended reservations that are due.
pub(super) const PURGE_ENDED_RESERVATIONS: &str = "
    delete from reservation
     where reservation_id in (select reservation_id from reservation where state = 2 and deadline_ms <= $1 limit 1000)
";

/// Statements that purge rows that are due.
pub(super) const PURGE_DUE_ROWS: [&str; 2] = [PURGE_TOMBSTONES, PURGE_ENDED_RESERVATIONS];

/// Publishes advertisements: inserts a row if `n` is null, otherwise updates the row `n` except `advertisement_id`,
/// `since_ms`, `owner` and `create_digest`. Lookup by `n` is faster than by id. The conflict clause has no target, because a padded new row
/// conflicts on its id.
pub(super) const UPSERT_ADVERTISEMENTS: MultiRowTemplate = MultiRowTemplate {
    head: "
    insert into advertisement (n, advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, ttl_ms,
                               beacon_vector, body, connect_data, checksum, owner, create_digest)
    values ",
    row_placeholders: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict do update
       set silo_id = excluded.silo_id, set_id = excluded.set_id, kind = excluded.kind,
           expires_ms = excluded.expires_ms, join_seats = excluded.join_seats, ttl_ms = excluded.ttl_ms,
           beacon_vector = excluded.beacon_vector, body = excluded.body, connect_data = excluded.connect_data, checksum = excluded.checksum",
    always_pads: false,
};

/// Digests of the requests that created the advertisements in `$1`, a JSON array of ids. Most have none.
pub(super) const READ_CREATE_DIGESTS: &str = "
    select a.advertisement_id, a.create_digest
      from json_each($1) requested
      join advertisement a on a.advertisement_id = unhex(requested.value)
     where a.create_digest is not null
";

/// Replaces the digest of the request that created an advertisement, `$1`, by `$2` if it has one.
pub(super) const REPLACE_CREATE_DIGEST: MultiRowTemplate = MultiRowTemplate {
    head: "
    with replaced (advertisement_id, create_digest) as (values ",
    row_placeholders: "(?, ?)",
    tail: ")
    update advertisement as a set create_digest = replaced.create_digest
      from replaced
     where a.advertisement_id = replaced.advertisement_id
       and a.create_digest is not null",
    always_pads: true,
};

/// Deletes advertisements; their heartbeats and reservations are deleted by cascade.
pub(super) const DELETE_ADVERTISEMENTS: MultiRowTemplate = MultiRowTemplate {
    head: "delete from advertisement where advertisement_id in (",
    row_placeholders: "?",
    tail: ")",
    always_pads: true,
};

/// Stores heartbeats.
pub(super) const UPSERT_HEARTBEATS: MultiRowTemplate = MultiRowTemplate {
    head: "insert into heartbeat (n, expires_ms) values ",
    row_placeholders: "(?, ?)",
    tail: " on conflict (n) do update set expires_ms = excluded.expires_ms",
    always_pads: true,
};

/// Deletes heartbeats of advertisements that are published again.
pub(super) const DELETE_HEARTBEATS: MultiRowTemplate = MultiRowTemplate {
    head: "delete from heartbeat where n in (",
    row_placeholders: "?",
    tail: ")",
    always_pads: true,
};

/// Inserts reservations, or updates their state and seats; the other columns never change.
pub(super) const UPSERT_RESERVATIONS: MultiRowTemplate = MultiRowTemplate {
    head: "
    insert into reservation (reservation_id, advertisement_id, seats, users, request_digest, state, deadline_ms,
                             checksum, owner, party, joined)
    values ",
    row_placeholders: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict (reservation_id) do update
       set seats = excluded.seats, users = excluded.users, state = excluded.state, deadline_ms = excluded.deadline_ms,
           checksum = excluded.checksum, joined = excluded.joined",
    always_pads: false,
};

/// Replaces all columns of reservations from which a user was erased.
pub(super) const REWRITE_RESERVATIONS: MultiRowTemplate = MultiRowTemplate {
    head: UPSERT_RESERVATIONS.head,
    row_placeholders: UPSERT_RESERVATIONS.row_placeholders,
    tail: "
        on conflict (reservation_id) do update
       set seats = excluded.seats, users = excluded.users, request_digest = excluded.request_digest,
           state = excluded.state, deadline_ms = excluded.deadline_ms, checksum = excluded.checksum,
           owner = excluded.owner, party = excluded.party, joined = excluded.joined",
    always_pads: false,
};

/// Stores tombstones.
pub(super) const UPSERT_TOMBSTONES: MultiRowTemplate = MultiRowTemplate {
    head: "insert into tombstone (advertisement_id, until_ms) values ",
    row_placeholders: "(?, ?)",
    tail: " on conflict (advertisement_id) do update set until_ms = excluded.until_ms",
    always_pads: true,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::connection::statements::{CHECKPOINT_WAL, COMMIT_AND_MEASURE_WAL};
    use crate::store::sqlite::tests::prepare_statements;

    #[tokio::test]
    async fn sqlite_advert_statements_all_prepare() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
        let single = [
            HAS_MORE_ADVERTISEMENTS_THAN,
            LOAD_PAGE_END,
            LOAD_PAGE,
            LOAD_ALL_RESERVATIONS,
            READ_ADVERTISEMENTS_WITH_IDS,
            READ_RESERVATIONS_OF_ADVERTISEMENTS,
            LIST_ADVERTISEMENT_IDS,
            COMMIT_AND_MEASURE_WAL,
            CHECKPOINT_WAL,
            PURGE_TOMBSTONES,
            PURGE_ENDED_RESERVATIONS,
            READ_OWNED_ADVERTISEMENTS,
            READ_RESERVATIONS_NAMING_USER,
            READ_CREATE_DIGESTS,
        ];
        let multi_row = [
            UPSERT_ADVERTISEMENTS,
            DELETE_ADVERTISEMENTS,
            REPLACE_CREATE_DIGEST,
            UPSERT_HEARTBEATS,
            DELETE_HEARTBEATS,
            UPSERT_RESERVATIONS,
            REWRITE_RESERVATIONS,
            UPSERT_TOMBSTONES,
        ];
        prepare_statements(&store, &single, &multi_row).await;
        // Executed in sequence: the second and third statement prepare only after the ones before have run.
        let mut guard = store.connection_for_test().await;
        let connection = guard.as_mut().unwrap();
        sqlx::query(BEGIN_WRITE_AND_READ_ADVERTS)
            .bind("[]")
            .bind("[]")
            .bind("[]")
            .execute(&mut *connection)
            .await
            .unwrap();
        sqlx::query(COMMIT_AND_MEASURE_WAL).execute(&mut *connection).await.unwrap();
        let owned = sqlx::query(BEGIN_WRITE_AND_READ_ADVERTS_WITH_OWNED_RESERVATIONS)
            .bind("[]")
            .bind("[]")
            .bind("[]")
            .bind("[]")
            .bind("[]");
        owned.execute(&mut *connection).await.unwrap();
        sqlx::query(COMMIT_AND_MEASURE_WAL).execute(&mut *connection).await.unwrap();
    }
}
