//! Row changes of an advertisement batch, and the statements that write them.

use std::collections::BTreeSet;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::adverts::apply_writes::AdvertRows;
use crate::store::adverts::{OwnerKey, Reservation};
use crate::store::postgres::adverts::rows_before::AdvertRowsBefore;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::connection::commit::{CommitError, check_row_count};
use crate::store::rows::{AdvertisementRow, ReservationRow, to_ms};

/// Difference between the rows before and after a batch, by statement.
#[derive(Default)]
pub(super) struct AdvertRowChanges<'a> {
    replica_id: i64,
    /// Advertisements that are removed, or removed and published again; their reservations are deleted.
    clear_reservations_of: BTreeSet<AdvertisementId>,
    deleted: Vec<AdvertisementId>,
    /// Advertisements that become tombstones, and tombstones for new ids; each with its end.
    updated_to_tombstones: Vec<(AdvertisementId, UnixMs)>,
    inserted_tombstones: Vec<(AdvertisementId, UnixMs)>,
    updated: Vec<AdvertPublication<'a>>,
    inserted: Vec<AdvertPublication<'a>>,
    /// Advertisements from which a user was erased.
    rewritten: Vec<AdvertPublication<'a>>,
    /// Expiry and heartbeat owner of advertisements that are not published again.
    expiry_and_heartbeat_owner_updates: Vec<(AdvertisementId, UnixMs, i64)>,
    inserted_reservations: Vec<ReservationRow>,
    updated_reservations: Vec<ReservationRow>,
    /// Reservations from which a user was erased.
    rewritten_reservations: Vec<ReservationRow>,
}

struct AdvertPublication<'a> {
    row: AdvertisementRow<'a>,
    deleted_until: Option<UnixMs>,
    owner: Option<OwnerKey>,
    create_digest: Option<[u8; 16]>,
}

impl<'a> AdvertRowChanges<'a> {
    /// Compares the rows. `extended` are the advertisements whose heartbeats this server, `replica_id`, received.
    pub(super) fn between(
        before: &AdvertRowsBefore,
        after: &'a AdvertRows,
        extended: &BTreeSet<AdvertisementId>,
        replica_id: i64,
    ) -> Self {
        let mut changes = Self { replica_id, ..Self::default() };
        let mut ids: BTreeSet<AdvertisementId> = before.advertisements.keys().copied().collect();
        ids.extend(after.advertisements.keys());
        ids.extend(after.tombstones.keys());
        for &id in &ids {
            changes.compare_advertisement(id, before, after);
        }
        let changed_reservations = changes.compare_reservations(before, after);
        for (&id, row_state) in
            after.advertisements.iter().filter(|(_, row)| row.new_advertisement.is_none() || row.is_erasure_rewrite)
        {
            let Some(stored) = before.advertisements.get(&id) else { continue };
            let heartbeat_owner = if extended.contains(&id) { replica_id } else { stored.heartbeat_owner };
            if row_state.expires_at != stored.expires_at
                || heartbeat_owner != stored.heartbeat_owner
                || changed_reservations.contains(&id)
            {
                changes.expiry_and_heartbeat_owner_updates.push((id, row_state.expires_at, heartbeat_owner));
            }
        }
        changes
    }

    /// Selects the statement for the row of `id`, except for `expiry_and_heartbeat_owner_updates`.
    fn compare_advertisement(&mut self, id: AdvertisementId, before: &AdvertRowsBefore, after: &'a AdvertRows) {
        let stored = before.advertisements.get(&id);
        let deleted_until = after.tombstones.get(&id).copied();
        let row_state = after.advertisements.get(&id);
        if stored.is_some_and(|stored| stored.is_advertised)
            && row_state.is_none_or(|row_state| row_state.created_in_batch)
        {
            self.clear_reservations_of.insert(id);
        }
        match (stored, row_state) {
            (stored, Some(row_state)) => {
                let Some(advertisement) = &row_state.new_advertisement else { return };
                let mut row = AdvertisementRow::encode(advertisement, row_state.expires_at);
                row.since_ms = to_ms(row_state.advertised_since);
                let publication = AdvertPublication {
                    row,
                    deleted_until,
                    owner: row_state.owner,
                    create_digest: row_state.create_digest,
                };
                match stored {
                    Some(_) if row_state.is_erasure_rewrite => self.rewritten.push(publication),
                    Some(_) => self.updated.push(publication),
                    None => self.inserted.push(publication),
                }
            }
            (None, None) => self.inserted_tombstones.extend(deleted_until.map(|until| (id, until))),
            (Some(stored), None) => match deleted_until {
                Some(until) if stored.is_advertised || stored.deleted_until != Some(until) => {
                    self.updated_to_tombstones.push((id, until))
                }
                None if stored.is_advertised => self.deleted.push(id),
                _ => {}
            },
        }
    }

