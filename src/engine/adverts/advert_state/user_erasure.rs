//! Erasure of a user from an advertisement in memory, after the store has erased it.

use std::sync::Arc;

use thin_vec::ThinVec;

use crate::domain::erasure::UserKeyReplacement;
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::advert_state::reservation_changes::host_change_of_released_seat;
use crate::engine::adverts::publish_batch::unexpected_outcome;
use crate::engine::adverts::writer_command::EraseAdvertUser;
use crate::engine::error::EngineError;
use crate::store::{Reservation, ReservationState, WriteOutcome};
use crate::telemetry::label::SeatOutcomeLabel;

impl AdvertState {
    /// Erases the user from the advertisement, takes over the reservations that the store changed, and notifies listeners of
    /// released seats. Returns whether they named the user.
    pub(crate) fn apply_user_erasure(
        &self,
        erase: &EraseAdvertUser,
        outcome: WriteOutcome,
        now: UnixMs,
    ) -> Result<bool, EngineError> {
        let (was_in_advertisement, erased) = match outcome {
            WriteOutcome::EraseUserApplied { was_in_advertisement, reservations } => {
                (was_in_advertisement, reservations)
            }
            WriteOutcome::NotFound => return Ok(false),
            other => return Err(unexpected_outcome("erase", &other)),
        };
        let was_named = was_in_advertisement || !erased.is_empty();
        let Some(set) = self.advert_sets.get(erase.set_id) else { return Ok(was_named) };
        let mut set = set.lock_for_write();
        if let Some(record) = set.get(erase.advertisement_id).and_then(|record| self.erase_from_record(erase, record)) {
            set.upsert(record);
        }
        let replace = |reservations: &mut ThinVec<Reservation>| {
            let mut events = Vec::new();
            for reservation in erased {
                let Some(existing) = reservations.iter_mut().find(|existing| existing.id == reservation.id) else {
                    continue;
                };
                if existing.seats != reservation.seats {
                    if reservation.state == ReservationState::Ended {
                        self.record_ended_reservation(&reservation, SeatOutcomeLabel::Released, now);
                    }
                    events.push((reservation.clone(), host_change_of_released_seat(reservation.state)));
                }
                *existing = reservation;
            }
            events
        };
        let events = set.update_reservations(erase.advertisement_id, replace).unwrap_or_default();
        if self.common.fills_open_sessions(erase.set_id)
            && let Some(record) = set.get(erase.advertisement_id)
        {
            self.wake_backfill_if_open(record);
        }
        drop(set);
        self.publish_reservation_events(erase.advertisement_id, events, now);
        Ok(was_named)
    }

    /// Record without the user; `None` if its advertisement does not name the user.
    fn erase_from_record(&self, erase: &EraseAdvertUser, record: &AdvertRecord) -> Option<AdvertRecord> {
        let key = UserKey::of_erased(&erase.seed, erase.advertisement_id.as_bytes());
        let replacement = UserKeyReplacement { user: erase.user, key };
        let advertisement = Arc::new(replacement.erase_from_advertisement(&record.advertisement)?);
        Some(AdvertRecord { advertisement, ..record.clone() })
    }
}
