//! Reads from a snapshot for the consistency check: on their own connections, closed at once, so that writers do not
//! wait.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::Connection;
use sqlx::Row;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::store::adverts::{AdvertVersion, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::rows;
use crate::store::sqlite::adverts::page_decode::AdvertPage;
use crate::store::sqlite::adverts::statements as sql;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::hex_json_array::hex_json_array;
use crate::store::sqlite::connection::open;
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Reads the advertisements among `ids` that exist and are known, in id order, from one snapshot.
pub(super) async fn read_advertisements(
    path: &Path,
    ids: &[AdvertisementId],
    unknown_rows: &UnknownRows,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let id_list = hex_json_array(ids.iter().map(AdvertisementId::as_bytes));
    let mut connection = open::connect(path).await?;
    // Both queries see the snapshot of the first.
    let mut snapshot = connection.begin().await.map_err(to_store_error)?;
    let page = sqlx::query(sql::READ_ADVERTISEMENTS_WITH_IDS)
        .bind(&id_list)
        .fetch_one(&mut *snapshot)
        .await
        .map_err(to_store_error)?;
    let reservation_rows = sqlx::query(sql::READ_RESERVATIONS_OF_ADVERTISEMENTS)
        .bind(&id_list)
        .fetch_all(&mut *snapshot)
        .await
        .map_err(to_store_error)?;
    snapshot.rollback().await.map_err(to_store_error)?;
    let _ = connection.close().await;

    let mut found: HashMap<AdvertisementId, StoredAdvertisement, BuildIdHasher> = HashMap::default();
    let is_empty = page.try_get::<Option<&str>, _>(1).map_err(to_store_error)?.is_none();
    for row in if is_empty { None } else { Some(AdvertPage::from_row(&page)?) }.into_iter().flatten() {
        let (row, heartbeat_expires_at) = row?;
        let expires_at = heartbeat_expires_at.unwrap_or(row.expiry_at_publication());
        let id = AdvertisementId::from_bytes(row.id);
        let decoded = unknown_rows.none_if_unknown(RowKey::Advertisement(id), row.decode())?;
        let Some(advertisement) = decoded.map(Arc::new) else { continue };
        let stored = StoredAdvertisement {
            advertisement,
            expires_at,
            reservations: Vec::new(),
            version: AdvertVersion::default(),
            is_heartbeat_owner: false,
        };
        found.insert(stored.advertisement.id, stored);
    }
    for row in &reservation_rows {
        let id = rows::decode_advertisement_id_of_reservation(row)?;
        let decoded = unknown_rows.none_if_unknown(RowKey::Advertisement(id), rows::decode_reservation(row))?;
        let Some(reservation) = decoded else {
            found.remove(&id);
            continue;
        };
        if let Some(stored) = found.get_mut(&reservation.advertisement_id) {
            stored.reservations.push(reservation);
        }
    }
    let mut found: Vec<StoredAdvertisement> = found.into_values().collect();
    found.sort_unstable_by_key(|stored| stored.advertisement.id);
    Ok(found)
}

/// Lists at most `limit` ids from `first` on.
pub(super) async fn list_advertisement_ids(
    path: &Path,
    first: AdvertisementId,
    limit: usize,
) -> Result<Vec<AdvertisementId>, StoreError> {
    let mut connection = open::connect(path).await?;
    let query = sqlx::query_scalar(sql::LIST_ADVERTISEMENT_IDS).bind(first.as_bytes().as_slice());
    let ids: Vec<Vec<u8>> = query
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&mut connection)
        .await
        .map_err(to_store_error)?;
    let _ = connection.close().await;
    let decode_id = |bytes: Vec<u8>| <[u8; 16]>::try_from(bytes).map(AdvertisementId::from_bytes);
    let corrupt = |bytes: Vec<u8>| StoreError::CorruptRow {
        table: "advertisement",
        column: "advertisement_id",
        reason: format!("length {} is not 16", bytes.len()),
    };
    ids.into_iter().map(|bytes| decode_id(bytes).map_err(corrupt)).collect()
}
