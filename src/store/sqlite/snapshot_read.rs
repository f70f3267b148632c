//! Reads some of what is in the file, for whoever compares: on connections of their own, so that nobody who writes has to
//! wait, and no longer open than it takes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::Connection;
use sqlx::Row;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::store::rows::{self, advert_page::AdvertPage};
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::transaction::hex_json_array;
use crate::store::sqlite::{open, to_store_error};
use crate::store::{AdvertVersion, StoreError, StoredAdvertisement};

/// Those of `ids` that are there, in their order, as of one moment.
pub(super) async fn read_advertisements(
    path: &Path,
    ids: &[AdvertisementId],
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let wanted = hex_json_array(ids.iter().map(AdvertisementId::as_bytes));
    let mut connection = open::connect(path).await?;
    // Both questions are answered by what was there when the first was asked.
    let mut moment = connection.begin().await.map_err(to_store_error)?;
    let page =
        sqlx::query(sql::READ_ADVERTISEMENTS).bind(&wanted).fetch_one(&mut *moment).await.map_err(to_store_error)?;
    let seats =
        sqlx::query(sql::READ_RESERVATIONS).bind(&wanted).fetch_all(&mut *moment).await.map_err(to_store_error)?;
    moment.rollback().await.map_err(to_store_error)?;
    let _ = connection.close().await;

    let mut there: HashMap<AdvertisementId, StoredAdvertisement, BuildIdHasher> = HashMap::default();
    let none = page.try_get::<Option<&str>, _>(1).map_err(to_store_error)?.is_none();
    for row in if none { None } else { Some(AdvertPage::from_row(&page)?) }.into_iter().flatten() {
        let (published, lease) = row?;
        let expires = lease.unwrap_or(published.published_expiry());
        let stored = StoredAdvertisement {
            advertisement: Arc::new(published.decode()?),
            expires_at: expires,
            reservations: Vec::new(),
            version: AdvertVersion::default(),
            is_heartbeat_owner: false,
        };
        there.insert(stored.advertisement.id, stored);
    }
    for row in &seats {
        let reservation = rows::decode_reservation(row)?;
        if let Some(stored) = there.get_mut(&reservation.advertisement_id) {
            stored.reservations.push(reservation);
        }
    }
    let mut there: Vec<StoredAdvertisement> = there.into_values().collect();
    there.sort_unstable_by_key(|stored| stored.advertisement.id);
    Ok(there)
}

/// The first `most` names, from `first` on.
pub(super) async fn list_advertisement_ids(
    path: &Path,
    first: AdvertisementId,
    most: usize,
) -> Result<Vec<AdvertisementId>, StoreError> {
    let mut connection = open::connect(path).await?;
    let query = sqlx::query_scalar(sql::LIST_ADVERTISEMENT_IDS).bind(first.as_bytes().as_slice());
    let names: Vec<Vec<u8>> =
        query.bind(i64::try_from(most).unwrap_or(i64::MAX)).fetch_all(&mut connection).await.map_err(to_store_error)?;
    let _ = connection.close().await;
    let name = |bytes: Vec<u8>| <[u8; 16]>::try_from(bytes).map(AdvertisementId::from_bytes);
    let corrupt = |bytes: Vec<u8>| StoreError::CorruptRow {
        table: "advertisement",
        column: "advertisement_id",
        reason: format!("{} bytes, not 16", bytes.len()),
    };
    names.into_iter().map(|bytes| name(bytes).map_err(corrupt)).collect()
}
