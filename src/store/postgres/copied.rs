//! From a row as Postgres copies it out (`copy … to stdout`, binary format, chapter "COPY" of its manual) to an
//! advertisement. A row is a message: the number of its fields, and each after its length, -1 for null; numbers big-endian.

use std::borrow::Cow;

use crate::store::rows::AdvertisementRow;
use crate::store::{StoreError, StoredAdvertisement, Version};

/// What the copy begins with; its first row follows in the same message.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// The number of fields of the message that ends it.
const END: i16 = -1;

/// The columns of `statements::copy_all`.
const COLUMNS: i16 = 11;

/// The advertisement in a message of the copy; none in the last one. `replica` is who asks.
pub(super) fn stored(message: &[u8], replica: i64) -> Result<Option<StoredAdvertisement>, StoreError> {
    let mut fields = Fields { rest: message };
    if message.starts_with(SIGNATURE) {
        // Flags, and what a later version adds.
        fields.bytes(SIGNATURE.len() + 4, "signature")?;
        let more = i32::from_be_bytes(fields.number("signature")?);
        fields.bytes(usize::try_from(more).unwrap_or(0), "signature")?;
        if fields.rest.is_empty() {
            return Ok(None);
        }
    }
    match i16::from_be_bytes(fields.number("advertisement_id")?) {
        COLUMNS => {}
        END => return Ok(None),
        other => return Err(corrupt("advertisement_id", format!("a row of {other} columns, not {COLUMNS}"))),
    }
    let id = fields.field("advertisement_id")?;
    let version = Version(i64::from_be_bytes(fields.field("version")?));
    let held_here = i64::from_be_bytes(fields.field("holder")?) == replica;
    let row = AdvertisementRow {
        id,
        silo_id: i64::from_be_bytes(fields.field("silo_id")?),
        set_id: i64::from_be_bytes(fields.field("set_id")?),
        kind: i64::from(i16::from_be_bytes(fields.field("kind")?)),
        since_ms: i64::from_be_bytes(fields.field("since_ms")?),
        expires_ms: i64::from_be_bytes(fields.field("expires_ms")?),
        join_seats: i64::from(i32::from_be_bytes(fields.field("join_seats")?)),
        body: Cow::Borrowed(fields.text("body")?),
        connect_data: Cow::Borrowed(fields.blob("connect_data")?),
    };
    let expires = row.expires();
    let advertisement = row.advertisement()?.into();
    Ok(Some(StoredAdvertisement { advertisement, expires, reservations: Vec::new(), version, held_here }))
}

/// What has not been read of a row.
struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize, column: &'static str) -> Result<&'a [u8], StoreError> {
        let (bytes, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| corrupt(column, "it ends too soon".into()))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        let bytes = self.bytes(N, column)?;
        bytes.try_into().map_err(|_| corrupt(column, format!("{} bytes, not {N}", bytes.len())))
    }

    /// A field of any length; null is none of ours.
    fn blob(&mut self, column: &'static str) -> Result<&'a [u8], StoreError> {
        let length = i32::from_be_bytes(self.number(column)?);
        let length = usize::try_from(length).map_err(|_| corrupt(column, "it is null".into()))?;
        self.bytes(length, column)
    }

    fn text(&mut self, column: &'static str) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.blob(column)?).map_err(|error| corrupt(column, error.to_string()))
    }

    /// A field of just so many bytes.
    fn field<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        let bytes = self.blob(column)?;
        bytes.try_into().map_err(|_| corrupt(column, format!("{} bytes, not {N}", bytes.len())))
    }
}

fn corrupt(column: &'static str, what: String) -> StoreError {
    StoreError::Corrupt { table: "advertisement", column, what }
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
        let read = |fields: &[&[u8]]| stored(&message(fields), 0);
        let stored_row = read(&whole).unwrap().unwrap();
        assert_eq!((stored_row.advertisement.connect_data.as_slice(), stored_row.held_here), (&b"data"[..], true));
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
        assert!(stored(&short[..short.len() - 1], 0).is_err() && stored(&null, 0).is_err());
    }

    #[test]
    fn a_copy_of_nothing_is_no_advertisement() {
        let head = [SIGNATURE, &[0; 8]].concat();
        for end in [head.clone(), END.to_be_bytes().to_vec(), [&head[..], &END.to_be_bytes()].concat()] {
            assert_eq!(stored(&end, 0).unwrap(), None);
        }
    }
}
