//! The only file that may ask what time it is or roll dice.

use crate::domain::time::UnixMs;

/// Where time and chance come from; tests turn theirs by hand.
pub trait Clock: Send + Sync + 'static {
    /// Now. Never runs backwards within one process.
    fn now(&self) -> UnixMs;

    /// Uniform in [0, 1).
    fn dice(&self) -> f64;

    /// Sixteen bytes that nobody can guess.
    fn random_bytes(&self) -> [u8; 16];
}
