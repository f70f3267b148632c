//! Session on a game server, with its answers to probes.

use std::net::{Ipv4Addr, SocketAddr};

use fireteam_client::pb;
use fireteam_client::probe::{HostCookieKey, HostResponder, ProbeKey};
use rand::Rng as _;

use crate::rng::{RngPurpose, generated_id, stream_rng};

/// Kind of session ids for `rng::generated_id`.
const SESSION_ID_KIND: u64 = 40;

/// Seats of a session for searches.
const SEATS: u32 = 8;

/// UDP port at which hosts answer.
const PROBE_PORT: u16 = 4_000;

/// Session on a game server.
pub(super) struct SearchedSession {
    /// Advertisement id.
    pub(super) id: String,
    /// Place, as the map numbers them.
    pub(super) place: usize,
    pub(super) endpoint: SocketAddr,
    pub(super) probe: pb::ProbeEndpoint,
    pub(super) responder: HostResponder,
    pub(super) free_seats: u32,
}

impl SearchedSession {
    /// The session of this number, at a random one of `place_count` places.
    pub(super) fn new(seed: u64, number: usize, place_count: usize) -> Self {
        let mut rng = stream_rng(seed, RngPurpose::SearchedSession, number as u64, 0);
        let id = generated_id(seed, SESSION_ID_KIND, number as u64);
        let key: [u8; 16] = rng.random();
        let mut responder = HostResponder::new(HostCookieKey(rng.random()));
        if let Some(key) = ProbeKey::new(&key) {
            responder.set_advertisement(id, key);
        }
        // Each in a network of its own.
        let address = Ipv4Addr::from_bits(0x0a00_0001 + ((number as u32 + 1) << 8));
        Self {
            id: format!("{:032x}", u128::from_be_bytes(id)),
            place: rng.random_range(0..place_count.max(1)),
            endpoint: SocketAddr::from((address, PROBE_PORT)),
            probe: pb::ProbeEndpoint {
                address: address.octets().to_vec(),
                port: PROBE_PORT.into(),
                probe_key: key.to_vec(),
                hosted: true,
            },
            responder,
            free_seats: SEATS,
        }
    }

    /// Frees seats, or takes them, and says in answers whether one is left.
    pub(super) fn change_free_seats(&mut self, change: i32) {
        self.free_seats = self.free_seats.saturating_add_signed(change);
        self.responder.set_full(self.free_seats == 0);
    }
}
