//! Every statement that the SQLite store makes, and how one of them writes a thousand rows.
//!
//! One statement a row costs ten times as much as one for many: each is handed to a thread and back (PERFORMANCE.md
//! 2f). Rows go in as `values` lists; a JSON array read by `json_each` took 1.5 times as long. Names to be looked up
//! come as one JSON array of hexadecimal texts: one bind, whatever their number. Statements that follow each other with
//! nothing to decide between them are one text.

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe};

/// Whether there are more advertisements than `$1`.
pub(super) const HAS_MORE_THAN: &str = "select exists (select 1 from advertisement limit 1 offset $1)";

/// The number of the last advertisement of the page that follows number `$1`; null when nothing follows.
pub(super) const LOAD_PAGE_END: &str =
    "select max(n) from (select n from advertisement where $1 < n order by n limit 1000)";

/// Advertisements as published, and their leases, in one row; `rows/page.rs` says how.
macro_rules! page {
    ($of:literal) => {
        concat!(
            "
    select group_concat(concat_ws(' ', a.silo_id, a.set_id, a.kind, a.since_ms, a.expires_ms, a.join_seats,
                                  octet_length(a.body), length(a.connect_data), a.checksum, l.expires_ms), x'0a'),
           group_concat(hex(a.advertisement_id), ''),
           group_concat(a.body, ''),
           group_concat(hex(a.connect_data), '')",
            $of
        )
    };
}

/// The page of the advertisements after number `$1` up to `$2`.
pub(super) const LOAD_PAGE: &str = page!(
    "
      from advertisement a
      left join lease l on l.n = a.n
     where $1 < a.n and a.n <= $2
"
);

/// The page of the advertisements in `$1`, a JSON array of ids; nulls when none is there.
pub(super) const READ_ADVERTISEMENTS: &str = page!(
    "
      from json_each($1) wanted
      join advertisement a on a.advertisement_id = unhex(wanted.value)
      left join lease l on l.n = a.n
"
);

/// The reservations in those advertisements, in the order of ids.
pub(super) const READ_RESERVATIONS: &str = "
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms, r.checksum
      from json_each($1) wanted
      join reservation r on r.advertisement_id = unhex(wanted.value)
     order by r.reservation_id
";

/// The first `$2` names of advertisements, from `$1` on.
pub(super) const LIST_ADVERTISEMENT_IDS: &str =
    "select advertisement_id from advertisement where $1 <= advertisement_id order by advertisement_id limit $2";

/// Reservations of every state, in the order of ids.
pub(super) const LOAD_RESERVATIONS: &str = "
    select reservation_id, advertisement_id, seats, users, payload, state, until_ms, checksum
      from reservation
     order by reservation_id
";

/// Begins a transaction and reads all that changes ask about, in one go. `immediate` takes the write lock now; a
/// transaction that read first and wrote later could be refused half-way.
///
/// First one row for the advertisements, there or deleted, in `$1`, a JSON array of ids: a JSON array of arrays that
/// begin with the place of the id, since handing over a row costs more than finding it. Then a row for each of the
/// reservations in `$2`, another such array, and of those of the advertisements in `$3` that may take seats.
pub(super) const BEGIN_AND_READ: &str = "
    begin immediate;
    with wanted (place, id) as materialized (select key, unhex(value) from json_each($1))
    select json_group_array(json_array(w.place, a.n, a.since_ms, a.expires_ms, a.join_seats, l.expires_ms, t.until_ms))
      from wanted w
      left join advertisement a on a.advertisement_id = w.id
      left join lease l on l.n = a.n
      left join tombstone t on t.advertisement_id = w.id
     where a.n is not null or t.until_ms is not null;
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms, r.checksum
      from json_each($2) wanted
      join reservation r on r.reservation_id = unhex(wanted.value)
     union all
    select r.reservation_id, r.advertisement_id, r.seats, r.users, r.payload, r.state, r.until_ms, r.checksum
      from json_each($3) wanted
      join reservation r on r.advertisement_id = unhex(wanted.value)
     where r.state < 2   -- those that ended take no seats, and may be many
";

/// Commits, and says how long the log is: three numbers, of which the second is its pages and the third how many of
/// them are in the file already.
pub(super) const COMMIT_AND_MEASURE_WAL: &str = "commit; pragma wal_checkpoint(noop)";

/// Moves of the log what no reader needs, without waiting for anybody; answers as [`COMMIT`] does.
pub(super) const CHECKPOINT_WAL: &str = "pragma wal_checkpoint(passive)";

/// A thousand tombstones that are due.
pub(super) const PURGE_TOMBSTONES: &str = "
    delete from tombstone
     where advertisement_id in (select advertisement_id from tombstone where until_ms <= $1 limit 1000)
