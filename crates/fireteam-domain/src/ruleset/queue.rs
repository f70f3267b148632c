//! How waiting parties are put together, as a ruleset says it: gate, groups, regions, window, quality, selection, wait
//! bonus, whom to avoid.

use crate::attribute::PartyAggregation;
use crate::id::SetId;
use crate::ruleset::DistanceCurve;

/// One queue. Each step may be left out; what remains still makes matches.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// How often a pass is run, milliseconds (S0-17).
    pub pass_every_ms: u32,
    /// How the ratings of a party's players become the party's one rating (S0-26).
    pub party_rating: PartyAggregation,
    /// Whether a user may wait in this queue and in another at once (D-1).
    pub several_queues: bool,
    /// Whether parties look for parties of like size first.
    pub like_parties_first: bool,
    /// Whether matches and sessions with open seats are filled from this queue before new matches are made.
    pub backfill: bool,
    /// How long a ticket is kept without a heartbeat, milliseconds.
    pub ticket_lapse_ms: u32,
    /// Whether a pass is worth running.
    pub gate: Gate,
    /// Rating groups, lowest first; `None` when everyone is in one.
    pub groups: Option<RatingGroups>,
    /// What a player's region means; `None` when it means nothing (S3-8).
    pub regions: Option<RegionMode>,
    /// How far a ticket may look; `None` for as far as hard filters allow.
    pub window: Option<RatingWindow>,
    /// How good a match must be.
    pub quality: QualitySpec,
    /// Which of the matches that would do is made.
    pub selection: SelectionSpec,
    /// What waiting adds to quality.
    pub wait_bonus: Option<WaitBonus>,
    /// Whom players would not meet again.
    pub avoid: Box<[AvoidanceRule]>,
    /// What those who wait long are offered instead (S4-16).
    pub offer: Option<AlternativeSetOffer>,
    /// Whom it looks after, and how (S1-97); `None` for nobody.
    pub satisfaction: Option<SatisfactionSpec>,
}

/// Whom a queue looks after, and how: the window of a frustrated player is wider, or lies lower. Rather a match that is less even
/// than another long wait, or one that is easier than another defeat (S1-97).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SatisfactionSpec {
    /// Matches lost in a row from which on a player is frustrated; `None` when that says nothing. A party is frustrated when one of
    /// its players is, by whichever sign.
    pub losing_streak: Option<u32>,
    /// Matches that the player has left before their end, in percent of those that count in the rating, from which on the player is
    /// frustrated; `None` when that says nothing.
    pub abandoned_percent: Option<f64>,
    /// The mean of the scores that the player has given to matches, 1 to 5, below which the player is frustrated; `None` when that
    /// says nothing.
    pub score_below: Option<f64>,
    /// Matches that must count in the rating before a share of them says anything, and scores that must have been given before
    /// their mean does.
    pub min_matches: u32,
    /// What the range is multiplied by then, its bounds included; 1 where it stays as wide as it is.
    pub widen: f64,
    /// By how many rating points the middle of the range lies below the player's own rating then; 0 where it stays there.
    pub shift_down: f64,
}

impl Default for SatisfactionSpec {
    /// Looks after nobody, and does nothing for them.
    fn default() -> Self {
        Self {
            losing_streak: None,
            abandoned_percent: None,
            score_below: None,
            min_matches: 5,
            widen: 1.0,
            shift_down: 0.0,
        }
    }
}

/// Whether a pass is worth running.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// Share of the connected players who must be waiting, percent (S2-7).
    pub min_waiting_percent: f64,
    /// What happens to a fraction of a player (B-25).
    pub rounding: GateRounding,
    /// Matches that may be running at once; `None` for any number (S2-12).
    pub max_parallel_matches: Option<u32>,
    /// Skip passes while nothing has changed since one that found nothing (S0-23).
    pub skip_unchanged: bool,
}

/// How a fraction of a player counts at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateRounding {
    /// 3.9 players are 4.
    Up,
    /// 3.9 players are 3.
    Down,
}

