//! Cipher of handles: advertisement ids sealed for one party and for a time, so that two searchers cannot compare them.
//!
//! A block cipher of 16 bytes: four rounds of a Feistel network, whose round function is a MAC (Luby and Rackoff, 1988). So a
//! handle has the length of an id. Four rounds are enough also against an attacker who has handles opened.

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;

/// Length of a window, milliseconds. A handle is good in its window and in the next one.
pub const HANDLE_WINDOW_MS: u64 = 10 * 60 * 1_000;

const ROUNDS: u8 = 4;

/// Number of the window at `now`.
pub(super) fn window_at(now: UnixMs) -> u64 {
    now.0 / HANDLE_WINDOW_MS
}

/// Handle of an advertisement. `round_mac` takes the number of the round and half a block.
pub(super) fn seal(id: AdvertisementId, round_mac: impl Fn(u8, u64) -> u64) -> AdvertisementId {
    let (mut left, mut right) = halves(id);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ round_mac(round, right));
    }
    joined(left, right)
}

/// Inverse of `seal`.
pub(super) fn open(handle: AdvertisementId, round_mac: impl Fn(u8, u64) -> u64) -> AdvertisementId {
    let (mut left, mut right) = halves(handle);
    for round in (0..ROUNDS).rev() {
        (left, right) = (right ^ round_mac(round, left), left);
    }
    joined(left, right)
}

fn halves(id: AdvertisementId) -> (u64, u64) {
    let number = u128::from_be_bytes(*id.as_bytes());
    ((number >> 64) as u64, number as u64)
}

fn joined(left: u64, right: u64) -> AdvertisementId {
    AdvertisementId::from_bytes((u128::from(left) << 64 | u128::from(right)).to_be_bytes())
}
