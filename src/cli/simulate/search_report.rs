//! Text report of simulated searches: round trips by source, and the packets and the time that probes cost.

use std::fmt::Write as _;

use crate::sim::scenario::SearchSettings;
use crate::sim::search_statistics::SearchStatistics;

/// Line of the header: beacons, network and number of searches.
pub(super) fn format_settings(settings: &SearchSettings) -> String {
    let SearchSettings { beacons, floors, loss, jitter_ms, sessions, searches } = settings;
    let lost = loss * 100.0;
    format!(
        "{searches} searches of {sessions} sessions; {beacons} beacons, {floors} floors, {lost} % lost, {jitter_ms} ms of jitter\n"
    )
}

/// Table of all sources; empty without searches.
pub(super) fn format_searches(sources: &[SearchStatistics]) -> String {
    let mut text = String::new();
    if sources.is_empty() {
        return text;
    }
    let _ = write!(text, "{:<32}", "searches by");
    for searches in sources {
        let _ = write!(text, "{:>12}", searches.source.as_str());
    }
    text.push('\n');
    type ValueOf = fn(&SearchStatistics) -> f64;
    let rows: [(&str, usize, ValueOf); 17] = [
        ("joined", 0, |searches| searches.round_trip_ms.count as f64),
        ("  by a measured round trip", 0, |searches| searches.joined_by_measured as f64),
        ("  by a predicted one", 0, |searches| searches.joined_by_predicted as f64),
        ("  by distance", 0, |searches| searches.joined_by_distance as f64),
        ("gave up", 0, |searches| searches.gave_up as f64),
        ("round trip, ms, p50", 1, |searches| searches.round_trip_ms.p50),
        ("  p90", 1, |searches| searches.round_trip_ms.p90),
        ("  mean", 1, |searches| searches.round_trip_ms.mean),
        ("its regret, ms, p90", 1, |searches| searches.regret_ms.p90),
        ("  mean", 1, |searches| searches.regret_ms.mean),
        ("gained by probing, ms, mean", 1, |searches| searches.gain_ms.mean),
        ("quick probes, mean", 1, |searches| searches.quick_packets.mean),
        ("involved probes, mean", 1, |searches| searches.involved_packets.mean),
        ("time probing, s, p50", 2, |searches| searches.probing_s.p50),
        ("  p90", 2, |searches| searches.probing_s.p90),
        ("time to a session, s, p50", 2, |searches| searches.seeking_s.p50),
        ("  p90", 2, |searches| searches.seeking_s.p90),
    ];
    for (label, decimals, value_of) in rows {
        let _ = write!(text, "{label:<32}");
        for searches in sources {
            let _ = write!(text, "{:>12.decimals$}", value_of(searches));
        }
        text.push('\n');
    }
    text
}
