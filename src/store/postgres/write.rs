//! What to write so that the database says what a batch came to, and the writing of it.

use std::collections::BTreeSet;

use sqlx::Executor;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Reservation;
use crate::store::decide::Picture;
use crate::store::mutant;
use crate::store::postgres::attempt::{Trouble, all};
use crate::store::postgres::change::Before;
use crate::store::postgres::statements as sql;
use crate::store::rows::{AdvertisementRow, ReservationRow, to_ms};

/// The difference between what was found and what the changes came to, by statement.
#[derive(Default)]
pub(super) struct Difference<'a> {
    replica: i64,
    /// Advertisements that go, or are made anew: their seats go with them.
    stripped: BTreeSet<AdvertisementId>,
    removed: Vec<AdvertisementId>,
    /// Names that stay without an advertisement, until when; and those that nothing was known about.
    names: Vec<(AdvertisementId, UnixMs)>,
    new_names: Vec<(AdvertisementId, UnixMs)>,
    replaced: Vec<Publication<'a>>,
    made: Vec<Publication<'a>>,
    /// Expiry and holder of those that are not published again.
    touched: Vec<(AdvertisementId, UnixMs, i64)>,
    made_reservations: Vec<ReservationRow>,
    changed_reservations: Vec<ReservationRow>,
}

struct Publication<'a> {
    row: AdvertisementRow<'a>,
    deleted_until: Option<UnixMs>,
}

impl<'a> Difference<'a> {
    /// `extended` are those whose heartbeats server `replica` took.
    pub(super) fn between(
        before: &Before,
        after: &'a Picture,
        extended: &BTreeSet<AdvertisementId>,
        replica: i64,
    ) -> Self {
        let mut difference = Self { replica, ..Self::default() };
        let mut ids: BTreeSet<AdvertisementId> = before.found.keys().copied().collect();
        ids.extend(after.advertisements.keys());
        ids.extend(after.tombstones.keys());
        for &id in &ids {
            difference.settle_name(id, before, after);
        }
        let reseated = difference.seats(before, after);
        for (&id, standing) in after.advertisements.iter().filter(|(_, standing)| standing.published.is_none()) {
            let Some(found) = before.found.get(&id) else { continue };
            let holder = if extended.contains(&id) { replica } else { found.holder };
            if standing.expires != found.expires || holder != found.holder || reseated.contains(&id) {
                difference.touched.push((id, standing.expires, holder));
            }
        }
        difference
    }

    /// Which statement, if any, brings the row of `id` to where the changes came to, but for what `touched` does.
    fn settle_name(&mut self, id: AdvertisementId, before: &Before, after: &'a Picture) {
        let found = before.found.get(&id);
        let deleted_until = after.tombstones.get(&id).copied();
        let standing = after.advertisements.get(&id);
        if found.is_some_and(|found| found.stands) && standing.is_none_or(|standing| standing.fresh) {
            self.stripped.insert(id);
        }
        match (found, standing) {
            (found, Some(standing)) => {
                let Some(advertisement) = &standing.published else { return };
                let mut row = AdvertisementRow::of(advertisement, standing.expires);
                row.since_ms = to_ms(standing.since);
                let publication = Publication { row, deleted_until };
                if found.is_some() { self.replaced.push(publication) } else { self.made.push(publication) }
            }
            (None, None) => self.new_names.extend(deleted_until.map(|until| (id, until))),
            (Some(found), None) => match deleted_until {
                Some(until) if found.stands || found.deleted_until != Some(until) => self.names.push((id, until)),
                None if found.stands => self.removed.push(id),
                _ => {}
            },
        }
    }

    /// What becomes of reservations; says whose advertisements they are in.
    fn seats(&mut self, before: &Before, after: &Picture) -> BTreeSet<AdvertisementId> {
        let mut reseated = BTreeSet::new();
        for reservation in after.reservations.values() {
            // One that goes with its advertisement and is then made anew looks unchanged, and has to be written.
            let stays = |it: &&Reservation| !self.stripped.contains(&it.advertisement_id);
            match before.reservations.get(&reservation.id).filter(stays) {
                Some(known) if known == reservation => continue,
                Some(_) => self.changed_reservations.push(ReservationRow::of(reservation)),
                None => self.made_reservations.push(ReservationRow::of(reservation)),
            }
            reseated.insert(reservation.advertisement_id);
        }
        reseated
    }

