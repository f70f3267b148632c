//! What to write so that the database says what a batch came to, and the writing of it.

use std::collections::BTreeSet;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Reservation;
use crate::store::apply_writes::AdvertRows;
use crate::store::mutant;
use crate::store::postgres::commit::{CommitError, check_row_count};
use crate::store::postgres::statements as sql;
use crate::store::postgres::transaction::AdvertRowsBefore;
use crate::store::rows::{AdvertisementRow, ReservationRow, to_ms};

/// The difference between what was found and what the changes came to, by statement.
#[derive(Default)]
pub(super) struct AdvertRowChanges<'a> {
    replica_id: i64,
    /// Advertisements that go, or are made anew: their seats go with them.
    cleared_reservations: BTreeSet<AdvertisementId>,
    deleted: Vec<AdvertisementId>,
    /// Names that stay without an advertisement, until when; and those that nothing was known about.
    updated_to_tombstones: Vec<(AdvertisementId, UnixMs)>,
    inserted_tombstones: Vec<(AdvertisementId, UnixMs)>,
    updated: Vec<AdvertPublication<'a>>,
    inserted: Vec<AdvertPublication<'a>>,
    /// Expiry and holder of those that are not published again.
    expiry_updates: Vec<(AdvertisementId, UnixMs, i64)>,
    inserted_reservations: Vec<ReservationRow>,
    updated_reservations: Vec<ReservationRow>,
}

struct AdvertPublication<'a> {
    row: AdvertisementRow<'a>,
    deleted_until: Option<UnixMs>,
}

impl<'a> AdvertRowChanges<'a> {
    /// `extended` are those whose heartbeats server `replica` took.
    pub(super) fn between(
        before: &AdvertRowsBefore,
        after: &'a AdvertRows,
        extended: &BTreeSet<AdvertisementId>,
        replica: i64,
    ) -> Self {
        let mut difference = Self { replica_id: replica, ..Self::default() };
        let mut ids: BTreeSet<AdvertisementId> = before.advertisements.keys().copied().collect();
        ids.extend(after.advertisements.keys());
        ids.extend(after.tombstones.keys());
        for &id in &ids {
            difference.compare_advertisement(id, before, after);
        }
        let reseated = difference.compare_reservations(before, after);
        for (&id, standing) in after.advertisements.iter().filter(|(_, standing)| standing.new_advertisement.is_none())
        {
            let Some(found) = before.advertisements.get(&id) else { continue };
            let holder = if extended.contains(&id) { replica } else { found.heartbeat_owner };
            if standing.expires_at != found.expires_at || holder != found.heartbeat_owner || reseated.contains(&id) {
                difference.expiry_updates.push((id, standing.expires_at, holder));
            }
        }
        difference
    }

    /// Which statement, if any, brings the row of `id` to where the changes came to, but for what `touched` does.
    fn compare_advertisement(&mut self, id: AdvertisementId, before: &AdvertRowsBefore, after: &'a AdvertRows) {
        let found = before.advertisements.get(&id);
        let deleted_until = after.tombstones.get(&id).copied();
        let standing = after.advertisements.get(&id);
        if found.is_some_and(|found| found.is_advertised) && standing.is_none_or(|standing| standing.created_in_batch) {
            self.cleared_reservations.insert(id);
        }
        match (found, standing) {
            (found, Some(standing)) => {
                let Some(advertisement) = &standing.new_advertisement else { return };
                let mut row = AdvertisementRow::encode(advertisement, standing.expires_at);
                row.since_ms = to_ms(standing.advertised_since);
                let publication = AdvertPublication { row, deleted_until };
                if found.is_some() { self.updated.push(publication) } else { self.inserted.push(publication) }
            }
            (None, None) => self.inserted_tombstones.extend(deleted_until.map(|until| (id, until))),
            (Some(found), None) => match deleted_until {
                Some(until) if found.is_advertised || found.deleted_until != Some(until) => {
                    self.updated_to_tombstones.push((id, until))
                }
                None if found.is_advertised => self.deleted.push(id),
                _ => {}
            },
        }
    }

    /// What becomes of reservations; says whose advertisements they are in.
    fn compare_reservations(&mut self, before: &AdvertRowsBefore, after: &AdvertRows) -> BTreeSet<AdvertisementId> {
        let mut reseated = BTreeSet::new();
        for reservation in after.reservations.values() {
            // One that goes with its advertisement and is then made anew looks unchanged, and has to be written.
            let stays = |it: &&Reservation| !self.cleared_reservations.contains(&it.advertisement_id);
            match before.reservations.get(&reservation.id).filter(stays) {
                Some(known) if known == reservation => continue,
                Some(_) => self.updated_reservations.push(ReservationRow::encode(reservation)),
                None => self.inserted_reservations.push(ReservationRow::encode(reservation)),
            }
            reseated.insert(reservation.advertisement_id);
        }
        reseated
    }

    /// The advertisements whose version this moves.
    pub(super) fn changed_ids(&self) -> BTreeSet<AdvertisementId> {
        let published = self.updated.iter().chain(&self.inserted).map(|it| AdvertisementId::from_bytes(it.row.id));
        let names = self.updated_to_tombstones.iter().chain(&self.inserted_tombstones).map(|(id, _)| *id);
        let touched = self.expiry_updates.iter().map(|(id, ..)| *id);
        self.deleted.iter().copied().chain(published).chain(names).chain(touched).collect()
    }

