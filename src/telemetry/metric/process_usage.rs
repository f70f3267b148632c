//! Processor time, memory and start of the process, by the names that other programs use for them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::domain::time::UnixMs;
use crate::telemetry::metric::Metrics;

impl Metrics {
    /// Sets processor time and memory in RAM, for a scrape. Without a memory figure of the system the old one stays.
    pub fn set_process_usage(&self, cpu_time: Duration, resident_bytes: Option<u64>) {
        // The system counts. Two scrapes at the same time must not let the counter run backwards.
        self.process_cpu_seconds.inner().fetch_max(cpu_time.as_secs_f64().to_bits(), Ordering::Relaxed);
        if let Some(bytes) = resident_bytes {
            self.process_resident_memory_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
    }

    /// Sets the start of the process.
    pub fn set_process_start(&self, at: UnixMs) {
        self.process_start_time_seconds.set(i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX));
    }
}
