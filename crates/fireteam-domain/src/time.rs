//! Milliseconds since the Unix epoch, kept apart from milliseconds waited.

/// A moment: milliseconds since the Unix epoch. Comes in as an argument, from `clock`, and from nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Milliseconds from `earlier` to this moment; 0 when `earlier` lies ahead, as after a clock was set back.
    pub fn ms_since(self, earlier: UnixMs) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This moment, `duration_ms` later; never wraps.
    pub fn plus_ms(self, duration_ms: u64) -> UnixMs {
        UnixMs(self.0.saturating_add(duration_ms))
    }
}
