//! Every statement that the SQLite store makes, and how one of them writes a thousand rows.
//!
//! One statement a row costs ten times as much as one for many: each is handed to a thread and back (PERFORMANCE.md
//! 2f). Rows go in as `values` lists; a JSON array read by `json_each` took 1.5 times as long. Names to be looked up
//! come as one JSON array of hexadecimal texts: one bind, whatever their number.

use sqlx::sqlite::{SqliteArguments, SqliteConnection};
use sqlx::{Arguments, AssertSqlSafe};

/// The next advertisements after number `$1`, as published, and their leases.
pub(super) const LOAD_ADVERTISEMENTS: &str = "
    select a.advertisement_id, a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms, a.join_seats, a.body,
           a.connect_data, a.checksum, l.expires_ms, a.n
      from advertisement a
      left join lease l on l.n = a.n
     where $1 < a.n
     order by a.n
     limit 1000
";

/// Reservations of every state, in the order of ids.
pub(super) const LOAD_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, payload, state, until_ms, checksum
      from reservation
     order by reservation_id
";

/// What changes ask about the advertisements, there or deleted, in a JSON array of ids: one JSON array of arrays that
/// begin with the place of the id. One row, since handing over a row costs more than finding it.
pub(super) const READ_ADVERTISEMENTS: &str = "
    select json_group_array(json_array(wanted.key, a.n, a.since_ms, a.expires_ms, a.join_seats, l.expires_ms, t.until_ms))
      from json_each($1) wanted
      left join advertisement a on a.advertisement_id = unhex(wanted.value)
      left join lease l on l.n = a.n
      left join tombstone t on t.advertisement_id = unhex(wanted.value)
     where a.n is not null or t.until_ms is not null
";

/// The reservations in a JSON array of ids, and those of the advertisements in another that may take seats.
pub(super) const READ_RESERVATIONS: &str = "
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms, r.checksum
      from json_each($1) wanted
      join reservation r on r.reservation_id = unhex(wanted.value)
     union all
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms, r.checksum
      from json_each($2) wanted
      join reservation r on r.advertisement_id = unhex(wanted.value)
     where r.state < 2   -- those that ended take no seats, and may be many
";

/// A thousand tombstones that are due.
pub(super) const FORGET_TOMBSTONES: &str = "
    delete from tombstone
     where advertisement_id in (select advertisement_id from tombstone where until_ms <= $1 limit 1000)
";

/// A thousand ended reservations that are due.
pub(super) const FORGET_RESERVATIONS: &str = "
    delete from reservation
     where reservation_id in (select reservation_id from reservation where state = 2 and until_ms <= $1 limit 1000)
";

/// A statement that changes many rows: `head`, then `row` as often as there are rows, with commas between, then `tail`.
pub(super) struct ManyRows {
    head: &'static str,
    row: &'static str,
    tail: &'static str,
}

/// Publishes: makes rows, or replaces all of them but `n` and `since_ms`.
pub(super) const PUT_ADVERTISEMENTS: ManyRows = ManyRows {
    head: "
    insert into advertisement (advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body,
                               connect_data, checksum)
    values ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict (advertisement_id) do update
       set silo_id = excluded.silo_id, set_id = excluded.set_id, kind = excluded.kind,
           expires_ms = excluded.expires_ms, join_seats = excluded.join_seats, body = excluded.body,
           connect_data = excluded.connect_data, checksum = excluded.checksum",
};

/// Removes advertisements; their leases and reservations go with them.
pub(super) const REMOVE_ADVERTISEMENTS: ManyRows =
    ManyRows { head: "delete from advertisement where advertisement_id in (", row: "?", tail: ")" };

/// Notes heartbeats.
pub(super) const PUT_LEASES: ManyRows = ManyRows {
    head: "insert into lease (n, expires_ms) values ",
    row: "(?, ?)",
    tail: " on conflict (n) do update set expires_ms = excluded.expires_ms",
};

/// Takes leases away, of advertisements that are being published again.
pub(super) const REMOVE_LEASES: ManyRows = ManyRows { head: "delete from lease where n in (", row: "?", tail: ")" };

