//! Retry policy: number of attempts and exponential backoff with jitter. `retrying_channel.rs` does the waiting.

use std::time::Duration;

#[cfg(feature = "runtime")]
use tonic::Code;

#[cfg(feature = "runtime")]
use crate::error::Error;

/// Retry policy for calls that fail with UNAVAILABLE. Calls that fail with another code are not repeated: another attempt
/// would give the same result.
///
/// Retries are safe because every call of this client is idempotent. Creating and reserving carry an idempotency key; the
/// other calls set a state instead of changing it relatively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first; 1 disables retries.
    pub max_attempts: u32,
    /// Maximum wait before the second attempt; it doubles for each further attempt.
    pub initial_backoff: Duration,
    /// Maximum wait between attempts. If the server asks for a longer delay, the call fails, and the error has the delay.
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, initial_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(5) }
    }
}

impl RetryPolicy {
    /// Policy without retries.
    pub const NEVER: RetryPolicy =
        RetryPolicy { max_attempts: 1, initial_backoff: Duration::ZERO, max_backoff: Duration::ZERO };

    /// Time to wait after attempt number `attempt` (from 1) failed with `error`; `None` if the call must not be repeated.
    ///
    /// `jitter` is uniform in [0, 1). With a retry delay from the server, the wait is that delay plus up to a quarter.
    /// Otherwise it lies between half and all of the doubled backoff. The jitter spreads clients that failed together.
    #[cfg(feature = "runtime")]
    pub(crate) fn pause_after_error(&self, attempt: u32, error: &Error, jitter: f64) -> Option<Duration> {
        let Error::CallFailed(failure) = error else { return None };
        if failure.code != Code::Unavailable || failure.retry_forbidden {
            return None;
        }
        self.pause(attempt, failure.retry_after, jitter)
    }

    /// Pause after attempt number `attempt` (from 1) failed in a way that another may change; `None` after the last one, and if the
    /// server asks for more than `max_backoff`.
    pub(crate) fn pause(&self, attempt: u32, retry_after: Option<Duration>, jitter: f64) -> Option<Duration> {
        match retry_after {
            _ if attempt >= self.max_attempts => None,
            Some(delay) if delay > self.max_backoff => None,
            Some(delay) => Some(delay.mul_f64(1.0 + jitter / 4.0)),
            None => {
                let doubled = self.initial_backoff.saturating_mul(1 << attempt.saturating_sub(1).min(16));
                Some(doubled.min(self.max_backoff).mul_f64(0.5 + jitter / 2.0))
            }
        }
    }
}

#[cfg(feature = "runtime")]
#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    const RETRY_POLICY: RetryPolicy = RetryPolicy {
        max_attempts: 4,
        initial_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_millis(300),
    };

    fn assert_backoff(attempt: u32, status: Status, jitter: f64, expected_ms: Option<u64>) {
        let backoff = RETRY_POLICY.pause_after_error(attempt, &Error::from(status), jitter);
        assert_eq!(backoff, expected_ms.map(Duration::from_millis), "after attempt {attempt} with jitter {jitter}");
    }

    fn unavailable_with_retry_delay(ms: u64) -> Status {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(ms)));
        Status::with_error_details(Code::Unavailable, "later", details)
    }

    #[test]
    fn retry_backoff_doubles_up_to_the_maximum_with_jitter() {
        assert_backoff(1, Status::unavailable(""), 0.0, Some(50));
        assert_backoff(1, Status::unavailable(""), 0.5, Some(75));
        assert_backoff(2, Status::unavailable(""), 0.0, Some(100));
        assert_backoff(3, Status::unavailable(""), 0.0, Some(150));
        assert_backoff(4, Status::unavailable(""), 0.0, None);
    }

    #[test]
    fn retry_delay_of_the_server_is_used_or_returned_to_the_caller() {
        assert_backoff(1, unavailable_with_retry_delay(200), 0.0, Some(200));
        assert_backoff(1, unavailable_with_retry_delay(200), 0.5, Some(225));
        assert_backoff(1, unavailable_with_retry_delay(301), 0.0, None);
    }

    #[test]
    fn retry_happens_for_unavailable_only() {
        assert_backoff(1, Status::invalid_argument(""), 0.0, None);
        assert_backoff(1, Status::internal(""), 0.0, None);
        assert_backoff(1, Status::resource_exhausted(""), 0.0, None);
        let mut forbidden = Status::unavailable("");
        forbidden.metadata_mut().insert("grpc-retry-pushback-ms", "-1".parse().unwrap());
        assert_backoff(1, forbidden, 0.0, None);
        assert_eq!(RetryPolicy::NEVER.pause_after_error(1, &Error::from(Status::unavailable("")), 0.0), None);
    }
}