";

/// A thousand ended reservations that are due.
pub(super) const PURGE_RESERVATIONS: &str = "
    delete from reservation
     where reservation_id in (select reservation_id from reservation where state = 2 and until_ms <= $1 limit 1000)
";

/// A statement that changes many rows: `head`, then `row` as often as there are rows, with commas between, then `tail`.
pub(super) struct MultiRowStatement {
    head: &'static str,
    row_placeholders: &'static str,
    tail: &'static str,
    /// A row is so small that doing many twice costs less than another statement.
    is_narrow: bool,
}

impl MultiRowStatement {
    /// `narrow` as above.
    pub(super) const fn new(head: &'static str, row: &'static str, tail: &'static str, narrow: bool) -> Self {
        Self { head, row_placeholders: row, tail, is_narrow: narrow }
    }
}

/// Publishes: makes a row where `n` is null, or replaces all of the one numbered `n` but `advertisement_id` and
/// `since_ms`. A number is found sooner than an id. The conflict has no target, since a new row that is there twice to
/// fill up conflicts in its id.
pub(super) const UPSERT_ADVERTISEMENTS: MultiRowStatement = MultiRowStatement {
    head: "
    insert into advertisement (n, advertisement_id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body,
                               connect_data, checksum)
    values ",
    row_placeholders: "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict do update
       set silo_id = excluded.silo_id, set_id = excluded.set_id, kind = excluded.kind,
           expires_ms = excluded.expires_ms, join_seats = excluded.join_seats, body = excluded.body,
           connect_data = excluded.connect_data, checksum = excluded.checksum",
    is_narrow: false,
};

/// Removes advertisements; their leases and reservations go with them.
pub(super) const DELETE_ADVERTISEMENTS: MultiRowStatement = MultiRowStatement {
    head: "delete from advertisement where advertisement_id in (",
    row_placeholders: "?",
    tail: ")",
    is_narrow: true,
};

/// Notes heartbeats.
pub(super) const UPSERT_LEASES: MultiRowStatement = MultiRowStatement {
    head: "insert into lease (n, expires_ms) values ",
    row_placeholders: "(?, ?)",
    tail: " on conflict (n) do update set expires_ms = excluded.expires_ms",
    is_narrow: true,
};

/// Takes leases away, of advertisements that are being published again.
pub(super) const DELETE_LEASES: MultiRowStatement =
    MultiRowStatement { head: "delete from lease where n in (", row_placeholders: "?", tail: ")", is_narrow: true };

/// Makes reservations, or changes how they stand: nothing else about one ever changes.
pub(super) const UPSERT_RESERVATIONS: MultiRowStatement = MultiRowStatement {
    head: "
    insert into reservation (reservation_id, advertisement_id, seats, users, payload, state, until_ms, checksum)
    values ",
    row_placeholders: "(?, ?, ?, ?, ?, ?, ?, ?)",
    tail: "
        on conflict (reservation_id) do update
       set state = excluded.state, until_ms = excluded.until_ms, checksum = excluded.checksum",
    is_narrow: false,
};

/// Notes deletes.
pub(super) const UPSERT_TOMBSTONES: MultiRowStatement = MultiRowStatement {
    head: "insert into tombstone (advertisement_id, until_ms) values ",
    row_placeholders: "(?, ?)",
    tail: " on conflict (advertisement_id) do update set until_ms = excluded.until_ms",
    is_narrow: true,
};

/// Rows in the largest statement. Times the fourteen binds of the widest row this is under half of SQLite's limit of 32,766.
pub(super) const ROWS_PER_STATEMENT_MAX: usize = 1_024;

/// Prepared statements that a connection keeps: fifteen of [`ManyRows`] in eleven sizes, and the rest.
pub(super) const STATEMENT_CACHE_CAPACITY: usize = 200;

/// Statements with their values, to be carried out one after the other.
#[derive(Default)]
pub(super) struct SqlScript {
    statements: Vec<(String, BindValues)>,
}

impl SqlScript {
    /// Adds a statement for all `rows`. `bind` adds one row's values, in the order of the columns.
    ///
    /// Statements come in sizes that are powers of two, so that all of them together fit the connection's cache of
    /// prepared ones. What is missing to the next power, if it is little, is filled up with the last row again: to do
    /// the same twice changes nothing, and each statement is a wait for another thread.
    pub(super) fn add_rows<T>(
        &mut self,
        statement: &MultiRowStatement,
        rows: &[T],
        bind: impl Fn(&T, &mut BindValues),
    ) {
        let mut rest = rows;
        while let Some(last) = rest.last() {
            let size = statement.chunk_rows(rest.len());
            let (now, later) = rest.split_at(size.min(rest.len()));
            let mut binds = BindValues::default();
            now.iter().chain(std::iter::repeat_n(last, size - now.len())).for_each(|row| bind(row, &mut binds));
            self.statements.push((statement.sql_text(size), binds));
            rest = later;
        }
    }

