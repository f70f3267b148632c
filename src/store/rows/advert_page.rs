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
pub(in crate::store) struct AdvertPage<'a> {
    /// A line for each row, with spaces between: `silo_id`, `set_id`, `kind`, `since_ms`, `expires_ms`, `join_seats`,
    /// the bytes of `body` and of `connect_data`, `checksum`, and the lease's `expires_ms` or nothing.
    number_lines: Lines<'a>,
    /// `advertisement_id` in 32 hexadecimal digits each.
    hex_ids: &'a str,
    bodies: &'a str,
    /// Hexadecimal.
    hex_connect_data: &'a str,
}

impl<'a> AdvertPage<'a> {
    /// The row of `statements::LOAD_PAGE`.
    pub(in crate::store) fn from_row(row: &'a SqliteRow) -> Result<Self, StoreError> {
        let text = |index: usize, column| row.try_get(index).map_err(|error| corrupt_row(column, error));
        let numbers: &str = text(0, "checksum")?;
        let (ids, bodies, connect_data) = (text(1, "advertisement_id")?, text(2, "body")?, text(3, "connect_data")?);
        Ok(Self { number_lines: numbers.lines(), hex_ids: ids, bodies, hex_connect_data: connect_data })
    }

    fn decode_line(&mut self, line: &'a str) -> Result<(AdvertisementRow<'a>, Option<UnixMs>), StoreError> {
        let mut numbers = NumberColumns(line.split_ascii_whitespace());
        let (silo_id, set_id) = (numbers.next_number("silo_id")?, numbers.next_number("set_id")?);
        let (kind, since_ms) = (numbers.next_number("kind")?, numbers.next_number("since_ms")?);
        let (expires_ms, join_seats) = (numbers.next_number("expires_ms")?, numbers.next_number("join_seats")?);
        let (body_bytes, connect_bytes) = (numbers.next_length("body")?, numbers.next_length("connect_data")?);
        let checksum = numbers.next_number("checksum")?;
        let lease = numbers.0.next().map(|text| parse_number("checksum", text)).transpose()?;

        let mut id = [0; 16];
        decode_hex(take_prefix(&mut self.hex_ids, 32, "advertisement_id")?, &mut id)
            .ok_or_else(|| corrupt_row("advertisement_id", "no name"))?;
        let body = take_prefix(&mut self.bodies, body_bytes, "body")?;
        let mut connect_data = vec![0; connect_bytes];
        decode_hex(take_prefix(&mut self.hex_connect_data, 2 * connect_bytes, "connect_data")?, &mut connect_data)
            .ok_or_else(|| corrupt_row("connect_data", "no bytes"))?;

        let (body, connect_data) = (Cow::Borrowed(body), Cow::Owned(connect_data));
        let row = AdvertisementRow { id, silo_id, set_id, kind, since_ms, expires_ms, join_seats, body, connect_data };
        match checksum == row.checksum() {
            true => Ok((row, lease.map(from_ms))),
            false => Err(corrupt_row("checksum", "it does not agree with the row")),
        }
    }
}

impl<'a> Iterator for AdvertPage<'a> {
    type Item = Result<(AdvertisementRow<'a>, Option<UnixMs>), StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let line = self.number_lines.next()?;
        Some(self.decode_line(line))
    }
}

struct NumberColumns<'a>(SplitAsciiWhitespace<'a>);

impl NumberColumns<'_> {
    fn next_number(&mut self, column: &'static str) -> Result<i64, StoreError> {
        parse_number(column, self.0.next().unwrap_or_default())
    }

    /// Bytes of a text or blob; none is longer than SQLite's longest value.
    fn next_length(&mut self, column: &'static str) -> Result<usize, StoreError> {
        usize::try_from(self.next_number(column)?).map_err(|error| corrupt_row(column, error))
    }
}

fn parse_number(column: &'static str, text: &str) -> Result<i64, StoreError> {
    text.parse().map_err(|error| corrupt_row(column, error))
}

/// Takes the first `bytes` off `text`.
fn take_prefix<'a>(text: &mut &'a str, bytes: usize, column: &'static str) -> Result<&'a str, StoreError> {
    let (first, rest) = text.split_at_checked(bytes).ok_or_else(|| corrupt_row(column, "it ends too soon"))?;
    *text = rest;
    Ok(first)
}

/// Fills `bytes` from twice as many digits, as SQLite's `hex` writes them; `None` for anything else.
fn decode_hex(digits: &str, bytes: &mut [u8]) -> Option<()> {
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    let mut all = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let (high, low) = (HEX_DIGIT_VALUES[usize::from(pair[0])], HEX_DIGIT_VALUES[usize::from(pair[1])]);
        all |= high | low;
        *byte = (high << 4) | (low & 15);
    }
    (all < 16).then_some(())
}

/// What each byte means as a digit; more than 15 for those that are none.
const HEX_DIGIT_VALUES: [u8; 256] = {
    let mut digits = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

fn corrupt_row(column: &'static str, what: impl ToString) -> StoreError {
    StoreError::CorruptRow { table: "advertisement", column, reason: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_bytes_and_nothing_else_is() {
        let check = |digits: &str, expected: Option<[u8; 2]>| {
            let mut bytes = [0; 2];
            assert_eq!(decode_hex(digits, &mut bytes).map(|()| bytes), expected, "{digits}");
        };
        check("00FF", Some([0, 255]));
        check("A9B1", Some([0xa9, 0xb1]));
        check("a9b1", None);
        check("A9B", None);
        check("A9B10", None);
        check("G9B1", None);
        check("A9B ", None);
    }
}
