//! Queue settings of a ruleset: pass gate, rating groups, regions, rating window, match quality, selection, wait bonus
//! and avoidance.

mod satisfaction;

use std::sync::Arc;

use crate::attribute::NumberAggregation;
use crate::id::SetId;
use crate::ruleset::soft_filter::DistanceCurve;

/// Default ticket TTL without a heartbeat, milliseconds.
pub const DEFAULT_TICKET_TTL_MS: u32 = 60_000;

/// Settings of one queue. Each step is optional.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// Time between passes, milliseconds.
    pub pass_interval_ms: u32,
    /// Whether a change of the queue causes a pass before the interval has passed.
    pub pass_trigger: PassTrigger,
    /// Aggregation of the players' ratings into the party's rating.
    pub party_rating: NumberAggregation,
    /// Whether a user may wait in this queue and in another queue at the same time.
    pub allow_other_queues: bool,
    /// Whether parties are matched with parties of equal size first.
    pub prefer_same_party_size: bool,
    /// Whether tickets fill matches and sessions with open seats before new matches are made.
    pub backfill: bool,
    /// Ticket TTL without a heartbeat, milliseconds.
    pub ticket_ttl_ms: u32,
    /// Conditions for running a pass.
    pub gate: Gate,
    /// Rating groups, lowest first; `None` for one group.
    pub groups: Option<RatingGroups>,
    /// Use of the players' regions; `None` to ignore regions.
    pub regions: Option<RegionUse>,
    /// Rating window of a ticket; `None` for no window.
    pub window: Option<RatingWindow>,
    /// Match quality measure and threshold.
    pub quality: QualitySpec,
    /// Selection of matches among the acceptable ones.
    pub selection: SelectionSpec,
    /// Quality bonus for time waited.
    pub wait_bonus: Option<WaitBonus>,
    /// Players to avoid: those of `<Queue>`, and then those of the ruleset.
    pub avoid: Box<[AvoidanceRule]>,
    /// Alternative set offered after a long wait.
    pub offer: Option<AlternativeSetOffer>,
    /// Adjustments for frustrated players; `None` for none.
    pub frustrated_player_window: Option<FrustratedPlayerSpec>,
}

/// Cause of the passes of a queue that has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PassTrigger {
    /// The end of the interval.
    #[default]
    Interval,
    /// The first change since the last pass.
    Change {
        /// Time from that change to the pass, milliseconds: further tickets may enter meanwhile.
        gather_ms: u32,
    },
}

impl QueueSpec {
    /// Whether a rule is about blocked users.
    pub fn avoids_blocked_users(&self) -> bool {
        self.avoid.iter().any(|rule| rule.whom == AvoidTarget::Blocked)
    }
}

/// Adjustments for frustrated players: a wider rating window, or a window shifted to lower ratings. It trades match
/// balance for shorter waits or easier matches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrustratedPlayerSpec {
    /// Losses in a row from which a player counts as frustrated; `None` to ignore streaks. One frustrated player makes
    /// the party frustrated, by any criterion.
    pub losing_streak: Option<u32>,
    /// Share of rated matches that the player left early from which the player counts as frustrated, percent; `None` to
    /// ignore.
    pub abandoned_percent: Option<f64>,
    /// The player counts as frustrated if the mean of the player's match feedback, 1 to 5, is below this; `None` to
    /// ignore.
    pub feedback_below: Option<f64>,
    /// Minimum number of rated matches for `abandoned_percent`, and of feedback scores for their mean.
    pub min_matches: u32,
    /// Factor on the window's range and bounds; 1 for no change.
    pub window_widen_factor: f64,
    /// Rating points by which the window's center moves below the player's rating; 0 for no change.
    pub window_shift_down_points: f64,
    /// Factor on the limits of expansions; 1 for no change. Only the rule of the ruleset has one, not that of the queue.
    pub limit_widen_factor: f64,
}

impl Default for FrustratedPlayerSpec {
    /// No criterion and no adjustment.
    fn default() -> Self {
        Self {
            losing_streak: None,
            abandoned_percent: None,
            feedback_below: None,
            min_matches: 5,
            window_widen_factor: 1.0,
            window_shift_down_points: 0.0,
            limit_widen_factor: 1.0,
        }
    }
}

/// Conditions for running a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// Minimum share of the connected players that must be waiting, percent.
    pub min_waiting_percent: f64,
    /// Rounding of a fractional number of players.
    pub rounding: GateRounding,
    /// Maximum number of matches running at the same time; `None` for no maximum.
    pub max_concurrent_matches: Option<u32>,
    /// Whether to skip passes while nothing has changed since a pass without a match.
    pub skip_unchanged: bool,
}

