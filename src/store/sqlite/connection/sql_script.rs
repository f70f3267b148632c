//! Statements that write up to 1,024 rows each, executed as one script.

use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};
use sqlx::{Arguments, AssertSqlSafe};

use crate::store::sqlite::connection::statements::COMMIT_AND_MEASURE_WAL;

/// Statement that writes many rows: `head`, then one `row_placeholders` per row, separated by commas, then `tail`.
pub(in crate::store::sqlite) struct MultiRowTemplate {
    pub(in crate::store::sqlite) head: &'static str,
    pub(in crate::store::sqlite) row_placeholders: &'static str,
    pub(in crate::store::sqlite) tail: &'static str,
    /// Rows are so small that writing many of them twice costs less than a second statement.
    pub(in crate::store::sqlite) always_pads: bool,
}

impl MultiRowTemplate {
    /// Builds a statement; see the fields.
    pub(in crate::store::sqlite) const fn new(
        head: &'static str,
        row: &'static str,
        tail: &'static str,
        narrow: bool,
    ) -> Self {
        Self { head, row_placeholders: row, tail, always_pads: narrow }
    }
}

/// Maximum number of rows per statement. With 14 binds for the widest row, this is less than half of SQLite's limit of
/// 32,766.
pub(in crate::store::sqlite) const ROWS_PER_STATEMENT_MAX: usize = 1_024;

/// Number of prepared statements cached per connection: fifteen [`MultiRowTemplate`]s in eleven sizes, and the others.
pub(in crate::store::sqlite) const STATEMENT_CACHE_CAPACITY: usize = 200;

/// Statements with their values, executed in order.
#[derive(Default)]
pub(in crate::store::sqlite) struct SqlScript {
    statements: Vec<(String, BindValues)>,
}

impl SqlScript {
    /// Adds statements for all `rows`. `bind` adds the values of one row, in column order.
    ///
    /// Statement sizes are powers of two, so that all of them fit the cache of prepared statements. If few rows are
    /// missing to the next power, the last row is repeated. Writing a row twice changes nothing, and each further
    /// statement waits for another thread.
    pub(in crate::store::sqlite) fn add_rows<T>(
        &mut self,
        statement: &MultiRowTemplate,
        rows: &[T],
        bind: impl Fn(&T, &mut BindValues),
    ) {
        let mut remaining = rows;
        while let Some(last) = remaining.last() {
            let chunk_rows = statement.chunk_row_count(remaining.len());
            let (chunk, rest) = remaining.split_at(chunk_rows.min(remaining.len()));
            let mut values = BindValues::default();
            chunk
                .iter()
                .chain(std::iter::repeat_n(last, chunk_rows - chunk.len()))
                .for_each(|row| bind(row, &mut values));
            self.statements.push((statement.sql_text(chunk_rows), values));
            remaining = rest;
        }
    }

    /// Executes all statements and commits together with the last one. Returns the row of [`COMMIT_AND_MEASURE_WAL`].
    pub(in crate::store::sqlite) async fn execute_and_commit(
        mut self,
        connection: &mut SqliteConnection,
    ) -> Result<SqliteRow, sqlx::Error> {
        let (mut last, values) = self.statements.pop().unwrap_or_default();
        self.execute(connection).await?;
        if !last.is_empty() {
            last.push(';');
        }
        last.push_str(COMMIT_AND_MEASURE_WAL);
        sqlx::query_with(AssertSqlSafe(last), values.finish()?).fetch_one(connection).await
    }

    /// Executes all statements.
    pub(in crate::store::sqlite) async fn execute(self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for (sql, values) in self.statements {
            sqlx::query_with(AssertSqlSafe(sql), values.finish()?).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

impl MultiRowTemplate {
    /// Number of rows of the first statement for `rows` rows, at least 1.
    fn chunk_row_count(&self, rows: usize) -> usize {
        let padded = rows.next_power_of_two();
        let pad = self.always_pads || padded - rows <= padded / 8;
        let chunk_rows = if pad { padded } else { padded / 2 };
        chunk_rows.min(ROWS_PER_STATEMENT_MAX)
    }

    /// SQL text for `rows` rows. Built from constants only: values are always bound.
    pub(in crate::store::sqlite) fn sql_text(&self, rows: usize) -> String {
        let length = self.head.len()
            + rows * (self.row_placeholders.len() + 1)
            + self.tail.len()
            + 1
            + COMMIT_AND_MEASURE_WAL.len();
        let mut sql = String::with_capacity(length);
        sql.push_str(self.head);
        for index in 0..rows {
            sql.push_str(if index == 0 { "" } else { "," });
            sql.push_str(self.row_placeholders);
        }
        sql.push_str(self.tail);
        sql
    }
}

/// Bind values of a statement, and the first encoding error.
#[derive(Default)]
pub(in crate::store::sqlite) struct BindValues {
    arguments: SqliteArguments,
    error: Option<sqlx::error::BoxDynError>,
}

impl BindValues {
    pub(in crate::store::sqlite) fn push<'t, T>(&mut self, value: T) -> &mut Self
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
