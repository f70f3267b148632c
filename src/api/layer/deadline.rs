//! How long a call may take: as long as its client will wait, and no longer than the server allows.

use std::time::Duration;

use http::HeaderMap;
use tonic::{Code, Status};

use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// Digits in a `grpc-timeout`, by the gRPC protocol; so the value always fits.
const TIMEOUT_DIGITS_MAX: usize = 8;

/// How long the client will wait, by its `grpc-timeout`; none when it says nothing that makes sense.
pub fn requested_timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || TIMEOUT_DIGITS_MAX < digits.len() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
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

/// What a call says that took too long. What it had submitted may still happen.
pub fn deadline_exceeded_status() -> Status {
    let text = "the call took too long; what it asked for may still happen: ask again with the same key";
    Rejection::new(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, text).into_status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeout_header_is_parsed_by_unit() {
        let check = |text: &str, wanted: Option<Duration>| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", text.parse().unwrap());
            assert_eq!(requested_timeout(&headers), wanted, "{text:?}");
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
