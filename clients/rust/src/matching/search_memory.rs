//! Memory of one search: its token, and the hosts that were probed in it.

use std::collections::BTreeMap;
use std::time::Duration;

use fireteam_probe::{HostProber, ProbeFinding};

use crate::matching::monotonic_time::MonotonicTime;

/// Time without a call after which a search is a new one. The server forgets a search after 60 s.
const TOKEN_IDLE_MAX: Duration = Duration::from_secs(50);
/// Hosts probed in one search: as many as its token keeps.
const HOSTS_PROBED_PER_SEARCH_MAX: usize = 64;
/// Age up to which a measurement is good. Later the server counts it as no better than its estimate.
const MEASUREMENT_AGE_MAX: Duration = Duration::from_secs(60);

/// Memory of one search.
#[derive(Debug, Default)]
pub(super) struct SearchMemory {
    token: Vec<u8>,
    token_used_at: MonotonicTime,
    probed_hosts: BTreeMap<String, ProbedHost>,
    probed_count: usize,
    has_waited_for_answering_hosts: bool,
}

/// Host that was probed in this search.
#[derive(Clone, Debug)]
pub(super) struct ProbedHost {
    pub(super) prober: HostProber,
    /// `None` if its run ended before it was known whether the host answers.
    pub(super) finding: Option<ProbeFinding>,
}

impl ProbedHost {
    /// Time since the host's last answer.
    pub(super) fn time_since_last_answer(&self, now: MonotonicTime) -> Option<Duration> {
        self.prober.last_answer_us().map(|at_us| now.since(MonotonicTime::from_micros(at_us)))
    }
}

impl SearchMemory {
    /// Token of the search that goes on; empty for a new one.
    pub(super) fn token_unless_idle(&mut self, now: MonotonicTime) -> Vec<u8> {
        if TOKEN_IDLE_MAX < now.since(self.token_used_at) {
            self.forget_search();
        }
        self.token.clone()
    }

    /// Keeps the token of an answer. Servers that put no measurements into tokens return none with a report.
    pub(super) fn keep_token(&mut self, token: &[u8], now: MonotonicTime) {
        if !token.is_empty() {
            self.token = token.to_vec();
        }
        self.token_used_at = now;
    }

    /// The next search is a new one.
    pub(super) fn forget_search(&mut self) {
        *self = Self::default();
    }

    /// Whether a round of this search has waited before, because too few hosts answered. Silent hosts count for the whole search, so
    /// that waiting longer need not help.
    pub(super) fn mark_waited_for_hosts(&mut self) -> bool {
        std::mem::replace(&mut self.has_waited_for_answering_hosts, true)
    }

    /// Number of hosts that may still be probed.
    pub(super) fn probes_left(&self) -> usize {
        HOSTS_PROBED_PER_SEARCH_MAX.saturating_sub(self.probed_count)
    }

    /// Counts hosts that are probed now.
    pub(super) fn count_probed(&mut self, hosts: usize) {
        self.probed_count = self.probed_count.saturating_add(hosts);
    }

    /// Keeps the result of a run.
    pub(super) fn record(&mut self, advertisement_id: String, prober: HostProber, finding: Option<ProbeFinding>) {
        self.probed_hosts.insert(advertisement_id, ProbedHost { prober, finding });
    }

    /// Host that was probed in this search.
    pub(super) fn host(&self, advertisement_id: &str) -> Option<&ProbedHost> {
        self.probed_hosts.get(advertisement_id)
    }

    /// Whether a host did not answer in this search, or is incompatible. The server knows it too, unless the report was lost.
    pub(super) fn is_silent_or_incompatible(&self, advertisement_id: &str) -> bool {
        let finding = self.host(advertisement_id).and_then(|host| host.finding);
        matches!(finding, Some(ProbeFinding::Silent | ProbeFinding::Incompatible))
    }

    /// Whether a host needs no probe now.
    pub(super) fn is_measured(&self, advertisement_id: &str, now: MonotonicTime) -> bool {
        self.host(advertisement_id).is_some_and(|host| {
            host.finding == Some(ProbeFinding::Answered)
                && host.time_since_last_answer(now).is_some_and(|age| age <= MEASUREMENT_AGE_MAX)
        })
    }
}