    /// Compares the reservations; returns the advertisements whose reservations changed.
    fn compare_reservations(&mut self, before: &AdvertRowsBefore, after: &AdvertRows) -> BTreeSet<AdvertisementId> {
        let mut changed_reservations = BTreeSet::new();
        for reservation in after.reservations.values() {
            // A reservation that was removed with its advertisement and made again looks unchanged, but must be
            // written.
            let remains = |stored: &&Reservation| !self.clear_reservations_of.contains(&stored.advertisement_id);
            match before.reservations.get(&reservation.id).filter(remains) {
                Some(stored) if stored == reservation => continue,
                Some(stored) if stored.differs_in_erased_columns(reservation) => {
                    self.rewritten_reservations.push(ReservationRow::encode(reservation))
                }
                Some(_) => self.updated_reservations.push(ReservationRow::encode(reservation)),
                None => self.inserted_reservations.push(ReservationRow::encode(reservation)),
            }
            changed_reservations.insert(reservation.advertisement_id);
        }
        changed_reservations
    }

    /// Advertisements whose version changes.
    pub(super) fn changed_ids(&self) -> BTreeSet<AdvertisementId> {
        let published = self.updated.iter().chain(&self.inserted).chain(&self.rewritten);
        let published = published.map(|publication| AdvertisementId::from_bytes(publication.row.id));
        let tombstones = self.updated_to_tombstones.iter().chain(&self.inserted_tombstones).map(|(id, _)| *id);
        let refreshed = self.expiry_and_heartbeat_owner_updates.iter().map(|(id, ..)| *id);
        self.deleted.iter().copied().chain(published).chain(tombstones).chain(refreshed).collect()
    }

    /// Executes all statements. Deletes run first; otherwise they would remove the new rows.
    pub(super) async fn write(&self, connection: &mut PgConnection) -> Result<(), CommitError> {
        if fail_point_commits_reservations_separately() {
            self.write_reservations(connection).await?;
            connection.execute("commit").await?;
            connection.execute("begin").await?;
        }
        if !self.clear_reservations_of.is_empty() {
            sqlx::query(sql::DELETE_ADVERTISEMENT_RESERVATIONS)
                .bind(advertisement_uuids(&self.clear_reservations_of))
                .execute(&mut *connection)
                .await?;
        }
        if !self.deleted.is_empty() {
            sqlx::query(sql::DELETE_ADVERTISEMENTS)
                .bind(advertisement_uuids(&self.deleted))
                .execute(&mut *connection)
                .await?;
        }
        if !self.updated_to_tombstones.is_empty() {
            let query = sqlx::query(sql::UPDATE_TO_TOMBSTONES)
                .bind(advertisement_uuids(self.updated_to_tombstones.iter().map(|(id, _)| id)));
            query.bind(deleted_until_column(&self.updated_to_tombstones)).execute(&mut *connection).await?;
        }
        if !self.inserted_tombstones.is_empty() {
            let query = sqlx::query(sql::INSERT_TOMBSTONES)
                .bind(advertisement_uuids(self.inserted_tombstones.iter().map(|(id, _)| id)));
            let inserted =
                query.bind(deleted_until_column(&self.inserted_tombstones)).execute(&mut *connection).await?;
            check_row_count(inserted.rows_affected(), self.inserted_tombstones.len())?;
        }
        if !self.updated.is_empty() {
            self.write_publications(sql::UPDATE_ADVERTISEMENTS, &self.updated, connection).await?;
        }
        self.write_erasures(&mut *connection).await?;
        if !self.inserted.is_empty() {
            let inserted = self.write_publications(sql::INSERT_ADVERTISEMENTS, &self.inserted, connection).await?;
            check_row_count(inserted, self.inserted.len())?;
        }
        if !self.expiry_and_heartbeat_owner_updates.is_empty() {
            let query = sqlx::query(sql::UPDATE_EXPIRY_AND_HEARTBEAT_OWNER)
                .bind(advertisement_uuids(self.expiry_and_heartbeat_owner_updates.iter().map(|(id, ..)| id)));
            let expires_at: Vec<i64> =
                self.expiry_and_heartbeat_owner_updates.iter().map(|(_, expires_at, _)| to_ms(*expires_at)).collect();
            let heartbeat_owners: Vec<i64> =
                self.expiry_and_heartbeat_owner_updates.iter().map(|(.., heartbeat_owner)| *heartbeat_owner).collect();
            query.bind(expires_at).bind(heartbeat_owners).execute(&mut *connection).await?;
        }
        if fail_point_commits_reservations_separately() {
            return Ok(());
        }
        self.write_reservations(connection).await
    }

