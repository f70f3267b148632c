//! Ids as a column of uuids.

use sqlx::types::Uuid;

pub(in crate::store::postgres) fn to_uuids<'a>(ids: impl Iterator<Item = &'a [u8; 16]>) -> Vec<Uuid> {
    ids.map(|id| Uuid::from_bytes(*id)).collect()
}
