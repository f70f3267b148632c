//! What a queue's numbers come to for somebody who waits: when its limits stop growing, and how wide they are then.

use crate::domain::ruleset::queue::{CombineBounds, Quality, QueueSpec, Regions, Window};
use crate::domain::ruleset::{HardRule, Ruleset, SoftFilter};

/// What waiting comes to in one queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// After how much waiting no limit grows any more, milliseconds; `None` when one grows for ever, or by each party's own
    /// rating.
    pub settled_ms: Option<u64>,
    /// The limits that stay, in the order in which a pass asks them. Empty when anybody may meet.
    pub limits: Vec<Limit>,
    /// When the worst match is good enough.
    pub enough: Enough,
}

/// When any match that the limits allow is good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enough {
    /// From the first moment on.
    AtOnce,
    /// After so much waiting of its parties together, milliseconds.
    After(u64),
    /// Never: waiting does not help.
    Never,
}

/// A limit at its widest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A hard filter's expansion: its place in `Ruleset::expansions`, and the last value.
    Within {
        /// The place.
        expansion: usize,
        /// The value, in the measure's unit.
        value: f64,
    },
    /// So many groups further.
    Groups {
        /// How many.
        further: u16,
    },
    /// Players' regions are the same.
    SameRegion,
    /// A region in common within so many milliseconds.
    Region {
        /// The round trip.
        within_ms: f64,
    },
    /// Ratings this many points apart, give or take what rounding to buckets does.
    Window {
        /// The points; `None` when the window has no bound of its own.
        points: Option<f64>,
        /// The share of a party's own rating, percent, if that bounds it too.
        percent: Option<f64>,
    },
}

/// What `queue`, which is the ruleset's, comes to.
pub fn outlook(ruleset: &Ruleset, queue: &QueueSpec) -> Outlook {
    let mut limits = Vec::new();
    let mut settled_ms = Some(0);
    let mut settles = |at: Option<u64>| settled_ms = settled_ms.zip(at).map(|(one, other): (u64, u64)| one.max(other));
    let widest = |index: usize| {
        let steps = ruleset.expansions[index].steps();
        let value = steps.last().map_or(0.0, |step| step.value);
        (steps.iter().find(|step| step.value == value).map_or(0, |step| step.start_ms), value)
    };
    for filter in &ruleset.hard {
        if let HardRule::Within { expansion, .. } = filter.rule {
            let (at, value) = widest(expansion);
            limits.push(Limit::Within { expansion, value });
            settles(Some(at));
        }
    }
    match queue.regions {
        Some(Regions::Separate { .. }) => limits.push(Limit::SameRegion),
        Some(Regions::Stage { expansion }) => {
            let (at, within_ms) = widest(expansion);
            limits.push(Limit::Region { within_ms });
            settles(Some(at));
        }
        Some(Regions::Quality { .. }) | None => {}
    }
    if let Some(groups) = &queue.groups {
        let most = (groups.groups.len() as u16).saturating_sub(1);
        let further = groups.neighbour_every_ms.map_or(0, |_| groups.max_neighbours.min(most));
        if further < most {
            limits.push(Limit::Groups { further });
        }
        settles(Some(groups.neighbour_every_ms.unwrap_or(0).saturating_mul(further.into())));
    }
    if let Some(window) = &queue.window {
        let points = window.max.map(|max| f64::from(max) * window.bucket_width);
        let points = if window.step == 0 { Some(f64::from(window.start) * window.bucket_width) } else { points };
        if points.is_some() || window.max_percent.is_some() {
            limits.push(Limit::Window { points, percent: window.max_percent });
        }
        settles(window_settles_ms(window));
    }
    Outlook { settled_ms, limits, enough: enough(ruleset, queue) }
}

/// When a range is at its maximum, by a clock of the ticket's own; by the queue's it is one step sooner at most.
fn window_settles_ms(window: &Window) -> Option<u64> {
    if window.step == 0 {
        return Some(0);
    }
    if window.max_percent.is_some() && (window.max.is_none() || window.combine == CombineBounds::Larger) {
        return None;
    }
    let missing = window.max?.saturating_sub(window.start);
    Some(u64::from(missing.div_ceil(window.step)).saturating_mul(window.step_every_ms))
}

/// When the bonus alone clears the bar.
fn enough(ruleset: &Ruleset, queue: &QueueSpec) -> Enough {
    let missing = match queue.quality {
        Quality::Any => 0.0,
        Quality::WinProbability { min_percent, max_percent } if min_percent <= 0.0 && 100.0 <= max_percent => 0.0,
        Quality::WinProbability { .. } => return Enough::Never,
        Quality::SoftScore { max_score } => worst_score(&ruleset.soft) - max_score,
        Quality::LeaderboardGauss { threshold, .. } | Quality::DrawProbability { threshold } => threshold,
        Quality::AverageSimilarity { required_percent, .. } | Quality::CategorySimilarity { required_percent, .. } => {
            required_percent / 100.0
        }
    };
    match queue.wait_bonus {
        _ if missing <= 0.0 => Enough::AtOnce,
        None => Enough::Never,
        Some(bonus) => Enough::After(((bonus.free_minutes + missing / bonus.per_minute) * 60_000.0).round() as u64),
    }
}

fn worst_score(soft: &[SoftFilter]) -> f64 {
    soft.iter().map(|filter| filter.weight).sum()
}
