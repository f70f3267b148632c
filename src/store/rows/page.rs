//! A thousand rows in one, as `statements::LOAD_PAGE` hands them over: one value costs SQLite's driver as much as a row's
//! share of a long one, and a row has a dozen.

use std::borrow::Cow;
use std::str::{Lines, SplitAsciiWhitespace};

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::rows::{AdvertisementRow, from_ms};

/// The rows of a page, one after the other, each held against its checksum; and the lease, if a heartbeat has made one.
#[derive(Debug)]
pub(in crate::store) struct Page<'a> {
    /// A line for each row, with spaces between: `silo_id`, `set_id`, `kind`, `since_ms`, `expires_ms`, `join_seats`,
    /// the bytes of `body` and of `connect_data`, `checksum`, and the lease's `expires_ms` or nothing.
    numbers: Lines<'a>,
    /// `advertisement_id` in 32 hexadecimal digits each.
    ids: &'a str,
    bodies: &'a str,
    /// Hexadecimal.
    connect_data: &'a str,
}

impl<'a> Page<'a> {
    /// The row of `statements::LOAD_PAGE`.
    pub(in crate::store) fn read(row: &'a SqliteRow) -> Result<Self, StoreError> {
        let text = |index: usize, column| row.try_get(index).map_err(|error| corrupt(column, error));
        let numbers: &str = text(0, "checksum")?;
        let (ids, bodies, connect_data) = (text(1, "advertisement_id")?, text(2, "body")?, text(3, "connect_data")?);
        Ok(Self { numbers: numbers.lines(), ids, bodies, connect_data })
    }

    fn row(&mut self, line: &'a str) -> Result<(AdvertisementRow<'a>, Option<UnixMs>), StoreError> {
        let mut numbers = Numbers(line.split_ascii_whitespace());
        let (silo_id, set_id) = (numbers.next("silo_id")?, numbers.next("set_id")?);
        let (kind, since_ms) = (numbers.next("kind")?, numbers.next("since_ms")?);
        let (expires_ms, join_seats) = (numbers.next("expires_ms")?, numbers.next("join_seats")?);
        let (body_bytes, connect_bytes) = (numbers.length("body")?, numbers.length("connect_data")?);
        let checksum = numbers.next("checksum")?;
        let lease = numbers.0.next().map(|text| parse("checksum", text)).transpose()?;

        let mut id = [0; 16];
        decode_hex(cut(&mut self.ids, 32, "advertisement_id")?, &mut id)
            .ok_or_else(|| corrupt("advertisement_id", "no name"))?;
        let body = cut(&mut self.bodies, body_bytes, "body")?;
        let mut connect_data = vec![0; connect_bytes];
        decode_hex(cut(&mut self.connect_data, 2 * connect_bytes, "connect_data")?, &mut connect_data)
            .ok_or_else(|| corrupt("connect_data", "no bytes"))?;

        let (body, connect_data) = (Cow::Borrowed(body), Cow::Owned(connect_data));
        let row = AdvertisementRow { id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data };
        match checksum == row.checksum() {
            true => Ok((row, lease.map(from_ms))),
            false => Err(corrupt("checksum", "it does not agree with the row")),
        }
    }
}

impl<'a> Iterator for Page<'a> {
    type Item = Result<(AdvertisementRow<'a>, Option<UnixMs>), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.numbers.next()?;
        Some(self.row(line))
    }
}

struct Numbers<'a>(SplitAsciiWhitespace<'a>);

impl Numbers<'_> {
    fn next(&mut self, column: &'static str) -> Result<i64, StoreError> {
        parse(column, self.0.next().unwrap_or_default())
    }

    /// Bytes of a text or blob; none is longer than SQLite's longest value.
    fn length(&mut self, column: &'static str) -> Result<usize, StoreError> {
        usize::try_from(self.next(column)?).map_err(|error| corrupt(column, error))
    }
}

fn parse(column: &'static str, text: &str) -> Result<i64, StoreError> {
    text.parse().map_err(|error| corrupt(column, error))
}

/// Takes the first `bytes` off `text`.
fn cut<'a>(text: &mut &'a str, bytes: usize, column: &'static str) -> Result<&'a str, StoreError> {
    let (first, rest) = text.split_at_checked(bytes).ok_or_else(|| corrupt(column, "it ends too soon"))?;
    *text = rest;
    Ok(first)
}

/// Fills `bytes` from twice as many digits, as SQLite's `hex` writes them; `None` for anything else.
fn decode_hex(digits: &str, bytes: &mut [u8]) -> Option<()> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        *byte = (value(pair[0])? << 4) | value(pair[1])?;
    }
    Some(())
}

fn corrupt(column: &'static str, what: impl ToString) -> StoreError {
    StoreError::Corrupt { table: "advertisement", column, what: what.to_string() }
}
