//! From a row as Postgres copies it out (`copy … to stdout`, binary format, chapter "COPY" of its manual) to an
//! advertisement. A row is a message: the number of its fields, and each after its length, -1 for null; numbers big-endian.

use std::borrow::Cow;

use crate::store::rows::AdvertisementRow;
use crate::store::{AdvertVersion, StoreError, StoredAdvertisement};

/// What the copy begins with; its first row follows in the same message.
const COPY_SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The number of fields of the message that ends it.
const END_OF_COPY: i16 = -1;

/// The columns of `statements::copy_all`.
const COLUMN_COUNT: i16 = 11;

/// The advertisement in a message of the copy; none in the last one. `replica` is who asks.
pub(super) fn decode_advertisement(message: &[u8], replica: i64) -> Result<Option<StoredAdvertisement>, StoreError> {
    let mut fields = CopyReader { remaining: message };
    if message.starts_with(COPY_SIGNATURE) {
        // Flags, and what a later version adds.
        fields.take_bytes(COPY_SIGNATURE.len() + 4, "signature")?;
        let more = i32::from_be_bytes(fields.take_array("signature")?);
        fields.take_bytes(usize::try_from(more).unwrap_or(0), "signature")?;
        if fields.remaining.is_empty() {
            return Ok(None);
        }
    }
    match i16::from_be_bytes(fields.take_array("advertisement_id")?) {
        COLUMN_COUNT => {}
        END_OF_COPY => return Ok(None),
        other => return Err(corrupt_row("advertisement_id", format!("a row of {other} columns, not {COLUMN_COUNT}"))),
    }
    let id = fields.field_array("advertisement_id")?;
    let version = AdvertVersion(i64::from_be_bytes(fields.field_array("version")?));
    let held_here = i64::from_be_bytes(fields.field_array("holder")?) == replica;
    let row = AdvertisementRow {
        id,
        silo_id: i64::from_be_bytes(fields.field_array("silo_id")?),
        set_id: i64::from_be_bytes(fields.field_array("set_id")?),
        kind: i64::from(i16::from_be_bytes(fields.field_array("kind")?)),
        since_ms: i64::from_be_bytes(fields.field_array("since_ms")?),
        expires_ms: i64::from_be_bytes(fields.field_array("expires_ms")?),
        join_seats: i64::from(i32::from_be_bytes(fields.field_array("join_seats")?)),
        body: Cow::Borrowed(fields.field_text("body")?),
        connect_data: Cow::Borrowed(fields.field_bytes("connect_data")?),
    };
    let expires = row.published_expiry();
    let advertisement = row.decode()?.into();
    Ok(Some(StoredAdvertisement {
        advertisement,
        expires_at: expires,
        reservations: Vec::new(),
        version,
        is_heartbeat_owner: held_here,
    }))
}

/// What has not been read of a row.
struct CopyReader<'a> {
    remaining: &'a [u8],
}

impl<'a> CopyReader<'a> {
    fn take_bytes(&mut self, count: usize, column: &'static str) -> Result<&'a [u8], StoreError> {
        let (bytes, rest) =
            self.remaining.split_at_checked(count).ok_or_else(|| corrupt_row(column, "it ends too soon".into()))?;
        self.remaining = rest;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        let bytes = self.take_bytes(N, column)?;
        bytes.try_into().map_err(|_| corrupt_row(column, format!("{} bytes, not {N}", bytes.len())))
    }

    /// A field of any length; null is none of ours.
    fn field_bytes(&mut self, column: &'static str) -> Result<&'a [u8], StoreError> {
        let length = i32::from_be_bytes(self.take_array(column)?);
        let length = usize::try_from(length).map_err(|_| corrupt_row(column, "it is null".into()))?;
        self.take_bytes(length, column)
    }

    fn field_text(&mut self, column: &'static str) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.field_bytes(column)?).map_err(|error| corrupt_row(column, error.to_string()))
    }

    /// A field of just so many bytes.
    fn field_array<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        let bytes = self.field_bytes(column)?;
        bytes.try_into().map_err(|_| corrupt_row(column, format!("{} bytes, not {N}", bytes.len())))
    }
}

fn corrupt_row(column: &'static str, what: String) -> StoreError {
    StoreError::CorruptRow { table: "advertisement", column, reason: what }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of what is there, as Postgres would send it.
    fn message(fields: &[&[u8]]) -> Vec<u8> {
        let mut message = i16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        for field in fields {
            message.extend(i32::try_from(field.len()).unwrap().to_be_bytes());
            message.extend(*field);
        }
        message
    }

    #[test]
    fn what_is_no_row_is_corrupt_and_names_its_column() {
        let [id, number, small, middle] = [&[1; 16][..], &[0; 8], &[0; 2], &[0; 4]];
        let body = br#"{"h":1,"z":[1]}"#;
        let whole = [id, number, number, number, number, small, number, number, middle, body, b"data"];
        let read = |fields: &[&[u8]]| decode_advertisement(&message(fields), 0);
        let stored_row = read(&whole).unwrap().unwrap();
        assert_eq!(
            (stored_row.advertisement.connect_data.as_slice(), stored_row.is_heartbeat_owner),
            (&b"data"[..], true)
        );
        for (column, field, name) in [
            (0, small, "advertisement_id"),
            (5, middle, "kind"),
            (8, &[255; 4][..], "join_seats"),
            (9, b"\xff", "body"),
        ] {
            let mut fields = whole;
            fields[column] = field;
            let said = read(&fields).unwrap_err().to_string();
            assert!(said.contains(&format!("column {name}")), "{said}");
        }
        assert!(read(&whole[..10]).is_err(), "too few columns");
        let (short, null) = (message(&whole), [&11_i16.to_be_bytes()[..], &[255; 4]].concat());
        assert!(decode_advertisement(&short[..short.len() - 1], 0).is_err() && decode_advertisement(&null, 0).is_err());
    }

    #[test]
    fn a_copy_of_nothing_is_no_advertisement() {
        let head = [COPY_SIGNATURE, &[0; 8]].concat();
        for end in [head.clone(), END_OF_COPY.to_be_bytes().to_vec(), [&head[..], &END_OF_COPY.to_be_bytes()].concat()]
        {
            assert_eq!(decode_advertisement(&end, 0).unwrap(), None);
        }
    }
}
