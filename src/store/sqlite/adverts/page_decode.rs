//! Decoding of a page: 1,000 advertisement rows packed into one row of `statements::LOAD_PAGE`. SQLite's driver has a
//! fixed cost per value, and a row has a dozen values.

use std::borrow::Cow;
use std::str::{Lines, SplitAsciiWhitespace};

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::rows::{AdvertisementRow, from_ms};

/// Iterator over the rows of a page, each checked against its checksum, with the expiry of its heartbeat, if any.
#[derive(Debug)]
pub(super) struct AdvertPage<'a> {
    /// One line per row, separated by spaces: `silo_id`, `set_id`, `kind`, `since_ms`, `expires_ms`, `join_seats`, `ttl_ms` or 0,
    /// the bytes of `body`, of `connect_data` and of `beacon_vector`, `checksum`, and the heartbeat's `expires_ms` or nothing.
    number_lines: Lines<'a>,
    /// `advertisement_id`, 32 hexadecimal digits each.
    hex_ids: &'a str,
    bodies: &'a str,
    hex_connect_data: &'a str,
    hex_beacon_vectors: &'a str,
}

impl<'a> AdvertPage<'a> {
    /// Splits a row of `statements::LOAD_PAGE`.
    pub(super) fn from_row(row: &'a SqliteRow) -> Result<Self, StoreError> {
        let text = |index: usize, column| row.try_get(index).map_err(|error| corrupt_row_error(column, error));
        let numbers: &str = text(0, "checksum")?;
        Ok(Self {
            number_lines: numbers.lines(),
            hex_ids: text(1, "advertisement_id")?,
            bodies: text(2, "body")?,
            hex_connect_data: text(3, "connect_data")?,
            hex_beacon_vectors: text(4, "beacon_vector")?,
        })
    }

    fn decode_line(&mut self, line: &'a str) -> Result<(AdvertisementRow<'a>, Option<UnixMs>), StoreError> {
        let mut numbers = NumberColumns(line.split_ascii_whitespace());
        let (silo_id, set_id) = (numbers.next_number("silo_id")?, numbers.next_number("set_id")?);
        let (kind, since_ms) = (numbers.next_number("kind")?, numbers.next_number("since_ms")?);
        let (expires_ms, join_seats) = (numbers.next_number("expires_ms")?, numbers.next_number("join_seats")?);
        let ttl_ms = Some(numbers.next_number("ttl_ms")?).filter(|ttl_ms| *ttl_ms != 0);
        let (body_bytes, connect_bytes) = (numbers.next_length("body")?, numbers.next_length("connect_data")?);
        let vector_bytes = numbers.next_length("beacon_vector")?;
        let checksum = numbers.next_number("checksum")?;
        let heartbeat = numbers.0.next().map(|text| parse_number("checksum", text)).transpose()?;

        let mut id = [0; 16];
        decode_hex(take_prefix(&mut self.hex_ids, 32, "advertisement_id")?, &mut id)
            .ok_or_else(|| corrupt_row_error("advertisement_id", "not hexadecimal"))?;
        let body = take_prefix(&mut self.bodies, body_bytes, "body")?;
        let mut connect_data = vec![0; connect_bytes];
        decode_hex(take_prefix(&mut self.hex_connect_data, 2 * connect_bytes, "connect_data")?, &mut connect_data)
            .ok_or_else(|| corrupt_row_error("connect_data", "not hexadecimal"))?;

        let mut beacon_vector = vec![0; vector_bytes];
        decode_hex(take_prefix(&mut self.hex_beacon_vectors, 2 * vector_bytes, "beacon_vector")?, &mut beacon_vector)
            .ok_or_else(|| corrupt_row_error("beacon_vector", "not hexadecimal"))?;

        let (body, connect_data) = (Cow::Borrowed(body), Cow::Owned(connect_data));
        let row = AdvertisementRow {
            id,
            silo_id,
            set_id,
            kind,
            since_ms,
            expires_ms,
            join_seats,
            ttl_ms,
            beacon_vector: Some(beacon_vector).filter(|vector| !vector.is_empty()),
            body,
            connect_data,
        };
        if checksum == row.checksum() {
            Ok((row, heartbeat.map(from_ms)))
        } else {
            Err(corrupt_row_error("checksum", "does not match the row"))
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

    /// Length of a text or blob in bytes.
    fn next_length(&mut self, column: &'static str) -> Result<usize, StoreError> {
        usize::try_from(self.next_number(column)?).map_err(|error| corrupt_row_error(column, error))
    }
}

fn parse_number(column: &'static str, text: &str) -> Result<i64, StoreError> {
    text.parse().map_err(|error| corrupt_row_error(column, error))
}

/// Removes and returns the first `bytes` of `text`.
fn take_prefix<'a>(text: &mut &'a str, bytes: usize, column: &'static str) -> Result<&'a str, StoreError> {
    let (first, rest) = text.split_at_checked(bytes).ok_or_else(|| corrupt_row_error(column, "ends too early"))?;
    *text = rest;
    Ok(first)
}

/// Decodes upper-case hexadecimal digits, as SQLite's `hex` writes them. `None` for other characters or another length.
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

/// Value of each byte as a hexadecimal digit; more than 15 if it is none.
const HEX_DIGIT_VALUES: [u8; 256] = {
    let mut digits = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    digits
};

fn corrupt_row_error(column: &'static str, reason: impl ToString) -> StoreError {
    StoreError::CorruptRow { table: "advertisement", column, reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_hex_accepts_only_upper_case_pairs() {
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
