//! Converts a writer command to a store write, or answers it at once if memory decides it.

use std::sync::Arc;

use crate::domain::advertisement::AdvertisementKind;
use crate::domain::filter::{
    AdvertisementView, AdvertsOfAvoidedPlayers, Refusal, RefusingSide, Searcher, admit_advertisement,
};
use crate::domain::id::{AdvertisementId, ReservationId, SetId, UserKey};
use crate::domain::limit;
use crate::domain::probe_result::ProbeResults;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::{AdvertRecord, candidate_from_record};
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::avoided_advert_ids::users_of_record;
use crate::engine::adverts::in_flight_changes::end_change_and_answer;
use crate::engine::adverts::seat_measures::SeatMeasures;
use crate::engine::adverts::writer_command::{AdvertWriterCommand, ExtendAdvertTtl, PublishAdvert, ReserveSeats};
use crate::engine::error::EngineError;
use crate::engine::joining_ticket::JoiningTicket;
use crate::engine::party_avoidance::{PartyAvoidance, SessionAvoidanceVerdict};
use crate::engine::party_values::PartyValueReader;
use crate::store::{AdvertWrite, Reservation, ReservationLimit, ReservationState};

/// Head start of the heartbeat owner, milliseconds, before another replica ends an expired hold.
const REMOTE_HOLD_EXPIRY_DELAY_MS: u64 = 1_000;

