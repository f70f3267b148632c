//! The checks that many fields share: texts, numbers, ids, counts.

use std::fmt::Display;

use crate::api::convert::Problems;
use crate::domain::id::{AdvertisementId, ReservationId};
use crate::domain::limit;

/// Bytes of a token. The server's own are shorter; anything longer is not one.
const TOKEN_BYTES_MAX: usize = 512;

/// A text of at most `limit::TEXT_BYTES_MAX` bytes; empty ones are refused.
pub(in crate::api) fn name(text: &str, path: impl Display + Copy, problems: &mut Problems) {
    if text.is_empty() {
        problems.add(path, "is missing");
    }
    short_text(text, path, problems);
}

/// A text of at most `limit::TEXT_BYTES_MAX` bytes, or none.
pub(in crate::api) fn short_text(text: &str, path: impl Display + Copy, problems: &mut Problems) {
    let max = limit::TEXT_BYTES_MAX;
    if max < text.len() {
        problems.add(path, format!("has {} bytes, at most {max} are allowed", text.len()));
    }
}

/// A finite number of a magnitude that leaves room for differences and squares (SEC-18). Negative zero becomes zero and
/// subnormal numbers become zero, so that equal values have equal bits.
pub(in crate::api) fn number(number: f64, path: impl Display + Copy, problems: &mut Problems) -> f64 {
    let max = limit::NUMBER_MAGNITUDE_MAX;
    if !(-max..=max).contains(&number) {
        problems.add(path, format!("is {number}, must be a number from -{max:e} to {max:e}"));
        return 0.0;
    }
    if number.is_normal() { number } else { 0.0 }
}

/// A number of at least 0.
pub(in crate::api) fn positive(value: f64, path: impl Display + Copy, problems: &mut Problems) -> f64 {
    let value = number(value, path, problems);
    if value < 0.0 {
        problems.add(path, format!("is {value}, must not be negative"));
    }
    value
}

/// A measured round trip, milliseconds.
pub(in crate::api) fn round_trip_ms(ms: f32, path: impl Display + Copy, problems: &mut Problems) -> f32 {
    let max = limit::ROUND_TRIP_MS_MAX;
    if !(0.0..=max).contains(&ms) {
        problems.add(path, format!("is {ms}, must be from 0 to {max} milliseconds"));
        return 0.0;
    }
    if ms.is_normal() { ms } else { 0.0 }
}

/// A whole number in a range.
pub(in crate::api) fn whole(value: i32, min: i32, max: i32, path: impl Display + Copy, problems: &mut Problems) -> i32 {
    if !(min..=max).contains(&value) {
        let text = match max {
            i32::MAX => format!("is {value}, must not be less than {min}"),
            _ => format!("is {value}, must be from {min} to {max}"),
        };
        problems.add(path, text);
    }
    value.clamp(min, max)
}

/// Whether a list has at most `max` entries; if not, that is said, and its entries need no further look.
pub(in crate::api) fn count(given: usize, max: usize, path: impl Display + Copy, problems: &mut Problems) -> bool {
    if max < given {
        problems.add(path, format!("has {given} entries, at most {max} are allowed"));
    }
    given <= max
}

/// A list of at most `max` bytes, or a text that has no other name.
pub(in crate::api) fn size(given: usize, max: usize, path: impl Display + Copy, problems: &mut Problems) {
    if max < given {
        problems.add(path, format!("has {given} bytes, at most {max} are allowed"));
    }
}

/// A token, kept as it came.
pub(in crate::api) fn token(token: Vec<u8>, path: impl Display + Copy, problems: &mut Problems) -> Vec<u8> {
    size(token.len(), TOKEN_BYTES_MAX, path, problems);
    token
}

/// An idempotency key. What an anonymous caller sends is all that keeps it apart from strangers, so it must be long.
pub(in crate::api) fn key(key: &str, anonymous: bool, path: impl Display + Copy, problems: &mut Problems) {
    size(key.len(), limit::IDEMPOTENCY_KEY_BYTES_MAX, path, problems);
    let min = limit::ANONYMOUS_KEY_BYTES_MIN;
    if anonymous && key.len() < min {
        let text = format!("has {} characters; from anonymous callers {min} random ones or more are needed", key.len());
        problems.add(path, text);
    }
}

/// The name of an advertisement.
pub(in crate::api) fn advertisement_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut Problems,
) -> Option<AdvertisementId> {
    let id = AdvertisementId::parse(text);
    if id.is_none() {
        problems.add(path, bad_id(text));
    }
    id
}

/// The name of a reservation.
pub(in crate::api) fn reservation_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut Problems,
) -> Option<ReservationId> {
    let id = ReservationId::parse(text);
    if id.is_none() {
        problems.add(path, bad_id(text));
    }
    id
}

pub(in crate::api) fn bad_id(text: &str) -> &'static str {
    if text.is_empty() { "is missing" } else { "is no id: 32 hexadecimal digits, as the server gave it" }
}
