//! Beacons of the Postgres store.

use async_trait::async_trait;
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::store::beacons::{
    BeaconAnnouncement, BeaconStore, StoredBeacon, decode_beacon, encode_beacon_json, is_new_or_at_same_place,
};
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::rows::to_ms;

const READ_BEACONS: &str = "select id, announced_at_ms, body from beacon order by id";

/// Excludes another announcement of the same beacon.
const LOCK_BEACON: &str = "select id, announced_at_ms, body from beacon where id = $1 for update";

const UPSERT_BEACON: &str = "insert into beacon (id, announced_at_ms, body) values ($1, $2, $3) \
     on conflict (id) do update set announced_at_ms = excluded.announced_at_ms, body = excluded.body";

const PURGE_BEACONS: &str = "delete from beacon where announced_at_ms < $1";

#[async_trait]
impl BeaconStore for PostgresStore {
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let body = encode_beacon_json(&announcement.beacon.body)?;
        let mut slot = self.background_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "announcing a beacon", |connection| {
            announce(connection, announcement, &body)
        })
    }

    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "reading beacons", |connection| read_beacons(connection))
    }
}

async fn announce(
    connection: &mut PgConnection,
    BeaconAnnouncement { beacon, purge_before }: &BeaconAnnouncement,
    body: &str,
) -> Result<Vec<StoredBeacon>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query(PURGE_BEACONS).bind(to_ms(*purge_before)).execute(&mut *transaction).await?;
    let id = i64::from(beacon.id);
    let locked: Option<(i64, i64, String)> =
        sqlx::query_as(LOCK_BEACON).bind(id).fetch_optional(&mut *transaction).await?;
    let stored = locked.and_then(|(id, announced_at_ms, body)| decode_beacon(id, announced_at_ms, &body));
    if is_new_or_at_same_place(stored.as_ref(), beacon) {
        let upsert = sqlx::query(UPSERT_BEACON).bind(id).bind(to_ms(beacon.announced_at)).bind(body);
        upsert.execute(&mut *transaction).await?;
    }
    let after = read_beacons(&mut transaction).await?;
    transaction.commit().await?;
    Ok(after)
}

async fn read_beacons(connection: &mut PgConnection) -> Result<Vec<StoredBeacon>, sqlx::Error> {
    let rows: Vec<(i64, i64, String)> = sqlx::query_as(READ_BEACONS).fetch_all(connection).await?;
    Ok(rows.iter().filter_map(|(id, announced_at_ms, body)| decode_beacon(*id, *announced_at_ms, body)).collect())
}