impl AdvertState {
    /// Store write for `command`. `None` if the command was answered without one.
    pub(crate) fn prepare_write_or_answer(
        &self,
        command: AdvertWriterCommand,
        now: UnixMs,
    ) -> Option<(AdvertWriterCommand, AdvertWrite)> {
        match command {
            AdvertWriterCommand::Publish(publish, reply, in_flight) => {
                let write = build_publish_write(&publish, now);
                Some((AdvertWriterCommand::Publish(publish, reply, in_flight), write))
            }
            AdvertWriterCommand::ExtendTtl(extend, reply, in_flight) => match self.build_extend_write(&extend, now) {
                Ok(write) => Some((AdvertWriterCommand::ExtendTtl(extend, reply, in_flight), write)),
                Err(error) => {
                    end_change_and_answer(reply, in_flight, Err(error));
                    None
                }
            },
            AdvertWriterCommand::Delete(id, set_id, reply, in_flight) => {
                let tombstone_until = self.common.settings.tombstone_until(now);
                Some((
                    AdvertWriterCommand::Delete(id, set_id, reply, in_flight),
                    AdvertWrite::Delete { advertisement_id: id, tombstone_until },
                ))
            }
            AdvertWriterCommand::ReserveSeats(mut reserve, reply, in_flight) => {
                match self.build_reserve_write(&reserve, now) {
                    Ok((write, measures)) => {
                        reserve.measures = measures;
                        Some((AdvertWriterCommand::ReserveSeats(reserve, reply, in_flight), write))
                    }
                    Err(error) => {
                        self.record_refused_seats(&reserve, &error, now);
                        end_change_and_answer(reply, in_flight, Err(error));
                        None
                    }
                }
            }
            AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight) => {
                let write = self.build_end_reservation_write(id, advertisement_id, now);
                Some((AdvertWriterCommand::ReleaseReservation(id, advertisement_id, set_id, reply, in_flight), write))
            }
            AdvertWriterCommand::ReleaseSeat(user, id, advertisement_id, set_id, reply, in_flight) => {
                let purge_at = now.plus_ms(self.common.settings.ended_reservation_retention_ms);
                let write = AdvertWrite::ReleaseSeat { reservation_id: id, advertisement_id, user, purge_at };
                Some((AdvertWriterCommand::ReleaseSeat(user, id, advertisement_id, set_id, reply, in_flight), write))
            }
            AdvertWriterCommand::EraseUser(erase, reply, in_flight) => {
                let purge_at = now.plus_ms(self.common.settings.ended_reservation_retention_ms);
                let (advertisement_id, user, seed) = (erase.advertisement_id, erase.user, erase.seed);
                let write = AdvertWrite::EraseUser { advertisement_id, user, seed, purge_at };
                Some((AdvertWriterCommand::EraseUser(erase, reply, in_flight), write))
            }
            AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id) => {
                let is_due = self
                    .hold_expiry_at_this_replica(set_id, advertisement_id, id)
                    .is_some_and(|expires_at| expires_at <= now);
                is_due.then(|| {
                    (
                        AdvertWriterCommand::ExpireHold(id, advertisement_id, set_id),
                        self.build_end_reservation_write(id, advertisement_id, now),
                    )
                })
            }
            AdvertWriterCommand::ExpireAdvert(id, set_id, _) => {
                let (record, write) = self.remove_and_build_expire_write(id, set_id, now)?;
                Some((AdvertWriterCommand::ExpireAdvert(id, set_id, Some(Box::new(record))), write))
            }
            AdvertWriterCommand::ApplyFeed(..)
            | AdvertWriterCommand::SetRulesets(..)
            | AdvertWriterCommand::Flush(_) => None,
        }
    }

    fn build_extend_write(&self, extend: &ExtendAdvertTtl, now: UnixMs) -> Result<AdvertWrite, EngineError> {
        let set = self.advert_sets.get(extend.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let set = set.lock_for_read();
        let record =
            set.get(extend.id).filter(|record| now < record.expires_at).ok_or(EngineError::AdvertisementNotFound)?;
        let ttl_ms = u64::from(extend.ttl_ms.unwrap_or(record.ttl_ms));
        Ok(AdvertWrite::ExtendTtl {
            advertisement_id: extend.id,
            expires_at: padded_expiry(now, ttl_ms),
            confirmed_reservations: extend.confirmed_reservations.clone(),
            joined_reservations: extend.joined_reservations.clone(),
            create_digest: extend.create_digest,
            now,
        })
    }

    /// Write for a reservation, after checking the rules again. A retry skips the check; the store has its answer.
    fn build_reserve_write(
        &self,
        reserve: &ReserveSeats,
        now: UnixMs,
    ) -> Result<(AdvertWrite, Option<SeatMeasures>), EngineError> {
        let ReserveSeats { ruleset, silo, users, .. } = reserve;
        let mut measures = None;
        let avoidance = PartyAvoidance::new(&self.common, ruleset, *silo, users, now);
        let set = self.advert_sets.get(reserve.set_id).ok_or(EngineError::AdvertisementNotFound)?;
        let set = set.lock_for_read();
        let record = set.get(reserve.advertisement_id).ok_or(EngineError::AdvertisementNotFound)?;
        if !record.reservations.iter().any(|existing| existing.id == reserve.reservation_id) {
            if avoidance.is_some_and(|avoidance| is_hidden_by_avoidance(record, &avoidance)) {
                return Err(EngineError::AdvertisementNotFound);
            }
            measures = check_admission(&self.common.party_values, reserve, record, now)?;
        }
        let reservation = Reservation {
            id: reserve.reservation_id,
            advertisement_id: reserve.advertisement_id,
            seats: reserve.session.player_count(),
            users: reserve.users.clone(),
            request_digest: reserve.request_digest,
            state: ReservationState::Held,
            has_joined: false,
            expires_or_purge_at: now.plus_ms(u64::from(reserve.hold_ms)),
            owner: reserve.owner.map(|(owner, _)| owner),
        };
        let purge_at = now.plus_ms(self.common.settings.ended_reservation_retention_ms);
        let limit = reserve.owner.map(|(_, limit)| ReservationLimit { limit, replaced_purge_at: purge_at });
        Ok((AdvertWrite::ReserveSeats { reservation, limit, now }, measures))
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
            purge_at: now.plus_ms(self.common.settings.ended_reservation_retention_ms),
        }
    }

    /// Time at which this replica ends a hold: its deadline, plus a head start for another heartbeat owner.
    fn hold_expiry_at_this_replica(
        &self,
        set_id: SetId,
        id: AdvertisementId,
        reservation: ReservationId,
    ) -> Option<UnixMs> {
        let set = self.advert_sets.get(set_id)?;
        let set = set.lock_for_read();
        let record = set.get(id)?;
        let held = record.reservations.iter().find(|existing| existing.id == reservation)?;
        let expires_at = if record.is_heartbeat_owner {
            held.expires_or_purge_at
        } else {
            held.expires_or_purge_at.plus_ms(REMOTE_HOLD_EXPIRY_DELAY_MS)
        };
        (held.state == ReservationState::Held).then_some(expires_at)
    }

    /// Removes an expired advertisement from memory, so that no heartbeat is accepted while the write is pending.
    ///
    /// The stored expiry may be later, because it is padded; the acknowledged one has passed. If another replica has
    /// changed the row, it may have acknowledged a later expiry, and the store keeps the row.
    fn remove_and_build_expire_write(
        &self,
        id: AdvertisementId,
        set_id: SetId,
        now: UnixMs,
    ) -> Option<(AdvertRecord, AdvertWrite)> {
        let set = self.advert_sets.get(set_id)?;
        let mut set = set.lock_for_write();
        set.get(id).filter(|record| record.expires_at <= now)?;
        let record = set.remove(id)?;
        let expected_version = self.replication.is_some().then_some(record.version);
        let write = if record.is_heartbeat_owner {
            AdvertWrite::Expire { advertisement_id: id, now: now.max(record.stored_expires_at), expected_version }
        } else {
            AdvertWrite::Expire { advertisement_id: id, now, expected_version: None }
        };
        Some((record, write))
    }

    /// Restores an expired record whose write failed. It stays invisible, and the next sweep retries.
    pub(crate) fn restore_after_failed_expiry(&self, set_id: SetId, record: AdvertRecord) {
        let set = self.advert_sets.get_or_create(set_id);
        let mut set = set.lock_for_write();
        if set.get(record.advertisement.id).is_none() {
            set.upsert(record);
        }
    }
}

