//! State of all waiting tickets at the time of one pass: sort order, ranges, limits and regions, and the pair rules.
//!
//! A `row` is the index of a ticket in [`PassState::tickets`].

mod avoidance_table;
mod blocked_rows;
mod build_match;
mod row_set;

use std::cmp::Ordering;

use crate::attribute::AttributeValue;
use crate::filter::{Refusal, SessionView, WaitingSession};
use crate::id::UserKey;
use crate::order::ordered_bits;
use crate::queue::avoidance::{AvoidanceReasons, AvoidanceSide, MeetingRestriction, have_common_user};
use crate::queue::filter_columns::FilterColumns;
use crate::queue::input::PassInput;
use crate::queue::pass_state::avoidance_table::AvoidanceTable;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::quality::PartyQualityInput;
use crate::queue::rating_group;
use crate::queue::region::{self, ReachableRegions, RegionNames};
use crate::queue::window::{self, BucketRange};
use crate::ruleset::queue::{QualitySpec, RegionUse, SelectionMode};
use crate::ruleset::{HardMissingPolicy, HardRule};

/// Ticket at the time of a pass.
#[derive(Clone, Debug)]
pub(super) struct PassTicket<'a> {
    pub(super) prepared: &'a PreparedTicket,
    /// Input of hard filters.
    pub(super) waiting_session: WaitingSession<'a>,
    /// Copy from `prepared`, to avoid a lookup per pair.
    pub(super) player_count: u16,
    pub(super) rating_group: u16,
    pub(super) rating_bucket: i64,
    pub(super) leaderboard_position: Option<f64>,
    /// User of a party of one.
    only_user: Option<UserKey>,
    /// Buckets to either side of `center_bucket` that the window covers.
    pub(super) window_range: u32,
    /// Center bucket of the window.
    pub(super) center_bucket: i64,
    /// Rating groups beyond its own that it may meet.
    pub(super) extra_groups: u16,
    /// Regions it may play in.
    pub(super) reachable_regions: ReachableRegions<'a>,
}

impl<'a> PassTicket<'a> {
    pub(super) fn quality_input(&self, team: u16) -> PartyQualityInput<'a> {
        let prepared = self.prepared;
        PartyQualityInput {
            session: self.waiting_session.session,
            matching_ratings: &prepared.matching_ratings,
            player_ratings: &prepared.ticket.player_ratings,
            leaderboard_position: self.leaderboard_position,
            waited_ms: self.waiting_session.waited_ms,
            team,
        }
    }

    /// Window in buckets at the time of the pass.
    pub(super) fn bucket_range(&self) -> BucketRange {
        BucketRange { own_bucket: self.rating_bucket, center: self.center_bucket, range: self.window_range }
    }

    pub(super) fn avoidance_side(&self) -> AvoidanceSide<'a> {
        AvoidanceSide { users: &self.prepared.users, blocked_users: &self.prepared.blocked_users }
    }

    /// Order of equally good tickets: longest wait first, then lowest id.
    pub(super) fn compare_seniority(&self, other: &PassTicket<'_>) -> Ordering {
        let (one, other) = (&self.prepared.ticket, &other.prepared.ticket);
        one.entered_at.cmp(&other.entered_at).then(one.id.cmp(&other.id))
    }
}

/// All tickets of a pass, sorted so that near candidates are adjacent.
pub(super) struct PassState<'a> {
    pub(super) input: &'a PassInput<'a>,
    /// Sorted by key, then by seniority. For window selection, which goes down, the senior ticket comes last.
    pub(super) tickets: Vec<PassTicket<'a>>,
    /// Sort key of each ticket: rating bucket, rating or leaderboard position.
    pub(super) sort_keys: Vec<f64>,
    /// Columns of the ruleset's filters.
    pub(super) filter_columns: FilterColumns<'a>,
    pub(super) region_names: RegionNames<'a>,
    /// Keys are ratings or buckets, so groups and buckets are sorted as well.
    pub(super) is_sorted_by_rating: bool,
    /// Keys are buckets.
    is_sorted_by_bucket: bool,
    /// Maximum distance in buckets from a ticket's own bucket to the end of its window.
    pub(super) max_window_reach: u32,
    /// Tickets that avoid each other.
    avoidance: AvoidanceTable<'a>,
    /// Entries of string lists are chosen for each match.
    chooses_values: bool,
}