    /// Carries out all, and commits in the same breath as the last. Answers what [`COMMIT`] does.
    pub(super) async fn execute_and_commit(
        mut self,
        connection: &mut SqliteConnection,
    ) -> Result<SqliteRow, sqlx::Error> {
        let (mut last, binds) = self.statements.pop().unwrap_or_default();
        self.execute(connection).await?;
        if !last.is_empty() {
            last.push(';');
        }
        last.push_str(COMMIT_AND_MEASURE_WAL);
        sqlx::query_with(AssertSqlSafe(last), binds.finish()?).fetch_one(connection).await
    }

    /// Carries out all.
    pub(super) async fn execute(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for (text, binds) in self.statements {
            sqlx::query_with(AssertSqlSafe(text), binds.finish()?).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl MultiRowStatement {
    /// The size of the first statement for so many rows, 1 at least.
    fn chunk_rows(&self, rows: usize) -> usize {
        let filled = rows.next_power_of_two();
        let nearly = self.is_narrow || filled - rows <= filled / 8;
        let size = if nearly { filled } else { filled / 2 };
        size.min(ROWS_PER_STATEMENT_MAX)
    }

    /// The statement for so many rows. Made of constants alone: no value is ever part of a text.
    pub(super) fn sql_text(&self, rows: usize) -> String {
        let length = self.head.len()
            + rows * (self.row_placeholders.len() + 1)
            + self.tail.len()
            + 1
            + COMMIT_AND_MEASURE_WAL.len();
        let mut text = String::with_capacity(length);
        text.push_str(self.head);
        for index in 0..rows {
            text.push_str(if index == 0 { "" } else { "," });
            text.push_str(self.row_placeholders);
        }
        text.push_str(self.tail);
        text
    }
}

/// The values of a statement, and the first that could not be encoded.
#[derive(Default)]
pub(super) struct BindValues {
    arguments: SqliteArguments,
    error: Option<sqlx::error::BoxDynError>,
}

impl BindValues {
    pub(super) fn push<'t, T>(&mut self, value: T) -> &mut Self
    where
        T: sqlx::Encode<'t, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
        if let Err(error) = self.arguments.add(value) {
            self.error.get_or_insert(error);
        }
        self
    }

    fn finish(self) -> Result<SqliteArguments, sqlx::Error> {
        self.error.map_or(Ok(self.arguments), |error| Err(sqlx::Error::Encode(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::queues::statements::tests as queues;
    use sqlx::{Executor, SqlSafeStr};

    /// What the compiler cannot check: each statement is SQL, and its tables and columns are there.
    #[tokio::test]
    async fn every_statement_prepares() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("a.db")).await.unwrap();
        let mut guard = store.connection_for_test().await;
        let connection = guard.as_mut().unwrap();

        let single = [
            HAS_MORE_THAN,
            LOAD_PAGE_END,
            LOAD_PAGE,
            LOAD_RESERVATIONS,
            READ_ADVERTISEMENTS,
            READ_RESERVATIONS,
            LIST_ADVERTISEMENT_IDS,
            COMMIT_AND_MEASURE_WAL,
            CHECKPOINT_WAL,
            PURGE_TOMBSTONES,
            PURGE_RESERVATIONS,
        ];
        for text in single.into_iter().chain(queues::SINGLE_STATEMENTS) {
            connection.prepare(text.into_sql_str()).await.unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        // Each in turn: the second and third prepare when the ones before have run.
        sqlx::query(BEGIN_AND_READ).bind("[]").bind("[]").bind("[]").execute(&mut *connection).await.unwrap();
        sqlx::query(COMMIT_AND_MEASURE_WAL).execute(&mut *connection).await.unwrap();
        let many = [
            UPSERT_ADVERTISEMENTS,
            DELETE_ADVERTISEMENTS,
            UPSERT_LEASES,
            DELETE_LEASES,
            UPSERT_RESERVATIONS,
            UPSERT_TOMBSTONES,
        ];
        for statement in many.into_iter().chain(queues::MULTI_ROW_STATEMENTS) {
            for rows in [1, 2, ROWS_PER_STATEMENT_MAX] {
                let text = AssertSqlSafe(statement.sql_text(rows)).into_sql_str();
                connection.prepare(text).await.unwrap_or_else(|error| panic!("{}: {error}", statement.head));
            }
        }
    }
}