impl Gate {
    /// Whether the gate requires a share of the connected players to wait.
    pub fn requires_share_of_connected(&self) -> bool {
        self.min_waiting_percent > 0.0
    }
}

/// Rounding of a fractional number of players at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRounding {
    /// 3.9 players count as 4.
    Up,
    /// 3.9 players count as 3.
    Down,
}

/// Rating groups, lowest first; each begins at the end of the one before. Ratings below the first group belong to the
/// first, ratings above the last to the last.
#[derive(Clone, Debug, PartialEq)]
pub struct RatingGroups {
    /// Groups in ascending order.
    pub groups: Box<[RatingGroup]>,
    /// Waiting time after which a ticket may meet one more group, milliseconds; `None` for never.
    pub widen_every_ms: Option<u64>,
    /// Maximum number of extra groups.
    pub max_extra_groups: u16,
}

/// One rating group: `from <= rating < to`.
#[derive(Clone, Debug, PartialEq)]
pub struct RatingGroup {
    /// Name of the group.
    pub name: Box<str>,
    /// Lower bound, inclusive.
    pub from: f64,
    /// Upper bound, exclusive.
    pub to: f64,
}

/// Use of the players' regions in a queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RegionUse {
    /// Separate pools: only tickets with the same region value meet.
    Partition {
        /// String attribute with the region: an index into `Ruleset::attributes`.
        attribute: usize,
    },
    /// Latency filter before rating groups: all tickets of a match share a region, and each round trip to it is within
    /// the limit for the time the ticket has waited. A ticket without measurements fits all regions.
    Filter {
        /// Latency limit: an index into `Ruleset::expansions`.
        expansion: usize,
    },
    /// Part of match quality: subtracts `weight` times the mean round trip to the best common region, as a fraction of
    /// `span_ms`, at most 1. A ticket without measurements counts as `span_ms`.
    Quality {
        /// Quality lost at a round trip of `span_ms`.
        weight: f64,
        /// Round trip that counts as 1, milliseconds.
        span_ms: f64,
    },
}

/// Rating window of a ticket, in rating buckets. It widens with time.
#[derive(Clone, Debug, PartialEq)]
pub struct RatingWindow {
    /// Lowest rating of each bucket but the first, ascending; at least one. A ticket's bucket is the number of bounds at or below its
    /// rating. `None`: all buckets are equally wide.
    pub bucket_boundaries: Option<Arc<[f64]>>,
    /// Rating points per bucket without bounds. A ticket's bucket is `rounding(rating / bucket_width)`.
    pub bucket_width: f64,
    /// Rounding of a rating to a bucket.
    pub rounding: BucketRounding,
    /// Initial half-width, buckets.
    pub initial_half_width: u32,
    /// Buckets added per step.
    pub step: u32,
    /// Time between steps, milliseconds.
    pub step_every_ms: u64,
    /// Maximum half-width, buckets; `None` for no bound.
    pub max_half_width: Option<u32>,
    /// Maximum half-width as a share of the ticket's own rating, percent; `None` for no bound.
    pub max_percent_of_rating: Option<f64>,
    /// Bound to apply if both `max_half_width` and `max_percent_of_rating` are set.
    pub combine: MaxRangeCombination,
    /// Share of the distance that the other ticket's range must cover, percent.
    pub other_range_cover_percent: f64,
    /// Clock that widens the window.
    pub clock: WindowClock,
    /// Condition on the ranges of two tickets.
    pub rule: WindowPairRule,
}

/// Condition on the ranges of two tickets at distance d, so that they may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowPairRule {
    /// Each range covers the other ticket: `d <= own` and `reciprocal_percent of d <= other`.
    Contain,
    /// The ranges share a bucket: `d <= own + other`.
    Overlap,
}

/// Rounding of a rating to a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketRounding {
    /// To the nearest integer, halves away from zero.
    Round,
    /// Down.
    Floor,
    /// Up.
    Ceiling,
}

/// Choice between the absolute and the relative bound of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxRangeCombination {
    /// The narrower bound.
    Smaller,
    /// The wider bound.
    Larger,
}

/// Clock that widens a rating window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowClock {
    /// One clock for the whole queue. A new ticket may widen at once.
    Queue,
    /// The ticket's own waiting time.
    Ticket,
}