/// Rating groups: lowest first, each beginning where the one before ends. Ratings below the first are in the first,
/// ratings above the last in the last (B-29).
#[derive(Clone, Debug, PartialEq)]
pub struct RatingGroups {
    /// The groups.
    pub groups: Box<[RatingGroup]>,
    /// After how much waiting a ticket may meet one group further, milliseconds; `None` for never (B-30).
    pub neighbour_every_ms: Option<u64>,
    /// How many groups further at most.
    pub max_neighbours: u16,
}

/// One rating group: `from <= rating < to` (S3-2).
#[derive(Clone, Debug, PartialEq)]
pub struct RatingGroup {
    /// What it is called.
    pub name: Box<str>,
    /// Its least rating.
    pub from: f64,
    /// The first rating above it.
    pub to: f64,
}

/// What a player's region means, in the three ways of S3-8.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RegionMode {
    /// Separate regions: who says the same region may meet, and nobody else.
    Separate {
        /// The text attribute that names the region: a place in `Ruleset::attributes`.
        attribute: usize,
    },
    /// A stage between queue and groups: all of a match have a region in common to which each one's round trip is within
    /// the limit after the time that each has waited. A ticket that has measured nothing fits everywhere.
    Stage {
        /// The limit, of latency: a place in `Ruleset::expansions`.
        expansion: usize,
    },
    /// Part of quality: a match is worth less by `weight` times the mean round trip to its best common region, in shares
    /// of `span_ms`, at most 1. A ticket that has measured nothing counts as `span_ms`.
    Quality {
        /// What a round trip of `span_ms` takes from quality.
        weight: f64,
        /// The round trip that counts as 1, milliseconds.
        span_ms: f64,
    },
}

/// How far a ticket may look, in buckets of ratings (S0-4 to S0-16).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingWindow {
    /// Rating points in one bucket: a ticket is in bucket `rounding(rating / bucket_width)` (S0-13).
    pub bucket_width: f64,
    /// How a rating becomes a whole bucket.
    pub rounding: BucketRounding,
    /// Buckets to either side at first (S0-5).
    pub start: u32,
    /// Buckets added with each step (S0-14).
    pub step: u32,
    /// Time between steps, milliseconds.
    pub step_every_ms: u64,
    /// Buckets to either side at most (S0-15); `None` for no such bound.
    pub max: Option<u32>,
    /// The same bound as a share of the ticket's own rating, percent; `None` for no such bound.
    pub max_percent: Option<f64>,
    /// Which bound rules when there are both.
    pub combine: WindowBoundChoice,
    /// How much of the distance the other side's range must cover, percent (S0-16).
    pub reciprocal_percent: f64,
    /// Whose clock widens the range (B-4).
    pub clock: WindowClock,
    /// What two ranges must do.
    pub rule: WindowMatchRule,
}

/// What the ranges of two tickets must do for them to meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowMatchRule {
    /// Each covers the other, as far as `reciprocal_percent` asks: `d <= mine` and `percent of d <= theirs` (S0-16).
    Contain,
    /// They share a bucket: `d <= mine + theirs` (D-3).
    Overlap,
}

/// How a rating becomes a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketRounding {
    /// To the nearest, halves away from zero.
    Round,
    /// Downwards.
    Floor,
    /// Upwards.
    Ceiling,
}

/// Which of two bounds rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowBoundChoice {
    /// The tighter one.
    Smaller,
    /// The wider one.
    Larger,
}

/// Whose clock widens a ticket's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowClock {
    /// One tick for the whole queue, so a newcomer may widen at once.
    Queue,
    /// Each ticket's own, from when it began to wait.
    Ticket,
}

