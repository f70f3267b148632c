//! Deadline of a call: the client's `grpc-timeout`, limited by the server.

use std::time::Duration;

use http::HeaderMap;
use tonic::{Code, Status};

use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// Limit of digits in a `grpc-timeout` (gRPC over HTTP/2), so that the value fits.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// Timeout from the `grpc-timeout` header; `None` if it is missing or malformed.
pub fn requested_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > TIMEOUT_DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3_600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// Status of a call that missed its deadline. A write that it has submitted may still take effect.
pub fn deadline_exceeded_status() -> Status {
    let text = "deadline exceeded; the request may still take effect: retry with the same idempotency key";
    Rejection::new(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, text).into_status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_header_is_parsed_by_unit() {
        let check = |text: &str, expected: Option<Duration>| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(requested_timeout(&headers), expected, "{text:?}");
        };
        check("2H", Some(Duration::from_secs(7_200)));
        check("3M", Some(Duration::from_secs(180)));
        check("5S", Some(Duration::from_secs(5)));
        check("100m", Some(Duration::from_millis(100)));
        check("7u", Some(Duration::from_micros(7)));
        check("99999999n", Some(Duration::from_nanos(99_999_999)));
        for nonsense in ["", "5", "S", "-5S", "+5S", "999999999S", "5x", "5 S"] {
            check(nonsense, None);
        }
        assert_eq!(requested_timeout(&HeaderMap::new()), None);
    }
}
