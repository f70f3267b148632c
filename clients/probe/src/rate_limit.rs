//! Rate limits of fixed size: memory does not grow with the number of senders.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use crate::address::AddressPrefix;

/// Rate with a burst. Holds one number: the time at which all that was granted is paid for, by the sender's clock.
#[derive(Clone, Copy, Debug)]
struct Rate {
    interval_us: u64,
    burst: u64,
}

impl Rate {
    fn new(per_second: u32, burst: u32) -> Self {
        Self { interval_us: 1_000_000 / u64::from(per_second.clamp(1, 1_000_000)), burst: u64::from(burst.max(1)) }
    }

    /// Takes one of the rate, if there is one.
    fn take(self, paid_at_us: &mut u64, now_us: u64) -> bool {
        let paid_at = (*paid_at_us).max(now_us);
        let is_granted = paid_at - now_us <= (self.burst - 1) * self.interval_us;
        if is_granted {
            *paid_at_us = paid_at + self.interval_us;
        }
        is_granted
    }

    /// Share of the burst that is used.
    fn used_share(self, paid_at_us: u64, now_us: u64) -> f64 {
        paid_at_us.saturating_sub(now_us) as f64 / (self.burst * self.interval_us) as f64
    }
}

/// Limit over all senders.
#[derive(Debug)]
pub(crate) struct TotalRateLimit {
    rate: Rate,
    theoretical_arrival_us: u64,
}

impl TotalRateLimit {
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        Self { rate: Rate::new(per_second, burst), theoretical_arrival_us: 0 }
    }

    pub(crate) fn take(&mut self, now_us: u64) -> bool {
        self.rate.take(&mut self.theoretical_arrival_us, now_us)
    }

    /// Whether more than 80 % of the limit is used, so that senders are asked to wait.
    pub(crate) fn is_nearly_used(&self, now_us: u64) -> bool {
        0.8 < self.rate.used_share(self.theoretical_arrival_us, now_us)
    }
}

/// Limit for each IPv4 /24 and IPv6 /56. Networks share a fixed number of entries, by a hash that no sender can predict.
#[derive(Debug)]
pub(crate) struct PrefixRateLimit {
    rate: Rate,
    theoretical_arrivals_us: Box<[u64]>,
    hasher: RandomState,
}

impl PrefixRateLimit {
    pub(crate) fn new(entries: usize, per_second: u32, burst: u32) -> Self {
        let (rate, hasher) = (Rate::new(per_second, burst), RandomState::new());
        Self { rate, theoretical_arrivals_us: vec![0; entries].into(), hasher }
    }

    pub(crate) fn take(&mut self, from: IpAddr, now_us: u64) -> bool {
        let hash = self.hasher.hash_one(AddressPrefix::of(from));
        let entry = (hash % self.theoretical_arrivals_us.len() as u64) as usize;
        self.rate.take(&mut self.theoretical_arrivals_us[entry], now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A burst is granted at once, and then one in each interval. A pause gives the burst again, and no more.
    #[test]
    fn rate_limit_grants_its_rate_and_its_burst() {
        let mut limit = TotalRateLimit::new(20, 5);
        let granted = |limit: &mut TotalRateLimit, at_us: u64| (0..100).filter(|_| limit.take(at_us)).count();
        assert_eq!(granted(&mut limit, 1_000_000), 5);
        assert!(limit.is_nearly_used(1_000_000));
        assert_eq!((1..=20).map(|step| granted(&mut limit, 1_000_000 + step * 50_000)).sum::<usize>(), 20);
        assert_eq!(granted(&mut limit, 60_000_000), 5);
        assert!(!limit.is_nearly_used(120_000_000));
    }

    /// SEC-8: one network does not use the rate of another, and addresses of one network share theirs.
    #[test]
    fn networks_have_rates_of_their_own() {
        let mut limit = PrefixRateLimit::new(65_536, 20, 40);
        let granted = |limit: &mut PrefixRateLimit, prefix: &str| {
            (0..100).filter(|last| limit.take(format!("{prefix}{last}").parse().unwrap(), 1_000_000)).count()
        };
        for prefix in ["192.0.2.", "198.51.100.", "2001:db8:0:100::", "2001:db8:0:200::", "::ffff:203.0.113."] {
            assert_eq!(granted(&mut limit, prefix), 40, "{prefix}");
        }
        assert_eq!(granted(&mut limit, "2001:db8:0:1ff::"), 0, "the same /56");
        assert_eq!(granted(&mut limit, "203.0.113."), 0, "the same /24, on a socket of one family");
    }
}