/// Whether an advertisement does not exist for a party. Game servers have no players of their own.
fn is_hidden_by_avoidance(record: &AdvertRecord, avoidance: &PartyAvoidance<'_>) -> bool {
    record.advertisement.kind == AdvertisementKind::Session
        && avoidance.verdict(&users_of_record(record)) == SessionAvoidanceVerdict::Hidden
}

/// Whether `reserve` may take seats in `record`, and how well it fits a party that has searched. The store checks the open seats.
fn check_admission(
    party_values: &PartyValueReader,
    reserve: &ReserveSeats,
    record: &AdvertRecord,
    now: UnixMs,
) -> Result<Option<SeatMeasures>, EngineError> {
    let refuse = |rule: &str, side| Err(EngineError::RefusedByRule { rule: rule.into(), side });
    let advertisement = &record.advertisement;
    if advertisement.kind != reserve.required_kind || advertisement.session.silo != reserve.silo {
        return refuse("silo", RefusingSide::Searcher);
    }
    if reserve.required_kind == AdvertisementKind::GameServer {
        return if record.expires_at <= now { Err(EngineError::AdvertisementNotFound) } else { Ok(None) };
    }
    let is_repeated =
        |existing: &Reservation| existing.id == reserve.reservation_id || replaces_reservation(reserve, existing);
    if record.has_valid_reservation_for(&reserve.users, is_repeated, now) {
        return refuse("own", RefusingSide::Searcher);
    }
    if record.valid_reservations(now).count() >= limit::RESERVATIONS_PER_ADVERTISEMENT_MAX {
        return Err(EngineError::AdvertisementReservationsFull);
    }
    let attribute_values = party_values.attribute_values(&reserve.ruleset, &advertisement.session);
    let candidate = candidate_from_record(record, &attribute_values);
    if let Some(guests) = &reserve.joining_tickets {
        // A pass lets each ticket in by its own values: those of all guests together would be other ones.
        for guest in guests {
            let users = guest.ticket.session.sorted_users();
            let searcher = ticket_searcher(guest, &users, now);
            check_rules(reserve, &searcher, &candidate, now)?;
        }
        return Ok(None);
    }
    let searcher = Searcher {
        attribute_values: &reserve.attribute_values,
        locality: reserve.session.locality,
        region_latencies: &reserve.session.region_latencies,
        wishes: reserve.session.wishes(),
        seats_needed: reserve.session.player_count(),
        users: &reserve.users,
        caller: reserve.subject,
        excluded_ids: &[],
        avoided: AdvertsOfAvoidedPlayers::default(),
        probes: ProbeResults::from_sorted(&reserve.probes),
        predictor: reserve.predictor.as_ref().map(|predictor| predictor.as_search_predictor()),
        waited_ms: now.ms_since(reserve.searching_since),
    };
    check_rules(reserve, &searcher, &candidate, now)?;
    if reserve.is_of_search
        && reserve.ruleset.probing.must_measure
        && searcher.probes.of_advert(advertisement.id).is_none()
    {
        return Err(EngineError::HostNotMeasured);
    }
    Ok(reserve.is_of_search.then(|| SeatMeasures::new(&reserve.ruleset, &searcher, &candidate)))
}

