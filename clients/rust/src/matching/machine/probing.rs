//! Probe phases: quick probes of the best candidates, reports, and involved probes of the best of those.

use std::time::Duration;

use fireteam_probe::{HostProber, ProbeFinding};

use crate::matching::call::Request;
use crate::matching::latency_report::{measurements, order_without_server};
use crate::matching::machine::Matching;
use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::probe_phase::{HostUnderTest, ProbePhase};
use crate::matching::round::Round;
use crate::matching::stage::{ProbeStep, Stage};
use crate::pb;

/// Hosts probed at once in the quick phase.
const QUICK_AT_ONCE: usize = 8;
/// Hosts probed at once in the involved phase.
const INVOLVED_AT_ONCE: usize = 2;
/// Time of a phase, unless the ruleset says otherwise.
const PHASE_TIME: Duration = Duration::from_secs(3);
/// Bounds of a ruleset's time of the quick phase.
const QUICK_PHASE_TIME_RANGE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(10)];

impl Matching {
    /// Probes the best candidates. Goes on at once where there is nothing to probe.
    pub(super) fn start_quick_phase(&mut self, round: Box<Round>, now: MonotonicTime) {
        if round.order().is_empty() {
            return self.wait(0, now);
        }
        if round.quick_count() == 0 {
            return self.join(round, now);
        }
        let best = round.order().iter().take(round.quick_count());
        let hosts: Vec<String> = best.filter(|id| self.needs_probe(&round, id, now)).cloned().collect();
        if !hosts.is_empty() && self.search_memory.probes_left() > 0 {
            return self.probe_quickly(round, hosts, now);
        }
        // The report tells endpoints of players' own machines, and whether the involved phase may start.
        let is_any_measured = round.order().iter().any(|id| self.search_memory.is_measured(id, now));
        if round.involved_count() > 0 && (is_any_measured || round.report_may_tell_endpoints()) {
            return self.report(round, pb::LatencyPhase::Quick, now);
        }
        self.join(round, now);
    }

    /// Probes one candidate that cannot be reserved without a measurement.
    pub(super) fn probe_quickly_before_reserving(
        &mut self,
        mut round: Box<Round>,
        advertisement_id: String,
        now: MonotonicTime,
    ) {
        round.push_best(advertisement_id.clone());
        round.must_measure_id = Some(advertisement_id.clone());
        self.probe_quickly(round, vec![advertisement_id], now);
    }

    /// Whether a candidate would have to be probed, and could be.
    pub(super) fn needs_probe(&self, round: &Round, advertisement_id: &str, now: MonotonicTime) -> bool {
        round.target(advertisement_id).is_some()
            && !round.probed.contains(advertisement_id)
            && !self.search_memory.is_measured(advertisement_id, now)
    }

    fn probe_quickly(&mut self, mut round: Box<Round>, mut hosts: Vec<String>, now: MonotonicTime) {
        hosts.truncate(self.search_memory.probes_left());
        self.search_memory.count_probed(hosts.len());
        let mut under_test = Vec::new();
        for id in hosts {
            let Some(target) = round.target(&id).cloned() else { continue };
            let endpoint = target.endpoint;
            let prober = HostProber::new(target, self.effects.random_bytes(), round.high_estimate_to_advert_ms(&id));
            round.probed.insert(id.clone());
            under_test.push(HostUnderTest { advertisement_id: id, endpoint, prober });
        }
        let [least, most] = QUICK_PHASE_TIME_RANGE;
        let time =
            round.quick_timeout_ms().map_or(PHASE_TIME, |ms| Duration::from_millis(ms.into()).clamp(least, most));
        let phase = ProbePhase::new(under_test, QUICK_AT_ONCE, now + time);
        self.stage = Stage::Quick { round, step: ProbeStep::Probing(phase) };
    }

    /// Probes the best candidates with data of the game.
    fn start_involved_phase(&mut self, mut round: Box<Round>, now: MonotonicTime) {
        let mut under_test = Vec::new();
        let best: Vec<String> = round.order().iter().take(round.involved_count()).cloned().collect();
        for id in best {
            let Some(target) = round.target(&id).cloned() else { continue };
            let endpoint = target.endpoint;
            let mut prober = match self.search_memory.host(&id) {
                Some(host) if host.prober.endpoint() == endpoint => host.prober.clone(),
                _ if self.search_memory.probes_left() == 0 => continue,
                _ => {
                    self.search_memory.count_probed(1);
                    HostProber::new(target, self.effects.random_bytes(), round.high_estimate_to_advert_ms(&id))
                }
            };
            prober.start_run_with_game_data(self.options.game_data.clone());
            round.probed.insert(id.clone());
            under_test.push(HostUnderTest { advertisement_id: id, endpoint, prober });
        }
        if under_test.is_empty() {
            return self.join(round, now);
        }
        let phase = ProbePhase::new(under_test, INVOLVED_AT_ONCE, now + PHASE_TIME);
        self.stage = Stage::Involved { round, step: ProbeStep::Probing(phase) };
    }

