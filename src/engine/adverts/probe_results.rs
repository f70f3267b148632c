//! Probe results of a search: read from its token, and merged with a report.

use crate::auth::token::{PacketCounts, ProbeRecord, RecordedFinding, SearchMeasurements};
use crate::domain::id::AdvertisementId;
use crate::domain::probe_result::{
    FRESH_MEASUREMENT_MS, MeasuredRoundTrip, PROBE_RESULTS_MAX, PacketLossPercent, ProbeFinding, ProbeResult,
};
use crate::domain::ruleset::probing::RoundTripFigure;
use crate::domain::time::UnixMs;
use crate::engine::command::{LatencyTestPhase, ProbeStatistics, ReportedFinding};

/// Results of a search that `started_at`, as they count `now`; sorted by id prefix.
pub(super) fn probe_results_of_search(
    measured: &SearchMeasurements,
    started_at: UnixMs,
    now: UnixMs,
) -> Vec<ProbeResult> {
    let is_old = |record: &ProbeRecord| {
        FRESH_MEASUREMENT_MS <= now.ms_since(started_at).saturating_sub(record.reported_after_ms)
    };
    let mut results: Vec<ProbeResult> = measured
        .probes
        .iter()
        .map(|record| ProbeResult {
            id_prefix: record.id_prefix,
            finding: finding_of_record(record.finding),
            is_old: is_old(record),
        })
        .collect();
    results.sort_unstable_by_key(|result| result.id_prefix);
    results
}

fn finding_of_record(finding: RecordedFinding) -> ProbeFinding {
    match finding {
        RecordedFinding::Silent => ProbeFinding::Silent,
        RecordedFinding::Incompatible => ProbeFinding::Incompatible,
        RecordedFinding::Answered { round_trip_ms, jitter_ms, packets } => ProbeFinding::Answered(MeasuredRoundTrip {
            round_trip_ms,
            jitter_ms: jitter_ms.map(f64::from),
            loss: packets.map(packet_loss),
        }),
    }
}

fn packet_loss(packets: PacketCounts) -> PacketLossPercent {
    let interval = fireteam_probe::LossInterval::new(packets.lost(), packets.sent());
    PacketLossPercent { percent: 100.0 * interval.share, low_percent: 100.0 * interval.low }
}

/// Record of a reported finding; `None` for findings that a search does not keep.
pub(super) fn record_of_finding(
    id: AdvertisementId,
    finding: ReportedFinding,
    figure: RoundTripFigure,
    phase: LatencyTestPhase,
    since_start_ms: u64,
) -> Option<ProbeRecord> {
    let finding = match finding {
        ReportedFinding::Answered(ProbeStatistics { p50_ms, floor_ms, jitter_ms, packets }) => {
            let round_trip_ms = match figure {
                RoundTripFigure::Median => p50_ms,
                RoundTripFigure::Floor => floor_ms,
            };
            let packets = packets.and_then(|(sent, answered)| PacketCounts::new(sent, answered));
            RecordedFinding::new_answered(round_trip_ms, jitter_ms, packets)
        }
        ReportedFinding::Silent => RecordedFinding::Silent,
        ReportedFinding::Incompatible => RecordedFinding::Incompatible,
        ReportedFinding::Full | ReportedFinding::NotProbed => return None,
    };
    Some(ProbeRecord {
        id_prefix: id.first_eight_bytes(),
        finding,
        is_involved: phase == LatencyTestPhase::Involved,
        reported_after_ms: ProbeRecord::rounded_reported_after_ms(since_start_ms),
    })
}

/// Adds records to those of a search; a later one of the same advertisement replaces the earlier one. Of more than
/// [`PROBE_RESULTS_MAX`], the oldest answers are dropped first, silent and incompatible hosts last: without them, a host that does not
/// answer would be found again.
pub(super) fn merge_records(known: &mut Vec<ProbeRecord>, reported: impl IntoIterator<Item = ProbeRecord>) {
    for record in reported {
        known.retain(|other| other.id_prefix != record.id_prefix);
        known.push(record);
    }
    while PROBE_RESULTS_MAX < known.len() {
        let is_answer = |record: &ProbeRecord| matches!(record.finding, RecordedFinding::Answered { .. });
        known.remove(known.iter().position(is_answer).unwrap_or(0));
    }
}

/// Numbers of candidates of a search that have answered, and that were probed: those of a report, and those that are `known` and not
/// in it.
pub(super) fn count_answered_and_probed(
    known: &[ProbeRecord],
    findings: &[(AdvertisementId, ReportedFinding)],
) -> (usize, usize) {
    let mut reported: Vec<[u8; 8]> = findings.iter().map(|(id, _)| id.first_eight_bytes()).collect();
    reported.sort_unstable();
    let is_other = |record: &&ProbeRecord| reported.binary_search(&record.id_prefix).is_err();
    let others = known.iter().filter(is_other).map(|record| record.finding != RecordedFinding::Silent);
    let probed = findings.iter().filter(|(_, finding)| *finding != ReportedFinding::NotProbed);
    let of_report = probed.map(|(_, finding)| *finding != ReportedFinding::Silent);
    others
        .chain(of_report)
        .fold((0, 0), |(answered, probed), is_answer| (answered + usize::from(is_answer), probed + 1))
}
