//! When to ask again. Decides only; `client.rs` does the waiting.

use std::time::Duration;

use tonic::Code;

use crate::error::Error;

/// How often and how patiently a call is repeated when the server is out of reach (UNAVAILABLE). Nothing else is
/// repeated: every other code says that asking again gives the same answer.
///
/// Repeating is safe because every call of this client is idempotent: creating and reserving carry a key, and the
/// rest say what shall be, not what shall change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all; 1 never repeats.
    pub max_attempts: u32,
    /// Longest wait before the second attempt; each further one may take twice as long.
    pub initial_backoff: Duration,
    /// No wait is longer. A server that asks for more gets no repetition: the error says when to come back.
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { max_attempts: 4, initial_backoff: Duration::from_millis(200), max_backoff: Duration::from_secs(5) }
    }
}

impl RetryPolicy {
    /// Every call is made once.
    pub const NEVER: RetryPolicy =
        RetryPolicy { max_attempts: 1, initial_backoff: Duration::ZERO, max_backoff: Duration::ZERO };

    /// How long to wait after the attempt `made` (1 for the first) failed with `error`; `None` to give up.
    ///
    /// `dice` is uniform in [0, 1). Without a word from the server the wait lies between half and all of the doubled
    /// step; with one it is what the server asks for and up to a quarter more. Both spread a crowd that was sent away
    /// at the same moment.
    pub(crate) fn backoff_after(&self, made: u32, error: &Error, dice: f64) -> Option<Duration> {
        let Error::CallFailed(failure) = error else { return None };
        if failure.code != Code::Unavailable || failure.retry_forbidden || self.max_attempts <= made {
            return None;
        }
        match failure.retry_after {
            Some(asked) if self.max_backoff < asked => None,
            Some(asked) => Some(asked.mul_f64(1.0 + dice / 4.0)),
            None => {
                let doubled = self.initial_backoff.saturating_mul(1 << (made - 1).min(16));
                Some(doubled.min(self.max_backoff).mul_f64(0.5 + dice / 2.0))
            }
        }
    }
}

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

    fn assert_backoff(made: u32, status: Status, dice: f64, wait_ms: Option<u64>) {
        let wait = RETRY_POLICY.backoff_after(made, &Error::from(status), dice);
        assert_eq!(wait, wait_ms.map(Duration::from_millis), "after attempt {made} with dice {dice}");
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
        let mut never = Status::unavailable("");
        never.metadata_mut().insert("grpc-retry-pushback-ms", "-1".parse().unwrap());
        assert_backoff(1, never, 0.0, None);
        assert_eq!(RetryPolicy::NEVER.backoff_after(1, &Error::from(Status::unavailable("")), 0.0), None);
    }
}
