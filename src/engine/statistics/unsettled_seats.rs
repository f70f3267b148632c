//! Reservations of searching parties whose host has not confirmed them yet.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::domain::id::{BuildIdHasher, ReservationId, SetId};
use crate::domain::statistic::{PartySizeClass, StatisticKind};
use crate::domain::time::UnixMs;
use crate::engine::statistics::sample::Sample;

/// Reservations that are kept; further ones are dropped.
const RESERVATIONS_MAX: usize = 65_536;

/// Time after the deadline of a hold for which its confirmation may still arrive from another server, milliseconds.
const LATE_CONFIRMATION_GRACE_MS: u64 = 60_000;

/// Reservation of a searching party, to count when it is settled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UnsettledReservation {
    pub(crate) set_id: SetId,
    /// Region that the ruleset lists; `None` for others.
    pub(crate) region: Option<Arc<str>>,
    pub(crate) party_size: PartySizeClass,
    /// Time since the first search, milliseconds.
    pub(crate) waited_ms: u64,
    pub(crate) score: f64,
    pub(crate) distance_km: Option<f64>,
    pub(crate) round_trip_ms: Option<f64>,
    /// Time of the reservation.
    pub(crate) at: UnixMs,
    /// Until when the host may confirm it.
    pub(crate) deadline: UnixMs,
}

impl UnsettledReservation {
    /// Time from the first search until `end`, milliseconds.
    pub(super) fn waited_ms_until(&self, end: UnixMs) -> u64 {
        self.waited_ms + end.ms_since(self.at)
    }

    /// Its samples.
    pub(super) fn into_samples(self) -> impl Iterator<Item = Sample> {
        let values = [
            (StatisticKind::SearchToSeat, Some(self.waited_ms as f64)),
            (StatisticKind::SeatScore, Some(self.score)),
            (StatisticKind::SeatDistance, self.distance_km),
            (StatisticKind::SeatRoundTrip, self.round_trip_ms),
        ];
        values.into_iter().filter_map(move |(kind, value)| {
            let sample = Sample::new(kind, self.set_id, value?, self.at);
            Some(Sample { region: self.region.clone(), party_size: self.party_size, ..sample })
        })
    }
}

/// Unsettled reservations that this server made.
#[derive(Debug, Default)]
pub(super) struct UnsettledReservations {
    reservations: Mutex<HashMap<ReservationId, UnsettledReservation, BuildIdHasher>>,
    /// Number of seats, so that servers without any need no lock.
    count: AtomicUsize,
    /// Reservations that were dropped since the last call of `take_dropped_count`.
    dropped: AtomicU64,
}

impl UnsettledReservations {
    /// Adds a reservation.
    pub(super) fn insert(&self, id: ReservationId, seat: UnsettledReservation) {
        let mut seats = self.reservations.lock();
        if seats.len() < RESERVATIONS_MAX {
            seats.insert(id, seat);
        } else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.count.store(seats.len(), Ordering::Release);
    }

    /// Takes a reservation.
    pub(super) fn take(&self, id: ReservationId) -> Option<UnsettledReservation> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut seats = self.reservations.lock();
        let taken = seats.remove(&id);
        self.count.store(seats.len(), Ordering::Release);
        taken
    }

    /// Takes the reservations that can no longer be settled.
    pub(super) fn take_expired(&self, now: UnixMs) -> Vec<UnsettledReservation> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let mut seats = self.reservations.lock();
        let is_expired = |seat: &UnsettledReservation| seat.deadline.plus_ms(LATE_CONFIRMATION_GRACE_MS) <= now;
        let expired = seats.extract_if(|_, seat| is_expired(seat)).map(|(_, seat)| seat).collect();
        self.count.store(seats.len(), Ordering::Release);
        expired
    }

    /// Number of reservations that were dropped since the last call.
    pub(super) fn take_dropped_count(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}
