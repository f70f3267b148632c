//! Report of a probe phase to the server, and the client's own order where no report arrives.

use fireteam_probe::{ProbeFinding, RoundTripStatistics};

use crate::matching::monotonic_time::MonotonicTime;
use crate::matching::round::Round;
use crate::matching::search_memory::{ProbedHost, SearchMemory};
use crate::pb;

/// Longest round trip that a report may contain, milliseconds.
const ROUND_TRIP_MS_MAX: f64 = 60_000.0;

/// Measurements of all candidates of the last answer, each once.
pub(super) fn measurements(round: &Round, memory: &SearchMemory, now: MonotonicTime) -> Vec<pb::LatencyMeasurement> {
    let measurement = |id: &String| match finding_still_valid(round, memory, id) {
        Some((host, finding)) => to_measurement(id, host, finding, now),
        None => pb::LatencyMeasurement {
            advertisement_id: id.clone(),
            outcome: pb::ProbeOutcome::NotProbed.into(),
            ..Default::default()
        },
    };
    round.order().iter().map(measurement).collect()
}

/// Order without the server's: those that answered, by median round trip; then those that were not probed, in the order as it was.
pub(super) fn order_without_server(round: &Round, memory: &SearchMemory) -> Vec<String> {
    let mut order: Vec<(f64, &String)> = Vec::new();
    for id in round.order() {
        match finding_still_valid(round, memory, id) {
            Some((host, ProbeFinding::Answered)) => {
                order.push((host.prober.statistics().p50_ms.unwrap_or(f64::INFINITY), id));
            }
            Some((_, ProbeFinding::Silent | ProbeFinding::Incompatible | ProbeFinding::Full)) => {}
            None => order.push((f64::INFINITY, id)),
        }
    }
    order.sort_by(|left, right| left.0.total_cmp(&right.0));
    order.into_iter().map(|(_, id)| id.clone()).collect()
}

/// Host and its finding, where it is still true: that a host is full holds for the round in which it said so.
fn finding_still_valid<'a>(
    round: &Round,
    memory: &'a SearchMemory,
    id: &str,
) -> Option<(&'a ProbedHost, ProbeFinding)> {
    let host = memory.host(id)?;
    let finding = host.finding?;
    (finding != ProbeFinding::Full || round.probed.contains(id)).then_some((host, finding))
}

fn to_measurement(id: &str, host: &ProbedHost, finding: ProbeFinding, now: MonotonicTime) -> pb::LatencyMeasurement {
    let found = host.prober.statistics();
    let age_ms = host.time_since_last_answer(now).map(|age| u32::try_from(age.as_millis()).unwrap_or(u32::MAX));
    let outcome = match finding {
        ProbeFinding::Answered => pb::ProbeOutcome::Answered,
        ProbeFinding::Silent => pb::ProbeOutcome::Silent,
        ProbeFinding::Incompatible => pb::ProbeOutcome::Incompatible,
        ProbeFinding::Full => pb::ProbeOutcome::Full,
    };
    let statistics = to_wire_statistics(&found, age_ms);
    let round_trip_ms = statistics.p50_ms.filter(|_| finding == ProbeFinding::Answered);
    // A host may be refused by its first answer to a packet that counts in no statistics.
    let statistics = (statistics.sent > 0).then_some(statistics);
    pb::LatencyMeasurement { advertisement_id: id.to_owned(), round_trip_ms, statistics, outcome: outcome.into() }
}

fn to_wire_statistics(found: &RoundTripStatistics, age_ms: Option<u32>) -> pb::RoundTripStatistics {
    let ms = |value: Option<f64>| value.map(|ms| ms.clamp(0.0, ROUND_TRIP_MS_MAX) as f32);
    pb::RoundTripStatistics {
        sent: found.sent,
        answered: found.answered,
        floor_ms: ms(found.floor_ms),
        p50_ms: ms(found.p50_ms),
        jitter_ms: ms(found.jitter_ms),
        age_ms: age_ms.filter(|_| found.answered > 0),
    }
}