impl<'a> PassState<'a> {
    pub(super) fn new(input: &'a PassInput<'a>) -> Self {
        let queue = input.queue;
        let by_position = matches!(queue.quality, QualitySpec::LeaderboardGauss { .. });
        // Windows go down from the highest rating. Among equal ratings the senior ticket comes first.
        let descending = queue.selection.mode == SelectionMode::FirstWindow;
        let sorted_by_rating = !by_position || descending;
        let sorted_by_bucket = sorted_by_rating && !descending && queue.window.is_some();
        let key = |prepared: &PreparedTicket| match (sorted_by_rating, sorted_by_bucket) {
            (_, true) => prepared.rating_bucket as f64,
            (true, false) => prepared.party_rating + 0.0,
            (false, false) => prepared.leaderboard_position.unwrap_or(f64::INFINITY),
        };
        // Equal keys are ordered by wait time, then by id. Ids are read only for ties.
        let mut order: Vec<(u64, u64, u32)> = (0..input.tickets.len() as u32)
            .map(|index| {
                let prepared = input.tickets[index as usize];
                let entered_at = prepared.ticket.entered_at.0;
                (ordered_bits(key(prepared)), if descending { !entered_at } else { entered_at }, index)
            })
            .collect();
        order.sort_unstable_by(|one, other| {
            let id = |index: u32| input.tickets[index as usize].ticket.id;
            let by_id = || if descending { id(other.2).cmp(&id(one.2)) } else { id(one.2).cmp(&id(other.2)) };
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(by_id)
        });
        let region_names = match queue.regions {
            Some(RegionUse::Filter { .. } | RegionUse::Quality { .. }) => RegionNames::from_measurements(
                input.tickets.iter().map(|prepared| &*prepared.ticket.session.region_latencies),
            ),
            _ => RegionNames::default(),
        };
        let sorted = order.iter().map(|&(_, _, index)| input.tickets[index as usize]);
        let tickets: Vec<PassTicket<'a>> =
            sorted.map(|prepared| prepare_pass_ticket(input, &region_names, prepared)).collect();
        let sort_keys = tickets.iter().map(|ticket| key(ticket.prepared)).collect();
        let filter_columns =
            FilterColumns::new(input.ruleset, tickets.iter().map(|ticket| ticket.waiting_session).collect());
        let max_window_reach = tickets.iter().map(|ticket| ticket.bucket_range().max_distance()).max().unwrap_or(0);
        Self {
            avoidance: AvoidanceTable::new(input, tickets.iter().map(|ticket| ticket.prepared)),
            input,
            tickets,
            sort_keys,
            filter_columns,
            region_names,
            is_sorted_by_rating: sorted_by_rating,
            is_sorted_by_bucket: sorted_by_bucket,
            max_window_reach,
            chooses_values: input.ruleset.chooses_values(),
        }
    }

