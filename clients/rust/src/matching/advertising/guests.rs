//! Parties with reservations in the own session, until they have joined or are gone.

use std::collections::{BTreeMap, BTreeSet};

use crate::matching::effects::Effects;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::Outcome;
use crate::pb;

/// Parties with reservations.
#[derive(Debug, Default)]
pub(super) struct Guests {
    coming: BTreeMap<String, ComingParty>,
    /// Have joined, and the server is still to hear of it.
    joined_to_report: BTreeSet<String>,
}

/// Party on its way.
#[derive(Debug)]
struct ComingParty {
    seats: u32,
    heard_at: MonotonicTime,
    is_confirmed: bool,
}

impl Guests {
    /// Whether a party is on its way.
    pub(super) fn is_any_coming(&self) -> bool {
        !self.coming.is_empty()
    }

    /// Seats of the parties on their way.
    pub(super) fn seats_coming(&self) -> u32 {
        self.coming.values().fold(0, |seats, party| seats.saturating_add(party.seats))
    }

    /// Whether a reservation is to be confirmed, or has been joined.
    pub(super) fn has_changes_to_send(&self) -> bool {
        !self.joined_to_report.is_empty() || self.coming.values().any(|party| !party.is_confirmed)
    }

    /// Takes the list of all reservations, from the answer to an update that was sent at `asked_at`.
    pub(super) fn apply_reservation_list(
        &mut self,
        reservations: &[pb::Reservation],
        asked_at: MonotonicTime,
        effects: &mut Effects,
        now: MonotonicTime,
    ) {
        for reservation in reservations {
            self.add(reservation, effects, now);
        }
        let listed: BTreeSet<&String> = reservations.iter().map(|reservation| &reservation.reservation_id).collect();
        // One that the stream told while the update was underway may be missing from the answer.
        let is_gone = |id: &String, party: &ComingParty| !listed.contains(id) && party.heard_at <= asked_at;
        let gone: Vec<String> =
            self.coming.iter().filter(|(id, party)| is_gone(id, party)).map(|(id, _)| id.clone()).collect();
        gone.into_iter().for_each(|id| self.remove_gone_party(id, effects));
    }

    /// Takes a change of one reservation.
    pub(super) fn apply_reservation_event(
        &mut self,
        reservation: &pb::Reservation,
        state: pb::ReservationState,
        effects: &mut Effects,
        now: MonotonicTime,
    ) {
        match state {
            pb::ReservationState::Held | pb::ReservationState::Confirmed => self.add(reservation, effects, now),
            pb::ReservationState::Released | pb::ReservationState::Expired => {
                self.remove_gone_party(reservation.reservation_id.clone(), effects);
            }
            pb::ReservationState::Unspecified => {}
        }
    }

    /// Parties that have joined, by their reservations.
    pub(super) fn join(&mut self, reservation_ids: Vec<String>) {
        self.coming.retain(|id, _| !reservation_ids.contains(id));
        self.joined_to_report.extend(reservation_ids);
    }

    /// Reservations to confirm.
    pub(super) fn to_confirm(&self, most: usize) -> Vec<String> {
        self.coming.iter().filter(|(_, party)| !party.is_confirmed).take(most).map(|(id, _)| id.clone()).collect()
    }

    /// Joined reservations for the next update.
    pub(super) fn take_joined(&mut self, most: usize) -> Vec<String> {
        let taken: Vec<String> = self.joined_to_report.iter().take(most).cloned().collect();
        self.joined_to_report.retain(|id| !taken.contains(id));
        taken
    }

    /// Drops reservations that the server does not know any longer.
    pub(super) fn forget(&mut self, reservation_ids: &[String]) {
        self.coming.retain(|id, _| !reservation_ids.contains(id));
    }

    /// Takes joined reservations back, of an update that failed.
    pub(super) fn restore_joined(&mut self, joined: Vec<String>) {
        self.joined_to_report.extend(joined);
    }

    /// The server has confirmed and ended these reservations.
    pub(super) fn settle(&mut self, confirmed: &[String], joined: &[String]) {
        for id in confirmed {
            if let Some(party) = self.coming.get_mut(id) {
                party.is_confirmed = true;
            }
        }
        self.coming.retain(|id, _| !joined.contains(id));
    }

    fn add(&mut self, reservation: &pb::Reservation, effects: &mut Effects, now: MonotonicTime) {
        let pb::Reservation { reservation_id, seats, expires_in_ms, .. } = reservation;
        if self.joined_to_report.contains(reservation_id) {
            return;
        }
        if !self.coming.contains_key(reservation_id) {
            effects.tell(Outcome::PartyComing { reservation_id: reservation_id.clone(), seats: *seats });
        }
        let party = self.coming.entry(reservation_id.clone()).or_insert(ComingParty {
            seats: *seats,
            heard_at: now,
            is_confirmed: false,
        });
        party.seats = *seats;
        // A confirmed reservation does not expire.
        party.is_confirmed |= *expires_in_ms == 0;
    }

    fn remove_gone_party(&mut self, reservation_id: String, effects: &mut Effects) {
        if self.coming.remove(&reservation_id).is_some() {
            effects.tell(Outcome::PartyGone { reservation_id });
        }
    }
}
