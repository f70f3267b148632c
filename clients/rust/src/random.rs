//! Random numbers: retry jitter, idempotency keys, and seeds. No other file generates random numbers.

use std::fmt::Write;

use rand::Rng;

use crate::pb;

/// Random number, uniform in [0, 1), that spreads the retries of many clients.
#[expect(clippy::disallowed_methods, reason = "the only file that generates random numbers")]
pub(crate) fn jitter_fraction() -> f64 {
    rand::rng().random()
}

/// Random bytes that no one can guess.
#[expect(clippy::disallowed_methods, reason = "the only file that generates random numbers")]
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::rng().fill(&mut bytes[..]);
    bytes
}

/// Idempotency key: 128 random bits as 32 hexadecimal digits.
///
/// For anonymous callers only this key distinguishes one caller's requests from another's, so it comes from the thread's
/// cryptographic generator.
pub(crate) fn idempotency_key() -> String {
    bytes::<16>().iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Adds an idempotency key to a create request, so that a retry creates no second advertisement.
pub(crate) fn ensure_idempotency_key(update: &mut pb::MatchmakingUpdateAdvertisementRequest) {
    if update.advertisement_id.is_empty() && update.idempotency_key.is_empty() {
        update.idempotency_key = idempotency_key();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_key_is_128_random_bits() {
        let (one, other) = (idempotency_key(), idempotency_key());
        assert_eq!(one.len(), 32);
        assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }
}
