//! Phase of probes: several hosts, a few at once, until all are known or the time is over.

use std::net::SocketAddr;

use fireteam_probe::{HostProber, ProbeFinding};

use crate::matching::effects::Effects;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::outcome::Transmit;

/// Probes of the hosts of one phase, in their order.
#[derive(Debug)]
pub(super) struct ProbePhase {
    hosts: Vec<HostUnderTest>,
    at_once: usize,
    ends_at: MonotonicTime,
}

/// Host of a phase.
#[derive(Debug)]
pub(super) struct HostUnderTest {
    pub(super) advertisement_id: String,
    pub(super) endpoint: SocketAddr,
    pub(super) prober: HostProber,
}

impl ProbePhase {
    /// Phase that probes `at_once` hosts at once, and ends at `ends_at` at the latest.
    pub(super) fn new(hosts: Vec<HostUnderTest>, at_once: usize, ends_at: MonotonicTime) -> Self {
        Self { hosts, at_once, ends_at }
    }

    /// Takes a datagram. Datagrams that are no answers change nothing.
    pub(super) fn handle(&mut self, packet: &[u8], from: SocketAddr, now: MonotonicTime) {
        for host in &mut self.hosts {
            if host.prober.handle(packet, from, now.as_micros()) {
                break;
            }
        }
    }

    /// Sends what may be sent now. Returns whether the phase is over.
    pub(super) fn send_due_probes(&mut self, effects: &mut Effects, now: MonotonicTime) -> bool {
        if self.ends_at <= now {
            return true;
        }
        for host in &mut self.hosts {
            host.prober.expire(now.as_micros());
        }
        if effects.packet_budget.next_at() <= now
            && let Some(host) = self.next_to_send()
            && let Some(packet) = host.prober.next_packet(now.as_micros())
        {
            effects.transmits.push_back(Transmit { to: host.endpoint, packet });
            effects.packet_budget.record_sent_packet(now);
        }
        self.hosts.iter().all(|host| host.prober.finding().is_some())
    }

    /// Time of the next packet, of the next late answer, or of the end.
    pub(super) fn next_timeout(&self, effects: &Effects) -> MonotonicTime {
        let budget_at = effects.packet_budget.next_at();
        let timeouts = self.under_test().flat_map(|host| {
            let send_at = host.prober.next_send_us().map(|at_us| MonotonicTime::from_micros(at_us).max(budget_at));
            let expires_at = host.prober.next_expiry_us().map(MonotonicTime::from_micros);
            [send_at, expires_at].into_iter().flatten()
        });
        timeouts.min().unwrap_or(self.ends_at).min(self.ends_at)
    }

    /// Ends the phase. `None` for a host of which it is not known whether it answers.
    pub(super) fn finish(self) -> impl Iterator<Item = (String, HostProber, Option<ProbeFinding>)> {
        self.hosts.into_iter().map(|mut host| {
            let finding = host.prober.end();
            (host.advertisement_id, host.prober, finding)
        })
    }

    /// The first hosts whose run goes on.
    fn under_test(&self) -> impl Iterator<Item = &HostUnderTest> {
        self.hosts.iter().filter(|host| host.prober.finding().is_none()).take(self.at_once)
    }

    /// Host whose turn it is.
    fn next_to_send(&mut self) -> Option<&mut HostUnderTest> {
        let under_test = self.hosts.iter_mut().filter(|host| host.prober.finding().is_none()).take(self.at_once);
        under_test.filter(|host| host.prober.next_send_us().is_some()).min_by_key(|host| host.prober.next_send_us())
    }
}
