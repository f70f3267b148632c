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
pub struct Retries {
    /// Attempts in all; 1 never repeats.
    pub attempts: u32,
    /// Longest wait before the second attempt; each further one may take twice as long.
    pub first_wait: Duration,
    /// No wait is longer. A server that asks for more gets no repetition: the error says when to come back.
    pub longest_wait: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 4, first_wait: Duration::from_millis(200), longest_wait: Duration::from_secs(5) }
    }
}

impl Retries {
    /// Every call is made once.
    pub const NEVER: Retries = Retries { attempts: 1, first_wait: Duration::ZERO, longest_wait: Duration::ZERO };

    /// How long to wait after the attempt `made` (1 for the first) failed with `error`; `None` to give up.
    ///
    /// `dice` is uniform in [0, 1). Without a word from the server the wait lies between half and all of the doubled
    /// step; with one it is what the server asks for and up to a quarter more. Both spread a crowd that was sent away
    /// at the same moment.
    pub(crate) fn wait_after(&self, made: u32, error: &Error, dice: f64) -> Option<Duration> {
        let Error::Failed(failure) = error else { return None };
        if failure.code != Code::Unavailable || failure.retry_forbidden || self.attempts <= made {
            return None;
        }
        match failure.retry_after {
            Some(asked) if self.longest_wait < asked => None,
            Some(asked) => Some(asked.mul_f64(1.0 + dice / 4.0)),
            None => {
                let doubled = self.first_wait.saturating_mul(1 << (made - 1).min(16));
                Some(doubled.min(self.longest_wait).mul_f64(0.5 + dice / 2.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Status;
    use tonic_types::{ErrorDetails, StatusExt};

    const RETRIES: Retries =
        Retries { attempts: 4, first_wait: Duration::from_millis(100), longest_wait: Duration::from_millis(300) };

    fn check(made: u32, status: Status, dice: f64, wait_ms: Option<u64>) {
        let wait = RETRIES.wait_after(made, &Error::from(status), dice);
        assert_eq!(wait, wait_ms.map(Duration::from_millis), "after attempt {made} with dice {dice}");
    }

    fn asked(ms: u64) -> Status {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(ms)));
        Status::with_error_details(Code::Unavailable, "later", details)
    }

    #[test]
    fn waits_double_up_to_the_longest_and_never_lose_more_than_half_to_the_dice() {
        check(1, Status::unavailable(""), 0.0, Some(50));
        check(1, Status::unavailable(""), 0.5, Some(75));
        check(2, Status::unavailable(""), 0.0, Some(100));
        check(3, Status::unavailable(""), 0.0, Some(150));
        check(4, Status::unavailable(""), 0.0, None);
    }

    #[test]
    fn the_servers_wish_is_kept_or_handed_to_the_caller() {
        check(1, asked(200), 0.0, Some(200));
        check(1, asked(200), 0.5, Some(225));
        check(1, asked(301), 0.0, None);
    }

    #[test]
    fn only_unavailable_is_worth_asking_again() {
        check(1, Status::invalid_argument(""), 0.0, None);
        check(1, Status::internal(""), 0.0, None);
        check(1, Status::resource_exhausted(""), 0.0, None);
        let mut never = Status::unavailable("");
        never.metadata_mut().insert("grpc-retry-pushback-ms", "-1".parse().unwrap());
        check(1, never, 0.0, None);
        assert_eq!(Retries::NEVER.wait_after(1, &Error::from(Status::unavailable("")), 0.0), None);
    }
}
