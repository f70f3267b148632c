//! Explanation for a waiting ticket: its situation, near misses with margins, and relaxations that give a match.

use crate::filter::Refusal;
use crate::id::TicketId;
use crate::latency::round_trip_estimate::ExplainedEstimate;
use crate::queue::gate::GateReason;
use crate::time::UnixMs;

/// Explanation for a waiting ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// State of the ticket.
    pub situation: TicketSituation,
    /// Reason why no pass runs. `None` if the gate is open.
    pub gate_reason: Option<GateReason>,
    /// Number of other tickets evaluated.
    pub candidate_count: u32,
    /// Evaluated tickets by the first rule that refuses them, in the order of `Refusal::counter_index`.
    pub refusal_counts: Vec<(Refusal, u32)>,
    /// Rule that a pass over the same tickets reports for this one. `None` if that pass matches it.
    pub blocking_refusal: Option<Refusal>,
    /// Evaluated tickets that no rule refuses. There may be too few of them, or other matches take them.
    pub compatible_count: u32,
    /// Closest non-matching tickets, closest first: fewest failed rules, then smallest excess over the limit.
    pub near_misses: Vec<NearMissTicket>,
    /// The ticket would match now if it were served first and the gate were open.
    pub matches_now: bool,
    /// Smallest single change that gives a match now, relative to the current setting. `None` if it matches already or
    /// no single change suffices.
    pub smallest_relaxation: Option<Relaxation>,
    /// Other single changes that give a match, the smallest of each kind, sorted by size.
    pub other_relaxations: Vec<Relaxation>,
    /// Widenings of its limits since it entered, oldest first.
    pub past_widenings: Vec<Widening>,
    /// The next widening. `None` if no limit of the ticket widens.
    pub next_widening: Option<NextWidening>,
    /// The pair check budget ran out, or not all tickets were evaluated.
    pub truncated: bool,
}

/// Growth of one or more limits of a ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct Widening {
    /// Time from which the limits hold.
    pub at: UnixMs,
    /// Limits that grew, with their new values. Empty if only a wish or the use of bots changed.
    pub limits: Vec<WidenedLimit>,
}

/// Limit that grew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WidenedLimit {
    /// Expansion.
    Expansion {
        /// Index into `Ruleset::expansions`.
        expansion: usize,
        /// New limit.
        limit: f64,
    },
    /// Rating window.
    Window {
        /// New range in buckets to either side.
        range: u32,
    },
    /// Rating groups.
    Groups {
        /// New number of groups beyond the ticket's own.
        extra_groups: u16,
    },
}

/// The next widening of a ticket.
#[derive(Clone, Debug, PartialEq)]
pub struct NextWidening {
    /// Time and limits.
    pub widening: Widening,
    /// Evaluated candidates that no rule refuses then.
    pub compatible_count: u32,
    /// Those of them that a rule refuses now.
    pub newly_compatible_count: u32,
}

/// State of a ticket that waits.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TicketSituation {
    /// Time waited, milliseconds.
    pub waited_ms: u64,
    /// Rating of the party.
    pub party_rating: f64,
    /// Leaderboard position, 0 for the best.
    pub leaderboard_position: Option<f64>,
    /// Number of players.
    pub player_count: u16,
    /// Rating group, and number of other groups it may meet. `None` without groups.
    pub group_and_extra_groups: Option<(u16, u16)>,
    /// Rating bucket, and window range in buckets to either side. `None` without a window.
    pub bucket_and_range: Option<(i64, u32)>,
    /// Factor on the window range from the satisfaction rule.
    pub range_factor: Option<f64>,
    /// Factor by which the satisfaction rule of the ruleset widens `expansion_limits`, if it applies.
    pub limit_factor: Option<f64>,
    /// Rating points by which the satisfaction rule lowers the window center.
    pub rating_shift: Option<f64>,
    /// Current limits, in the order of `Ruleset::expansions`.
    pub expansion_limits: Vec<f64>,
}

/// Ticket that a rule refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMissTicket {
    /// Ticket id.
    pub ticket_id: TicketId,
    /// First rule that refuses.
    pub first_refusal: Refusal,
    /// Number of rules that refuse.
    pub failed_rule_count: u16,
    /// Measured value and limit of the first rule. `None` for rules without a measure.
    pub margin: Option<MeasuredAndLimit>,
    /// Estimated round trip to it, with the terms of a prediction; `None` if it is unknown, or the ruleset predicts no round trips.
    pub round_trip: Option<ExplainedEstimate>,
}

/// Measured value of a rule, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredAndLimit {
    /// Measured value: filter measure, buckets, groups or quality.
    pub measured: f64,
    /// Limit of the rule: a maximum, or for quality a minimum.
    pub limit: f64,
}

/// Single change that gives a match now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Relaxation {
    /// A higher limit of an expansion, for all tickets.
    Expansion {
        /// Index into `Ruleset::expansions`.
        expansion: usize,
        /// Current limit.
        current: f64,
        /// Lowest limit that gives a match.
        required: f64,
    },
    /// Wider windows, for all tickets.
    Window {
        /// Additional buckets to either side.
        more_buckets: u32,
    },
    /// More rating groups, for all tickets.
    ExtraGroups {
        /// Additional groups to either side.
        more_groups: u16,
    },
    /// A lower quality threshold: `threshold`, `max_score` or `required_percent`, in the ruleset's unit.
    Quality {
        /// Current value.
        current: f64,
        /// Value that gives a match, within 1/1024 of the distance to the loosest value.
        required: f64,
    },
    /// Waiting longer.
    Wait {
        /// Additional wait, milliseconds.
        more_ms: u64,
    },
    /// More tickets like this one.
    MoreTickets {
        /// Minimum number of additional tickets.
        more_tickets: u16,
    },
}