/// Match quality measure and its threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QualitySpec {
    /// Accepts any match that the hard filters and the window allow.
    Any,
    /// Worst soft score between two members; lower is better.
    SoftScore {
        /// Maximum accepted score.
        max_score: f64,
    },
    /// `scale * exp(-d² / (2 sigma²))` for a distance of d leaderboard ranks.
    LeaderboardGauss {
        /// Standard deviation, ranks.
        sigma: f64,
        /// Quality at distance 0.
        scale: f64,
        /// Minimum quality.
        threshold: f64,
    },
    /// `1 - |rating - mean| / rating_span` of the least similar member.
    AverageSimilarity {
        /// Rating difference that counts as 1.
        rating_span: f64,
        /// Similarity that must be exceeded, percent.
        required_percent: f64,
    },
    /// Mean over members of a weight by category distance, of the least similar member.
    CategorySimilarity {
        /// Number of categories.
        categories: u16,
        /// Rating points per category.
        category_width: f64,
        /// Divisor of a category difference.
        divisor: u16,
        /// Curve applied to the distance.
        curve: DistanceCurve,
        /// Similarity that must be exceeded, percent.
        required_percent: f64,
    },
    /// Each team's win probability by the set's rating system is in [min, max].
    WinProbability {
        /// Lower bound, percent, inclusive.
        min_percent: f64,
        /// Upper bound, percent, inclusive.
        max_percent: f64,
    },
    /// Draw probability of the two teams, relative to that of two teams with equal and certain ratings; by the set's
    /// rating system.
    DrawProbability {
        /// Minimum quality, in (0, 1].
        threshold: f64,
    },
}

/// Selection of matches among the acceptable ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionSpec {
    /// Selection algorithm.
    pub mode: SelectionMode,
    /// Order in which tickets are served.
    pub start_with: SelectionOrder,
    /// Maximum number of candidates evaluated for one match, nearest ratings first. It bounds the pair checks per
    /// ticket of a pass.
    pub max_candidates: u32,
    /// Largest number of tickets for which `MaximumWeight` is exact. Above it only the nearest candidates are
    /// considered, and the report says so.
    pub exact_up_to_tickets: u32,
    /// Directions in which `Nearest` looks for candidates.
    pub look: LookDirection,
}

/// Directions in which a ticket looks for candidates, in the order of the queue: by bucket, rating or leaderboard place. Pairs are
/// mutual, so each pair is seen in one direction too, with half the checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LookDirection {
    /// To both sides.
    #[default]
    Both,
    /// At its own bucket or rating, and at lower ones.
    Down,
    /// At its own bucket or rating, and at higher ones.
    Up,
}

/// Selection algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionMode {
    /// Nearest candidates; ties by longest wait.
    Nearest,
    /// Random sample weighted by quality.
    WeightedSample,
    /// First window over the sorted ratings that is good enough.
    FirstWindow,
    /// All matches at once, with the maximum total quality.
    MaximumWeight,
}

/// Order in which tickets are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionOrder {
    /// Longest wait first.
    LongestWaiting,
    /// Highest rating first.
    HighestRated,
}

/// Quality bonus for waiting: `max(0, combined_minutes - free_minutes) * per_minute`, unbounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitBonus {
    /// Bonus per minute of combined waiting.
    pub per_combined_minute: f64,
    /// Minutes of combined waiting without a bonus.
    pub free_combined_minutes: f64,
}

/// Rule about players who should not meet again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AvoidanceRule {
    /// Players to avoid.
    pub whom: AvoidTarget,
    /// Strictness of the rule.
    pub how: AvoidStrictness,
}

/// Players that an avoidance rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvoidTarget {
    /// Users that either side has blocked.
    Blocked,
    /// Users of other teams in recently started matches.
    RecentOpponents {
        /// Age up to which a match is recent, milliseconds.
        recent_ms: u64,
    },
    /// Users of the same team in recently started matches.
    RecentTeammates {
        /// Age up to which a match is recent, milliseconds.
        recent_ms: u64,
    },
}

/// Strictness of an avoidance rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AvoidStrictness {
    /// Never in the same match: a hard rule.
    Never,
    /// Never in the same team.
    NotSameTeam,
    /// Allowed at a quality cost, halved every `half_life_ms` since the last match together.
    PreferNot {
        /// Quality cost.
        cost: f64,
        /// Half-life of the cost, milliseconds. Not used for `Blocked`, which has no age.
        half_life_ms: u64,
    },
}

/// Alternative matchmaking set offered after a long wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternativeSetOffer {
    /// Waiting time, milliseconds.
    pub after_ms: u64,
    /// Set that the party may enter instead; for example, an unranked one.
    pub set_id: SetId,
}