    /// The advertisements whose version this moves.
    pub(super) fn changed(&self) -> BTreeSet<AdvertisementId> {
        let published = self.replaced.iter().chain(&self.made).map(|it| AdvertisementId::from_bytes(it.row.id));
        let names = self.names.iter().chain(&self.new_names).map(|(id, _)| *id);
        let touched = self.touched.iter().map(|(id, ..)| *id);
        self.removed.iter().copied().chain(published).chain(names).chain(touched).collect()
    }

    /// Writes it all. What goes goes first: what is made anew must not be taken away by its own removal.
    pub(super) async fn write(&self, to: &mut PgConnection) -> Result<(), Trouble> {
        if mutant::is("reservation_in_a_transaction_of_its_own") {
            self.write_reservations(to).await?;
            to.execute("commit").await?;
            to.execute("begin").await?;
        }
        if !self.stripped.is_empty() {
            sqlx::query(sql::REMOVE_RESERVATIONS).bind(uuids(&self.stripped)).execute(&mut *to).await?;
        }
        if !self.removed.is_empty() {
            sqlx::query(sql::REMOVE_ADVERTISEMENTS).bind(uuids(&self.removed)).execute(&mut *to).await?;
        }
        if !self.names.is_empty() {
            let query = sqlx::query(sql::LEAVE_NAMES).bind(uuids(self.names.iter().map(|(id, _)| id)));
            query.bind(moments(&self.names)).execute(&mut *to).await?;
        }
        if !self.new_names.is_empty() {
            let query = sqlx::query(sql::MAKE_NAMES).bind(uuids(self.new_names.iter().map(|(id, _)| id)));
            let made = query.bind(moments(&self.new_names)).execute(&mut *to).await?;
            all(made.rows_affected(), self.new_names.len())?;
        }
        if !self.replaced.is_empty() {
            self.publish(sql::REPLACE_ADVERTISEMENTS, &self.replaced, to).await?;
        }
        if !self.made.is_empty() {
            let made = self.publish(sql::MAKE_ADVERTISEMENTS, &self.made, to).await?;
            all(made, self.made.len())?;
        }
        if !self.touched.is_empty() {
            let query = sqlx::query(sql::TOUCH).bind(uuids(self.touched.iter().map(|(id, ..)| id)));
            let expires: Vec<i64> = self.touched.iter().map(|(_, expires, _)| to_ms(*expires)).collect();
            let holders: Vec<i64> = self.touched.iter().map(|(.., holder)| *holder).collect();
            query.bind(expires).bind(holders).execute(&mut *to).await?;
        }
        match mutant::is("reservation_in_a_transaction_of_its_own") {
            true => Ok(()),
            false => self.write_reservations(to).await,
        }
    }

    async fn publish(
        &self,
        statement: &'static str,
        all: &[Publication<'_>],
        to: &mut PgConnection,
    ) -> Result<u64, Trouble> {
        let column = |of: fn(&AdvertisementRow<'_>) -> i64| all.iter().map(|it| of(&it.row)).collect::<Vec<i64>>();
        let query = sqlx::query(statement)
            .bind(all.iter().map(|it| Uuid::from_bytes(it.row.id)).collect::<Vec<_>>())
            .bind(self.replica)
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

    async fn write_reservations(&self, to: &mut PgConnection) -> Result<(), Trouble> {
        if !self.made_reservations.is_empty() {
            let rows = &self.made_reservations;
            let query = sqlx::query(sql::MAKE_RESERVATIONS)
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.advertisement_id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.seats as i32).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.users.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.payload.as_slice()).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.until_ms).collect::<Vec<_>>());
            all(query.execute(&mut *to).await?.rows_affected(), rows.len())?;
        }
        if !self.changed_reservations.is_empty() {
            let rows = &self.changed_reservations;
            let query = sqlx::query(sql::CHANGE_RESERVATIONS)
                .bind(rows.iter().map(|it| Uuid::from_bytes(it.id)).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.state as i16).collect::<Vec<_>>())
                .bind(rows.iter().map(|it| it.until_ms).collect::<Vec<_>>());
            query.execute(to).await?;
        }
        Ok(())
    }
}

fn uuids<'a>(ids: impl IntoIterator<Item = &'a AdvertisementId>) -> Vec<Uuid> {
    ids.into_iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect()
}

fn moments(names: &[(AdvertisementId, UnixMs)]) -> Vec<i64> {
    names.iter().map(|(_, until)| to_ms(*until)).collect()
}
