//! Handles: advertisement ids encrypted for one party and for a time, so that two searchers cannot compare them.

use crate::auth::block_cipher::BlockCipher;
use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;

/// Length of a window, milliseconds. A handle is good in its window and in the next one.
pub const ADVERTISEMENT_HANDLE_WINDOW_MS: u64 = 10 * 60 * 1_000;

/// Number of the window at `now`.
pub(super) fn window_at(now: UnixMs) -> u64 {
    now.0 / ADVERTISEMENT_HANDLE_WINDOW_MS
}

/// Seals advertisement ids for one party in one window.
#[derive(Clone, Debug)]
pub struct AdvertisementHandleCipher(pub(super) BlockCipher);

impl AdvertisementHandleCipher {
    /// Handle of an advertisement; it has the length of an id.
    pub fn seal(&self, id: AdvertisementId) -> AdvertisementId {
        AdvertisementId::from_bytes(self.0.encrypt(*id.as_bytes()))
    }

    /// Advertisement id of a handle. Each handle stands for an id, which may not exist.
    pub(super) fn decipher(&self, handle: AdvertisementId) -> AdvertisementId {
        AdvertisementId::from_bytes(self.0.decrypt(*handle.as_bytes()))
    }
}
