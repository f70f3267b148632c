//! Decoder of the binary COPY format (`copy … to stdout`, chapter "COPY" of the Postgres manual) into advertisements.
//! Each row is one message: the number of fields, then each field after its length, -1 for null; numbers are
//! big-endian.

use std::borrow::Cow;
use std::sync::Arc;

use crate::domain::id::AdvertisementId;
use crate::store::adverts::{AdvertVersion, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::rows::AdvertisementRow;
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Start of the first message; the first row follows in the same message.
const COPY_SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Field count of the last message.
const END_OF_COPY: i16 = -1;

/// Number of columns of `statements::copy_advertisements_out_sql`.
const COLUMN_COUNT: i16 = 13;

/// Decodes the advertisement in a message; `None` for the last message and for a row of a newer server. `replica_id` is
/// this server.
pub(super) fn decode_advertisement(
    message: &[u8],
    replica_id: i64,
    unknown_rows: &UnknownRows,
) -> Result<Option<StoredAdvertisement>, StoreError> {
    let mut fields = CopyReader { remaining: message };
    if message.starts_with(COPY_SIGNATURE) {
        // Flags, and an extension of the header.
        fields.take_bytes(COPY_SIGNATURE.len() + 4, "signature")?;
        let extension_bytes = i32::from_be_bytes(fields.take_array("signature")?);
        fields.take_bytes(usize::try_from(extension_bytes).unwrap_or(0), "signature")?;
        if fields.remaining.is_empty() {
            return Ok(None);
        }
    }
    match i16::from_be_bytes(fields.take_array("advertisement_id")?) {
        COLUMN_COUNT => {}
        END_OF_COPY => return Ok(None),
        other => return Err(corrupt_row("advertisement_id", format!("{other} columns, not {COLUMN_COUNT}"))),
    }
    let id = fields.field_array("advertisement_id")?;
    let version = AdvertVersion(i64::from_be_bytes(fields.field_array("version")?));
    let is_heartbeat_owner = i64::from_be_bytes(fields.field_array("heartbeat_owner")?) == replica_id;
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
        ttl_ms: fields.nullable_int32("ttl_ms")?.map(i64::from),
        beacon_vector: fields.nullable_bytes("beacon_vector")?.map(<[u8]>::to_vec),
    };
    let expires_at = row.expiry_at_publication();
    let key = RowKey::Advertisement(AdvertisementId::from_bytes(id));
    let Some(advertisement) = unknown_rows.none_if_unknown(key, row.decode())?.map(Arc::new) else { return Ok(None) };
    Ok(Some(StoredAdvertisement { advertisement, expires_at, reservations: Vec::new(), version, is_heartbeat_owner }))
}

/// Remaining bytes of a row.
struct CopyReader<'a> {
    remaining: &'a [u8],
}

impl<'a> CopyReader<'a> {
    fn take_bytes(&mut self, count: usize, column: &'static str) -> Result<&'a [u8], StoreError> {
        let (bytes, remaining) =
            self.remaining.split_at_checked(count).ok_or_else(|| corrupt_row(column, "ends too early".into()))?;
        self.remaining = remaining;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        to_array(self.take_bytes(N, column)?, column)
    }

    /// Bytes of a field that cannot be null.
    fn field_bytes(&mut self, column: &'static str) -> Result<&'a [u8], StoreError> {
        self.nullable_bytes(column)?.ok_or_else(|| corrupt_row(column, "null".into()))
    }

    /// Bytes of a field; `None` for null, whose length is -1.
    fn nullable_bytes(&mut self, column: &'static str) -> Result<Option<&'a [u8]>, StoreError> {
        let length = i32::from_be_bytes(self.take_array(column)?);
        usize::try_from(length).ok().map(|length| self.take_bytes(length, column)).transpose()
    }

    fn nullable_int32(&mut self, column: &'static str) -> Result<Option<i32>, StoreError> {
        let bytes = self.nullable_bytes(column)?;
        bytes.map(|bytes| to_array(bytes, column).map(i32::from_be_bytes)).transpose()
    }

    fn field_text(&mut self, column: &'static str) -> Result<&'a str, StoreError> {
        std::str::from_utf8(self.field_bytes(column)?).map_err(|error| corrupt_row(column, error.to_string()))
    }

    /// Bytes of a field of `N` bytes.
    fn field_array<const N: usize>(&mut self, column: &'static str) -> Result<[u8; N], StoreError> {
        to_array(self.field_bytes(column)?, column)
    }
}

fn to_array<const N: usize>(bytes: &[u8], column: &'static str) -> Result<[u8; N], StoreError> {
    bytes.try_into().map_err(|_| corrupt_row(column, format!("length {} is not {N}", bytes.len())))
}

fn corrupt_row(column: &'static str, reason: String) -> StoreError {
    StoreError::CorruptRow { table: "advertisement", column, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::rows::blob_with_checksum;

    /// Message with the given fields, as Postgres sends it.
    fn message(fields: &[&[u8]]) -> Vec<u8> {
        let mut message = i16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        for field in fields {
            message.extend(i32::try_from(field.len()).unwrap().to_be_bytes());
            message.extend(*field);
        }
        message
    }

    #[test]
    fn copy_decode_reports_the_corrupt_column() {
        let [id, int64, int16, int32] = [&[1; 16][..], &[0; 8], &[0; 2], &[0; 4]];
        let body = br#"{"h":1,"z":[1]}"#;
        // Of no vector that this version knows.
        let vector = blob_with_checksum(Vec::new());
        let row = [id, int64, int64, int64, int64, int16, int64, int64, int32, body, b"data", &[0, 0, 1, 0], &vector];
        let decode = |fields: &[&[u8]]| decode_advertisement(&message(fields), 0, &UnknownRows::default());
        let stored = decode(&row).unwrap().unwrap();
        assert_eq!((&*stored.advertisement.connect_data, stored.is_heartbeat_owner), (&b"data"[..], true));
        let corrupt_fields = [
            (0, int16, "advertisement_id"),
            (5, int32, "kind"),
            (8, &[255; 4][..], "join_seats"),
            (9, b"\xff", "body"),
            (12, b"", "beacon_vector"),
        ];
        for (column, field, name) in corrupt_fields {
            let mut fields = row;
            fields[column] = field;
            let error = decode(&fields).unwrap_err().to_string();
            assert!(error.contains(&format!("column {name}")), "{error}");
        }
        assert!(decode(&row[..12]).is_err(), "too few columns");
        let (short, null) = (message(&row), [&13_i16.to_be_bytes()[..], &[255; 4]].concat());
        let unknown_rows = UnknownRows::default();
        assert!(decode_advertisement(&short[..short.len() - 1], 0, &unknown_rows).is_err());
        assert!(decode_advertisement(&null, 0, &unknown_rows).is_err());
    }

    #[test]
    fn copy_decode_of_the_end_is_none() {
        let header = [COPY_SIGNATURE, &[0; 8]].concat();
        for end in
            [header.clone(), END_OF_COPY.to_be_bytes().to_vec(), [&header[..], &END_OF_COPY.to_be_bytes()].concat()]
        {
            assert_eq!(decode_advertisement(&end, 0, &UnknownRows::default()).unwrap(), None);
        }
    }
}
