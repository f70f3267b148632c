//! Checks shared by many fields: texts, numbers, ids, list lengths.

use std::fmt::Display;

use crate::api::convert::FieldErrors;
use crate::auth::token::TOKEN_BYTES_MAX;
use crate::domain::id::{AdvertisementId, ReservationId, UserKey};
use crate::domain::limit;

/// Checks a required text: not empty, at most `limit::STRING_BYTES_MAX` bytes.
pub(crate) fn check_required_text(text: &str, path: impl Display + Copy, problems: &mut FieldErrors) {
    if text.is_empty() {
        problems.add(path, "is missing; send a non-empty text");
    }
    check_text_len(text, path, problems);
}

/// Checks a text of at most `limit::STRING_BYTES_MAX` bytes; it may be empty.
pub(crate) fn check_text_len(text: &str, path: impl Display + Copy, problems: &mut FieldErrors) {
    let max = limit::STRING_BYTES_MAX;
    if text.len() > max {
        problems.add(path, format!("has {} bytes; at most {max} are allowed", text.len()));
    }
}

/// Checks that a number is finite and small enough for differences and squares. Negative zero and subnormal numbers
/// become zero, so that equal values have equal bits.
pub(crate) fn checked_number(number: f64, path: impl Display + Copy, problems: &mut FieldErrors) -> f64 {
    let max = limit::NUMBER_MAGNITUDE_MAX;
    if !(-max..=max).contains(&number) {
        problems.add(path, format!("is {number}; must be a number from -{max:e} to {max:e}"));
        return 0.0;
    }
    if number.is_normal() { number } else { 0.0 }
}

/// Checks a number of at least 0.
pub(crate) fn checked_non_negative_number(value: f64, path: impl Display + Copy, problems: &mut FieldErrors) -> f64 {
    let value = checked_number(value, path, problems);
    if value < 0.0 {
        problems.add(path, format!("is {value}; must not be negative"));
    }
    value
}

/// Checks a measured round trip, milliseconds.
pub(crate) fn checked_round_trip_ms(ms: f32, path: impl Display + Copy, problems: &mut FieldErrors) -> f32 {
    let max = limit::ROUND_TRIP_MS_MAX;
    if !(0.0..=max).contains(&ms) {
        problems.add(path, format!("is {ms}; must be from 0 to {max} milliseconds"));
        return 0.0;
    }
    if ms.is_normal() { ms } else { 0.0 }
}

/// Checks an integer in the range `min` to `max`; returns it clamped.
pub(crate) fn check_and_clamp_integer(
    value: i32,
    min: i32,
    max: i32,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> i32 {
    if !(min..=max).contains(&value) {
        let text = match max {
            i32::MAX => format!("is {value}; must not be less than {min}"),
            _ => format!("is {value}; must be from {min} to {max}"),
        };
        problems.add(path, text);
    }
    value.clamp(min, max)
}

/// Checks that a list has at most `max` entries. Returns false if it has more: its entries need no further checks.
pub(crate) fn check_list_len(len: usize, max: usize, path: impl Display + Copy, problems: &mut FieldErrors) -> bool {
    if len > max {
        problems.add(path, format!("has {len} entries; at most {max} are allowed"));
    }
    len <= max
}

/// Checks that a value has at most `max` bytes.
pub(crate) fn check_byte_len(len: usize, max: usize, path: impl Display + Copy, problems: &mut FieldErrors) {
    if len > max {
        problems.add(path, format!("has {len} bytes; at most {max} are allowed"));
    }
}

/// Checks the size of a token; returns it unchanged.
pub(crate) fn size_checked_token(token: Vec<u8>, path: impl Display + Copy, problems: &mut FieldErrors) -> Vec<u8> {
    check_byte_len(token.len(), TOKEN_BYTES_MAX, path, problems);
    token
}

/// Checks an idempotency key. An anonymous caller has no other proof of identity, so its key must be hard to guess.
pub(crate) fn check_idempotency_key(
    key: &str,
    is_anonymous: bool,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) {
    check_byte_len(key.len(), limit::IDEMPOTENCY_KEY_BYTES_MAX, path, problems);
    let min = limit::ANONYMOUS_IDEMPOTENCY_KEY_BYTES_MIN;
    if is_anonymous && key.len() < min {
        let text =
            format!("has {} characters; anonymous callers must send at least {min} random characters", key.len());
        problems.add(path, text);
    }
}

/// Parses an advertisement id; `None` if it is malformed.
pub(crate) fn parse_advertisement_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<AdvertisementId> {
    let id = AdvertisementId::parse(text);
    if id.is_none() {
        problems.add(path, invalid_id_message(text, ADVERTISEMENT_ID_OBTAINED_FROM));
    }
    id
}

/// Parses a reservation id; `None` if it is malformed.
pub(crate) fn parse_reservation_id(
    text: &str,
    path: impl Display + Copy,
    problems: &mut FieldErrors,
) -> Option<ReservationId> {
    let id = ReservationId::parse(text);
    if id.is_none() {
        problems.add(path, invalid_id_message(text, RESERVATION_ID_OBTAINED_FROM));
    }
    id
}

/// Responses that contain the ids, for error messages.
pub(crate) const ADVERTISEMENT_ID_OBTAINED_FROM: &str = "the response to Search or UpdateAdvertisement";
pub(crate) const RESERVATION_ID_OBTAINED_FROM: &str = "the response to Reserve, or from the reservation event";
pub(crate) const TICKET_ID_OBTAINED_FROM: &str = "the response to Enter";
pub(crate) const MATCH_ID_OBTAINED_FROM: &str = "the status of the ticket";
pub(crate) const PLAYER_KEY_OBTAINED_FROM: &str = "the players of the match";

/// Problem of a text that is not an id. `source` is the response that contains the id.
pub(crate) fn invalid_id_message(text: &str, source: &str) -> String {
    if text.is_empty() {
        format!("is empty; send the id from {source}")
    } else {
        format!("is not an id of 32 hexadecimal digits; send the id from {source}")
    }
}

/// Milliseconds of a request as 32 bits: a longer time is clamped to a limit in any case.
pub(super) fn saturating_u32_ms(ms: u64) -> u32 {
    u32::try_from(ms).unwrap_or(u32::MAX)
}

/// Reads at most `max` users, in the order of the request.
pub(super) fn checked_user_keys_from_ids(
    wire: &[String],
    max: usize,
    path: &str,
    problems: &mut FieldErrors,
) -> Vec<UserKey> {
    if !check_list_len(wire.len(), max, path, problems) {
        return Vec::new();
    }
    for (index, user) in wire.iter().enumerate() {
        check_required_text(user, format_args!("{path}[{index}]"), problems);
    }
    wire.iter().map(|user| UserKey::from_name(user)).collect()
}
