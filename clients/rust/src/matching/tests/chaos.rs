//! Trouble in a world: calls that fail, come late or twice, packets that are lost, delayed or forged, and a game that does as it likes.

use std::net::SocketAddr;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use tonic::Code;

use crate::matching::tests::server::failure;
use crate::matching::tests::world::{World, hosting};
use crate::matching::{Call, Event, MatchingState, Outcome, Request};
use crate::pb;

/// Trouble, as its rng has it.
pub(super) struct Chaos {
    rng: StdRng,
    /// Share of calls, packets and connects that go wrong, 0 to 1.
    trouble: f64,
}

/// Failures that a call may have.
const FAILURES: [(Code, pb::ErrorReason); 8] = [
    (Code::Unavailable, pb::ErrorReason::StoreUnavailable),
    (Code::Unavailable, pb::ErrorReason::Draining),
    (Code::Internal, pb::ErrorReason::Internal),
    (Code::ResourceExhausted, pb::ErrorReason::RateLimited),
    (Code::ResourceExhausted, pb::ErrorReason::TooManyReservations),
    (Code::FailedPrecondition, pb::ErrorReason::StaleConfiguration),
    (Code::FailedPrecondition, pb::ErrorReason::SeatsTaken),
    (Code::NotFound, pb::ErrorReason::AdvertisementNotFound),
];

impl Chaos {
    pub(super) fn new(seed: u64, trouble: f64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), trouble }
    }

    fn goes_wrong(&mut self) -> bool {
        self.rng.random_bool(self.trouble)
    }

    fn pick(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.random_range(range)
    }

    pub(super) fn carry_out(&mut self, world: &mut World, call: Call) {
        let delay_us = self.pick(1_000..300_000);
        if !self.goes_wrong() {
            let result = world.server.answer(&call.request);
            return world.later(delay_us, Event::Answer { id: call.id, result });
        }
        let is_done = self.rng.random_bool(0.5);
        let done = is_done.then(|| world.server.answer(&call.request));
        match (self.pick(0..4), done) {
            // Not answered.
            (0, _) => {}
            (1, Some(result)) => {
                let delay_us = self.pick(3_000_000..20_000_000);
                world.later(delay_us, Event::Answer { id: call.id, result });
            }
            (2, Some(result)) => {
                let second_us = self.pick(1_000..20_000_000);
                world.later(delay_us, Event::Answer { id: call.id, result: result.clone() });
                world.later(second_us, Event::Answer { id: call.id, result });
            }
            _ => {
                let (code, reason) = *FAILURES.choose(&mut self.rng).unwrap();
                let mut error = failure(code, reason);
                error.retry_after_ms = self.rng.random_bool(0.2).then(|| self.pick(1..90_000));
                world.later(delay_us, Event::Answer { id: call.id, result: Err(error) });
            }
        }
    }

    pub(super) fn answer(&mut self, world: &mut World, from: SocketAddr, reply: Vec<u8>, after_us: u64) {
        if !self.goes_wrong() {
            return world.later(after_us, Event::Datagram { from, packet: reply });
        }
        let late_us = after_us + self.pick(1_000..3_000_000);
        match self.pick(0..5) {
            0 => {}
            1 => world.later(late_us, Event::Datagram { from, packet: reply }),
            2 => {
                world.later(after_us, Event::Datagram { from, packet: reply.clone() });
                world.later(late_us, Event::Datagram { from, packet: reply });
            }
            3 => {
                let mut forged = reply;
                let at = self.rng.random_range(0..forged.len());
                forged[at] ^= 1 << self.rng.random_range(0..8);
                world.later(after_us, Event::Datagram { from, packet: forged });
            }
            _ => {
                let other = "192.0.2.250:4000".parse().unwrap();
                world.later(after_us, Event::Datagram { from: other, packet: reply });
            }
        }
    }

    pub(super) fn play(&mut self, world: &mut World, outcome: &Outcome) {
        match outcome {
            Outcome::Connect(target) => {
                let reservation_id = target.reservation_id.clone();
                let after_us = self.pick(1_000..15_000_000);
                match self.pick(0..4) {
                    0 => world.later(after_us, Event::ConnectFailed { reservation_id }),
                    1 if self.goes_wrong() => {}
                    1 => world.later(after_us, Event::Connected { reservation_id: "another".into() }),
                    _ => world.later(after_us, Event::Connected { reservation_id }),
                }
            }
            Outcome::Joined { .. } if self.rng.random_bool(0.5) => {
                let after_us = self.pick(1..20_000_000);
                let event = match self.pick(0..3) {
                    0 => Event::BecomeHost(Box::new(hosting(2))),
                    _ => Event::ConnectionLost,
                };
                world.later(after_us, event);
            }
            Outcome::PartyComing { reservation_id, .. } => {
                let joined_reservation_ids = vec![reservation_id.clone()];
                let session = Box::new(hosting(self.rng.random_range(0..3)).session);
                let after_us = self.pick(1..20_000_000);
                world.later(after_us, Event::SessionChanged { session, joined_reservation_ids });
            }
            _ => {}
        }
    }

    /// Something that happens at any time: guests, changes of the session, a host that moves, a clock that steps forward.
    pub(super) fn happen(&mut self, world: &mut World) {
        let name = format!("guest {}", self.pick(0..50));
        match self.pick(0..6) {
            0 if world.state() == MatchingState::Advertising => {
                world.server.guests.insert(name, 15_000);
            }
            1 => world.server.guests.clear(),
            2 if self.goes_wrong() => world.now_us += self.pick(0..20_000_000),
            3 if self.goes_wrong() => {
                let session = Box::new(hosting(self.rng.random_range(0..3)).session);
                world.handle(Event::SessionChanged { session, joined_reservation_ids: Vec::new() });
            }
            4 if self.goes_wrong() => world.handle(Event::HostMoved),
            5 if self.goes_wrong() => {
                let host = self.rng.random_range(0..world.hosts.len());
                world.hosts[host].is_silent ^= true;
            }
            _ => {}
        }
    }

    /// Time until the next event, microseconds.
    pub(super) fn pause_us(&mut self) -> u64 {
        self.pick(1..3_000_000)
    }
}

/// Requests that end what the answers to reservations and updates began.
pub(super) fn undone(world: &World) -> (Vec<String>, Vec<String>) {
    let (mut released, mut deleted) = (Vec::new(), Vec::new());
    for (_, request) in &world.requests {
        match request {
            Request::Release(release) => released.push(release.reservation_id.clone()),
            Request::DeleteAdvertisement(delete) => deleted.push(delete.advertisement_id.clone()),
            _ => {}
        }
    }
    (released, deleted)
}
