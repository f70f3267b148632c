//! Token bucket of the connection limits: new connections per client prefix, and control frames.
//!
//! Rate limits of calls are in `auth::rate_limit`, on the library `governor`. Its buckets read a clock themselves and
//! cannot be asked whether they are full, which the limits of connections need to drop idle prefixes.

use std::time::Duration;

use tokio::time::Instant;

/// Rate of a token bucket.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Tokens in a full bucket.
    pub burst: u32,
    /// Time until one token is added.
    pub interval: Duration,
}

/// Token bucket (GCRA): stores the time at which it will be full.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// Time at which the bucket is full again.
    full_at: Instant,
}

/// The bucket has too few tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded;

impl TokenBucket {
    /// Creates a full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, full_at: now }
    }

    /// Tokens in a full bucket.
    pub fn burst(&self) -> u32 {
        self.rate.burst
    }

    /// Takes `count` tokens. Fails, and takes none, if there are fewer.
    pub fn take(&mut self, count: u32, now: Instant) -> Result<(), RateExceeded> {
        let Rate { burst, interval } = self.rate;
        let full_at = self.full_at.max(now) + interval * count;
        if full_at > now + interval * burst {
            return Err(RateExceeded);
        }
        self.full_at = full_at;
        Ok(())
    }

    /// Whether the bucket is full, like a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn token_bucket_gives_a_burst_and_then_one_token_per_interval() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(Rate { burst: 3, interval: SECOND }, start);
        assert_eq!(bucket.take(4, start), Err(RateExceeded), "more than a full bucket");
        assert_eq!(bucket.take(2, start), Ok(()));
        assert_eq!(bucket.take(2, start), Err(RateExceeded), "a rejected call takes none");
        assert_eq!(bucket.take(1, start), Ok(()));
        assert_eq!(bucket.take(1, start + SECOND / 2), Err(RateExceeded));
        assert_eq!(bucket.take(1, start + SECOND), Ok(()));
        assert!(!bucket.is_full(start + SECOND * 3));
        assert!(bucket.is_full(start + SECOND * 4));
        assert_eq!(bucket.take(3, start + SECOND * 60), Ok(()), "a long pause gives one burst");
        assert_eq!(bucket.take(1, start + SECOND * 60), Err(RateExceeded));
    }
}