    /// Sends probes, and ends the phase when all hosts are known or its time is over. Returns whether it ended.
    pub(super) fn step_probes(&mut self, now: MonotonicTime) -> bool {
        if let Stage::Quick { step: ProbeStep::Probing(phase), .. }
        | Stage::Involved { step: ProbeStep::Probing(phase), .. } = &mut self.stage
            && !phase.send_due_probes(&mut self.effects, now)
        {
            return false;
        }
        let (round, phase, phase_kind) = match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Quick { round, step: ProbeStep::Probing(phase) } => (round, phase, pb::LatencyPhase::Quick),
            Stage::Involved { round, step: ProbeStep::Probing(phase) } => (round, phase, pb::LatencyPhase::Involved),
            other => {
                self.stage = other;
                return false;
            }
        };
        for (id, prober, finding) in phase.finish() {
            if matches!(finding, Some(ProbeFinding::Full | ProbeFinding::Incompatible)) {
                self.exclusions.add(&id, now);
            }
            self.search_memory.record(id, prober, finding);
        }
        self.report(round, phase_kind, now);
        true
    }

    fn report(&mut self, round: Box<Round>, phase: pb::LatencyPhase, now: MonotonicTime) {
        let request = pb::MatchmakingReportLatencyRequest {
            search_token: self.search_memory.token_unless_idle(now),
            phase: phase.into(),
            measurements: measurements(&round, &self.search_memory, now),
            session_composition: Some(self.party_with_latency_token()),
            matchmaking_set_id: Some(self.options.set_id),
            service_configuration_hash: self.options.service_configuration_hash,
        };
        let call = self.effects.call(Request::ReportLatency(Box::new(request)), now);
        let step = ProbeStep::Reporting { call };
        self.stage = match phase {
            pb::LatencyPhase::Involved => Stage::Involved { round, step },
            _ => Stage::Quick { round, step },
        };
    }

    pub(super) fn on_report(&mut self, report: &pb::MatchmakingReportLatencyResponse, now: MonotonicTime) {
        self.search_memory.keep_token(&report.search_token, now);
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Quick { mut round, .. } => {
                round.apply_report_answer(report);
                self.after_quick(round, report.involved_phase_may_start, now);
            }
            Stage::Involved { mut round, .. } => {
                round.apply_report_answer(report);
                self.join(round, now);
            }
            other => self.stage = other,
        }
    }

    /// A report was lost: the round goes on in the client's own order, and without the involved phase, which the server would refuse.
    pub(super) fn on_report_dropped(&mut self, now: MonotonicTime) {
        match std::mem::replace(&mut self.stage, Stage::Idle) {
            Stage::Quick { mut round, .. } | Stage::Involved { mut round, .. } => {
                let order = order_without_server(&round, &self.search_memory);
                round.set_order(order);
                self.join(round, now);
            }
            other => self.stage = other,
        }
    }

    fn after_quick(&mut self, mut round: Box<Round>, may_start_involved: bool, now: MonotonicTime) {
        if round.involved_count() == 0 || round.must_measure_id.take().is_some() {
            return self.join(round, now);
        }
        if may_start_involved {
            return self.start_involved_phase(round, now);
        }
        let is_any_probed =
            round.probed.iter().any(|id| self.search_memory.host(id).is_some_and(|host| host.finding.is_some()));
        if !is_any_probed && !round.order().iter().any(|id| self.search_memory.is_measured(id, now)) {
            // No candidate has an endpoint: none can answer, now or later.
            return self.join(round, now);
        }
        let next = round.order().iter().filter(|id| self.needs_probe(&round, id, now)).take(round.quick_count());
        let next: Vec<String> = next.cloned().collect();
        if round.has_probed_next_best || next.is_empty() || self.search_memory.probes_left() == 0 {
            let has_waited = self.search_memory.mark_waited_for_hosts();
            return if has_waited { self.join(round, now) } else { self.wait(0, now) };
        }
        round.has_probed_next_best = true;
        self.probe_quickly(round, next, now);
    }
}
