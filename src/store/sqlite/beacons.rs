//! Beacons of the SQLite store.

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;

use crate::store::beacons::{
    BeaconAnnouncement, BeaconStore, StoredBeacon, decode_beacon, encode_beacon_json, is_new_or_at_same_place,
};
use crate::store::error::StoreError;
use crate::store::rows::to_ms;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::to_store_error;

const READ_BEACONS: &str = "select id, announced_at_ms, body from beacon order by id";

const UPSERT_BEACON: &str = "insert into beacon (id, announced_at_ms, body) values (?, ?, ?) \
     on conflict (id) do update set announced_at_ms = excluded.announced_at_ms, body = excluded.body";

const PURGE_BEACONS: &str = "delete from beacon where announced_at_ms < ?";

#[async_trait]
impl BeaconStore for SqliteStore {
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, announcement) = (self.path.clone(), announcement.clone());
        let body = encode_beacon_json(&announcement.beacon.body)?;
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = announce(&mut connection, &announcement, &body).await.map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = read_beacons(&mut connection).await.map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }
}

/// Applies an announcement in one transaction. After an error the caller closes the connection, which rolls back.
async fn announce(
    connection: &mut SqliteConnection,
    BeaconAnnouncement { beacon, purge_before }: &BeaconAnnouncement,
    body: &str,
) -> Result<Vec<StoredBeacon>, sqlx::Error> {
    sqlx::query("begin immediate").execute(&mut *connection).await?;
    sqlx::query(PURGE_BEACONS).bind(to_ms(*purge_before)).execute(&mut *connection).await?;
    let stored = read_beacons(connection).await?;
    if is_new_or_at_same_place(stored.iter().find(|stored| stored.id == beacon.id), beacon) {
        let upsert = sqlx::query(UPSERT_BEACON).bind(i64::from(beacon.id)).bind(to_ms(beacon.announced_at)).bind(body);
        upsert.execute(&mut *connection).await?;
    }
    let after = read_beacons(connection).await?;
    sqlx::query("commit").execute(connection).await?;
    Ok(after)
}

async fn read_beacons(connection: &mut SqliteConnection) -> Result<Vec<StoredBeacon>, sqlx::Error> {
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(READ_BEACONS).fetch_all(connection).await?;
    Ok(rows.iter().filter_map(|(id, announced_at_ms, body)| decode_beacon(*id, *announced_at_ms, body)).collect())
}
