//! The ladder that those climb who let a ready check fail: how long they may not queue, and when it begins anew.

use crate::domain::time::UnixMs;

/// Where somebody stands on the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) struct Penalty {
    /// Failed checks since the ladder last began anew; 1 or more.
    pub(in crate::store) rung: u32,
    /// Until when they may not queue; a moment that has come bars nobody.
    pub(in crate::store) until: UnixMs,
    /// When the ladder begins anew if no further check fails.
    pub(in crate::store) resets_at: UnixMs,
}

impl Penalty {
    /// Until when its holder may not queue, if that is still to come.
    pub(in crate::store) fn bars(&self, now: UnixMs) -> Option<UnixMs> {
        Some(self.until).filter(|until| now < *until)
    }

    /// When it means nothing any more and may be forgotten.
    pub(in crate::store) fn spent_at(&self) -> UnixMs {
        self.until.max(self.resets_at)
    }
}

/// What a failed check at `now` makes of `before`: the first step of `ladder` (milliseconds) for the first failure, the second
/// for the second, and so on; the last holds from there on. A penalty whose reset has come counts as none, and none that
/// bars somebody is shortened.
pub(in crate::store) fn penalise(ladder: &[u32], reset_after_ms: u64, before: Option<Penalty>, now: UnixMs) -> Penalty {
    let counted = before.filter(|before| now < before.resets_at).map_or(0, |before| before.rung);
    let step = ladder.get(counted as usize).or(ladder.last()).copied().unwrap_or(0);
    let set = before.map_or(now, |before| before.until);
    Penalty {
        rung: counted.saturating_add(1),
        until: now.after(u64::from(step)).max(set),
        resets_at: now.after(reset_after_ms),
    }
}
