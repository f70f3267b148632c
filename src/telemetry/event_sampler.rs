//! Limit of repeated events: the first of each kind in a window are written. The others are counted, and their number is written.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Decision for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// The event is to be written. Before it, the number of events of its kind that were only counted is to be written,
    /// if it is not 0.
    Write {
        /// Events that were only counted in the window before.
        counted: u64,
    },
    /// The event is only counted.
    Count,
}

/// Events of one kind in the current window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    started_at_ms: u64,
    written: u32,
    counted: u64,
}

/// Sampler of events by kind. `K` must have few values: each has an entry.
#[derive(Debug)]
pub struct EventSampler<K> {
    window_ms: u64,
    written_max: u32,
    windows: Mutex<BTreeMap<K, Window>>,
}

impl<K: Copy + Ord> EventSampler<K> {
    /// Creates a sampler that lets `written_max` events of each kind through in `window_ms` milliseconds.
    pub fn new(window_ms: u64, written_max: u32) -> Self {
        Self { window_ms, written_max, windows: Mutex::default() }
    }

    /// Decides for an event at `now_ms`.
    pub fn sample(&self, kind: K, now_ms: u64) -> Sampled {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(kind).or_insert(Window { started_at_ms: now_ms, ..Window::default() });
        let mut counted = 0;
        if self.is_over(window, now_ms) {
            counted = window.counted;
            *window = Window { started_at_ms: now_ms, ..Window::default() };
        }
        if window.written < self.written_max {
            window.written += 1;
            return Sampled::Write { counted };
        }
        window.counted += 1;
        Sampled::Count
    }

    /// Takes the kinds whose window has ended with events that were only counted, with their numbers.
    pub fn take_ended_counts(&self, now_ms: u64) -> Vec<(K, u64)> {
        self.take_counts(|window| self.is_over(window, now_ms))
    }

    /// Takes the numbers of all events that were only counted.
    pub fn take_all_counts(&self) -> Vec<(K, u64)> {
        self.take_counts(|_| true)
    }

    fn take_counts(&self, is_due: impl Fn(&Window) -> bool) -> Vec<(K, u64)> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for (kind, window) in windows.iter_mut().filter(|(_, window)| window.counted > 0) {
            if is_due(window) {
                taken.push((*kind, std::mem::take(&mut window.counted)));
            }
        }
        taken
    }

    /// A window also ends if the clock was set back.
    fn is_over(&self, window: &Window, now_ms: u64) -> bool {
        now_ms < window.started_at_ms || self.window_ms <= now_ms - window.started_at_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampler_writes_the_first_events_and_counts_the_others() {
        let sampler = EventSampler::new(60_000, 2);
        let write = Sampled::Write { counted: 0 };
        assert_eq!([5, 6, 7, 8].map(|now| sampler.sample("a", now)), [write, write, Sampled::Count, Sampled::Count]);
        assert_eq!(sampler.sample("b", 8), write, "each kind has its own window");
        assert_eq!(sampler.take_ended_counts(60_004), []);
        assert_eq!(sampler.sample("a", 60_005), Sampled::Write { counted: 2 });
        assert_eq!(sampler.sample("a", 60_006), write);
        assert_eq!(sampler.sample("a", 60_007), Sampled::Count);
        assert_eq!(sampler.take_ended_counts(120_005), [("a", 1)]);
        assert_eq!(sampler.take_ended_counts(120_005), [], "each event is in one number");
        assert_eq!(sampler.sample("b", 1), write, "the clock was set back");
    }

    /// Written and counted events add up, at any times.
    #[test]
    fn sampler_loses_no_event() {
        let sampler = EventSampler::new(10, 1);
        let (mut written, mut counted) = (0, 0);
        for at in 0..1_000_u64 {
            match sampler.sample(at % 3, at * at % 97) {
                Sampled::Write { counted: before } => (written, counted) = (written + 1, counted + before),
                Sampled::Count => {}
            }
            if at % 50 == 0 {
                counted += sampler.take_ended_counts(at).iter().map(|(_, count)| count).sum::<u64>();
            }
        }
        counted += sampler.take_all_counts().iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(written + counted, 1_000);
    }
}
