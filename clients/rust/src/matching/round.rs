//! Round of a search: its candidates in the latest order, and their endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use fireteam_probe::{ProbeKey, ProbeTarget};

use crate::pb;

/// Most candidates of a round.
const CANDIDATES_MAX: usize = 256;
/// Most hosts of a phase, as rulesets allow them.
const QUICK_PHASE_CANDIDATES_MAX: usize = 50;
const INVOLVED_PHASE_CANDIDATES_MAX: usize = 10;
/// Difference by which a round trip may exceed its estimate, milliseconds: estimates are rounded to 25 ms, and half of them err by more.
const ESTIMATE_ERROR_ALLOWANCE_MS: f64 = 100.0;

/// Candidates of one search and its reports.
#[derive(Debug)]
pub(super) struct Round {
    plan: Option<pb::LatencyPlan>,
    order: Vec<String>,
    targets: BTreeMap<String, ProbeTarget>,
    server_round_trips_ms: BTreeMap<String, f32>,
    /// Probed in this round.
    pub(super) probed: BTreeSet<String>,
    /// The next best candidates are probed too, because too few of the best answered.
    pub(super) has_probed_next_best: bool,
    /// The only candidate to probe: it cannot be reserved without a measurement. Joining follows.
    pub(super) must_measure_id: Option<String>,
}

impl Round {
    /// Round of an answer to a search.
    pub(super) fn new(found: &pb::MatchmakingSearchResponse) -> Self {
        let mut round = Self {
            plan: found.latency_plan,
            order: Vec::new(),
            targets: BTreeMap::new(),
            server_round_trips_ms: BTreeMap::new(),
            probed: BTreeSet::new(),
            has_probed_next_best: false,
            must_measure_id: None,
        };
        round.apply_candidates(&found.candidates);
        round
    }

    /// Takes the order and endpoints of an answer to a report.
    pub(super) fn apply_report_answer(&mut self, report: &pb::MatchmakingReportLatencyResponse) {
        self.apply_candidates(&report.candidates);
        for pb::CandidateProbe { advertisement_id, probe } in &report.probes {
            self.add_target(advertisement_id, probe.as_ref());
        }
    }

    /// Candidates, the best first.
    pub(super) fn order(&self) -> &[String] {
        &self.order
    }

    /// Replaces the order.
    pub(super) fn set_order(&mut self, order: Vec<String>) {
        self.order = order;
    }

    /// Takes the best candidate out.
    pub(super) fn pop_best(&mut self) -> Option<String> {
        (!self.order.is_empty()).then(|| self.order.remove(0))
    }

    /// Puts a candidate back to the front.
    pub(super) fn push_best(&mut self, advertisement_id: String) {
        self.order.insert(0, advertisement_id);
    }

    /// Whether the ruleset allows probes.
    pub(super) fn allows_probes(&self) -> bool {
        self.plan.is_some()
    }

    /// Number of candidates for the quick phase. 0: no probes.
    pub(super) fn quick_count(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| QUICK_PHASE_CANDIDATES_MAX.min(plan.quick as usize))
    }

    /// Number of candidates for the involved phase. 0: none.
    pub(super) fn involved_count(&self) -> usize {
        self.plan.as_ref().map_or(0, |plan| INVOLVED_PHASE_CANDIDATES_MAX.min(plan.involved as usize))
    }

    /// Time of the quick phase, milliseconds, as the ruleset says.
    pub(super) fn quick_timeout_ms(&self) -> Option<u32> {
        self.plan.as_ref().map(|plan| plan.quick_timeout_ms).filter(|ms| *ms > 0)
    }

    /// Whether a report may tell endpoints that the search did not.
    pub(super) fn report_may_tell_endpoints(&self) -> bool {
        let probe_players = self.plan.as_ref().map(pb::LatencyPlan::probe_players);
        matches!(probe_players, Some(pb::ProbePlayers::Involved | pb::ProbePlayers::Quick))
    }

    /// Endpoint and key of a candidate.
    pub(super) fn target(&self, advertisement_id: &str) -> Option<&ProbeTarget> {
        self.targets.get(advertisement_id)
    }

    /// Round trip as the last answer tells it, milliseconds.
    pub(super) fn round_trip_from_server_ms(&self, advertisement_id: &str) -> Option<f32> {
        self.server_round_trips_ms.get(advertisement_id).copied()
    }

    /// Estimated round trip at its high end, milliseconds; infinite if there is no estimate.
    pub(super) fn high_estimate_to_advert_ms(&self, advertisement_id: &str) -> f64 {
        self.round_trip_from_server_ms(advertisement_id)
            .map_or(f64::INFINITY, |ms| f64::from(ms) + ESTIMATE_ERROR_ALLOWANCE_MS)
    }

    fn apply_candidates(&mut self, candidates: &[pb::Candidate]) {
        self.order.clear();
        let mut seen = BTreeSet::new();
        for candidate in candidates.iter().take(CANDIDATES_MAX) {
            let id = &candidate.advertisement_id;
            if id.is_empty() || !seen.insert(id) {
                continue;
            }
            self.order.push(id.clone());
            self.add_target(id, candidate.probe.as_ref());
            match candidate.round_trip_ms {
                Some(ms) => self.server_round_trips_ms.insert(id.clone(), ms),
                None => self.server_round_trips_ms.remove(id),
            };
        }
    }

    fn add_target(&mut self, advertisement_id: &str, probe: Option<&pb::ProbeEndpoint>) {
        if let Some(target) = probe.and_then(|probe| probe_target(advertisement_id, probe)) {
            self.targets.insert(advertisement_id.to_owned(), target);
        }
    }
}

/// Endpoint of a candidate. `None` if it is not valid: the candidate is then not probed.
fn probe_target(advertisement_id: &str, probe: &pb::ProbeEndpoint) -> Option<ProbeTarget> {
    let address = match *probe.address.as_slice() {
        [a, b, c, d] => IpAddr::from([a, b, c, d]),
        ref address => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
    };
    let port = u16::try_from(probe.port).ok().filter(|port| *port != 0)?;
    let [advertisement, ..] = *id_bytes_from_hex(advertisement_id)?.as_chunks::<8>().0 else { return None };
    Some(ProbeTarget {
        endpoint: SocketAddr::new(address, port),
        key: ProbeKey::new(&probe.probe_key)?,
        advertisement_id_prefix: advertisement,
    })
}

/// The 16 bytes of an advertisement id of 32 hexadecimal digits.
pub(super) fn id_bytes_from_hex(advertisement_id: &str) -> Option<[u8; 16]> {
    let is_hexadecimal = advertisement_id.len() == 32 && advertisement_id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hexadecimal.then(|| u128::from_str_radix(advertisement_id, 16).ok()).flatten().map(u128::to_be_bytes)
}