    /// Rewrites the advertisements and reservations from which a user was erased.
    async fn write_erasures(&self, connection: &mut PgConnection) -> Result<(), CommitError> {
        if !self.rewritten.is_empty() {
            let query = sqlx::query(sql::ERASE_USERS_FROM_ADVERTISEMENTS)
                .bind(self.rewritten.iter().map(|erased| Uuid::from_bytes(erased.row.id)).collect::<Vec<_>>())
                .bind(self.rewritten.iter().map(|erased| &*erased.row.body).collect::<Vec<&str>>())
                .bind(owners_to_column(self.rewritten.iter().map(|erased| erased.owner)))
                .bind(digests_to_column(self.rewritten.iter().map(|erased| erased.create_digest)));
            query.execute(&mut *connection).await?;
        }
        if !self.rewritten_reservations.is_empty() {
            let rows = &self.rewritten_reservations;
            let query = sqlx::query(sql::REWRITE_RESERVATIONS)
                .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.deadline_ms).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.seats as i32).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.users.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.request_digest.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.owner.map(Uuid::from_bytes)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.party.map(Uuid::from_bytes)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.joined).collect::<Vec<_>>());
            query.execute(connection).await?;
        }
        Ok(())
    }

    async fn write_publications(
        &self,
        statement: &'static str,
        publications: &[AdvertPublication<'_>],
        connection: &mut PgConnection,
    ) -> Result<u64, CommitError> {
        let rows = || publications.iter().map(|publication| &publication.row);
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| rows().map(of).collect::<Vec<i64>>();
        let query = sqlx::query(statement)
            .bind(rows().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
            .bind(self.replica_id)
            .bind(column(|row| row.silo_id))
            .bind(column(|row| row.set_id))
            .bind(rows().map(|row| row.kind as i16).collect::<Vec<_>>())
            .bind(column(|row| row.since_ms))
            .bind(column(|row| row.expires_ms))
            .bind(rows().map(|row| row.join_seats as i32).collect::<Vec<_>>())
            .bind(rows().map(|row| &*row.body).collect::<Vec<&str>>())
            .bind(rows().map(|row| &*row.connect_data).collect::<Vec<&[u8]>>())
            .bind(
                publications
                    .iter()
                    .map(|publication| publication.deleted_until.map(to_ms))
                    .collect::<Vec<Option<i64>>>(),
            )
            .bind(rows().map(|row| row.ttl_ms.map(|ttl_ms| ttl_ms as i32)).collect::<Vec<_>>())
            .bind(owners_to_column(publications.iter().map(|publication| publication.owner)))
            .bind(digests_to_column(publications.iter().map(|publication| publication.create_digest)))
            .bind(rows().map(|row| row.beacon_vector.as_deref()).collect::<Vec<_>>());
        Ok(query.execute(connection).await?.rows_affected())
    }

    async fn write_reservations(&self, connection: &mut PgConnection) -> Result<(), CommitError> {
        if !self.inserted_reservations.is_empty() {
            let rows = &self.inserted_reservations;
            let query = sqlx::query(sql::INSERT_RESERVATIONS)
                .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| Uuid::from_bytes(row.advertisement_id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.seats as i32).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.users.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.request_digest.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.deadline_ms).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.owner.map(Uuid::from_bytes)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.party.map(Uuid::from_bytes)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.joined).collect::<Vec<_>>());
            check_row_count(query.execute(&mut *connection).await?.rows_affected(), rows.len())?;
        }
        if !self.updated_reservations.is_empty() {
            let rows = &self.updated_reservations;
            let query = sqlx::query(sql::UPDATE_RESERVATIONS)
                .bind(rows.iter().map(|row| Uuid::from_bytes(row.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.deadline_ms).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.seats as i32).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.users.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.joined).collect::<Vec<_>>());
            query.execute(connection).await?;
        }
        Ok(())
    }
}

fn advertisement_uuids<'a>(ids: impl IntoIterator<Item = &'a AdvertisementId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect()
}

fn deleted_until_column(tombstones: &[(AdvertisementId, UnixMs)]) -> Vec<i64> {
    tombstones.iter().map(|(_, until)| to_ms(*until)).collect()
}

/// Column of owners, null for those that are not counted.
pub(super) fn owners_to_column(owners: impl Iterator<Item = Option<OwnerKey>>) -> Vec<Option<Uuid>> {
    owners.map(|owner| owner.map(|owner| Uuid::from_bytes(*owner.as_bytes()))).collect()
}

/// Column of digests of requests, null where there is none.
pub(super) fn digests_to_column(digests: impl Iterator<Item = Option<[u8; 16]>>) -> Vec<Option<Uuid>> {
    digests.map(|digest| digest.map(Uuid::from_bytes)).collect()
}

/// Whether the fail point is on that commits reservations in a transaction of their own.
fn fail_point_commits_reservations_separately() -> bool {
    fail::fail_point!("commit_reservations_separately", |_| true);
    false
}
