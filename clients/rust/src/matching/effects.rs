//! Effects of a search loop: its calls, packets and outcomes, in order, and the random numbers for them.

use std::collections::VecDeque;
use std::fmt::Write;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::matching::call::{CallId, Request};
use crate::matching::call_table::CallTable;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::{Outcome, Transmit};
use crate::matching::packet_budget::PacketBudget;
use crate::pb;

/// Effects that the caller has not carried out yet.
#[derive(Debug)]
pub(super) struct Effects {
    pub(super) calls: CallTable<Request>,
    pub(super) transmits: VecDeque<Transmit>,
    pub(super) outcomes: VecDeque<Outcome>,
    pub(super) packet_budget: PacketBudget,
    rng: StdRng,
}

impl Effects {
    /// Effects with random numbers from this seed. They are as unpredictable as the seed is.
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self {
            calls: CallTable::default(),
            transmits: VecDeque::new(),
            outcomes: VecDeque::new(),
            packet_budget: PacketBudget::default(),
            rng: StdRng::from_seed(seed),
        }
    }

    /// Random bytes.
    pub(super) fn random_bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.rng.fill(&mut bytes[..]);
        bytes
    }

    /// Random number, uniform in [0, 1).
    pub(super) fn jitter_fraction(&mut self) -> f64 {
        self.rng.random()
    }

    /// Idempotency key: 128 random bits in hexadecimal.
    pub(super) fn idempotency_key(&mut self) -> String {
        self.random_bytes::<16>().iter().fold(String::with_capacity(32), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Asks for a call.
    pub(super) fn call(&mut self, request: Request, now: MonotonicTime) -> CallId {
        self.calls.start(request, now)
    }

    /// Tells the game.
    pub(super) fn tell(&mut self, outcome: Outcome) {
        self.outcomes.push_back(outcome);
    }

    /// Releases a reservation.
    pub(super) fn release(&mut self, reservation: &pb::Reservation, now: MonotonicTime) {
        let request = pb::MatchmakingReleaseRequest {
            reservation_id: reservation.reservation_id.clone(),
            reservation_token: reservation.reservation_token.clone(),
            ..Default::default()
        };
        self.call(Request::Release(request), now);
    }

    /// Deletes an advertisement.
    pub(super) fn delete(&mut self, advertisement_id: &str, advertisement_token: &[u8], now: MonotonicTime) {
        let request = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: advertisement_id.to_owned(),
            advertisement_token: advertisement_token.to_vec(),
        };
        self.call(Request::DeleteAdvertisement(request), now);
    }
}
