//! The checks that many fields share: texts, numbers, ids, counts.

use std::fmt::Display;

use crate::api::convert::FieldErrors;
use crate::domain::id::{AdvertisementId, ReservationId};
use crate::domain::limit;

/// Bytes of a token. The server's own are shorter; anything longer is not one.
const TOKEN_BYTES_MAX: usize = 512;

/// A text of at most `limit::TEXT_BYTES_MAX` bytes; empty ones are refused.
pub(in crate::api) fn check_required_text(text: &str, path: impl Display + Copy, problems: &mut FieldErrors) {
    if text.is_empty() {
        problems.add(path, "is missing");
    }
    check_text_len(text, path, problems);
}

/// A text of at most `limit::TEXT_BYTES_MAX` bytes, or none.
pub(in crate::api) fn check_text_len(text: &str, path: impl Display + Copy, problems: &mut FieldErrors) {
    let max = limit::STRING_BYTES_MAX;
    if max < text.len() {
        problems.add(path, format!("has {} bytes, at most {max} are allowed", text.len()));
    }
}

/// A finite number of a magnitude that leaves room for differences and squares (SEC-18). Negative zero becomes zero and
/// subnormal numbers become zero, so that equal values have equal bits.
pub(in crate::api) fn checked_number(number: f64, path: impl Display + Copy, problems: &mut FieldErrors) -> f64 {
    let max = limit::NUMBER_MAGNITUDE_MAX;
    if !(-max..=max).contains(&number) {
        problems.add(path, format!("is {number}, must be a number from -{max:e} to {max:e}"));
        return 0.0;
    }
    if number.is_normal() { number } else { 0.0 }
}

/// A number of at least 0.
pub(in crate::api) fn checked_non_negative_number(
    value: f64,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> f64 {
    let value = checked_number(value, path, problems);
    if value < 0.0 {
        problems.add(path, format!("is {value}, must not be negative"));
    }
    value
}

/// A measured round trip, milliseconds.
pub(in crate::api) fn checked_round_trip_ms(ms: f32, path: impl Display + Copy, problems: &mut FieldErrors) -> f32 {
    let max = limit::ROUND_TRIP_MS_MAX;
    if !(0.0..=max).contains(&ms) {
        problems.add(path, format!("is {ms}, must be from 0 to {max} milliseconds"));
        return 0.0;
    }
    if ms.is_normal() { ms } else { 0.0 }
}

/// A whole number in a range.
pub(in crate::api) fn checked_integer(
    value: i32,
    min: i32,
    max: i32,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> i32 {
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
pub(in crate::api) fn check_list_len(
    given: usize,
    max: usize,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> bool {
    if max < given {
        problems.add(path, format!("has {given} entries, at most {max} are allowed"));
    }
    given <= max
}

/// A list of at most `max` bytes, or a text that has no other name.
pub(in crate::api) fn check_byte_len(given: usize, max: usize, path: impl Display + Copy, problems: &mut FieldErrors) {
    if max < given {
        problems.add(path, format!("has {given} bytes, at most {max} are allowed"));
    }
}

/// A token, kept as it came.
pub(in crate::api) fn checked_token(token: Vec<u8>, path: impl Display + Copy, problems: &mut FieldErrors) -> Vec<u8> {
    check_byte_len(token.len(), TOKEN_BYTES_MAX, path, problems);
    token
}

/// An idempotency key. What an anonymous caller sends is all that keeps it apart from strangers, so it must be long.
pub(in crate::api) fn check_idempotency_key(
    key: &str,
    anonymous: bool,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) {
    check_byte_len(key.len(), limit::IDEMPOTENCY_KEY_BYTES_MAX, path, problems);
    let min = limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN;
    if anonymous && key.len() < min {
        let text = format!("has {} characters; from anonymous callers {min} random ones or more are needed", key.len());
        problems.add(path, text);
    }
}

/// The name of an advertisement.
pub(in crate::api) fn parse_advertisement_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<AdvertisementId> {
    let id = AdvertisementId::parse(text);
    if id.is_none() {
        problems.add(path, invalid_id_message(text));
    }
    id
}

/// The name of a reservation.
pub(in crate::api) fn parse_reservation_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<ReservationId> {
    let id = ReservationId::parse(text);
    if id.is_none() {
        problems.add(path, invalid_id_message(text));
    }
    id
}

pub(in crate::api) fn invalid_id_message(text: &str) -> &'static str {
    if text.is_empty() { "is missing" } else { "is no id: 32 hexadecimal digits, as the server gave it" }
}