    /// Checks all pair rules. Returns the first refusal, from the view of `one`.
    pub(super) fn check_pair(&self, one: u32, other: u32) -> Result<(), Refusal> {
        let (queue, indices) = (self.input.queue, (one, other));
        let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
        let same_user = match (one.only_user, other.only_user) {
            (Some(one), Some(other)) => one == other,
            _ => have_common_user(&one.prepared.users, &other.prepared.users),
        };
        if same_user {
            return Err(Refusal::OwnSession);
        }
        self.filter_columns.check_pair(indices.0, indices.1)?;
        if queue.groups.is_some() {
            let reach = |ticket: &PassTicket<'_>| (ticket.rating_group, ticket.extra_groups);
            rating_group::groups_may_meet(reach(one), reach(other)).then_some(()).ok_or(Refusal::RatingGroup)?;
        }
        if let Some(rule) = queue.regions {
            region::regions_may_meet(rule, &one.reachable_regions, &other.reachable_regions)
                .then_some(())
                .ok_or(Refusal::NoCommonRegion)?;
        }
        if let Some(window) = &queue.window {
            window::windows_satisfy_pair_rule(window, one.bucket_range(), other.bucket_range())
                .then_some(())
                .ok_or(Refusal::RatingWindow)?;
        }
        if self.must_not_meet(indices.0, indices.1) {
            return Err(Refusal::AvoidedPlayer);
        }
        Ok(())
    }

    /// Whether an avoidance rule keeps two tickets out of one match.
    pub(super) fn must_not_meet(&self, one: u32, other: u32) -> bool {
        self.avoidance.may_forbid_match && self.avoidance_verdict(one, other).never_meet
    }

    /// Reasons for which two tickets avoid each other; `None` if there are none.
    pub(super) fn avoidance_reasons(&self, one: u32, other: u32) -> Option<AvoidanceReasons> {
        self.avoidance.reasons(one, other)
    }

    /// Whether an avoidance rule keeps two tickets out of one team.
    pub(super) fn must_be_in_different_teams(&self, one: u32, other: u32) -> bool {
        self.avoidance.may_forbid_team && self.avoidance_verdict(one, other).separate_teams
    }

    fn avoidance_verdict(&self, one: u32, other: u32) -> MeetingRestriction {
        let reasons = self.avoidance_reasons(one, other);
        reasons.map(|reasons| reasons.meeting_restriction(&self.input.queue.avoid, self.input.now)).unwrap_or_default()
    }

    /// Whether no two tickets avoid each other.
    pub(super) fn is_without_avoidance(&self) -> bool {
        self.avoidance.is_empty()
    }

    /// Distance of two tickets by sort key, in buckets, rating points or leaderboard positions. NaN if neither has a
    /// leaderboard position, which sorts last.
    pub(super) fn sort_key_distance(&self, one: u32, other: u32) -> f64 {
        (self.sort_keys[one as usize] - self.sort_keys[other as usize]).abs()
    }

    /// Refusal if `other` and all tickets beyond it are too far from `one` by group or window. Always `None` unless
    /// sorted by rating, because other orders do not sort groups and buckets.
    pub(super) fn refusal_of_all_beyond(&self, one: u32, other: u32) -> Option<Refusal> {
        if !self.is_sorted_by_rating {
            return None;
        }
        let (one, other) = (&self.tickets[one as usize], &self.tickets[other as usize]);
        // Within one bucket, groups are not sorted.
        if self.input.queue.groups.is_some()
            && !self.is_sorted_by_bucket
            && one.extra_groups < one.rating_group.abs_diff(other.rating_group)
        {
            return Some(Refusal::RatingGroup);
        }
        let window = self.input.queue.window.as_ref()?;
        let distance = one.rating_bucket.abs_diff(other.rating_bucket);
        (window::max_bucket_distance_to_compare(window, one.bucket_range().max_distance(), self.max_window_reach)
            < distance)
            .then_some(Refusal::RatingWindow)
    }

    /// Splits tickets into pools that never meet: by region where regions are separate, and by attributes that must be
    /// equal. Each pool keeps the ticket order. Pools are sorted by value.
    pub(super) fn partition_by_region_and_equal_values(&self) -> Vec<Vec<u32>> {
        let attributes = self.partition_attributes();
        let mut order: Vec<u32> = (0..self.tickets.len() as u32).collect();
        if attributes.is_empty() {
            return if order.is_empty() { Vec::new() } else { vec![order] };
        }
        let compare = |one: u32, other: u32| {
            let values = |row: u32| &self.tickets[row as usize].prepared.attribute_values;
            let by_value =
                |&attribute: &usize| compare_attribute_values(values(one).get(attribute), values(other).get(attribute));
            attributes.iter().map(by_value).find(|it| it.is_ne()).unwrap_or(Ordering::Equal)
        };
        order.sort_by(|&one, &other| compare(one, other));
        order.chunk_by(|&one, &other| compare(one, other).is_eq()).map(<[u32]>::to_vec).collect()
    }