/// How good a match is, and how good it must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QualitySpec {
    /// Any match that the hard rules and the window allow.
    Any,
    /// The worst soft score between two members is at most this; lower is better.
    SoftScore {
        /// The highest score that passes.
        max_score: f64,
    },
    /// `scale * exp(-d² / (2 sigma²))` over the distance d in leaderboard positions (S2-9).
    LeaderboardGauss {
        /// Positions.
        sigma: f64,
        /// Quality at no distance (B-27).
        scale: f64,
        /// Least quality that passes (B-24).
        threshold: f64,
    },
    /// `1 - |rating - mean| / rating_span`, of the least similar member (S4-6, S4-9).
    AverageSimilarity {
        /// The rating range that counts as 1.
        rating_span: f64,
        /// Similarity that must be exceeded, percent.
        required_percent: f64,
    },
    /// The mean over members of a weight by distance in categories, of the least similar member (S4-7, S4-9).
    CategorySimilarity {
        /// How many categories there are (B-21).
        categories: u16,
        /// Rating points in one category.
        category_width: f64,
        /// What a difference in categories is divided by (B-22).
        divisor: u16,
        /// How distance weighs (S4-8).
        curve: DistanceCurve,
        /// Similarity that must be exceeded, percent.
        required_percent: f64,
    },
    /// Every team's chance to win, by the set's rating system, lies in a band, both ends included (D-5).
    WinProbability {
        /// The least chance, percent.
        min_percent: f64,
        /// The greatest, percent.
        max_percent: f64,
    },
    /// How likely the two teams are to draw, as a share of what two are whose ratings are known for certain and equal; by the set's
    /// rating system (S2-4).
    DrawProbability {
        /// Least quality that passes, above 0 and up to 1.
        threshold: f64,
    },
}

/// Which of the matches that would do is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectionSpec {
    /// How.
    pub mode: SelectionMode,
    /// Who is served first.
    pub start_with: SelectionOrder,
    /// Tickets looked at for one match; those nearest in rating come first. A pass costs this many looks a ticket at most.
    pub look_at: u32,
    /// Up to so many tickets `MaximumWeight` is exact; above, the nearest are taken, and the report says so.
    pub exact_up_to: u32,
}

/// How a match is chosen among those that would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionMode {
    /// The nearest partners; ties by longest wait (S0-12).
    Nearest,
    /// Drawn, with quality as weight (S2-6).
    WeightedSample,
    /// The first window over the sorted ratings that is good enough (S4-5).
    BestWindow,
    /// All at once, so that the sum of qualities is greatest.
    MaximumWeight,
}

/// Who is served first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectionOrder {
    /// Who has waited longest.
    LongestWaiting,
    /// Who is rated highest (S4-5).
    HighestRated,
}

/// What waiting adds to quality: `max(0, combined minutes - free minutes) * per_minute`, unbounded (S2-11).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitBonus {
    /// Added per minute of combined waiting.
    pub per_minute: f64,
    /// Minutes of combined waiting that add nothing.
    pub free_minutes: f64,
}

/// Whom players would not meet again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AvoidanceRule {
    /// Whom.
    pub whom: AvoidTarget,
    /// How strictly.
    pub how: AvoidStrictness,
}

/// Whom somebody avoids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvoidTarget {
    /// Users that either has blocked.
    Blocked,
    /// Users of the other teams of matches that began within the time.
    RecentOpponents {
        /// How long ago is recent, milliseconds.
        for_ms: u64,
    },
    /// Users of the own team of matches that began within the time.
    RecentTeammates {
        /// How long ago is recent, milliseconds.
        for_ms: u64,
    },
}

/// How strictly somebody is avoided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AvoidStrictness {
    /// They never meet while it lasts: a hard rule.
    Never,
    /// They may meet, in different teams.
    NotSameTeam,
    /// A match with them is worth less, by `cost` halved for every `half_life_ms` that have gone by.
    RatherNot {
        /// What it takes from quality.
        cost: f64,
        /// After how long it weighs half, milliseconds; for `Blocked`, which has no age, it never does.
        half_life_ms: u64,
    },
}

/// What those who wait long are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternativeSetOffer {
    /// After how much waiting, milliseconds.
    pub after_ms: u64,
    /// The set that they may enter instead: an unranked one, for example.
    pub set_id: SetId,
}
