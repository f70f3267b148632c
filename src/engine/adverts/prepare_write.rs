//! From a job to a write, or straight to its answer where memory already knows it.

use std::sync::Arc;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::attribute_values::AttributeValues;
use crate::domain::filter::RefusingSide;
use crate::domain::filter::{Refusal, Searcher, admit};
use crate::domain::id::{AdvertisementId, ReservationId, SetId};
use crate::domain::limit;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, candidate_of_record};
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert, ReserveSeats};
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::store::{AdvertWrite, Reservation, ReservationState};

/// How long a server waits for the one that is nearest to the host before it ends a lapsed hold itself.
const HEARTBEAT_OWNER_HEAD_START_MS: u64 = 1_000;

impl Core {
    /// The write that `job` needs. `None` when it has been answered without one.
    pub(in crate::engine) fn prepare_write(
        &self,
        job: AdvertWriterCommand,
        now: UnixMs,
    ) -> Option<(AdvertWriterCommand, AdvertWrite)> {
        match job {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                let write = build_put_write(&publish, now);
                Some((AdvertWriterCommand::Publish(publish, reply, in_flight), write))
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => match self.build_extend_write(&extend, now) {
                Ok(write) => Some((AdvertWriterCommand::ExtendTtl(extend, reply, in_flight), write)),
                Err(fault) => {
                    self.send_answer(reply, in_flight, Err(fault));
                    None
                }
            },
            AdvertWriterCommand::Delete(id, set_id, reply, in_flight) => {
                let tombstone_until = now.plus_ms(u64::from(self.settings.max_ttl_ms) * 2);
                Some((
                    AdvertWriterCommand::Delete(id, set_id, reply, in_flight),
                    AdvertWrite::Delete { advertisement_id: id, tombstone_until },
                ))
            }
            AdvertWriterCommand::ReserveSeats(take, reply, in_flight) => match self.build_reserve_write(&take, now) {
                Ok(write) => Some((AdvertWriterCommand::ReserveSeats(take, reply, in_flight), write)),
                Err(fault) => {
                    self.send_answer(reply, in_flight, Err(fault));
                    None
                }
            },
            AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight) => {
                let write = self.build_end_reservation_write(id, advertisement_id, now);
                Some((AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight), write))
            }
            AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id) => {
                let due = self.hold_expires_at(set_id, advertisement_id, id).is_some_and(|until| until <= now);
                due.then(|| {
                    (
                        AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id),
                        self.build_end_reservation_write(id, advertisement_id, now),
                    )
                })
            }
            AdvertWriterCommand::ExpireAdvert(id, set_id, _) => {
                let (record, write) = self.remove_expired(id, set_id, now)?;
                Some((AdvertWriterCommand::ExpireAdvert(id, set_id, Some(Box::new(record))), write))
            }
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => None,
        }
    }

    fn build_extend_write(&self, extend: &ExtendAdvertTtl, now: UnixMs) -> Result<AdvertWrite, EngineError> {
        let shelf = self.advert_sets.get(extend.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let shelf = shelf.read();
        let record =
            shelf.get(extend.id).filter(|record| now < record.expires_at).ok_or(EngineError::AdvertisementNotFound)?;
        let time_to_live_ms = u64::from(extend.ttl_ms.unwrap_or(record.ttl_ms));
        Ok(AdvertWrite::ExtendTtl {
            advertisement_id: extend.id,
            expires_at: padded_expiry(now, time_to_live_ms),
            confirmed_reservations: extend.confirmed_reservations.clone(),
            joined_reservations: extend.joined_reservations.clone(),
            now,
        })
    }

    /// Judges the rules again. A retry of what is already held goes to the store, which knows the answer.
    fn build_reserve_write(&self, take: &ReserveSeats, now: UnixMs) -> Result<AdvertWrite, EngineError> {
        let shelf = self.advert_sets.get(take.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let shelf = shelf.read();
        let record = shelf.get(take.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?;
        if !record.reservations.iter().any(|known| known.id == take.reservation_id) {
            check_admission(take, record, now)?;
        }
        let reservation = Reservation {
            id: take.reservation_id,
            advertisement_id: take.advertisement_id,
            seats: take.session.player_count(),
            users: take.users.clone(),
            request_digest: take.request_digest,
            state: ReservationState::Held,
            deadline: now.plus_ms(u64::from(take.hold_ms)),
        };
        Ok(AdvertWrite::ReserveSeats { reservation, now })
    }

    fn build_end_reservation_write(
        &self,
        id: ReservationId,
        advertisement_id: AdvertisementId,
        now: UnixMs,
    ) -> AdvertWrite {
        AdvertWrite::EndReservation {
            reservation_id: id,
            advertisement_id,
            purge_at: now.plus_ms(self.settings.ended_reservation_retention_ms),
        }
    }

    /// When a hold is to be ended from here: at its deadline, or a little later where another server, which took the
    /// host's last heartbeat, will have done it by then.
    fn hold_expires_at(&self, set_id: SetId, id: AdvertisementId, reservation: ReservationId) -> Option<UnixMs> {
        let shelf = self.advert_sets.get(set_id)?;
        let shelf = shelf.read();
        let record = shelf.get(id)?;
        let held = record.reservations.iter().find(|known| known.id == reservation)?;
        let until = if record.is_heartbeat_owner {
            held.deadline
        } else {
            held.deadline.plus_ms(HEARTBEAT_OWNER_HEAD_START_MS)
        };
        (held.state == ReservationState::Held).then_some(until)
    }

    /// Takes an expired advertisement out of memory, so that no heartbeat can be promised on it while the store is
    /// told. The store's own expiry may lie ahead by the padding; what was promised to the host is over. But where
    /// another server has changed it since, that one may have promised more, and the store goes by what it has.
    fn remove_expired(&self, id: AdvertisementId, set_id: SetId, now: UnixMs) -> Option<(AdvertRecord, AdvertWrite)> {
        let shelf = self.advert_sets.get(set_id)?;
        let mut shelf = shelf.write();
        shelf.get(id).filter(|record| record.expires_at <= now)?;
        let record = shelf.remove(id)?;
        let seen = self.replication.is_some().then_some(record.version);
        let write = match record.is_heartbeat_owner {
            true => AdvertWrite::Expire {
                advertisement_id: id,
                now: now.max(record.stored_expires_at),
                expected_version: seen,
            },
            false => AdvertWrite::Expire { advertisement_id: id, now, expected_version: None },
        };
        Some((record, write))
    }

    /// Takes back an expired record that the store could not be told of: it is invisible, and the next sweep tries
    /// again. Memory and store go on agreeing about its reservations.
    pub(in crate::engine) fn restore_expired(&self, set_id: SetId, record: AdvertRecord) {
        let shelf = self.advert_sets.get_or_create(set_id);
        let mut shelf = shelf.write();
        if shelf.get(record.advertisement.id).is_none() {
            shelf.upsert(record);
        }
    }
}

/// Whether `take` may sit down in `record`. Open seats are the store's to judge.
fn check_admission(take: &ReserveSeats, record: &AdvertRecord, now: UnixMs) -> Result<(), EngineError> {
    let refused = |rule: &str, side| Err(EngineError::RefusedByRule { rule: rule.into(), side });
    let advertisement = &record.advertisement;
    if advertisement.kind != take.required_kind || advertisement.session.silo != take.silo {
        return refused("silo", RefusingSide::Searcher);
    }
    if take.required_kind == AdvertisementKind::GameServer {
        return if record.expires_at <= now { Err(EngineError::AdvertisementNotFound) } else { Ok(()) };
    }
    if record.has_valid_reservation_for(&take.users, take.reservation_id, now) {
        return refused("own", RefusingSide::Searcher);
    }
    if limit::RESERVATIONS_PER_ADVERTISEMENT_MAX <= record.valid_reservations(now).count() {
        return Err(EngineError::TooManyReservations);
    }
    let facts = AttributeValues::from_session(&take.ruleset, &advertisement.session);
    let searcher = Searcher {
        attribute_values: &take.attribute_values,
        locality: take.session.locality,
        region_latencies: &take.session.region_latencies,
        seats_needed: take.session.player_count(),
        users: &take.users,
        caller: take.subject,
        excluded_ids: &[],
        waited_ms: now.ms_since(take.searching_since),
    };
    match admit(&take.ruleset, &searcher, &candidate_of_record(record, &facts), None, now) {
        Ok(()) | Err(Refusal::NotEnoughSeats) => Ok(()),
        Err(Refusal::Expired) => Err(EngineError::AdvertisementNotFound),
        Err(Refusal::HardFilter { filter_index: filter, side }) => {
            refused(take.ruleset.hard_filters.get(filter).map_or("allowed", |hard| &hard.name), side)
        }
        Err(Refusal::Silo) => refused("silo", RefusingSide::Searcher),
        Err(Refusal::OwnSession | Refusal::Excluded) => refused("own", RefusingSide::Searcher),
        // The rest are queues' refusals.
        Err(other) => refused(other.as_str(), RefusingSide::Searcher),
    }
}

fn build_put_write(publish: &PublishAdvert, now: UnixMs) -> AdvertWrite {
    AdvertWrite::Publish {
        advertisement: Arc::clone(&publish.advertisement),
        expires_at: padded_expiry(now, u64::from(publish.ttl_ms)),
        confirmed_reservations: publish.confirmed_reservations.clone(),
        joined_reservations: publish.joined_reservations.clone(),
        now,
    }
}

/// What the store is told: one time to live beyond what the host is promised, so that the heartbeats until then need
/// not be written (DESIGN section 6).
fn padded_expiry(now: UnixMs, time_to_live_ms: u64) -> UnixMs {
    now.plus_ms(time_to_live_ms * 2)
}