    /// Attributes that partition the tickets. A filter that passes missing values partitions only if no value is
    /// missing.
    fn partition_attributes(&self) -> Vec<usize> {
        let complete = |attribute: usize| {
            self.tickets.iter().all(|ticket| ticket.prepared.attribute_values.get(attribute).is_some())
        };
        let equal = self.input.ruleset.hard_filters.iter().filter_map(|filter| match filter.rule {
            HardRule::Equal { attribute, value: None } => {
                (filter.missing == HardMissingPolicy::Refuse || complete(attribute)).then_some(attribute)
            }
            _ => None,
        });
        let region = match self.input.queue.regions {
            Some(RegionUse::Partition { attribute }) => Some(attribute),
            _ => None,
        };
        region.into_iter().chain(equal).collect()
    }
}

fn prepare_pass_ticket<'a>(
    input: &PassInput<'a>,
    region_names: &RegionNames<'_>,
    prepared: &'a PreparedTicket,
) -> PassTicket<'a> {
    let (queue, session) = (input.queue, &prepared.ticket.session);
    let entered_at = prepared.ticket.entered_at;
    let waited_ms = input.now.ms_since(entered_at);
    let session_view = SessionView {
        attribute_values: &prepared.attribute_values,
        locality: session.locality,
        region_latencies: &session.region_latencies,
        wishes: session.wishes(),
        prediction_end: prepared.as_prediction_end(input.now),
    };
    let reachable = |rule| {
        region::reachable_regions(
            input.ruleset,
            rule,
            region_names,
            &prepared.attribute_values,
            &prepared.ticket,
            waited_ms,
        )
    };
    PassTicket {
        prepared,
        waiting_session: WaitingSession { session: session_view, waited_ms },
        player_count: prepared.player_count,
        rating_group: prepared.rating_group,
        rating_bucket: prepared.rating_bucket,
        leaderboard_position: prepared.leaderboard_position,
        only_user: if let [user] = prepared.users[..] { Some(user) } else { None },
        window_range: queue.window.as_ref().map_or(0, |window| {
            let range = window::range_at(window, prepared.party_rating, entered_at, input.now);
            prepared.range_factor(queue).map_or(range, |factor| window::scale_range(range, factor))
        }),
        center_bucket: prepared.center_bucket(queue),
        extra_groups: queue.groups.as_ref().map_or(0, |groups| rating_group::extra_group_count(groups, waited_ms)),
        reachable_regions: queue.regions.map_or_else(ReachableRegions::default, reachable),
    }
}

fn compare_attribute_values(one: Option<&AttributeValue>, other: Option<&AttributeValue>) -> Ordering {
    let rank = |value: &AttributeValue| match value {
        AttributeValue::Number(_) => 0,
        AttributeValue::String(_) => 1,
        AttributeValue::Bool(_) => 2,
        AttributeValue::StringList(_) => 3,
    };
    match (one, other) {
        (Some(AttributeValue::Number(one)), Some(AttributeValue::Number(other))) => {
            ordered_bits(*one).cmp(&ordered_bits(*other))
        }
        (Some(AttributeValue::String(one)), Some(AttributeValue::String(other))) => one.cmp(other),
        (Some(AttributeValue::Bool(one)), Some(AttributeValue::Bool(other))) => one.cmp(other),
        (Some(AttributeValue::StringList(one)), Some(AttributeValue::StringList(other))) => one.cmp(other),
        (one, other) => one.map(rank).cmp(&other.map(rank)),
    }
}