/// Makes reservations, or changes how they stand: nothing else about one ever changes.
pub(super) const PUT_RESERVATIONS: ManyRows = ManyRows {
    head: "
    insert into reservation (reservation_id, advertisement_id, seats, users, payload, state, until_ms, checksum)
    values ",
    row: "(?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict (reservation_id) do update
       set state = excluded.state, until_ms = excluded.until_ms, checksum = excluded.checksum",
};

/// Notes deletes.
pub(super) const PUT_TOMBSTONES: ManyRows = ManyRows {
    head: "insert into tombstone (advertisement_id, until_ms) values ",
    row: "(?, ?)",
    tail: " on conflict (advertisement_id) do update set until_ms = excluded.until_ms",
};

/// Rows in the largest statement. Times the ten binds of the widest row this is a third of SQLite's limit of 32,766.
const ROWS_MAX: usize = 1_024;

impl ManyRows {
    /// Changes all `rows`, which must have no key twice. `bind` adds one row's values, in the order of the columns.
    ///
    /// Statements come in sizes that are powers of two, so that all of them together fit the connection's cache of
    /// prepared ones.
    pub(super) async fn execute<T>(
        &self,
        connection: &mut SqliteConnection,
        rows: &[T],
        bind: impl Fn(&T, &mut Binds),
    ) -> Result<(), sqlx::Error> {
        let mut rest = rows;
        while !rest.is_empty() {
            let size = ROWS_MAX.min(1 << rest.len().ilog2());
            let (now, later) = rest.split_at(size);
            let mut binds = Binds::default();
            now.iter().for_each(|row| bind(row, &mut binds));
            let arguments = binds.end()?;
            sqlx::query_with(AssertSqlSafe(self.text(size)), arguments).execute(&mut *connection).await?;
            rest = later;
        }
        Ok(())
    }

    /// The statement for so many rows. Made of constants alone: no value is ever part of a text.
    pub(super) fn text(&self, rows: usize) -> String {
        let mut text = String::with_capacity(self.head.len() + rows * (self.row.len() + 1) + self.tail.len());
        text.push_str(self.head);
        for index in 0..rows {
            text.push_str(if index == 0 { "" } else { "," });
            text.push_str(self.row);
        }
        text.push_str(self.tail);
        text
    }
}

/// The values of a statement, and the first that could not be encoded.
#[derive(Default)]
pub(super) struct Binds {
    arguments: SqliteArguments,
    error: Option<sqlx::error::BoxDynError>,
}

impl Binds {
    pub(super) fn add<'t, T>(&mut self, value: T) -> &mut Self
    where
        T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        if let Err(error) = self.arguments.add(value) {
            self.error.get_or_insert(error);
        }
        self
    }

    fn end(self) -> Result<SqliteArguments, sqlx::Error> {
        self.error.map_or(Ok(self.arguments), |error| Err(sqlx::Error::Encode(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::Sqlite;
    use sqlx::{Executor, SqlSafeStr};

    /// What the compiler cannot check: each statement is SQL, and its tables and columns are there.
    #[tokio::test]
    async fn every_statement_prepares() {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&folder.path().join("a.db")).await.unwrap();
        let mut guard = store.connection_for_test().await;
        let connection = guard.as_mut().unwrap();

        let single = [
            LOAD_ADVERTISEMENTS,
            LOAD_RESERVATIONS,
            READ_ADVERTISEMENTS,
            READ_RESERVATIONS,
            FORGET_TOMBSTONES,
            FORGET_RESERVATIONS,
        ];
        for text in single {
            connection.prepare(text.into_sql_str()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        let many =
            [PUT_ADVERTISEMENTS, REMOVE_ADVERTISEMENTS, PUT_LEASES, REMOVE_LEASES, PUT_RESERVATIONS, PUT_TOMBSTONES];
        for statement in many {
            for rows in [1, 2, ROWS_MAX] {
                let text = AssertSqlSafe(statement.text(rows)).into_sql_str();
                connection.prepare(text).await.unwrap_or_else(|error| panic!("{}: {error}", statement.head));
            }
        }
    }
}