    /// Writes it all. What goes goes first: what is made anew must not be taken away by its own removal.
    pub(super) async fn write(&self, to: &mut PgConnection) -> Result<(), CommitError> {
        if mutant::is("reservation_in_a_transaction_of_its_own") {
            self.write_reservations(to).await?;
            to.execute("commit").await?;
            to.execute("begin").await?;
        }
        if !self.cleared_reservations.is_empty() {
            sqlx::query(sql::DELETE_RESERVATIONS)
                .bind(advertisement_uuids(&self.cleared_reservations))
                .execute(&mut *to)
                .await?;
        }
        if !self.deleted.is_empty() {
            sqlx::query(sql::DELETE_ADVERTISEMENTS).bind(advertisement_uuids(&self.deleted)).execute(&mut *to).await?;
        }
        if !self.updated_to_tombstones.is_empty() {
            let query = sqlx::query(sql::UPDATE_TO_TOMBSTONES)
                .bind(advertisement_uuids(self.updated_to_tombstones.iter().map(|(id, _)| id)));
            query.bind(deleted_until_column(&self.updated_to_tombstones)).execute(&mut *to).await?;
        }
        if !self.inserted_tombstones.is_empty() {
            let query = sqlx::query(sql::INSERT_TOMBSTONES)
                .bind(advertisement_uuids(self.inserted_tombstones.iter().map(|(id, _)| id)));
            let made = query.bind(deleted_until_column(&self.inserted_tombstones)).execute(&mut *to).await?;
            check_row_count(made.rows_affected(), self.inserted_tombstones.len())?;
        }
        if !self.updated.is_empty() {
            self.write_publications(sql::UPDATE_ADVERTISEMENTS, &self.updated, to).await?;
        }
        if !self.inserted.is_empty() {
            let made = self.write_publications(sql::INSERT_ADVERTISEMENTS, &self.inserted, to).await?;
            check_row_count(made, self.inserted.len())?;
        }
        if !self.expiry_updates.is_empty() {
            let query = sqlx::query(sql::UPDATE_EXPIRY)
                .bind(advertisement_uuids(self.expiry_updates.iter().map(|(id, ..)| id)));
            let expires: Vec<i64> = self.expiry_updates.iter().map(|(_, expires, _)| to_ms(*expires)).collect();
            let holders: Vec<i64> = self.expiry_updates.iter().map(|(.., holder)| *holder).collect();
            query.bind(expires).bind(holders).execute(&mut *to).await?;
        }
        match mutant::is("reservation_in_a_transaction_of_its_own") {
            true => Ok(()),
            false => self.write_reservations(to).await,
        }
    }

    async fn write_publications(
        &self,
        statement: &'static str,
        all: &[AdvertPublication<'_>],
        to: &mut PgConnection,
    ) -> Result<u64, CommitError> {
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| all.iter().map(|it| of(&it.row)).collect::<Vec<i64>>();
        let query = sqlx::query(statement)
            .bind(all.iter().map(|it| Uuid::from_bytes(it.row.id)).collect::<Vec<_>>())
            .bind(self.replica_id)
            .bind(column(|row| row.silo_id))
            .bind(column(|row| row.set_id))
            .bind(all.iter().map(|it| it.row.kind as i16).collect::<Vec<_>>())
            .bind(column(|row| row.since_ms))
            .bind(column(|row| row.expires_ms))
            .bind(all.iter().map(|it| it.row.join_seats as i32).collect::<Vec<_>>())
            .bind(all.iter().map(|it| &*it.row.body).collect::<Vec<&str>>())
            .bind(all.iter().map(|it| &*it.row.connect_data).collect::<Vec<&[u8]>>())
            .bind(all.iter().map(|it| it.deleted_until.map(to_ms)).collect::<Vec<Option<i64>>>());
        Ok(query.execute(to).await?.rows_affected())
    }

    async fn write_reservations(&self, to: &mut PgConnection) -> Result<(), CommitError> {
        if !self.inserted_reservations.is_empty() {
            let rows = &self.inserted_reservations;
            let query = sqlx::query(sql::INSERT_RESERVATIONS)
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.advertisement_id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.seats as i32).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.users.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.payload.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.until_ms).collect::<Vec<_>>());
            check_row_count(query.execute(&mut *to).await?.rows_affected(), rows.len())?;
        }
        if !self.updated_reservations.is_empty() {
            let rows = &self.updated_reservations;
            let query = sqlx::query(sql::UPDATE_RESERVATIONS)
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.until_ms).collect::<Vec<_>>());
            query.execute(to).await?;
        }
        Ok(())
    }
}

fn advertisement_uuids<'a>(ids: impl IntoIterator<Item = &'a AdvertisementId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect()
}

fn deleted_until_column(names: &[(AdvertisementId, UnixMs)]) -> Vec<i64> {
    names.iter().map(|(_, until)| to_ms(*until)).collect()
}