/// Party of a ticket that joins a session.
fn ticket_searcher<'a>(
    JoiningTicket { ticket, attribute_values, vector }: &'a JoiningTicket,
    users: &'a [UserKey],
    now: UnixMs,
) -> Searcher<'a> {
    let vector = vector.as_ref().filter(|vector| now < vector.expires_at);
    Searcher {
        attribute_values,
        locality: ticket.session.locality,
        region_latencies: &ticket.session.region_latencies,
        wishes: ticket.session.wishes(),
        seats_needed: ticket.session.player_count(),
        users,
        caller: None,
        excluded_ids: &[],
        avoided: AdvertsOfAvoidedPlayers::default(),
        probes: ProbeResults::default(),
        predictor: vector.map(|vector| vector.search_predictor(now)),
        waited_ms: now.ms_since(ticket.entered_at),
    }
}

/// Error of a party that may not join; the store checks the open seats.
fn check_rules(
    reserve: &ReserveSeats,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
    now: UnixMs,
) -> Result<(), EngineError> {
    let refuse = |rule: &str, side| Err(EngineError::RefusedByRule { rule: rule.into(), side });
    let admission = match admit_advertisement(&reserve.ruleset, searcher, candidate, now) {
        // The store counts the seats, of which the reservation may replace some. The other rules hold in any case.
        Err(Refusal::NotEnoughSeats) => {
            let with_seats = AdvertisementView { open_seats: u16::MAX, ..*candidate };
            admit_advertisement(&reserve.ruleset, searcher, &with_seats, now)
        }
        judged => judged,
    };
    match admission {
        Ok(()) | Err(Refusal::NotEnoughSeats) => Ok(()),
        Err(Refusal::Expired) => Err(EngineError::AdvertisementNotFound),
        Err(Refusal::HardFilter { filter_index, side }) => {
            refuse(&reserve.ruleset.rule_of_filter_index(filter_index).name(), side)
        }
        Err(Refusal::Silent) => Err(EngineError::HostDidNotAnswerProbes),
        Err(Refusal::Silo) => refuse("silo", RefusingSide::Searcher),
        Err(Refusal::OwnSession | Refusal::Excluded) => refuse("own", RefusingSide::Searcher),
        // The remaining refusals occur only in queues.
        Err(other) => refuse(other.as_str(), RefusingSide::Searcher),
    }
}

/// Whether the store ends `existing` if it makes the reservation of `reserve`.
fn replaces_reservation(reserve: &ReserveSeats, existing: &Reservation) -> bool {
    let (Some((owner, limit)), Some(existing)) = (reserve.owner, existing.owner) else { return false };
    owner.party == existing.party || owner.client == existing.client && limit.per_client == 1
}

fn build_publish_write(publish: &PublishAdvert, now: UnixMs) -> AdvertWrite {
    AdvertWrite::Publish {
        advertisement: Arc::clone(&publish.advertisement),
        expires_at: padded_expiry(now, u64::from(publish.ttl_ms)),
        confirmed_reservations: publish.confirmed_reservations.clone(),
        joined_reservations: publish.joined_reservations.clone(),
        owner: publish.owner.clone(),
        create_digest: publish.create_digest,
        now,
    }
}

/// Stored expiry: one TTL beyond the acknowledged expiry, so that heartbeats until then need no write.
fn padded_expiry(now: UnixMs, ttl_ms: u64) -> UnixMs {
    now.plus_ms(ttl_ms * 2)
}
