//! Unix time in milliseconds, as a type distinct from durations.

/// Point in time: milliseconds since the Unix epoch. Callers pass it in from `clock`; this crate reads no clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Milliseconds from `earlier` to this time; 0 if `earlier` is later, for example after the clock was set back.
    pub fn ms_since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time `duration_ms` after this one; saturates at the maximum.
    pub fn plus_ms(self, duration_ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_add(duration_ms))
    }
}
