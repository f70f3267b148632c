//! The only file that rolls dice: jitter, so that clients do not come back in step, and keys that nobody can guess.

use std::fmt::Write;

use rand::Rng;

/// Uniform in [0, 1).
#[expect(clippy::disallowed_methods, reason = "this is the file that rolls dice")]
pub(crate) fn jitter() -> f64 {
    rand::rng().random()
}

/// An idempotency key: 128 random bits as 32 hexadecimal digits. For an anonymous caller it is all that keeps
/// strangers apart, so it comes from the thread's cryptographic generator.
#[expect(clippy::disallowed_methods, reason = "this is the file that rolls dice")]
pub(crate) fn idempotency_key() -> String {
    let bytes: [u8; 16] = rand::rng().random();
    bytes.iter().fold(String::with_capacity(32), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
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
