//! Metrics of the process, read when they are scraped.

use crate::clock::process_cpu_time;
use crate::telemetry::metric::Metrics;

/// State of the own process on Linux.
const PROCESS_STATUS_FILE: &str = "/proc/self/status";

/// All metrics, with the present processor time and memory of the process.
pub(super) fn render_with_process_usage(metrics: &Metrics) -> String {
    let status = std::fs::read_to_string(PROCESS_STATUS_FILE);
    metrics.set_process_usage(process_cpu_time(), status.ok().as_deref().and_then(resident_bytes));
    metrics.render()
}

/// Memory in RAM by the line `VmRSS:  1234 kB`, bytes.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::with_cpu_time;
    use crate::domain::id::SetId;
    use crate::domain::queue::report::PassReport;
    use crate::telemetry::label::{MatchEventLabel, SeatOutcomeLabel, TicketOutcomeLabel};
    use crate::telemetry::metric::set_gauges::{AdvertisementCounts, QueueCounts};

    #[test]
    fn process_memory_is_read_from_the_status_file() {
        let status = "Name:\tfireteam\nVmHWM:\t    9999 kB\nVmRSS:\t    1234 kB\n";
        assert_eq!(resident_bytes(status), Some(1_234 * 1_024));
        assert_eq!(resident_bytes("VmRSS:\tmany kB\n"), None);
        assert_eq!(resident_bytes(""), None);
    }

    #[test]
    fn process_metrics_are_those_of_this_process() {
        let text = render_with_process_usage(&Metrics::new());
        let value = |name: &str| -> f64 {
            let line =
                text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}"));
            line.trim().parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total ") > 0.0);
        // A test program needs megabytes, and no terabyte.
        let bytes = value("process_resident_memory_bytes ");
        assert!((1e6..1e12).contains(&bytes), "{bytes}");
    }

    /// A scrape of all sets, with all their series, every five seconds costs less than 2 % of a core. The number of tickets is no
    /// factor: the engine counts with each change.
    #[test]
    fn scrape_of_all_sets_costs_less_than_a_fiftieth_of_a_core() {
        let metrics = Metrics::new();
        let counts = QueueCounts { tickets: [300, 100], waiting_players: 500, matches: [1, 2, 3, 44] };
        let sets = || (0..300).map(SetId);
        for set in sets() {
            metrics.record_match_event(set, MatchEventLabel::Proposed);
            metrics.record_pass(set, 0.1, &PassReport::default(), 0);
            TicketOutcomeLabel::ALL.iter().for_each(|outcome| metrics.record_ticket_end(set, *outcome, 1.0));
            SeatOutcomeLabel::ALL.iter().for_each(|outcome| metrics.record_seat_attempt(set, *outcome, 1.0));
        }
        let scrape = || {
            metrics.set_queue_counts(sets().map(|set| (set, counts)));
            metrics.set_advertisement_counts(sets().map(|set| (set, AdvertisementCounts::default())));
            render_with_process_usage(&metrics).len()
        };
        let (_, least) = (0..5).map(|_| with_cpu_time(scrape)).min_by_key(|(_, time)| *time).unwrap();
        println!("{} lines in {least:?}", metrics.render().lines().count());
        assert!(least < Duration::from_millis(100), "{least:?}");
    }
}
