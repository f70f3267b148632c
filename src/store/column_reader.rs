//! Typed access to the columns of a row, for both databases; errors name the table and column.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Uuid;
use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::domain::id::RatingKey;
use crate::store::error::StoreError;

/// Row of a table.
pub(super) struct ColumnReader<'r, R> {
    pub(super) table: &'static str,
    pub(super) row: &'r R,
}

impl<'r, R: Row> ColumnReader<'r, R>
where
    usize: ColumnIndex<R>,
{
    pub(super) fn read<T>(&self, index: usize, column: &'static str) -> Result<T, StoreError>
    where
        T: Decode<'r, R::Database> + Type<R::Database>,
    {
        self.row.try_get(index).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    /// Unsigned number of 32 bits, stored as a number of 64 bits.
    pub(super) fn uint32(&self, index: usize, column: &'static str) -> Result<u32, StoreError>
    where
        i64: Decode<'r, R::Database> + Type<R::Database>,
    {
        u32::try_from(self.read::<i64>(index, column)?).map_err(|error| self.corrupt_row(column, error.to_string()))
    }

    /// Key of ratings, from its stored number.
    pub(super) fn rating_key(&self, index: usize) -> Result<RatingKey, StoreError>
    where
        i64: Decode<'r, R::Database> + Type<R::Database>,
    {
        let number: i64 = self.read(index, "rating_key")?;
        let invalid = || self.corrupt_row("rating_key", format!("{number} is neither a set nor a digest"));
        RatingKey::from_stored(number).ok_or_else(invalid)
    }

    pub(super) fn corrupt_row(&self, column: &'static str, reason: String) -> StoreError {
        StoreError::CorruptRow { table: self.table, column, reason }
    }
}

impl ColumnReader<'_, SqliteRow> {
    pub(super) fn int64(&self, index: usize, column: &'static str) -> Result<i64, StoreError> {
        self.read(index, column)
    }

    /// Compares the stored checksum with the computed one.
    pub(super) fn verify_checksum(&self, column: &'static str, stored: i64, computed: i64) -> Result<(), StoreError> {
        if stored == computed { Ok(()) } else { Err(self.corrupt_row(column, "does not match the row".into())) }
    }

    /// 16 bytes or null.
    pub(super) fn optional_id(&self, index: usize, column: &'static str) -> Result<Option<[u8; 16]>, StoreError> {
        let bytes: Option<&[u8]> = self.read(index, column)?;
        bytes.map(|_| self.id_bytes(index, column)).transpose()
    }

    /// 16 bytes.
    pub(super) fn id_bytes(&self, index: usize, column: &'static str) -> Result<[u8; 16], StoreError> {
        let bytes: &[u8] = self.read(index, column)?;
        bytes.try_into().map_err(|_| self.corrupt_row(column, format!("length {} is not 16", bytes.len())))
    }
}

impl ColumnReader<'_, PgRow> {
    /// Bytes of a uuid.
    pub(super) fn id_bytes(&self, index: usize, column: &'static str) -> Result<[u8; 16], StoreError> {
        self.read::<Uuid>(index, column).map(Uuid::into_bytes)
    }

    /// Unsigned number of 16 bits, stored as a number of 32 bits.
    pub(super) fn uint16(&self, index: usize, column: &'static str) -> Result<u16, StoreError> {
        u16::try_from(self.read::<i32>(index, column)?).map_err(|error| self.corrupt_row(column, error.to_string()))
    }
}
